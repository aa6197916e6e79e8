"""Tables as they come: TableClassifier beside scikit-learn, all with their defaults.

    python benchmarks/tables.py ROWS.jsonl FOLDER_OF_CSV [--jobs 2]
    python benchmarks/tables.py ROWS.jsonl --show

5-fold cross-validation, twice. Labels are in the column "label"; numbers are scaled before linear
models and perceptrons. One row per fit goes to a file; rows that are there already are skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the jobs share the cores

import pandas as pd
import torch
from cells import run_cells
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from halfseen import SparseCodingClassifier, TableClassifier
from halfseen.table_files import read_frame, split_target


def methods(seed: int) -> dict:
    logistic = LogisticRegression()
    marked = SimpleImputer(add_indicator=True)
    return {
        "mean, logistic": make_pipeline(SimpleImputer(), StandardScaler(), logistic),
        "mean + indicator, logistic": make_pipeline(marked, StandardScaler(), logistic),
        "IterativeImputer, logistic": make_pipeline(
            IterativeImputer(random_state=seed), StandardScaler(), logistic
        ),
        "mean + indicator, MLP": make_pipeline(
            marked, StandardScaler(), MLPClassifier(random_state=seed)
        ),
        "HistGradientBoosting": HistGradientBoostingClassifier(random_state=seed),
        "halfseen": TableClassifier(SparseCodingClassifier("mlp", random_state=seed)),
    }


def fit_cell(cell: dict, folder: Path) -> dict:
    torch.set_num_threads(1)
    path = folder / f"{cell['data']}.csv"
    X, y = split_target(read_frame(path, "label"), "label", path)
    folds = StratifiedKFold(5, shuffle=True, random_state=cell["seed"] // 5).split(X, y)
    train, test = list(folds)[cell["seed"] % 5]
    clf = methods(cell["seed"])[cell["method"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not converged
        start = time.perf_counter()
        clf.fit(X.iloc[train], y[train])
        seconds = time.perf_counter() - start
        accuracy = float((clf.predict(X.iloc[test]) == y[test]).mean())
    return {**cell, "accuracy": accuracy, "seconds": round(seconds, 3)}


def show(path: Path) -> None:
    frame = pd.DataFrame([json.loads(line) for line in path.read_text().splitlines()])
    frame["accuracy"] *= 100
    table = frame.pivot_table(index="method", columns="data", values="accuracy")
    table["mean"] = table.mean(axis=1)
    print(table.round(1).to_string())
    errors = frame.groupby(["data", "method"])["accuracy"].sem().unstack(0)
    print("standard errors, largest:", errors.max().round(1).to_dict())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    if not given.show:
        cells = [
            {"data": path.stem, "method": method, "seed": seed}
            for seed in range(10)
            for path in sorted(given.folder.glob("*.csv"))
            for method in methods(0)
        ]
        run_cells(cells, fit_cell, given.rows, given.jobs, given.folder)
    show(given.rows)


if __name__ == "__main__":
    main()
