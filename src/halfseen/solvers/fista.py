"""FISTA with restarts in torch: accelerated proximal gradient on all rows at once."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from halfseen.boundary import is_whole
from halfseen.coding import MaskedLasso, Solution

# Codes of this many entries are in work at a time: about 1 GiB in float32.
_ENTRIES_AT_ONCE = 2**28
_HOST_SIDE = 256  # dictionaries with a side up to this are measured on the host
_POWER_STEPS = 10
_ROW_POWER_STEPS = 6
_MARGIN = 1.05
_ROUND = 32  # steps at a time; between them, kernels on chip get rid of their rounding
_FAR = 10.0  # gaps that grow by so much send a row back


def soft_threshold(codes: Tensor, threshold: Tensor, positive: bool = False) -> Tensor:
    """Shrink towards zero: the proximal step of threshold·‖·‖₁ (and of s ≥ 0)."""
    if positive:
        return (codes - threshold).clamp(min=0)
    return codes - torch.maximum(torch.minimum(codes, threshold), -threshold)


@dataclass(frozen=True)
class Fista:
    """Beck & Teboulle's FISTA with the gradient restart of O'Donoghue & Candès, per row.

    Steps are as long as the row's own holes allow; a row whose gap rises takes shorter ones.
    """

    def solve(
        self, problem: MaskedLasso, init: Tensor | None, tol: float, max_iter: int
    ) -> Solution:
        """Minimise `problem` from `init`, zero by default."""
        n_atoms = len(problem.dictionary)
        lipschitz = largest_curvature(problem.dictionary)
        n_rows_at_once = max(1, _ENTRIES_AT_ONCE // n_atoms)
        parts = []
        for start in range(0, len(problem.X), n_rows_at_once):
            some = slice(start, start + n_rows_at_once)
            rows = problem.rows(some)
            codes = rows.X.new_zeros(len(rows.X), n_atoms) if init is None else init[some].clone()
            parts.append(self._solve_part(rows, codes, lipschitz, tol, max_iter))
        if not parts:  # an empty batch
            none = problem.X.new_zeros(0, n_atoms)
            return Solution(none, none.sum(1), torch.zeros(0, dtype=torch.int64).to(none.device))
        if len(parts) == 1:
            return parts[0]
        return Solution(
            torch.cat([part.codes for part in parts]),
            torch.cat([part.gap for part in parts]),
            torch.cat([part.n_iter for part in parts]),
        )

    def _solve_part(self, problem, codes, lipschitz, tol, max_iter) -> Solution:
        take_steps = fastest_advance(problem.dictionary)
        solution = self._run(take_steps, problem, codes, lipschitz, tol, max_iter, bold=True)
        lost = solution.gap.isnan().nonzero().flatten()
        if len(lost):  # numbers may have been too large for the kernels
            again = self._run(
                advance, problem.rows(lost), codes[lost], lipschitz, tol, max_iter, bold=False
            )
            for all_rows, some in zip(
                (solution.codes, solution.gap, solution.n_iter),
                (again.codes, again.gap, again.n_iter),
                strict=True,
            ):
                all_rows[lost] = some
        return solution

    def _run(self, take_steps, problem, codes, lipschitz, tol, max_iter, bold) -> Solution:
        """Take steps on all rows until they are finished; the codes of a NaN stay as they are."""
        gap = take_steps(problem, State.start(codes), lipschitz, 0)[1]
        n_iter = torch.zeros(len(codes), dtype=torch.int64, device=codes.device)
        active = (~(gap <= tol)).nonzero().flatten()
        rows, state, last_gap = problem.rows(active), State.start(codes[active]), gap[active]
        curvature = (
            row_curvatures(rows, lipschitz) if bold else torch.full_like(last_gap, lipschitz)
        )
        done = 0
        while len(active) and done < max_iter:
            n_steps = min(_ROUND, max_iter - done)
            before = state
            state, new_gap = take_steps(rows, before, curvature[:, None], n_steps)
            done += n_steps
            # Curvatures were guessed. Where they were too small, gaps rise, or codes run away
            # and have to go back.
            guessed = curvature < lipschitz
            far = (guessed & ~(new_gap <= _FAR * last_gap)).nonzero().flatten()
            if len(far):
                curvature[far] = lipschitz
                start = State.start(before.codes[far])
                again, gap_again = take_steps(rows.rows(far), start, lipschitz, n_steps)
                state.codes[far], state.ahead[far] = again.codes, again.ahead
                state.clock[far], new_gap[far] = again.clock, gap_again
            curvature = torch.where(new_gap > last_gap, lipschitz, curvature)
            gap[active], n_iter[active], last_gap = new_gap, done, new_gap
            going = (new_gap > tol) & (done < max_iter)  # a NaN does not go on
            left = (~going & ~new_gap.isnan()).nonzero().flatten()
            codes[active[left]] = state.codes[left]
            on = going.nonzero().flatten()
            if len(on) < len(active):
                active, rows, state = active[on], rows.rows(on), state.rows(on)
                curvature, last_gap = curvature[on], last_gap[on]
        return Solution(codes, gap, n_iter)


def row_curvatures(problem: MaskedLasso, lipschitz: float) -> Tensor:
    """Return about the largest curvature of every row's own problem, shape (n_rows,).

    With holes it is well below `lipschitz`, that of complete rows; longer steps need fewer. A few
    power steps guess it from below, as a rule within a tenth.
    """
    X, atoms = problem.X, problem.dictionary
    dtype = torch.bfloat16 if X.is_cuda else X.dtype  # two digits will do
    fixed = torch.cos(torch.arange(X.shape[1], device=X.device)).to(X)
    vector = F.normalize(X, dim=1).to(dtype) + (F.normalize(fixed, dim=0) / 4).to(dtype)
    vector = vector * problem.observed
    atoms = (atoms / lipschitz**0.5).to(dtype)
    gram = atoms.T @ atoms if X.shape[1] <= 2 * len(atoms) else None
    for _ in range(_ROW_POWER_STEPS):
        last = vector
        image = vector @ atoms.T @ atoms if gram is None else vector @ gram
        vector = image * problem.observed
    norm, last_norm = (torch.linalg.vector_norm(v, dim=1, dtype=X.dtype) for v in (vector, last))
    share = _MARGIN * norm / last_norm
    return lipschitz * torch.where(share < 1, share, 1)  # also where it is NaN


def largest_curvature(dictionary: Tensor) -> float:
    """Return the square of the dictionary's spectral norm: FISTA's step is one over it."""
    if min(dictionary.shape) > _HOST_SIDE or not dictionary.is_cuda:
        return torch.linalg.matrix_norm(dictionary, 2).square().item()
    # The eigenvalues of a small matrix are found sooner on the host than a GPU starts its SVD.
    wide = dictionary.shape[0] < dictionary.shape[1]
    gram = dictionary @ dictionary.T if wide else dictionary.T @ dictionary
    return torch.linalg.eigvalsh(gram.double().cpu())[-1].item()


@dataclass(frozen=True)
class FixedSteps:
    """As many steps of FISTA on every row, without looking at the gap: nothing waits for a GPU.

    Good enough while something is being learned.

    Parameters
    ----------
    n_steps : int
    """

    n_steps: int = 128

    def __post_init__(self) -> None:
        if not is_whole(self.n_steps):
            raise ValueError(f"n_steps must be a whole number ≥ 1; got {self.n_steps!r}.")

    def solve(
        self, problem: MaskedLasso, init: Tensor | None, tol: float, max_iter: int
    ) -> Solution:
        """Take the steps from `init`, zero by default; `tol` and `max_iter` are not looked at."""
        size = _spectral_norm(problem.dictionary)
        # In units in which the largest curvature is 1, it need not be known on the host.
        scaled = replace(problem, dictionary=problem.dictionary / size, alpha=problem.alpha / size)
        n_rows, n_atoms = len(problem.X), len(problem.dictionary)
        codes = problem.X.new_zeros(n_rows, n_atoms) if init is None else init * size
        take_steps, state = fastest_advance(problem.dictionary), State.start(codes)
        for done in range(0, self.n_steps, _ROUND):
            state, gap = take_steps(scaled, state, 1.0, min(_ROUND, self.n_steps - done))
        n_iter = torch.full((n_rows,), self.n_steps, device=codes.device)
        # A kernel on chip says NaN where numbers are too large for it.
        found = torch.where(gap.isnan()[:, None], codes, state.codes)
        return Solution(found / size, gap, n_iter)


def _spectral_norm(dictionary: Tensor) -> Tensor:
    """Return the spectral norm; on a GPU nearly, from above as a rule, by a few power steps."""
    if not dictionary.is_cuda:
        return torch.linalg.matrix_norm(dictionary, 2)
    places = torch.arange(1, dictionary.shape[1] + 1, device=dictionary.device).to(dictionary)
    vector = torch.sin(1e4 * torch.sin(places))  # in no direction that a dictionary may avoid
    for _ in range(_POWER_STEPS):
        vector = F.normalize((dictionary @ vector) @ dictionary, dim=0)
    largest_atom = torch.linalg.vector_norm(dictionary, dim=1).amax()
    return _MARGIN * torch.maximum((dictionary @ vector).norm(), largest_atom)


def fastest_advance(dictionary: Tensor):
    """Return `advance`, or its form on chip where that can take the dictionary."""
    if dictionary.is_cuda and importlib.util.find_spec("triton") is not None:
        from halfseen.solvers import fista_triton

        if fista_triton.fits(dictionary):
            return fista_triton.advance
    return advance


@dataclass(frozen=True)
class State:
    """Where FISTA stands: the codes, the point ahead of them, and the momentum's clock."""

    codes: Tensor  # (n_rows, n_atoms)
    ahead: Tensor  # (n_rows, n_atoms)
    clock: Tensor  # (n_rows, 1)

    @classmethod
    def start(cls, codes: Tensor) -> State:
        """Stand still at `codes`."""
        return cls(codes, codes, codes.new_ones(len(codes), 1))

    def rows(self, index: Tensor) -> State:
        """Return the state of some rows."""
        return State(self.codes[index], self.ahead[index], self.clock[index])


def advance(
    problem: MaskedLasso, state: State, lipschitz: float | Tensor, n_steps: int
) -> tuple[State, Tensor]:
    """Take `n_steps` steps of length 1/`lipschitz` on every row; also return the gaps.

    Parameters
    ----------
    problem : MaskedLasso
    state : State
    lipschitz : float, or Tensor of shape (n_rows, 1)
    n_steps : int
    """
    threshold = problem.alpha[:, None] / lipschitz
    codes, ahead, clock = state.codes, state.ahead, state.clock
    for _ in range(n_steps):
        descent = problem.residual(ahead) @ problem.dictionary.T
        new = soft_threshold(ahead + descent / lipschitz, threshold, problem.positive)
        move = new - codes
        uphill = ((ahead - new) * move).sum(1, keepdim=True) > 0
        clock = torch.where(uphill, 1.0, clock)
        next_clock = (1 + (1 + 4 * clock.square()).sqrt()) / 2
        ahead = new + (clock - 1) / next_clock * move
        codes, clock = new, next_clock
    return State(codes, ahead, clock), problem.relative_gap(codes)
