"""How the dictionary of a completion layer starts: learned from samples with holes, no labels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from halfseen.boundary import (
    check_squares,
    learning_dtype,
    require_digits,
    seed_from,
    tensors_with_holes,
)
from halfseen.dictionary import Take, learn_dictionary, shuffled_batches, start_dictionary
from halfseen.objective import alpha_of_counts
from halfseen.training.samples import Samples, StoredSamples

if TYPE_CHECKING:
    from halfseen.nn import SparseCompletion
    from halfseen.team import Team

_TILES = 512  # in a mini-batch


def start_from_array(completion: SparseCompletion, X, n_steps: int, random_state) -> None:
    """Set dictionary and mean from an array, see `SparseCompletion.learn`."""
    values, observed = tensors_with_holes(X, device=completion.atoms.device)
    if observed.shape[1:] != completion.sample_shape:
        raise ValueError(
            f"samples of shape {completion.sample_shape} were expected; got samples of shape "
            f"{tuple(observed.shape[1:])}."
        )
    count = observed.sum(0)
    if not (count > 0).all():
        raise ValueError(
            f"{int((count == 0).sum())} feature(s) of X are never observed; remove them or "
            f"add samples in which they are observed."
        )
    mean = (values.sum(0, dtype=torch.float64) / count).to(values.dtype)
    dtype = learning_dtype(values.dtype, values.device)
    flat = torch.where(observed, values - mean, 0).to(dtype).flatten(1)
    seen = observed.flatten(1)
    if mean.dtype == torch.float64 and completion.mean.dtype == torch.float32:
        rms = (flat.square().sum(dtype=torch.float64) / count.sum()).sqrt().item()
        require_digits(mean.cpu().numpy(), rms, "pass dtype=torch.float64")
    check_squares(flat, "X, centred,")
    alpha = completion.alpha(observed, torch.float64).mean().item()
    seed = seed_from(random_state)

    def take(rows: Tensor) -> tuple[Tensor, Tensor]:
        return flat[rows], seen[rows]

    _start(completion, take, len(flat), flat, alpha, n_steps, seed, record=True)
    with torch.no_grad():
        completion.mean.copy_(mean)


def start_from_samples(
    completion: SparseCompletion,
    samples: Samples | StoredSamples,
    seed: int,
    team: Team,
    *,
    n_steps: int = 600,
) -> None:
    """Set the dictionary from standardised samples; all processes do the same, from the same."""

    def take(rows: Tensor) -> tuple[Tensor, Tensor]:
        batch = samples.rows(rows)
        return batch.X.flatten(1), batch.observed.flatten(1)

    # How many samples show how many features: whole numbers add up alike in any team.
    n_features = math.prod(samples.sample_shape)
    shown = torch.zeros(n_features + 1, dtype=torch.int64, device=samples.y.device)
    for X, observed in samples.part(team.block(len(samples))).parts():
        check_squares(X.flatten(1), "X, standardised,")
        shown += observed.flatten(1).sum(1).bincount(minlength=n_features + 1)
    team.add_up([shown])
    counts = torch.arange(n_features + 1, device="cpu")
    lambdas = completion.lambda_rec, completion.lambda_l1
    alpha = alpha_of_counts(counts, n_features, *lambdas, rec_scaling=completion.rec_scaling)
    mean_alpha = (alpha * shown.cpu()).sum().item() / len(samples)
    like, in_memory = samples.weight, isinstance(samples, Samples)
    _start(completion, take, len(samples), like, mean_alpha, n_steps, seed, record=in_memory)


def _start(
    completion: SparseCompletion,
    take: Take,
    n_samples: int,
    like: Tensor,
    alpha: float,
    n_steps: int,
    seed: int,
    record: bool,
) -> None:
    """Set the dictionary from samples that are taken when they are needed.

    Parameters
    ----------
    completion : SparseCompletion
    take, record
        See `learn_dictionary`.
    n_samples : int
        How many samples there are to take from.
    like : Tensor
        Of the device and dtype to learn in.
    alpha : float
        Weight of the l1 norm.
    n_steps, seed : int
    """
    generator = torch.Generator().manual_seed(seed)
    n_atoms, n_tile_features = completion.atoms.shape
    n_tiles = n_samples * len(completion.layout)
    with torch.autocast(like.device.type, enabled=False):
        state = learn_dictionary(
            start_dictionary(n_atoms, n_tile_features, like, generator),
            take,
            completion.layout,
            shuffled_batches(n_tiles, _TILES, n_steps, generator),
            alpha,
            n_steps,
            completion.positive,
            record=record,
        )
    completion.set_atoms(state.dictionary)
