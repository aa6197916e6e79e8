"""Run the cells of an experiment in parallel; each becomes one row of a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path


def run_cells(
    cells: list[dict], fit: Callable[..., dict], path: Path, jobs: int, *arguments
) -> list[dict]:
    """Return the rows of all cells; those that the file has already are not run again.

    `fit(cell, *arguments)` returns the cell with its results. A row is written as soon as it
    is there, so an interrupted run goes on where it stopped.
    """
    rows = []
    if path.exists():
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    done = [{key: row.get(key) for key in cells[0]} for row in rows]
    todo = [cell for cell in cells if cell not in done]
    with ProcessPoolExecutor(jobs) as pool, path.open("a") as file:
        for future in as_completed([pool.submit(fit, cell, *arguments) for cell in todo]):
            rows.append(future.result())
            file.write(json.dumps(rows[-1]) + "\n")
            file.flush()
    return rows
