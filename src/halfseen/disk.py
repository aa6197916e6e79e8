"""Samples and codes that are larger than memory: rows of files, read and written in parts.

A file that is mapped into memory counts as memory of the process, page by page, once it was
looked at. So whoever reads here gets a copy, and the pages are given back at once.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import math
import mmap
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, TypeVar

import numpy as np
import torch
from torch import Tensor

from halfseen.whole_files import full_disk_is_told

_IN_MEMORY = 2**29  # bytes up to which rows are kept in the memory of a CPU
_GPU_SHARE = 0.4  # of the free memory of a GPU
_ROWS_AT_ONCE = 16  # scattered rows; each may bring two megabytes around it with it
T = TypeVar("T")


class MappedRows:
    """Rows of a file mapped into memory: indexing gives a fresh array of floats, checked.

    Parameters
    ----------
    array : ndarray of shape (n_rows, ...)
        A map of a file, or a view of one; NaN in the holes.
    columns : list of str, optional
        Names of the features.
    """

    def __init__(self, array: np.ndarray, columns: list[str] | None = None) -> None:
        if array.dtype.kind not in "fiub":
            raise ValueError(f"X has dtype {array.dtype}; numbers were expected.")
        if array.ndim < 2 or 0 in array.shape:
            raise ValueError(
                f"X must have samples with features, shape (n_samples, n_features) or more axes; "
                f"got shape {array.shape}."
            )
        self._array = array
        self._map = map_under(array)
        self.columns = columns
        self.shape, self.ndim = array.shape, array.ndim
        # As scikit-learn takes arrays in memory: float32 stays, all else becomes float64.
        self.dtype = np.dtype(np.float32 if array.dtype == np.float32 else np.float64)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        """Return some rows, in the order asked for; infinities are refused."""
        part = _copied(self._array, self._map, rows, self.dtype)
        if np.isinf(part).any():
            place = np.argwhere(np.isinf(part))[0]
            row = range(len(self))[rows][place[0]] if isinstance(rows, slice) else rows[place[0]]
            raise ValueError(
                f"X contains infinity in row {int(row)}; mark missing values with NaN."
            )
        return part

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        """Return all of it, in memory."""
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)


class PickedRows:
    """Some rows of an array or of `MappedRows`, in an order of their own; nothing is copied.

    Parameters
    ----------
    values : ndarray or MappedRows of shape (n_rows, ...)
    places : int64 ndarray
        Which rows.
    """

    def __init__(self, values: np.ndarray | MappedRows, places: np.ndarray) -> None:
        self._values = values
        self._places = places
        self.shape, self.ndim = (len(places), *values.shape[1:]), values.ndim
        self.dtype = values.dtype

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        """Return a copy of some rows."""
        return self._values[self._places[rows]]

    def part(self, rows: slice | np.ndarray) -> PickedRows:
        """Return fewer rows."""
        return PickedRows(self._values, self._places[rows])

    def as_stored(self) -> PickedRows:
        """Return the same rows in the order of the file, if they are in one: read faster."""
        stored = isinstance(self._values, MappedRows)
        return PickedRows(self._values, np.sort(self._places)) if stored else self


class DiskRows:
    """A tensor of shape (n_rows, ...) in a temporary file that goes when the process goes.

    Parameters
    ----------
    shape : tuple of int
    dtype : torch.dtype
    device : torch.device
        Where rows go when they are read.
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        kind = torch.empty(0, dtype=dtype, device="cpu").numpy().dtype
        with tempfile.TemporaryFile(prefix="halfseen-") as file:
            reserve(file.fileno(), math.prod(shape) * kind.itemsize)
            self._array = np.memmap(file, kind, "r+", shape=shape)
        self.shape, self.dtype, self.device = shape, dtype, device

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """Return some rows."""
        part = _copied(self._array, self._array, on_host(rows), self._array.dtype)
        return torch.from_numpy(part).to(self.device)

    def __setitem__(self, rows: Tensor | slice, values: Tensor) -> None:
        """Replace some rows."""
        self._array[on_host(rows)] = values.detach().cpu().numpy()
        give_back(self._array)


def new_rows(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor | DiskRows:
    """Return rows of zeros that can be read and replaced: a tensor if it fits, else a file."""
    if fits(math.prod(shape) * dtype.itemsize, device):
        # A GPU may be shared, or may not give all that it has.
        with contextlib.suppress(torch.cuda.OutOfMemoryError):
            return torch.zeros(shape, dtype=dtype, device=device)
    return DiskRows(shape, dtype, device)


def fits(n_bytes: int, device: torch.device) -> bool:
    """Say whether so much may be kept in the memory of a device."""
    if device.type == "cuda":
        return n_bytes <= _GPU_SHARE * torch.cuda.mem_get_info(device)[0]
    return n_bytes <= _IN_MEMORY


def entries_at_once(device: torch.device) -> int:
    """Return how many entries of samples and codes should be in work together."""
    return 2**27 if device.type == "cuda" else 2**21


def in_parts(n_rows: int, n_at_once: int, work: Callable[[slice], T]) -> Iterator[tuple[slice, T]]:
    """Yield consecutive slices and what `work` returns for them; fewer rows if a GPU is too small.

    Parameters
    ----------
    n_rows : int
    n_at_once : int
        Rows to begin with.
    work : callable
        Takes a slice.
    """
    start, n_at_once = 0, max(1, n_at_once)
    while start < n_rows:
        some = slice(start, min(n_rows, start + n_at_once))
        n_at_once = some.stop - start
        try:
            with gpu_memory_is_told("free some of it, or pass device='cpu'"):
                result = work(some)
        except torch.cuda.OutOfMemoryError as error:
            if n_at_once == 1:
                raise
            # Tensors that frames of the error or circles hold must go before the next try.
            traceback.clear_frames(getattr(error.__cause__, "__traceback__", None))
            gc.collect()
            n_at_once //= 2
            continue
        yield some, result
        start = some.stop


@contextlib.contextmanager
def gpu_memory_is_told(advice: str) -> Iterator[None]:
    """Say what helps when a GPU has no room."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise torch.cuda.OutOfMemoryError(
            f"the GPU has too little free memory: {advice}."
        ) from error


def reserve(file: int, n_bytes: int) -> None:
    """Make a file so large, on the disk.

    Writing to a map of a file that has only the size but not the space kills the process.
    """
    with _room_is_told(n_bytes):
        try:
            os.posix_fallocate(file, 0, max(1, n_bytes))
        except (AttributeError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
            os.truncate(file, max(1, n_bytes))  # here or on this disk it cannot be reserved


def write_all(file: BinaryIO, values: np.ndarray) -> None:
    """Append an array to a temporary file."""
    with _room_is_told(file.tell() + values.nbytes):
        file.write(values.data)


def _room_is_told(n_bytes: int) -> contextlib.AbstractContextManager[None]:
    return full_disk_is_told(
        f"no room for a temporary file of {n_bytes / 2**30:.1f} GiB in {tempfile.gettempdir()!r}",
        "Set TMPDIR to a folder with room",
    )


def _copied(
    array: np.ndarray, below: np.memmap | None, rows: slice | np.ndarray, kind: np.dtype
) -> np.ndarray:
    """Return some rows of a mapped array, and give their pages back."""
    if isinstance(rows, slice):
        part = np.array(array[rows], dtype=kind, order="C")
        give_back(below)
        return part
    part = np.empty((len(rows), *array.shape[1:]), kind)
    for some in slices(len(rows), _ROWS_AT_ONCE):
        part[some] = array[rows[some]]
        give_back(below)
    return part


def map_under(array: Any) -> np.memmap | None:
    """Return the map of a file that an array is, or is a view of."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap) and _mapping(array) is not None:
            return array
        array = array.base
    return None


def _mapping(array: np.memmap) -> Any:
    return array._mmap  # type: ignore[attr-defined]


def give_back(array: np.memmap | None) -> None:
    """Let go of the pages of a map that were looked at; they stay in the system's cache."""
    # Of a private map ("c") the changes would be lost with the pages.
    if array is not None and array.mode != "c" and sys.platform == "linux":
        _mapping(array).madvise(mmap.MADV_DONTNEED)


def on_host(rows: Tensor | slice) -> np.ndarray | slice:
    """Return numbers of rows as numpy takes them."""
    return rows if isinstance(rows, slice) else rows.cpu().numpy()


def slices(n_rows: int, n_at_once: int) -> list[slice]:
    """Return consecutive slices of so many rows, at least one each."""
    n_at_once = max(1, n_at_once)
    return [slice(start, start + n_at_once) for start in range(0, n_rows, n_at_once)]
