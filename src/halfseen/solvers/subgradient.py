"""The code step of Caiafa et al. (2021): a sub-gradient step that never crosses zero."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from halfseen.boundary import is_whole
from halfseen.coding import MaskedLasso, Solution

_SEED = 0


def subgradient_step(codes: Tensor, gradient: Tensor, step: float | Tensor) -> Tensor:
    """Move against the gradient; a coefficient that would change its sign stops at zero.

    A coefficient at zero stays there, so codes only get sparser.

    Parameters
    ----------
    codes : Tensor
    gradient : Tensor
        Of the whole objective, with the sign of the code as the derivative of its l1 norm.
        Entries where the code is zero are ignored.
    step : float or Tensor
        The same for all, or of a shape that broadcasts with `codes`.
    """
    moved = codes - step * gradient
    return torch.where(codes * moved > 0, moved, 0)


@dataclass(frozen=True)
class SubGradient:
    """Algorithm 2 of the paper: fixed steps with the no-zero-crossing rule.

    Parameters
    ----------
    shrinkage : float, optional
        What the l1 term alone takes off a coefficient in one step: the step on the gradient of
        a row's objective is ``shrinkage / alpha``. By default that step is 1/L with L the
        squared spectral norm of the dictionary.
    n_steps : int, optional
        Most steps taken, if fewer than `max_iter`.

    Notes
    -----
    Codes cannot start at zero. One random draw, always the same, serves every row, so that the
    code of a row does not depend on the rows beside it.

    The rule removes atoms and never brings one back, so the minimum is in general not
    reached and a ConvergenceWarning says by how much. The published step sizes σ act on the
    gradient of λ1·J1 + λ2·J2 averaged over a batch of B, where the l1 term takes
    σ·λ2 / (N·B) off a coefficient: that is their `shrinkage`.
    """

    shrinkage: float | None = None
    n_steps: int | None = None

    def __post_init__(self) -> None:
        if not (self.n_steps is None or is_whole(self.n_steps, least=0)):
            raise ValueError(f"n_steps must be a whole number ≥ 0 or None; got {self.n_steps!r}.")

    def solve(
        self, problem: MaskedLasso, init: Tensor | None, tol: float, max_iter: int
    ) -> Solution:
        """Take steps from `init`, or from a random start, until the gap is small or stuck."""
        n_rows, n_atoms = len(problem.X), len(problem.dictionary)
        codes = self._start(problem, n_rows, n_atoms) if init is None else init.clone()
        steps = self._step_sizes(problem)
        gap = problem.relative_gap(codes)
        n_iter = torch.zeros(n_rows, dtype=torch.int64, device=codes.device)
        active = (~(gap <= tol)).nonzero().flatten()
        for _ in range(max_iter if self.n_steps is None else min(max_iter, self.n_steps)):
            if len(active) == 0:
                break
            rows = problem.rows(active)
            old = codes[active]
            gradient = rows.alpha[:, None] * old.sign() - rows.residual(old) @ rows.dictionary.T
            new = subgradient_step(old, gradient, steps[active])
            codes[active] = new
            gap[active] = rows.relative_gap(new)
            n_iter[active] += 1
            moving = (new != old).any(1)
            active = active[(gap[active] > tol) & moving]
        return Solution(codes, gap, n_iter)

    def _step_sizes(self, problem: MaskedLasso) -> Tensor:
        if self.shrinkage is not None:
            return (self.shrinkage / problem.alpha)[:, None]
        step = 1 / torch.linalg.matrix_norm(problem.dictionary, 2).square().item()
        return torch.full_like(problem.alpha, step)[:, None]

    def _start(self, problem: MaskedLasso, n_rows: int, n_atoms: int) -> Tensor:
        generator = torch.Generator().manual_seed(_SEED)
        start = torch.randn(n_atoms, generator=generator, dtype=torch.float64, device="cpu")
        start = start.to(problem.X)
        start = start / problem.dictionary.norm(dim=1) / n_atoms**0.5
        if problem.positive:
            start = start.abs()
        return start.expand(n_rows, n_atoms).clone()
