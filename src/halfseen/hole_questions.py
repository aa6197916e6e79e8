"""What a fitted classifier can say about the holes in new samples."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor

from halfseen.boundary import finite_floats, is_whole, seed_from
from halfseen.certificates.bounds import check_supported
from halfseen.certificates.certify import Certificate, certify_ranges
from halfseen.disk import in_parts, slices
from halfseen.model import Model
from halfseen.scoring import ScoringClassifier

_SAMPLES_AT_ONCE = 256
_ENTRIES_AT_ONCE = 2**22


class Measurements(NamedTuple):
    """Which missing features to measure next, the best first.

    Attributes
    ----------
    feature : int ndarray of shape (n_samples, n_best)
        Places of the features in a sample that is written as one row; -1 where a sample has
        fewer holes.
    gain : ndarray of the same shape
        Expected change of the class probabilities, from 0 to 1 (half the sum of absolute
        differences); NaN where a sample has fewer holes.
    """

    feature: np.ndarray
    gain: np.ndarray


class HoleQuestions(ScoringClassifier):
    """Questions to a classifier that completes samples: `SparseCodingClassifier`."""

    feature_range_: np.ndarray
    completion_error_: np.ndarray

    @abstractmethod
    def _completed(self, values: np.ndarray) -> np.ndarray:
        """Return checked samples with their holes filled."""

    @abstractmethod
    def _module(self) -> Model:
        """Return the model on the device to compute on."""

    def certify(self, X, bounds=None) -> Certificate:
        """Say for each sample whether any values of its missing features change its class.

        Exact for a linear network. For others bounds are carried through the layers, which may
        fail to certify a sample, but, up to rounding, do not certify wrongly.

        Parameters
        ----------
        X : array of shape (n_samples, n_features) or (n_samples, *sample_shape)
            NaN marks a hole.
        bounds : pair (low, high), optional
            Ranges of the missing features, in the units of X: numbers, or arrays of the shape
            of a sample or of X; names of pandas, if there are some, must be those of the features.
            By default what was observed in training, ``feature_range_``.

        Returns
        -------
        certificate : halfseen.certificates.Certificate
            ``certain``, ``possible`` classes, ``margin``.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.datasets import load_iris
        >>> from halfseen import SparseCodingClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = SparseCodingClassifier(n_epochs=30, random_state=0).fit(X, y)
        >>> X[:, 1] = np.nan
        >>> found = clf.certify(X)
        >>> clf.classes_[found.possible[0]]
        array([0])
        """
        return self._certified(self._checked_new(X), bounds)

    def _certified(self, values, bounds=None, free: np.ndarray | None = None) -> Certificate:
        """Return the certificate of checked samples; entries that are `free` vary like holes."""
        module = self._module()
        if module.completion.output != "completed":
            raise ValueError(
                "certify() needs network_input='completed': with 'reconstruction' a sample is "
                "coded even when nothing is missing, and codes have no bounds here."
            )
        network = copy.deepcopy(module.network).double().eval()
        check_supported(network)
        scale = copy.deepcopy(module.standardise).double()
        dtype = module.completion.atoms.dtype  # in which new values are rounded
        ends = [end.to(dtype).double() for end in self._ranges(bounds, values.shape)]
        ends = [end.expand(values.shape) for end in ends]
        labels = torch.from_numpy(self._finite_scores(values).argmax(1))

        def certified(some: slice) -> Certificate:
            given = np.array(values[some])
            known = scale(torch.from_numpy(given).to(dtype).to(scale.centre))
            if free is not None:
                known[torch.from_numpy(free[some]).to(known.device)] = torch.nan
            low, high = (
                torch.where(known.isnan(), scale(end[some].to(scale.centre)), known) for end in ends
            )
            return certify_ranges(network, low, high, labels[some].to(low.device))

        parts = in_parts(len(values), _SAMPLES_AT_ONCE, certified)
        return Certificate.joined([part for _, part in parts])

    def completion_proba(self, X, n_draws: int = 100, random_state=0) -> np.ndarray:
        """Return how often each class is predicted when the holes are filled with plausible values.

        Plausible are the completed values, each plus an error as large as those that completing
        was measured to make (``completion_error_``). This says how likely it is that the class
        would stay if everything were measured; it is cheap and, unlike `certify`, no proof.

        Parameters
        ----------
        X : array of shape (n_samples, n_features) or (n_samples, *sample_shape)
        n_draws : int
            Fillings of each sample.
        random_state : int, RandomState or None

        Returns
        -------
        share : ndarray of shape (n_samples, n_classes)
        """
        values = self._checked_new(X)
        if not is_whole(n_draws):
            raise ValueError(f"n_draws must be a whole number ≥ 1; got {n_draws!r}.")
        self._finite_scores(values)  # refuses, by their numbers, samples without an answer
        # The same errors for all samples, so that none depends on its neighbours.
        random = np.random.default_rng(seed_from(random_state))
        errors = random.standard_normal((int(n_draws), *self._sample_shape))
        errors *= self.completion_error_
        count = np.zeros((len(values), len(self.classes_)), dtype=np.int64)
        for some in slices(len(values), _SAMPLES_AT_ONCE):
            given = np.array(values[some])
            completed, holes = self._completed(given), np.isnan(given)
            for drawn in slices(len(errors), _ENTRIES_AT_ONCE // given.size):
                added = np.where(holes, errors[drawn, None], 0)
                filled = (completed + added).astype(given.dtype, copy=False)
                label = self._scores(filled.reshape(-1, *given.shape[1:])).argmax(1)
                for each in label.reshape(-1, len(given)):
                    count[some][np.arange(len(given)), each] += 1
        return count / n_draws

    def what_to_measure(self, X, n_best: int = 5) -> Measurements:
        """Return which missing features of each sample are most worth measuring next.

        Each missing feature in turn is taken as measured, with a value above and one below its
        completion by ``completion_error_``; the sample is completed anew, and the change of the
        class probabilities is the gain, in the mean over both.

        Parameters
        ----------
        X : array of shape (n_samples, n_features) or (n_samples, *sample_shape)
            NaN marks a hole. The work grows with the number of holes.
        n_best : int
            Features to name for each sample.

        Returns
        -------
        measurements : Measurements
            ``feature`` and ``gain``, best first; at most as many as a sample has features.
        """
        values = self._checked_new(X)
        if not is_whole(n_best):
            raise ValueError(f"n_best must be a whole number ≥ 1; got {n_best!r}.")
        n_best = min(int(n_best), math.prod(self._sample_shape))
        feature = np.empty((len(values), n_best), dtype=np.int64)
        gain = np.empty((len(values), n_best))
        now = softmax(self._finite_scores(values), axis=1)
        for some in slices(len(values), _SAMPLES_AT_ONCE):
            worth = self._worth(np.array(values[some]), now[some])
            best = np.argsort(-worth, axis=1, kind="stable")[:, :n_best]
            found = np.take_along_axis(worth, best, axis=1)
            feature[some] = np.where(found < 0, -1, best)
            gain[some] = np.where(found < 0, np.nan, found)
        return Measurements(feature, gain)

    def _worth(self, given: np.ndarray, now: np.ndarray) -> np.ndarray:
        """Return the gain of every feature, (n_samples, n_features); -1 where it is known."""
        rows, error = given.reshape(len(given), -1), self.completion_error_.reshape(-1)
        completed = self._completed(given).reshape(rows.shape)
        worth = np.full(rows.shape, -1.0)
        sample, place = np.nonzero(np.isnan(rows))
        for some in slices(len(sample), _ENTRIES_AT_ONCE // rows.shape[1]):
            row, hole = sample[some], place[some]
            change = np.zeros(len(row))
            for sign in (-1, 1):
                tried = rows[row]
                tried[np.arange(len(row)), hole] = completed[row, hole] + sign * error[hole]
                then = softmax(self._scores(tried.reshape(-1, *given.shape[1:])), axis=1)
                change += np.abs(then - now[row]).sum(1) / 4
            worth[row, hole] = change
        return worth

    def _require_names(self, end, name: str) -> None:
        """Refuse ranges whose names are not those of the features, in their order."""
        features = getattr(self, "feature_names_in_", None)
        names = getattr(end, "columns", getattr(end, "index", None))
        if features is None or names is None or callable(names):  # lists have an index(), too
            return
        if list(names) != list(features):
            raise ValueError(
                f"bounds: {name} must have the names of the features, in their order, "
                f"{features[0]!r} first; got {list(names)[:5]}. Pass "
                f"{name}[list(clf.feature_names_in_)]."
            )

    def _ranges(self, bounds, shape: tuple[int, ...]) -> list[Tensor]:
        """Return the ends of the ranges: numbers, or of the shape of a sample or of X."""
        pair = self.feature_range_ if bounds is None else bounds
        if not isinstance(pair, tuple | list | np.ndarray | Tensor) or len(pair) != 2:
            raise ValueError(f"bounds must be a pair (low, high); got {pair!r}.")
        for end, name in zip(pair, ("low", "high"), strict=True):
            self._require_names(end, name)
        ends = [
            finite_floats(end, f"bounds: {name}").double().cpu()
            for end, name in zip(pair, ("low", "high"), strict=True)
        ]
        for end, name in zip(ends, ("low", "high"), strict=True):
            if tuple(end.shape) not in ((), shape[1:], shape):
                raise ValueError(
                    f"bounds: {name} must be a number or of the shape of a sample, {shape[1:]}, or "
                    f"of X, {shape}; got shape {tuple(end.shape)}."
                )
        if (ends[0] > ends[1]).any():
            low, high = torch.broadcast_tensors(*ends)
            place = tuple((low > high).nonzero()[0].tolist())
            raise ValueError(
                f"bounds: low must not be above high; got {low[place]:g} and {high[place]:g} at "
                f"{place}."
            )
        return ends
