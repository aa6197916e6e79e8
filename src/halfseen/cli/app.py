"""The commands, and how they fail."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from halfseen import __version__
from halfseen.cli import comparing, experiments, models
from halfseen.cli.output import printable

_INTERRUPTED = 130

app = typer.Typer(
    name="halfseen",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"halfseen {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Classifiers for data with holes. Errors are one line; --debug anywhere shows all of them."""


for command in (
    comparing.demo,
    models.fit,
    models.predict,
    models.impute,
    comparing.compare,
    models.info,
    experiments.reproduce,
    experiments.report,
):
    app.command(no_args_is_help=command is not comparing.demo)(command)


def run(arguments: Sequence[str] | None) -> int:
    """Run the command line and return its exit status: 0, 1 (a cell failed) or 2 (an error)."""
    for stream in (sys.stdout, sys.stderr):  # a terminal may not have all letters of a name
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    given = sys.argv[1:] if arguments is None else list(arguments)
    wanted = [argument for argument in given if argument != "--debug"]
    try:
        # What a command returns, or the number of its typer.Exit.
        status = int(app(wanted, prog_name="halfseen", standalone_mode=False) or 0)
        if status == _INTERRUPTED:  # typer has caught it
            raise KeyboardInterrupt
        return status
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    except typer.TyperException as error:  # wrong options
        if len(wanted) < 2 and hasattr(error, "show"):
            error.show()  # the help, if nothing was given
            return 2
        message = getattr(error, "format_message", error.__str__)()  # with the name of the option
        print(f"halfseen: {' '.join(message.split())} See --help.", file=sys.stderr)
        return 2
    except Exception as error:
        if wanted != given:
            raise
        print(f"halfseen: {_one_line(error)}", file=sys.stderr)
        return 2


def _one_line(error: Exception) -> str:
    cause = error.__cause__  # `about` names the file and has no notes of its own
    notes = [*getattr(error, "__notes__", ()), *getattr(cause, "__notes__", ())]
    text = " ".join([str(error), *(f"({note})" for note in notes)])
    words = printable(" ".join(text.split()))
    expected = isinstance(error, ValueError | OSError | ModuleNotFoundError)
    return words if expected and words else f"{type(error).__name__}: {words} (see --debug)"
