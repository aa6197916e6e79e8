"""What the ways of training share that learn a dictionary: samples are completed, then seen."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from halfseen.disk import DiskRows, new_rows
from halfseen.nn import SparseCompletion
from halfseen.objective import reconstruction_loss
from halfseen.team import Team
from halfseen.training.plan import Plan, adam
from halfseen.training.samples import Samples, StoredSamples
from halfseen.training.trainer import Trainer

_ATOM_RATE = 0.08  # learning rate of atoms, in units of the size of their entries


@dataclass(frozen=True)
class CodingPlan(Plan):
    """A plan with the weights of the objective; see `SparseCodingClassifier`."""

    lambda_rec: float = 1.0
    lambda_l1: float = 1.0
    label_weight: float = 0.0


class CodingTrainer(Trainer):
    """Trains a completion layer and a network.

    Parameters
    ----------
    completion : SparseCompletion
    network : Module
    samples : Samples or StoredSamples
    plan : CodingPlan
    generator : torch.Generator
    team : Team
    """

    plan: CodingPlan

    def __init__(
        self,
        completion: SparseCompletion,
        network: nn.Module,
        samples: Samples | StoredSamples,
        plan: CodingPlan,
        generator: torch.Generator,
        team: Team = Team(),  # noqa: B008 (it cannot change)
    ) -> None:
        self.completion = completion
        modules = {"completion": completion, "network": network}
        super().__init__(modules, samples, plan, generator, team)

    def new_codes(self) -> Tensor | DiskRows:
        """Return zeros for the codes of all samples that are owned here."""
        shape = (len(self.samples), len(self.completion.layout), len(self.completion.atoms))
        return new_rows(shape, self.samples.weight.dtype, self.device)

    def scores(self, X: Tensor, observed: Tensor) -> Tensor:
        """Return the scores of new samples, coded without labels."""
        completion = self.completion.complete(X, observed)
        return self.network(getattr(completion, self.completion.output))

    def reconstruction_loss(self, batch: Samples, reconstruction: Tensor) -> Tensor:
        """Return J1 of each sample of a batch."""
        scaling = self.completion.rec_scaling
        return reconstruction_loss(batch.X, batch.observed, reconstruction, scaling)

    def network_input(self, batch: Samples, reconstruction: Tensor) -> Tensor:
        """Return what the network sees of a batch: its completion or its reconstruction."""
        if self.completion.output == "completed":
            return torch.where(batch.observed, batch.X, reconstruction)
        return reconstruction


def adam_with_atoms(network: nn.Module, plan: Plan, atoms: Tensor) -> torch.optim.Optimizer:
    """Return one optimiser for network and atoms.

    Entries of an atom are about 1/√n_features large and move in proportion.
    """
    return adam(network, plan, [(atoms, _ATOM_RATE / atoms.shape[1] ** 0.5)])


def outcome(
    J0: Tensor, J1: Tensor, J2: Tensor, codes: Tensor, scores: Tensor, y: Tensor
) -> dict[str, Tensor]:
    """Return what a step reports of each sample."""
    nonzero = share_of_nonzeros(codes, J0.dtype)
    return {"J0": J0, "J1": J1, "J2": J2, "nonzero": nonzero, "accuracy": scores.argmax(1) == y}


def share_of_nonzeros(codes: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the share of non-zero codes of each sample."""
    return (codes != 0).flatten(1).to(dtype).mean(1)
