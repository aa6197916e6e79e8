"""Rows of experiments: one line of JSON each, written whole, found again by their cell."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path

from halfseen import __version__
from halfseen.boundary import is_number, is_whole
from halfseen.whole_files import room_is_told

CELL = ("dataset", "variant", "mechanism", "rate", "method", "network", "seed")
_LIBRARIES = ("torch", "numpy", "scikit-learn")


def cell(dataset: str, mechanism: str, rate: float, method: str, network: str, seed: int) -> dict:
    """Return a cell."""
    return {
        "dataset": dataset,
        "mechanism": mechanism,
        "rate": rate,
        "method": method,
        "network": network,
        "seed": seed,
    }


def key(cell: dict) -> tuple:
    """Return what makes a cell the same as another, whichever experiment asked for it."""
    return tuple(cell[name] for name in CELL)


def read(path: Path) -> list[dict]:
    """Return the rows of a file; none if there is no file.

    A last line that a killed process left unfinished is not a row.
    """
    if not path.exists():
        return []
    rows = []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{str(path)!r} is no text: {error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            if line:
                rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number == len(lines):
                break
            raise ValueError(f"line {number} of {str(path)!r} is no row: {error}") from error
    return rows


def read_cells(path: Path) -> list[dict]:
    """Return what `read` does, for a file of cells: the rows must say of which cell they are."""
    rows = read(path)
    for number, row in enumerate(rows, start=1):
        wrong = _wrong_parts(row) if isinstance(row, dict) else ["all of it"]
        if wrong:
            raise ValueError(
                f"row {number} of {str(path)!r} is not as reproduce writes it: {', '.join(wrong)}."
            )
    return rows


def read_all(folder: Path, names: Iterable[str]) -> list[dict]:
    """Return the rows of several experiments."""
    return [row for name in names for row in read_cells(folder / f"{name}.jsonl")]


def append(path: Path, row: dict) -> None:
    """Add a row to a file; a line that a killed process left unfinished is cut off first."""
    with room_is_told(path), path.open("a+b") as file:
        with contextlib.suppress(ImportError):  # another process may be writing rows as well
            import fcntl  # not on Windows

            fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read()
        last = text[text.rfind(b"\n") + 1 :]
        if last and _is_row(last):
            file.write(b"\n")  # killed just before its end
        elif last:
            file.truncate(len(text) - len(last))
        file.write((json.dumps(row) + "\n").encode())
        file.flush()
        os.fsync(file.fileno())


def _wrong_parts(row: dict) -> list[str]:
    """Return the names of what is lacking in the row of a cell, or of another type."""
    fits = {name: isinstance(row.get(name), str) for name in ("experiment", *CELL)}
    fits["rate"] = _is_share(row.get("rate"))
    fits["seed"] = is_whole(row.get("seed"), least=0)
    fits |= {
        name: value is None or _is_share(value)
        for name, value in row.items()
        if name in ("accuracy_complete", "accuracy_uncoded", "accuracy_incomplete")
    }
    if row.get("experiment") == "tuning" and row.get("status") == "done":
        fits["accuracy_validation"] = _is_share(row.get("accuracy_validation"))
        fits["n_images"] = is_whole(row.get("n_images"))
    return [name for name, right in fits.items() if not right]


def _is_share(value) -> bool:
    return is_number(value) and 0 <= value <= 1


def _is_row(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def provenance(device: str) -> dict:
    """Return where and by what a row was made."""
    versions = {"halfseen": __version__, "python": platform.python_version()}
    versions |= {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {"device": device, "versions": versions, "commit": _commit()}


def _commit() -> str | None:
    """Return the commit of the code; HALFSEEN_COMMIT says it where there is no repository."""
    if os.environ.get("HALFSEEN_COMMIT"):
        return os.environ["HALFSEEN_COMMIT"]
    commit, changes = _git("rev-parse", "--short", "HEAD"), _git("status", "--porcelain", ".")
    return f"{commit}-dirty" if commit and changes else commit


def _git(*arguments: str) -> str | None:
    """Return what git says of the package's folder; None if it says nothing."""
    folder = Path(__file__).parent.parent
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
