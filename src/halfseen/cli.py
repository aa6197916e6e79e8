"""The command line: one thin command per job."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from halfseen import __version__
from halfseen.experiments import NAMES, experiment


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="halfseen", description="Classifiers for data with holes."
    )
    parser.add_argument("--version", action="version", version=f"halfseen {__version__}")
    commands = parser.add_subparsers(title="commands", required=True)
    _add_reproduce(commands)
    _add_report(commands)
    given = parser.parse_args(arguments)
    try:
        return given.run(given)
    except (ValueError, OSError) as error:
        print(f"halfseen: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("halfseen: stopped.", file=sys.stderr)
        return 130


def _add_reproduce(commands) -> None:
    parser = commands.add_parser(
        "reproduce",
        help="run one of the paper's experiments",
        description="Run the cells of an experiment that are not done yet. Every cell becomes one "
        "line of OUT/NAME.jsonl; an interrupted run goes on where it stopped.",
    )
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--seeds", type=_positive, default=10, help="how many (10)")
    parser.add_argument("--device", default="auto", help="cpu, cuda, ... (a GPU if there is one)")
    parser.add_argument("--data", type=Path, help="folder with mnist.npz, cifar10.npz, ...")
    parser.add_argument(
        "--out", type=Path, default=Path("results"), help="folder of rows (results)"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="only cells with, for example, dataset=mnist method=Best rate=0.75",
    )
    parser.add_argument(
        "--variant",
        nargs="+",
        default=[],
        metavar="DATASET=NAME",
        help="say in the rows which copy of a data set this is, for example cifar10=JPEG",
    )
    parser.add_argument("--small", action="store_true", help="a tiny grid, rows in OUT/small")
    parser.set_defaults(run=_reproduce)


def _reproduce(given: argparse.Namespace) -> int:
    from halfseen.experiments.runner import Context, run

    module = experiment(given.name)
    cells = module.cells(given.seeds, given.small)
    wanted = _pairs(given.only, "--only")
    unknown = set(wanted) - set(cells[0])
    if unknown:
        raise ValueError(f"--only knows {', '.join(cells[0])}; got {', '.join(sorted(unknown))}.")
    chosen = [cell for cell in cells if all(_among(cell[k], v) for k, v in wanted.items())]
    if not chosen:
        raise ValueError(f"--only {' '.join(given.only)} leaves no cell of {len(cells)}.")
    variants = {name: values[-1] for name, values in _pairs(given.variant, "--variant").items()}
    sets = {cell["dataset"] for cell in cells}
    if not set(variants) <= sets:
        raise ValueError(f"--variant knows {', '.join(sorted(sets))}; got {', '.join(variants)}.")
    out = given.out / "small" if given.small else given.out  # not among the real rows
    context = Context(given.data, given.device, tuple(variants.items()), given.small)
    return 1 if run(given.name, module, chosen, out, context, _say) else 0


def _add_report(commands) -> None:
    parser = commands.add_parser(
        "report",
        help="make tables, figures and a page from rows",
        description="Write RESULTS.md, figures and one HTML page from the rows of experiments.",
    )
    parser.add_argument("rows", type=Path, help="folder with the rows")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("report.html"),
        help="page; RESULTS.md and figures go beside it",
    )
    parser.set_defaults(run=_report)


def _report(given: argparse.Namespace) -> int:
    from halfseen.experiments.rows import read_all
    from halfseen.report.figures import draw_all
    from halfseen.report.page import results_page
    from halfseen.report.text import results_text

    rows = read_all(given.rows, NAMES)
    if not rows:
        raise ValueError(f"{str(given.rows)!r} has no rows of an experiment ({', '.join(NAMES)}).")
    text = results_text(rows)
    beside = given.out.parent / "RESULTS.md"
    _write(beside, text)
    try:
        figures = draw_all(rows, given.out.parent / "figures")
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{beside} is written; figures need matplotlib ({error}): "
            f"pip install 'halfseen[plots]'."
        ) from error
    _write(given.out, results_page(text, figures))
    _say(f"{given.out}, {beside} and {len(figures)} figures in {given.out.parent / 'figures'}")
    return 0


def _among(value, texts: list[str]) -> bool:
    """Say whether a value is one of those that texts name; numbers in any spelling."""
    if isinstance(value, str):
        return value in texts
    return any(text.replace(".", "", 1).isdecimal() and float(text) == value for text in texts)


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def _pairs(given: list[str], option: str) -> dict[str, list[str]]:
    """Return what `KEY=VALUE` arguments say; a key may come several times."""
    found: dict[str, list[str]] = {}
    for pair in given:
        name, mark, value = pair.partition("=")
        if not mark:
            raise ValueError(f"{option} takes KEY=VALUE; got {pair!r}.")
        found.setdefault(name, []).append(value)
    return found


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number ≥ 1 was expected; got {text!r}")
    return int(text)


def _say(text: str) -> None:
    print(text, flush=True)
