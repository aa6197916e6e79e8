"""Processes that train together: who owns which samples, and what they add up.

Started by ``torchrun``, every process makes the same call with the same data. Each owns a block
of the samples and their codes; gradients of network and dictionary are added up, so all
processes hold the same model. The mini-batches are those of one process, and each takes the
samples that are its own.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

_split_off = False  # whether a fork has copied the group of the process before it


def _remember_group() -> None:
    global _split_off
    _split_off = dist.is_available() and dist.is_initialized()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_remember_group)


@dataclass(frozen=True)
class Team:
    """One process among `size` that train together; alone by default.

    Attributes
    ----------
    rank : int
        Number of this process.
    size : int
    """

    rank: int = 0
    size: int = 1

    @property
    def alone(self) -> bool:
        """Whether there is no other process."""
        return self.size == 1

    def block(self, n_rows: int) -> slice:
        """Return which of so many rows are owned here."""
        return slice(self.rank * n_rows // self.size, (self.rank + 1) * n_rows // self.size)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their sums over all processes, all in one message."""
        if self.alone or not tensors:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        with _someone_may_stop():
            dist.all_reduce(flat)
        for tensor, total in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(total.reshape(tensor.shape))

    def follow_first(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by those of the first process."""
        if self.alone:
            return
        with _someone_may_stop():
            for tensor in tensors:
                values = tensor.contiguous()
                # As bytes: backends do not know every type.
                dist.broadcast(values.reshape(-1).view(torch.uint8), 0)
                tensor.copy_(values)

    def from_first(self, value: Any) -> Any:
        """Return what the first process passed."""
        if self.alone:
            return value
        box = [value]
        with _someone_may_stop():
            dist.broadcast_object_list(box, 0)
        return box[0]

    def gathered(self, value: Any) -> list:
        """Return what all processes passed, in their order."""
        if self.alone:
            return [value]
        values: list = [None] * self.size
        with _someone_may_stop():
            dist.all_gather_object(values, value)
        return values

    def gathered_by_first(self, value: Any) -> list | None:
        """Return what all processes passed to the first of them, None to the others."""
        if self.alone:
            return [value]
        values: list | None = [None] * self.size if self.rank == 0 else None
        with _someone_may_stop():
            dist.gather_object(value, values, 0)
        return values


def this_team(device: str | torch.device) -> Team:
    """Return the team that this process was started in; the first call joins it.

    Parameters
    ----------
    device : str or torch.device
        The parameter `device` of what is to be trained. If it may be a GPU, each process
        of a machine takes another one.
    """
    if not dist.is_available() or _split_off or os.environ.get("HALFSEEN_ALONE") == "1":
        return Team()
    if not dist.is_initialized():
        # A worker that one of the processes has started is none of them.
        if multiprocessing.parent_process() is not None:
            return Team()
        by_torchrun = all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"))
        if not by_torchrun or int(os.environ["WORLD_SIZE"]) == 1:
            return Team()
        backend = "gloo"
        if torch.cuda.is_available() and torch.device(_named(device)).type == "cuda":
            backend = "cpu:gloo,cuda:nccl"
            _take_gpu()
        # Its functions have the group of that moment as a default. Imported later, as optimisers
        # do, it would keep the group, and its threads, alive when Python ends: that aborts.
        importlib.import_module("torch.distributed.nn.functional")
        dist.init_process_group(backend)
        atexit.register(_leave)
    return Team(dist.get_rank(), dist.get_world_size())


def _named(device: str | torch.device) -> str | torch.device:
    return "cuda" if device == "auto" else device


def _take_gpu() -> None:
    number, n_gpus = int(os.environ.get("LOCAL_RANK", 0)), torch.cuda.device_count()
    if number >= n_gpus:
        raise ValueError(
            f"this is process {number} of those on this machine, which has {n_gpus} GPU(s); start "
            f"as many processes as there are GPUs, or pass device='cpu'."
        )
    torch.cuda.set_device(number)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


@contextlib.contextmanager
def _someone_may_stop() -> Iterator[None]:
    try:
        with torch.no_grad():
            yield
    except RuntimeError as error:
        raise RuntimeError(
            "another process of this training has stopped or cannot be reached, so this one stops "
            "too. Look for the first error among the messages of all processes, then start the "
            "same command again, with as many processes as you like: with checkpoint=... it goes "
            "on from the last checkpoint."
        ) from error
