"""Functions that numba compiles once and keeps on the disk."""

from __future__ import annotations

from collections.abc import Callable

from numba import njit


def compiled_once(**options) -> Callable:
    """Return a decorator that compiles for use without the interpreter lock.

    What was compiled is kept beside the file, in the user's cache or in NUMBA_CACHE_DIR. Where none
    of them may be written to, as in a read-only container, every process compiles anew.
    """

    def compiled(function):
        try:
            return njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # numba's word for no place to keep it
            return njit(nogil=True, **options)(function)

    return compiled
