"""One cell of a table: train on samples with holes, test on complete and incomplete ones."""

from __future__ import annotations

import functools
import time

import numpy as np
import torch
from sklearn.base import clone

from halfseen.datasets import ImageSet
from halfseen.disk import slices
from halfseen.experiments.data import IMAGES, load, with_holes
from halfseen.experiments.methods import are_ordered, choices, settings_of, taken, validated
from halfseen.experiments.rows import append, read
from halfseen.experiments.runner import Context
from halfseen.experiments.tuning import tuned

_UNCODED_AT_ONCE = 1_000


def run(cell: dict, context: Context) -> dict:
    """Return accuracies on complete and, if there are holes, incomplete test samples."""
    data, rate = load(cell["dataset"], context.folder, cell["seed"], context.small), cell["rate"]
    clf, holes, y = prepared(cell, context)
    start = time.perf_counter()
    clf.fit(holes, y)
    seconds = time.perf_counter() - start
    incomplete = None
    if rate:
        places = (cell[name] for name in ("dataset", "mechanism", "rate", "seed"))
        incomplete = float(clf.score(_holes(*places, context, test=True), data.y_test))
    return {
        "accuracy_complete": float(clf.score(data.X_test, data.y_test)),
        "accuracy_uncoded": _uncoded(clf, data),
        "accuracy_incomplete": incomplete,
        "n_train": len(data.X_train),
        "n_test": len(data.X_test),
        "sample_shape": list(data.X_train.shape[1:]),
        "settings": settings_of(clf),
        "fit_seconds": round(seconds, 3),
    }


def _uncoded(clf, data: ImageSet) -> float | None:
    """Return the accuracy on complete test samples that the network sees as they are.

    A network that learned reconstructions usually sees those of complete samples as well; the
    paper's text asks for codes of incomplete ones alone.
    """
    if getattr(clf, "network_input", "completed") != "reconstruction":
        return None  # it sees complete samples as they are in any case
    module = clf.module_
    labels = []
    with torch.no_grad():
        for some in slices(len(data.X_test), _UNCODED_AT_ONCE):
            X = torch.from_numpy(data.X_test[some]).to(module.completion.atoms)
            labels.append(module.network(module.standardise(X)).argmax(1).cpu().numpy())
    return float((clf.classes_[np.concatenate(labels)] == data.y_test).mean())


def prepared(cell: dict, context: Context):
    """Return the untrained classifier of a cell, samples with holes, and labels."""
    places = ("dataset", "mechanism", "rate", "method", "network")
    clf = clone(_settled(*(cell[name] for name in places), context))
    holes, y = _training(cell["dataset"], cell["mechanism"], cell["rate"], cell["seed"], context)
    return clf.set_params(device=context.device, random_state=cell["seed"]), holes, y


@functools.cache
def _settled(
    dataset: str, mechanism: str, rate: float, method: str, network: str, context: Context
):
    """Return a method with its settings, chosen on the training samples of the first seed."""
    candidates = choices(method, network, dataset, rate, context.small)
    if method == "Simult." and dataset in IMAGES:
        weights = tuned(dataset, network, mechanism, rate, context)
        return candidates[0].set_params(**weights)
    if len(candidates) == 1:
        return candidates[0]
    question = {
        "dataset": dataset,
        "variant": dict(context.variants).get(dataset, ""),
        "mechanism": mechanism,
        "rate": rate,
        "method": method,
        "network": network,
        "candidates": [settings_of(clf) for clf in candidates],
    }
    holes, y = _training(dataset, mechanism, rate, 0, context)
    path = None if context.out is None else context.out / "choices.jsonl"
    for row in [] if path is None else read(path):
        if all(row[name] == value for name, value in question.items()):
            scores = row["accuracy_validation"]
            break
    else:
        scores = validated(candidates, holes, y, context.device)
        if path is not None:
            append(path, {**question, "accuracy_validation": scores})
    return candidates[taken(are_ordered(dataset), scores, len(y))]


def _training(dataset: str, mechanism: str, rate: float, seed: int, context: Context) -> tuple:
    data = load(dataset, context.folder, seed, context.small)
    if rate == 0:
        return data.X_train, data.y_train
    return _holes(dataset, mechanism, rate, seed, context, test=False), data.y_train


@functools.lru_cache(maxsize=3)  # the methods of a cell follow each other
def _holes(
    dataset: str, mechanism: str, rate: float, seed: int, context: Context, *, test: bool
) -> np.ndarray:
    data = load(dataset, context.folder, seed, context.small)
    X = data.X_test if test else data.X_train
    return with_holes(X, mechanism, rate, seed, test=test)
