"""Running the cells of an experiment: those that are not done yet, one after the other."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

from halfseen.boundary import choose_device
from halfseen.experiments.rows import CELL, append, key, provenance, read_cells

_SHARED = ("table1", "table2")  # have cells in common


@dataclass(frozen=True)
class Context:
    """What all cells of a run have in common.

    Attributes
    ----------
    folder : Path or None
        Where the archives of images are.
    device : str
    variants : tuple of pairs of str
        Which copy of a data set this is, if not the usual one, such as ("cifar10", "JPEG").
    small : bool
        Whether cells are small ones, on digits, that show that all of it runs.
    out : Path or None
        Folder of the files of rows; what was chosen by validation is kept there as well.
    say : callable
        Told what happens.
    """

    folder: Path | None = None
    device: str = "auto"
    variants: tuple[tuple[str, str], ...] = ()
    small: bool = False
    out: Path | None = None
    say: Callable[[str], None] = print


def run(name: str, module: ModuleType, cells: list[dict], out: Path, context: Context) -> int:
    """Run cells, write their rows, and return how many failed.

    Parameters
    ----------
    name : str
        Of the experiment.
    module : module
        Its `run(cell, context)` measures a cell.
    cells : list of dict
    out : Path
        Folder of the files of rows.
    context : Context
    """
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.jsonl"
    shared = _SHARED if name in _SHARED else (name,)
    rows = [row for other in shared for row in read_cells(out / f"{other}.jsonl")]
    done = {key(row) for row in rows if row.get("status") == "done"}
    variants = dict(context.variants)
    cells = [{**cell, "variant": variants.get(cell["dataset"], "")} for cell in cells]
    todo = [cell for cell in cells if key(cell) not in done]
    context.say(f"{name}: {len(cells)} cells, {len(cells) - len(todo)} done before.")
    device = choose_device(context.device)
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    made_by, n_failed = provenance(where), 0
    for number, cell in enumerate(todo, start=1):
        start = time.perf_counter()
        row = {"experiment": name, **{part: cell[part] for part in CELL}}
        try:
            row |= {"status": "done", **module.run(cell, context)}
        except FileNotFoundError:  # data that are not there: no cell can be run
            raise
        except Exception as error:  # recorded, and the others go on
            n_failed += 1
            row |= {"status": "failed", "error": f"{type(error).__name__}: {error}"}
            context.say(traceback.format_exc())
        row["seconds"] = round(time.perf_counter() - start, 3)
        append(path, row | made_by)
        context.say(
            f"{number}/{len(todo)} {_short(cell)}: {_outcome(row)} ({row['seconds']:.1f} s)"
        )
    if n_failed:
        context.say(f"{n_failed} of {len(todo)} cells failed; run again to try them once more.")
    return n_failed


def _short(cell: dict) -> str:
    return " ".join(str(cell[part]) for part in CELL if cell[part] != "")


def _outcome(row: dict) -> str:
    if row["status"] == "failed":
        return row["error"]
    numbers = {k: v for k, v in row.items() if k.startswith("accuracy") and v is not None}
    return ", ".join(f"{k} {v:.4f}" for k, v in numbers.items()) or "done"
