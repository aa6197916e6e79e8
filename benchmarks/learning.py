"""Dictionary learning from incomplete rows: error on the holes and time, beside imputers.

Planted rows (4 of 200 atoms in 100 dimensions, as in the paper's synthetic data) and
scikit-learn's digits; entries missing at random; errors are squared errors on the holes
relative to mean fill, over several seeds. On the planted rows the imputers of scikit-learn
take minutes, so they get the first seed only.

    python benchmarks/learning.py [--seeds 5] [--device cuda]
    python benchmarks/learning.py --small               # digits, half missing, one seed
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer

from halfseen import SparseCodingImputer


def planted(seed, n_rows=10_000, n_features=100, n_atoms=200, n_used=4):
    random = np.random.default_rng(seed)
    dictionary = random.standard_normal((n_atoms, n_features))
    dictionary /= np.linalg.norm(dictionary, axis=1, keepdims=True)
    used = random.random((n_rows, n_atoms)).argpartition(n_used, axis=1)[:, :n_used]
    codes = np.zeros((n_rows, n_atoms))
    np.put_along_axis(codes, used, random.standard_normal((n_rows, n_used)), axis=1)
    return codes @ dictionary


def score(imputer, X, holes):
    """Return the error on the holes relative to mean fill, and the seconds it took."""
    incomplete = np.where(holes, np.nan, X)
    start = time.perf_counter()
    completed = imputer.fit_transform(incomplete)
    seconds = time.perf_counter() - start
    mean = np.broadcast_to(np.nanmean(incomplete, axis=0), X.shape)
    error = np.square(completed - X)[holes].sum() / np.square(mean - X)[holes].sum()
    return error, seconds


def systems(data, device, seed):
    ours = {"device": device, "random_state": seed}
    if data == "planted":
        yield "halfseen, 200 atoms, alpha 0.05", SparseCodingImputer(200, alpha=0.05, **ours)
        yield "halfseen, 200 atoms", SparseCodingImputer(200, **ours)
    else:
        yield "halfseen, defaults", SparseCodingImputer(**ours)
        yield "halfseen, positive codes", SparseCodingImputer(positive=True, **ours)
    if data == "digits" or seed == 0:
        yield "KNNImputer", KNNImputer()
        yield "IterativeImputer", IterativeImputer(random_state=seed)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--small", action="store_true", help="digits, half missing, one seed")
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)  # of IterativeImputer
    SparseCodingImputer(n_steps=1, device=args.device).fit(np.eye(4))  # compiles
    print("| data | missing | system | error, mean fill = 1 | seeds | seconds |")
    print("|---|---|---|---|---|---|")
    for data in ("digits",) if args.small else ("planted", "digits"):
        for missing in (0.5,) if args.small else (0.25, 0.5, 0.75):
            results: dict[str, list] = {}
            for seed in range(1 if args.small else args.seeds):
                X = planted(seed) if data == "planted" else load_digits().data
                holes = np.random.default_rng(seed).random(X.shape) < missing
                for name, imputer in systems(data, args.device, seed):
                    results.setdefault(name, []).append(score(imputer, X, holes))
            for name, rows in results.items():
                errors, seconds = np.array(rows).T
                spread = ""
                if len(errors) > 1:
                    spread = f" ± {errors.std(ddof=1) / np.sqrt(len(errors)):.3f}"
                print(
                    f"| {data} | {missing:.0%} | {name} | {errors.mean():.3f}{spread} | "
                    f"{len(errors)} | {np.median(seconds):.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
