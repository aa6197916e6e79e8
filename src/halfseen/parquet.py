"""Datasets of Arrow, Parquet above all: spooled to a file whose rows can be read."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from halfseen.disk import MappedRows, write_all

_ENTRIES_AT_ONCE = 2**21
_READ_AHEAD = 2**16  # bytes of each column


def is_dataset(X: Any) -> bool:
    """Say whether X is a `pyarrow.dataset.Dataset`."""
    arrow = sys.modules.get("pyarrow.dataset")  # nobody has one who has not imported it
    return arrow is not None and isinstance(X, arrow.Dataset)


def column(dataset, name: str) -> np.ndarray:
    """Return one column, such as the labels."""
    if name not in dataset.schema.names:
        raise ValueError(f"the dataset has no column {name!r}; it has {_some(dataset)}.")
    values = dataset.to_table(columns=[name]).column(0)
    if values.null_count:
        raise ValueError(f"column {name!r} has {values.null_count} missing labels.")
    return values.to_numpy()


def features_of(dataset, label: str | None = None) -> list[str]:
    """Return the names of all columns but the labels."""
    return [name for name in dataset.schema.names if name != label]


def spooled(dataset, columns: list[str]) -> MappedRows:
    """Return columns of a dataset as rows of a temporary file; nulls become NaN.

    Parquet stores column after column, so a row cannot be read on its own. The file goes when
    the process goes.
    """
    missing = [name for name in columns if name not in dataset.schema.names]
    if missing:
        raise ValueError(f"the dataset has no column {missing[0]!r}; it has {_some(dataset)}.")
    if not columns:
        raise ValueError("the dataset has no columns beside the labels.")
    kind = _kind(dataset, columns)
    with tempfile.TemporaryFile(prefix="halfseen-") as file:
        n_rows = 0
        for batch in _batches(dataset, columns):
            part = np.empty((batch.num_rows, len(columns)), kind)
            for place, name in enumerate(columns):
                numbers = batch.column(name).cast(str(kind), safe=False)
                part[:, place] = numbers.to_numpy(zero_copy_only=False)
            write_all(file, part)
            n_rows += len(part)
        if n_rows == 0:
            raise ValueError("the dataset has no rows.")
        file.flush()
        return MappedRows(np.memmap(file, kind, "r", shape=(n_rows, len(columns))), columns)


def _batches(dataset, columns: list[str]) -> Iterator:
    """Yield the rows of a dataset in order, some at a time."""
    from pyarrow import parquet

    n_at_once = max(1, _ENTRIES_AT_ONCE // len(columns))
    try:
        fragments = list(dataset.get_fragments())
    except ValueError:  # a dataset that was filtered has none to show
        yield from dataset.to_batches(columns=columns, batch_size=n_at_once, batch_readahead=1)
        return
    datasets = sys.modules["pyarrow.dataset"]
    for fragment in fragments:
        of_folder = datasets.get_partition_keys(fragment.partition_expression)
        in_file = set(fragment.physical_schema.names) - of_folder.keys()
        if isinstance(fragment, datasets.ParquetFileFragment) and in_file.issuperset(columns):
            # Not the dataset's own scanner: it reads whole row groups, and several ahead.
            with fragment.filesystem.open_input_file(fragment.path) as source:
                file = parquet.ParquetFile(source, buffer_size=_READ_AHEAD, pre_buffer=False)
                groups = [group.id for group in fragment.row_groups]
                yield from file.iter_batches(
                    n_at_once, row_groups=groups, columns=columns, use_threads=False
                )
        else:  # in memory, of another format, or with columns in the names of its folders
            yield from fragment.to_batches(
                schema=dataset.schema, columns=columns, batch_size=n_at_once, batch_readahead=1
            )


def _numeric(types) -> tuple:
    return types.is_floating, types.is_integer, types.is_boolean, types.is_decimal


def _kind(dataset, columns: list[str]) -> np.dtype:
    """Return float32 if all columns are that, else float64, as for arrays."""
    from pyarrow import types

    narrow = True
    for name in columns:
        kind = dataset.schema.field(name).type
        if not any(is_kind(kind) for is_kind in _numeric(types)):
            raise ValueError(
                f"column {name!r} has type {kind}; numbers were expected. Encode text and "
                f"categories as numbers first, or leave the column out."
            )
        narrow = narrow and types.is_float32(kind)
    return np.dtype(np.float32 if narrow else np.float64)


def _some(dataset) -> str:
    names = [repr(name) for name in dataset.schema.names]
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
