"""The paper's grid of λ1 and λ2, judged by validation images with holes; "Simult." follows it.

Four values of each, in units of standardised pixels: the paper's own λ are of pixels as they are
and of steps that do not converge. A sample with M observed pixels is coded with
alpha = λ2 / (2·λ1·M), so along a diagonal of the grid alpha stays and labels count less and less.
Values are listed from the plainest, labels that hardly reach the codes and few codes first, and the
plainest that validation cannot tell from the best is taken.
"""

from __future__ import annotations

import itertools
import sys

import numpy as np

from halfseen.experiments.data import load, with_holes
from halfseen.experiments.methods import choices, taken, validated
from halfseen.experiments.rows import CELL, cell, read_cells
from halfseen.experiments.runner import Context
from halfseen.experiments.runner import run as run_cells
from halfseen.experiments.summary import newest

SETS = (("mnist", "logistic"), ("mnist", "cnn4"), ("cifar10", "resnet18"))
_OF_MNIST = (163.84, 20.48, 2.56, 0.32), (5242.88, 655.36, 81.92, 10.24)
VALUES = {
    "mnist": _OF_MNIST,
    "digits": tuple(values[:2] for values in _OF_MNIST),
    "cifar10": ((16.384, 2.048, 0.256, 0.032), (2097.152, 262.144, 32.768, 4.096)),
}
_N_IMAGES = 12_500  # a grid of all images would take longer than everything else
# The paper, too, has one occlusion and no grid of Fashion-MNIST.
_SAME_AS = {"rectangle": "half", "fashion_mnist": "mnist", "cnn4_bn": "cnn4"}


def cells(seeds: int, small: bool) -> list[dict]:
    """Return the cells; λ1 and λ2 are in the name of the method."""
    return [
        cell(dataset, mechanism, rate, method, network, seed)
        for seed in range(seeds)
        for dataset, network, mechanism, rate in _places(small)
        for method in _grid(dataset)
    ]


def _places(small: bool) -> list[tuple[str, str, str, float]]:
    """Return data set, network and holes of every grid."""
    if small:
        return [("digits", "logistic", "random", 0.5)]
    random = [(*names, "random", rate) for names in SETS for rate in (0.75, 0.5, 0.25)]
    return [*random, ("mnist", "cnn4", "half", 0.5)]


def run(cell: dict, context: Context) -> dict:
    """Return the accuracy on a fifth of some training images, with holes."""
    dataset, network, rate, seed = (cell[k] for k in ("dataset", "network", "rate", "seed"))
    data = load(dataset, context.folder, seed, context.small)
    chosen = np.random.default_rng(seed).permutation(len(data.X_train))[:_N_IMAGES]
    holes = with_holes(data.X_train[chosen], cell["mechanism"], rate, seed, test=False)
    (clf,) = choices("Simult.", network, dataset, rate, context.small)
    clf.set_params(**_grid(dataset)[cell["method"]])
    (accuracy,) = validated([clf], holes, data.y_train[chosen], context.device)
    return {"accuracy_validation": accuracy, "n_images": len(chosen)}


def tuned(dataset: str, network: str, mechanism: str, rate: float, context: Context) -> dict:
    """Return the λ1 and λ2 that the grid of the first seed speaks for; run what lacks of it.

    Rectangles take those of halves, Fashion-MNIST those of MNIST.
    """
    if context.out is None:
        raise ValueError("Simult. chooses by a grid, whose rows need a folder: pass out.")
    dataset, network, mechanism = (_SAME_AS.get(n, n) for n in (dataset, network, mechanism))
    place = {"dataset": dataset, "mechanism": mechanism, "rate": rate, "network": network}
    wanted = [one for one in cells(1, small=False) if place.items() <= one.items()]
    n_failed = run_cells("tuning", sys.modules[__name__], wanted, context.out, context)
    if n_failed or not wanted:
        raise ValueError(
            f"Simult. chooses by a grid of λ1 and λ2, and {n_failed} of its {len(wanted)} cells "
            f"for {dataset}, {network}, {mechanism} {rate:.0%} failed."
        )
    place |= {"variant": dict(context.variants).get(dataset, ""), "seed": 0}
    rows = newest(read_cells(context.out / "tuning.jsonl"))
    return _grid(dataset)[taken_of([row for row in rows if place.items() <= row.items()])["method"]]


def taken_of(rows: list[dict]) -> dict:
    """Return the row of a whole grid, one seed, of which λ1 and λ2 are taken."""
    by_method = {row["method"]: row for row in rows}
    ordered = [by_method[name] for name in _grid(rows[0]["dataset"])]
    scores = [row["accuracy_validation"] for row in ordered]
    return ordered[taken(True, scores, ordered[0]["n_images"])]


def whole_grids(rows: list[dict]) -> list[dict]:
    """Return the rows of those grids of which none is missing: parts of one say little.

    Grids come in the order of `cells`, in whatever order they have been run.
    """
    there: dict[tuple, set[str]] = {}
    for row in newest(rows):
        there.setdefault(_place(row), set()).add(row["method"])
    names = {row["dataset"]: _grid(row["dataset"]).keys() for row in rows}
    order = [*_places(small=True), *_places(small=False)]

    def number(row: dict) -> int:
        grid = tuple(row[name] for name in ("dataset", "network", "mechanism", "rate"))
        return order.index(grid) if grid in order else len(order)

    whole = [
        row
        for row in rows
        if names[row["dataset"]] and there.get(_place(row), set()) >= names[row["dataset"]]
    ]
    return sorted(whole, key=number)


def _place(row: dict) -> tuple:
    return tuple(row[name] for name in CELL if name != "method")


def _grid(dataset: str) -> dict[str, dict[str, float]]:
    """Return the pairs of λ1 and λ2 by the names of their cells; none for other data sets."""
    return {
        f"λ1={rec:g} λ2={l1:g}": {"lambda_rec": rec, "lambda_l1": l1}
        for rec, l1 in itertools.product(*VALUES.get(dataset, ((), ())))
    }
