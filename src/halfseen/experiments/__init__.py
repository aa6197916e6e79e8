"""The paper's figures and tables as declared grids of cells; each cell becomes one row.

An experiment is a module with `cells(seeds, small)`, the list of its cells, and
`run(cell, context)`, which returns what was measured. A cell is a dict with the keys of
`rows.CELL`; `runner` adds to it where and by what it was measured, and keeps the row.
"""

from __future__ import annotations

import importlib
from types import ModuleType

NAMES = ("synthetic", "conditions", "table1", "table2", "tuning", "examples")


def experiment(name: str) -> ModuleType:
    """Return the module of an experiment."""
    if name not in NAMES:
        raise ValueError(f"an experiment is one of {', '.join(NAMES)}; got {name!r}.")
    return importlib.import_module(f"halfseen.experiments.{name}")
