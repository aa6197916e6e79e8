"""Imputers that use labels in training: class means and nearest samples of the same class.

As with scikit-learn's TargetEncoder, ``fit_transform(X, y)`` differs from
``fit(X, y).transform(X)``: the former fills training samples with the help of their labels,
the latter fills samples whose labels nobody knows.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data

from halfseen.boundary import choose_device, is_whole, require, require_room, tensors_with_holes
from halfseen.given_samples import checked_samples
from halfseen.moments import ObservedMoments
from halfseen.rivals.nearest import fill_from_neighbours


class ClasswiseImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Fills training samples class by class, new samples from all classes together."""

    @abstractmethod
    def _fill_from(self, values: np.ndarray, sources: np.ndarray) -> np.ndarray:
        """Return `values` with what `sources` say in the holes; NaN where they say nothing."""

    @abstractmethod
    def _sources(self, values: np.ndarray) -> np.ndarray:
        """Return what must be kept of the training samples to fill others."""

    def fit(self, X, y=None) -> ClasswiseImputer:
        """Learn how to fill samples without labels.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            NaN marks a hole.
        y : ignored

        Returns
        -------
        self
        """
        self._check_settings()
        self._learn(X, self._checked(X))
        return self

    def fit_transform(self, X, y=None) -> np.ndarray:
        """Learn, and return the same samples filled with the help of their labels.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,), optional
            Labels. Without them samples are filled like new ones.

        Returns
        -------
        filled : ndarray of shape (n_samples, n_features)
            Where a class never shows a feature, it is filled as in new samples.
        """
        self._check_settings()
        values = self._checked(X)
        if y is None:
            self._learn(X, values)
            return self._fill(values)
        y = column_or_1d(y)
        check_consistent_length(values, y)
        filled = values.copy()
        for label in np.unique(y):
            rows = y == label
            filled[rows] = self._fill_from(values[rows], self._sources(values[rows]))
        self._learn(X, values)
        rest = np.isnan(filled)
        rows = rest.any(1)
        if rows.any():
            filled[rows] = np.where(rest[rows], self._fill(values[rows]), filled[rows])
        return filled

    def transform(self, X) -> np.ndarray:
        """Fill samples without labels.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)

        Returns
        -------
        filled : ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        values = self._checked(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        require_room(self.sources_, values.dtype)
        return self._fill(values)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _checked(self, X) -> np.ndarray:
        values = checked_samples(X, self)
        if values.ndim != 2:
            raise ValueError(
                f"X must be a matrix, shape (n_samples, n_features); got {values.shape}. "
                f"Flatten samples first: X.reshape(len(X), -1)."
            )
        return values

    def _learn(self, X, values: np.ndarray) -> None:
        sources = self._sources(values)
        validate_data(self, X, reset=True, skip_check_array=True)
        self.sources_ = sources.copy()

    def _check_settings(self) -> None:
        """Refuse parameters that make no sense; there are none by default."""

    def _fill(self, values: np.ndarray) -> np.ndarray:
        """Fill from all classes; features that nobody has shown become 0."""
        filled, rows = values.copy(), np.isnan(values).any(1)
        if rows.any():
            filled[rows] = self._fill_from(values[rows], self.sources_)
        return np.nan_to_num(filled, nan=0.0, copy=False)


class ClassMeanImputer(ClasswiseImputer):
    """Fill with the means of the sample's class; of all samples where the class is not known.

    Attributes
    ----------
    sources_ : ndarray of shape (1, n_features)
        Means of all observed values; new samples are filled with them.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Examples
    --------
    >>> import numpy as np
    >>> from halfseen.rivals import ClassMeanImputer
    >>> X = np.array([[1.0], [np.nan], [5.0], [np.nan]])
    >>> ClassMeanImputer().fit_transform(X, ["a", "a", "b", "b"]).ravel().tolist()
    [1.0, 1.0, 5.0, 5.0]
    >>> ClassMeanImputer().fit(X).transform([[np.nan]]).tolist()
    [[3.0]]
    """

    def _fill_from(self, values: np.ndarray, sources: np.ndarray) -> np.ndarray:
        return np.where(np.isnan(values), sources.astype(values.dtype), values)

    def _sources(self, values: np.ndarray) -> np.ndarray:
        return _means(values)


class ClassKNNImputer(ClasswiseImputer):
    """Fill with means over the nearest samples of the same class; of all where it is not known.

    Per class it does what scikit-learn's KNNImputer does: a hole gets the mean of the feature
    over the nearest samples that have it, by the mean squared difference of what two samples
    both have. Distances are made for a block of samples at a time, on a GPU if there is one,
    so memory grows with the number of samples and not with its square.

    Parameters
    ----------
    n_neighbors : int
        k of the paper: 10, 20, 50 or 100.
    device : str or torch.device
        ``"auto"`` takes a GPU if there is one.

    Attributes
    ----------
    sources_ : ndarray of shape (n_samples, n_features)
        The training samples, with their holes.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
    """

    def __init__(self, n_neighbors: int = 10, *, device: str | torch.device = "auto"):
        self.n_neighbors = n_neighbors
        self.device = device

    def _check_settings(self) -> None:
        require(self, "n_neighbors", is_whole(self.n_neighbors), "a whole number ≥ 1")
        choose_device(self.device)

    def _fill_from(self, values: np.ndarray, sources: np.ndarray) -> np.ndarray:
        device = choose_device(self.device)
        given = values.astype(np.result_type(values, sources), copy=False)
        # Distances lose no digits to a common offset, and what is not found is a mean.
        centre = _means(sources).astype(given.dtype)
        X, observed = tensors_with_holes(given - centre, device=device)
        donors = tensors_with_holes(sources - centre, device=device)
        n_neighbors = min(self.n_neighbors, len(sources))
        means = fill_from_neighbours(X, observed, *donors, n_neighbors)
        filled = np.where(np.isnan(given), means.cpu().numpy() + centre, given)
        return filled.astype(values.dtype, copy=False)

    def _sources(self, values: np.ndarray) -> np.ndarray:
        return values


def _means(values: np.ndarray) -> np.ndarray:
    """Return observed means, NaN for features that are never observed; shape (1, n_features)."""
    moments = ObservedMoments.of(values)
    return np.where(moments.count > 0, moments.mean, np.nan)[None]
