"""The rivals on MNIST with CNN4, and how long class-wise neighbours take.

    python benchmarks/rivals.py mnist ROWS.jsonl --data FOLDER [--jobs 6] [--seeds 3]
    python benchmarks/rivals.py dropout ROWS.jsonl --data FOLDER
    python benchmarks/rivals.py neighbours --data FOLDER
    python benchmarks/rivals.py neighbours --small           # digits instead of MNIST

- mnist (as in table 1 of the paper): half or three quarters of the pixels of all 60,000 training
  images hidden at random; tested on the 10,000 test images complete, as in the paper, and with
  as many pixels hidden. All with the defaults of the library, 10 epochs, and also without hiding
  (`hide=0`); nothing is chosen on test images. KNNImputer and IterativeImputer are left out: they
  would take days.
- dropout: logistic regression on complete images with dropout at the input, the paper's control.
- neighbours: seconds and peak memory of filling 60,000 × 784 with 75% missing from neighbours of
  the same class, in a process of its own.

One row per fit goes to a file; rows that are there already are skipped. `--data` is the folder
with mnist.npz.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import pandas as pd
import torch
from cells import run_cells

from halfseen import ampute, rivals
from halfseen.datasets import digits, mnist

METHODS = {
    **{name: make for name, make in rivals.of_the_paper("cnn4").items() if name != "Seq. Sp."},
    "mean + indicator": rivals.mean_and_indicator("cnn4"),
    "NeuMiss": rivals.neumiss("cnn4"),
}
DROPOUTS = (0.0, 0.1, 0.25)


def cells(experiment: str, seeds: int) -> list[dict]:
    if experiment == "dropout":
        return [
            {"method": "complete", "network": "logistic", "dropout": dropout, "seed": seed}
            for seed in range(seeds)
            for dropout in DROPOUTS
        ]
    made = [{"method": "complete", "rate": 0.0, "seed": s, "hide": 0.0} for s in range(seeds)]
    return made + [
        {"method": method, "rate": rate, "seed": seed, "hide": hide}
        for hide in (0.25, 0.0)
        for seed in range(seeds)
        for rate in (0.5, 0.75)
        for method in METHODS
    ]


def fit_cell(cell: dict, folder: Path) -> dict:
    torch.set_num_threads(2)
    X_train, y_train, X_test, y_test = mnist(folder)
    rate, seed = cell.get("rate", 0.0), cell["seed"]
    train, test = (
        ampute(X, "random", rate, random_state=2 * seed + part)
        for part, X in enumerate((X_train, X_test))
    )
    if cell["method"] == "complete":
        network = cell.get("network", "cnn4")
        clf = rivals.complete_data(network, cell.get("dropout", 0.0), random_state=seed)
    else:
        clf = METHODS[cell["method"]].set_params(random_state=seed, hide=cell["hide"])
    start = time.perf_counter()
    clf.fit(train, y_train)
    seconds = time.perf_counter() - start
    return {
        **cell,
        "accuracy_complete": clf.score(X_test, y_test),
        "accuracy_incomplete": clf.score(test, y_test),
        "seconds": round(seconds, 2),
        "device": next(clf.module_.parameters()).device.type,
    }


def neighbours(loaded: tuple) -> None:
    """Print seconds and peak memory of class-wise neighbours."""
    X, y = loaded
    X = ampute(X, "random", 0.75, random_state=0).reshape(len(X), -1)
    loaded = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    rivals.ClassKNNImputer(10).fit_transform(X[:500], y[:500])  # compiles, starts the GPU
    for n_neighbors in (10, 20, 50, 100):
        start = time.perf_counter()
        rivals.ClassKNNImputer(n_neighbors).fit_transform(X, y)
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        line = f"k = {n_neighbors}: {seconds:.1f} s, peak {peak:.2f} GiB ({loaded:.2f} before)"
        if torch.cuda.is_available():
            line += f", {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB on the GPU"
        print(line, flush=True)


def summary(rows: list[dict]) -> str:
    frame = pd.DataFrame(rows)
    keys = [key for key in ("rate", "dropout", "method", "hide") if key in frame]
    scores = [key for key in frame if key.startswith("accuracy")]
    frame[scores] *= 100
    groups = frame.groupby(keys, sort=False)
    table = groups[scores].agg(["mean", "sem"])
    table["n"] = groups.size()
    table["seconds"] = groups["seconds"].median()
    return table.round(2).to_string()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment", choices=["mnist", "dropout", "neighbours"])
    parser.add_argument("rows", type=Path, nargs="?")
    parser.add_argument("--data", type=Path, help="folder with mnist.npz")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="neighbours: digits, not MNIST")
    arguments = parser.parse_args()
    if arguments.experiment == "neighbours":
        neighbours(digits() if arguments.small else mnist(arguments.data)[:2])
        return
    chosen = cells(arguments.experiment, arguments.seeds)
    rows = run_cells(chosen, fit_cell, arguments.rows, arguments.jobs, arguments.data)
    print(summary(rows))


if __name__ == "__main__":
    main()
