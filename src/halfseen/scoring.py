"""What every classifier of the package shares: labels in, scores to classes and probabilities."""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import assert_all_finite, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from halfseen.boundary import array_of
from halfseen.given_samples import checked_rows, checked_samples, named
from halfseen.parquet import column, features_of, is_dataset


def require_labels(y: Any) -> None:
    """Refuse labels that are missing among objects or text, of which others say nothing clear."""
    import pandas as pd

    labels = np.asarray(plain_labels(y))
    if labels.ndim not in (1, 2) or labels.size != len(labels) or labels.dtype.kind != "O":
        return
    missing = pd.isna(labels.ravel())
    if missing.any():
        raise ValueError(
            f"y has no label for {int(missing.sum())} samples, the first is sample "
            f"{int(missing.argmax())}; remove them."
        )


def plain_labels(y: Any) -> Any:
    """Return the labels of a torch tensor as an array; anything else passes through."""
    return array_of(y, "y") if isinstance(y, Tensor) else y


def require_finite(results: np.ndarray, what: str, first: int = 0) -> None:
    """Refuse results of samples, one a row, that are not finite; `first` is the first's number."""
    wrong = np.flatnonzero(~np.isfinite(results).reshape(len(results), -1).all(1))
    if len(wrong):
        raise ValueError(
            f"the {what} of row {first + wrong[0]} of X are not finite: its values, or the weights "
            f"of the model, are too large."
        )


class ScoringClassifier(ClassifierMixin, BaseEstimator):
    """A classifier of samples with holes that gives every class a score."""

    classes_: np.ndarray
    _reads_in_parts = False  # whether samples may stay on the disk

    @abstractmethod
    def _scores(self, values: np.ndarray) -> np.ndarray:
        """Return scores of checked samples: log-probabilities up to a constant per sample."""

    @property
    @abstractmethod
    def _sample_shape(self) -> tuple[int, ...]:
        """Shape of the samples that were learned from."""

    def decision_function(self, X) -> np.ndarray:
        """Return scores: log-probabilities up to a constant per sample.

        Returns
        -------
        scores : ndarray of shape (n_samples, n_classes), or (n_samples,) for two classes
            For two classes the difference: positive for ``classes_[1]``.
        """
        scores = self._finite_scores(self._checked_new(X))
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X) -> np.ndarray:
        """Return the probability of each class, shape (n_samples, n_classes)."""
        return softmax(self._finite_scores(self._checked_new(X)), axis=1)

    def predict_log_proba(self, X) -> np.ndarray:
        """Return the logarithms of `predict_proba`, also where that is zero but for rounding."""
        return log_softmax(self._finite_scores(self._checked_new(X)), axis=1)

    def predict(self, X) -> np.ndarray:
        """Return the most probable class of each sample, shape (n_samples,)."""
        best = self._finite_scores(self._checked_new(X)).argmax(1)
        return self.classes_[best]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def __getstate__(self):
        state = super().__getstate__().copy()
        for name in {"module_", "standardise_"} & state.keys():  # a pickle opens without a GPU
            state[name] = copy.deepcopy(state[name]).cpu()
        return state

    def _finite_scores(self, values) -> np.ndarray:
        scores = self._scores(values)
        require_finite(scores, "scores")
        return scores

    def _checked_training(self, X, y) -> tuple[Any, np.ndarray, np.ndarray]:
        """Return samples, the places of their labels among the classes, and the classes."""
        columns = None
        if is_dataset(X) and isinstance(y, str):
            y, columns = column(X, y), features_of(X, y)
        values = self._read(X, columns)
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        require_labels(y)
        y = column_or_1d(plain_labels(y), warn=True)
        check_consistent_length(values, y)
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
        # Names of columns that `_remember` would refuse are refused before the training.
        validate_data(copy.copy(self), named(X, values), reset=True, skip_check_array=True)
        return values, labels, classes

    def _read(self, X, columns: list[str] | None) -> Any:
        if self._reads_in_parts:
            return checked_rows(X, self, columns)
        if is_dataset(X):
            raise ValueError(
                f"{type(self).__name__} needs samples in memory; pass "
                f"X.to_table().to_pandas() instead of the dataset."
            )
        return checked_samples(X, self)

    def _remember(self, X, values, classes: np.ndarray) -> None:
        """Keep what scikit-learn wants to know of the data that was learned from."""
        validate_data(self, named(X, values), reset=True, skip_check_array=True)
        self.classes_ = classes

    def _checked_new(self, X) -> Any:
        check_is_fitted(self)
        values = self._read(X, getattr(self, "feature_names_in_", None))
        vectors = values.ndim == 2 and len(self._sample_shape) == 1
        if values.shape[1:] != self._sample_shape and not vectors:
            raise ValueError(
                f"samples of shape {self._sample_shape} were learned; got samples of shape "
                f"{values.shape[1:]}."
            )
        validate_data(self, named(X, values), reset=False, skip_check_array=True)
        return values
