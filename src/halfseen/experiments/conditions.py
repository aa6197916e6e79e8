"""The paper's figure "cond": how often its sufficient condition type II holds.

10,000 sums of K of 100 atoms, 95% of the entries missing, a logistic regression learned together
with dictionary and codes. For every sample ε, by how far its reconstruction is from the
hyperplane, is compared with g, the bound of the condition (`halfseen.certificates.type_two`).
"""

from __future__ import annotations

import numpy as np
import torch

from halfseen.certificates import Condition, type_one, type_two
from halfseen.experiments.classifying import cell, fitted
from halfseen.experiments.data import load
from halfseen.experiments.methods import settings_of
from halfseen.experiments.runner import Context

SPARSITIES = (2, 4, 8, 16, 32)
_N_BINS = 40


def cells(seeds: int, small: bool) -> list[dict]:
    """Return the cells: one for each sparsity and method."""
    return [
        cell(f"synthetic K={K} d=0 P=100", "random", 0.95, method, "logistic", seed)
        for seed in range(seeds)
        for K in (SPARSITIES[:2] if small else SPARSITIES)
        for method in ("Simult.", "Best")
    ]


def run(cell: dict, context: Context) -> dict:
    """Return how often the condition holds, and who is classified rightly when it does."""
    data = load(cell["dataset"], context.folder, cell["seed"], context.small)
    X = data.X_train
    clf, holes = fitted(cell, context)
    parts = _linear(clf)
    reconstruction = clf.inverse_transform(clf.transform(holes)).astype(np.float64)
    if clf.network_input == "completed":
        reconstruction = np.where(np.isnan(holes), reconstruction, holes)
    given = [torch.from_numpy(array) for array in (X, reconstruction, ~np.isnan(holes))]
    # f of the original itself: as the paper has it, nothing is coded.
    of_original, of_reconstruction = (
        (values @ parts[0].T + parts[1]).argmax(1).numpy() for values in given[:2]
    )
    right = clf.classes_[of_original] == data.y_train
    same = of_original == of_reconstruction
    found = {"accuracy_complete": float(right.mean()), "settings": settings_of(clf)}
    for name, condition, sound in (
        ("type II", type_two, False),
        ("type II, sound", type_two, True),
        ("type I, sound", type_one, True),
    ):
        found[name] = _shares(condition(*parts, *given, sound=sound), right, same)
    published = type_two(*parts, *given, sound=False)
    return {**found, "histogram": _histogram(published), "n_train": len(X)}


def _linear(clf) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weights and biases of a logistic regression in the units of X."""
    module = clf.module_.double().cpu()
    layer = module.network[-1]
    weight = layer.weight.detach() / module.standardise.scale
    return weight, layer.bias.detach() - weight @ module.standardise.centre


def _shares(condition: Condition, right: np.ndarray, same: np.ndarray) -> dict:
    holds = condition.holds.numpy()
    return {
        "holds": float(holds.mean()),
        "right_if_holds": float(right[holds].mean()) if holds.any() else None,
        "right_if_not": float(right[~holds].mean()) if not holds.all() else None,
        "same_if_holds": float(same[holds].mean()) if holds.any() else None,
    }


def _histogram(condition: Condition) -> dict:
    """Return how many samples have which ε and g; both axes end where 99% are below."""
    ends = [float(np.quantile(part, 0.99)) for part in (condition.margin, condition.bound)]
    counts, _, _ = np.histogram2d(
        condition.margin.numpy(),
        condition.bound.numpy(),
        bins=_N_BINS,
        range=[(0, ends[0]), (0, ends[1])],
    )
    return {"epsilon_end": ends[0], "g_end": ends[1], "counts": counts.astype(int).tolist()}
