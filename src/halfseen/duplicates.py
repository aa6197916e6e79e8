"""Equal samples count as one: which rows of an array are distinct, and in which order."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from halfseen.disk import MappedRows, PickedRows
from halfseen.moments import Rows, parts_of
from halfseen.team import Team

_N_HASHES = 2  # of 64 bits each
_ALONE = Team()


def row_keys(
    values: np.ndarray | MappedRows, device: torch.device | None = None, team: Team = _ALONE
) -> np.ndarray:
    """Return numbers that are equal for equal samples; shape (n_samples, 2), int64.

    Parameters
    ----------
    values : array of shape (n_samples, ...)
        NaN in the holes.
    device : torch.device, optional
        Where to compute.
    team : Team
        Each process reads a part and tells the others.
    """
    own: Rows = values
    if not team.alone:
        own = PickedRows(values, np.arange(len(values))[team.block(len(values))])
    keys, done = np.empty((len(own), _N_HASHES), np.int64), 0
    for part in parts_of(own, device):
        keys[done : done + len(part)] = _hashes(part).cpu().numpy()
        done += len(part)
    return keys if team.alone else np.concatenate(team.gathered(keys))


def distinct_rows(
    keys: np.ndarray, labels: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return every distinct pair of sample and label once, with the sum of its weights.

    So a weight of two is the same as the sample twice, and a weight of zero the same as
    leaving it out. The order depends on the samples alone, not on the order they came in.

    Parameters
    ----------
    keys : int64 ndarray of shape (n_samples, 2)
        From `row_keys`.
    labels : int ndarray of shape (n_samples,)
    weight : ndarray of shape (n_samples,)

    Returns
    -------
    rows : int64 ndarray of shape (n_distinct,)
    weight : ndarray of shape (n_distinct,)
        Of each, positive.
    """
    order = np.lexsort((labels, *keys.T))
    pair = np.column_stack([keys, labels])[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (pair[1:] != pair[:-1]).any(1)
    total = np.bincount(new.cumsum() - 1, weights=weight[order])
    rows = order[new]
    return rows[total > 0], total[total > 0]


def _hashes(values: Tensor) -> Tensor:
    """Return whole numbers, equal for equal samples; shape (n_samples, n_hashes).

    The bits of all entries are multiplied by fixed random numbers and summed, modulo 2^64: whole
    numbers, so the same on every device.
    """
    flat = values.flatten(1) + 0.0  # -0.0 becomes 0.0
    flat = torch.where(flat.isnan(), torch.nan, flat)  # of all ways to write NaN, one
    # In halves of 32 bits: a difference in the upper bits alone would be lost in the product.
    bits = flat.view(torch.int32).long()
    random = np.random.default_rng(math.prod(values.shape[1:]))
    factors = random.integers(-(2**63), 2**63 - 1, (_N_HASHES, bits.shape[1])) | 1
    return torch.stack(
        [(bits * torch.from_numpy(row).to(bits.device)).sum(1) for row in factors], dim=1
    )
