"""FISTA steps on chip: Triton kernels for GPUs.

Computes what `halfseen.solvers.fista.advance` computes. There, every step moves the codes
through device memory several times; here a block of rows is read once, takes all its steps with
the dictionary in shared memory, and is written once.

The steps multiply in float16, as tensor cores do fastest, with rows and atoms scaled into its
range. Gaps are as exact as in float32: there every factor is the sum of two halves. A call starts
from a gradient computed in that way too, and multiplies in float16 only how far the codes have
moved since; its error vanishes as they settle, from call to call.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from halfseen.coding import MaskedLasso
from halfseen.solvers.fista import State

_MOST_ATOMS, _MOST_FEATURES = 256, 512
_LARGEST_DICTIONARY = 256 * 256  # in float16 it takes 128 KiB of shared memory
_USUAL_SHARED = 48 * 2**10  # bytes that every GPU has
_OTHER_SHARED = 64 * 2**10  # bytes that the kernels need beside the dictionary, at most
_CHUNK = 64  # features; the least that four warps multiply without waste
_ROW_UNIT = tl.constexpr(64.0)  # what a row's norm becomes in float16
_ATOM_UNIT = tl.constexpr(1024.0)  # the largest atom's norm, so that second halves have room


def fits(dictionary: Tensor) -> bool:
    """Whether the kernels can take steps with this dictionary."""
    n_atoms, n_features = _padded(dictionary)
    small = n_atoms <= _MOST_ATOMS and n_features <= _MOST_FEATURES
    return dictionary.dtype == torch.float32 and small and n_atoms * n_features <= _room(dictionary)


def _room(dictionary: Tensor) -> int:
    """Return how many entries of a dictionary the shared memory of the device takes."""
    properties = torch.cuda.get_device_properties(dictionary.device)
    shared = getattr(properties, "shared_memory_per_block_optin", _USUAL_SHARED)
    return min(_LARGEST_DICTIONARY, (shared - _OTHER_SHARED) // 2)  # in float16


def advance(
    problem: MaskedLasso, state: State, lipschitz: float | Tensor, n_steps: int
) -> tuple[State, Tensor]:
    """Take `n_steps` steps of length 1/`lipschitz` on every row; also return the gaps.

    A gap is NaN where codes leave the range of float16, being thousands of times as large as
    one atom would need.
    """
    n_rows = len(problem.X)
    if isinstance(lipschitz, Tensor):
        length = (1 / lipschitz).flatten()
    else:
        length = problem.X.new_full((n_rows,), 1 / lipschitz)
    with torch.cuda.device(problem.X.device):
        kernels = _Kernels(problem)
        if n_steps > 0:
            slope = kernels.evaluate(state.codes)[1]
            state = kernels.take_steps(state, length, n_steps, slope)
        return state, kernels.evaluate(state.codes)[0]


class _Kernels:
    """Rows and dictionary, as the kernels read them."""

    def __init__(self, problem: MaskedLasso) -> None:
        dictionary = problem.dictionary
        (n_rows, n_features), n_atoms = problem.X.shape, len(dictionary)
        self.block_atoms, self.padded = _padded(dictionary)
        self.X, self.observed = problem.X.contiguous(), problem.observed.contiguous()
        self.alpha, self.positive = problem.alpha.contiguous(), problem.positive
        self.n_rows, self.n_features, self.n_atoms = n_rows, n_features, n_atoms
        self.size = dictionary.norm(dim=1).amax()
        atoms = dictionary.new_zeros(self.block_atoms, self.padded)
        atoms[:n_atoms, :n_features] = dictionary * (_ATOM_UNIT.value / self.size)
        self.high = atoms.half()
        self.low = (atoms - self.high).half()
        norm = torch.linalg.vector_norm(self.X, dim=1)
        self.unit = torch.where(norm > 0, _ROW_UNIT.value / norm, 1.0)

    def take_steps(self, state: State, length: Tensor, n_steps: int, slope: Tensor) -> State:
        """Return the state after some steps; `slope` is what `evaluate` says of its codes."""
        num_warps = 8 if self.block_atoms > 128 else 4
        # 32 numbers of each array in the registers of a thread.
        block_rows = min(64, 32 * num_warps * 32 // self.block_atoms)
        n_blocks = triton.cdiv(self.n_rows, block_rows)
        codes, ahead = state.codes.contiguous(), state.ahead.contiguous()
        new = State(*map(torch.empty_like, (codes, ahead, state.clock)))
        _take_steps[(n_blocks,)](
            self.observed, self.unit, self.high, self.size, self.alpha, length,
            codes, ahead, state.clock.contiguous(), slope,
            new.codes, new.ahead, new.clock, self.n_rows, self.n_features, self.n_atoms, n_steps,
            padded=self.padded, positive=self.positive,
            block_rows=block_rows, block_features=num_warps // 4 * _CHUNK,
            block_atoms=self.block_atoms, num_warps=num_warps, num_stages=1,
        )  # fmt: skip
        return new

    def evaluate(self, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gaps of codes, and how their residuals correlate with the atoms."""
        block_rows = max(16, min(64, 32 * 256 // self.block_atoms))
        gap, slope = torch.empty_like(self.alpha), torch.empty_like(codes)
        _evaluate[(triton.cdiv(self.n_rows, block_rows),)](
            self.X, self.observed, self.unit, self.high, self.low, self.size, self.alpha,
            codes.contiguous(), slope, gap, self.n_rows, self.n_features, self.n_atoms,
            padded=self.padded, positive=self.positive, block_rows=block_rows,
            block_features=_CHUNK, block_atoms=self.block_atoms, num_warps=4, num_stages=1,
        )  # fmt: skip
        return gap, slope


def _padded(dictionary: Tensor) -> tuple[int, int]:
    n_atoms = max(64, triton.next_power_of_2(dictionary.shape[0]))
    n_chunks = triton.cdiv(dictionary.shape[1], _CHUNK)
    # With many atoms and one chunk Triton 3.6 makes code that leaves its memory.
    return n_atoms, _CHUNK * (n_chunks if n_atoms <= 128 else max(2, n_chunks))


@triton.jit(do_not_specialize=["n_rows", "n_steps"])
def _take_steps(
    observed, unit, atoms_16, size, alpha, length, codes, ahead, clock, slope, new_codes,
    new_ahead, new_clock, n_rows, n_features, n_atoms, n_steps, padded: tl.constexpr,
    positive: tl.constexpr, block_rows: tl.constexpr,
    block_features: tl.constexpr, block_atoms: tl.constexpr,
):  # fmt: skip
    """Take steps; atoms are along the first axis, for tensor cores want a long one there."""
    atoms = tl.arange(0, block_atoms)
    rows = tl.program_id(0).to(tl.int64) * block_rows + tl.arange(0, block_rows)
    row_in = rows < n_rows
    of_codes = rows[None, :] * n_atoms + atoms[:, None]
    codes_in = row_in[None, :] & (atoms < n_atoms)[:, None]
    scale, atom_size = tl.load(unit + rows, row_in, 1.0), tl.load(size)
    step = tl.load(length + rows, row_in, 0.0)
    threshold = (tl.load(alpha + rows, row_in, 1.0) * step * scale * atom_size)[None, :]
    step = (step * atom_size * (atom_size / _ATOM_UNIT))[None, :]
    scale = (scale * atom_size)[None, :]
    code = tl.load(codes + of_codes, codes_in, 0.0) * scale
    point = tl.load(ahead + of_codes, codes_in, 0.0) * scale
    time = tl.load(clock + rows, row_in, 1.0)

    kept = ()
    for start in tl.static_range(0, padded, block_features):
        some = start + tl.arange(0, min(block_features, padded - start))
        loaded = tl.load(atoms_16 + atoms[:, None] * padded + some[None, :])
        kept = kept + (loaded,)  # type: ignore[assignment]  # noqa: RUF005

    base = code
    of_base = _ATOM_UNIT / (atom_size * atom_size)
    base_descent = tl.load(slope + of_codes, codes_in, 0.0) * (scale * of_base)

    for _ in range(n_steps):
        short = (point - base).to(tl.float16)
        descent = base_descent
        for start in tl.static_range(0, padded, block_features):
            some = start + tl.arange(0, min(block_features, padded - start))
            inside = row_in[None, :] & (some < n_features)[:, None]
            seen = tl.load(observed + rows[None, :] * n_features + some[:, None], inside, 0)
            atom = kept[start // block_features]  # type: ignore[var-annotated]
            change = tl.dot(tl.trans(atom), short) * (-1 / _ATOM_UNIT)
            change = tl.where(seen != 0, change, 0.0)
            descent = tl.dot(atom, change.to(tl.float16), descent)
        moved = point + step * descent
        if positive:
            new = tl.maximum(moved - threshold, 0.0)
        else:
            new = moved - tl.minimum(tl.maximum(moved, -threshold), threshold)
        move = new - code
        uphill = tl.sum((point - new) * move, axis=0) > 0
        time = tl.where(uphill, 1.0, time)
        next_time = (1 + tl.sqrt(1 + 4 * time * time)) / 2
        point = new + ((time - 1) / next_time)[None, :] * move
        code = new
        time = next_time

    tl.store(new_codes + of_codes, code / scale, codes_in)
    tl.store(new_ahead + of_codes, point / scale, codes_in)
    tl.store(new_clock + rows, time, row_in)


@triton.jit
def _halves(values):
    high = values.to(tl.float16)
    return high, (values - high.to(tl.float32)).to(tl.float16)


@triton.jit(do_not_specialize=["n_rows"])
def _evaluate(
    X, observed, unit, atoms_high, atoms_low, size, alpha, codes, slope, gap, n_rows,
    n_features, n_atoms, padded: tl.constexpr, positive: tl.constexpr,
    block_rows: tl.constexpr, block_features: tl.constexpr, block_atoms: tl.constexpr,
):  # fmt: skip
    atoms = tl.arange(0, block_atoms)
    rows = tl.program_id(0).to(tl.int64) * block_rows + tl.arange(0, block_rows)
    row_in = rows < n_rows
    of_codes = rows[None, :] * n_atoms + atoms[:, None]
    codes_in = row_in[None, :] & (atoms < n_atoms)[:, None]
    scale, atom_size = tl.load(unit + rows, row_in, 1.0), tl.load(size)
    code = tl.load(codes + of_codes, codes_in, 0.0) * (scale * atom_size)[None, :]
    code_high, code_low = _halves(code)
    l1_norm = tl.sum(tl.abs(code), axis=0)
    correlation = tl.zeros([block_atoms, block_rows], tl.float32)
    r_square = tl.zeros([block_rows], tl.float32)
    r_x = tl.zeros([block_rows], tl.float32)
    x_square = tl.zeros([block_rows], tl.float32)
    for start in range(0, padded, block_features):
        features = start + tl.arange(0, block_features)
        inside = row_in[None, :] & (features < n_features)[:, None]
        of_X = rows[None, :] * n_features + features[:, None]
        x = tl.load(X + of_X, inside, 0.0) * scale[None, :]
        seen = tl.load(observed + of_X, inside, 0).to(tl.float32)
        of_atoms = atoms[:, None] * padded + features[None, :]
        high, low = tl.load(atoms_high + of_atoms), tl.load(atoms_low + of_atoms)
        fit = tl.dot(tl.trans(high), code_low)
        fit = tl.dot(tl.trans(low), code_high, fit)
        fit = tl.dot(tl.trans(high), code_high, fit)
        residual = (x - fit * (1 / _ATOM_UNIT)) * seen
        r_square += tl.sum(residual * residual, axis=0)
        r_x += tl.sum(residual * x, axis=0)
        x_square += tl.sum(x * x, axis=0)
        r_high, r_low = _halves(residual)
        correlation = tl.dot(high, r_low, correlation)
        correlation = tl.dot(low, r_high, correlation)
        correlation = tl.dot(high, r_high, correlation)
    correlation = correlation * (1 / _ATOM_UNIT)
    if positive:
        top = tl.maximum(tl.max(correlation, axis=0), 0.0)
    else:
        top = tl.max(tl.abs(correlation), axis=0)
    weight = tl.load(alpha + rows, row_in, 1.0) * scale / atom_size
    dual_scale = tl.where(r_square > 0, tl.maximum(r_x, 0.0) / r_square, 0.0)
    dual_scale = tl.where(dual_scale * top > weight, weight / top, dual_scale)
    primal = r_square / 2 + weight * l1_norm
    rest = primal - (dual_scale * r_x - dual_scale * dual_scale * r_square / 2)
    rest = tl.where(rest < 0, 0.0, rest)  # NaN stays NaN, which tl.maximum would hide
    tl.store(gap + rows, tl.where(rest == 0, 0.0, rest / (x_square / 2)), row_in)
    tl.store(slope + of_codes, correlation * (atom_size / scale)[None, :], codes_in)
