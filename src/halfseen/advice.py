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
    if len(table) == 1:
        return f"{ours} is right in {_percent(best['accuracy'])}."
    leads = best["method"] == ours
    other = table.iloc[1] if leads else own
    p = other["p_value"]
    points = _points(best["accuracy"] - other["accuracy"])
    text = (
        f"{best['method']} is right in {_percent(best['accuracy'])}, {other['method']} in "
        f"{_percent(other['accuracy'])}: {points} less."
    )
    if points == _points(0):  # which are right in the same rows but for one, say
        text = f"{best['method']} and {other['method']} are right in {_percent(best['accuracy'])}."
    if math.isnan(p):
        choice = f"{best['method']} is probably the better choice here."
        return f"{choice} {text} It is by as much in every fold, so no test is possible."
    if p < _SURE:
        return f"Use {best['method']} here. {text} That is hardly chance ({_p(p)})."
    if p < _FAIRLY_SURE:
        choice = f"{best['method']} is probably the better choice here."
        return f"{choice} {text} It may be chance ({_p(p)})."
    verdict = (
        f"{ours} is ahead, but not surely."
        if leads and points != _points(0)
        else "These data cannot tell:"
    )
    return (
        f"{verdict} {text} That may well be chance ({_p(p)}). {best['method']} takes "
        f"{_seconds(best['fit_seconds'])} to train, {other['method']} "
        f"{_seconds(other['fit_seconds'])}; only {ours} also says which rows are certain."
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
