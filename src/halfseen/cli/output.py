"""What commands write: lines, JSON, tables in the terminal."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def about(path: Path) -> Iterator[None]:
    """Name the file in what is wrong with its content."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{str(path)!r}: {error}") from error


def say(text: str) -> None:
    """Write a line at once."""
    print(printable(text), flush=True)


def printable(text: str) -> str:
    """Return text with which names from files cannot steer a terminal; lines stay lines."""
    shown = (letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text)
    return "".join(shown)


def say_json(record) -> None:
    """Write a record for other programs; what is not a number is null."""
    print(json.dumps(_plain(record)), flush=True)


def show_table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    """Show a table in the terminal: the first column to the left, others to the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for place, name in enumerate(head):
        table.add_column(
            Text(printable(name)), justify="right" if place else "left", overflow="fold"
        )
    for line in lines:
        table.add_row(*(Text(printable(cell)) for cell in line))
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)  # a file or a pipe has no edge
    console.print(table)


@contextmanager
def progress_bar(total: int, quiet: bool) -> Iterator:
    """Yield a function that is told of each finished part; a live bar in a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda text: None
        return
    columns = (BarColumn(24), MofNCompleteColumn(), TextColumn("{task.description}"), TimeLeft())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda text: progress.update(task, advance=1, description=text)


def _plain(value):
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
