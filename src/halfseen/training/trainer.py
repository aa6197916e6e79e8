"""What all ways of training share: samples, mini-batches, optimisers, records of an epoch."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from halfseen.nn import SparseCompletion

_WARM_UP = 0.1  # share of the steps in which the learning rate rises
_BETAS = (0.9, 0.99)
_WEIGHT_DECAY = 1e-3  # of the network
_ATOM_RATE = 0.08  # learning rate of atoms, in units of the size of their entries


@dataclass(frozen=True)
class Samples:
    """Labelled samples with holes.

    Attributes
    ----------
    X : Tensor of shape (n_samples, *sample_shape)
        0 in the holes.
    observed : bool Tensor of the same shape
    y : int64 Tensor of shape (n_samples,)
    weight : Tensor of shape (n_samples,)
    """

    X: Tensor
    observed: Tensor
    y: Tensor
    weight: Tensor

    def __len__(self) -> int:
        return len(self.X)

    def rows(self, index: Tensor | slice) -> Samples:
        """Return some of the samples."""
        return Samples(self.X[index], self.observed[index], self.y[index], self.weight[index])


@dataclass(frozen=True)
class Plan:
    """Settings that all ways of training understand; see `SparseCodingClassifier`."""

    n_epochs: int
    batch_size: int
    learning_rate: float
    lambda_rec: float
    lambda_l1: float
    label_weight: float = 0.0
    hide: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """One batch as it stood before the step: a value per sample, and its codes."""

    J0: Tensor
    J1: Tensor
    J2: Tensor
    correct: Tensor
    codes: Tensor


class Trainer(ABC):
    """Trains a completion layer and a network, epoch by epoch, batch by batch.

    Parameters
    ----------
    completion : SparseCompletion
    network : Module
    samples : Samples
    plan : Plan
    generator : torch.Generator
        On the device of the samples; for the order of the batches and whatever else is drawn.
    """

    def __init__(
        self,
        completion: SparseCompletion,
        network: nn.Module,
        samples: Samples,
        plan: Plan,
        generator: torch.Generator,
    ) -> None:
        self.completion = completion
        self.network = network
        self.samples = samples
        self.plan = plan
        self.generator = generator
        self.optimiser = self.make_optimiser()
        self._rates = [group["lr"] for group in self.optimiser.param_groups]
        self.n_steps = 0

    @property
    def n_epochs(self) -> int:
        """Epochs until the end of training."""
        return self.plan.n_epochs

    @property
    def judged_from(self) -> int:
        """Epochs after which a validation accuracy counts: the warm-up is over."""
        return math.ceil(_WARM_UP * self.n_epochs)

    @property
    def n_batches(self) -> int:
        """Batches of an epoch."""
        return math.ceil(len(self.samples) / self.plan.batch_size)

    @abstractmethod
    def make_optimiser(self) -> torch.optim.Optimizer:
        """Return the optimiser of whatever is trained by gradients."""

    @abstractmethod
    def step(self, rows: Tensor) -> Outcome:
        """Learn from one batch of rows."""

    def start(self) -> None:  # noqa: B027
        """Do what comes before the first epoch, and again before going on; nothing by default."""

    def epoch(self) -> dict[str, float]:
        """Pass once over all samples, in a new order; return means over the samples."""
        self.network.train()
        order = torch.randperm(
            len(self.samples), generator=self.generator, device=self.generator.device
        )
        total = self.samples.weight.new_zeros(5)
        for rows in order.tensor_split(self.n_batches):
            outcome = self.step(rows)
            self.n_steps += 1
            total += _sums(outcome, self.samples.weight[rows])
        mean = (total / len(self.samples)).tolist()
        return dict(zip(("J0", "J1", "J2", "nonzero", "accuracy"), mean, strict=True))

    def descend(self, loss: Tensor) -> None:
        """Take one step of the optimiser, at the learning rate that the schedule says."""
        done = self.n_steps / (self.n_epochs * self.n_batches)
        for group, rate in zip(self.optimiser.param_groups, self._rates, strict=True):
            group["lr"] = rate * one_cycle(done)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()

    def network_input(self, batch: Samples, reconstruction: Tensor) -> Tensor:
        """Return what the network sees of a batch: its completion or its reconstruction."""
        if self.completion.output == "completed":
            return torch.where(batch.observed, batch.X, reconstruction)
        return reconstruction

    def weighted_mean(self, loss: Tensor, rows: Tensor) -> Tensor:
        """Return the mean over a batch, each sample by its weight."""
        return (loss * self.samples.weight[rows]).mean()

    def state(self) -> dict:
        """Return all that must be kept to go on later, as a tree of tensors and numbers."""
        optimiser = self.optimiser.state_dict()["state"]
        return {
            "completion": self.completion.state_dict(),
            "network": self.network.state_dict(),
            "optimiser": {str(key): value for key, value in optimiser.items()},
            "generator": self.generator.get_state(),
            "n_steps": self.n_steps,
        }

    def load_state(self, state: dict) -> None:
        """Go back to a state that `state` returned."""
        self.completion.load_state_dict(state["completion"])
        self.network.load_state_dict(state["network"])
        optimiser = self.optimiser.state_dict()
        optimiser["state"] = {int(key): value for key, value in state["optimiser"].items()}
        self.optimiser.load_state_dict(optimiser)
        self.generator.set_state(state["generator"])
        self.n_steps = state["n_steps"]


def adam(network: nn.Module, rate: float, atoms: Tensor | None = None) -> torch.optim.Optimizer:
    """Return AdamW for a network and, with a rate that fits their size, for atoms.

    Entries of an atom are about 1/√n_features large and move in proportion.
    """
    groups: list[dict] = [
        {"params": list(network.parameters()), "lr": rate, "weight_decay": _WEIGHT_DECAY}
    ]
    if atoms is not None:
        groups.append(
            {"params": [atoms], "lr": _ATOM_RATE / atoms.shape[1] ** 0.5, "weight_decay": 0.0}
        )
    return torch.optim.AdamW(groups, betas=_BETAS)


def one_cycle(done: float) -> float:
    """Return the share of the learning rate after a share `done` of all steps."""
    if done < _WARM_UP:
        return 0.05 + 0.95 * done / _WARM_UP
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (done - _WARM_UP) / (1 - _WARM_UP))))


@contextlib.contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Put a network into evaluation mode for a while.

    In code steps batch normalisation must neither mix the samples of a batch nor learn.
    """
    was_training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(was_training)


def _sums(outcome: Outcome, weight: Tensor) -> Tensor:
    nonzero = (outcome.codes != 0).flatten(1).to(weight.dtype).mean(1)
    parts = (outcome.J0, outcome.J1, outcome.J2, nonzero, outcome.correct.to(weight.dtype))
    return torch.stack([(part.detach() * weight).sum() for part in parts])
