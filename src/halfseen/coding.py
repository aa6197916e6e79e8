"""Sparse coding with holes: the problem, its duality gap, and `sparse_encode`."""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from halfseen.boundary import (
    check_finite,
    check_squares,
    choose_device,
    finite_floats,
    is_number,
    is_whole,
    like_input,
    tensors_with_holes,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

MAX_ITER = 10_000
_MOST_ITER = 2**62  # that compiled solvers count to


@dataclass(frozen=True)
class MaskedLasso:
    """One lasso problem per row: min ½‖observed ⊙ (x − s·dictionary)‖² + alpha·‖s‖₁.

    Attributes
    ----------
    X : Tensor of shape (n_rows, n_features)
        Values; 0 in the holes.
    observed : bool Tensor of shape (n_rows, n_features)
    dictionary : Tensor of shape (n_atoms, n_features)
    alpha : Tensor of shape (n_rows,)
    positive : bool
        Whether codes are restricted to s ≥ 0.
    """

    X: Tensor
    observed: Tensor
    dictionary: Tensor
    alpha: Tensor
    positive: bool = False

    def residual(self, codes: Tensor) -> Tensor:
        """Return observed ⊙ (x − s·dictionary), shape (n_rows, n_features)."""
        return (self.X - codes @ self.dictionary) * self.observed

    def objective(self, codes: Tensor) -> Tensor:
        """Return the value that is minimised, shape (n_rows,)."""
        residual = self.residual(codes)
        return residual.square().sum(1) / 2 + self.alpha * codes.abs().sum(1)

    def relative_gap(self, codes: Tensor) -> Tensor:
        """Return the duality gap over the objective of the zero code, shape (n_rows,).

        The dual point is the best feasible multiple of the residual. A gap of g says that
        the objective of `codes` is at most g·½‖x‖² above the minimum.
        """
        residual = self.residual(codes)
        correlation = residual @ self.dictionary.T
        top = (correlation if self.positive else correlation.abs()).amax(1).clamp(min=0)
        r_square = residual.square().sum(1)
        r_x = (residual * self.X).sum(1)
        scale = torch.where(r_square > 0, r_x / r_square, 0).clamp(min=0)
        scale = torch.where(scale * top > self.alpha, self.alpha / top, scale)
        primal = r_square / 2 + self.alpha * codes.abs().sum(1)
        dual = scale * r_x - scale.square() * r_square / 2
        zero_objective = self.X.square().sum(1) / 2
        gap = (primal - dual).clamp(min=0)  # NaN stays NaN
        return torch.where(gap == 0, 0, gap / zero_objective)

    def rows(self, index: Tensor | slice) -> MaskedLasso:
        """Return the problems of some rows."""
        return replace(
            self, X=self.X[index], observed=self.observed[index], alpha=self.alpha[index]
        )

    def to(self, target: torch.device | torch.dtype) -> MaskedLasso:
        """Return the same problems on another device or in another dtype."""
        observed = self.observed
        return replace(
            self,
            X=self.X.to(target),
            observed=observed.to(target) if isinstance(target, torch.device) else observed,
            dictionary=self.dictionary.to(target),
            alpha=self.alpha.to(target),
        )


@dataclass(frozen=True)
class Solution:
    """What a solver returns, one entry per row.

    Attributes
    ----------
    codes : Tensor of shape (n_rows, n_atoms)
    gap : Tensor of shape (n_rows,)
        Relative duality gap of the codes.
    n_iter : Tensor of shape (n_rows,)
    """

    codes: Tensor
    gap: Tensor
    n_iter: Tensor


class Solver(Protocol):
    """What `sparse_encode` asks of a solver: it holds its own settings and nothing else."""

    def solve(
        self, problem: MaskedLasso, init: Tensor | None, tol: float, max_iter: int
    ) -> Solution:
        """Minimise every row of `problem` until its relative gap is at most `tol`."""


def make_solver(solver: str | Solver, device: torch.device) -> Solver:
    """Return the solver of that name; ``"auto"`` takes what is fastest on the device."""
    if hasattr(solver, "solve"):
        return solver
    if solver == "auto":
        compiled = device.type == "cpu" and importlib.util.find_spec("numba") is not None
        solver = "cd" if compiled else "fista"
    if solver == "cd":
        from halfseen.solvers.coordinate_descent import CoordinateDescent

        return CoordinateDescent()
    if solver == "fista":
        from halfseen.solvers.fista import Fista

        return Fista()
    if solver == "fixed":
        from halfseen.solvers.fista import FixedSteps

        return FixedSteps()
    if solver == "subgradient":
        from halfseen.solvers.subgradient import SubGradient

        return SubGradient()
    raise ValueError(
        f"solver must be 'auto', 'cd', 'fista', 'fixed', 'subgradient' or an object with a solve "
        f"method; got {solver!r}."
    )


def sparse_encode(
    X: ArrayLike | Tensor,
    dictionary: ArrayLike | Tensor,
    alpha: float | ArrayLike | Tensor,
    *,
    solver: str | Solver = "auto",
    tol: float = 1e-4,
    max_iter: int = MAX_ITER,
    init: ArrayLike | Tensor | None = None,
    positive: bool = False,
    device: str | torch.device = "auto",
    return_gap: bool = False,
):
    """Code rows with holes: min over s of ½‖observed ⊙ (x − s·dictionary)‖² + alpha·‖s‖₁.

    Every row is a problem of its own: its code does not depend on the rows beside it, on
    their order, nor on what is written in its holes.

    Parameters
    ----------
    X : array or Tensor of shape (n_rows, n_features)
        NaN marks a hole. float32 and narrower floats are coded in float32, everything
        else in float64.
    dictionary : array or Tensor of shape (n_atoms, n_features)
        Atoms; of any norm but zero.
    alpha : float, or array of shape (n_rows,)
        Weight of the l1 norm, positive.
    solver : {"auto", "cd", "fista", "fixed", "subgradient"} or Solver
        ``"cd"``: compiled coordinate descent with active sets on the CPU. ``"fista"``:
        accelerated proximal gradient in torch. ``"fixed"``: 128 steps of it whatever the gap,
        which never waits for a GPU and can be recorded there. ``"subgradient"``: the rule of
        Caiafa et al. (2021), which never crosses zero and in general does not reach the minimum.
        ``"auto"``: coordinate descent on a CPU (if numba is installed), FISTA on a GPU.
    tol : float
        A row is finished when its duality gap is at most ``tol`` times the objective of the
        zero code, ½‖observed x‖².
    max_iter : int
        Most iterations spent on a row; in float32 ``"cd"`` solves rows that its digits do not
        suffice for once more in float64, with as many. Like `tol`, not for ``"fixed"``.
    init : array or Tensor of shape (n_rows, n_atoms), optional
        Where to start; zero by default.
    positive : bool
        Restrict codes to s ≥ 0.
    device : str or torch.device
        Where to compute. ``"auto"``: where X is if it is a tensor, else a GPU if there is
        one.
    return_gap : bool
        Also return the relative duality gap of every row.

    Returns
    -------
    codes : ndarray or Tensor of shape (n_rows, n_atoms)
        Of the same kind as X; a tensor is on the device of X.
    gap : ndarray or Tensor of shape (n_rows,)
        Only if ``return_gap``. Infinite if a row has nothing but holes and zeros and its code
        is not zero, where steps that are not finished may leave it.

    Warns
    -----
    sklearn.exceptions.ConvergenceWarning
        Once, if rows ended above `tol`: how many and how far.

    Examples
    --------
    >>> import numpy as np
    >>> import halfseen
    >>> dictionary = np.array([[1.0, 0.0, 0.0], [0.0, 0.6, 0.8]])
    >>> halfseen.sparse_encode([[2.0, 3.0, np.nan]], dictionary, alpha=0.36)
    array([[1.64, 4.  ]])
    """
    target = choose_device(device, X)
    values, observed = tensors_with_holes(X, device=target)
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(
            f"X must have rows and columns, shape (n_rows, n_features); got shape "
            f"{tuple(values.shape)}. Use a tiling to cut images or signals into rows."
        )
    n_rows = len(values)
    check_squares(values, "X")
    atoms = _checked_dictionary(dictionary, values)
    check_tolerance(tol, max_iter)
    if not isinstance(positive, bool | np.bool_):
        raise ValueError(f"positive must be True or False; got {positive!r}.")
    weight = _positive_per_row(alpha, n_rows, "alpha", values)
    problem = MaskedLasso(values, observed, atoms, weight, bool(positive))
    if init is not None:
        init = _checked_init(init, problem)
    with torch.no_grad(), torch.autocast(target.type, enabled=False):
        solution = make_solver(solver, target).solve(
            problem, init, float(tol), min(int(max_iter), _MOST_ITER)
        )
    warn_if_unfinished(solution.gap, tol, "Raise max_iter, tol or alpha", stacklevel=2)
    codes = like_input(solution.codes, X)
    return (codes, like_input(solution.gap, X)) if return_gap else codes


def _checked_dictionary(dictionary: ArrayLike | Tensor, X: Tensor) -> Tensor:
    atoms, n_features = finite_floats(dictionary, "dictionary"), X.shape[1]
    if atoms.ndim != 2 or len(atoms) == 0 or atoms.shape[1] != n_features:
        raise ValueError(
            f"dictionary must have one atom per row and the {n_features} features of X, shape "
            f"(n_atoms, {n_features}); got shape {tuple(atoms.shape)}."
        )
    zero = (atoms == 0).all(1).nonzero().flatten().tolist()
    if zero:
        raise ValueError(
            f"dictionary has {len(zero)} zero atom(s), the first in row {zero[0]}; remove them "
            f"or replace them by data."
        )
    check_squares(atoms.to(X), "dictionary")
    return atoms.to(X)


def _checked_init(init: ArrayLike | Tensor, problem: MaskedLasso) -> Tensor:
    codes, shape = finite_floats(init, "init"), (len(problem.X), len(problem.dictionary))
    if codes.shape != shape:
        raise ValueError(
            f"init must have the shape of the codes, {shape}; got {tuple(codes.shape)}."
        )
    if problem.positive and (codes < 0).any():
        raise ValueError("init has negative codes, but positive=True; clip it at zero.")
    codes = codes.to(problem.X)
    if not torch.isfinite(problem.objective(codes)).all():
        raise ValueError(
            "init has codes so large that the objective overflows; start from smaller ones."
        )
    return codes


def check_tolerance(tol: float, max_iter: int) -> None:
    """Refuse a tolerance or a number of iterations that makes no sense."""
    if not (is_number(tol) and tol >= 0):
        raise ValueError(f"tol must be a number ≥ 0; got {tol!r}.")
    if not is_whole(max_iter):
        raise ValueError(f"max_iter must be a whole number ≥ 1; got {max_iter!r}.")


def warn_if_unfinished(gap: Tensor, tol: float, advice: str, stacklevel: int) -> None:
    """Warn once if rows ended above `tol`: how many, how far and what to do."""
    missed = ~(gap <= float(tol))
    n_missed = int(missed.sum())
    if n_missed == 0:
        return
    from sklearn.exceptions import ConvergenceWarning

    warnings.warn(
        f"{n_missed} of {len(missed)} rows ended above tol={tol:g}; the largest relative "
        f"duality gap is {gap[missed].max().item():.2g}. {advice}.",
        ConvergenceWarning,
        stacklevel=stacklevel + 1,
    )


def _positive_per_row(values: Any, n_rows: int, name: str, like: Tensor) -> Tensor:
    """Return a positive number, or one per row, as a tensor of shape (n_rows,)."""
    values = finite_floats(values, name).to(like)
    check_finite(values, name, holes=False)
    if values.ndim == 0:
        values = values.expand(n_rows)
    if values.shape != (n_rows,):
        raise ValueError(
            f"{name} must be one number or one per row, shape ({n_rows},); got shape "
            f"{tuple(values.shape)}."
        )
    if not (values > 0).all():
        raise ValueError(
            f"{name} must be positive; got {values.min().item():g} in "
            f"{str(values.dtype).removeprefix('torch.')}."
        )
    return values
