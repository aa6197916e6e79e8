"""`SparseCodingClassifier`: a classifier for samples with holes, as scikit-learn knows them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from halfseen import classifier_file
from halfseen.boundary import check_finite, checked_codes, choose_device, require_room
from halfseen.disk import MappedRows, entries_at_once, in_parts
from halfseen.hole_questions import HoleQuestions
from halfseen.model import Model
from halfseen.networks import NetworkSpec
from halfseen.nn import SparseCompletion
from halfseen.scoring import require_finite
from halfseen.sparse_fitting import Fitted, fit_classifier
from halfseen.tilings import Tiling
from halfseen.training.published import Published


class SparseCodingClassifier(ClassNamePrefixFeaturesOutMixin, TransformerMixin, HoleQuestions):
    """Classify samples with holes by a network, a dictionary and sparse codes learned together.

    Nothing is filled in before learning. A sample is approximated on its observed features by
    few atoms of a dictionary, the approximation completes it, and a network classifies the
    result; the loss of the network reaches the dictionary.

    Parameters
    ----------
    network : {"logistic", "mlp", "cnn4", "cnn4_bn", "resnet18"}, Module or function
        What classifies: a name; any ``torch.nn.Module`` from samples to scores (a copy is
        trained); or a function that makes one, called with ``(sample_shape, n_classes)`` or
        with nothing. What it learns must be in its ``state_dict()``: best epochs, checkpoints
        and files hold that.
    tiling : Tiling, optional
        How a sample is cut for coding: ``Whole()`` (default), ``Channels()`` or
        ``Patches(size, stride)``.
    n_atoms : int, optional
        Atoms of the dictionary; by default as many as a tile has features, but no more than
        there are tiles to learn from.
    lambda_rec, lambda_l1 : float
        The paper's λ1 and λ2, weights of reconstruction error and l1 norm beside the
        classification loss. By default `lambda_l1` is such that the price of a unit of code
        is half a standard deviation for a sample with the mean number of observed features.
    rec_scaling : {"share", "inverse"}
        How the reconstruction error of a sample counts that has M of N features observed: M/N
        times, as in the paper, or N/M times, as in the authors' code. "share" lets codes of new
        samples with fewer holes than in training grow; take "inverse" if the network sees
        reconstructions and such samples will come.
    training : {"task", "joint", "sequential", "published"} or Published
        ``"task"``: codes without labels, the classification loss reaches the dictionary
        through them. ``"joint"``: codes, dictionary and network in turns, the paper's
        objective by proximal steps and Adam. ``"sequential"``: dictionary and codes first,
        then the network. ``"published"``: the steps of the paper's Algorithms 1 and 2, with
        the other parameters as they are given; `Published` has their rates and Algorithm 3,
        and `published_settings` returns all of the paper's values.
    label_weight : float
        How much the classification loss enters the update of the codes, with training
        "joint" or "published": 1 is the paper, 0 leaves labels to dictionary and network.
    network_input : {"completed", "reconstruction"}
        What the network sees: observed values kept, or the reconstruction throughout (paper).
    hide : float
        Mean share of the observed entries that is hidden in each step of "task" training; a
        sample loses between none and twice this. Take 0 if neither training nor new samples
        have holes.
    n_epochs : int, optional
        Passes over the data. By default as many as make 600 mini-batches, at least 10, but not
        more than make 20,000.
    batch_size : int
        Samples in a mini-batch.
    learning_rate : float, optional
        Of the network. By default 0.01 for "logistic" and "mlp", else 0.002.
    weight_decay : float, optional
        Of the network, as in ``torch.optim.AdamW``. By default 0.5 for "mlp", 1 for "cnn4" and
        "cnn4_bn", 0.3 for "resnet18", else 0.001. Not used by "published" training.
    validation_fraction : float, optional
        Share of the samples of each class whose labels are kept from training. The epoch with
        the best accuracy on them is kept in the end, and training stops when a quarter of
        all epochs (and at least ten) brought no better one.
    class_weight : dict, "balanced" or None
        Weights of classes, see scikit-learn.
    device : str or torch.device
        Where to compute; ``"auto"`` takes a GPU if there is one.
    random_state : int, RandomState or None
        Seed of everything that is drawn. None is different every time. The global random
        state is neither used nor changed.
    verbose : int
        1 shows one live line in a terminal.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    module_ : torch.nn.Sequential
        The trained model: a tensor with NaN in, scores out. Its parts are `standardise`,
        `completion` (a `halfseen.nn.SparseCompletion`) and `network`.
    history_ : list of dict
        One record per epoch: J0, J1, J2, share of non-zero codes, accuracy, seconds.
    n_iter_ : int
        Epochs trained.
    feature_range_ : ndarray of shape (2, *sample_shape)
        The smallest and the largest value of each feature that was observed in training.
    completion_error_ : ndarray of shape sample_shape
        How far completed values of each feature are off (root mean square), measured on
        training samples with a quarter of their observed entries hidden.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        If X had column names.
    missing_values_ : list of str
        Numbers that the command line takes for holes in files; only if it was told of some.

    Notes
    -----
    Features are standardised first, except with "published" training: images by one scale for
    all pixels, tables column by column. Where more than half of the columns reach both the
    smallest and the largest value of all, as pixels, ratings and 0/1 columns do, all columns
    share one scale; put a ``StandardScaler`` before a table in which others are in smaller
    units. λ1 and λ2 act on standardised values. Samples
    that are equal in features and label count as one with the sum of their weights, so the
    order of the rows does not matter and a weight of two is the same as a row twice.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from halfseen import SparseCodingClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> X[np.random.default_rng(0).random(X.shape) < 0.3] = np.nan
    >>> clf = SparseCodingClassifier(n_epochs=50, random_state=0).fit(X, y)
    >>> clf.predict_proba(X[:2]).shape
    (2, 3)
    """

    _reads_in_parts = True

    def __init__(
        self,
        network: NetworkSpec = "logistic",
        tiling: Tiling | None = None,
        n_atoms: int | None = None,
        *,
        lambda_rec: float = 1.0,
        lambda_l1: float | None = None,
        rec_scaling: str = "share",
        training: str | Published = "task",
        label_weight: float = 0.0,
        network_input: str = "completed",
        hide: float = 0.25,
        n_epochs: int | None = None,
        batch_size: int = 128,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        validation_fraction: float | None = None,
        class_weight: dict | str | None = None,
        device: str | torch.device = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ):
        self.network = network
        self.tiling = tiling
        self.n_atoms = n_atoms
        self.lambda_rec = lambda_rec
        self.lambda_l1 = lambda_l1
        self.rec_scaling = rec_scaling
        self.training = training
        self.label_weight = label_weight
        self.network_input = network_input
        self.hide = hide
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.validation_fraction = validation_fraction
        self.class_weight = class_weight
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X, y, sample_weight=None, *, checkpoint: str | os.PathLike | None = None
    ) -> SparseCodingClassifier:
        """Learn dictionary and network.

        Parameters
        ----------
        X : array of shape (n_samples, n_features) or (n_samples, *sample_shape)
            NaN marks a hole. Every feature must be observed in some sample. A map of a file
            (``np.load(path, mmap_mode="r")``) or a Parquet dataset
            (``pyarrow.dataset.dataset(path)``) may be larger than memory.
        y : array of shape (n_samples,)
            Labels of any kind; or the name of their column if X is a dataset.
        sample_weight : array of shape (n_samples,), optional
        checkpoint : path, optional
            A file that the state of training is written to now and then. If the process
            dies, the same call goes on from there; on a CPU it ends with the same bits.

        Returns
        -------
        self
        """
        values, labels, classes = self._checked_training(X, y)
        fitted = fit_classifier(self, values, labels, classes, sample_weight, checkpoint)
        # All of it at the end, so that a failure leaves nothing behind.
        self._remember(X, values, classes)
        return self._adopt(fitted)

    def transform(self, X) -> np.ndarray:
        """Return the sparse codes of samples.

        Returns
        -------
        codes : ndarray of shape (n_samples, n_atoms) or (n_samples, n_tiles, n_atoms)
            With an axis for the tiles if a sample has several.
        """
        values = self._checked_new(X)
        module = self._module()
        parts = _in_parts(module, values, lambda X: module.completion(X, details=True).codes)
        codes = np.concatenate([part for _, part in parts]).astype(values.dtype, copy=False)
        require_finite(codes, "codes")
        return codes[:, 0] if codes.shape[1] == 1 else codes

    def inverse_transform(self, codes) -> np.ndarray:
        """Return the reconstructions that codes stand for, holes and observed values alike.

        Parameters
        ----------
        codes : array of shape (n_samples, n_atoms) or (n_samples, n_tiles, n_atoms)
            As `transform` returns them.
        """
        check_is_fitted(self)
        module = self._module()
        completion = module.completion
        given = checked_codes(codes, len(completion.layout), len(completion.atoms), "transform")
        with torch.no_grad(), torch.autocast(completion.atoms.device.type, enabled=False):
            result = completion.reconstruct(given.to(completion.atoms))
            return module.standardise.inverse(result).cpu().numpy()

    def impute(self, X) -> np.ndarray:
        """Return completed samples: observed values as they are, holes filled."""
        return self._completed(self._checked_new(X))

    def save(self, path: str | os.PathLike) -> None:
        """Write the fitted classifier to one file without code in it, whole or not at all."""
        check_is_fitted(self)
        classifier_file.save(self, path)

    @classmethod
    def load(
        cls, path: str | os.PathLike, network: NetworkSpec | None = None, device="auto"
    ) -> SparseCodingClassifier:
        """Return a classifier from a file that `save` wrote. No code is executed.

        Parameters
        ----------
        path : path
        network : Module or function, optional
            What `network` was, if it was not a name: the file holds weights, not code.
        device : str or torch.device
            The parameter `device` of the result.
        """
        return classifier_file.load(cls, path, network, device)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return len(self.module_.completion.atoms)

    def _adopt(self, fitted: Fitted) -> SparseCodingClassifier:
        self._fit_parameters = self._parameters()  # these made the module, for `save`
        self.__dict__.pop("missing_values_", None)  # of the data of an earlier fit
        self.module_ = fitted.module
        self.history_ = fitted.history
        self.n_iter_ = len(fitted.history)
        self.feature_range_ = np.stack([fitted.background.low, fitted.background.high])
        self.completion_error_ = fitted.background.completion_error
        return self

    def _parameters(self) -> dict:
        """Return all parameters, those too that a subclass does not let choose."""
        return {name: getattr(self, name) for name in SparseCodingClassifier._get_param_names()}

    @property
    def _sample_shape(self) -> tuple[int, ...]:
        return self.module_.completion.sample_shape

    def _module(self) -> Model:
        return self.module_.to(choose_device(self.device)).eval()

    def _scores(self, values: np.ndarray | MappedRows) -> np.ndarray:
        module = self._module()
        completion = module.completion
        seen = _completed_by if completion.output == "completed" else SparseCompletion.__call__

        def scores(X: Tensor) -> Tensor:
            return module.network(seen(completion, X)).double()

        return np.concatenate([part for _, part in _in_parts(module, values, scores)])

    def _completed(self, values: np.ndarray | MappedRows) -> np.ndarray:
        require_room(self.feature_range_, values.dtype)
        completed = np.empty(values.shape, values.dtype)
        module = self._module()

        def filled(X: Tensor) -> Tensor:
            return module.standardise.inverse(_completed_by(module.completion, X))

        for some, part in _in_parts(module, values, filled):
            given = values[some]
            with np.errstate(over="ignore"):  # X may have less room than the model
                completed[some] = np.where(np.isnan(given), part, given)
            require_finite(completed[some], "completed values", some.start)
        return completed


def _in_parts(
    module: Model, values: np.ndarray | MappedRows, use: Callable[[Tensor], Tensor]
) -> Iterator[tuple[slice, np.ndarray]]:
    """Standardise samples in parts that fit into memory: which, and what `use` makes of it."""
    completion = module.completion
    at_once = entries_at_once(completion.atoms.device)

    def made(some: slice) -> np.ndarray:
        X: Tensor = torch.from_numpy(np.array(values[some])).to(completion.atoms)
        X = module.standardise(X)
        check_finite(X, "X, standardised,", holes=True)
        with torch.no_grad():
            return use(X).cpu().numpy()

    return in_parts(len(values), at_once // completion.entries_per_sample, made)


def _completed_by(completion: SparseCompletion, X: Tensor) -> Tensor:
    """Return completed samples. Those without holes are so already, and are not coded."""
    some = X.isnan().flatten(1).any(1)
    completed = X.clone()
    if some.any():
        completed[some] = completion(X[some], details=True).completed
    return completed
