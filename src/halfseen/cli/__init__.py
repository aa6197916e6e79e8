"""The command line: thin commands around the library."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, 1, 2, or 130 if it was stopped."""
    try:
        from halfseen.cli.app import run  # takes a while, in which it may be stopped as well

        return run(arguments)
    except KeyboardInterrupt:
        print("halfseen: stopped.", file=sys.stderr)
        return 130
