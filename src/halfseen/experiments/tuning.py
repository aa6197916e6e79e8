"""The paper's grid of λ1 and λ2, judged by validation samples with holes."""

from __future__ import annotations

import itertools

from sklearn.model_selection import train_test_split

from halfseen.classifier import SparseCodingClassifier
from halfseen.experiments.classifying import cell
from halfseen.experiments.data import load, with_holes
from halfseen.experiments.methods import SIMULTANEOUS, TRAINING
from halfseen.experiments.runner import Context

SETS = (("mnist", "logistic"), ("mnist", "cnn4"), ("cifar10", "resnet18"))
# λ1 and λ2: four of each, around what was chosen in the paper; images of CIFAR-10 want less.
VALUES = {"mnist": (1.28, 5.12, 20.48, 81.92), "cifar10": (0.004, 0.032, 0.256, 2.048)}


def cells(seeds: int, small: bool) -> list[dict]:
    """Return the cells; λ1 and λ2 are in the name of the method."""
    sets = (("digits", "logistic"),) if small else SETS
    found = []
    for seed, (dataset, network) in itertools.product(range(seeds), sets):
        values = VALUES["mnist"][1:3] if small else VALUES[dataset]
        holes = [("random", rate) for rate in ((0.5,) if small else (0.75, 0.5, 0.25))]
        if network == "cnn4":
            holes.append(("half", 0.5))
        found += [
            cell(dataset, mechanism, rate, f"λ1={rec:g} λ2={l1:g}", network, seed)
            for mechanism, rate in holes
            for rec, l1 in itertools.product(values, values)
        ]
    return found


def run(cell: dict, context: Context) -> dict:
    """Return the accuracy on a fifth of the training samples, with holes."""
    lambda_rec, lambda_l1 = (float(part.split("=")[1]) for part in cell["method"].split())
    dataset, seed = cell["dataset"], cell["seed"]
    data = load(dataset, context.folder, seed, context.small)
    holes = with_holes(data.X_train, cell["mechanism"], cell["rate"], seed, test=False)
    parts = train_test_split(
        holes, data.y_train, test_size=0.2, stratify=data.y_train, random_state=seed
    )
    settings = {
        **SIMULTANEOUS[dataset], **TRAINING[dataset], "training": "joint", "label_weight": 1.0,
        "network_input": "reconstruction", "lambda_rec": lambda_rec, "lambda_l1": lambda_l1,
        **({"n_epochs": 2} if context.small else {}),
    }  # fmt: skip
    clf = SparseCodingClassifier(
        cell["network"], **settings, device=context.device, random_state=seed
    ).fit(parts[0], parts[2])
    return {
        "accuracy_validation": float(clf.score(parts[1], parts[3])),
        "n_train": len(parts[0]),
        "share_of_nonzeros": clf.history_[-1]["nonzero"],
    }
