"""How far a dictionary is from keeping the norms of sparse codes: the constant δ_K.

δ_K is the smallest number with (1 − δ_K)·‖s‖² ≤ ‖s·D‖² ≤ (1 + δ_K)·‖s‖² for all codes s with K
non-zeros. To find it exactly is a search over all supports.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from halfseen.boundary import finite_floats, is_whole, seed_from

_MOST_SUPPORTS = 2_000_000
_AT_ONCE = 20_000


def isometry_by_coherence(dictionary: Tensor, sparsity: int) -> float:
    """Return an upper bound of δ_K, from norms and inner products of atoms (Gershgorin).

    Parameters
    ----------
    dictionary : Tensor of shape (n_atoms, n_features)
        Atoms need not have norm 1: those that are cut to the missing features do not.
    sparsity : int
        K.
    """
    dictionary = _checked(dictionary, sparsity)
    gram = dictionary @ dictionary.T
    norms = gram.diagonal()
    between = (gram - norms.diag()).abs()
    closest = between.topk(sparsity - 1, dim=1).values.sum(1)
    return ((norms - 1).abs() + closest).max().item()


def isometry_exactly(dictionary: Tensor, sparsity: int) -> float:
    """Return δ_K by a search over all supports, of which there may be two million."""
    dictionary = _checked(dictionary, sparsity)
    n_supports = math.comb(len(dictionary), sparsity)
    if n_supports > _MOST_SUPPORTS:
        raise ValueError(
            f"there are {n_supports:,} supports of {sparsity} of {len(dictionary)} atoms; up to "
            f"{_MOST_SUPPORTS:,} are searched. Take isometry_by_coherence for an upper bound."
        )
    supports = itertools.combinations(range(len(dictionary)), sparsity)
    worst = 0.0
    while some := list(itertools.islice(supports, _AT_ONCE)):
        worst = max(worst, _of_supports(dictionary, torch.tensor(some, device="cpu")))
    return worst


def isometry_by_sampling(
    dictionary: Tensor, sparsity: int, *, n_supports: int = 10_000, random_state: int = 0
) -> float:
    """Return a lower bound of δ_K, from random supports: never use it to certify."""
    dictionary = _checked(dictionary, sparsity)
    if not is_whole(n_supports):
        raise ValueError(f"n_supports must be a whole number ≥ 1; got {n_supports!r}.")
    generator = torch.Generator().manual_seed(seed_from(random_state))
    worst = 0.0
    for start in range(0, n_supports, _AT_ONCE):
        n_drawn = min(_AT_ONCE, n_supports - start)
        draws = torch.rand(n_drawn, len(dictionary), generator=generator, device="cpu")
        worst = max(worst, _of_supports(dictionary, draws.topk(sparsity, dim=1).indices))
    return worst


def _of_supports(dictionary: Tensor, supports: Tensor) -> float:
    atoms = dictionary[supports]
    values = torch.linalg.eigvalsh(atoms @ atoms.mT)
    return max(1 - values[:, 0].min().item(), values[:, -1].max().item() - 1, 0.0)


def _checked(dictionary: Tensor, sparsity: int) -> Tensor:
    dictionary = finite_floats(dictionary, "dictionary")
    if dictionary.ndim != 2:
        raise ValueError(
            f"dictionary must have the shape (n_atoms, n_features); got {tuple(dictionary.shape)}."
        )
    if not is_whole(sparsity) or sparsity > len(dictionary):
        raise ValueError(
            f"sparsity must be from 1 to the number of atoms, {len(dictionary)}; got {sparsity!r}."
        )
    if not dictionary.square().sum().isfinite():
        raise ValueError("dictionary has values whose squares are out of range; rescale it.")
    return dictionary
