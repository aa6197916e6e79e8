"""One column of a table: what kind it is, and its way to numbers and back."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from halfseen.boundary import is_number, plain
from halfseen.table_values import DAY, READERS, readers, text_of, typed

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_FIRST_DAY, _LAST_DAY = -719162, 2932896  # of the years 1 to 9999, which text has
_ZONE = r"Z|[+-]\d\d(?::?\d\d)?"
_MINUTES = "%H:%M"
# What Arrow calls whole numbers and truth values, and pandas such as may be missing.
_WITH_HOLES = {f"{u}int{n}": f"{u.upper()}Int{n}" for u in ("", "u") for n in (8, 16, 32, 64)}
_WITH_HOLES["bool"] = "boolean"
_MOST_DAYS = {"ns": 106_751, "us": 106_751_990}  # from 1970, in 64 bits


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
        Of a category; of truth values that were text, how false and true were spelled; of dates
        that were text with hours, minutes and seconds, what stands before the hours and, if there
        is one, the time zone.
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
            text = text_of(values)
            block = (text.to_numpy(object)[:, None] == np.array(self.categories, object)) * 1.0
            block[block.sum(1) == 0] = np.nan  # missing, or never seen
            return block
        numbers = READERS[self.kind](values)
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

    def n_unknown(self, values: pd.Series) -> int:
        """Return how many values are none of the categories, if it has any."""
        text = text_of(values).dropna()
        return int((~text.isin(self.categories)).sum()) if self.kind == "category" else 0

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
            return text.astype(object) if self.dtype == "text" else typed(text, self.dtype)
        with np.errstate(over="ignore"):
            values = numbers[:, 0] * self.scale + self.centre
        values = values.clip(*self._ends())  # a filled value may be beyond
        values = np.rint(values) + 0.0 if self.whole else values  # there is no -0
        if self.kind == "boolean":
            found = pd.Series(values > 0.5, name=self.name, dtype="boolean")
        elif self.kind == "date":
            microseconds = np.where(holes, 0, np.rint(np.nan_to_num(values) * DAY))
            dates = microseconds.astype(np.int64).astype("datetime64[us]")
            found = pd.Series(dates, name=self.name)
        else:
            found = pd.Series(values, name=self.name)
        found = found.mask(holes)
        if self.kind == "number" and self.whole and self.dtype == "object":
            return pd.Series([None if n != n else int(n) for n in found], dtype=object)
        return self._as_text(found) if self.dtype == "text" else typed(found, self.dtype)

    def _ends(self) -> tuple[float, float]:
        """Return the least and the largest that its type has room for, in numbers and days."""
        if self.kind == "date":
            if self.dtype == "text":
                room = len(self.categories) > 1  # for the time zone
                return _FIRST_DAY + room, _LAST_DAY - room
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
            if self.categories:
                between, *zone = self.categories
                values = values + sum(map(_offset, zone), datetime.timedelta())
                clock = "" if between.endswith(_MINUTES) else "%H:%M:%S"
                form = f"%Y-%m-%d{between}{clock}{''.join(zone)}"
                spell = lambda time: time.strftime(form)  # noqa: E731
        else:
            spell = (lambda number: f"{number:.0f}") if self.whole else (lambda n: f"{n:.6g}")
        known = values.astype(object).where(values.notna(), None)
        return known.map(lambda value: None if value is None else spell(value)).astype(object)

    def to_plain(self) -> dict:
        """Return what JSON knows, for a file; a name that it does not know as text."""
        name = self.name if isinstance(self.name, str | int | float | tuple) else str(self.name)
        return {**asdict(self), "name": name, "categories": list(self.categories)}

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
            and (column.kind != "date" or _are_around_hours(categories))
        )
        if not right:
            raise ValueError(f"what it says of the column {name!r} cannot be")
        if column.dtype != "text":
            _known_dtype(column.dtype)
        return column


def frame_of_arrow(table: Any) -> pd.DataFrame:
    """Return a table of arrow or polars; whole numbers and truth values with holes stay such.

    As floats whole numbers would have no more than 15 digits.
    """
    import pandas as pd

    def with_room_for_holes(kind: pa.DataType) -> Any:
        name = _WITH_HOLES.get(str(kind))
        return None if name is None else pd.api.types.pandas_dtype(name)

    frame = table.to_pandas(types_mapper=with_room_for_holes)
    for place in range(frame.shape[1]):
        column = frame.iloc[:, place]
        if str(column.dtype) in _WITH_HOLES.values() and not column.hasnans:
            frame.isetitem(place, column.astype(column.dtype.numpy_dtype))
    return frame


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
    for kind, reader in readers(values).items():
        numbers = reader(values)
        if not np.array_equal(np.isnan(numbers), missing):
            continue  # some of it is nothing of this kind
        _refuse_infinite(name, numbers)
        known = numbers[~missing]
        if kind == "boolean":
            text = text_of(values)[~missing]
            spellings = [
                str(next(iter(text[known == truth]), default))
                for truth, default in ((0, "False"), (1, "True"))
            ]
            return Column(name, kind, dtype, categories=tuple(spellings), had_holes=had_holes)
        centre, scale = _centre_and_scale(known, weight[~missing], name)
        whole = bool((known == np.rint(known)).all())
        between = _around_hours(values) if (kind, dtype) == ("date", "text") else ()
        return Column(name, kind, dtype, centre, scale, whole, between, had_holes)
    counts = pd.Series(weight).groupby(text_of(values).to_numpy()).sum()
    frequent = counts.sort_values(ascending=False, kind="stable").index[:max_categories]
    categories = tuple(sorted(frequent))
    return Column(name, "category", dtype, categories=categories, had_holes=had_holes)


def _around_hours(values: pd.Series) -> tuple[str, ...]:
    """Return what stands between day and time in text and, if there is one, the time zone.

    Where times have no seconds, how they are spelled stands there as well. Nothing where they are
    spelled in several ways; zones that differ become UTC.
    """
    text = text_of(values.dropna())
    found = text.str.extract(rf"^.{{10}}([ T])\d\d:\d\d(:\d\d)?(\.\d+)?({_ZONE})?$")
    between, seconds, fraction, zone = (set(found[place].fillna("")) for place in range(4))
    minutes = _MINUTES if seconds == {""} and "" not in between else ""
    if zone != {""}:
        return (max(between) or " ") + minutes, zone.pop() if len(zone) == 1 else "+00:00"
    known = "" not in between and (minutes or "" not in seconds) and fraction == {""}
    return (between.pop() + minutes,) if known and len(between) == 1 else ()


def _are_around_hours(categories: tuple) -> bool:
    """Say whether these could be what `_around_hours` returned."""
    zones = categories[1:]
    known = len(zones) < 2 and all(re.fullmatch(_ZONE, zone) for zone in zones)
    return known and categories[:1] in ((), *((b + m,) for b in " T" for m in ("", _MINUTES)))


def _offset(zone: str) -> datetime.timedelta:
    """Return how far a time zone such as "+02:00" is ahead of UTC."""
    sign = -1 if zone.startswith("-") else 1
    digits = zone[1:].replace(":", "").ljust(4, "0")
    return sign * datetime.timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))


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
