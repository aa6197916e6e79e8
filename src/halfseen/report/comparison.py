"""The page of `halfseen compare`: advice, scores of all methods, what the data are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from halfseen import __version__
from halfseen.report.document import Document

COLUMNS = ("method", "accuracy, %", "± s.e.m.", "log-loss", "seconds", "p against the best")


def score_lines(table: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return the lines of a comparison as text, see `COLUMNS`."""
    return [
        (
            row.method,
            f"{100 * row.accuracy:.1f}",
            f"{100 * row.accuracy_sem:.1f}",
            f"{row.log_loss:.3f}",
            f"{row.fit_seconds:.1f}",
            "" if np.isnan(row.p_value) else f"{row.p_value:.2g}",
        )
        for row in table.itertuples()
    ]


def comparison_page(
    name: str, X: Any, y: np.ndarray, table: pd.DataFrame, advice: str, command: str
) -> str:
    """Return the page.

    Parameters
    ----------
    name : str
        Of the data.
    X : DataFrame or ndarray
    y : ndarray
    table : DataFrame
        As `halfseen.compare` returns it.
    advice : str
    command : str
        That makes this page again.
    """
    page = Document(f"{name}: which method?")
    page.text(advice, note=True)
    page.heading("Scores")
    n_folds = int(table["n"].iloc[0])
    page.text(
        f"Means over {n_folds} folds of a cross-validation; every method saw the same folds. p is "
        f"that of a paired t-test against the best method, corrected for training sets that "
        f"overlap (Nadeau and Bengio 2003). Seconds are those of training one fold."
    )
    page.table(COLUMNS, score_lines(table))
    page.figure(_scores(table), "Accuracy of each method, mean and standard error over the folds.")
    page.heading("Data")
    holes = np.asarray(pd.isna(X))
    page.text(f"{len(X)} rows, {holes[0].size} features, {holes.mean():.1%} missing.")
    labels, counts = np.unique(y, return_counts=True)
    page.table(
        ("label", "rows"), zip(map(str, labels), (str(count) for count in counts), strict=True)
    )
    if hasattr(X, "columns"):
        shares = zip(X.columns, 100 * holes.mean(0), strict=True)
        page.table(("column", "missing, %"), ((name, f"{share:.1f}") for name, share in shares))
    page.heading("How to repeat it")
    page.code(f"{command}\n# halfseen {__version__}")
    return str(page)


def _scores(table: pd.DataFrame):
    from halfseen.plots.drawing import clear, make_figure

    lines = table.iloc[::-1]
    figure = make_figure(6.5, 0.8 + 0.4 * len(lines))
    axis = figure.subplots()
    axis.errorbar(
        100 * lines["accuracy"], lines["method"], xerr=100 * lines["accuracy_sem"].fillna(0),
        fmt="o", color="#1f5fa8", ecolor="#8a9099", capsize=3,
    )  # fmt: skip
    axis.set_xlabel("accuracy, %")
    clear(axis)
    axis.grid(axis="x", alpha=0.3)
    return figure
