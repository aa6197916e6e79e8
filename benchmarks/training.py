"""Epochs and seconds to a validation accuracy: the published algorithm and the fast ways.

    python benchmarks/training.py digits ROWS.jsonl
    python benchmarks/training.py mnist ROWS.jsonl --data mnist.npz --seconds 300

Both hide entries of the training images at random: half of the 8×8 digits (logistic
regression), three quarters of MNIST (CNN4). Validation images come out of the training set.
They are classified complete, as in the paper, and with holes, coded without labels. Seconds
are of training alone, from arrays in memory on; epochs count passes over the data, also those
that learn a first dictionary without labels. Rows (one per look at the validation images) are
written to a file; a system whose rows are there already is skipped.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from halfseen import Patches, SparseCodingClassifier, published_settings
from halfseen.boundary import choose_device
from halfseen.disk import PickedRows
from halfseen.learned_data import Data
from halfseen.sparse_fitting import set_up
from halfseen.training.trainer import evaluating

MISSING = {"digits": 0.5, "mnist": 0.75}
TARGETS = {"digits": (0.8, 0.85, 0.88, 0.9), "mnist": (0.9, 0.95, 0.97, 0.98, 0.985)}
PREPARING_TILES = 600 * 512  # that `SparseCompletion.learn` passes over


def systems(experiment: str) -> dict[str, dict]:
    """Return the parameters of each system."""
    if experiment == "digits":
        published = published_settings("mnist-logistic", missing=0.5)
        return {
            "published": {**published, "n_atoms": 64},
            "joint": {"training": "joint", "n_epochs": 20},
            "joint, labels in codes": {"training": "joint", "label_weight": 1.0, "n_epochs": 20},
            "sequential": {"training": "sequential", "n_epochs": 20},
            "task": {"training": "task", "n_epochs": 20},
        }
    cnn = {"network": "cnn4", "batch_size": 250}
    patches = {"tiling": Patches(8, 4), "n_atoms": 128}
    return {
        "joint": {**cnn, "training": "joint", "n_epochs": 15},
        "joint, labels in codes": {
            **cnn, "training": "joint", "label_weight": 1.0, "n_epochs": 15
        },
        "joint, patches": {**cnn, **patches, "training": "joint", "n_epochs": 15},
        "task, patches": {**cnn, **patches, "training": "task", "n_epochs": 15},
        "sequential, patches": {**cnn, **patches, "training": "sequential", "n_epochs": 15},
        "published": published_settings("mnist-cnn4", missing=0.75),
    }  # fmt: skip


def load(experiment: str, data: Path | None) -> tuple[np.ndarray, ...]:
    """Return training and validation images from 0 to 1, complete, and their labels."""
    if experiment == "digits":
        X, y = load_digits(return_X_y=True)
        X, _, y, _ = train_test_split(X, y, test_size=0.25, random_state=2026, stratify=y)
        return train_test_split(X / 16, y, test_size=0.25, random_state=0, stratify=y)
    archive = np.load(data)
    X = (archive["x_train"][:, None] / 255).astype(np.float32)
    y = archive["y_train"].astype(np.int64)
    return X[:55_000], X[55_000:], y[:55_000], y[55_000:]


def run(experiment: str, name: str, parameters: dict, arguments) -> list[dict]:
    """Train one system; return one row per look at the validation images."""
    train, validation, y_train, y_validation = load(experiment, arguments.data)
    random = np.random.default_rng(arguments.seed)
    holes = [np.where(random.random(X.shape) < MISSING[experiment], np.nan, X).astype(X.dtype)
             for X in (train, validation)]  # fmt: skip
    device = choose_device("auto")
    settings = SparseCodingClassifier(**parameters)
    torch.manual_seed(arguments.seed)
    everything = PickedRows(holes[0], np.arange(len(train)))
    data = Data(everything, y_train, np.ones(len(train)), n_classes=10)
    start = time.perf_counter()
    setup = set_up(settings, data, device, arguments.seed)
    setup.prepare()
    setup.trainer.start()
    seconds = time.perf_counter() - start
    tiling = setup.module.completion.tiling
    n_tiles = len(train) * len(tiling.layout(train.shape[1:]))
    prepared = PREPARING_TILES / n_tiles if settings.training in ("task", "sequential") else 0.0
    looks = set(np.unique(np.geomspace(1, setup.trainer.n_epochs, 60).astype(int)).tolist())
    rows = []
    for epoch in range(1, setup.trainer.n_epochs + 1):
        start = time.perf_counter()
        record = setup.trainer.epoch()
        seconds += time.perf_counter() - start
        last = epoch == setup.trainer.n_epochs or seconds > arguments.seconds
        if settings.training in ("task", "joint", "sequential") or epoch in looks or last:
            accuracies = look(setup, (validation, holes[1]), y_validation, device, experiment)
            rows.append(
                {
                    "experiment": experiment,
                    "system": name,
                    "seed": arguments.seed,
                    "epoch": epoch + prepared,
                    "seconds": round(seconds, 3),
                    **accuracies,
                    "train_J0": record["J0"],
                    "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
                    "planned_epochs": setup.trainer.n_epochs,
                }
            )
        if last:
            break
    return rows


def look(setup, images, y: np.ndarray, device, experiment: str) -> dict[str, float]:
    """Return the accuracy on complete images and on images with holes."""
    module = setup.module.eval()
    labels = torch.from_numpy(y).to(device)
    result = {}
    for kind, X in zip(("complete", "incomplete"), images, strict=True):
        slow = not isinstance(module.completion.solver, str)  # Algorithm 2: thousands of steps
        if kind == "incomplete" and slow and experiment == "mnist":
            continue
        X = module.standardise(torch.from_numpy(X).to(module.standardise.centre))
        with torch.no_grad():
            if kind == "complete":  # what the network would see of it, as in the paper
                scores = torch.cat([module.network(part) for part in X.split(1000)])
            else:
                observed = ~X.isnan()
                parts = zip(X.nan_to_num().split(256), observed.split(256), strict=True)
                with evaluating(module.network):
                    scores = torch.cat([setup.trainer.scores(*part) for part in parts])
        result[f"accuracy_{kind}"] = (scores.argmax(1) == labels).double().mean().item()
    return result


def summary(rows: list[dict], experiment: str) -> str:
    """Return a table: what each system needs to reach each accuracy on complete images."""
    lines = [f"{'system':26}" + "".join(f"{target:>20.1%}" for target in TARGETS[experiment])]
    for name in systems(experiment):
        mine = [row for row in rows if row["experiment"] == experiment and row["system"] == name]
        if not mine:
            continue
        cells = []
        for target in TARGETS[experiment]:
            first = next((row for row in mine if row["accuracy_complete"] >= target), None)
            cells.append(
                f"not in {mine[-1]['epoch']:.0f} ep" if first is None
                else f"{first['epoch']:.0f} ep, {first['seconds']:.1f} s"
            )  # fmt: skip
        last = mine[-1]
        lines.append(
            f"{name:26}" + "".join(f"{cell:>20}" for cell in cells)
            + f"   end: {last['accuracy_complete']:.4f} / {last.get('accuracy_incomplete', 0):.4f}"
            + f" in {last['seconds']:.1f} s"
        )  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment", choices=list(MISSING))
    parser.add_argument("rows", type=Path)
    parser.add_argument("--data", type=Path, help="mnist.npz")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="limit of one system")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rows = []
    if arguments.rows.exists():
        rows = [json.loads(line) for line in arguments.rows.read_text().splitlines()]
    done = {(row["experiment"], row["system"], row["seed"]) for row in rows}
    for name, parameters in systems(arguments.experiment).items():
        if (arguments.experiment, name, arguments.seed) in done:
            continue
        rows += run(arguments.experiment, name, parameters, arguments)
        arguments.rows.parent.mkdir(parents=True, exist_ok=True)
        arguments.rows.write_text("".join(json.dumps(row) + "\n" for row in rows))
        print(summary(rows, arguments.experiment), flush=True)


if __name__ == "__main__":
    main()
