"""One column of a table: what kind it is, and its way to numbers and back."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from halfseen.boundary import plain

if TYPE_CHECKING:
    import pandas as pd

_DAY = 86_400e9  # in nanoseconds
_TRUTH = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True)
class Column:
    """What was learned of a column.

    Attributes
    ----------
    name : str or int
    kind : {"number", "date", "boolean", "category"}
    dtype : str
        Of the values in the table that was learned from.
    centre, scale : float
        Of numbers, and of dates in days since 1970.
    whole : bool
        Whether all numbers were whole ones, or all dates whole days.
    categories : tuple of str
    had_holes : bool
    """

    name: Any
    kind: str
    dtype: str
    centre: float = 0.0
    scale: float = 1.0
    whole: bool = False
    categories: tuple = ()
    had_holes: bool = False

    @property
    def width(self) -> int:
        """How many columns it becomes."""
        return len(self.categories) if self.kind == "category" else 1

    def names_out(self) -> list[str]:
        """Return the names of the columns it becomes."""
        if self.kind == "category":
            return [f"{self.name}={category}" for category in self.categories]
        return [str(self.name)]

    def encoded(self, values: pd.Series) -> np.ndarray:
        """Return numbers, shape (n_rows, width), NaN in the holes."""
        if self.kind == "category":
            text = _text(values)
            block = (text.to_numpy(object)[:, None] == np.array(self.categories, object)) * 1.0
            block[block.sum(1) == 0] = np.nan  # missing, or never seen
            return block
        reader = {"number": _numbers, "date": _days, "boolean": _truth}[self.kind]
        numbers = reader(values)
        wrong = np.flatnonzero(np.isnan(numbers) & values.notna().to_numpy())
        if len(wrong):
            raise ValueError(
                f"column {self.name!r} has {self.kind}s; got {values.iloc[wrong[0]]!r} in row "
                f"{wrong[0]}."
            )
        _refuse_infinite(self.name, numbers)
        return ((numbers - self.centre) / self.scale)[:, None]

    def decoded(self, numbers: np.ndarray) -> pd.Series:
        """Return the values that numbers of shape (n_rows, width) stand for."""
        import pandas as pd

        holes = np.isnan(numbers).any(1)
        if self.kind == "category":
            best = np.where(holes, 0, np.nan_to_num(numbers).argmax(1))
            text = pd.Series(np.array(self.categories, object)[best], name=self.name)
            return _typed(text.where(~holes, None), self.dtype)
        values = numbers[:, 0] * self.scale + self.centre
        values = np.rint(values) if self.whole else values
        if self.kind == "boolean":
            truth = pd.Series(values > 0.5, name=self.name, dtype="boolean")
            return _typed(truth.mask(holes), self.dtype)
        if self.kind == "date":
            nanoseconds = np.where(holes, 0, np.rint(np.nan_to_num(values) * _DAY))
            dates = pd.Series(pd.to_datetime(nanoseconds.astype(np.int64)), name=self.name)
            return _typed(dates.mask(holes), self.dtype)
        return _typed(pd.Series(values), self.dtype)

    def to_plain(self) -> dict:
        """Return what JSON knows, for a file."""
        return {**asdict(self), "categories": list(self.categories)}

    @classmethod
    def from_plain(cls, stored: dict) -> Column:
        """Return a column from what `to_plain` returned."""
        return cls(**{**stored, "categories": tuple(stored["categories"])})


def as_frame(table: Any) -> pd.DataFrame:
    """Return a table as a frame; columns of an array are numbered and as narrow as they can be."""
    import pandas as pd

    if hasattr(table, "iloc"):
        return table
    return pd.DataFrame(np.asarray(table)).infer_objects()


def learn_column(values: pd.Series, max_categories: int, weight: np.ndarray) -> Column:
    """Return what a column is; see `TableEncoder`."""
    import pandas as pd

    name, missing = plain(values.name), values.isna().to_numpy()
    if missing.all():
        raise ValueError(f"column {name!r} has no value at all; remove it.")
    dtype, had_holes = str(values.dtype), bool(missing.any())
    for kind, reader in _readers(values).items():
        numbers = reader(values)
        if not np.array_equal(np.isnan(numbers), missing):
            continue  # some of it is nothing of this kind
        if kind == "boolean":
            return Column(name, kind, dtype, had_holes=had_holes)
        known = numbers[~missing]
        _refuse_infinite(name, known)
        centre, scale = _centre_and_scale(known, weight[~missing], name)
        whole = bool((known == np.rint(known)).all())
        return Column(name, kind, dtype, centre, scale, whole, (), had_holes)
    counts = pd.Series(weight).groupby(_text(values).to_numpy()).sum()
    frequent = counts.sort_values(ascending=False, kind="stable").index[:max_categories]
    categories = tuple(sorted(frequent))
    return Column(name, "category", dtype, categories=categories, had_holes=had_holes)


def filled_column(given: pd.Series, new: pd.Series) -> pd.Series:
    """Return a column with its holes filled from another; it keeps its type if that can be.

    Columns of floats become whole numbers again if those of training were: holes made them
    floats.
    """
    import pandas as pd

    holes = given.isna()
    if not holes.any():
        return given
    values = given.astype(object).where(~holes, new.astype(object))
    if isinstance(given.dtype, pd.CategoricalDtype):
        added = sorted(set(values) - set(given.cat.categories))
        return values.astype(given.cat.add_categories(added).dtype)
    loose = given.dtype == object or pd.api.types.is_float_dtype(given.dtype)
    wanted = new.dtype if loose and not isinstance(new.dtype, pd.CategoricalDtype) else given.dtype
    try:
        typed = values.astype(wanted)
    except (TypeError, ValueError):
        return values
    return typed if (typed.astype(object) == values).all() else values.astype(given.dtype)


def _readers(values: pd.Series) -> dict:
    """Return the kinds that a column may be, but for a category, most special first."""
    import pandas as pd

    if pd.api.types.is_bool_dtype(values.dtype):
        return {"boolean": _truth}
    if pd.api.types.is_numeric_dtype(values.dtype):
        return {"number": _numbers}
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        return {"date": _days}
    if isinstance(values.dtype, pd.CategoricalDtype):
        return {}
    return {"boolean": _truth, "number": _numbers, "date": _days}


def _numbers(values: pd.Series) -> np.ndarray:
    import pandas as pd

    if values.dtype == object or pd.api.types.is_string_dtype(values.dtype):
        values = _text(values)
    return pd.to_numeric(values, errors="coerce").to_numpy(dtype=float, na_value=np.nan)


def _days(values: pd.Series) -> np.ndarray:
    import pandas as pd

    if not pd.api.types.is_datetime64_any_dtype(values.dtype):
        values = pd.to_datetime(_text(values), errors="coerce", format="ISO8601", utc=True)
    dates = values.dt.tz_convert("UTC").dt.tz_localize(None) if values.dt.tz else values
    days = dates.astype("datetime64[ns]").astype("int64").to_numpy() / _DAY
    return np.where(dates.isna(), np.nan, days)


def _truth(values: pd.Series) -> np.ndarray:
    import pandas as pd

    if pd.api.types.is_bool_dtype(values.dtype):
        return values.astype("boolean").to_numpy(dtype=float, na_value=np.nan)
    return _text(values).str.lower().map(_TRUTH).to_numpy(dtype=float, na_value=np.nan)


def _text(values: pd.Series) -> pd.Series:
    """Return values as stripped text, None where they are missing."""
    text = values.astype("string").str.strip()
    return text.astype(object).where(text.notna(), None)


def _centre_and_scale(known: np.ndarray, weight: np.ndarray, name: Any) -> tuple[float, float]:
    """Return mean and standard deviation with six digits: the same in any order of the rows."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.average(known, weights=weight)
        scale = float(f"{np.sqrt(np.average(np.square(known - mean), weights=weight)):.6g}")
    if not np.isfinite([mean, scale]).all():
        raise ValueError(f"column {name!r} has values whose squares are out of range; rescale it.")
    if known.min() == known.max() or scale == 0:
        return float(known[0]), 1.0
    return scale * round(mean / scale, 6), scale


def _refuse_infinite(name: Any, numbers: np.ndarray) -> None:
    if np.isinf(numbers).any():
        row = int(np.flatnonzero(np.isinf(numbers))[0])
        raise ValueError(f"column {name!r} has an infinite value in row {row}.")


def _typed(values: pd.Series, dtype: str) -> pd.Series:
    """Return values in a type of the table, or in the nearest that has room for holes."""
    import pandas as pd

    if dtype.startswith("datetime64") and "," in dtype:  # with a time zone
        return values.dt.tz_localize("UTC").astype(dtype)
    try:
        return values.astype(dtype)
    except (TypeError, ValueError):  # whole numbers or truth values with holes
        return values.convert_dtypes() if pd.api.types.is_numeric_dtype(values) else values
