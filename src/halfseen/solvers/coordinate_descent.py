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
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numba import njit

if TYPE_CHECKING:
    from halfseen.coding import MaskedLasso, Solution

# Sums may be reordered, which is what lets the compiler vectorise them. NaN and infinity keep
# their meaning: they cannot come in, but a hopeless row may produce them and is then given up.
_FAST = {"reassoc", "contract", "nsz", "arcp"}
_MOST_ROWS_PER_TASK = 256
_LEAST_ROWS_PER_TASK = 16


def _inlined(function):
    return njit(nogil=True, fastmath=_FAST, error_model="numpy", forceinline=True)(function)


def _compiled(function):
    return njit(nogil=True, cache=True, fastmath=_FAST, error_model="numpy")(function)


def _inlined_without_nan(function):
    # The largest of many numbers is vectorised only if NaN may be disregarded.
    flags = {*_FAST, "nnan"}
    return njit(nogil=True, fastmath=flags, error_model="numpy", forceinline=True)(function)


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
        n_iter = torch.zeros(n_rows, dtype=torch.int64)
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
        n_threads = torch.get_num_threads()
        size = max(_LEAST_ROWS_PER_TASK, min(_MOST_ROWS_PER_TASK, n_rows // (4 * n_threads)))
        starts = range(0, n_rows, size)

        def task(start: int) -> None:
            _code_rows(*arrays, *settings, start, min(start + size, n_rows))

        n_threads = min(n_threads, len(starts))
        if n_threads <= 1:
            for start in starts:
                task(start)
        else:
            with ThreadPoolExecutor(n_threads) as pool:
                list(pool.map(task, starts))
        return result, gap, n_iter


class _Workspace(NamedTuple):
    """Buffers for one thread; `w` counts the working set, `n` the support inside it."""

    seen: np.ndarray  # (n_features,) observed features of the row
    x: np.ndarray  # (n_features,) their values
    residual: np.ndarray  # (n_features,)
    correlation: np.ndarray  # (n_atoms,) of every atom with the residual
    atom: np.ndarray  # (w,) atoms of the working set
    tile: np.ndarray  # (w, n_features) observed part of those
    gram: np.ndarray  # (w, w)
    target: np.ndarray  # (w,) inner products with x
    slope: np.ndarray  # (w,) inner products with the residual
    code: np.ndarray  # (w,)
    held: np.ndarray  # (w,) True for the support
    support: np.ndarray  # (n,) positions of the support in the working set
    factor: np.ndarray  # (n, n) Cholesky factor of its Gram matrix, diagonal inverted
    step: np.ndarray  # (n,)


@_compiled
def _workspace(n_atoms, n_features, like):
    kind = like.dtype
    return _Workspace(
        np.empty(n_features, np.int64),
        np.empty(n_features, kind),
        np.empty(n_features, kind),
        np.empty(n_atoms, kind),
        np.empty(n_atoms, np.int64),
        np.empty((n_atoms, n_features), kind),
        np.empty((n_atoms, n_atoms), kind),
        np.empty(n_atoms, kind),
        np.empty(n_atoms, kind),
        np.empty(n_atoms, kind),
        np.empty(n_atoms, np.bool_),
        np.empty(n_atoms, np.int64),
        np.empty((n_atoms, n_atoms), kind),
        np.empty(n_atoms, kind),
    )


@_inlined
def _dot(a, b, n):
    total = a.dtype.type(0)
    for i in range(n):
        total += a[i] * b[i]
    return total


@_inlined
def _one_norm(a, n):
    total = a.dtype.type(0)
    for i in range(n):
        total += abs(a[i])
    return total


# Rows of matrices are reached by index: a view of a row would count references in the loop.
@_inlined
def _dot_row(matrix, i, b, n):
    total = b.dtype.type(0)
    for k in range(n):
        total += matrix[i, k] * b[k]
    return total


@_inlined
def _dot_rows(matrix, i, j, n):
    total = matrix.dtype.type(0)
    for k in range(n):
        total += matrix[i, k] * matrix[j, k]
    return total


@_inlined
def _add_row(a, factor, matrix, i, n):
    for k in range(n):
        a[k] += factor * matrix[i, k]


@_inlined_without_nan
def _largest(a, n, positive):
    top = a.dtype.type(0)
    if positive:
        for i in range(n):
            top = max(top, a[i])
    else:
        for i in range(n):
            top = max(top, abs(a[i]))
    return top


@_inlined
def _position(a, n, value, positive):
    for i in range(n):
        if (a[i] if positive else abs(a[i])) == value:
            return i
    return -1


@_compiled
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
        _add_row(out, residual[m], atoms_by_feature, seen[m], n_atoms)
        m += 1


@_inlined
def _relative_gap(x_square, r_square, r_x, one_norm, top, alpha):
    # As in halfseen.coding.relative_gap, for one row.
    scale = alpha * 0
    if r_square > 0 and r_x > 0:
        scale = r_x / r_square
        if scale * top > alpha:
            scale = alpha / top
    primal = r_square / 2 + alpha * one_norm
    dual = scale * r_x - scale * scale * r_square / 2
    gap = (primal - dual) / (x_square / 2)
    return alpha * 0 if gap < 0 else gap  # NaN stays NaN


@_inlined
def _extend_factor(ws, n, fresh, singular):
    """Factor rows `fresh` to n; return how many are independent and the last pivot."""
    pivot = singular
    for a in range(fresh, n):
        j = ws.support[a]
        for b in range(a):
            rest = ws.gram[j, ws.support[b]] - _dot_rows(ws.factor, a, b, b)
            ws.factor[a, b] = rest * ws.factor[b, b]
        pivot = ws.gram[j, j] - _dot_rows(ws.factor, a, a, a)
        if pivot <= singular * ws.gram[j, j]:
            return a, pivot
        ws.factor[a, a] = 1 / np.sqrt(pivot)
    return n, pivot


@_inlined
def _downhill(ws, j, alpha):
    """Negative derivative of the objective in coordinate j of the support."""
    return ws.slope[j] - (alpha if ws.code[j] > 0 else -alpha)


@_inlined
def _find_step(ws, n, rank, pivot, alpha):
    """Direction over the support and how far the minimum lies along it.

    With independent atoms it leads to their joint minimiser. Otherwise it is the one along
    which the first dependent atom replaces those it depends on; its curvature is the pivot.
    """
    step, support = ws.step, ws.support
    if rank == n:
        for a in range(n):
            rest = _downhill(ws, support[a], alpha) - _dot_row(ws.factor, a, step, a)
            step[a] = rest * ws.factor[a, a]
    else:
        for a in range(rank):
            step[a] = -ws.factor[rank, a]
        step[rank] = 1
    for a in range(rank - 1, -1, -1):
        step[a] *= ws.factor[a, a]
        _add_row(step, -step[a], ws.factor, a, a)
    if rank == n:
        return n, alpha / alpha
    downhill = alpha * 0
    for a in range(rank + 1):
        downhill += step[a] * _downhill(ws, support[a], alpha)
    if downhill < 0:
        for a in range(rank + 1):
            step[a] = -step[a]
    return rank + 1, abs(downhill) / max(pivot, np.finfo(step.dtype).tiny)


@_inlined
def _leave(ws, n, rank, leaver):
    """Take one atom out of the support and its factor; return how many rows stay valid."""
    factor, rest = ws.factor, ws.step
    ws.code[ws.support[leaver]] = 0
    ws.held[ws.support[leaver]] = False
    for a in range(leaver, n - 1):
        ws.support[a] = ws.support[a + 1]
    if leaver >= rank:
        return rank
    for a in range(leaver, rank - 1):
        rest[a] = factor[a + 1, leaver]
        for b in range(leaver):
            factor[a, b] = factor[a + 1, b]
        for b in range(leaver, a + 1):
            factor[a, b] = factor[a + 1, b + 1]
    for b in range(leaver, rank - 1):  # the lost column comes back as a rank-one update
        sine = rest[b] * factor[b, b]
        shrink = 1 / np.sqrt(1 + sine * sine)
        factor[b, b] *= shrink
        for a in range(b + 1, rank - 1):
            old = factor[a, b]
            factor[a, b] = (old + sine * rest[a]) * shrink
            rest[a] = (rest[a] - sine * old) * shrink
    return rank - 1


@_inlined
def _settle(ws, w, n, fresh, alpha, singular):
    """Minimise over the support, keeping signs; atoms that reach zero leave it."""
    while n > 0:
        rank, pivot = _extend_factor(ws, n, fresh, singular)
        n_step, length = _find_step(ws, n, rank, pivot, alpha)
        leaver = -1
        for a in range(n_step):
            value, step = ws.code[ws.support[a]], ws.step[a]
            if value * step <= 0 and abs(value) <= length * abs(step):
                length, leaver = (abs(value) / abs(step) if value != 0 else value), a
        if leaver < 0 and rank < n:  # numerically flat without end: do without the atom
            length, leaver = alpha * 0, rank
        for a in range(n_step):
            j = ws.support[a]
            old, new = ws.code[j], ws.code[j] + length * ws.step[a]
            if a == leaver or old * new < 0:  # no rounding carries a code across zero
                new = alpha * 0
            ws.code[j] = new
            _add_row(ws.slope, old - new, ws.gram, j, w)
        if leaver < 0:
            return n, n
        fresh = _leave(ws, n, rank, leaver)
        n -= 1
    return 0, 0


@_inlined
def _enter(ws, w, n, alpha, positive, slack):
    """Let the most violating atoms of the working set enter the support."""
    tiny = np.finfo(ws.gram.dtype).tiny / np.finfo(ws.gram.dtype).eps
    entered = 0
    while entered < 1 + n // 8:
        top = _largest(ws.slope, w, positive)
        if top <= alpha * (1 + slack):
            break
        j = _position(ws.slope, w, top, positive)
        if j < 0 or ws.held[j]:  # on the support, violated by rounding alone
            break
        if ws.gram[j, j] <= tiny:  # hardly observed: its coefficient would overflow
            ws.slope[j] = 0
            continue
        shrunk = ws.slope[j] - alpha if ws.slope[j] > 0 else ws.slope[j] + alpha
        ws.code[j] = shrunk / ws.gram[j, j]
        _add_row(ws.slope, -ws.code[j], ws.gram, j, w)
        ws.support[n + entered] = j
        ws.held[j] = True
        entered += 1
    return entered


@_inlined
def _add_to_working_set(ws, w, j, atoms, n_seen):
    ws.atom[w] = j
    for m in range(n_seen):
        ws.tile[w, m] = atoms[j, ws.seen[m]]
    ws.target[w] = _dot_row(ws.tile, w, ws.x, n_seen)
    for a in range(w + 1):
        ws.gram[w, a] = _dot_rows(ws.tile, w, a, n_seen)
        ws.gram[a, w] = ws.gram[w, a]
    ws.code[w] = 0
    ws.held[w] = False


@_inlined
def _grow_working_set(ws, w, atoms, n_seen, alpha, positive):
    room = max(4, w // 4)
    n_atoms = atoms.shape[0]
    for a in range(w):
        ws.correlation[ws.atom[a]] = 0
    while room > 0:
        top = _largest(ws.correlation, n_atoms, positive)
        if top <= alpha:
            break
        best = _position(ws.correlation, n_atoms, top, positive)
        if best < 0:
            break
        ws.correlation[best] = 0
        _add_to_working_set(ws, w, best, atoms, n_seen)
        w += 1
        room -= 1
    return w


@_inlined
def _solve_working_set(ws, w, n, fresh, alpha, positive, x_square, singular, tol, budget):
    """Solve over the working set; return the support's size, valid factor rows, iterations."""
    n_iter = 0
    while n_iter < budget:
        n_iter += 1
        entered = _enter(ws, w, n, alpha, positive, tol / 8)
        n, fresh = _settle(ws, w, n + entered, fresh, alpha, singular)
        fit = _dot(ws.target, ws.code, w)
        r_square = max(x_square - fit - _dot(ws.slope, ws.code, w), alpha * 0)
        one_norm = _one_norm(ws.code, w)
        top = _largest(ws.slope, w, positive)
        gap = _relative_gap(x_square, r_square, x_square - fit, one_norm, top, alpha)
        # A third of `tol` here leaves the rest to atoms outside the working set.
        if gap <= tol / 3 or entered == 0:
            break
    return n, fresh, n_iter


@_compiled
def _measure(ws, w, n_seen, atoms_by_feature, x_square, alpha, positive):
    """Compute residual and correlations from the codes and return the gap."""
    for m in range(n_seen):
        ws.residual[m] = ws.x[m]
    for a in range(w):
        if ws.code[a] != 0:
            _add_row(ws.residual, -ws.code[a], ws.tile, a, n_seen)
    _correlate(ws.residual, ws.seen, n_seen, atoms_by_feature, ws.correlation)
    return _relative_gap(
        x_square,
        _dot(ws.residual, ws.residual, n_seen),
        _dot(ws.residual, ws.x, n_seen),
        _one_norm(ws.code, w),
        _largest(ws.correlation, ws.correlation.shape[0], positive),
        alpha,
    )


@_compiled
def _code_row(ws, n_seen, atoms, atoms_by_feature, alpha, code, positive, tol, max_iter, singular):
    n_atoms = atoms.shape[0]
    x_square = _dot(ws.x, ws.x, n_seen)
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
            ws.slope[a] = _dot_row(ws.tile, a, ws.residual, n_seen)
        n, fresh, steps = _solve_working_set(
            ws, w, n, fresh, alpha, positive, x_square, singular, tol,
            min(16 + 4 * w, max_iter - n_iter),
        )  # fmt: skip
        n_iter += steps
    objective = _dot(ws.residual, ws.residual, n_seen) / 2 + alpha * _one_norm(ws.code, w)
    if not (gap <= tol or objective <= x_square / 2):  # beyond the dtype's digits: zero is better
        return _measure(ws, 0, n_seen, atoms_by_feature, x_square, alpha, positive), n_iter
    for a in range(w):
        code[ws.atom[a]] = ws.code[a]
    return gap, n_iter


@_compiled
def _code_rows(
    X, observed, atoms, atoms_by_feature, alpha, codes, gaps, n_iters,
    positive, tol, max_iter, start, stop,
):  # fmt: skip
    n_atoms, n_features = atoms.shape
    singular = 64 * np.finfo(atoms.dtype).eps
    ws = _workspace(n_atoms, n_features, atoms)
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
