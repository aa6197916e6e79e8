"""The support of one row's code: exact minimisation over it, compiled with numba.

`enter` lets atoms in, `settle` minimises over those that are in and lets those go whose
coefficient reaches zero. Both work on the Gram matrix of a small working set of atoms and keep
a Cholesky factor of the support's part, extended and reduced atom by atom.

numba does not notice changes in this file when it reuses compiled code of another: after
editing it, remove the `__pycache__` beside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from halfseen.compiling import compiled_once

# Sums may be reordered, which is what lets the compiler vectorise them. NaN and infinity keep
# their meaning: they cannot come in, but a hopeless row may produce them and is then given up.
_FAST = {"reassoc", "contract", "nsz", "arcp"}


def inlined(function):
    """Compile into every caller."""
    return njit(nogil=True, fastmath=_FAST, error_model="numpy", forceinline=True)(function)


def compiled(function):
    """Compile once; runs without the interpreter lock."""
    return compiled_once(fastmath=_FAST, error_model="numpy")(function)


def inlined_without_nan(function):
    """Compile into every caller, disregarding NaN.

    Only so is the search for the largest of many numbers vectorised.
    """
    flags = {*_FAST, "nnan"}
    return njit(nogil=True, fastmath=flags, error_model="numpy", forceinline=True)(function)


class Workspace(NamedTuple):
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


@compiled
def new_workspace(n_atoms, n_features, like):
    """Return buffers of the dtype of `like`."""
    kind = like.dtype
    return Workspace(
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


@inlined
def dot(a, b, n):
    """Return the inner product of the first n entries."""
    total = a.dtype.type(0)
    for i in range(n):
        total += a[i] * b[i]
    return total


@inlined
def one_norm(a, n):
    """Return the sum of the sizes of the first n entries."""
    total = a.dtype.type(0)
    for i in range(n):
        total += abs(a[i])
    return total


# Rows of matrices are reached by index: a view of a row would count references in the loop.
@inlined
def dot_row(matrix, i, b, n):
    """Return the inner product of a row with a vector."""
    total = b.dtype.type(0)
    for k in range(n):
        total += matrix[i, k] * b[k]
    return total


@inlined
def dot_rows(matrix, i, j, n):
    """Return the inner product of two rows."""
    total = matrix.dtype.type(0)
    for k in range(n):
        total += matrix[i, k] * matrix[j, k]
    return total


@inlined
def add_row(a, factor, matrix, i, n):
    """Add a multiple of a row to a vector."""
    for k in range(n):
        a[k] += factor * matrix[i, k]


@inlined_without_nan
def largest(a, n, positive):
    """Return the largest entry or, unless `positive`, the largest size; at least 0."""
    top = a.dtype.type(0)
    if positive:
        for i in range(n):
            top = max(top, a[i])
    else:
        for i in range(n):
            top = max(top, abs(a[i]))
    return top


@inlined
def position(a, n, value, positive):
    """Return where `largest` was found, -1 if nowhere."""
    for i in range(n):
        if (a[i] if positive else abs(a[i])) == value:
            return i
    return -1


@inlined
def _extend_factor(ws, n, fresh, singular):
    """Factor rows `fresh` to n; return how many are independent and the last pivot."""
    pivot = singular
    for a in range(fresh, n):
        j = ws.support[a]
        for b in range(a):
            rest = ws.gram[j, ws.support[b]] - dot_rows(ws.factor, a, b, b)
            ws.factor[a, b] = rest * ws.factor[b, b]
        pivot = ws.gram[j, j] - dot_rows(ws.factor, a, a, a)
        if pivot <= singular * ws.gram[j, j]:
            return a, pivot
        ws.factor[a, a] = 1 / np.sqrt(pivot)
    return n, pivot


@inlined
def _downhill(ws, j, alpha):
    """Negative derivative of the objective in coordinate j of the support."""
    return ws.slope[j] - (alpha if ws.code[j] > 0 else -alpha)


@inlined
def _find_step(ws, n, rank, pivot, alpha):
    """Direction over the support and how far the minimum lies along it.

    With independent atoms it leads to their joint minimiser. Otherwise it is the one along
    which the first dependent atom replaces those it depends on; its curvature is the pivot.
    """
    step, support = ws.step, ws.support
    if rank == n:
        for a in range(n):
            rest = _downhill(ws, support[a], alpha) - dot_row(ws.factor, a, step, a)
            step[a] = rest * ws.factor[a, a]
    else:
        for a in range(rank):
            step[a] = -ws.factor[rank, a]
        step[rank] = 1
    for a in range(rank - 1, -1, -1):
        step[a] *= ws.factor[a, a]
        add_row(step, -step[a], ws.factor, a, a)
    if rank == n:
        return n, alpha / alpha
    downhill = alpha * 0
    for a in range(rank + 1):
        downhill += step[a] * _downhill(ws, support[a], alpha)
    if downhill < 0:
        for a in range(rank + 1):
            step[a] = -step[a]
    return rank + 1, abs(downhill) / max(pivot, np.finfo(step.dtype).tiny)


@inlined
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


@inlined
def settle(ws, w, n, fresh, alpha, singular):
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
            add_row(ws.slope, old - new, ws.gram, j, w)
        if leaver < 0:
            return n, n
        fresh = _leave(ws, n, rank, leaver)
        n -= 1
    return 0, 0


@inlined
def enter(ws, w, n, alpha, positive, slack):
    """Let the most violating atoms of the working set enter the support."""
    tiny = np.finfo(ws.gram.dtype).tiny / np.finfo(ws.gram.dtype).eps
    entered = 0
    while entered < 1 + n // 8:
        top = largest(ws.slope, w, positive)
        if top <= alpha * (1 + slack):
            break
        j = position(ws.slope, w, top, positive)
        if j < 0 or ws.held[j]:  # on the support, violated by rounding alone
            break
        if ws.gram[j, j] <= tiny:  # hardly observed: its coefficient would overflow
            ws.slope[j] = 0
            continue
        shrunk = ws.slope[j] - alpha if ws.slope[j] > 0 else ws.slope[j] + alpha
        ws.code[j] = shrunk / ws.gram[j, j]
        add_row(ws.slope, -ws.code[j], ws.gram, j, w)
        ws.support[n + entered] = j
        ws.held[j] = True
        entered += 1
    return entered
