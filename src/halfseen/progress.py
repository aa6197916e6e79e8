"""One live line in the terminal while a training runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def live_line(verbose: int, n_epochs: int) -> Iterator[Callable[[dict], None] | None]:
    """Show epoch, losses, accuracy and the time left, if that is wanted and there is a terminal.

    Parameters
    ----------
    verbose : int
        0 is quiet.
    n_epochs : int

    Yields
    ------
    report : callable or None
        To be called with the record of each epoch.
    """
    if not verbose:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("epoch"),
        MofNCompleteColumn(),
        BarColumn(20),
        TextColumn("{task.description}"),
        TimeLeft(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=n_epochs)

        def report(record: dict) -> None:
            progress.update(task, completed=record["epoch"], description=describe(record))

        yield report


def describe(record: dict) -> str:
    """Return a record as a line: losses, share of non-zero codes, accuracies."""
    text = f"J0 {record['J0']:.3f}  "
    if "J1" in record:
        text += f"J1 {record['J1']:.3g}  J2 {record['J2']:.3g}  non-zero {record['nonzero']:.0%}  "
    text += f"accuracy {record['accuracy']:.3f}"
    if "validation_accuracy" in record:
        text += f"  validation {record['validation_accuracy']:.3f}"
    return text
