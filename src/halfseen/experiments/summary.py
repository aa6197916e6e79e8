"""From rows to means: by cell, over the seeds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from halfseen.comparing import paired_p_value
from halfseen.experiments.rows import CELL, key

SIGNIFICANT = 0.05
GROUP = tuple(name for name in CELL if name != "seed")


@dataclass(frozen=True)
class Mean:
    """A mean over seeds, in percent.

    Attributes
    ----------
    mean, sem : float
        Standard error of the mean; NaN for one seed.
    n : int
    """

    mean: float
    sem: float
    n: int

    def __str__(self) -> str:
        spread = "" if math.isnan(self.sem) else f" ± {self.sem:.2f}"
        return f"{self.mean:.2f}{spread} (n = {self.n})"


def newest(rows: list[dict]) -> list[dict]:
    """Return one finished row of each cell, the last one."""
    return list({key(row): row for row in rows if row.get("status") == "done"}.values())


def groups(rows: list[dict]) -> dict[tuple, list[dict]]:
    """Return the finished rows of every cell but for the seed, in the order of the seeds."""
    found: dict[tuple, list[dict]] = {}
    for row in sorted(newest(rows), key=lambda row: row["seed"]):
        found.setdefault(tuple(row[name] for name in GROUP), []).append(row)
    return found


def mean_of(rows: list[dict], measure: str) -> Mean | None:
    """Return the mean of a measure; None if no row has it."""
    return _mean([100 * row[measure] for row in rows if row.get(measure) is not None])


def paired_p(rows: list[dict], others: list[dict], measure: str) -> float | None:
    """Return the p-value of a paired t-test over the seeds that both have; None without one."""
    p_value = paired_p_value(_differences(rows, others, measure))
    return None if math.isnan(p_value) else p_value


def paired_difference(rows: list[dict], others: list[dict], measure: str) -> Mean | None:
    """Return the mean of what rows have more than others, over the seeds that both have."""
    return _mean(_differences(rows, others, measure))


def _differences(rows: list[dict], others: list[dict], measure: str) -> list[float]:
    theirs = {row["seed"]: row[measure] for row in others}
    return [100 * (row[measure] - theirs[row["seed"]]) for row in rows if row["seed"] in theirs]


def _mean(values: list[float]) -> Mean | None:
    if not values:
        return None
    sem = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return Mean(float(np.mean(values)), float(sem), len(values))
