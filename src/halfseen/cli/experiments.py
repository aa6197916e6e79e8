"""`halfseen reproduce` and `halfseen report`: the paper's experiments."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from halfseen.cli.models import require_place
from halfseen.cli.output import say
from halfseen.experiments import NAMES

Name = StrEnum("Name", list(NAMES))  # type: ignore[misc]


def reproduce(
    name: Annotated[Name, typer.Argument(help="Which experiment.")],
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 10,
    device: Annotated[str, typer.Option(help="cpu, cuda, ...; auto takes a GPU.")] = "auto",
    data: Annotated[Path | None, typer.Option(help="Folder with mnist.npz, cifar10.npz.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the rows.")] = Path("results"),
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Only cells with, say, dataset=mnist. Repeatable."),
    ] = None,
    variant: Annotated[
        list[str] | None,
        typer.Option(metavar="DATASET=NAME", help="Which copy of a data set. Repeatable."),
    ] = None,
    small: Annotated[bool, typer.Option("--small", help="A tiny grid, rows in OUT/small.")] = False,
) -> int:
    """Run one of the paper's experiments.

    Cells that are not done yet are run. Every cell becomes one line of OUT/NAME.jsonl; an
    interrupted run goes on where it stopped.

    Example: halfseen reproduce table2 --data images --only method=Best --only dataset=mnist
    """
    from halfseen.experiments.reproduce import reproduce

    n_failed = reproduce(
        name.value,
        seeds=seeds,
        device=device,
        data=data,
        out=out,
        only=only or (),
        variant=variant or (),
        small=small,
        say=say,
    )
    return 1 if n_failed else 0


def report(
    rows: Annotated[Path, typer.Argument(help="Folder with the rows.")],
    out: Annotated[
        Path, typer.Option(help="The page; RESULTS.md and figures go beside it.")
    ] = Path("report.html"),
) -> None:
    """Make tables, figures and a page from rows of experiments.

    Example: halfseen report results --out results/report.html
    """
    from halfseen.experiments.rows import read_all
    from halfseen.report.figures import draw_all
    from halfseen.report.page import results_page
    from halfseen.report.text import results_text
    from halfseen.whole_files import write_text

    require_place(out, rows)
    beside = out.parent / "RESULTS.md"
    if out.resolve() == beside.resolve():
        raise ValueError(f"--out {str(out)!r} is where the text goes; name the page otherwise.")
    found = read_all(rows, NAMES)
    if not found:
        raise ValueError(f"{str(rows)!r} has no rows of an experiment ({', '.join(NAMES)}).")
    try:
        text = results_text(found)
        figures = draw_all(found, out.parent / "figures")
    except ModuleNotFoundError as error:
        write_text(beside, text)
        raise ValueError(
            f"{beside} is written; figures need matplotlib ({error}): "
            f"pip install 'halfseen[plots]'."
        ) from error
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"{str(rows)!r} has a row that is not as reproduce writes it "
            f"({type(error).__name__}: {error})."
        ) from error
    write_text(beside, text)
    page = results_page(text, figures)
    write_text(out, page)
    say(f"{out}, {beside} and {len(figures)} figures in {out.parent / 'figures'}")
