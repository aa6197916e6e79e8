"""How fast weights move: the settings of training, the optimiser and its schedule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

WARM_UP = 0.1  # share of the steps in which the learning rate rises
_BETAS = (0.9, 0.99)


@dataclass(frozen=True)
class Plan:
    """Settings that all ways of training understand; see `SparseCodingClassifier`."""

    n_epochs: int
    batch_size: int
    learning_rate: float
    hide: float = 0.0
    weight_decay: float = 1e-3
    half: bool = False  # whether the network multiplies in bfloat16 while it learns


def adam(
    network: nn.Module, plan: Plan, others: Sequence[tuple[Tensor, float]] = ()
) -> torch.optim.Optimizer:
    """Return AdamW for a network.

    Parameters
    ----------
    network : Module
    plan : Plan
        Learning rate and decay of its weights.
    others : pairs of Tensor and float
        Parameters, in the network or beside it, that are no weights of a common layer, and
        their learning rates. They do not decay.
    """
    apart = {id(parameter) for parameter, _ in others}
    weights = [weight for weight in network.parameters() if id(weight) not in apart]
    if not others and not any(weight.requires_grad for weight in weights):
        raise ValueError(
            "the network has no parameters to train, and nothing else is trained here; unfreeze "
            "it, or take SparseCodingClassifier(training='task'), which learns a dictionary."
        )
    groups: list[dict] = [
        {"params": weights, "lr": plan.learning_rate, "weight_decay": plan.weight_decay}
    ]
    groups += [{"params": [other], "lr": own, "weight_decay": 0.0} for other, own in others]
    # On a GPU rate and clock are tensors there, so that a step can be recorded.
    on_gpu = [weight for group in groups for weight in group["params"] if weight.is_cuda]
    for group in groups if on_gpu else ():
        group["lr"] = torch.tensor(group["lr"], device=on_gpu[0].device)
    return torch.optim.AdamW(groups, betas=_BETAS, capturable=bool(on_gpu))


def one_cycle(done: float) -> float:
    """Return the share of the learning rate after a share `done` of all steps."""
    if done < WARM_UP:
        return 0.05 + 0.95 * done / WARM_UP
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (done - WARM_UP) / (1 - WARM_UP))))
