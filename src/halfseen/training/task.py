"""The task-driven way, and its cut-down form that codes first and trains afterwards.

Codes never see labels: they are made as for a new sample. The classification loss reaches
the dictionary through them instead. In every step some of the observed entries are hidden
from the code as well, of each sample another share, and the reconstruction is held against
all that is known: so the dictionary learns to fill holes, and the network sees each sample
with ever other holes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from halfseen.nn import Completion
from halfseen.objective import classification_loss, reconstruction_loss, sparsity_loss
from halfseen.training.completing import CodingTrainer, adam_with_atoms, outcome
from halfseen.training.trainer import adam

_CODING_TOL = 1e-3
_SAMPLES_AT_ONCE = 512


class TaskDriven(CodingTrainer):
    """Dictionary and network by one gradient, through codes that see no labels."""

    def make_optimiser(self) -> torch.optim.Optimizer:
        """Return one optimiser for network and atoms."""
        return adam_with_atoms(self.network, self.plan.learning_rate, self.completion.atoms)

    def step(self, rows: Tensor) -> dict[str, Tensor]:
        """Hide some more entries, code what is left, learn from the result."""
        batch = self.samples.rows(rows)
        shown = batch.observed & self.kept(batch.observed)
        completion = self.completion.complete(batch.X, shown, _CODING_TOL)
        scores = self.network(getattr(completion, self.completion.output))
        J0 = classification_loss(scores, batch.y)
        J1 = reconstruction_loss(batch.X, batch.observed, completion.reconstruction)
        self.descend(self.weighted_mean(J0 + self.plan.lambda_rec * J1, rows))
        self.completion.normalise_atoms()
        return _outcome(J0, J1, completion, scores, batch.y)


class Sequential(CodingTrainer):
    """Codes first, then the network on what they give: Algorithm 3 with modern parts."""

    _inputs: Completion

    def make_optimiser(self) -> torch.optim.Optimizer:
        """Return the optimiser of the network alone."""
        return adam(self.network, self.plan.learning_rate)

    @torch.no_grad()
    def start(self) -> None:
        """Code all samples, once."""
        parts = [
            self.completion.complete(self.samples.X[some], self.samples.observed[some])
            for some in torch.arange(len(self.samples)).split(_SAMPLES_AT_ONCE)
        ]
        self._inputs = Completion(*(torch.cat(part) for part in zip(*parts, strict=True)))

    def step(self, rows: Tensor) -> dict[str, Tensor]:
        """Learn the network from one batch of completed samples."""
        batch = self.samples.rows(rows)
        completion = Completion(*(part[rows] for part in self._inputs))
        scores = self.network(getattr(completion, self.completion.output))
        J0 = classification_loss(scores, batch.y)
        self.descend(self.weighted_mean(J0, rows))
        J1 = reconstruction_loss(batch.X, batch.observed, completion.reconstruction)
        return _outcome(J0, J1, completion, scores, batch.y)


def _outcome(
    J0: Tensor, J1: Tensor, completion: Completion, scores: Tensor, y: Tensor
) -> dict[str, Tensor]:
    J2 = sparsity_loss(completion.codes, completion.completed[0].numel())
    return outcome(J0, J1, J2, completion.codes, scores, y)
