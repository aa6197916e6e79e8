"""Masked sparse coding: halfseen, SPAMS and scikit-learn on the same problems in one run.

Every system solves min ½‖observed ⊙ (x − s·dictionary)‖² + alpha_i·‖s‖₁ for every row. SPAMS
multiplies its lambda by the observed fraction of the row, so halfseen and scikit-learn get
alpha_i = lambda · fraction_i. The gap column is computed from each system's codes in float64
by the same function; SPAMS follows the exact path and has no tolerance to set.

    python benchmarks/coding.py                 # CPU, three shapes
    python benchmarks/coding.py --small         # one shape, one lambda, once
    python benchmarks/coding.py --gpu           # also the first shape with 2 million rows
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import numpy as np
import torch

from halfseen import sparse_encode
from halfseen.coding import MaskedLasso

# rows, features, atoms, share missing
SHAPES = [(20_000, 64, 128, 0.75), (5_000, 100, 200, 0.5), (1_000, 784, 784, 0.75)]
LAMBDAS = (0.02, 0.05, 0.15)
TOL = 1e-4
LASSO_ROWS = 200  # scikit-learn codes this many rows, its time is scaled up


def make_problem(n_rows, n_features, n_atoms, missing, seed=0):
    """Rows of four random atoms with noise, entries missing at random."""
    random = np.random.default_rng(seed)
    dictionary = random.standard_normal((n_atoms, n_features))
    dictionary /= np.linalg.norm(dictionary, axis=1, keepdims=True)
    X = 0.01 * random.standard_normal((n_rows, n_features))
    for _ in range(4):
        atoms = random.integers(n_atoms, size=n_rows)
        X += random.standard_normal((n_rows, 1)) * dictionary[atoms]
    X[random.random(X.shape) < missing] = np.nan
    return X, dictionary


def largest_gap(X, dictionary, alpha, codes):
    """Return the largest relative duality gap over the rows, in float64."""
    observed = torch.from_numpy(~np.isnan(X))
    problem = MaskedLasso(
        torch.from_numpy(np.nan_to_num(X)),
        observed,
        torch.from_numpy(dictionary),
        torch.from_numpy(alpha),
    )
    return problem.relative_gap(torch.from_numpy(codes.astype(np.float64))).max().item()


def timed(function, repeats):
    """Return the median time of some calls, after one that warms up, and the last result."""
    result, seconds = function(), []
    for _ in range(repeats):
        start = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), result


def spams_coder(X, dictionary, lam):
    import spams

    columns = np.asfortranarray(np.nan_to_num(X).T)
    atoms = np.asfortranarray(dictionary.T)
    observed = np.asfortranarray(~np.isnan(X).T)
    return lambda: spams.lassoMask(columns, atoms, observed, lambda1=lam, mode=2, numThreads=2)


def sklearn_coder(X, dictionary, alpha):
    from sklearn.linear_model import Lasso

    def code():
        codes = np.zeros((len(X), len(dictionary)))
        for row, (x, weight) in enumerate(zip(X, alpha, strict=True)):
            seen = ~np.isnan(x)
            model = Lasso(weight / seen.sum(), fit_intercept=False, tol=TOL / 2, max_iter=100_000)
            codes[row] = model.fit(dictionary[:, seen].T, x[seen]).coef_
        return codes

    return code


def compare_on_cpu(shape, lam, repeats):
    X, dictionary = make_problem(*shape)
    alpha = lam * (~np.isnan(X)).mean(1)
    peer, codes = timed(spams_coder(X, dictionary, lam), repeats)
    dense = codes.toarray().T
    nonzero = codes.nnz / len(X)
    yield (
        "SPAMS lassoMask, 2 threads",
        peer,
        peer,
        largest_gap(X, dictionary, alpha, dense),
        nonzero,
    )
    for name, values in (("halfseen cd, float64", X), ("halfseen cd, float32", X.astype("f4"))):
        seconds, codes = timed(
            lambda values=values: sparse_encode(
                values, dictionary, alpha, tol=TOL, solver="cd", device="cpu"
            ),
            repeats,
        )
        gap = largest_gap(X, dictionary, alpha, codes)
        yield name, seconds, peer, gap, (codes != 0).sum(1).mean()
    few = X[:LASSO_ROWS]
    seconds, codes = timed(sklearn_coder(few, dictionary, alpha[:LASSO_ROWS]), 1)
    yield (
        f"scikit-learn Lasso (scaled from {LASSO_ROWS} rows)",
        seconds * len(X) / len(few),
        peer,
        largest_gap(few, dictionary, alpha[:LASSO_ROWS], codes),
        (codes != 0).sum(1).mean(),
    )


def compare_on_gpu(shape, lam, repeats):
    X, dictionary = make_problem(*shape)
    alpha = lam * (~np.isnan(X)).mean(1)
    some = slice(0, 50_000)
    coder = spams_coder(X, dictionary, lam)
    start = time.perf_counter()
    codes = coder()
    peer = time.perf_counter() - start
    dense = codes[:, some].toarray().T
    gap = largest_gap(X[some], dictionary, alpha[some], dense)
    yield "SPAMS lassoMask, 2 threads", peer, peer, gap, codes.nnz / len(X)
    del codes
    narrow = X.astype(np.float32)
    resident = [
        torch.as_tensor(a, dtype=torch.float32, device="cuda") for a in (X, dictionary, alpha)
    ]

    def on_device():
        codes = sparse_encode(*resident, tol=TOL)
        torch.cuda.synchronize()
        return codes

    seconds, codes = timed(on_device, repeats)
    gap = largest_gap(X[some], dictionary, alpha[some], codes[some].cpu().numpy())
    yield (
        "halfseen fista, tensors on the GPU",
        seconds,
        peer,
        gap,
        (codes != 0).sum(1).float().mean().item(),
    )
    del codes
    seconds, codes = timed(
        lambda: sparse_encode(narrow, dictionary, alpha, tol=TOL, device="cuda"), repeats
    )
    gap = largest_gap(X[some], dictionary, alpha[some], codes[some])
    yield "halfseen fista, numpy in and out", seconds, peer, gap, (codes != 0).sum(1).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="one shape, one lambda, once")
    parser.add_argument("--gpu", action="store_true", help="the first shape on a CUDA device")
    parser.add_argument("--gpu-rows", type=int, default=2_000_000)
    parser.add_argument("--lambdas", type=float, nargs="+", default=LAMBDAS)
    args = parser.parse_args()
    if args.small:
        args.repeats, args.lambdas = 1, LAMBDAS[1:2]
    print(f"torch {torch.__version__}, {os.cpu_count()} CPU cores, tol {TOL:g}")
    print("| rows × features → atoms, missing | lambda | system | seconds | SPAMS / it | "
          "largest gap | non-zeros |")  # fmt: skip
    print("|---|---|---|---|---|---|---|")
    jobs = [(compare_on_cpu, shape) for shape in (SHAPES[:1] if args.small else SHAPES)]
    if args.gpu:
        jobs = [(compare_on_gpu, (args.gpu_rows, *SHAPES[0][1:]))]
    for compare, shape in jobs:
        for lam in args.lambdas:
            for name, seconds, peer, gap, nonzero in compare(shape, lam, args.repeats):
                rows, features, atoms, missing = shape
                print(
                    f"| {rows:,} × {features} → {atoms}, {missing:.0%} | {lam:g} | {name} | "
                    f"{seconds:.3f} | {peer / seconds:.2f} | {gap:.1e} | {nonzero:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
