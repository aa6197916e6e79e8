"""Compare classifiers on the same splits of the same data."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from halfseen.boundary import without_mask
from halfseen.scoring import plain_labels, require_labels

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

_RECORD = (
    "method", "fold", "n_train", "n_test", "accuracy", "log_loss", "fit_seconds", "predict_seconds",
)  # fmt: skip


def compare(
    estimators: Mapping[str, Any], X, y, *, cv=5, X_test=None, n_jobs: int | None = None
) -> pd.DataFrame:
    """Cross-validate classifiers side by side.

    Parameters
    ----------
    estimators : dict of str to classifier
        Unfitted, with `fit`, `predict` and `predict_proba`. They are cloned, not changed.
    X : array of shape (n_samples, ...) or DataFrame
        NaN marks a hole.
    y : array of shape (n_samples,)
    cv : int, splitter or iterable of (train, test)
        As in scikit-learn; a number means stratified folds in the order of the samples. For
        splitters that need groups pass their splits: ``list(GroupKFold(5).split(X, y, groups))``.
    X_test : as X, optional
        What the same samples look like when they are tested: for example complete, while
        training sees them with holes. By default X.
    n_jobs : int, optional
        Processes to share the fits, as in scikit-learn. Seconds are taken while all of them
        run.

    Returns
    -------
    table : DataFrame
        See `summarise`; best first.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from halfseen import compare, rivals
    >>> from halfseen.masks import ampute
    >>> X, y = load_iris(return_X_y=True)
    >>> X = ampute(X, "random", 0.3, random_state=0)
    >>> table = compare({"zero": rivals.zero_fill(), "mean": rivals.mean_fill()}, X, y, cv=3)
    >>> list(table.columns)  # doctest: +NORMALIZE_WHITESPACE
    ['method', 'accuracy', 'accuracy_sem', 'log_loss', 'log_loss_sem', 'fit_seconds',
     'predict_seconds', 'p_value', 'n']
    """
    return summarise(fold_scores(estimators, X, y, cv=cv, X_test=X_test, n_jobs=n_jobs))


def fold_scores(
    estimators: Mapping[str, Any],
    X,
    y,
    *,
    cv=5,
    X_test=None,
    n_jobs: int | None = None,
    report: Callable[[dict], object] | None = None,
) -> list[dict]:
    """Fit every classifier on every split; one record each.

    Parameters
    ----------
    estimators, X, y, cv, X_test, n_jobs
        See `compare`.
    report : callable, optional
        Called with every record as soon as it is there.

    Returns
    -------
    rows : list of dict
        method, fold, n_train, n_test, accuracy, log_loss, fit_seconds, predict_seconds.
    """
    from sklearn.model_selection import check_cv
    from sklearn.utils import (
        _safe_indexing,
        assert_all_finite,
        check_consistent_length,
        column_or_1d,
    )
    from sklearn.utils.parallel import Parallel, delayed

    if not isinstance(estimators, Mapping) or not estimators:
        raise ValueError(
            f"estimators must be a dict from names to classifiers, not empty; got {estimators!r}."
        )
    X = without_mask(X)  # others would see what it hides
    X_test = X if X_test is None else without_mask(X_test)
    check_consistent_length(X, y, X_test)
    require_labels(y)
    y = column_or_1d(plain_labels(y), warn=True)
    assert_all_finite(y, input_name="y")

    def jobs():
        for fold, (train, test) in enumerate(check_cv(cv, y, classifier=True).split(X, y)):
            train, test = (np.arange(len(y))[rows] for rows in (train, test))  # also of masks
            known = _safe_indexing(X, train), y[train]
            new = _safe_indexing(X_test, test), y[test]
            for name, estimator in estimators.items():
                yield delayed(_fold_score)(name, estimator, fold, known, new)

    rows = []
    for row in Parallel(n_jobs=n_jobs, return_as="generator")(jobs()):
        rows.append(row)
        if report is not None:
            report(row)
    if not rows:
        raise ValueError(f"cv={cv!r} makes no folds; pass a number or pairs (train, test).")
    return rows


def _fold_score(name: str, estimator, fold: int, known: tuple, new: tuple) -> dict:
    """Fit a classifier to known samples and score it on new ones."""
    from sklearn.base import clone
    from sklearn.metrics import accuracy_score

    X, truth = new
    try:
        start = time.perf_counter()
        model = clone(estimator).fit(*known)
        fitted = time.perf_counter()
        predicted = model.predict(X)
        done = time.perf_counter()
        probability = np.asarray(model.predict_proba(X))
    except Exception as error:
        error.add_note(f"while comparing: method {name!r}, fold {fold}")
        raise
    return {
        "method": name,
        "fold": fold,
        "n_train": len(known[1]),
        "n_test": len(truth),
        "accuracy": accuracy_score(truth, predicted),
        "log_loss": _log_loss(truth, probability, model.classes_),
        "fit_seconds": fitted - start,
        "predict_seconds": done - fitted,
    }


def summarise(rows: Iterable[Mapping]) -> pd.DataFrame:
    """Return one line per method from records of folds or repetitions.

    Parameters
    ----------
    rows : records
        As `fold_scores` returns them; every method must have the same folds.

    Returns
    -------
    table : DataFrame
        Best accuracy first. Columns: method; accuracy and log_loss, means over the folds,
        each with its standard error (`_sem`); median fit_seconds and predict_seconds; p_value of
        a two-sided paired t-test of the accuracies against the best method (NaN for the
        best itself, and where all folds differ by the same amount); n, the number of folds.
        Training sets of folds overlap, so the variance in the test is enlarged by
        n_test/n_train (Nadeau and Bengio 2003).
    """
    import pandas as pd

    frame = pd.DataFrame(list(rows))
    lacking = [name for name in _RECORD if name not in frame]
    if lacking:
        raise ValueError(
            f"records of folds with {', '.join(_RECORD)} were expected; got {len(frame)} without "
            f"{', '.join(lacking)}."
        )
    accuracy = frame.pivot(index="fold", columns="method", values="accuracy")
    if accuracy.isna().any(axis=None):
        lacking = accuracy.columns[accuracy.isna().any()][0]
        raise ValueError(f"method {lacking!r} lacks folds that other methods have.")
    overlap = (frame["n_test"] / frame["n_train"]).mean()
    groups = frame.groupby("method", sort=False)
    table = groups[["accuracy", "log_loss"]].mean()
    for score in ("accuracy", "log_loss"):
        table[f"{score}_sem"] = groups[score].sem()
    for seconds in ("fit_seconds", "predict_seconds"):
        table[seconds] = groups[seconds].median()
    table["n"] = groups.size()
    table = table.sort_values(["accuracy", "log_loss"], ascending=[False, True])
    best = accuracy[table.index[0]]
    table["p_value"] = [paired_p_value(best - accuracy[method], overlap) for method in table.index]
    table.iloc[0, table.columns.get_loc("p_value")] = np.nan
    order = ["accuracy", "accuracy_sem", "log_loss", "log_loss_sem"]
    order += ["fit_seconds", "predict_seconds", "p_value", "n"]
    return table[order].reset_index()


def _log_loss(truth: np.ndarray, probability: np.ndarray, classes: np.ndarray) -> float:
    """Return the mean of −log p of the true class; a class never seen in training has p = 0."""
    place = np.minimum(np.searchsorted(classes, truth), len(classes) - 1)
    given = np.where(classes[place] == truth, probability[np.arange(len(truth)), place], 0.0)
    return float(-np.log(np.maximum(given, np.finfo(np.float64).eps)).mean())


def paired_p_value(differences: ArrayLike, overlap: float = 0.0) -> float:
    """Return the p-value of a paired t-test; NaN where there is none.

    Parameters
    ----------
    differences : array of shape (n_pairs,)
    overlap : float
        Test samples over training samples where training sets overlap (Nadeau and Bengio 2003).
    """
    from scipy import stats

    differences = np.asarray(differences, dtype=float)
    n = len(differences)
    if n < 2:
        return math.nan
    if np.ptp(differences) < 1e-9:  # rounding is no spread, and without spread there is no test
        return 1.0 if abs(differences[0]) < 1e-9 else math.nan
    statistic = differences.mean() / math.sqrt((1 / n + overlap) * differences.var(ddof=1))
    return float(2 * stats.t.sf(abs(statistic), n - 1))
