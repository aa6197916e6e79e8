"""Values of a column of a table: as numbers, days, truth values and text, and with holes filled."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

DAY = 86_400e6  # in microseconds, which reach further than nanoseconds
_DATE = r"\d{4}-\d{2}-\d{2}"  # how text that is a date begins
_LEAST_TO_DIFFER = 20
_MOST_DIGITS = 100  # of a decimal; Arrow has 76
_BESIDE_DIGITS = r"[\s,.'%]"  # in numbers as people write them
_SEVERAL_VALUES = ("list", "large_list", "fixed_size_list", "struct", "map")  # of Arrow's types
_CODE = r"[+-]?0\d+"  # whole numbers do not begin with a zero; post codes do
_TRUTH = {"true": 1.0, "false": 0.0}
# Usual spellings of a missing value, in small letters.
MISSING = (
    "", "na", "n/a", "#n/a", "<na>", "nan", "nat", "null", "none", "?", "-", ".",
)  # fmt: skip


def readers(values: pd.Series) -> dict:
    """Return the kinds that a column may be, but for a category, most special first."""
    import pandas as pd

    if pd.api.types.is_bool_dtype(values.dtype):
        return {"boolean": _truth}
    if pd.api.types.is_numeric_dtype(values.dtype):
        return {"number": _numbers}
    if _is_of_times(values):
        return {"date": _days}
    if isinstance(values.dtype, pd.CategoricalDtype):
        return {}
    return {"boolean": _truth, "number": _numbers, "date": _days}


def refuse_strange(values: pd.Series) -> None:
    """Refuse fields of several values, and types of arrow that pandas can do little with."""
    known = values.dropna() if values.dtype == object else values[:0]
    if any(isinstance(value, list | tuple | dict | np.ndarray) for value in known):
        raise ValueError(
            f"column {values.name!r} has several values in a field; make columns of its parts, or "
            f"remove it."
        )
    arrow = getattr(values.dtype, "pyarrow_dtype", None)
    if arrow is not None and str(arrow).startswith(_SEVERAL_VALUES):
        raise ValueError(
            f"column {values.name!r} has the type {arrow} of arrow, several values in a field; "
            f"make columns of its parts, or remove it."
        )
    if arrow is not None and str(arrow).startswith(("date", "decimal", "time32", "time64")):
        advice = "float" if str(arrow).startswith("decimal") else "'datetime64[us]'"
        raise ValueError(
            f"column {values.name!r} has the type {arrow} of arrow, which is not known here; "
            f"convert it, for example by .astype({advice})."
        )


def dense(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose columns hold all of their values; a copy if some did not."""
    import pandas as pd

    sparse = [place for place, kind in enumerate(frame.dtypes) if isinstance(kind, pd.SparseDtype)]
    changed = frame.copy() if sparse else frame
    for place in sparse:
        changed.isetitem(place, frame.iloc[:, place].sparse.to_dense())
    return changed


def _is_of_times(values: pd.Series) -> bool:
    import pandas as pd

    period = isinstance(values.dtype, pd.PeriodDtype)
    return period or pd.api.types.is_datetime64_any_dtype(values.dtype)


def _numbers(values: pd.Series) -> np.ndarray:
    import pandas as pd

    if pd.api.types.is_complex_dtype(values.dtype):
        raise ValueError(f"column {values.name!r} is complex; real numbers were expected.")
    if values.dtype.kind in "mM":  # durations and dates are none, though pandas counts them
        return np.full(len(values), np.nan)
    if values.dtype == object or pd.api.types.is_string_dtype(values.dtype):
        values = text_of(values)
        values = values.where(~values.str.fullmatch(_CODE).eq(True), None)
    return pd.to_numeric(values, errors="coerce").to_numpy(dtype=float, na_value=np.nan)


def _days(values: pd.Series) -> np.ndarray:
    import pandas as pd

    if isinstance(values.dtype, pd.PeriodDtype):
        values = values.dt.to_timestamp()
    if not pd.api.types.is_datetime64_any_dtype(values.dtype):
        text = text_of(values)
        text = text.where(text.str.match(_DATE).eq(True), None)  # not "now", nor a number
        values = pd.to_datetime(text, errors="coerce", format="ISO8601", utc=True)
    dates = values.dt.tz_convert("UTC").dt.tz_localize(None) if values.dt.tz else values
    days = dates.astype("datetime64[us]").astype("int64").to_numpy() / DAY
    return np.where(dates.isna(), np.nan, days)


def _truth(values: pd.Series) -> np.ndarray:
    import pandas as pd

    if pd.api.types.is_bool_dtype(values.dtype):
        return values.astype("boolean").to_numpy(dtype=float, na_value=np.nan)
    return text_of(values).str.lower().map(_TRUTH).to_numpy(dtype=float, na_value=np.nan)


READERS = {"number": _numbers, "date": _days, "boolean": _truth}


def text_of(values: pd.Series) -> pd.Series:
    """Return values as stripped text, None where they are missing; 1 and 1.0 are the same."""
    known = values.astype(object).where(values.notna(), None)
    return known.map(_spelled).astype(object)


def _spelled(value: Any) -> str | None:
    if value is None:
        return None
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else str(value).strip()


def almost_numbers(values: pd.Series) -> tuple[int, str] | None:
    """Return how many values of a category could be numbers, and one that is none as it stands.

    None if most could not be, or if some are codes.
    """
    import pandas as pd

    text = text_of(values).dropna()
    bare = text.str.replace(_BESIDE_DIGITS, "", regex=True).str.replace("\u2212", "-")
    plain, bare = (pd.to_numeric(some, errors="coerce").notna() for some in (text, bare))
    could_be = plain | bare
    if plain.all() or could_be.mean() < 0.5 or text.str.fullmatch(_CODE).any():
        return None
    return int(could_be.sum()), text[~plain].iloc[0]


def nearly_all_differ(values: pd.Series) -> bool:
    """Say whether nearly every row of a column has a text of its own."""
    known = values.dropna()
    if len(known) < _LEAST_TO_DIFFER or not all(isinstance(value, str) for value in known):
        return False
    return known.nunique() > 0.9 * len(values)


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

    given = pd.Series(missing, dtype=object)
    numbers = pd.to_numeric(given, errors="coerce").dropna()
    if pd.api.types.is_bool_dtype(column):
        hidden = text_of(column).isin(missing)
        column = column.astype("boolean") if hidden.any() else column
    elif pd.api.types.is_datetime64_any_dtype(column):
        spelled = given.drop(numbers.index)  # 2020 is a number, not the first of January
        days = pd.to_datetime(spelled, errors="coerce", format="mixed").dropna()
        hidden = column.dt.tz_localize(None).isin(days)
    elif pd.api.types.is_numeric_dtype(column):
        hidden = column.isin(numbers)
    else:
        text = text_of(column)
        hidden = text.isin(missing) | pd.to_numeric(text, errors="coerce").isin(numbers)
        if usual:
            hidden |= text.str.lower().isin(MISSING)
    return column.mask(hidden.to_numpy()) if hidden.any() else column


def filled_column(given: pd.Series, new: pd.Series) -> pd.Series:
    """Return a column with its holes filled from another; it keeps its type if that can be.

    Columns of floats become whole numbers again if those of training were: holes made them
    floats.
    """
    import pandas as pd

    holes = given.isna()
    if not holes.any() or new.isna().all():
        return given
    kind, new = new.dtype, new.astype(object).map(_as_observed(given))
    values = given.astype(object).where(~holes, new)
    if _are_decimals(given.dropna()):
        return values
    if isinstance(given.dtype, pd.CategoricalDtype):
        added = sorted(set(values) - set(given.cat.categories))
        return values.astype(given.cat.add_categories(added).dtype)
    loose = given.dtype == object or pd.api.types.is_float_dtype(given.dtype)
    strict = pd.api.types.is_object_dtype(kind) or isinstance(kind, pd.CategoricalDtype)
    wanted = kind if loose and not strict else given.dtype
    for dtype in (wanted, given.dtype):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            found = values.astype(dtype)
            if ((found.astype(object) == values) | values.isna()).all():
                return found
    return values


def _as_observed(given: pd.Series) -> Callable[[Any], Any]:
    """Return what makes a filled value one of the column's own.

    Categories came as text, and so did all that was learned from text.
    """
    import pandas as pd

    if isinstance(given.dtype, pd.CategoricalDtype):
        known = pd.Series(given.cat.categories)
    elif pd.api.types.is_datetime64_any_dtype(given.dtype):
        return _as_time(given.dt.tz, given.dt.unit)
    elif pd.api.types.is_bool_dtype(given.dtype):
        return lambda value: _read(value, lambda text: bool(_TRUTH[text.lower()]))
    elif pd.api.types.is_numeric_dtype(given.dtype):
        return lambda value: _read(value, float)
    else:
        known = given.dropna()
        if _are_decimals(known):
            places = Decimal(1).scaleb(min(value.as_tuple().exponent for value in known))
            return lambda value: value if value != value else _decimal(value, places)
        if len(known) and all(type(value) is datetime.date for value in known):
            return lambda value: value.date() if isinstance(value, datetime.datetime) else value
        if len(known) and all(_zone_of(value) is not None for value in known):
            return _as_time(_zone_of(known.iloc[0]), "us")
        if len(known) and all(isinstance(value, str) for value in known):
            days = all(len(value) == len("2020-01-01") for value in known)
            return lambda value: _as_text(value, days)
    own = dict(zip(text_of(known), known, strict=True))
    return lambda value: own.get(value, value) if isinstance(value, str) else value


def _decimal(value: Any, places: Decimal) -> Decimal:
    return Decimal(str(value)).quantize(places, context=Context(prec=_MOST_DIGITS))


def _are_decimals(known: pd.Series) -> bool:
    return known.dtype == object and len(known) > 0 and all(isinstance(v, Decimal) for v in known)


def _as_time(zone: datetime.tzinfo | None, unit: str) -> Callable[[Any], Any]:
    """Return what makes a filled time, or its text, one of a column; without a zone it is UTC."""
    import pandas as pd

    def own(value: Any) -> Any:
        found = _read(value, pd.Timestamp)
        if not isinstance(found, pd.Timestamp):
            return found
        found = found.tz_localize("UTC") if found.tz is None else found
        return found.tz_convert(zone).as_unit(unit)

    return own


def _zone_of(value: Any) -> datetime.tzinfo | None:
    return value.tzinfo if isinstance(value, datetime.datetime) else None


def _read(value: Any, reader: Callable[[str], Any]) -> Any:
    """Return what text stands for; anything else, and text that cannot be read, as it is."""
    if isinstance(value, str):
        with contextlib.suppress(KeyError, ValueError):
            return reader(value)
    return value


def _as_text(value: Any, days: bool) -> Any:
    """Return a filled value as text, if it is none; of a time perhaps only the day."""
    if value is None or value != value or isinstance(value, str):
        return value
    if days and isinstance(value, datetime.datetime):
        return str(value.date())
    return f"{value:.6g}" if isinstance(value, float) else _spelled(value)


def typed(values: pd.Series, dtype: str) -> pd.Series:
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
