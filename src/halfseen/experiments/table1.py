"""The paper's first table: compared methods on MNIST and CIFAR-10, tested complete."""

from __future__ import annotations

from halfseen.experiments.classifying import run
from halfseen.experiments.methods import ALGORITHMS, RIVALS
from halfseen.experiments.rows import cell

__all__ = ["cells", "run"]

SETS = (("mnist", "cnn4"), ("cifar10", "resnet18"))
RATES = (0.75, 0.5)


def cells(seeds: int, small: bool) -> list[dict]:
    """Return the cells: our two columns first, then the rivals."""
    sets, rates = ((("digits", "cnn4"),), RATES[:1]) if small else (SETS, RATES)
    methods = ("Best", "Simult.", "ZF", "KNN10") if small else ("Best", "Simult.", *RIVALS)
    found = [
        cell(dataset, "random", rate, method, network, seed)
        for seed in range(seeds)
        for dataset, network in sets
        for rate in rates
        for method in methods
    ]
    if not small:  # hours, so once
        found += [cell("mnist", "random", 0.75, method, "cnn4", 0) for method in ALGORITHMS]
    return found
