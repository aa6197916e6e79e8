"""Samples as users of scikit-learn give them to an estimator: checked, with their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from halfseen.boundary import array_of, without_mask, without_na
from halfseen.disk import MappedRows, map_under
from halfseen.parquet import features_of, is_dataset, spooled


def refuse_lazy(X: Any) -> None:
    """Refuse a frame of polars whose rows have not been read."""
    if hasattr(X, "collect") and not hasattr(X, "shape"):
        raise ValueError("X is a lazy frame, not read yet; pass X.collect().")


def checked_samples(X: Any, estimator: Any) -> np.ndarray:
    """Return the samples given to an estimator as a float array, checked; NaN is a hole."""
    from sklearn.utils.validation import check_array

    if isinstance(X, Tensor):
        X = array_of(X, "X")
    refuse_lazy(X)
    if isinstance(X, np.ndarray) and X.dtype == object:
        X = without_na(X)
    if _has_times(X):
        raise ValueError(
            "X has dates or durations, of which no numbers are made here; numbers were expected. "
            "For tables with such columns there are TableClassifier and TableEncoder."
        )
    with np.errstate(invalid="ignore"):  # infinities of both signs are refused, not warned of
        values = check_array(
            without_mask(X),
            dtype=[np.float64, np.float32],
            allow_nd=True,
            ensure_all_finite="allow-nan",
            estimator=estimator,
            input_name="X",
        )
    if 0 in values.shape[1:]:
        raise ValueError(f"X has samples without features: its shape is {values.shape}.")
    return values


def _has_times(X: Any) -> bool:
    """Say whether an array, or a column of a frame of pandas or polars, has dates or durations."""
    dtypes = getattr(X, "dtypes", None)
    listed = [getattr(X, "dtype", None)] if dtypes is None else np.atleast_1d(dtypes)
    return any(
        getattr(dtype, "kind", "") in ("m", "M") or getattr(dtype, "is_temporal", bool)()
        for dtype in listed
    )


def checked_rows(X: Any, estimator: Any, columns: Sequence[str] | None = None) -> Any:
    """Return samples as `checked_samples` does, but leave on the disk what is there.

    A map of a file and a Parquet dataset become `MappedRows`, whose parts are checked when
    they are read.

    Parameters
    ----------
    X : array, Tensor, map of a file or pyarrow.dataset.Dataset
    estimator : object
        For the messages.
    columns : sequence of str, optional
        Columns to take from a dataset; all by default.
    """
    if is_dataset(X):
        return spooled(X, features_of(X) if columns is None else list(columns))
    if map_under(X) is not None and not isinstance(X, np.ma.MaskedArray):
        return MappedRows(X)
    return checked_samples(X, estimator)


def named(X: Any, values: Any) -> Any:
    """Return X, or what tells scikit-learn the names of its features."""
    columns = getattr(values, "columns", None)
    if columns is None:
        return X
    import pandas as pd

    return pd.DataFrame(columns=columns)


def checked_weights(sample_weight: Any, X: Any) -> np.ndarray:
    """Return weights of samples as float64, checked; ones if there are none."""
    from sklearn.utils.validation import _check_sample_weight

    if isinstance(sample_weight, Tensor):
        sample_weight = array_of(sample_weight, "sample_weight")
    with np.errstate(invalid="ignore"):  # infinities of both signs are refused, not warned of
        return _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
