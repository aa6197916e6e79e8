"""How the defaults of `SparseCodingClassifier` were chosen: one change at a time, on validation.

Every data set is first cut in two, and only its development part is used here: the rest is
for other scripts. Within the development part, splits into training and validation are drawn.
One row per fit goes to a file; rows that are there already are skipped.

    python benchmarks/defaults.py ROWS.jsonl [--tables DIR] [--jobs 2]
    python benchmarks/defaults.py ROWS.jsonl --small          # four changes on one data set
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the jobs share the cores

import numpy as np
import pandas as pd
import torch
from cells import run_cells
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.model_selection import train_test_split

from halfseen import SparseCodingClassifier

SPLITS = 3
BASE = {"training": "task", "hide": 0.25, "lambda_rec": 1.0}
CHANGES = {
    "base": {},
    "hide 0": {"hide": 0.0},
    "hide 0.1": {"hide": 0.1},
    "hide 0.4": {"hide": 0.4},
    "lambda_rec 0.1": {"lambda_rec": 0.1},
    "lambda_rec 10": {"lambda_rec": 10.0},
    "alpha 0.25": {"alpha": 0.25},
    "alpha 1": {"alpha": 1.0},
    "atoms x2": {"atoms": 2},
    "300 steps": {"steps": 300},
    "1200 steps": {"steps": 1200},
    "reconstruction": {"network_input": "reconstruction"},
    "sequential": {"training": "sequential"},
    "joint, labels 0": {"training": "joint"},
    "joint, labels 0.1": {"training": "joint", "label_weight": 0.1},
    "joint, labels 1": {"training": "joint", "label_weight": 1.0},
}


def development_part(name: str, tables: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the part of a data set that choices may be made on, with its holes."""
    loaders = {"digits": load_digits, "cancer": load_breast_cancer, "wine": load_wine}
    if name.split()[0] in loaders:
        X, y = loaders[name.split()[0]](return_X_y=True)
        rate = float(name.split()[1].rstrip("%")) / 100
        X = np.where(np.random.default_rng(2026).random(X.shape) < rate, np.nan, X)
    else:
        frame = pd.read_csv(tables / f"{name}.csv")
        X, y = frame.drop(columns="label").to_numpy(float), frame["label"].to_numpy()
    X, _, y, _ = train_test_split(X, y, test_size=0.25, random_state=2026, stratify=y)
    return X, y


def fit_cell(cell: dict, tables: Path | None) -> dict:
    torch.set_num_threads(1)
    X, y = development_part(cell["data"], tables)
    train, validation, y_train, y_validation = train_test_split(
        X, y, test_size=0.25, random_state=cell["split"], stratify=y
    )
    settings = {**BASE, **CHANGES[cell["change"]]}
    atoms, steps = settings.pop("atoms", 1), settings.pop("steps", 600)
    mean_observed = (~np.isnan(train)).sum(1).mean()
    alpha = settings.pop("alpha", 0.5)
    settings["lambda_l1"] = 2 * alpha * settings["lambda_rec"] * mean_observed
    clf = SparseCodingClassifier(
        cell["network"],
        n_atoms=atoms * X.shape[1],
        n_epochs=int(np.ceil(steps / np.ceil(len(train) / 128))),
        device="cpu",
        random_state=cell["split"],
        **settings,
    ).fit(train, y_train)
    return {**cell, "accuracy": clf.score(validation, y_validation)}


def summary(rows: list[dict]) -> str:
    frame = pd.DataFrame(rows)
    frame["data"] = frame["data"] + "\n" + frame["network"]
    table = frame.pivot_table(index="change", columns="data", values="accuracy") * 100
    table.insert(0, "mean", table.mean(axis=1))
    table = table.reindex([change for change in CHANGES if change in table.index])
    table.columns = [column.replace("\n", ", ") for column in table.columns]
    return table.round(1).to_string()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path)
    parser.add_argument("--tables", type=Path, help="folder with the CSV tables")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="four changes on one data set")
    arguments = parser.parse_args()
    names = ["digits 50%", "digits 75%", "cancer 50%", "wine 50%"]
    if arguments.tables:
        names += sorted(path.stem for path in arguments.tables.glob("*.csv"))
    cells = [
        {"data": name, "network": network, "change": change, "split": split}
        for split in range(SPLITS)
        for change in CHANGES
        for name in names
        for network in ("logistic", "mlp")
    ]
    if arguments.small:
        few = [*CHANGES][:4]
        cells = [cell for cell in cells if cell["data"] == "wine 50%" and cell["change"] in few]
    rows = run_cells(cells, fit_cell, arguments.rows, arguments.jobs, arguments.tables)
    print(summary(rows))


if __name__ == "__main__":
    main()
