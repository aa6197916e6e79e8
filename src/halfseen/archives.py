"""Arrays from .npy and .npz files: no pickles, and no more memory than the files justify."""

from __future__ import annotations

import lzma
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import numpy as np

# What may be wrong with a file that numpy, zipfile and their decompressors read.
DAMAGE = (
    ValueError, TypeError, OSError, EOFError, LookupError, NotImplementedError, RuntimeError,
    ArithmeticError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error,
)  # fmt: skip
_READ_ANYWAY = 2**28  # bytes
_MOST_INFLATED = 100


def read_arrays(path: Path, wanted: Iterable[str]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return some arrays of an archive, those that are there, and the names of all.

    Parameters
    ----------
    path : Path
        Of a .npz file.
    wanted : iterable of str

    Raises
    ------
    Any of `DAMAGE`
    """
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        found = {name: members[name] for name in wanted if name in members}
        n_bytes = sum(info.file_size for info in found.values())
        require_proportion(n_bytes, os.fstat(file.fileno()).st_size)
        return {name: _member(archive, info) for name, info in found.items()}, list(members)


def read_array(path: Path) -> np.ndarray:
    """Return the array of a .npy file; raises any of `DAMAGE`."""
    with path.open("rb") as file:
        n_stored = os.fstat(file.fileno()).st_size
        _check_header(file, n_stored)
        file.seek(0)
        return np.lib.format.read_array(file, allow_pickle=False)


def require_proportion(n_bytes: int, n_stored: int) -> None:
    """Refuse files that would become far larger in memory than they are on the disk.

    Up to 256 MiB are read anyway. Beyond, what is read may be 100 times as large as the files:
    data that people have are not compressed further, but zeros that are meant to fill a memory
    are.

    Parameters
    ----------
    n_bytes : int
        Of what is read, uncompressed.
    n_stored : int
        Of the files it is read from.
    """
    if n_bytes > max(_READ_ANYWAY, _MOST_INFLATED * n_stored):
        raise ValueError(
            f"{n_stored / 2**20:.1f} MiB would become {n_bytes / 2**20:.0f} MiB in memory, more "
            f"than {_MOST_INFLATED} times as much; if that is meant, store it without compression"
        )


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(info) as stream:
        _check_header(stream, info.file_size)
    with archive.open(info) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def _check_header(stream: IO[bytes], n_stored: int) -> None:
    """Refuse an array that is larger than what is stored of it, before room is made for it."""
    version = np.lib.format.read_magic(stream)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"version {version} of the format .npy is not known")
    shape, _, dtype = readers[version](stream)
    if dtype.hasobject:
        raise ValueError(
            "an array holds Python objects, which are not read: they could run code; save it as "
            "numbers or text, such as y.astype(str)"
        )
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > n_stored:
        raise ValueError(f"an array of shape {shape} is not all there")
