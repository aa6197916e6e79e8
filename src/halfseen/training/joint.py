"""The paper's objective by faster means: proximal code steps, Adam, annealing.

Every sample keeps its code from visit to visit. A visit takes a few proximal steps of the
right size from there, then moves dictionary and network with the codes held. λ2 starts
several times larger and falls to its value over the first part of training, which finds
better dictionaries.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from halfseen.coding import MaskedLasso
from halfseen.dictionary import annealing
from halfseen.disk import DiskRows
from halfseen.objective import classification_loss, share_weight, sparsity_loss
from halfseen.solvers.fista import State, fastest_advance, soft_threshold
from halfseen.storage import require_like
from halfseen.training.codes import packed, unpack
from halfseen.training.completing import CodingTrainer, adam_with_atoms, outcome
from halfseen.training.samples import Samples
from halfseen.training.trainer import evaluating

_CODE_STEPS = 8
_POWER_STEPS, _FIRST_POWER_STEPS = 4, 40  # the vector is kept, so they add up
_MARGIN = 1.05
_SHARES = (1.0, 1 / 8, 1 / 64)  # of a way, with labels in the codes


class Joint(CodingTrainer):
    """Codes, dictionary and network in turns; `label_weight` is the share of J0 in the codes."""

    recordable = True

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.codes = self.new_codes()
        dtype = self.samples.weight.dtype
        places = torch.arange(len(self.completion.atoms), device=self.device)
        self._vector = torch.cos(places).to(dtype)
        self._improve_vector(self.completion.dictionary, _FIRST_POWER_STEPS)
        self._annealing = torch.ones((), dtype=dtype, device=self.device)

    def make_optimiser(self) -> torch.optim.Optimizer:
        """Return one optimiser for network and atoms."""
        return adam_with_atoms(self.network, self.plan, self.completion.atoms)

    def step(self, rows: Tensor) -> dict[str, Tensor]:
        """Move the codes of a batch, then dictionary and network."""
        batch = self.samples.rows(rows)
        codes = self._code_steps(rows, batch)
        if self.counts:
            self.codes[rows] = codes
        reconstruction = self.completion.reconstruct(codes)
        scores = self.scores_from(self.network_input(batch, reconstruction))
        J0 = classification_loss(scores, batch.y)
        J1 = self.reconstruction_loss(batch, reconstruction)
        self.descend(self.weighted_mean(J0 + self.plan.lambda_rec * J1, rows))
        self.completion.normalise_atoms()
        J2 = sparsity_loss(codes, batch.X[0].numel())
        return outcome(J0, J1, J2, codes, scores, batch.y)

    def stored(self) -> list[Tensor | DiskRows]:
        """Return the codes."""
        return [self.codes]

    def state(self) -> dict:
        """Return what must be kept, the codes among it."""
        codes = packed(self.codes, self.team)
        return {**super().state(), "codes": codes, "vector": self._vector}

    def load_state(self, state: dict) -> None:
        """Go back to a state that `state` returned."""
        super().load_state(state)
        unpack(state["codes"], self.codes, self.first_row)
        require_like({"vector": state["vector"]}, {"vector": self._vector})
        self._vector.copy_(state["vector"])

    @torch.no_grad()
    def _code_steps(self, rows: Tensor, batch: Samples) -> Tensor:
        dictionary = self.completion.dictionary
        problem = self.completion.problem(batch.X, batch.observed, dictionary)
        problem = replace(problem, alpha=self._annealing * problem.alpha)
        self._improve_vector(dictionary, _POWER_STEPS)
        lipschitz = _MARGIN * (self._vector @ dictionary).square().sum()
        codes = self.codes[rows]
        if self.plan.label_weight:
            return self.labelled_code_steps(problem, codes, batch, lipschitz)
        start = State.start(codes.flatten(0, 1))
        each = lipschitz.expand(len(problem.X), 1)
        state, gap = fastest_advance(dictionary)(problem, start, each, _CODE_STEPS)
        moved = torch.where(gap.isnan()[:, None], start.codes, state.codes)
        return moved.reshape(codes.shape)

    @torch.no_grad()
    def _improve_vector(self, dictionary: Tensor, n_steps: int) -> None:
        """Turn the vector towards the one that the dictionary makes longest; it is kept."""
        vector = self._vector
        for _ in range(n_steps):
            vector = F.normalize(dictionary @ (vector @ dictionary), dim=0)
        self._vector.copy_(vector)

    def set_rates(self) -> None:
        """Set the learning rates, and the price of a code, which falls at first."""
        super().set_rates()
        done = self.n_steps / (self.n_epochs * self.n_batches)
        self._annealing.fill_(annealing(done))

    @torch.no_grad()
    def labelled_code_steps(
        self, problem: MaskedLasso, codes: Tensor, batch: Samples, lipschitz: Tensor
    ) -> Tensor:
        """Take accelerated proximal steps on λ1·J1 + λ2·J2 + label_weight·J0, J0 by its tangent.

        Looking through the network is what costs, so its slope is taken once. As a tangent
        misleads far away, of every sample's way so much is gone as lowers its objective most:
        all of it, an eighth, a sixty-fourth, or nothing.
        """
        value, slope = self.value_and_slope(problem, codes, batch)
        start, slope = codes.flatten(0, 1), slope.flatten(0, 1)
        threshold = problem.alpha[:, None] / lipschitz
        moved = ahead = start
        for step in range(_CODE_STEPS):
            descent = problem.residual(ahead) @ problem.dictionary.T - slope
            last = moved
            moved = soft_threshold(ahead + descent / lipschitz, threshold, problem.positive)
            ahead = moved + step / (step + 3) * (moved - last)
        end = moved.reshape(codes.shape)
        there = torch.cat([torch.lerp(codes, end, share) for share in _SHARES])
        # All shares in one look: the network is quicker with many samples at once.
        tiles, samples = (_repeated(len(_SHARES), some) for some in (problem.X, codes))
        reached = self.value(problem.rows(tiles), there, batch.rows(samples))
        values = torch.cat([value, reached]).reshape(-1, len(codes))
        best = values.nan_to_num(nan=torch.inf).argmin(0)
        places = torch.cat([codes, there]).reshape(-1, *codes.shape)
        return places[best, torch.arange(len(codes), device=best.device)]

    def value(self, problem: MaskedLasso, codes: Tensor, batch: Samples) -> Tensor:
        """Return the objective of each sample.

        It is divided by 2·λ1 and the share's weight in J1, so that without labels it is that of
        the lasso, summed over the tiles also where they overlap.
        """
        with evaluating(self.network):
            return self._lasso(problem, codes) + self._labelled(problem, codes, batch)

    def value_and_slope(
        self, problem: MaskedLasso, codes: Tensor, batch: Samples
    ) -> tuple[Tensor, Tensor]:
        """Return the objective of each sample as `value` does, and the gradient of its J0 alone."""
        with torch.enable_grad(), evaluating(self.network):
            leaf = codes.detach().requires_grad_()
            labelled = self._labelled(problem, leaf, batch)
            (slope,) = torch.autograd.grad(labelled.sum(), leaf)
        return self._lasso(problem, codes) + labelled.detach(), slope

    def _lasso(self, problem: MaskedLasso, codes: Tensor) -> Tensor:
        return problem.objective(codes.flatten(0, 1)).reshape(len(codes), -1).sum(1)

    def _labelled(self, problem: MaskedLasso, codes: Tensor, batch: Samples) -> Tensor:
        n_observed, n_features = batch.observed.flatten(1).sum(1), batch.X[0].numel()
        scale = share_weight(n_observed, n_features, self.completion.rec_scaling, codes.dtype)
        weight = self.plan.label_weight / (2 * self.plan.lambda_rec * scale)
        reconstruction = self.completion.put_together(codes @ problem.dictionary)
        scores = self.scores_from(self.network_input(batch, reconstruction))
        return weight * classification_loss(scores, batch.y)


def _repeated(n_times: int, rows: Tensor) -> Tensor:
    """Return the numbers of all rows, several times over."""
    return torch.arange(len(rows), device=rows.device).repeat(n_times)
