"""`SparseCodingImputer`: completes samples with a dictionary learned from samples with holes."""

from __future__ import annotations

import copy

import numpy as np
import torch
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from halfseen.boundary import (
    checked_codes,
    choose_device,
    is_number,
    is_whole,
    learning_dtype,
    require,
    require_room,
    seed_from,
)
from halfseen.centring import CentredSamples
from halfseen.dictionary import (
    DictionaryState,
    learn_dictionary,
    shuffled_batches,
    start_dictionary,
)
from halfseen.disk import MappedRows, PickedRows, gpu_memory_is_told, slices
from halfseen.given_samples import checked_rows, named
from halfseen.moments import ObservedMoments
from halfseen.tile_coder import TileCoder
from halfseen.tilings import Tiling, checked_layout, tiling_of

_DEFAULT_ALPHA = 0.5  # in units of the root mean square of the centred observed values


class SparseCodingImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Complete samples by sparse coding with a dictionary learned from incomplete samples.

    Every sample is cut into tiles, every tile is approximated on its observed features by
    few atoms of one dictionary, and the approximation fills the holes. Nothing is filled in
    before learning. New samples are completed without refitting, each on its own.

    Parameters
    ----------
    n_atoms : int, optional
        Atoms of the dictionary; by default as many as a tile has features.
    tiling : Tiling, optional
        How a sample is cut: ``Whole()`` (default), ``Channels()`` or ``Patches(size, stride)``.
    alpha : float, optional
        Weight of the l1 norm in ½‖observed ⊙ (x − s·dictionary)‖² + alpha·‖s‖₁. By default
        half the root mean square of the centred observed values.
    positive : bool
        Restrict codes to s ≥ 0.
    n_steps : int
        Mini-batches that `fit` learns from. `partial_fit` follows the same schedule, one
        mini-batch after the other, and goes on with ever smaller steps after its end.
    batch_size : int
        Tiles in a mini-batch.
    tol : float
        Relative duality gap at which a tile's code is finished, see `sparse_encode`.
    device : str or torch.device
        Where to compute; ``"auto"`` takes a GPU if there is one.
    random_state : int, RandomState or None
        Seed of the first dictionary and of the order of the mini-batches. None is different
        every time. The global random state is neither used nor changed.

    Attributes
    ----------
    components_ : ndarray of shape (n_atoms, n_tile_features)
        The dictionary; atoms have norm 1.
    mean_ : ndarray of the shape of one sample
        Means of the observed values.
    alpha_ : float
        The alpha in use.
    n_steps_ : int
        Mini-batches learned from.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        If X had column names.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from halfseen import SparseCodingImputer
    >>> X, _ = load_digits(return_X_y=True)
    >>> holes = np.random.default_rng(0).random(X.shape) < 0.5
    >>> imputer = SparseCodingImputer(random_state=0).fit(np.where(holes, np.nan, X))
    >>> completed = imputer.transform(np.where(holes, np.nan, X))
    >>> bool(np.isnan(completed).any())
    False
    """

    def __init__(
        self,
        n_atoms: int | None = None,
        tiling: Tiling | None = None,
        alpha: float | None = None,
        *,
        positive: bool = False,
        n_steps: int = 600,
        batch_size: int = 512,
        tol: float = 1e-4,
        device: str | torch.device = "auto",
        random_state: int | np.random.RandomState | None = None,
    ):
        self.n_atoms = n_atoms
        self.tiling = tiling
        self.alpha = alpha
        self.positive = positive
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.tol = tol
        self.device = device
        self.random_state = random_state

    def fit(self, X, y=None) -> SparseCodingImputer:
        """Learn means and dictionary.

        Parameters
        ----------
        X : array of shape (n_samples, n_features) or (n_samples, *sample_shape)
            NaN marks a hole. Every feature must be observed in some sample.
        y : ignored

        Returns
        -------
        self
        """
        values = checked_rows(X, self)
        # What `_publish` would refuse is refused before the training.
        validate_data(copy.copy(self), named(X, values), reset=True, skip_check_array=True)
        layout = self._checked_layout(values.shape[1:])
        moments = ObservedMoments.of(values)
        moments.require_every_feature()
        samples = CentredSamples(values, moments, self._like(values.dtype))
        generator = torch.Generator().manual_seed(seed_from(self.random_state))
        state = self._start(layout, values.dtype, generator)
        batches = shuffled_batches(
            len(values) * len(layout), self.batch_size, self.n_steps, generator
        )
        state = self._learn(state, samples, layout, batches, moments)
        return self._publish(named(X, values), values.dtype, state, moments, reset=True)

    def partial_fit(self, X, y=None) -> SparseCodingImputer:
        """Go on learning from one more part of a stream, in the order of its rows.

        The first call takes the shape of the samples and starts the dictionary. Features
        that no part has shown yet are an error in `transform`, not here.

        Parameters
        ----------
        X : array of shape (n_samples, n_features) or (n_samples, *sample_shape)
        y : ignored

        Returns
        -------
        self
        """
        values = checked_rows(X, self)
        layout = self._checked_layout(values.shape[1:])
        moments = ObservedMoments.of(values)
        going_on = hasattr(self, "_state")
        if going_on:
            self._check_sample(X, values)
            n_atoms = len(self.components_)
            same = self.n_atoms is None or self.n_atoms == n_atoms
            require(self, "n_atoms", same, f"{n_atoms}, of which a stream is learned already")
            moments = self._moments.merged(moments)
        samples = CentredSamples(values, moments, self._like(values.dtype))
        if going_on:
            state = self._state.to(self._like(values.dtype))
        else:
            generator = torch.Generator().manual_seed(seed_from(self.random_state))
            state = self._start(layout, values.dtype, generator)
        n_tiles = len(values) * len(layout)
        batches = (
            torch.arange(*some.indices(n_tiles), device="cpu")
            for some in slices(n_tiles, int(self.batch_size))
        )
        state = self._learn(state, samples, layout, batches, moments)
        return self._publish(named(X, values), values.dtype, state, moments, reset=not going_on)

    def transform(self, X) -> np.ndarray:
        """Fill the holes; observed values are kept as they are.

        A sample without any observed value gets the means.

        Parameters
        ----------
        X : array of shape (n_samples, n_features) or (n_samples, *sample_shape)

        Returns
        -------
        completed : ndarray of the shape of X
        """
        values = self._checked_new(X)
        completed = np.array(values)
        # What has no holes needs no codes.
        places = np.flatnonzero(np.isnan(completed).reshape(len(completed), -1).any(1))
        with_holes, coder = PickedRows(completed, places), self._coder()
        for some, filled in coder.parts(with_holes, coder.reconstruction):
            given = with_holes[some]
            completed[places[some]] = np.where(np.isnan(given), filled, given)
        return completed

    def encode(self, X) -> np.ndarray:
        """Return the sparse codes of the centred samples.

        Parameters
        ----------
        X : array of shape (n_samples, n_features) or (n_samples, *sample_shape)

        Returns
        -------
        codes : ndarray of shape (n_samples, n_atoms) or (n_samples, n_tiles, n_atoms)
            With an axis for the tiles if a sample has several.
        """
        values = self._checked_new(X)
        parts = self._coder().parts(values, lambda codes: codes.cpu().numpy())
        codes = np.concatenate([part for _, part in parts])
        return codes[:, 0] if codes.shape[1] == 1 else codes

    def inverse_transform(self, codes) -> np.ndarray:
        """Return the reconstructions that codes stand for, holes and observed values alike.

        It undoes `encode`, not `transform`: what a pipeline completed goes back to its units
        through the steps before this one, ``pipeline[:-1].inverse_transform(completed)``.

        Parameters
        ----------
        codes : array of shape (n_samples, n_atoms) or (n_samples, n_tiles, n_atoms)
            As `encode` returns them.

        Returns
        -------
        reconstruction : ndarray of shape (n_samples, *sample_shape)
        """
        check_is_fitted(self, "components_")
        n_tiles = len(self._checked_layout(self.mean_.shape))
        given = checked_codes(codes, n_tiles, len(self.components_), "encode")
        return self._coder().reconstruction(given)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _checked_new(self, X) -> np.ndarray | MappedRows:
        check_is_fitted(self, "components_")
        values = checked_rows(X, self, getattr(self, "feature_names_in_", None))
        self._check_sample(X, values)
        self._moments.require_every_feature()
        return values

    def _check_sample(self, X, values: np.ndarray) -> None:
        validate_data(self, named(X, values), reset=False, skip_check_array=True)
        if values.shape[1:] != self.mean_.shape:
            raise ValueError(
                f"samples of shape {self.mean_.shape} were learned; got samples of shape "
                f"{values.shape[1:]}."
            )
        require_room(np.stack([self._moments.low, self._moments.high]), values.dtype)
        n_tile_features = self._checked_layout(values.shape[1:]).shape[1]
        if n_tile_features != self.components_.shape[1]:
            raise ValueError(
                f"{tiling_of(self)} makes tiles of {n_tile_features} features, but atoms of "
                f"{self.components_.shape[1]} were learned; fit again after changing the tiling."
            )

    def _checked_layout(self, sample_shape: tuple[int, ...]) -> Tensor:
        whole, tiling, alpha = "a whole number ≥ 1", self.tiling, self.alpha
        require(self, "n_atoms", self.n_atoms is None or is_whole(self.n_atoms), f"{whole} or None")
        require(self, "n_steps", is_whole(self.n_steps), whole)
        require(self, "batch_size", is_whole(self.batch_size), whole)
        positive = alpha is None or (is_number(alpha) and alpha > 0)
        require(self, "alpha", positive, "a positive number or None")
        require(self, "tol", is_number(self.tol) and self.tol >= 0, "a number ≥ 0")
        require(self, "positive", isinstance(self.positive, bool | np.bool_), "True or False")
        known = tiling is None or isinstance(tiling, Tiling)
        require(
            self, "tiling", known, "None or a tiling such as Whole(), Channels() or Patches(8, 4)"
        )
        return checked_layout(tiling_of(self), tuple(sample_shape))

    def _like(self, kind: np.dtype) -> Tensor:
        """Return an empty tensor of the device and dtype to learn in."""
        device = choose_device(self.device)
        return torch.empty(0, dtype=learning_dtype(kind, device), device=device)

    def _start(self, layout: Tensor, kind, generator: torch.Generator) -> DictionaryState:
        n_features = layout.shape[1]
        return start_dictionary(self.n_atoms or n_features, n_features, self._like(kind), generator)

    def _learn(self, state, samples: CentredSamples, layout, batches, moments) -> DictionaryState:
        with (
            gpu_memory_is_told("lower batch_size or n_atoms, or pass device='cpu'"),
            torch.autocast(state.dictionary.device.type, enabled=False),
        ):
            return learn_dictionary(
                state,
                samples.take,
                layout,
                batches,
                self._alpha(moments),
                self.n_steps,
                bool(self.positive),
                record=samples.resident,
            )

    def _alpha(self, moments: ObservedMoments) -> float:
        if self.alpha is not None:
            return float(self.alpha)
        # Constant data need no atoms, for which any alpha does.
        return _DEFAULT_ALPHA * moments.root_mean_square() or 1.0

    def _publish(self, X, kind, state: DictionaryState, moments, reset) -> SparseCodingImputer:
        """Set what was learned, all of it at the end, so that a failure leaves nothing behind."""
        validate_data(self, X, reset=reset, skip_check_array=True)
        self._state = state.to(torch.device("cpu"))
        self._moments = moments
        self.components_ = self._state.dictionary.numpy().astype(kind)
        self.mean_ = moments.mean.astype(kind)
        self.alpha_ = self._alpha(moments)
        self.n_steps_ = state.n_steps
        return self

    def _coder(self) -> TileCoder:
        return TileCoder(
            tiling_of(self),
            self.components_,
            self._moments,
            self.alpha_,
            bool(self.positive),
            float(self.tol),
            self.device,
        )
