"""Codes as a differentiable function of data, dictionary and alpha.

On the support A of a minimiser s of ½‖observed ⊙ (x − s·D)‖² + alpha·‖s‖₁ the residual r
satisfies D_A·r = alpha·sign(s_A). Differentiating this condition gives a linear system with
the matrix H = D_A·diag(observed)·D_Aᵀ, which conjugate gradients solve for all rows at once.
So nothing is recorded while solving, and memory does not grow with the iterations.

Both are operators of torch: torch.compile and torch.export keep them whole and call the same
solver as eager mode does.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad

from halfseen.coding import MAX_ITER, MaskedLasso, make_solver

_SOLVED = 1e-10  # squared residual of the backward pass, relative to its start


def differentiable_codes(
    problem: MaskedLasso, solver: str, tol: float, n_gradient_steps: int
) -> Tensor:
    """Return the codes of `problem`, differentiable in X, dictionary and alpha.

    Parameters
    ----------
    problem : MaskedLasso
    solver : str
        See `sparse_encode`.
    tol : float
        Relative duality gap to stop at.
    n_gradient_steps : int
        Conjugate-gradient steps of the backward pass; with 0 no gradient flows.
    """
    if not torch.compiler.is_compiling():
        for given in (problem.X, problem.dictionary, problem.alpha):
            if forward_ad.unpack_dual(given).tangent is not None:
                raise NotImplementedError(
                    "codes have no forward-mode derivative; use backward(), torch.autograd.grad or "
                    "torch.autograd.functional.jacobian in its usual mode."
                )
    return _masked_lasso(
        problem.X,
        problem.observed,
        problem.dictionary,
        problem.alpha,
        problem.positive,
        solver,
        tol,
        n_gradient_steps,
    )


@torch.library.custom_op("halfseen::masked_lasso", mutates_args=())
def _masked_lasso(
    X: Tensor,
    observed: Tensor,
    dictionary: Tensor,
    alpha: Tensor,
    positive: bool,
    solver: str,
    tol: float,
    n_gradient_steps: int,
) -> Tensor:
    problem = MaskedLasso(X, observed, dictionary, alpha, positive)
    return make_solver(solver, X.device).solve(problem, None, tol, MAX_ITER).codes


@_masked_lasso.register_fake
def _(X, observed, dictionary, alpha, positive, solver, tol, n_gradient_steps):
    return X.new_empty(X.shape[0], dictionary.shape[0])


def _remember(ctx, inputs, output) -> None:
    X, observed, dictionary, _, _, _, _, n_gradient_steps = inputs
    ctx.save_for_backward(X, observed, dictionary, output)
    ctx.n_gradient_steps = n_gradient_steps


def _backward(ctx, gradient: Tensor):
    X, observed, dictionary, codes = ctx.saved_tensors
    support = codes != 0
    weight = _solve_on_support(gradient, observed, dictionary, support, ctx.n_gradient_steps)
    residual = (X - codes @ dictionary) * observed
    seen = (weight @ dictionary) * observed
    to_dictionary = weight.T @ residual - codes.T @ seen
    to_alpha = -(weight * codes.sign()).sum(1)
    return seen, None, to_dictionary, to_alpha, None, None, None, None


_masked_lasso.register_autograd(_backward, setup_context=_remember)


@torch.library.custom_op("halfseen::solve_on_support", mutates_args=())
def _solve_on_support(
    target: Tensor, observed: Tensor, dictionary: Tensor, support: Tensor, n_steps: int
) -> Tensor:
    """Solve D_A·diag(observed)·D_Aᵀ·w = target_A for every row, zero off the support."""
    solution = torch.zeros_like(target)
    residual = target * support
    direction = residual
    square = residual.square().sum(1, keepdim=True)
    enough = _SOLVED * square
    for _ in range(n_steps):
        # On a GPU to ask would cost more than the steps that it saves.
        if not target.is_cuda and bool((square <= enough).all()):
            break
        image = (((direction @ dictionary) * observed) @ dictionary.T) * support
        curvature = (direction * image).sum(1, keepdim=True)
        # A row that is solved, or has a direction without curvature, stands still.
        length = torch.where(curvature > 0, square / curvature, 0)
        solution = solution + length * direction
        residual = residual - length * image
        new_square = residual.square().sum(1, keepdim=True)
        direction = residual + torch.where(square > 0, new_square / square, 0) * direction
        square = new_square
    return solution


@_solve_on_support.register_fake
def _(target, observed, dictionary, support, n_steps):
    return torch.empty_like(target)
