"""Learning a dictionary from tiles with holes, one mini-batch after the other.

Each step codes a mini-batch with the dictionary so far and then lowers
½‖observed ⊙ (X − S·dictionary)‖² by the minimiser of a separable quadratic upper bound. For
entry (j, m) of the dictionary the bound's curvature is Σ_i observed_im·|s_ij|·‖s_i‖₁ (put
the weights |s_ij|/‖s_i‖₁ into Jensen's inequality), so a step needs no learning rate and
does not raise the error of its own batch. Atoms are then scaled back to norm 1.

Two schedules make it find good dictionaries: alpha starts several times larger and falls to
its value over the first part of the steps, and after that steps get shorter, which averages
over the batches.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from halfseen.coding import MaskedLasso, Solver, make_solver
from halfseen.recording import Recorder
from halfseen.solvers.fista import FixedSteps

_FIRST_ALPHA = 6.0  # in units of the final alpha
_ANNEALED_SHARE = 0.6  # of the steps, until alpha has its final value
_MEMORY = 0.9  # of the curvature, from one step to the next
_AVERAGED_STEPS = 20  # full-length steps that shrinking starts from
_IDLE_STEPS = 20  # an atom that no code has used for so long is replaced
_MOST_SHUFFLED = 2**22
_CODING_TOL = 1e-2
_CODING_ITER = 1_000


@dataclass(frozen=True)
class DictionaryState:
    """A dictionary that is being learned.

    Attributes
    ----------
    dictionary : Tensor of shape (n_atoms, n_features)
        Atoms of norm 1.
    curvature : Tensor of shape (n_atoms, n_features)
        Moving average over the batches.
    idle : int64 Tensor of shape (n_atoms,)
        Steps since a code used the atom.
    n_steps : int
        Steps taken so far.
    """

    dictionary: Tensor
    curvature: Tensor
    idle: Tensor
    n_steps: int = 0

    def to(self, target: Tensor | torch.device) -> DictionaryState:
        """Return the same state on another device or, with a tensor, also of its dtype."""
        device = target.device if isinstance(target, Tensor) else target
        return replace(
            self,
            dictionary=self.dictionary.to(target),
            curvature=self.curvature.to(target),
            idle=self.idle.to(device),
        )


def start_dictionary(
    n_atoms: int, n_features: int, like: Tensor, generator: torch.Generator
) -> DictionaryState:
    """Return random atoms, of the dtype and on the device of `like`."""
    shape = n_atoms, n_features
    atoms = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu").to(like)
    return DictionaryState(
        dictionary=atoms / atoms.norm(dim=1, keepdim=True),
        curvature=torch.zeros_like(atoms),
        idle=torch.zeros(n_atoms, dtype=torch.int64, device=like.device),
    )


Take = Callable[[Tensor], tuple[Tensor, Tensor]]  # numbers -> values, observed


def learn_dictionary(
    state: DictionaryState,
    take: Take,
    layout: Tensor,
    batches: Iterable[Tensor],
    alpha: float,
    horizon: int,
    positive: bool = False,
    *,
    record: bool = False,
) -> DictionaryState:
    """Learn from mini-batches of tiles.

    Parameters
    ----------
    state : DictionaryState
    take : callable
        Takes numbers of samples and returns their centred values, 0 in the holes, and
        `observed`, both of shape (n_taken, n_features), on the device of `state`.
    layout : int64 Tensor of shape (n_tiles, n_tile_features)
        Which features of a sample are in which tile.
    batches : iterable of int64 Tensor
        Numbers of tiles, those of a sample side by side.
    alpha, horizon, positive
        See `learn_step`.
    record : bool
        On a GPU, record the steps and replay them; `take` must not leave the GPU then.
    """
    device = state.dictionary.device
    layout = layout.to(device)

    def tiles(batch: Tensor) -> tuple[Tensor, Tensor]:
        X, observed = take(batch // len(layout))
        places = layout[batch % len(layout)]
        return X.gather(1, places), observed.gather(1, places)

    on_gpu = device.type == "cuda"
    solver = FixedSteps() if on_gpu else make_solver("auto", device)
    moved = (batch.to(device, non_blocking=True) for batch in batches)
    if on_gpu and record:
        return _learn_recorded(state, tiles, moved, alpha, horizon, solver, positive)
    for batch in moved:
        state = learn_step(state, *tiles(batch), alpha, horizon, solver, positive)
    return state


def _learn_recorded(
    state: DictionaryState,
    tiles: Take,
    batches: Iterable[Tensor],
    alpha: float,
    horizon: int,
    solver: Solver,
    positive: bool,
) -> DictionaryState:
    """Take the steps on a GPU, recorded and replayed; the schedules come in as numbers there."""
    dictionary, curvature, idle = (
        state.dictionary.clone(),
        state.curvature.clone(),
        state.idle.clone(),
    )
    price, length = dictionary.new_zeros(()), dictionary.new_zeros(())
    n_steps = state.n_steps

    def take_step(batch: Tensor) -> Tensor:
        here = DictionaryState(dictionary, curvature, idle, n_steps)
        X, observed = tiles(batch)
        new = _moved(here, X, observed, price, length, solver, positive)
        dictionary.copy_(new.dictionary)
        curvature.copy_(new.curvature)
        idle.copy_(new.idle)
        return length

    recorder = Recorder(dictionary.device)
    for batch in batches:
        now, step_length = _schedule(n_steps, alpha, horizon)
        price.fill_(now)
        length.fill_(step_length)
        recorder(take_step, batch)
        n_steps += 1
    return DictionaryState(dictionary, curvature, idle, n_steps)


def shuffled_batches(
    n_rows: int, batch_size: int, n_batches: int, generator: torch.Generator
) -> Iterator[Tensor]:
    """Yield `n_batches` of row numbers, passing over all rows in a new order again and again.

    What is left at the end of a pass and too short for a batch is left out of that pass.
    """
    batch_size = int(batch_size)  # torch does not split by numpy's numbers

    def endless() -> Iterator[Tensor]:
        device = generator.device
        while n_rows > _MOST_SHUFFLED:  # hardly a row would come twice, and an order takes memory
            yield torch.randint(n_rows, (batch_size,), generator=generator, device=device)
        while True:
            order = torch.randperm(n_rows, generator=generator, device=generator.device)
            for batch in order.split(batch_size):
                if len(batch) == min(batch_size, n_rows):
                    yield batch

    return itertools.islice(endless(), n_batches)


def learn_step(
    state: DictionaryState,
    X: Tensor,
    observed: Tensor,
    alpha: float,
    horizon: int,
    solver: Solver,
    positive: bool = False,
) -> DictionaryState:
    """Improve the dictionary on one mini-batch.

    Parameters
    ----------
    state : DictionaryState
    X : Tensor of shape (n_rows, n_features)
        Centred values, 0 in the holes.
    observed : bool Tensor of shape (n_rows, n_features)
    alpha : float
        Weight of the l1 norm once annealing is over.
    horizon : int
        Number of steps that are planned; the schedules follow it.
    solver : Solver
    positive : bool
        Restrict codes to s ≥ 0.
    """
    now, length = _schedule(state.n_steps, alpha, horizon)
    return _moved(state, X, observed, X.new_tensor(now), length, solver, positive)


def _schedule(n_steps: int, alpha: float, horizon: int) -> tuple[float, float]:
    """Return alpha and the length of the step after so many of them."""
    late = max(0.0, n_steps - _ANNEALED_SHARE * horizon)
    now = alpha * annealing(n_steps / horizon)
    return now, _AVERAGED_STEPS / (_AVERAGED_STEPS + late)


def annealing(done: float) -> float:
    """Return how many times its final value the price of a code is after a share of all steps."""
    return max(1.0, _FIRST_ALPHA ** (1 - done / _ANNEALED_SHARE))


def _moved(
    state: DictionaryState,
    X: Tensor,
    observed: Tensor,
    alpha: Tensor,
    length: Tensor | float,
    solver: Solver,
    positive: bool,
) -> DictionaryState:
    """Code a batch, lower the bound of its error, replace idle atoms."""
    problem = MaskedLasso(X, observed, state.dictionary, alpha.expand(len(X)), positive)
    codes = solver.solve(problem, None, _CODING_TOL, _CODING_ITER).codes
    residual = problem.residual(codes)
    size = codes.abs()
    here = (size * size.sum(1, keepdim=True)).T @ observed.to(X.dtype)
    averaged = here if state.n_steps == 0 else torch.lerp(here, state.curvature, _MEMORY)
    bound = torch.maximum(here, averaged)
    step = torch.where(here > 0, codes.T @ residual / bound, 0)
    idle = torch.where((codes != 0).any(0), 0, state.idle + 1)
    moved = DictionaryState(
        _unit_norm(state.dictionary + length * step, state.dictionary),
        averaged,
        idle,
        state.n_steps + 1,
    )
    return _replace_idle_atoms(moved, residual)


def _unit_norm(atoms: Tensor, fallback: Tensor) -> Tensor:
    norms = atoms.norm(dim=1, keepdim=True)
    return torch.where(norms > 0, atoms / norms, fallback)


def _replace_idle_atoms(state: DictionaryState, residual: Tensor) -> DictionaryState:
    """Put the worst-fitted rows of the batch in the place of atoms that nobody uses.

    Written without asking how many there are, which would make the host wait for a GPU.
    """
    idle = state.idle >= _IDLE_STEPS
    place = idle.cumsum(0) - 1  # the first idle atom gets the worst row, and so on
    replaced = idle & (place < len(residual))
    worst = residual.square().sum(1).argsort(descending=True, stable=True)
    rows = residual[worst[place.clamp(0, len(residual) - 1)]]
    dictionary = torch.where(
        replaced[:, None], _unit_norm(rows, state.dictionary), state.dictionary
    )
    return replace(state, dictionary=dictionary, idle=torch.where(replaced, 0, state.idle))
