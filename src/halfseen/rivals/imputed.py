"""Fill the holes first, train a network afterwards: what people usually do."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.base import clone
from sklearn.impute import SimpleImputer
from torch import Tensor, nn

from halfseen.boundary import is_number, require
from halfseen.networks import NetworkSpec, make_network
from halfseen.rivals.base import NetworkRival
from halfseen.training.plain import HoleNetwork
from halfseen.training.samples import Samples


class ImputedClassifier(NetworkRival):
    """A network on samples whose holes an imputer has filled.

    Parameters
    ----------
    imputer : scikit-learn imputer or None
        Any transformer that fills NaN in a matrix. It is fitted by ``fit_transform(X, y)`` on
        the samples to learn from and fills new ones by ``transform``, which knows no labels.
        One whose `device` is "auto" computes where the network does.
        None: samples must be complete, in training and later.
    network : {"logistic", "mlp", "cnn4", "cnn4_bn", "resnet18"}, Module or function
        See `SparseCodingClassifier`.
    indicator : bool
        Also show the network which values were holes: as further features of a vector, or
        further channels of an image.
    dropout : float
        Share of the standardised input that is dropped in each step of training.
    impute_scaled : bool
        Fill after standardisation, so that distances and regressions have a common scale, or
        (False) in the units of X.
    n_epochs, batch_size, learning_rate, weight_decay, validation_fraction
        See `SparseCodingClassifier`.
    hide, device, random_state, verbose
        See `SparseCodingClassifier`. With `validation_fraction` the imputer learns from the
        other samples only.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    imputer_ : the fitted imputer, or None
    module_ : the trained network
    history_ : list of dict
        One record per epoch.
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.impute import KNNImputer
    >>> from halfseen.masks import ampute
    >>> from halfseen.rivals import ImputedClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> X = ampute(X, "random", 0.3, random_state=0)
    >>> clf = ImputedClassifier(KNNImputer(), "mlp", n_epochs=50, random_state=0).fit(X, y)
    >>> clf.predict_proba(X[:2]).shape
    (2, 3)
    """

    def __init__(
        self,
        imputer=None,
        network: NetworkSpec = "logistic",
        *,
        indicator: bool = False,
        dropout: float = 0.0,
        impute_scaled: bool = True,
        n_epochs: int | None = None,
        batch_size: int = 128,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        validation_fraction: float | None = None,
        hide: float = 0.25,
        device: str | torch.device = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ):
        self.imputer = imputer
        self.network = network
        self.indicator = indicator
        self.dropout = dropout
        self.impute_scaled = impute_scaled
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.validation_fraction = validation_fraction
        self.hide = hide
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.imputer is not None
        return tags

    def _check_settings(self) -> None:
        super()._check_settings()
        fills = all(hasattr(self.imputer, name) for name in ("fit_transform", "get_params"))
        require(self, "imputer", self.imputer is None or fills, "a scikit-learn imputer or None")
        share = is_number(self.dropout) and 0 <= self.dropout < 1
        require(self, "dropout", share, "from 0 to below 1")

    def _fill_training(self, values: np.ndarray, labels: np.ndarray) -> np.ndarray:
        if self.imputer is None:
            self.imputer_ = None
            return self._complete(values)
        self.imputer_ = clone(self.imputer)
        self._scaled_first = self.impute_scaled
        return self._filled(values, self.imputer_, labels)

    def _fill(self, values: np.ndarray) -> np.ndarray:
        if self.imputer_ is None:
            return self._complete(values)
        return self._filled(values, self.imputer_)

    def _make_network(self, samples: Samples, n_classes: int, seed: int) -> HoleNetwork:
        shape = tuple(samples.X.shape[1:])
        shape = _with_indicator_shape(shape) if self.indicator else shape
        network = make_network(self.network, shape, n_classes)
        blank = np.full((1, *samples.X.shape[1:]), np.nan)
        constant = isinstance(self.imputer_, SimpleImputer)
        fill = self._fill(blank)[0] if constant else np.zeros(blank.shape[1:])
        return FilledNetwork(network, torch.from_numpy(fill), self.indicator, self.dropout)

    def _complete(self, values: np.ndarray) -> np.ndarray:
        if np.isnan(values).any():
            raise ValueError(
                "X has holes (NaN) and this classifier has no imputer; pass complete samples or "
                "an imputer such as sklearn.impute.SimpleImputer()."
            )
        return self._standardised(values)

    def _filled(self, values: np.ndarray, imputer, labels: np.ndarray | None = None) -> np.ndarray:
        """Fill samples; with labels, learn from them first."""
        # Asked of the original: the copy may be where it was fitted.
        if self.imputer.get_params().get("device") == "auto":
            imputer.set_params(device=self.device)
        given = self._standardised(values) if self._scaled_first else values
        flat = given.reshape(len(values), -1)
        flat = flat.copy()  # whatever the imputer does to it
        new = labels is None
        filled = np.array(imputer.transform(flat) if new else imputer.fit_transform(flat, labels))
        if filled.shape != flat.shape or np.isnan(filled).any():
            raise ValueError(
                f"the imputer must return all {flat.shape[1]} features without NaN; got shape "
                f"{filled.shape} with {int(np.isnan(filled).sum())} NaN. Some imputers drop "
                f"features that were never observed: set keep_empty_features=True."
            )
        filled = filled.reshape(values.shape).astype(values.dtype, copy=False)
        return filled if self._scaled_first else self._standardised(filled)


class FilledNetwork(HoleNetwork):
    """A network on filled samples.

    Parameters
    ----------
    network : Module
    fill : Tensor of shape sample_shape
        What stands for values that are hidden in a step of training.
    indicator : bool
    dropout : float
    """

    fill: Tensor

    def __init__(self, network: nn.Module, fill: Tensor, indicator: bool, dropout: float) -> None:
        super().__init__()
        self.register_buffer("fill", fill)
        self.dropout = nn.Dropout(dropout)
        self.network = network
        self.indicator = indicator

    def hidden(self, X: Tensor, shown: Tensor) -> Tensor:
        """Return values with the fill where they are not shown."""
        return torch.where(shown, X, self.fill)

    def forward(self, X: Tensor, observed: Tensor) -> Tensor:
        """Return scores, shape (n_samples, n_classes)."""
        X = self.dropout(X)
        if self.indicator:
            holes = (~observed).to(X.dtype)
            # A vector gets longer; an image gets more channels.
            X = torch.stack([X, holes], 1) if X.ndim == 3 else torch.cat([X, holes], 1)
        return self.classified(X)


def _with_indicator_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (2, *shape) if len(shape) == 2 else (2 * shape[0], *shape[1:])
