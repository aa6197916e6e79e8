"""The compared methods by their names in the tables, and how their settings are chosen.

Settings of "Best" on image sets were chosen on validation images (docs/experiments.md); on the
synthetic data every method chooses by validation samples, with holes, out of the training set of
the first seed; so do rivals on image sets, between two weight decays, and "Simult." there, by the
grid of `tuning`. No method sees test samples. On synthetic data and in that grid candidates are
listed from the plainest, and the plainest that validation cannot tell from the best is taken.
"""

from __future__ import annotations

import math
import re

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import train_test_split

from halfseen import rivals
from halfseen.classifier import SparseCodingClassifier
from halfseen.tilings import Channels, Patches, Whole
from halfseen.training.published import published_settings

RIVALS = ("ZF", "MS", "KNN10", "KNN20", "KNN50", "KNN100", "NN-GMM")
MODERN = ("MU", "mean + indicator", "NeuMiss")
# Algorithm 1 scaled as in the paper's text, and as in the authors' code for CNN4 and 75%, whose
# weight of the l1 norm is not divided by the number of features.
ALGORITHMS: dict[str, dict] = {
    "Algorithm 1": {},
    "Algorithm 1, scaled as in the code": {
        "rec_scaling": "inverse", "lambda_rec": 0.128, "lambda_l1": 0.128 * 784,
    },
}  # fmt: skip
_VALIDATED = 0.2

# Passes over the data, for all methods alike.
TRAINING: dict[str, dict] = {
    "mnist": {"n_epochs": 15, "batch_size": 250},
    "fashion_mnist": {"n_epochs": 20, "batch_size": 250},
    "cifar10": {"n_epochs": 12, "batch_size": 250},
    "digits": {"n_epochs": 4, "batch_size": 100},
    "synthetic": {},
}
# The paper's way: one dictionary for whole images or channels, codes and labels together.
SIMULTANEOUS: dict[str, dict] = {
    "mnist": {"tiling": Whole(), "n_atoms": 784},
    "fashion_mnist": {"tiling": Whole(), "n_atoms": 784},
    "cifar10": {"tiling": Channels(), "n_atoms": 1024},
    "digits": {"tiling": Whole(), "n_atoms": 64},
    "synthetic": {},
}
BEST: dict[str, dict] = {
    "mnist": {"tiling": Patches(14, 2), "n_atoms": 256, "training": "sequential"},
    "fashion_mnist": {"tiling": Patches(14, 2), "n_atoms": 256, "training": "sequential"},
    "cifar10": {"tiling": Patches(8, 4), "n_atoms": 256, "training": "sequential"},
    "digits": {"tiling": Patches(4, 2), "n_atoms": 32, "training": "sequential"},
    "synthetic": {},
}
# A linear network gains from labels in the dictionary, and sees them in reconstructions alone.
BEST_LINEAR: dict = {
    "tiling": Patches(14, 7), "n_atoms": 256, "training": "task",
    "network_input": "reconstruction", "rec_scaling": "inverse", "hide": 0.0,
}  # fmt: skip
# What rivals choose from on image sets: the decay that suits "Best", and hardly any.
_DECAYS = (None, 1e-3)
# The price of a code in "Best", in deviations; and how many features it is shared by.
ALPHA = {"mnist": (0.15, 784), "fashion_mnist": (0.15, 784), "cifar10": (0.05, 3072)}


def choices(method: str, network: str, dataset: str, rate: float, small: bool) -> list:
    """Return the classifiers, unfitted, that a method may choose from by validation.

    Parameters
    ----------
    method : str
        "Simult.", "Best", "Seq. Sp.", one of `ALGORITHMS`, a rival's name, or "dropout 0.25".
    network, dataset : str
    rate : float
        Share of the entries that are missing.
    small : bool
        Whether to train shortly, to show that it runs.
    """
    kind = dataset.split()[0]
    training = {**TRAINING[kind], **({"n_epochs": 2} if small else {})}
    planted = re.search(r"P=(\d+)", dataset)
    own: dict = {"n_atoms": int(planted.group(1))} if planted else {}
    prices: list[dict] = [{}]
    if planted:  # four times, all and half of the default, with 100 features
        prices = [{"lambda_l1": share * 100 * (1 - rate)} for share in (4.0, 1.0, 0.5)]
    elif method == "Best" and kind in ALPHA:
        alpha, n_features = ALPHA[kind]
        prices = [{"lambda_l1": 2 * alpha * (1 - rate) * n_features}]
        if network == "logistic":
            prices = [_linear_prices(1 - rate, n_features)]
    if small:
        own |= {"n_epochs": 2}
    found = _choices(method, network, kind, rate, training, own, prices)
    return found[:1] if small else found


def validated(candidates: list, X: np.ndarray, y: np.ndarray, device: str) -> list[float]:
    """Return the accuracy of each candidate on training samples kept apart."""
    parts = train_test_split(X, y, test_size=_VALIDATED, stratify=y, random_state=0)
    scores = []
    for clf in candidates:
        trial = clone(clf).set_params(device=device, random_state=0)
        scores.append(float(trial.fit(parts[0], parts[2]).score(parts[1], parts[3])))
    return scores


def are_ordered(dataset: str) -> bool:
    """Say whether the candidates of methods are listed from the plainest.

    On synthetic data: labels that hardly reach the codes before those that rule them, coding first
    before a dictionary that follows the labels, few codes before many, nothing hidden in training
    before a quarter, the mean of many neighbours before that of few. Weights of decay have no
    order.
    """
    return dataset.startswith("synthetic")


def taken(ordered: bool, scores: list[float], n_samples: int) -> int:
    """Return the place of the candidate that is taken.

    That is the best one; where candidates are ordered, the first that is within one standard
    error of it (the rule of Breiman et al. 1984).

    Parameters
    ----------
    ordered : bool
        Whether candidates are listed from the plainest.
    scores : list of float
        Accuracies that `validated` returned.
    n_samples : int
        How many training samples there are, those for validation among them.
    """
    best = max(scores)
    error = math.sqrt(best * (1 - best) / (_VALIDATED * n_samples)) if ordered else 0.0
    return next(place for place, score in enumerate(scores) if score >= best - error)


def settings_of(clf) -> dict:
    """Return what differs from the defaults, as plain values."""
    defaults = type(clf)().get_params(deep=False)
    return {
        name: value if isinstance(value, int | float | str | bool | None) else repr(value)
        for name, value in clf.get_params(deep=False).items()
        if name not in ("device", "random_state", "verbose") and value != defaults[name]
    }


def _choices(
    method: str, network: str, kind: str, rate: float, training: dict, own: dict, prices: list
) -> list:
    """Return the settings that a method may choose from."""
    if method == "Simult.":
        paper = {"training": "joint", "network_input": "reconstruction", "label_weight": 1.0}
        base = {**SIMULTANEOUS[kind], **paper, **training, **own}
        # Labels count less against a larger weight of the reconstruction.
        weights = (100.0, 10.0, 1.0) if len(prices) > 1 else (1.0,)
        return [
            SparseCodingClassifier(network, **{**base, "lambda_rec": rec, **_scaled(price, rec)})
            for rec in weights
            for price in prices
        ]
    if method == "Best":
        linear = kind == "mnist" and network == "logistic"
        base = {**(BEST_LINEAR if linear else BEST[kind]), **training, **own}
        ways = ("sequential", "task") if kind == "synthetic" else (base["training"],)
        return [
            SparseCodingClassifier(network, **{**base, "training": way, **price})
            for way in ways
            for price in prices
        ]
    if method == "Seq. Sp.":  # the paper's Algorithm 3: the network learns reconstructions
        base = {**SIMULTANEOUS[kind], "network_input": "reconstruction", **training, **own}
        return [rivals.sequential_sparse(network, **{**base, **price}) for price in prices]
    if method in ALGORITHMS:  # as published, nothing chosen
        published = published_settings(f"{kind}-{network}", rate)
        return [SparseCodingClassifier(**{**published, **ALGORITHMS[method], **own})]
    if method.startswith("dropout"):
        return [rivals.complete_data(network, float(method.split()[1]), **training)]
    settings: list[dict] = [{"hide": 0.0}, {"hide": 0.25}]
    if kind != "synthetic":
        settings = [{"weight_decay": decay} for decay in _DECAYS]
    named = {**rivals.of_the_paper(network, **training), **rivals.usual(network, **training)}
    wanted = [f"KNN{k}" for k in (100, 10)] if method == "KNN" else [method]
    return [clone(named[name]).set_params(**some) for some in settings for name in wanted]


def _linear_prices(observed: float, n_features: int) -> dict:
    """Return λ1 and λ2 such that J1 of a training sample weighs 0.1·M/N and alpha is 1."""
    return {"lambda_rec": 0.1 * observed**2, "lambda_l1": 0.2 * observed * n_features}


def _scaled(price: dict, weight: float) -> dict:
    """Return a price of codes for a weight of the reconstruction: alpha stays the same."""
    return {name: weight * value for name, value in price.items()}
