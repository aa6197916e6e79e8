"""The paper's figure "synth": planted data, training entries missing, tested complete."""

from __future__ import annotations

from halfseen.experiments.classifying import run
from halfseen.experiments.rows import cell

__all__ = ["cells", "run"]

METHODS = ("Simult.", "Best", "Seq. Sp.", "ZF", "MU", "MS", "KNN")
RATES = (0.25, 0.5, 0.75, 0.85, 0.95)
PANELS = tuple((K, d) for K in (4, 32) for d in (0.0, 0.2))


def cells(seeds: int, small: bool) -> list[dict]:
    """Return the cells: two sparsities, two separations, five shares of missing entries."""
    panels, rates = (PANELS[:1], RATES[:1]) if small else (PANELS, RATES)
    methods = ("Simult.", "Best", "ZF", "MS") if small else METHODS
    return [
        cell(f"synthetic K={K} d={d:g} P=200", "random", rate, method, "logistic", seed)
        for seed in range(seeds)
        for K, d in panels
        for rate in rates
        for method in methods
    ]
