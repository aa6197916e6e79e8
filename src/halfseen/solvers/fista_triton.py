"""FISTA steps with rows, codes and dictionary kept on chip: a Triton kernel for GPUs.

Computes what `halfseen.solvers.fista.advance` computes. There, every step moves the codes
through device memory several times; here a block of rows is read once, takes all its steps,
and is written once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from halfseen.coding import MaskedLasso
from halfseen.solvers.fista import State

# What one block may hold: the dictionary in shared memory, codes of its rows in registers.
_LARGEST_DICTIONARY = 128 * 128
_CODES_PER_BLOCK = 128 * 128


def fits(dictionary: torch.Tensor) -> bool:
    """Whether the kernel can take steps with this dictionary."""
    n_atoms, n_features = (_padded(size) for size in dictionary.shape)
    return dictionary.dtype == torch.float32 and n_atoms * n_features <= _LARGEST_DICTIONARY


def advance(
    problem: MaskedLasso, state: State, lipschitz: float, n_steps: int
) -> tuple[State, torch.Tensor]:
    """Take `n_steps` steps of length 1/`lipschitz` on every row; also return the gaps."""
    n_rows, n_features = problem.X.shape
    block_atoms, block_features = (_padded(size) for size in problem.dictionary.shape)
    block_rows = max(16, min(128, _CODES_PER_BLOCK // max(block_atoms, block_features)))
    codes, ahead = state.codes.clone(), state.ahead.clone()
    clock, gap = state.clock.clone(), torch.empty_like(problem.alpha)
    with torch.cuda.device(codes.device):
        _advance[(triton.cdiv(n_rows, block_rows),)](
            problem.X.contiguous(),
            problem.observed.contiguous(),
            problem.dictionary.contiguous(),
            problem.alpha.contiguous(),
            codes,
            ahead,
            clock,
            gap,
            n_rows,
            n_features,
            len(problem.dictionary),
            1 / lipschitz,
            n_steps,
            positive=problem.positive,
            block_rows=block_rows,
            block_features=block_features,
            block_atoms=block_atoms,
            num_warps=8,
        )
    return State(codes, ahead, clock), gap


def _padded(size: int) -> int:
    return max(16, triton.next_power_of_2(size))


@triton.jit
def _advance(
    X, observed, dictionary, alpha, codes, ahead, clock, gap, n_rows, n_features,
    n_atoms, step_size, n_steps, positive: tl.constexpr, block_rows: tl.constexpr,
    block_features: tl.constexpr, block_atoms: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * block_rows + tl.arange(0, block_rows)
    features = tl.arange(0, block_features)
    atoms = tl.arange(0, block_atoms)
    row_in, feature_in, atom_in = rows < n_rows, features < n_features, atoms < n_atoms

    of_X = rows[:, None] * n_features + features[None, :]
    X_in = row_in[:, None] & feature_in[None, :]
    of_codes = rows[:, None] * n_atoms + atoms[None, :]
    codes_in = row_in[:, None] & atom_in[None, :]
    x = tl.load(X + of_X, X_in, 0.0)
    seen = tl.load(observed + of_X, X_in, 0).to(tl.float32)
    atom = tl.load(
        dictionary + atoms[:, None] * n_features + features[None, :],
        atom_in[:, None] & feature_in[None, :],
        0.0,
    )
    weight = tl.load(alpha + rows, row_in, 1.0)
    threshold = weight[:, None] * step_size
    code = tl.load(codes + of_codes, codes_in, 0.0)
    point = tl.load(ahead + of_codes, codes_in, 0.0)
    time = tl.load(clock + rows, row_in, 1.0)

    for _ in range(n_steps):
        residual = (x - tl.dot(point, atom, input_precision="tf32x3")) * seen
        moved = point + step_size * tl.dot(residual, tl.trans(atom), input_precision="tf32x3")
        if positive:
            new = tl.maximum(moved - threshold, 0.0)
        else:
            new = moved - tl.minimum(tl.maximum(moved, -threshold), threshold)
        move = new - code
        uphill = tl.sum((point - new) * move, axis=1) > 0
        time = tl.where(uphill, 1.0, time)
        next_time = (1 + tl.sqrt(1 + 4 * time * time)) / 2
        point = new + ((time - 1) / next_time)[:, None] * move
        code = new
        time = next_time

    residual = (x - tl.dot(code, atom, input_precision="tf32x3")) * seen
    correlation = tl.dot(residual, tl.trans(atom), input_precision="tf32x3")
    if positive:
        top = tl.maximum(tl.max(correlation, axis=1), 0.0)
    else:
        top = tl.max(tl.abs(correlation), axis=1)
    r_square = tl.sum(residual * residual, axis=1)
    r_x = tl.sum(residual * x, axis=1)
    scale = tl.where(r_square > 0, tl.maximum(r_x, 0.0) / r_square, 0.0)
    scale = tl.where(scale * top > weight, weight / top, scale)
    primal = r_square / 2 + weight * tl.sum(tl.abs(code), axis=1)
    dual = scale * r_x - scale * scale * r_square / 2
    rest = primal - dual
    rest = tl.where(rest < 0, 0.0, rest)  # NaN stays NaN, which tl.maximum would hide
    rest = tl.where(rest == 0, 0.0, rest / (tl.sum(x * x, axis=1) / 2))

    tl.store(gap + rows, rest, row_in)
    tl.store(codes + of_codes, code, codes_in)
    tl.store(ahead + of_codes, point, codes_in)
    tl.store(clock + rows, time, row_in)
