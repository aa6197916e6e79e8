"""From the parameters of a `SparseCodingClassifier` and what is known of its data to a module."""

from __future__ import annotations

import math
from collections import OrderedDict

import numpy as np
import torch
from torch import nn

from halfseen.boundary import (
    check_finite,
    is_number,
    is_whole,
    learning_dtype,
    require,
    require_digits,
)
from halfseen.fitting import check_training_settings, epochs
from halfseen.learned_data import Data
from halfseen.moments import ObservedMoments
from halfseen.networks import make_network
from halfseen.nn import OUTPUTS, SparseCompletion
from halfseen.objective import SCALINGS, share_weight
from halfseen.standardise import Standardise, centre_and_scale
from halfseen.tilings import Tiling, checked_layout, tiling_of
from halfseen.training.published import Published

_TRAININGS = ("task", "joint", "sequential", "published")


class Model(nn.Sequential):
    """A tensor with NaN in, scores out: the three parts of a classifier, one after the other."""

    standardise: Standardise
    completion: SparseCompletion
    network: nn.Module


def check_settings(settings) -> None:
    """Refuse parameters that make no sense, before any work is done."""
    check_training_settings(settings)

    def check(name: str, ok: bool, expected: str) -> None:
        require(settings, name, ok, expected)

    n_atoms, lambda_l1 = settings.n_atoms, settings.lambda_l1
    check("n_atoms", n_atoms is None or is_whole(n_atoms), "a whole number ≥ 1 or None")
    check("lambda_rec", is_number(settings.lambda_rec) and settings.lambda_rec > 0, "positive")
    check(
        "lambda_l1",
        lambda_l1 is None or (is_number(lambda_l1) and lambda_l1 > 0),
        "positive or None",
    )
    check("label_weight", is_number(settings.label_weight) and settings.label_weight >= 0, "≥ 0")
    check(
        "tiling",
        settings.tiling is None or isinstance(settings.tiling, Tiling),
        "None or a tiling such as Whole() or Patches(8, 4)",
    )
    check(
        "training",
        isinstance(settings.training, Published) or settings.training in _TRAININGS,
        f"one of {', '.join(map(repr, _TRAININGS))} or a Published",
    )
    weights = settings.class_weight
    known = weights is None or isinstance(weights, dict) or weights == "balanced"
    check("class_weight", known, "'balanced', a dict from labels to weights, or None")
    check("rec_scaling", settings.rec_scaling in SCALINGS, " or ".join(map(repr, SCALINGS)))
    check("network_input", settings.network_input in OUTPUTS, " or ".join(map(repr, OUTPUTS)))


def published(settings) -> Published | None:
    """Return the paper's rates if the paper's algorithms are asked for."""
    if isinstance(settings.training, Published):
        return settings.training
    return Published() if settings.training == "published" else None


def make_module(
    settings, sample_shape, n_classes, n_atoms, lambda_l1, n_epochs, dtype, device
) -> Model:
    """Return standardisation, completion and network as one module, untrained."""
    rates = published(settings)
    completion = SparseCompletion(
        tiling_of(settings),
        n_atoms,
        sample_shape,
        lambda_rec=float(settings.lambda_rec),
        lambda_l1=lambda_l1,
        rec_scaling=settings.rec_scaling,
        output=settings.network_input,
        device="cpu",
        dtype=dtype,
    )
    if rates is not None:
        completion.tol = 0.0
        completion.solver = rates.test_solver(
            math.prod(sample_shape), int(settings.batch_size), n_epochs, lambda_l1
        )
    with torch.device("cpu"):  # whatever torch's default device is
        network = make_network(settings.network, sample_shape, n_classes)
    blank = np.zeros(sample_shape), np.ones(sample_shape)
    parts = {"standardise": Standardise(*blank), "completion": completion, "network": network}
    return Model(OrderedDict(parts)).to(device=device, dtype=dtype)


def module_for(
    settings, data: Data, moments: ObservedMoments, n_kept: int, device: torch.device
) -> Model:
    """Return the untrained model of these samples, `n_kept` of which are learned from."""
    centre, scale = centre_and_scale(moments)
    dtype = learning_dtype(data.values.dtype, device)
    if data.values.dtype == np.float64 and dtype == torch.float32:
        varying = moments.low < moments.high
        require_digits(centre, np.where(varying, scale, 0.0), "pass device='cpu'")
    rms = 1.0
    if published(settings) is not None:  # the paper works on the values as they are
        rms = moments.root_mean_value() or 1.0
        centre, scale = np.zeros_like(centre), np.ones_like(scale)
    lambda_l1 = settings.lambda_l1
    if lambda_l1 is None:
        mean_observed = torch.tensor(moments.count.sum() / len(data.values), device="cpu")
        n_features = math.prod(data.values.shape[1:])
        weight = share_weight(mean_observed, n_features, settings.rec_scaling).item()
        lambda_l1 = settings.lambda_rec * rms * n_features * weight  # alpha = rms / 2 there
    n_tiles, n_tile_features = checked_layout(tiling_of(settings), data.values.shape[1:]).shape
    module = make_module(
        settings,
        data.values.shape[1:],
        data.n_classes,
        settings.n_atoms or min(n_tile_features, n_kept * n_tiles),
        float(lambda_l1),
        epochs(settings, n_kept),
        dtype,
        device,
    )
    module.standardise.centre.copy_(torch.from_numpy(centre))
    module.standardise.scale.copy_(torch.from_numpy(scale))
    ends = torch.from_numpy(np.stack([moments.low, moments.high]))
    check_finite(module.standardise(ends.to(module.standardise.centre)), "X, standardised,", False)
    return module
