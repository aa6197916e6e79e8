"""Training a network that sees samples and their holes as they are: the rivals' way."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from halfseen.objective import classification_loss
from halfseen.training.plan import Plan, adam
from halfseen.training.samples import Samples
from halfseen.training.trainer import Trainer, multiplying


class HoleNetwork(nn.Module):
    """A network that is called with values and `observed` and returns scores.

    Attributes
    ----------
    network : Module
        What classifies in the end.
    learns_in_half : bool
        Whether that multiplies in bfloat16 while it learns.
    """

    network: nn.Module
    learns_in_half = False

    def classified(self, X: Tensor) -> Tensor:
        """Return the scores of completed samples."""
        with multiplying(X.device, in_half=self.learns_in_half and self.training):
            scores = self.network(X)
        return scores.to(X.dtype)

    def own_rates(self) -> list[tuple[Tensor, float]]:
        """Return parameters with a learning rate of their own, see `adam`."""
        return []

    def hidden(self, X: Tensor, shown: Tensor) -> Tensor:
        """Return values as they look when only some of them are shown; 0 in the others."""
        return torch.where(shown, X, 0)


class Plain(Trainer):
    """One network, one gradient; optimiser, schedule and hiding are those of all other ways.

    Parameters
    ----------
    network : HoleNetwork
    samples : Samples
    plan : Plan
    generator : torch.Generator
    """

    recordable = True

    def __init__(
        self, network: HoleNetwork, samples: Samples, plan: Plan, generator: torch.Generator
    ) -> None:
        self._seeing = network
        super().__init__({"network": network}, samples, plan, generator)

    def make_optimiser(self) -> torch.optim.Optimizer:
        """Return the optimiser of the network."""
        return adam(self._seeing, self.plan, self._seeing.own_rates())

    def step(self, rows: Tensor) -> dict[str, Tensor]:
        """Learn from one batch."""
        batch = self.samples.rows(rows)
        shown = self.kept(batch.observed)
        scores = self._seeing(self._seeing.hidden(batch.X, shown), batch.observed & shown)
        J0 = classification_loss(scores, batch.y)
        self.descend(self.weighted_mean(J0, rows))
        return {"J0": J0, "accuracy": scores.argmax(1) == batch.y}

    def scores(self, X: Tensor, observed: Tensor) -> Tensor:
        """Return the scores of new samples."""
        return self._seeing(X, observed)
