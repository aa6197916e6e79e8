"""Equal samples count as one: which rows of an array are distinct, and in which order."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from halfseen.moments import parts_of

_N_HASHES = 2  # of 64 bits each


def distinct_rows(
    values: np.ndarray,
    labels: np.ndarray,
    weight: np.ndarray,
    device: torch.device | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return every distinct pair of sample and label once, with the sum of its weights.

    So a weight of two is the same as the sample twice, and a weight of zero the same as
    leaving it out. The order depends on the samples alone, not on the order they came in.

    Parameters
    ----------
    values : ndarray of shape (n_samples, ...)
        NaN in the holes.
    labels : int ndarray of shape (n_samples,)
    weight : ndarray of shape (n_samples,)
    device : torch.device, optional
        Where to compute.

    Returns
    -------
    rows : int64 ndarray of shape (n_distinct,)
    weight : ndarray of shape (n_distinct,)
        Of each, positive.
    """
    keys = torch.cat([_hashes(part) for part in parts_of(values, device)]).cpu().numpy()
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
