"""``python -m halfseen``: the command line."""

import sys

from halfseen.cli import main

if __name__ == "__main__":
    sys.exit(main())
