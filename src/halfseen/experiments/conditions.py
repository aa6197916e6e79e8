"""The paper's figure "cond": how often its sufficient condition type II holds.

10,000 sums of K of 100 atoms, 95% of the entries missing, a logistic regression learned together
with dictionary and codes. For every training sample ε, by how far its reconstruction is from the
hyperplane, is compared with g, the bound of the condition (`halfseen.certificates.type_two`).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from halfseen.boundary import choose_device
from halfseen.certificates import Condition, type_one, type_two
from halfseen.disk import PickedRows
from halfseen.experiments.classifying import prepared
from halfseen.experiments.data import load
from halfseen.experiments.methods import settings_of
from halfseen.experiments.rows import cell
from halfseen.experiments.runner import Context
from halfseen.fitting import training_mode
from halfseen.learned_data import Data
from halfseen.model import Model
from halfseen.sparse_fitting import set_up
from halfseen.training.joint import Joint
from halfseen.training.loop import run as run_epochs

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
    X, classes = data.X_train, np.unique(data.y_train)
    clf, holes, y = prepared(cell, context)
    module, codes = _trained(clf, holes, y, classes, context)
    module = module.double().cpu()
    parts = _linear(module)
    with torch.no_grad():
        inside = module.completion.reconstruct(codes.double().cpu())
        reconstruction = module.standardise.inverse(inside)
    given = torch.from_numpy(holes)
    observed = ~given.isnan()
    if clf.network_input == "completed":
        reconstruction = torch.where(observed, given, reconstruction)
    original = torch.from_numpy(X)
    # f of the original itself: as the paper has it, nothing is coded.
    of_original, of_reconstruction = (
        (values @ parts[0].T + parts[1]).argmax(1).numpy() for values in (original, reconstruction)
    )
    right, same = classes[of_original] == y, of_original == of_reconstruction
    found = {"accuracy_complete": float(right.mean()), "settings": settings_of(clf)}
    everything = *parts, original, reconstruction, observed
    published = type_two(*everything, sound=False)
    for name, condition in (
        ("type II", published),
        ("type II, sound", type_two(*everything, sound=True)),
        ("type I, sound", type_one(*everything, sound=True)),
    ):
        found[name] = _shares(condition, right, same)
    nonzero = float((codes != 0).double().mean())
    return {**found, "histogram": _histogram(published), "nonzero": nonzero, "n_train": len(X)}


def _trained(clf, holes: np.ndarray, y: np.ndarray, classes: np.ndarray, context: Context):
    """Train as `fit` does; return the module and the codes that it was trained with.

    Those of "joint" training know the labels, as the paper's do.
    """
    device, n_samples = choose_device(context.device), len(holes)
    labels = np.searchsorted(classes, y)
    rows = PickedRows(holes, np.arange(n_samples))
    data = Data(rows, labels, np.ones(n_samples), len(classes))
    with training_mode(clf.random_state, device):
        setup = set_up(clf, data, device, clf.random_state)
        run_epochs(setup.trainer, prepare=setup.prepare)
    if isinstance(setup.trainer, Joint):
        return setup.module, setup.trainer.codes[:]
    samples = setup.trainer.samples.settled()
    batch = samples.rows(torch.arange(n_samples, device=device))
    with torch.no_grad():
        return setup.module, setup.module.completion.encode(batch.X, batch.observed)


def _linear(module: Model) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weights and biases of a logistic regression in the units of X."""
    *_, layer = module.network.children()
    assert isinstance(layer, nn.Linear)
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
