"""`TableEncoder`: a table with columns of any kind as numbers with NaN in the holes, and back."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from halfseen.boundary import array_of, finite_floats, is_whole, require, without_mask
from halfseen.given_samples import checked_weights, refuse_lazy
from halfseen.table_columns import as_frame, frame_of_arrow, learn_column
from halfseen.table_values import dense, refuse_strange, without

if TYPE_CHECKING:
    import pandas as pd


class TableEncoder(TransformerMixin, BaseEstimator):
    """Turn the columns of a table into numbers; what is missing stays a hole.

    Numbers and dates are centred and scaled to variance 1. A category becomes a block of
    columns, one of them 1, the others 0. Where a category is missing, or was never seen in
    training, the whole block is a hole: missing is not a category of its own. Text that reads
    as numbers or dates in every row is taken as such, but for whole numbers that begin with a
    zero, which are codes. Durations are categories. A column without any value is left out.

    Parameters
    ----------
    add_indicator : bool
        Whether to append a column for each one that had holes in training: 1 where it is
        missing, 0 elsewhere. It helps where *that* a value is missing says something.
    max_categories : int
        The most frequent categories of a column that get a place in its block; rarer ones are
        holes.

    missing_values : tuple
        What stands for a missing value beside None, NaN and NaT, such as ``(-999, "unknown")``;
        numbers and their text are the same.

    Attributes
    ----------
    columns_ : list of Column
        What is known of each column: its kind, scale, categories.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        If the table had column names.

    Examples
    --------
    >>> import pandas as pd
    >>> from halfseen import TableEncoder
    >>> table = pd.DataFrame({"age": [50, None, 70], "blood": ["A", "B", None]})
    >>> encoder = TableEncoder().fit(table)
    >>> encoder.transform(table)
    array([[-1.,  1.,  0.],
           [nan,  0.,  1.],
           [ 1., nan, nan]])
    >>> encoder.inverse_transform([[0.0, 0.2, 0.7]])
        age blood
    0  60.0     B
    """

    def __init__(
        self,
        *,
        add_indicator: bool = False,
        max_categories: int = 50,
        missing_values: tuple = (),
    ):
        self.add_indicator = add_indicator
        self.max_categories = max_categories
        self.missing_values = missing_values

    def fit(self, X, y=None, sample_weight=None) -> TableEncoder:
        """Learn kinds, scales and categories of the columns.

        Parameters
        ----------
        X : DataFrame or array of shape (n_rows, n_columns)
            Columns of numbers, text, truth values or dates. None, NaN and NaT are holes.
        y : None
            Not used.
        sample_weight : array of shape (n_rows,), optional
            How often a row counts.

        Returns
        -------
        self
        """
        self.check_settings()
        fresh = copy.copy(self)  # so that a failure leaves nothing behind
        frame = fresh.with_holes(X, reset=True)
        weight = checked_weights(sample_weight, frame)
        counts = weight > 0
        fresh.columns_ = [
            learn_column(frame.iloc[counts, place], self.max_categories, weight[counts])
            for place in range(frame.shape[1])
        ]
        self.__dict__ = fresh.__dict__
        return self

    def check_settings(self) -> None:
        """Refuse parameters that make no sense."""
        require(self, "add_indicator", isinstance(self.add_indicator, bool), "True or False")
        require(self, "max_categories", is_whole(self.max_categories), "a whole number ≥ 1")
        listed = isinstance(self.missing_values, list | tuple)
        require(self, "missing_values", listed, "a tuple of what stands for a missing value")

    def transform(self, X) -> np.ndarray:
        """Return numbers, shape (n_rows, n_features_out), NaN in the holes."""
        check_is_fitted(self)
        frame = self.with_holes(X)
        parts = [column.encoded(frame.iloc[:, place]) for place, column in enumerate(self.columns_)]
        if self.add_indicator:
            parts += [
                np.isnan(part[:, :1]).astype(float)
                for part, column in zip(parts, self.columns_, strict=True)
                if column.had_holes
            ]
        return np.concatenate(parts, axis=1)

    def unknown(self, X) -> dict[Any, int]:
        """Return how many values of each category were never seen, and so become holes.

        Columns without such values are left out.
        """
        check_is_fitted(self)
        frame = self.with_holes(X)
        found = {
            column.name: column.n_unknown(frame.iloc[:, place])
            for place, column in enumerate(self.columns_)
        }
        return {name: number for name, number in found.items() if number}

    def with_holes(self, X, reset: bool = False) -> pd.DataFrame:
        """Return a checked table as a frame, with holes for `missing_values`."""
        frame = dense(as_frame(self._checked(X, reset)))
        if reset and frame.empty:
            raise ValueError(f"the table has no rows or no columns; its shape is {frame.shape}.")
        for place in range(frame.shape[1]):
            refuse_strange(frame.iloc[:, place])
        spellings = tuple(str(value) for value in self.missing_values)
        if not spellings:
            return frame
        changed = frame.copy()
        for place in range(frame.shape[1]):
            changed.isetitem(place, without(frame.iloc[:, place], spellings, usual=False))
        return changed

    def inverse_transform(self, X) -> pd.DataFrame:
        """Return the table that numbers stand for, with the columns and types of training.

        Parameters
        ----------
        X : array of shape (n_rows, n_features_out)
            As `transform` returns it, or completed. NaN becomes a missing value.
        """
        import pandas as pd

        check_is_fitted(self)
        values = finite_floats(X, "X", holes=True).double().cpu().numpy()
        n_expected = len(self.get_feature_names_out())
        if values.ndim != 2 or values.shape[1] != n_expected:
            raise ValueError(
                f"X must have shape (n_rows, {n_expected}), as transform returns it; got "
                f"{values.shape}."
            )
        decoded, at = {}, 0
        for place, column in enumerate(self.columns_):
            decoded[place] = column.decoded(values[:, at : at + column.width])
            at += column.width
        frame = pd.DataFrame(decoded)
        frame.columns = pd.Index([column.name for column in self.columns_])
        return frame

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        """Return the names of the columns of the result."""
        check_is_fitted(self)
        names = [name for column in self.columns_ for name in column.names_out()]
        if self.add_indicator:
            names += [f"{column.name} missing" for column in self.columns_ if column.had_holes]
        return np.array(names, dtype=object)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def _checked(self, X: Any, reset: bool) -> Any:
        X = without_mask(X)
        refuse_lazy(X)
        if isinstance(X, dict) and not hasattr(X, "shape"):  # sparse arrays of keys are dicts
            raise ValueError("a table was expected; got a dict: pass pandas.DataFrame(X).")
        if type(X).__module__.startswith(("polars", "pyarrow")) and hasattr(X, "columns"):
            X = frame_of_arrow(X)
        elif hasattr(X, "to_pandas"):
            X = X.to_pandas()
        if isinstance(X, Tensor):
            X = array_of(X, "X")
        if hasattr(X, "iloc"):
            if X.ndim != 2:
                raise ValueError(
                    f"a table of rows and columns was expected; got a {type(X).__name__}: pass "
                    f"X.to_frame()."
                )
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
        if not hasattr(X, "dtype"):  # numpy would make one text of numbers, holes and text
            X = np.array(X, dtype=object)
        return validate_data(self, X, reset=reset, dtype=None, ensure_all_finite=False)
