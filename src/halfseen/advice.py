"""From a comparison of methods to words: which to use, and how sure that is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_SURE, _FAIRLY_SURE = 0.05, 0.2
_ERRORS = 2.5  # of the best of several methods above guessing


def advise(table: pd.DataFrame, ours: str, most_common: float, n_rows: int) -> str:
    """Return advice in a few sentences.

    Parameters
    ----------
    table : DataFrame
        As `halfseen.compare` returns it: best first, p values against the best.
    ours : str
        The name of our method in it.
    most_common : float
        Share of the most common class: what guessing has.
    n_rows : int
        Of the data.
    """
    best = table.iloc[0]
    own = table[table["method"] == ours].iloc[0]
    if best["accuracy"] <= most_common + _ERRORS * _error(best, most_common, n_rows):
        return (
            f"No method is clearly better than guessing the most common class "
            f"({_percent(most_common)}): the best, {best['method']}, is right in "
            f"{_percent(best['accuracy'])}. More rows or other columns are needed, not another "
            f"method."
        )
    if best["method"] == ours:
        return _for_ours(table, ours)
    lead, p = best["accuracy"] - own["accuracy"], own["p_value"]
    text = (
        f"{best['method']} is right in {_percent(best['accuracy'])}, {ours} in "
        f"{_percent(own['accuracy'])}: {_points(lead)} less."
    )
    if math.isnan(p):
        return f"Use {best['method']} here. {text} It is so in every fold; no test is possible."
    if p < _SURE:
        return f"Use {best['method']} here. {text} That is hardly chance ({_p(p)})."
    if p < _FAIRLY_SURE:
        return (
            f"{best['method']} is probably the better choice here. {text} It may be chance "
            f"({_p(p)})."
        )
    return (
        f"Either will do: {text} That may well be chance ({_p(p)}). "
        f"{best['method']} takes {_seconds(best['fit_seconds'])} to train, {ours} "
        f"{_seconds(own['fit_seconds'])}; only {ours} also says which rows are certain."
    )


def _for_ours(table: pd.DataFrame, ours: str) -> str:
    own = table.iloc[0]
    if len(table) == 1:
        return f"{ours} is right in {_percent(own['accuracy'])}."
    second = table.iloc[1]
    lead, p = own["accuracy"] - second["accuracy"], second["p_value"]
    text = (
        f"{ours} is right in {_percent(own['accuracy'])}, {_points(lead)} more than the next, "
        f"{second['method']}."
    )
    if math.isnan(p):
        return f"Use {ours} here. {text} It is so in every fold; no test is possible."
    if p < _SURE:
        return f"Use {ours} here. {text} That is hardly chance ({_p(p)})."
    if p < _FAIRLY_SURE:
        return f"{ours} is probably the better choice here. {text} It may be chance ({_p(p)})."
    return (
        f"{ours} is ahead, but not surely. {text} That may well be chance "
        f"({_p(p)}). {second['method']} takes {_seconds(second['fit_seconds'])} to train, {ours} "
        f"{_seconds(own['fit_seconds'])}."
    )


def _error(best: pd.Series, most_common: float, n_rows: int) -> float:
    """Return the standard error of an accuracy, no smaller than that of guessing itself."""
    folds = float(best["n"])
    overlapping = best["accuracy_sem"] * math.sqrt(1 + folds / max(folds - 1, 1))
    guessing = math.sqrt(most_common * (1 - most_common) / n_rows)
    return max(guessing, 0.0 if math.isnan(overlapping) else overlapping)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _points(share: float) -> str:
    return f"{100 * share:.1f} points"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s"


def _p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"
