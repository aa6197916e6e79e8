"""Greedy coordinate descent with an exact solve on the support, one row at a time.

For each row a small working set of atoms is kept. The atom that violates the optimality
conditions most enters the support by a coordinate step; the objective is then minimised
exactly over the support (a Cholesky factor of its Gram matrix, extended atom by atom),
and atoms whose coefficient reaches zero on the way leave it. Atoms outside the working set
are looked at only when it is solved, so a sparse answer costs little however large the
dictionary is.

Every row is computed on its own from the same instructions, so its code does not depend on
the rows beside it. The loops are compiled with numba without the interpreter lock and
spread over plain threads, which makes them safe to call from several threads at once.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from halfseen.solvers.support import (
    add_row,
    compiled,
    dot,
    dot_row,
    dot_rows,
    enter,
    inlined,
    largest,
    new_workspace,
    one_norm,
    position,
    settle,
)
from halfseen.threads import n_coding_threads

if TYPE_CHECKING:
    from halfseen.coding import MaskedLasso, Solution

_MOST_ROWS_PER_TASK = 256
_LEAST_ROWS_PER_TASK = 16


@dataclass(frozen=True)
class CoordinateDescent:
    """Greedy coordinate descent over rows, compiled, on all CPU threads torch may use."""

    def solve(
        self, problem: MaskedLasso, init: torch.Tensor | None, tol: float, max_iter: int
    ) -> Solution:
        """Minimise `problem` from `init`, zero by default.

        Rows for which the digits of float32 do not suffice are solved again in float64.
        """
        from halfseen.coding import Solution

        here, device = problem.to(torch.device("cpu")), problem.X.device
        codes, gap, n_iter = self._solve(here, init, tol, max_iter)
        stuck = (gap > tol) & (n_iter < max_iter)
        if codes.dtype == torch.float32 and stuck.any():
            wide = here.rows(stuck).to(torch.float64)
            rounded = self._solve(wide, None, tol, max_iter)[0].float()
            codes[stuck], gap[stuck] = rounded, wide.relative_gap(rounded.double()).float()
        return Solution(codes.to(device), gap.to(device), n_iter.to(device))

    def _solve(
        self, problem: MaskedLasso, init: torch.Tensor | None, tol: float, max_iter: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return codes, gaps and iterations of a problem on the CPU, in its dtype."""
        n_rows = len(problem.X)
        dictionary = problem.dictionary.contiguous()
        if init is None:
            result = dictionary.new_zeros(n_rows, len(dictionary))
        else:
            result = init.to("cpu", copy=True).contiguous()
        gap = dictionary.new_zeros(n_rows)
        n_iter = torch.zeros(n_rows, dtype=torch.int64, device="cpu")
        arrays = [
            tensor.numpy()
            for tensor in (
                problem.X.contiguous(),
                problem.observed.contiguous(),
                dictionary,
                dictionary.T.contiguous(),
                problem.alpha.contiguous(),
                result,
                gap,
                n_iter,
            )
        ]
        settings = (problem.positive, gap.numpy().dtype.type(tol), max_iter)

        # Several tasks per thread, so that none waits long for the others at the end.
        n_threads = n_coding_threads()
        size = max(_LEAST_ROWS_PER_TASK, min(_MOST_ROWS_PER_TASK, n_rows // (4 * n_threads)))
        starts = range(0, n_rows, size)

        def task(start: int) -> None:
            try:
                _code_rows(*arrays, *settings, start, min(start + size, n_rows))
            except MemoryError as error:
                n_atoms = len(problem.dictionary)
                raise MemoryError(
                    f"coordinate descent needs two matrices of {n_atoms:,} × {n_atoms:,} numbers "
                    f"for each of {n_threads} threads; pass solver='fista', or take fewer atoms."
                ) from error

        n_threads = min(n_threads, len(starts))
        if n_threads <= 1:
            for start in starts:
                task(start)
        else:
            with ThreadPoolExecutor(n_threads) as pool:
                list(pool.map(task, starts))
        return result, gap, n_iter


@compiled
def _correlate(residual, seen, n_seen, atoms_by_feature, out):
    # Four features a pass: `out` is read and written a quarter as often.
    n_atoms = out.shape[0]
    out[:] = 0
    m = 0
    while m + 4 <= n_seen:
        a, b = atoms_by_feature[seen[m]], atoms_by_feature[seen[m + 1]]
        c, d = atoms_by_feature[seen[m + 2]], atoms_by_feature[seen[m + 3]]
        ra, rb, rc, rd = residual[m], residual[m + 1], residual[m + 2], residual[m + 3]
        for j in range(n_atoms):
            out[j] += ra * a[j] + rb * b[j] + rc * c[j] + rd * d[j]
        m += 4
    while m < n_seen:
        add_row(out, residual[m], atoms_by_feature, seen[m], n_atoms)
        m += 1


@inlined
def _relative_gap(x_square, r_square, r_x, size, top, alpha):
    # As in MaskedLasso.relative_gap, for one row.
    scale = alpha * 0
    if r_square > 0 and r_x > 0:
        scale = r_x / r_square
        if scale * top > alpha:
            scale = alpha / top
    primal = r_square / 2 + alpha * size
    dual = scale * r_x - scale * scale * r_square / 2
    gap = (primal - dual) / (x_square / 2)
    return alpha * 0 if gap < 0 else gap  # NaN stays NaN


@inlined
def _add_to_working_set(ws, w, j, atoms, n_seen):
    ws.atom[w] = j
    for m in range(n_seen):
        ws.tile[w, m] = atoms[j, ws.seen[m]]
    ws.target[w] = dot_row(ws.tile, w, ws.x, n_seen)
    for a in range(w + 1):
        ws.gram[w, a] = dot_rows(ws.tile, w, a, n_seen)
        ws.gram[a, w] = ws.gram[w, a]
    ws.code[w] = 0
    ws.held[w] = False


@inlined
def _grow_working_set(ws, w, atoms, n_seen, alpha, positive):
    room = max(4, w // 4)
    n_atoms = atoms.shape[0]
    for a in range(w):
        ws.correlation[ws.atom[a]] = 0
    while room > 0:
        top = largest(ws.correlation, n_atoms, positive)
        if top <= alpha:
            break
        best = position(ws.correlation, n_atoms, top, positive)
        if best < 0:
            break
        ws.correlation[best] = 0
        _add_to_working_set(ws, w, best, atoms, n_seen)
        w += 1
        room -= 1
    return w


@inlined
def _solve_working_set(ws, w, n, fresh, alpha, positive, x_square, singular, tol, budget):
    """Solve over the working set; return the support's size, valid factor rows, iterations."""
    n_iter = 0
    while n_iter < budget:
        n_iter += 1
        entered = enter(ws, w, n, alpha, positive, tol / 8)
        n, fresh = settle(ws, w, n + entered, fresh, alpha, singular)
        fit = dot(ws.target, ws.code, w)
        r_square = max(x_square - fit - dot(ws.slope, ws.code, w), alpha * 0)
        size = one_norm(ws.code, w)
        top = largest(ws.slope, w, positive)
        gap = _relative_gap(x_square, r_square, x_square - fit, size, top, alpha)
        # A third of `tol` here leaves the rest to atoms outside the working set.
        if gap <= tol / 3 or entered == 0:
            break
    return n, fresh, n_iter


@compiled
def _measure(ws, w, n_seen, atoms_by_feature, x_square, alpha, positive):
    """Compute residual and correlations from the codes and return the gap."""
    for m in range(n_seen):
        ws.residual[m] = ws.x[m]
    for a in range(w):
        if ws.code[a] != 0:
            add_row(ws.residual, -ws.code[a], ws.tile, a, n_seen)
    _correlate(ws.residual, ws.seen, n_seen, atoms_by_feature, ws.correlation)
    return _relative_gap(
        x_square,
        dot(ws.residual, ws.residual, n_seen),
        dot(ws.residual, ws.x, n_seen),
        one_norm(ws.code, w),
        largest(ws.correlation, ws.correlation.shape[0], positive),
        alpha,
    )


@compiled
def _code_row(ws, n_seen, atoms, atoms_by_feature, alpha, code, positive, tol, max_iter, singular):
    n_atoms = atoms.shape[0]
    x_square = dot(ws.x, ws.x, n_seen)
    w = n = fresh = n_iter = 0
    for j in range(n_atoms):  # warm start
        if code[j] != 0:
            _add_to_working_set(ws, w, j, atoms, n_seen)
            ws.code[w] = code[j]
            ws.support[n] = w
            ws.held[w] = True
            w += 1
            n += 1
    code[:] = 0
    gap = last_gap = x_square
    if x_square == 0:
        return gap, n_iter
    while True:
        gap = _measure(ws, w, n_seen, atoms_by_feature, x_square, alpha, positive)
        if gap <= tol or n_iter >= max_iter or not np.isfinite(gap):
            break
        grown = _grow_working_set(ws, w, atoms, n_seen, alpha, positive)
        if grown == w and n_iter > 0 and gap >= last_gap:  # nothing left but rounding
            break
        if gap > last_gap / 2:  # updates may have worn the factor: make it anew
            fresh = 0
        w, last_gap = grown, gap
        for a in range(w):
            ws.slope[a] = dot_row(ws.tile, a, ws.residual, n_seen)
        n, fresh, steps = _solve_working_set(
            ws, w, n, fresh, alpha, positive, x_square, singular, tol,
            min(16 + 4 * w, max_iter - n_iter),
        )  # fmt: skip
        n_iter += steps
    objective = dot(ws.residual, ws.residual, n_seen) / 2 + alpha * one_norm(ws.code, w)
    if not (gap <= tol or objective <= x_square / 2):  # beyond the dtype's digits: zero is better
        return _measure(ws, 0, n_seen, atoms_by_feature, x_square, alpha, positive), n_iter
    for a in range(w):
        code[ws.atom[a]] = ws.code[a]
    return gap, n_iter


@compiled
def _code_rows(
    X, observed, atoms, atoms_by_feature, alpha, codes, gaps, n_iters,
    positive, tol, max_iter, start, stop,
):  # fmt: skip
    n_atoms, n_features = atoms.shape
    singular = 64 * np.finfo(atoms.dtype).eps
    ws = new_workspace(n_atoms, n_features, atoms)
    for i in range(start, stop):
        n_seen = 0
        for m in range(n_features):
            if observed[i, m]:
                ws.seen[n_seen] = m
                ws.x[n_seen] = X[i, m]
                n_seen += 1
        gaps[i], n_iters[i] = _code_row(
            ws, n_seen, atoms, atoms_by_feature, alpha[i], codes[i],
            positive, tol, max_iter, singular,
        )  # fmt: skip
