"""Accuracy beside what people use: digits, the paper's planted data, tables.

    python benchmarks/classification.py ROWS.jsonl [--tables DIR] [--only digits] [--jobs 2]

- digits: half of the pixels hidden, in training and test. The test part is not the one that
  `defaults.py` compares settings on; seeds draw the holes and everything random in training.
  Every imputer feeds the same network, trained by the same optimiser and schedule,
  once to the end and once stopped early by validation; logistic regression also
  by scikit-learn with its strength chosen by cross-validation. The best of these
  counts for the imputer.
- planted (paper, section 4): 10,000 + 1,000 sums of 4 of 200 random atoms in 100 dimensions,
  classes by a random hyperplane; half of the training entries hidden, tested complete.
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
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.model_selection import (
    GridSearchCV,
    ShuffleSplit,
    StratifiedKFold,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from halfseen import SparseCodingClassifier

IMPUTERS = {
    "zero fill": lambda: SimpleImputer(strategy="constant", fill_value=0.0),
    "mean fill": lambda: SimpleImputer(),
    "mean fill + indicator": lambda: SimpleImputer(add_indicator=True),
    "KNNImputer": lambda: KNNImputer(),
    "IterativeImputer": lambda: IterativeImputer(max_iter=10, random_state=0),
}
TUNED = {"training": ["task", "sequential"], "lambda_l1": [25.0, 50.0]}  # 50 is the default here
STRENGTHS = np.logspace(-3, 1, 5)


def cells(tables: Path | None) -> list[dict]:
    made = []
    for seed in range(5):
        made += [{"data": "digits", "method": "HistGradientBoosting", "network": "-", "seed": seed}]
        for network in ("logistic", "mlp"):
            for method in (*IMPUTERS, "halfseen", "halfseen, sequential"):
                made.append({"data": "digits", "method": method, "network": network, "seed": seed})
        for method in (
            "zero fill",
            "halfseen",
            "halfseen, sequential",
            "halfseen, joint",
            "halfseen, tuned",
        ):
            made.append({"data": "planted", "method": method, "network": "logistic", "seed": seed})
    for path in sorted(tables.glob("*.csv")) if tables else []:
        for seed in range(10):
            made += [
                {"data": path.stem, "method": method, "network": network, "seed": seed}
                for method, network in [
                    ("mean fill", "logistic"),
                    ("mean fill + indicator", "logistic"),
                    ("KNNImputer", "logistic"),
                    ("HistGradientBoosting", "-"),
                    ("halfseen", "logistic"),
                    ("halfseen", "mlp"),
                ]
            ]
    return made


def arrays(cell: dict, tables: Path | None) -> tuple[np.ndarray, ...]:
    """Return training and test samples and their labels."""
    random = np.random.default_rng(cell["seed"])
    if cell["data"] == "digits":
        X, y = load_digits(return_X_y=True)
        X = np.where(random.random(X.shape) < 0.5, np.nan, X)
        return train_test_split(X, y, test_size=0.25, random_state=2026, stratify=y)
    if cell["data"] == "planted":
        return planted(random)
    frame = pd.read_csv(tables / f"{cell['data']}.csv")
    X, y = frame.drop(columns="label").to_numpy(float), frame["label"].to_numpy()
    folds = StratifiedKFold(5, shuffle=True, random_state=cell["seed"] // 5).split(X, y)
    train, test = list(folds)[cell["seed"] % 5]
    return X[train], X[test], y[train], y[test]


def planted(random: np.random.Generator) -> tuple[np.ndarray, ...]:
    dictionary = random.standard_normal((200, 100))
    dictionary /= np.linalg.norm(dictionary, axis=1, keepdims=True)
    used = random.random((11_000, 200)).argpartition(4, axis=1)[:, :4]
    codes = np.zeros((11_000, 200))
    np.put_along_axis(codes, used, random.standard_normal((11_000, 4)), axis=1)
    X = codes @ dictionary
    y = (X @ random.standard_normal(100) > 0).astype(int)
    holes = random.random((10_000, 100)) < 0.5
    return np.where(holes, np.nan, X[:10_000]), X[10_000:], y[:10_000], y[10_000:]


def accuracy(cell: dict, train, test, y_train, y_test) -> float:
    method, network, seed = cell["method"], cell["network"], cell["seed"]
    ours = {"device": "cpu", "random_state": seed}
    if method == "HistGradientBoosting":
        return HistGradientBoostingClassifier(random_state=seed).fit(train, y_train).score(
            test, y_test
        )  # fmt: skip
    if method.startswith("halfseen"):
        training = {"halfseen": "task", "halfseen, tuned": "task"}.get(
            method, method.removeprefix("halfseen, ")
        )
        n_atoms = 200 if cell["data"] == "planted" else None
        clf = SparseCodingClassifier(network, n_atoms=n_atoms, training=training, **ours)
        if method == "halfseen, tuned":  # on a fifth of the training samples, with their holes
            clf = GridSearchCV(clf, TUNED, cv=ShuffleSplit(1, test_size=0.2, random_state=seed))
        return clf.fit(train, y_train).score(test, y_test)
    # Tables need their columns scaled; pixels and planted features share a unit.
    scale = [StandardScaler()] if cell["data"] not in ("digits", "planted") else []
    imputer = make_pipeline(*scale, IMPUTERS[method]()).fit(train)
    filled = imputer.transform(train), imputer.transform(test)
    best = 0.0
    if network == "logistic":
        for clf in (
            LogisticRegression(max_iter=3000),
            LogisticRegressionCV(
                Cs=STRENGTHS, cv=3, max_iter=3000, l1_ratios=(0.0,), use_legacy_attributes=False
            ),
        ):
            model = make_pipeline(StandardScaler(with_std=False), clf).fit(filled[0], y_train)
            best = max(best, model.score(filled[1], y_test))
    if cell["data"] == "digits":  # the same network, optimiser and schedule as ours
        for fraction in (None, 0.1):
            clf = SparseCodingClassifier(
                network, training="sequential", validation_fraction=fraction, **ours
            )
            best = max(best, clf.fit(filled[0], y_train).score(filled[1], y_test))
    return best


def fit_cell(cell: dict, tables: Path | None) -> dict:
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = arrays(cell, tables)
        start = time.perf_counter()
        result = accuracy(cell, *data)
    return {**cell, "accuracy": result, "seconds": round(time.perf_counter() - start, 2)}


def summary(rows: list[dict]) -> str:
    frame = pd.DataFrame(rows)
    frame["accuracy"] *= 100
    groups = frame.groupby(["data", "network", "method"], sort=False)
    table = groups["accuracy"].agg(["mean", "sem", "count"])
    table["seconds"] = groups["seconds"].median()
    return table.round(2).to_string()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path)
    parser.add_argument("--tables", type=Path, help="folder with the CSV tables")
    parser.add_argument("--only", help="one data set")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    only = arguments.only
    chosen = [cell for cell in cells(arguments.tables) if only in (None, cell["data"])]
    rows = run_cells(chosen, fit_cell, arguments.rows, arguments.jobs, arguments.tables)
    print(summary(rows))


if __name__ == "__main__":
    main()
