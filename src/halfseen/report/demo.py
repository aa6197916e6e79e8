"""The demonstration: digits with hidden pixels, our method beside the rivals, and its page."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from halfseen import SparseCodingClassifier, __version__, ampute, plots, rivals
from halfseen.datasets import digits
from halfseen.report.document import Document

OURS = "halfseen"
RATES = (0.25, 0.5, 0.75)
_SEEDS = 2
_N_TEST = 450
_SHOWN = 0.5  # the rate of which the page shows more


@dataclass(frozen=True)
class Demonstration:
    """What the demonstration found.

    Attributes
    ----------
    rows : list of dict
        method, rate, seed, accuracy, seconds.
    clf : SparseCodingClassifier
        Ours, fitted with half of the pixels hidden.
    X_test, y_test : ndarray
        Complete test digits.
    seconds : float
        It took.
    """

    rows: list[dict]
    clf: Any
    X_test: np.ndarray
    y_test: np.ndarray
    seconds: float
    rates = RATES

    def lines(self) -> list[tuple[str, ...]]:
        """Return accuracies in percent as text: a line per method, a column per rate."""
        methods = list(dict.fromkeys(row["method"] for row in self.rows))
        return [(method, *(self._accuracy(method, rate) for rate in RATES)) for method in methods]

    def _accuracy(self, method: str, rate: float) -> str:
        found = [
            row["accuracy"] for row in self.rows if (row["method"], row["rate"]) == (method, rate)
        ]
        error = np.std(found, ddof=1) / np.sqrt(len(found))
        return f"{100 * np.mean(found):.1f} ± {100 * error:.1f}"


def run_demo(progress: Callable[[int], AbstractContextManager]) -> Demonstration:
    """Fit all methods at all rates, on all cores.

    Parameters
    ----------
    progress : callable
        Given the number of fits, returns a context whose value is told of each.
    """
    from sklearn.utils.parallel import Parallel, delayed

    start = time.perf_counter()
    names = list(methods(0))
    # The slow ones first, so that no core waits for one at the end.
    cells = [(name, rate, seed) for name in names for rate in RATES for seed in range(_SEEDS)]
    rows, shown = [], None
    workers = Parallel(n_jobs=min(os.cpu_count() or 1, 4), return_as="generator")
    with progress(len(cells)) as advance:
        for row, clf in workers(delayed(_fit)(*cell) for cell in cells):
            rows.append(row)
            advance(f"{row['method']}, {row['rate']:.0%} hidden")
            if clf is not None:
                shown = clf
    _, _, X_test, y_test = split()
    return Demonstration(rows, shown, X_test, y_test, time.perf_counter() - start)


def methods(seed: int) -> dict[str, Any]:
    """Return the methods by name; networks are perceptrons, trained alike."""
    alike: dict[str, Any] = {"random_state": seed, "device": "cpu"}
    return {
        OURS: SparseCodingClassifier("mlp", **alike),
        "gradient boosting": rivals.gradient_boosting(seed),
        "KNNImputer, mlp": rivals.knn_fill("mlp", **alike),
        "mean + indicator, mlp": rivals.mean_and_indicator("mlp", **alike),
        "mean fill, mlp": rivals.mean_fill("mlp", **alike),
    }


def split() -> tuple[np.ndarray, ...]:
    """Return complete digits as rows of pixels and labels, for training and then for testing."""
    from sklearn.model_selection import train_test_split

    X, y = digits()
    parts = train_test_split(
        X.reshape(len(X), -1), y, test_size=_N_TEST, stratify=y, random_state=0
    )
    return parts[0], parts[2], parts[1], parts[3]


def demo_page(found: Demonstration) -> str:
    """Return the page about a demonstration."""
    holes = ampute(found.X_test, "random", _SHOWN, random_state=0)
    page = Document("Digits with holes")
    page.text(
        f"Pixels of {len(digits()[1])} digits (8×8, ten classes) are hidden at random, in training "
        f"and test. Nothing is filled in before learning: halfseen learns a dictionary, sparse "
        f"codes and a network together. {_N_TEST} digits are for testing; mean ± standard error "
        f"over {_SEEDS} draws of the holes. All networks are the same perceptron, trained alike."
    )
    page.heading("Accuracy")
    page.table(("accuracy, %", *(f"{rate:.0%} hidden" for rate in RATES)), found.lines())
    page.figure(plots.accuracy_curve(found.rows), "Accuracy on test digits against missing pixels.")
    page.heading("What it sees and fills in")
    page.figure(
        plots.reconstructions(found.clf, holes[:8], found.X_test[:8]),
        "Test digits, half of their pixels hidden (yellow): reconstructed from the codes, and "
        "completed with observed pixels kept.",
    )
    page.figure(plots.atoms(found.clf, 32), "Atoms of the dictionary.")
    page.heading("Where it errs")
    page.figure(
        _confusion(found.clf, holes, found.y_test),
        "Test digits with half of their pixels hidden: true class in rows, predicted in columns.",
    )
    page.heading("Which answers are certain")
    page.text(
        "A digit is certified if no values of its hidden pixels, within what was seen in training, "
        "can change its class. That is proved for few holes only; how likely a class stays is said "
        "by completion_proba."
    )
    page.figure(
        plots.certificate_coverage(found.clf, found.X_test, found.y_test, (0.02, 0.05, 0.1, 0.25)),
        "Share of test digits that are certified, and share of those that are right.",
    )
    page.heading("Training")
    page.figure(plots.training_curve(found.clf), "Losses and accuracy, epoch by epoch.")
    page.heading("How to repeat it")
    page.code("halfseen demo")
    settings = {k: v for k, v in found.clf.get_params().items() if k != "verbose"}
    page.table(("setting of halfseen", "value"), ((k, repr(v)) for k, v in settings.items()))
    page.text(f"halfseen {__version__}; {found.seconds:.0f} s on {os.cpu_count()} cores.")
    return str(page)


def _fit(name: str, rate: float, seed: int) -> tuple[dict, Any]:
    """Return the record of one fit, and the classifier if the page shows it."""
    import warnings

    X, y, X_test, y_test = split()
    clf = methods(seed)[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries, about convergence
        start = time.perf_counter()
        clf.fit(ampute(X, "random", rate, random_state=seed), y)
        seconds = time.perf_counter() - start
        holes = ampute(X_test, "random", rate, random_state=1000 + seed)
        accuracy = float((clf.predict(holes) == y_test).mean())
    row = {"method": name, "rate": rate, "seed": seed, "accuracy": accuracy, "seconds": seconds}
    return row, clf if (name, rate, seed) == (OURS, _SHOWN, 0) else None


def _confusion(clf: Any, X: np.ndarray, y: np.ndarray):
    from sklearn.metrics import confusion_matrix

    from halfseen.plots.drawing import make_figure

    counts = confusion_matrix(y, clf.predict(X), labels=clf.classes_)
    figure = make_figure(4.6, 4.6)
    axis = figure.subplots()
    axis.imshow(np.sqrt(counts), cmap="Blues")
    for true, predicted in zip(*np.nonzero(counts), strict=True):
        count = counts[true, predicted]
        colour = "white" if count > counts.max() / 3 else "black"
        axis.text(predicted, true, str(count), ha="center", va="center", color=colour, fontsize=9)
    places = range(len(clf.classes_))
    axis.set(xlabel="predicted", ylabel="true", xticks=places, yticks=places)
    return figure
