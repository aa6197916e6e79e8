"""Pictures of samples with holes, of what was learned from them, and of results.

Every function returns a matplotlib Figure and neither shows nor saves it; ``figure.savefig(path)``
does. matplotlib (``pip install 'halfseen[plots]'``) is loaded when something is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted

from halfseen.boundary import is_whole
from halfseen.given_samples import checked_samples
from halfseen.imputer import SparseCodingImputer
from halfseen.masks import ampute
from halfseen.plots.drawing import (
    clear,
    draw_accuracy,
    draw_heat_map,
    draw_rows,
    draw_sample,
    line_styles,
    make_figure,
)
from halfseen.plots.views import learned, sample_view, tile_view

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = [
    "accuracy_curve",
    "atoms",
    "certificate_coverage",
    "lambda_heat_map",
    "reconstructions",
    "training_curve",
]

_TERMS = {
    "J0": "J0, classification loss",
    "J1": "J1, reconstruction error",
    "J2": "J2, l1 norm of the codes",
}


def reconstructions(clf, X, originals=None, n: int = 8) -> Figure:
    """Draw samples as they were observed, reconstructed from their codes, and completed.

    Parameters
    ----------
    clf : SparseCodingClassifier or SparseCodingImputer
        Fitted.
    X : array of shape (n_samples, *sample_shape)
        Images of shape (h, w) or (c, h, w) with one or three channels, or flat and square;
        or signals: of shape (1, length), or with a tiling of windows, ``Patches((16,))``, or
        ``Channels()``. Holes of images are yellow (in colour where all channels are missing),
        those of signals are gaps.
    originals : array of the shape of X, optional
        The same samples without holes, drawn first.
    n : int
        Samples to draw, from the first on.
    """
    _, tiling, sample_shape = learned(clf)
    _check_count(n)
    if originals is not None and np.shape(originals) != np.shape(X):
        raise ValueError(
            f"originals must have the shape of X, {np.shape(X)}; got {np.shape(originals)}."
        )
    view = sample_view(tiling, sample_shape)
    if view is None:
        raise ValueError(
            f"reconstructions() draws images, of shape (h, w), (1, h, w) or (3, h, w) or flat and "
            f"square, and signals, of shape (1, length) or with a tiling of windows such as "
            f"Patches((16,)); samples of shape {sample_shape} were learned. For tables compare "
            f"the numbers that impute() or transform() returns."
        )
    some = X[:n]
    if isinstance(clf, SparseCodingImputer):
        codes, completed = clf.encode(some), np.asarray(clf.transform(some))
    else:
        codes, completed = clf.transform(some), clf.impute(some)
    rows = {} if originals is None else {"original": checked_samples(originals[:n], clf)}
    rows["observed"] = checked_samples(some, clf)
    known = next(iter(rows.values()))
    if np.isnan(known).all():
        known = completed
    rows |= {"reconstructed": clf.inverse_transform(codes), "completed": completed}
    rows = {name: values.reshape(-1, *view) for name, values in rows.items()}
    return draw_rows(rows, np.nanmin(known), np.nanmax(known))


def atoms(clf_or_imputer, n: int = 64) -> Figure:
    """Draw learned atoms, as pictures or, where tiles are no images, as lines.

    Each atom has a scale of its own; the grey in the middle, or the straight line, is 0.

    Parameters
    ----------
    clf_or_imputer : SparseCodingClassifier or SparseCodingImputer
        Fitted.
    n : int
        Atoms to draw, from the first on.
    """
    dictionary, tiling, sample_shape = learned(clf_or_imputer)
    _check_count(n)
    shown = dictionary[:n].reshape(-1, *tile_view(tiling, sample_shape, dictionary.shape[1]))
    n_columns = math.ceil(math.sqrt(len(shown)))
    n_rows = math.ceil(len(shown) / n_columns)
    figure = make_figure(max(0.7 * n_columns, 2.4), 0.7 * n_rows + 0.3)
    engine: Any = figure.get_layout_engine()
    engine.set(w_pad=0.02, h_pad=0.02, wspace=0, hspace=0)
    for place, atom in enumerate(shown, start=1):
        axis = figure.add_subplot(n_rows, n_columns, place)
        end = np.abs(atom).max()
        draw_sample(axis, atom, -end, end)
        axis.set(xticks=[], yticks=[])
        if atom.ndim == 2:
            axis.axhline(0, color="0.7", lw=0.6, zorder=0)
            axis.set_ylim(-1.1 * end, 1.1 * end)
    if len(shown) < len(dictionary):
        figure.suptitle(f"{len(shown)} of {len(dictionary)} atoms", fontsize="medium")
    return figure


def training_curve(clf) -> Figure:
    """Draw what `history_` recorded of every epoch: J0, J1, J2 and accuracies.

    Parameters
    ----------
    clf : classifier
        Fitted; with `validation_fraction` the accuracy on those samples is drawn too.
    """
    check_is_fitted(clf)
    history = getattr(clf, "history_", None)
    if not history:
        raise ValueError(
            f"training_curve() draws the records in `history_` of a classifier that was trained "
            f"by epochs; {type(clf).__name__} has none."
        )
    terms = [name for name in _TERMS if name in history[-1]]
    epochs = [record["epoch"] for record in history]
    figure = make_figure(2.7 * (len(terms) + 1), 2.6)
    axes = figure.subplots(1, len(terms) + 1)
    for axis, name, style in zip(axes, terms, line_styles(), strict=False):
        values = [record[name] for record in history]
        axis.plot(epochs, values, **style)
        axis.set(ylabel=_TERMS[name], ylim=(0, 1.1 * max(values) or 1))
    series = {"accuracy": "training", "validation_accuracy": "validation"}
    for (name, label), style in zip(series.items(), line_styles(), strict=False):
        if name in history[-1]:
            values = [100 * record[name] for record in history]
            axes[-1].plot(epochs, values, label=label, **style)
    axes[-1].set_ylabel("accuracy, %")
    axes[-1].legend(frameon=False)
    for axis in axes:
        axis.set_xlabel("epoch")
        axis.xaxis.get_major_locator().set_params(integer=True)
        clear(axis)
    return figure


def accuracy_curve(table, marks: Iterable[tuple[str, float]] = ()) -> Figure:
    """Draw accuracy against the share of missing entries: mean ± standard error, by method.

    Parameters
    ----------
    table : DataFrame or list of dict
        One row per run: method, rate and accuracy, both from 0 to 1, and the seed or the fold.
    marks : pairs (method, rate), optional
        Where there is a star of the method's colour at the top, for example because it differs
        significantly from another.
    """
    frame = _checked_table(table, ("method", "rate", "accuracy"), ("rate", "accuracy"))
    repeated = [name for name in ("seed", "fold") if name in frame]
    run = ["method", "rate", *repeated]
    if repeated and frame.duplicated(run).any():
        first = frame.loc[frame.duplicated(run), run].iloc[0].to_dict()
        raise ValueError(
            f"every run must be there once, but {first} is there again; select the rows of one "
            f"dataset and one kind of holes."
        )
    figure = make_figure(5.6, 3.4)
    axis = figure.subplots()
    draw_accuracy(axis, frame, frame["method"].unique(), marks)
    axis.set(xlabel="missing, %", ylabel="accuracy, %")
    figure.legend(loc="outside right upper", frameon=False)
    return figure


def certificate_coverage(
    clf, X, y, rates: Iterable[float] = (0.05, 0.1, 0.25, 0.5), random_state=0
) -> Figure:
    """Draw how many samples are certified, and how many of those are right, against holes.

    Parameters
    ----------
    clf : SparseCodingClassifier
        Fitted; see its `certify`.
    X : array of shape (n_samples, *sample_shape) or DataFrame
        Complete samples that were not learned from; holes are made at random.
    y : array of shape (n_samples,)
        Their classes.
    rates : floats
        Shares of the entries to hide, from 0 to 1.
    random_state : int, RandomState or None
        For the holes.
    """
    check_is_fitted(clf)
    if not hasattr(clf, "certify"):
        raise ValueError(
            f"certificate_coverage() draws what certify() of a classifier says; "
            f"{type(clf).__name__} has none."
        )
    rates, y = sorted(rates), column_or_1d(y)
    if not rates:
        raise ValueError("rates must be shares of entries to hide, such as (0.1, 0.5); got none.")
    check_consistent_length(X, y)
    shares = []
    for rate in rates:
        holes = ampute(X, "random", rate, random_state=random_state)
        certain, right = clf.certify(holes).certain, clf.predict(holes) == y
        of_certain = right[certain].mean() if certain.any() else math.nan
        shares.append((certain.mean(), of_certain, right.mean()))
    figure = make_figure(5.6, 3.2)
    axis = figure.subplots()
    labels = ("certified", "right where certified", "right, all samples")
    for label, values, style in zip(labels, np.transpose(shares), line_styles(), strict=False):
        axis.plot(100 * np.array(rates), 100 * values, label=label, **style)
    axis.set(xlabel="missing, %", ylabel="samples, %", ylim=(-3, 103))
    clear(axis)
    figure.legend(loc="outside right upper", frameon=False)
    return figure


def lambda_heat_map(rows) -> Figure:
    """Draw the validation accuracy over the grid of λ1 and λ2; the best cell is framed.

    Parameters
    ----------
    rows : DataFrame or list of dict
        lambda_rec, lambda_l1 and accuracy, from 0 to 1; of several rows of a cell the mean.
    """
    columns = ("lambda_rec", "lambda_l1", "accuracy")
    frame = _checked_table(rows, columns, ("accuracy",))
    n_rec, n_l1 = (frame[name].nunique() for name in columns[:2])
    figure = make_figure(max(0.6 * n_l1 + 1.4, 2.8), max(0.45 * n_rec + 1.1, 2.2))
    axis = figure.subplots()
    draw_heat_map(axis, frame)
    axis.set_title("validation accuracy, %", fontsize="medium")
    return figure


def _check_count(n) -> None:
    if not is_whole(n):
        raise ValueError(f"n must be a whole number ≥ 1; got {n!r}.")


def _checked_table(table, columns: tuple[str, ...], shares: tuple[str, ...]) -> pd.DataFrame:
    """Return rows as a frame that has the columns, with numbers from 0 to 1 in some of them."""
    import pandas as pd

    frame = pd.DataFrame(table)
    lacking = [name for name in columns if name not in frame]
    if lacking or frame.empty:
        raise ValueError(
            f"rows with {', '.join(columns)} were expected; got {len(frame)} rows with "
            f"{', '.join(map(str, frame.columns)) or 'nothing'}."
        )
    for name in shares:
        wrong = frame.loc[~pd.to_numeric(frame[name]).between(0, 1), name]
        if len(wrong):
            raise ValueError(f"{name} must be a number from 0 to 1; got {wrong.iloc[0]!r}.")
    return frame
