"""The command line: thin commands around the library."""

from halfseen.cli.app import main

__all__ = ["main"]
