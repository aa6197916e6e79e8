"""Does second-order information pay in a code step? Gap of the lasso after a few steps.

The paper names a diagonal approximation of the Hessian as future work. Compared here, all with
FISTA's momentum and restarts, from codes of zero:

- one step size: 1/L, L the squared spectral norm of the dictionary;
- per row: 1/L of the row's own masked dictionary (what FISTA does in halfseen, L guessed by power
  steps);
- diagonal: every coefficient has its own step, 1 / Σ_k |H_jk| with H the row's Hessian. The sum
  makes it a bound; the diagonal alone is none, and steps with it diverge;
- diagonal, unsafe: half the step 1 / H_jj, for the record.

    python benchmarks/code_steps.py
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits

from halfseen import SparseCodingImputer
from halfseen.coding import MaskedLasso
from halfseen.solvers.fista import soft_threshold

LOOKS = (4, 8, 16, 32, 64, 128)
N_ROWS = 1000


def problems() -> dict[str, MaskedLasso]:
    random = np.random.default_rng(0)
    X = load_digits().data
    X = (X - X.mean(0)) / X.std()
    observed = random.random(X.shape) >= 0.5
    learned = SparseCodingImputer(random_state=0).fit(np.where(observed, X, np.nan))
    made = {"digits, learned atoms": (X[:N_ROWS], observed[:N_ROWS], learned.components_)}
    atoms = random.standard_normal((200, 100))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    codes = random.standard_normal((N_ROWS, 200)) * (random.random((N_ROWS, 200)) < 0.02)
    seen = random.random((N_ROWS, 100)) >= 0.5
    made["planted, Gaussian atoms"] = (5 * codes @ atoms, seen, atoms)
    return {
        name: MaskedLasso(
            torch.from_numpy(X * observed),
            torch.from_numpy(observed),
            torch.from_numpy(atoms),
            torch.full((len(X),), 0.5, dtype=torch.float64),
        )
        for name, (X, observed, atoms) in made.items()
    }


def curvatures(problem: MaskedLasso) -> dict[str, torch.Tensor]:
    """Return what the gradient is divided by, shape (n_rows, n_atoms) or broadcastable."""
    D, seen = problem.dictionary, problem.observed.double()
    hessians = torch.einsum("jm,im,km->ijk", D, seen, D)
    return {
        "one step size": torch.linalg.matrix_norm(D, 2).square().reshape(1, 1),
        "per row": torch.linalg.eigvalsh(hessians)[:, -1:],
        "diagonal": hessians.abs().sum(2),
        "diagonal, unsafe": 2 * torch.diagonal(hessians, dim1=1, dim2=2),
    }


def gaps(problem: MaskedLasso, curvature: torch.Tensor) -> list[float]:
    """Return the mean relative gap after each number of steps in LOOKS."""
    codes = ahead = problem.X.new_zeros(len(problem.X), len(problem.dictionary))
    clock = problem.X.new_ones(len(codes), 1)
    found = []
    for step in range(1, max(LOOKS) + 1):
        descent = problem.residual(ahead) @ problem.dictionary.T
        new = soft_threshold(ahead + descent / curvature, problem.alpha[:, None] / curvature)
        move = new - codes
        uphill = (curvature * (ahead - new) * move).sum(1, keepdim=True) > 0
        clock = torch.where(uphill, 1.0, clock)
        next_clock = (1 + (1 + 4 * clock.square()).sqrt()) / 2
        ahead = new + (clock - 1) / next_clock * move
        codes, clock = new, next_clock
        if step in LOOKS:
            found.append(problem.relative_gap(codes).mean().item())
    return found


def main() -> None:
    for name, problem in problems().items():
        print(f"{name:26}" + "".join(f"{look:>6} steps" for look in LOOKS))
        for way, curvature in curvatures(problem).items():
            print(f"  {way:24}" + "".join(f"{gap:12.1e}" for gap in gaps(problem, curvature)))


if __name__ == "__main__":
    main()
