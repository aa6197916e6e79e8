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

from halfseen.disk import DiskRows, entries_at_once, new_rows, slices
from halfseen.nn import Completion
from halfseen.objective import classification_loss, sparsity_loss
from halfseen.training.completing import (
    CodingTrainer,
    adam_with_atoms,
    outcome,
    share_of_nonzeros,
)
from halfseen.training.plan import adam
from halfseen.training.samples import Samples

_CODING_TOL = 1e-3


class TaskDriven(CodingTrainer):
    """Dictionary and network by one gradient, through codes that see no labels."""

    recordable = True

    def make_optimiser(self) -> torch.optim.Optimizer:
        """Return one optimiser for network and atoms."""
        return adam_with_atoms(self.network, self.plan, self.completion.atoms)

    def step(self, rows: Tensor) -> dict[str, Tensor]:
        """Hide some more entries, code what is left, learn from the result."""
        batch = self.samples.rows(rows)
        shown = batch.observed & self.kept(batch.observed)
        # On a GPU a fixed number of code steps, so that nothing waits for it.
        solver = "fixed" if self.device.type == "cuda" else None
        completion = self.completion.complete(batch.X, shown, _CODING_TOL, solver)
        scores = self.scores_from(getattr(completion, self.completion.output))
        J0 = classification_loss(scores, batch.y)
        J1 = self.reconstruction_loss(batch, completion.reconstruction)
        self.descend(self.weighted_mean(J0 + self.plan.lambda_rec * J1, rows))
        self.completion.normalise_atoms()
        J2 = sparsity_loss(completion.codes, batch.X[0].numel())
        return outcome(J0, J1, J2, completion.codes, scores, batch.y)


class Sequential(CodingTrainer):
    """Codes first, then the network on what they give: Algorithm 3 with modern parts."""

    recordable = True

    def make_optimiser(self) -> torch.optim.Optimizer:
        """Return the optimiser of the network alone."""
        return adam(self.network, self.plan)

    def stored(self) -> list[Tensor | DiskRows]:
        """Return what the network sees."""
        return [self._inputs]

    @torch.no_grad()
    def start(self) -> None:
        """Code all samples, once; only what the network sees is kept."""
        shape = (len(self.samples), *self.samples.sample_shape)
        self._inputs = new_rows(shape, self.samples.weight.dtype, self.device)
        self._fixed: dict[str, Tensor] = {}
        for some in slices(
            len(self.samples), entries_at_once(self.device) // self.completion.entries_per_sample
        ):
            batch = self.samples.rows(some)
            completion = self.completion.complete(batch.X, batch.observed)
            self._inputs[some] = getattr(completion, self.completion.output)
            for name, values in self._fixed_terms(batch, completion).items():
                self._fixed.setdefault(name, values.new_empty(len(self.samples)))[some] = values

    def step(self, rows: Tensor) -> dict[str, Tensor]:
        """Learn the network from one batch of completed samples."""
        scores, y = self.scores_from(self._inputs[rows]), self.samples.y[rows]
        J0 = classification_loss(scores, y)
        self.descend(self.weighted_mean(J0, rows))
        fixed = {name: values[rows] for name, values in self._fixed.items()}
        return {"J0": J0, **fixed, "accuracy": scores.argmax(1) == y}

    def _fixed_terms(self, batch: Samples, completion: Completion) -> dict[str, Tensor]:
        J1 = self.reconstruction_loss(batch, completion.reconstruction)
        J2 = sparsity_loss(completion.codes, batch.X[0].numel())
        return {"J1": J1, "J2": J2, "nonzero": share_of_nonzeros(completion.codes, J1.dtype)}
