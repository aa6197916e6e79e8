"""What all ways of training share: samples, mini-batches, records of an epoch."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from halfseen.disk import DiskRows
from halfseen.recording import Recorder
from halfseen.team import Team
from halfseen.training.plan import WARM_UP, Plan, one_cycle
from halfseen.training.samples import Samples, StoredSamples

T = TypeVar("T")


@dataclass(frozen=True)
class _Part:
    """What this process has of a batch: how many rows it has in all, and which are owned here."""

    n_batch: int
    places: Tensor
    counts: bool = True


class Trainer(ABC):
    """Trains modules, the network among them, epoch by epoch, batch by batch.

    Parameters
    ----------
    modules : dict of str to Module
        All that is learned, by name; one is called "network".
    samples : Samples or StoredSamples
        Those that this process owns.
    plan : Plan
    generator : torch.Generator
        On the device of the samples; for the order of the batches and whatever else is drawn.
        All processes of a team draw the same.
    team : Team
        The processes that train together; their samples follow one another.

    Attributes
    ----------
    recordable : bool
        Whether a step never waits for the device and never depends on the step's number.
    """

    recordable = False

    def __init__(
        self,
        modules: dict[str, nn.Module],
        samples: Samples | StoredSamples,
        plan: Plan,
        generator: torch.Generator,
        team: Team = Team(),  # noqa: B008 (it cannot change)
    ) -> None:
        self.modules = modules
        self.samples = samples
        self.plan = plan
        self.generator = generator
        self.team = team
        owned = team.gathered(len(samples))
        self.n_samples = sum(owned)
        self.first_row = sum(owned[: team.rank])
        self._part: _Part | None = None
        self.optimiser = self.make_optimiser()
        self._rates = [float(group["lr"]) for group in self.optimiser.param_groups]
        self._recording = False
        self._recorder: Recorder | None = None
        self.n_steps = 0

    @property
    def network(self) -> nn.Module:
        """The network."""
        return self.modules["network"]

    @property
    def n_epochs(self) -> int:
        """Epochs until the end of training."""
        return self.plan.n_epochs

    @property
    def judged_from(self) -> int:
        """Epochs after which a validation accuracy counts: the warm-up is over."""
        return math.ceil(WARM_UP * self.n_epochs)

    @property
    def n_batches(self) -> int:
        """Batches of an epoch."""
        return math.ceil(self.n_samples / self.plan.batch_size)

    @property
    def device(self) -> torch.device:
        """Where samples and modules are."""
        return self.samples.y.device

    @abstractmethod
    def make_optimiser(self) -> torch.optim.Optimizer:
        """Return the optimiser of whatever is trained by gradients."""

    @abstractmethod
    def step(self, rows: Tensor) -> dict[str, Tensor]:
        """Learn from one batch, or from the rows of it that are owned here.

        Returns
        -------
        outcome : dict of str to Tensor of shape (n_rows,)
            How each sample stood before the step: "J0", "accuracy" (1 if the label was
            right) and whatever else the history should show.
        """

    @abstractmethod
    def scores(self, X: Tensor, observed: Tensor) -> Tensor:
        """Return the scores of new samples, each on its own; shape (n_samples, n_classes)."""

    def start(self) -> None:  # noqa: B027
        """Do what comes before the first epoch, and again before going on; nothing by default."""

    def epoch(self) -> dict[str, float]:
        """Pass once over all samples, in a new order; return means over the samples."""
        return finished(self.epoch_by_steps())

    def epoch_by_steps(self) -> Generator[None, None, dict[str, float]]:
        """Do what `epoch` does, and pause after every step."""
        self.network.train()
        if self._recording and self._can_record():
            self._recorder = self._recorder or Recorder(self.device, self.generator)
        order = torch.randperm(
            self.n_samples, generator=self.generator, device=self.generator.device
        )
        total = torch.zeros((), device=self.device)
        for batch in order.tensor_split(self.n_batches):
            self.set_rates()
            total = total + self._taken_step(batch)
            self.n_steps += 1
            yield
        self.team.add_up([total])
        means = (total / self.n_samples).tolist()
        return dict(zip(self._reported, means, strict=True))

    def record_steps(self) -> None:
        """Record the steps of training once and replay them, if that is possible here.

        A step of a small network takes a GPU less time than launching its kernels one by one.
        Only for networks that do the same work in every step.
        """
        self._recording = self.recordable and self.device.type == "cuda" and self.team.alone

    def _can_record(self) -> bool:
        resident = isinstance(self.samples, Samples)
        return resident and all(isinstance(rows, Tensor) for rows in self.stored())

    def stored(self) -> list[Tensor | DiskRows]:
        """Return what is kept for every sample and used in steps; nothing by default."""
        return []

    def set_rates(self) -> None:
        """Give the optimiser the learning rates that the schedule says."""
        done = self.n_steps / (self.n_epochs * self.n_batches)
        for group, rate in zip(self.optimiser.param_groups, self._rates, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * one_cycle(done))
            else:
                group["lr"] = rate * one_cycle(done)

    def _taken_step(self, batch: Tensor) -> Tensor:
        if self._recorder is None:
            return self._summed_step(batch)
        return self._recorder(self._summed_step, batch)

    def _summed_step(self, batch: Tensor) -> Tensor:
        rows = batch if self.team.alone else self._own_rows(batch)
        outcome = self.step(rows)
        weight = self._weight(rows)
        self._reported = list(outcome)
        each = [values.detach().to(weight.dtype) for values in outcome.values()]
        return torch.stack(each) @ weight

    def _own_rows(self, batch: Tensor) -> Tensor:
        rows = batch - self.first_row
        places = ((rows >= 0) & (rows < len(self.samples))).nonzero().flatten()
        if len(places):
            self._part = _Part(len(batch), places)
            return rows[places]
        # A process without a sample in the batch goes along with one that does not count.
        self._part = _Part(len(batch), places.new_zeros(1), counts=False)
        return places.new_zeros(1)

    @property
    def counts(self) -> bool:
        """Whether the rows of this step are part of the batch, see `_own_rows`."""
        return self._part is None or self._part.counts

    def _weight(self, rows: Tensor) -> Tensor:
        weight = self.samples.weight[rows]
        return weight if self.counts else torch.zeros_like(weight)

    def descend(self, loss: Tensor) -> None:
        """Take one step of the optimiser."""
        self.find_gradients(loss)
        self.optimiser.step()

    def scores_from(self, X: Tensor) -> Tensor:
        """Return the network's scores of completed samples, as it learns from them."""
        with multiplying(X.device, in_half=self.plan.half):
            scores = self.network(X)
        return scores.to(X.dtype)

    def find_gradients(self, loss: Tensor) -> None:
        """Set the gradients of a loss that is the sum of those of all processes."""
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        moved = (weight for group in self.optimiser.param_groups for weight in group["params"])
        self.team.add_up([weight.grad for weight in moved if weight.grad is not None])

    def kept(self, observed: Tensor) -> Tensor:
        """Say which entries stay visible in this step, as `plan.hide` wants it.

        Each sample loses another share of its entries, `hide` of them in the mean.
        """
        if self.plan.hide == 0:
            return torch.ones_like(observed)
        # Drawn for all of a batch, also where only some of it is owned: so numbers do not
        # depend on how many processes there are.
        n_drawn = len(observed) if self._part is None else self._part.n_batch
        generator, device = self.generator, self.generator.device
        shape, each = (n_drawn, *observed.shape[1:]), (n_drawn, *(1,) * (observed.ndim - 1))
        draw = torch.rand(shape, generator=generator, device=device)
        share = torch.rand(each, generator=generator, device=device)
        if self._part is not None:
            draw, share = draw[self._part.places], share[self._part.places]
        return draw >= 2 * self.plan.hide * share

    def weighted_mean(self, loss: Tensor, rows: Tensor) -> Tensor:
        """Return the mean over a batch, each sample by its weight."""
        n_batch = len(rows) if self._part is None else self._part.n_batch
        return (loss * self._weight(rows)).sum() / n_batch

    def state(self) -> dict:
        """Return all that must be kept to go on later, as a tree of tensors and numbers."""
        optimiser = self.optimiser.state_dict()["state"]
        return {
            **{name: module.state_dict() for name, module in self.modules.items()},
            "optimiser": {str(key): value for key, value in optimiser.items()},
            "generator": self.generator.get_state(),
            "n_steps": self.n_steps,
        }

    def load_state(self, state: dict) -> None:
        """Go back to a state that `state` returned."""
        for name, module in self.modules.items():
            module.load_state_dict(state[name])
        optimiser = self.optimiser.state_dict()
        optimiser["state"] = {int(key): value for key, value in state["optimiser"].items()}
        self._check_kept(optimiser["state"])
        self.optimiser.load_state_dict(optimiser)
        self.generator.set_state(state["generator"])
        self.n_steps = int(state["n_steps"])

    def _check_kept(self, state: dict[int, dict]) -> None:
        """Refuse what an optimiser of other weights keeps; torch would not say so."""
        weights = [weight for group in self.optimiser.param_groups for weight in group["params"]]
        adam = isinstance(self.optimiser, torch.optim.AdamW)
        for place, kept in state.items():
            like = weights[place]
            right = not adam or kept.keys() == {"step", "exp_avg", "exp_avg_sq"}
            for name, tensor in kept.items():
                shape = () if name == "step" else like.shape
                right = right and tensor.shape == shape and tensor.is_floating_point()
                least = 0.0 if name in ("step", "exp_avg_sq") else -math.inf
                right = right and bool((tensor.isfinite() & (tensor >= least)).all())
            if not right:
                raise ValueError("what the optimiser keeps does not fit the weights")


def finished(work: Generator[None, None, T]) -> T:
    """Run work that pauses now and then to its end, and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


@contextlib.contextmanager
def multiplying(device: torch.device, *, in_half: bool) -> Iterator[None]:
    """Have a network multiply in bfloat16 for a while, or as it is.

    Within another `autocast`, as all training is, torch keeps the weights that it has shortened,
    also those that a network shortens itself, and would take them for those of all later steps.
    """
    torch.clear_autocast_cache()
    with torch.autocast(device.type, torch.bfloat16, enabled=in_half):
        yield
    torch.clear_autocast_cache()


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
