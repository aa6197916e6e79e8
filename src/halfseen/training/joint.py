"""The paper's objective by faster means: proximal code steps, Adam, annealing.

Every sample keeps its code from visit to visit. A visit takes a few proximal steps of the
right size from there, then moves dictionary and network with the codes held. λ2 starts
several times larger and falls to its value over the first part of training, which finds
better dictionaries.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from halfseen.coding import MaskedLasso
from halfseen.disk import DiskRows
from halfseen.objective import classification_loss, share_weight, sparsity_loss
from halfseen.solvers.fista import State, fastest_advance, soft_threshold
from halfseen.storage import require_like
from halfseen.training.codes import packed, unpack
from halfseen.training.completing import CodingTrainer, adam_with_atoms, outcome
from halfseen.training.samples import Samples
from halfseen.training.trainer import evaluating

_CODE_STEPS = 8
_FIRST_L1 = 6.0  # in units of lambda_l1
_ANNEALED_SHARE = 0.6
_POWER_STEPS, _FIRST_POWER_STEPS = 4, 40  # the vector is kept, so they add up
_MARGIN = 1.05


class Standing(NamedTuple):
    """Where labelled codes stand between two steps.

    Attributes
    ----------
    codes : Tensor of shape (n_samples, n_tiles, n_atoms)
    shrink : Tensor of shape (n_samples,)
        What the next step is shortened by.
    value : Tensor of shape (n_samples,)
        The objective of the codes.
    gradient : Tensor of the shape of `codes`
        Of all but the l1 term.
    """

    codes: Tensor
    shrink: Tensor
    value: Tensor
    gradient: Tensor


class Joint(CodingTrainer):
    """Codes, dictionary and network in turns; `label_weight` is the share of J0 in the codes."""

    recordable = True

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.codes = self.new_codes()
        weight = self.samples.weight
        self.shrink = torch.ones_like(weight)  # of the code steps, per sample
        places = torch.arange(len(self.completion.atoms), device=self.device)
        self._vector = torch.cos(places).to(weight.dtype)
        self._improve_vector(self.completion.dictionary, _FIRST_POWER_STEPS)
        self._annealing = torch.ones((), dtype=weight.dtype, device=self.device)

    def make_optimiser(self) -> torch.optim.Optimizer:
        """Return one optimiser for network and atoms."""
        return adam_with_atoms(self.network, self.plan, self.completion.atoms)

    def step(self, rows: Tensor) -> dict[str, Tensor]:
        """Move the codes of a batch, then dictionary and network."""
        batch = self.samples.rows(rows)
        codes, shrink = self._code_steps(rows, batch)
        if self.counts:
            self.codes[rows], self.shrink[rows] = codes, shrink
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
        shrink = self.team.gathered_by_first(self.shrink.cpu())
        own = {"codes": codes, "vector": self._vector}
        if shrink is not None:
            own["shrink"] = torch.cat(shrink)
        return {**super().state(), **own}

    def load_state(self, state: dict) -> None:
        """Go back to a state that `state` returned."""
        super().load_state(state)
        unpack(state["codes"], self.codes, self.first_row)
        shrink = state["shrink"][self.first_row :][: len(self.samples)]
        given = {"shrink": shrink, "vector": state["vector"]}
        require_like(given, {"shrink": self.shrink, "vector": self._vector})
        self.shrink.copy_(shrink)
        self._vector.copy_(state["vector"])

    @torch.no_grad()
    def _code_steps(self, rows: Tensor, batch: Samples) -> tuple[Tensor, Tensor]:
        dictionary = self.completion.dictionary
        problem = self.completion.problem(batch.X, batch.observed, dictionary)
        problem = replace(problem, alpha=self._annealing * problem.alpha)
        self._improve_vector(dictionary, _POWER_STEPS)
        lipschitz = _MARGIN * (self._vector @ dictionary).square().sum()
        codes, shrink = self.codes[rows], self.shrink[rows]
        if self.plan.label_weight == 0:
            start = State.start(codes.flatten(0, 1))
            each = lipschitz.expand(len(problem.X), 1)
            state, gap = fastest_advance(dictionary)(problem, start, each, _CODE_STEPS)
            moved = torch.where(gap.isnan()[:, None], start.codes, state.codes)
            return moved.reshape(codes.shape), shrink
        at = Standing(codes, shrink, *self.value_and_gradient(problem, codes, batch))
        for _ in range(_CODE_STEPS):
            at = self.labelled_code_step(problem, at, batch, lipschitz)
        return at.codes, at.shrink

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
        self._annealing.fill_(max(1.0, _FIRST_L1 ** (1 - done / _ANNEALED_SHARE)))

    def labelled_code_step(
        self, problem: MaskedLasso, at: Standing, batch: Samples, lipschitz: Tensor
    ) -> Standing:
        """Take one proximal step on λ1·J1 + λ2·J2 + label_weight·J0, per sample.

        The curvature of J0 is not known, so a sample whose objective would rise stays where
        it is and halves its steps; others lengthen theirs again, up to 1/`lipschitz`.
        """
        codes, shrink = at.codes, at.shrink
        step = (shrink / lipschitz).repeat_interleave(codes.shape[1])[:, None]
        moved = soft_threshold(
            codes.flatten(0, 1) - step * at.gradient.flatten(0, 1),
            step * problem.alpha[:, None],
            problem.positive,
        ).reshape(codes.shape)
        value, gradient = self.value_and_gradient(problem, moved, batch)
        better = value <= at.value
        each = better[:, None, None]
        return Standing(
            torch.where(each, moved, codes),
            torch.where(better, (1.2 * shrink).clamp(max=1), shrink / 2),
            torch.where(better, value, at.value),
            torch.where(each, gradient, at.gradient),
        )

    def value_and_gradient(
        self, problem: MaskedLasso, codes: Tensor, batch: Samples
    ) -> tuple[Tensor, Tensor]:
        """Return the objective of each sample, and the gradient of all but its l1 term.

        Both are divided by 2·λ1 and the share's weight in J1, so that without labels they are
        those of the lasso.
        """
        n_observed, n_features = batch.observed.flatten(1).sum(1), batch.X[0].numel()
        scale = share_weight(n_observed, n_features, self.completion.rec_scaling, codes.dtype)
        weight = self.plan.label_weight / (2 * self.plan.lambda_rec * scale)

        def per_sample(values: Tensor) -> Tensor:
            return values.reshape(len(codes), -1).sum(1)

        with torch.enable_grad(), evaluating(self.network):
            leaf = codes.detach().requires_grad_()
            tiles = leaf @ problem.dictionary
            residual = (problem.X - tiles.flatten(0, 1)) * problem.observed
            seen = self.network_input(batch, self.completion.put_together(tiles))
            labelled = weight * classification_loss(self.scores_from(seen), batch.y)
            smooth = per_sample(residual.square()) / 2 + labelled
            (gradient,) = torch.autograd.grad(smooth.sum(), leaf)
        price = per_sample(problem.alpha[:, None] * codes.abs().flatten(0, 1))
        return smooth.detach() + price, gradient
