"""Codes of all samples in a compact form for checkpoints: which are not zero, and their values."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from halfseen.disk import DiskRows, slices
from halfseen.team import Team

_ENTRIES_AT_ONCE = 2**22
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(1)  # set, of a byte


def packed(codes: Tensor | DiskRows, team: Team) -> dict[str, Tensor]:
    """Return the codes of all processes, to the first of them; one bit for a zero.

    Parameters
    ----------
    codes : rows of shape (n_samples, ...)
        Those of this process.
    team : Team
    """
    bits, values = [], []
    for some in _parts(codes):
        part = codes[some].flatten(1).cpu()
        nonzero = part != 0
        bits.append(np.packbits(nonzero.numpy(), axis=1))
        values.append(part[nonzero])
    own = torch.from_numpy(np.concatenate(bits)), torch.cat(values)
    everyone = team.gathered_by_first(own)
    if everyone is None:
        return {}
    return {
        "nonzero": torch.cat([bits for bits, _ in everyone]),
        "values": torch.cat([values for _, values in everyone]),
    }


def unpack(state: dict[str, Tensor], codes: Tensor | DiskRows, first: int) -> None:
    """Write codes from the form that `packed` gave them; sample 0 of `codes` is row `first`."""
    nonzero = state["nonzero"].numpy()
    n_entries = math.prod(codes.shape[1:])
    if nonzero.shape[1:] != (math.ceil(n_entries / 8),) or len(nonzero) < first + len(codes):
        raise ValueError(f"codes of {nonzero.shape[1:]} bytes for {n_entries} entries")
    at = int(_BITS[nonzero[:first]].sum())
    for some in _parts(codes):
        bits = nonzero[first + some.start : first + min(some.stop, len(codes))]
        there = torch.from_numpy(np.unpackbits(bits, axis=1, count=n_entries).astype(bool))
        part = torch.zeros(there.shape, dtype=codes.dtype, device="cpu")
        n_values = int(there.sum())
        values = state["values"][at : at + n_values]
        if values.shape != (n_values,) or values.dtype != codes.dtype:
            raise ValueError("codes that do not fit their places")
        part[there] = values
        codes[some] = part.reshape(-1, *codes.shape[1:]).to(codes.device)
        at += n_values


def _parts(codes: Tensor | DiskRows) -> list[slice]:
    return slices(len(codes), _ENTRIES_AT_ONCE // math.prod(codes.shape[1:]))
