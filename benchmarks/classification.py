"""Accuracy beside what people use: digits, the paper's synthetic data, tables.

    python benchmarks/classification.py ROWS.jsonl [--tables DIR] [--only digits] [--jobs 2]
    python benchmarks/classification.py ROWS.jsonl --only digits --small         # one seed

Every method has the defaults of the library and, where it has a network, the same optimiser,
schedule and number of steps; nothing is chosen on test samples.

- digits: half of the pixels hidden, in training and test. The test part is not the one that
  `defaults.py` compares settings on; seeds draw the holes and everything random in training.
- planted (paper, section 3): 10,000 + 1,000 sums of 4 of 200 random atoms in 100 dimensions,
  classes by a random hyperplane; half of the training entries hidden, tested complete. "halfseen,
  tuned" chooses the way of training and λ2 by validation on a fifth of the training samples.
- tables: 5-fold cross-validation, twice, on tables as they are.

One row per fit goes to a file; rows that are there already are skipped.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the jobs share the cores

import numpy as np
import pandas as pd
import torch
from cells import run_cells
from sklearn.model_selection import GridSearchCV, ShuffleSplit, StratifiedKFold, train_test_split

from halfseen import SparseCodingClassifier, ampute, rivals
from halfseen.datasets import digits, synthetic, table

TUNED = {"training": ["task", "sequential"], "lambda_l1": [25.0, 50.0]}  # 50 is the default here
PLANTED = (
    "ZF",
    "MU",
    "MS",
    "KNN10",
    "Seq. Sp.",
    "NN-GMM",
    "NeuMiss",
    "halfseen",
    "halfseen, tuned",
)


def methods(network: str, **training) -> dict:
    made = {
        **rivals.of_the_paper(network, **training),
        **rivals.usual(network, **training),
        "halfseen": SparseCodingClassifier(network, **training),
    }
    del made["mean fill"]  # that is MU
    return made


def cells(tables: Path | None) -> list[dict]:
    made = []
    for seed in range(5):
        for network in ("logistic", "mlp"):
            made += [
                {"data": "digits", "method": method, "network": network, "seed": seed}
                for method in methods(network)
                if network == "logistic" or method != "gradient boosting"
            ]
        made += [
            {"data": "planted", "method": method, "network": "logistic", "seed": seed}
            for method in PLANTED
        ]
    for path in sorted(tables.glob("*.csv")) if tables else []:
        made += [
            {"data": path.stem, "method": method, "network": network, "seed": seed}
            for seed in range(10)
            for network in ("logistic", "mlp")
            for method in ("MU", *rivals.usual(), "halfseen")
            if method != "mean fill" and (network == "logistic" or method != "gradient boosting")
        ]
    return made


def arrays(cell: dict, tables: Path | None) -> tuple[np.ndarray, ...]:
    """Return training and test samples and their labels."""
    seed = cell["seed"]
    if cell["data"] == "digits":
        X, y = digits()
        X = ampute(X.reshape(len(X), -1), "random", 0.5, random_state=seed)
        return train_test_split(X, y, test_size=0.25, random_state=2026, stratify=y)
    if cell["data"] == "planted":
        X, y, *_ = synthetic(random_state=seed)
        train = ampute(X[:10_000], "random", 0.5, random_state=seed)
        return train, X[10_000:], y[:10_000], y[10_000:]
    frame, y = table(tables / f"{cell['data']}.csv", "label")
    X = frame.to_numpy()
    folds = StratifiedKFold(5, shuffle=True, random_state=seed // 5).split(X, y)
    train, test = list(folds)[seed % 5]
    return X[train], X[test], y[train], y[test]


def make(cell: dict):
    """Return the unfitted classifier of a cell."""
    name, seed = cell["method"].removesuffix(", tuned"), cell["seed"]
    clf = methods(cell["network"], device="cpu", random_state=seed)[name]
    if cell["data"] == "planted" and isinstance(clf, SparseCodingClassifier):
        clf.set_params(n_atoms=200)
    if cell["method"].endswith("tuned"):
        clf = GridSearchCV(clf, TUNED, cv=ShuffleSplit(1, test_size=0.2, random_state=seed))
    return clf


def fit_cell(cell: dict, tables: Path | None) -> dict:
    torch.set_num_threads(1)
    train, test, y_train, y_test = arrays(cell, tables)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # IterativeImputer: not converged
        start = time.perf_counter()
        accuracy = make(cell).fit(train, y_train).score(test, y_test)
    return {**cell, "accuracy": accuracy, "seconds": round(time.perf_counter() - start, 2)}


def summary(rows: list[dict]) -> str:
    frame = pd.DataFrame(rows)
    frame["accuracy"] *= 100
    groups = frame.groupby(["data", "network", "method"])
    table = groups["accuracy"].agg(["mean", "sem", "count"])
    table["seconds"] = groups["seconds"].median()
    return table.round(2).to_string()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path)
    parser.add_argument("--tables", type=Path, help="folder with the CSV tables")
    parser.add_argument("--only", help="one data set")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="one seed, logistic regression")
    arguments = parser.parse_args()
    only = arguments.only
    chosen = [cell for cell in cells(arguments.tables) if only in (None, cell["data"])]
    if arguments.small:
        chosen = [c for c in chosen if c["seed"] == 0 and c["network"] == "logistic"]
    rows = run_cells(chosen, fit_cell, arguments.rows, arguments.jobs, arguments.tables)
    print(summary(rows))


if __name__ == "__main__":
    main()
