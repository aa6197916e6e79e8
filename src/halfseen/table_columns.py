"""One column of a table: what kind it is, and its way to numbers and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from halfseen.boundary import plain
from halfseen.fitting import is_number

if TYPE_CHECKING:
    import pandas as pd

_DAY = 86_400e6  # in microseconds, which reach further than nanoseconds
_DATE = r"\d{4}-\d{2}-\d{2}"  # how text that is a date begins
_FIRST_DAY, _LAST_DAY = -719162, 2932896  # of the years 1 to 9999, which text has
_MOST_DAYS = {"ns": 106_751, "us": 106_751_990}  # from 1970, in 64 bits
_TRUTH = {"true": 1.0, "false": 0.0}
# Usual spellings of a missing value, in small letters.
_MISSING = (
    "", "na", "n/a", "#n/a", "<na>", "nan", "nat", "null", "none", "?", "-", ".",
)  # fmt: skip


@dataclass(frozen=True)
class Column:
    """What was learned of a column.

    Attributes
    ----------
    name : str or int
    kind : {"number", "date", "boolean", "category", "empty"}
    dtype : str
        Of the values in the table that was learned from; "text" if all of them were.
    centre, scale : float
        Of numbers, and of dates in days since 1970.
    whole : bool
        Whether all numbers were whole ones, or all dates whole days.
    categories : tuple of str
        Of a category; of truth values that were text, how false and true were spelled.
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
        """How many columns it becomes; none if it had no values."""
        return {"category": len(self.categories), "empty": 0}.get(self.kind, 1)

    def names_out(self) -> list[str]:
        """Return the names of the columns it becomes."""
        if self.kind == "category":
            return [f"{self.name}={category}" for category in self.categories]
        return [str(self.name)] * self.width

    def encoded(self, values: pd.Series) -> np.ndarray:
        """Return numbers, shape (n_rows, width), NaN in the holes."""
        if self.kind == "empty":
            return np.empty((len(values), 0))
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
        with np.errstate(over="ignore"):
            scaled = (numbers - self.centre) / self.scale
        if np.isinf(scaled).any():
            row = int(np.flatnonzero(np.isinf(scaled))[0])
            raise ValueError(
                f"column {self.name!r} has {numbers[row]:g} in row {row}, out of the range of what "
                f"was learned."
            )
        return scaled[:, None]

    def decoded(self, numbers: np.ndarray) -> pd.Series:
        """Return the values that numbers of shape (n_rows, width) stand for."""
        import pandas as pd

        if self.kind == "empty":
            return pd.Series([None] * len(numbers), name=self.name, dtype=object)
        holes = np.isnan(numbers).any(1)
        if self.kind == "category":
            best = np.where(holes, 0, np.nan_to_num(numbers).argmax(1))
            text = pd.Series(np.array(self.categories, object)[best], name=self.name)
            text = text.where(~holes, None)
            return text.astype(object) if self.dtype == "text" else _typed(text, self.dtype)
        with np.errstate(over="ignore"):
            values = numbers[:, 0] * self.scale + self.centre
        values = values.clip(*self._ends())  # a filled value may be beyond
        values = np.rint(values) if self.whole else values
        if self.kind == "boolean":
            found = pd.Series(values > 0.5, name=self.name, dtype="boolean")
        elif self.kind == "date":
            microseconds = np.where(holes, 0, np.rint(np.nan_to_num(values) * _DAY))
            dates = microseconds.astype(np.int64).astype("datetime64[us]")
            found = pd.Series(dates, name=self.name)
        else:
            found = pd.Series(values, name=self.name)
        found = found.mask(holes)
        return self._as_text(found) if self.dtype == "text" else _typed(found, self.dtype)

    def _ends(self) -> tuple[float, float]:
        """Return the least and the largest that its type has room for, in numbers and days."""
        if self.kind == "date":
            if self.dtype == "text":
                return _FIRST_DAY, _LAST_DAY
            most = float(_MOST_DAYS["ns" if "[ns" in self.dtype else "us"])
        else:
            narrow = self.dtype in ("float16", "float32", "Float32")
            most = float(np.finfo(self.dtype.lower() if narrow else float).max)
        return -most, most

    def _as_text(self, values: pd.Series) -> pd.Series:
        """Return numbers, dates and truth values as they were spelled."""
        if self.kind == "boolean":
            spell: Callable[[Any], str] = dict(enumerate(self.categories)).__getitem__
        elif self.kind == "date":
            spell = (lambda day: str(day.date())) if self.whole else (lambda time: str(time))
        else:
            spell = (lambda number: f"{number:.0f}") if self.whole else (lambda n: f"{n:.6g}")
        known = values.astype(object).where(values.notna(), None)
        return known.map(lambda value: None if value is None else spell(value)).astype(object)

    def to_plain(self) -> dict:
        """Return what JSON knows, for a file."""
        return {**asdict(self), "categories": list(self.categories)}

    @classmethod
    def from_plain(cls, stored: dict) -> Column:
        """Return a column from what `to_plain` returned; a ValueError if that could not be."""
        name, categories = stored["name"], tuple(stored["categories"])
        column = cls(**{**stored, "name": _hashable(name), "categories": categories})
        right = (
            column.kind in ("number", "date", "boolean", "category", "empty")
            and isinstance(column.dtype, str)
            and all(is_number(value) for value in (column.centre, column.scale))
            and column.scale > 0
            and isinstance(column.whole, bool)
            and isinstance(column.had_holes, bool)
            and all(isinstance(category, str) for category in categories)
            and len(set(categories)) == len(categories)
            and len(categories) >= {"category": 1, "boolean": 2}.get(column.kind, 0)
        )
        if not right:
            raise ValueError(f"what it says of the column {name!r} cannot be")
        if column.dtype != "text":
            _known_dtype(column.dtype)
        return column


def as_frame(table: Any) -> pd.DataFrame:
    """Return a table as a frame; columns of an array are numbered and as narrow as they can be."""
    import pandas as pd

    if hasattr(table, "iloc"):
        return table
    return pd.DataFrame(np.asarray(table)).infer_objects()


def _hashable(name: Any) -> Any:
    """Return the name of a column that JSON has made a list; one of several levels is a tuple."""
    return tuple(map(_hashable, name)) if isinstance(name, list) else name


def _known_dtype(name: str) -> None:
    """Refuse the name of a type that pandas has no columns of."""
    import pandas as pd

    try:
        found = pd.api.types.pandas_dtype(name)
    except TypeError as error:
        raise ValueError(f"a column has the type {name!r}: {error}") from error
    if isinstance(found, np.dtype) and found.kind in "USV":  # as wide as its name says
        raise ValueError(f"a column has the type {name!r}, which no table has")


def learn_column(values: pd.Series, max_categories: int, weight: np.ndarray) -> Column:
    """Return what a column is; see `TableEncoder`."""
    import pandas as pd

    name, missing = plain(values.name), values.isna().to_numpy()
    if missing.all():
        return Column(name, "empty", str(values.dtype))
    dtype, had_holes = str(values.dtype), bool(missing.any())
    if all(isinstance(value, str) for value in values[~missing]):
        dtype = "text"
    for kind, reader in _readers(values).items():
        numbers = reader(values)
        if not np.array_equal(np.isnan(numbers), missing):
            continue  # some of it is nothing of this kind
        _refuse_infinite(name, numbers)
        known = numbers[~missing]
        if kind == "boolean":
            text = _text(values)[~missing]
            spellings = [
                str(next(iter(text[known == truth]), default))
                for truth, default in ((0, "False"), (1, "True"))
            ]
            return Column(name, kind, dtype, categories=tuple(spellings), had_holes=had_holes)
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
    if not holes.any() or new.isna().all():
        return given
    values = given.astype(object).where(~holes, new.astype(object))
    if isinstance(given.dtype, pd.CategoricalDtype):
        added = sorted(set(values) - set(given.cat.categories))
        return values.astype(given.cat.add_categories(added).dtype)
    loose = given.dtype == object or pd.api.types.is_float_dtype(given.dtype)
    wanted = new.dtype if loose and not isinstance(new.dtype, pd.CategoricalDtype) else given.dtype
    try:
        typed = values.astype(wanted)
    except (TypeError, ValueError, OverflowError):
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

    if pd.api.types.is_complex_dtype(values.dtype):
        raise ValueError(f"column {values.name!r} is complex; real numbers were expected.")
    if values.dtype.kind in "mM":  # durations and dates are none, though pandas counts them
        return np.full(len(values), np.nan)
    if values.dtype == object or pd.api.types.is_string_dtype(values.dtype):
        values = _text(values)
    return pd.to_numeric(values, errors="coerce").to_numpy(dtype=float, na_value=np.nan)


def _days(values: pd.Series) -> np.ndarray:
    import pandas as pd

    if not pd.api.types.is_datetime64_any_dtype(values.dtype):
        text = _text(values)
        text = text.where(text.str.match(_DATE).eq(True), None)  # not "now", nor a number
        values = pd.to_datetime(text, errors="coerce", format="ISO8601", utc=True)
    dates = values.dt.tz_convert("UTC").dt.tz_localize(None) if values.dt.tz else values
    days = dates.astype("datetime64[us]").astype("int64").to_numpy() / _DAY
    return np.where(dates.isna(), np.nan, days)


def _truth(values: pd.Series) -> np.ndarray:
    import pandas as pd

    if pd.api.types.is_bool_dtype(values.dtype):
        return values.astype("boolean").to_numpy(dtype=float, na_value=np.nan)
    return _text(values).str.lower().map(_TRUTH).to_numpy(dtype=float, na_value=np.nan)


def _text(values: pd.Series) -> pd.Series:
    """Return values as stripped text, None where they are missing; 1 and 1.0 are the same."""
    known = values.astype(object).where(values.notna(), None)
    return known.map(_spelled).astype(object)


def _spelled(value: Any) -> str | None:
    if value is None:
        return None
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else str(value).strip()


def without(column: pd.Series, missing: tuple[str, ...], usual: bool) -> pd.Series:
    """Return a column with holes where it has given spellings of one.

    Parameters
    ----------
    column : Series
    missing : tuple of str
        Text; or numbers as text, in any spelling.
    usual : bool
        Whether the usual spellings count too.
    """
    import pandas as pd

    if pd.api.types.is_bool_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
        return column
    numbers = pd.to_numeric(pd.Series(missing, dtype=object), errors="coerce").dropna().tolist()
    if pd.api.types.is_numeric_dtype(column):
        hidden = column.isin(numbers)
    else:
        text = _text(column)
        hidden = text.isin(missing) | pd.to_numeric(text, errors="coerce").isin(numbers)
        if usual:
            hidden |= text.str.lower().isin(_MISSING)
    return column.mask(hidden.to_numpy()) if hidden.any() else column


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

    if dtype.startswith("datetime64"):
        dates = values.dt.tz_localize("UTC") if "," in dtype else values  # with a time zone
        return dates.astype(dtype)
    kind = pd.api.types.pandas_dtype(dtype)
    if pd.api.types.is_integer_dtype(kind):
        ends = np.iinfo(getattr(kind, "numpy_dtype", kind))
        whole = [None if np.isnan(n) else min(max(int(n), ends.min), ends.max) for n in values]
        values = pd.Series(whole, name=values.name, dtype=object)
    try:
        return values.astype(dtype)
    except (TypeError, ValueError, OverflowError):  # whole numbers or truth values with holes
        return values.convert_dtypes()
