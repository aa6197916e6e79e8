"""Filling holes from the nearest samples that have the feature, a block of samples at a time."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

_ENTRIES_AT_ONCE = 2**25  # of all matrices of a block together
_NEIGHBOURS_AT_ONCE = 64


@torch.no_grad()
def fill_from_neighbours(
    X: Tensor, observed: Tensor, donors: Tensor, donors_observed: Tensor, n_neighbors: int
) -> Tensor:
    """Return for each hole the mean over the nearest donors in which the feature is observed.

    The distance of two samples is the mean squared difference of the features that both
    have; donors without a common feature are out of reach. As in scikit-learn's KNNImputer
    the neighbours are those of a feature: the nearest donors that have it.

    Parameters
    ----------
    X : Tensor of shape (n_samples, n_features)
        0 in the holes.
    observed : bool Tensor of the same shape
    donors : Tensor of shape (n_donors, n_features)
        0 in the holes.
    donors_observed : bool Tensor of the same shape
    n_neighbors : int

    Returns
    -------
    means : Tensor of shape (n_samples, n_features)
        0 where X is observed or no donor within reach has the feature; centre features
        first, then that is the mean.
    """
    means = torch.zeros_like(X)
    # In float64, as scikit-learn has them: sums of squares cancel.
    seen, wide = donors_observed.double(), donors.double()
    squares = wide.square()
    compiled = X.device.type == "cpu" and importlib.util.find_spec("numba") is not None
    mean_of_first = _mean_of_first_compiled if compiled else _mean_of_first
    n_at_once = max(1, _ENTRIES_AT_ONCE // (4 * len(donors) + _NEIGHBOURS_AT_ONCE * X.shape[1]))
    for start in range(0, len(X), n_at_once):
        some = slice(start, start + n_at_once)
        values, known = X[some].double(), observed[some].double()
        n_common = known @ seen.T
        distance = values.square() @ seen.T + known @ squares.T - 2 * values @ wide.T
        distance = torch.where(n_common > 0, distance.clamp(min=0) / n_common, torch.inf)
        distance, order = distance.sort(dim=1)
        n_reachable = distance.isfinite().sum(1)
        means[some] = mean_of_first(
            ~observed[some], donors, donors_observed, order, n_reachable, n_neighbors
        )
    return means


def _mean_of_first(
    holes: Tensor,
    donors: Tensor,
    donors_observed: Tensor,
    order: Tensor,
    n_reachable: Tensor,
    n_neighbors: int,
) -> Tensor:
    """Return means over the first donors, in the order of each row, that have a feature.

    Parameters
    ----------
    holes : bool Tensor of shape (n_rows, n_features)
        What is wanted.
    donors, donors_observed : Tensor of shape (n_donors, n_features)
    order : int64 Tensor of shape (n_rows, n_donors)
    n_reachable : Tensor of shape (n_rows,)
        How many of the order may be taken.
    n_neighbors : int

    Returns
    -------
    means : Tensor of shape (n_rows, n_features)
        0 where there is none.
    """
    count = torch.zeros(holes.shape, dtype=torch.int32, device=donors.device)
    total = donors.new_zeros(holes.shape)
    for start in range(0, order.shape[1], _NEIGHBOURS_AT_ONCE):
        neighbours = order[:, start : start + _NEIGHBOURS_AT_ONCE]
        place = torch.arange(start, start + neighbours.shape[1], device=donors.device)
        reachable = place < n_reachable[:, None]
        has = donors_observed[neighbours] & reachable[:, :, None]
        has &= count[:, None] + has.cumsum(1, dtype=torch.int32) <= n_neighbors
        total += (donors[neighbours] * has).sum(1)
        count += has.sum(1, dtype=torch.int32)
        if (count[holes] == n_neighbors).all() or not reachable.any():
            break
    return torch.where(holes, total / count.clamp(min=1), 0)


def _mean_of_first_compiled(
    holes: Tensor,
    donors: Tensor,
    donors_observed: Tensor,
    order: Tensor,
    n_reachable: Tensor,
    n_neighbors: int,
) -> Tensor:
    """Do the same with compiled loops on the threads that torch may use."""
    from halfseen.rivals import nearest_compiled

    write_means: Callable[..., None] = nearest_compiled.mean_of_first
    means = donors.new_zeros(holes.shape)
    arrays = [
        tensor.contiguous().numpy()
        for tensor in (holes, donors, donors_observed, order, n_reachable)
    ]

    def task(rows: Tensor) -> None:
        write_means(*arrays, n_neighbors, means.numpy(), int(rows[0]), int(rows[-1]) + 1)

    n_threads = torch.get_num_threads()
    rows = torch.arange(len(order), device="cpu")
    parts = [part for part in rows.tensor_split(4 * n_threads) if len(part)]
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(task, parts))
    return means
