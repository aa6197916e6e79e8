"""The paper's second table: our method in all settings, with baselines on complete data.

Beyond the paper, what people use today stands beside it in every cell.
"""

from __future__ import annotations

from halfseen.experiments.classifying import run
from halfseen.experiments.methods import MODERN
from halfseen.experiments.rows import cell

__all__ = ["cells", "run"]

SETS = (
    ("mnist", "logistic"),
    ("mnist", "cnn4"),
    ("fashion_mnist", "cnn4_bn"),
    ("cifar10", "resnet18"),
)
RANDOM = tuple(("random", rate) for rate in (0.75, 0.5, 0.25))
OCCLUDED = (("half", 0.5), ("rectangle", 0.5))
BASELINES = ("dropout 0", "dropout 0.1", "dropout 0.25")


def cells(seeds: int, small: bool) -> list[dict]:
    """Return the cells, those of "Best" first."""
    sets = (("digits", "cnn4_bn"),) if small else SETS
    found = []
    for methods in (("Best",), ("Simult.", *MODERN)):
        for dataset, network in sets:
            occluded = OCCLUDED if network.startswith("cnn4") else ()
            found += [
                cell(dataset, mechanism, rate, method, network, seed)
                for mechanism, rate in (OCCLUDED[:1] if small else (*RANDOM, *occluded))
                for seed in range(seeds)
                for method in methods
            ]
    for dataset, network in sets:
        baselines = BASELINES if network == "logistic" else BASELINES[:1]
        found += [
            cell(dataset, "random", 0.0, method, network, seed)
            for method in baselines
            for seed in range(seeds)
        ]
    return found
