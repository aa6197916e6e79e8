"""Tables as files: CSV, TSV and Parquet, read with holes as NaN, written whole or not at all."""

from __future__ import annotations

import csv
import os
import warnings
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from halfseen.archives import require_proportion
from halfseen.storage import one_line
from halfseen.table_columns import frame_of_arrow
from halfseen.table_values import MISSING, without
from halfseen.whole_files import refuse_what_is_no_file, write_whole

if TYPE_CHECKING:
    import pandas as pd

KINDS = (".csv", ".tsv", ".parquet")
_GZIP = b"\x1f\x8b"
_HOLES = (*MISSING, *map(str.upper, MISSING), "NaN", "NaT", "None")


def read_frame(
    path: str | os.PathLike,
    target: str | None = None,
    missing: Iterable[str] = (),
    as_text: bool = False,
    columns: Collection[str] | None = None,
) -> pd.DataFrame:
    """Return a table, missing values as NaN or None.

    Parameters
    ----------
    path : path
        Ends in .csv, .tsv or .parquet. Empty fields and the usual spellings of a missing value
        (NA, N/A, NaN, NaT, null, None, ?, -, .) are holes.
    target : str, optional
        The column of labels, in which only an empty field is missing: a label may well be
        called "-".
    missing : iterable of str
        What else stands for a missing value, such as "-999".
    as_text : bool
        Whether to leave the fields of a CSV or TSV file as they are: what a column is should
        not depend on the rows that are in the file.
    columns : collection of str, optional
        In which columns to look for holes; others stay as they are, and may have the same name
        or none. By default in all. Then a first column without a name, such as pandas writes its
        index to, is left out.
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise ValueError(f"{str(path)!r} must end in .csv, .tsv or .parquet.")
    try:
        if kind == ".parquet":
            frame = _read_parquet(path)
        else:
            refuse_what_is_no_file(path)  # which could not be read several times
            frame = _read_text(path, kind, target, as_text, columns)
    except FileNotFoundError:
        raise
    except (ValueError, OSError, csv.Error) as error:  # what pandas and pyarrow raise
        advice = ""
        if isinstance(error, UnicodeDecodeError):
            with path.open("rb") as file:
                packed = file.read(len(_GZIP)) == _GZIP
            advice = "; it is compressed, unpack it" if packed else "; save it as UTF-8"
        raise ValueError(f"{str(path)!r} cannot be read as a table: {error}{advice}") from error
    for name in frame.columns:
        if name != target and (columns is None or name in columns):
            frame[name] = without(frame[name], tuple(missing), usual=True)
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
            try:
                frame.to_parquet(temporary, index=False)
            except (ValueError, TypeError, OverflowError) as error:  # such as names that repeat
                raise ValueError(
                    f"{str(path)!r} cannot be written as Parquet: {one_line(error)}; take .csv."
                ) from error
        else:
            frame.to_csv(temporary, index=False, sep="\t" if kind == ".tsv" else ",")

    write_whole(path, write)


def _read_parquet(path: Path) -> pd.DataFrame:
    """Return a table; an index with a name is one of its columns."""
    from pyarrow import parquet

    if path.is_file():
        about = parquet.read_metadata(path)
        require_proportion(8 * about.num_rows * about.num_columns, path.stat().st_size)

    frame = frame_of_arrow(parquet.read_table(path))
    named = [name for name in frame.index.names if name is not None]
    return frame.reset_index(named) if named else frame


def _read_text(
    path: Path, kind: str, target: str | None, as_text: bool, wanted: Collection[str] | None
) -> pd.DataFrame:
    import pandas as pd

    settings: dict = {"sep": "\t" if kind == ".tsv" else ",", "skipinitialspace": True}
    as_written = {"header": None, "dtype": str, "keep_default_na": False, **settings}
    asked = {target} if wanted is None else {target, *wanted}
    first = pd.read_csv(path, nrows=1, **as_written).iloc[0]
    names = [name if name in asked else name.strip() for name in first]
    _check_names(names, kind, names if wanted is None else {*wanted, target})
    _refuse_short_rows(path, settings["sep"], len(names))
    # A line without anything in it is a hole if there is one column, and nothing if there are more.
    settings["skip_blank_lines"] = len(names) > 1
    columns = pd.read_csv(path, nrows=0, **settings).columns
    if len(names) == 1 and names[0] not in columns.str.strip():
        raise ValueError("it begins with an empty line")
    looked_at = [name for name in columns if wanted is None or {name, name.strip()} & asked]
    holes = {name: [""] if target in (name, name.strip()) else _HOLES for name in looked_at}
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            # Without an index column pandas warns of rows that are longer than the header.
            frame = pd.read_csv(
                path,
                na_values=holes,
                keep_default_na=False,
                index_col=False,
                dtype=str if as_text else None,
                **settings,
            )
        except pd.errors.ParserWarning as error:
            raise ValueError("its rows have more fields than its header has names") from error
    frame.columns = names  # pandas renames those that are there twice or have none
    if wanted is None and names[0] == "":
        frame = frame.iloc[:, 1:]
    if target in frame.columns and pd.api.types.is_string_dtype(frame[target].dtype):
        labels = frame[target].str.strip()  # as all other fields
        frame[target] = labels.mask(labels.eq("").to_numpy(dtype=bool, na_value=False))
    return frame


def _refuse_short_rows(path: Path, separator: str, n_fields: int) -> None:
    """Refuse rows that lack fields, as files do that were cut off: pandas would read holes."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file, delimiter=separator, skipinitialspace=True)
        for row in rows:
            if len(row) < n_fields and any(row):
                raise ValueError(
                    f"line {rows.line_num} has {len(row)} fields, its header {n_fields}; a missing "
                    f"value is an empty field"
                )


def _check_names(names: list[str], kind: str, wanted: Collection[str | None]) -> None:
    """Refuse a header that does not say which column is which of the wanted ones."""
    if len(names) == 1 and any(mark in names[0] for mark in ";\t,"):
        mark = "tabs" if kind == ".tsv" else "commas"
        raise ValueError(f"its header is one field, {names[0]!r}; separate fields by {mark}")
    twice = sorted({name for name in names if name and name in wanted and names.count(name) > 1})
    if twice:
        raise ValueError(f"it has the column {', '.join(map(repr, twice))} more than once")
    nameless = [place for place, name in enumerate(names, start=1) if name == ""]
    if "" in wanted and nameless not in ([], [1]):
        raise ValueError(
            f"its columns {', '.join(map(str, nameless))} have no name; name or remove them"
        )
