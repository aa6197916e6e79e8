"""How many CPU threads take part in what.

torch's threads wait for their next piece of work by spinning. For small layers that costs more
than it brings, and it takes the cores from the threads that code rows.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar

import torch

_for_coding: ContextVar[int | None] = ContextVar("threads for coding", default=None)


def n_coding_threads() -> int:
    """Return how many threads share the rows when codes are made on a CPU."""
    return _for_coding.get() or torch.get_num_threads()


@contextlib.contextmanager
def torch_on_one_thread(wanted: bool = True) -> Iterator[None]:
    """Let torch use one thread for a while, and coding as many as torch had before."""
    if not wanted:
        yield
        return
    n_threads = torch.get_num_threads()
    token = _for_coding.set(n_threads)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)
        _for_coding.reset(token)


def _go_on_alone() -> None:
    """Let torch use one thread in a process that was split off from another by a fork.

    Other threads are not split off with it, and torch would wait for them forever.
    """
    if torch.get_num_threads() > 1:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_go_on_alone)
