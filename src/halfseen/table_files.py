"""Tables as files: CSV, TSV and Parquet, read with holes as NaN, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from halfseen.storage import require_folder

if TYPE_CHECKING:
    import pandas as pd

KINDS = (".csv", ".tsv", ".parquet")
_MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", "-")


def read_frame(
    path: str | os.PathLike, target: str | None = None, missing: Iterable[str] = ()
) -> pd.DataFrame:
    """Return a table, missing values as NaN or None.

    Parameters
    ----------
    path : path
        Ends in .csv, .tsv or .parquet. Empty fields, NA, NaN, null, None, ? and - are holes.
    target : str, optional
        The column of labels, in which only an empty field is missing: a label may well be
        called "-".
    missing : iterable of str
        What else stands for a missing value, such as "-999".
    """
    import pandas as pd

    path = Path(path)
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise ValueError(f"{str(path)!r} must end in .csv, .tsv or .parquet.")
    try:
        frame = pd.read_parquet(path) if kind == ".parquet" else _read_text(path, kind, target)
    except FileNotFoundError:
        raise
    except (ValueError, OSError) as error:  # what pandas and pyarrow raise
        raise ValueError(f"{str(path)!r} cannot be read as a table: {error}") from error
    for name in frame.columns:
        if name != target:
            frame[name] = _without(frame[name], tuple(missing))
    return frame


def split_target(
    frame: pd.DataFrame, target: str, path: str | os.PathLike
) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the columns to learn from, and the labels.

    Parameters
    ----------
    frame : DataFrame
    target : str
    path : path
        Where the table came from, for messages.
    """
    if target not in frame.columns:
        raise ValueError(
            f"{str(path)!r} has no column {target!r}; its columns are "
            f"{', '.join(map(repr, frame.columns))}."
        )
    if len(frame) == 0 or len(frame.columns) < 2:
        raise ValueError(
            f"{str(path)!r} has {len(frame)} rows and {len(frame.columns) - 1} columns beside "
            f"{target!r}; at least one of each is needed."
        )
    y = frame[target]
    if y.isna().any():
        raise ValueError(
            f"{str(path)!r} has no label in {int(y.isna().sum())} rows, the first is row "
            f"{int(y.isna().argmax())}; remove them."
        )
    return frame.drop(columns=target), y.to_numpy()


def write_frame(path: str | os.PathLike, frame: pd.DataFrame) -> None:
    """Write a table as the ending of the path says, whole or not at all."""
    kind = Path(path).suffix.lower()
    if kind not in KINDS:
        raise ValueError(f"{str(path)!r} must end in .csv, .tsv or .parquet.")

    def write(temporary: Path) -> None:
        if kind == ".parquet":
            frame.to_parquet(temporary, index=False)
        else:
            frame.to_csv(temporary, index=False, sep="\t" if kind == ".tsv" else ",")

    write_whole(path, write)


def write_whole(path: str | os.PathLike, write: Callable[[Path], object]) -> None:
    """Have a file written beside its place and move it there when it is complete.

    Parameters
    ----------
    path : path
    write : callable
        Writes the file it is given; the name has the ending of `path`.
    """
    path = Path(path)
    require_folder(path)
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        write(temporary)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise


def _read_text(path: Path, kind: str, target: str | None) -> pd.DataFrame:
    import pandas as pd

    settings = {"sep": "\t" if kind == ".tsv" else ",", "skipinitialspace": True}
    columns = pd.read_csv(path, nrows=0, **settings).columns
    holes = {column: [""] if column == target else _MISSING for column in columns}
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            # Without an index column pandas warns of rows that are longer than the header.
            frame = pd.read_csv(
                path,
                na_values=holes,
                keep_default_na=False,
                index_col=False,
                dtype_backend="numpy_nullable",  # whole numbers stay so beside holes
                **settings,
            )
        except pd.errors.ParserWarning as error:
            raise ValueError("its rows have more fields than its header has names") from error
    return frame.apply(_usual_type)


def _usual_type(column: pd.Series) -> pd.Series:
    """Return a column in the type that pandas users know, if that has room for its holes."""
    if column.dtype == "string":
        return column.astype(object).where(column.notna(), None)
    if column.dtype == "Float64":
        return column.astype("float64")
    return column if column.isna().any() else column.astype(column.dtype.numpy_dtype)


def _without(column: pd.Series, missing: tuple[str, ...]) -> pd.Series:
    """Return a column with the usual and the given spellings of a missing value as holes."""
    import pandas as pd

    if pd.api.types.is_bool_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
        return column
    if pd.api.types.is_numeric_dtype(column):
        numbers = pd.to_numeric(pd.Series(missing, dtype=object), errors="coerce").dropna()
        return column.mask(column.isin(numbers.tolist())) if len(numbers) else column
    text = column.astype("string").str.strip()
    return column.mask((text.isna() | text.isin((*_MISSING, *missing))).to_numpy())
