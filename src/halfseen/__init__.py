"""halfseen: classifiers and completions learned from data with holes.

Public names are imported when they are first used, so that ``import halfseen`` is fast and
needs none of the heavy libraries.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halfseen.classifier import SparseCodingClassifier as SparseCodingClassifier
    from halfseen.coding import sparse_encode as sparse_encode
    from halfseen.comparing import compare as compare
    from halfseen.imputer import SparseCodingImputer as SparseCodingImputer
    from halfseen.masks import ampute as ampute
    from halfseen.side_by_side import fit_side_by_side as fit_side_by_side
    from halfseen.table_classifier import TableClassifier as TableClassifier
    from halfseen.table_encoder import TableEncoder as TableEncoder
    from halfseen.tilings import Channels as Channels
    from halfseen.tilings import Patches as Patches
    from halfseen.tilings import Whole as Whole
    from halfseen.training.published import Published as Published
    from halfseen.training.published import published_settings as published_settings

__version__ = "0.1.0"

_HOME = {
    "Channels": "halfseen.tilings",
    "Patches": "halfseen.tilings",
    "Published": "halfseen.training.published",
    "SparseCodingClassifier": "halfseen.classifier",
    "SparseCodingImputer": "halfseen.imputer",
    "TableClassifier": "halfseen.table_classifier",
    "TableEncoder": "halfseen.table_encoder",
    "Whole": "halfseen.tilings",
    "ampute": "halfseen.masks",
    "compare": "halfseen.comparing",
    "fit_side_by_side": "halfseen.side_by_side",
    "published_settings": "halfseen.training.published",
    "sparse_encode": "halfseen.coding",
}

_MODULES = ("datasets", "masks", "nn", "plots", "rivals")

__all__ = ["__version__", *_HOME]


def __getattr__(name: str):
    if name in _MODULES:
        return importlib.import_module(f"halfseen.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'halfseen' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME, *_MODULES])
