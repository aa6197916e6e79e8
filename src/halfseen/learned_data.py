"""What a classifier learns from: distinct samples, their labels and their weights."""

from __future__ import annotations

import functools
import hashlib
import math
import re
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.utils.class_weight import compute_sample_weight
from torch import nn

from halfseen.boundary import plain
from halfseen.disk import PickedRows
from halfseen.duplicates import distinct_rows, row_keys
from halfseen.given_samples import checked_weights
from halfseen.moments import ObservedMoments
from halfseen.team import Team

_READ_BY_ALL = 2**24  # entries that need not be shared out: sums then round alike in any team
_LOOKED_AT = 64  # rows that processes compare
_OF_A_PLACE = ("network", "device", "random_state", "verbose")  # may differ between processes


@dataclass(frozen=True)
class Data:
    """What is learned from: distinct samples with holes, their labels and weights."""

    values: PickedRows  # (n_samples, *sample_shape)
    labels: np.ndarray  # (n_samples,), places among the classes
    weight: np.ndarray  # (n_samples,)
    n_classes: int


def distinct_data(
    settings,
    values,
    labels,
    classes,
    sample_weight,
    device: torch.device,
    team: Team,
    is_kept: bool = False,
) -> tuple[Data, np.ndarray]:
    """Return distinct samples and their keys; see `fit_classifier` for the parameters.

    `is_kept` says whether there is a checkpoint.
    """
    weight = _weights(settings, values, labels, classes, sample_weight)
    if not team.alone:
        _require_same_data(settings, values, labels, classes, weight, team, is_kept)
    keys = row_keys(values, device, team)
    rows, weight = distinct_rows(keys, labels, weight)
    return Data(PickedRows(values, rows), labels[rows], weight, len(classes)), keys[rows]


def compared(settings) -> list[tuple[str, object]]:
    """Return the parameters that must be the same in all processes, and when going on later.

    An own tiling has no name that lasts but that of its class.
    """
    parameters = {name: plain(value) for name, value in settings._parameters().items()}
    for name in _OF_A_PLACE:
        del parameters[name]
    if type(parameters["tiling"]).__repr__ is object.__repr__:
        parameters["tiling"] = type(parameters["tiling"]).__qualname__
    weights = parameters["class_weight"]
    if isinstance(weights, dict):  # equal ones in another order, or as other numbers
        plainly = ((repr(plain(label)), float(weight)) for label, weight in weights.items())
        parameters["class_weight"] = sorted(plainly)
    return sorted(parameters.items())


def described(network: nn.Module) -> str:
    """Return what a network is made of, without places in memory."""
    return re.sub(r" at 0x[0-9A-Fa-f]+", "", repr(network))


def _require_same_data(
    settings, values, labels, classes, weight: np.ndarray, team: Team, is_kept: bool
) -> None:
    """Refuse, in all processes, data or settings that are not the same in all of them."""
    some = np.linspace(0, len(values) - 1, _LOOKED_AT).astype(np.int64)
    network = settings.network
    if not isinstance(network, str):
        network = described(network) if isinstance(network, nn.Module) else type(network).__name__
    about = values.shape, str(values.dtype), classes.tolist(), compared(settings), network, is_kept
    digest = hashlib.sha256(repr(about).encode())
    for array in (row_keys(PickedRows(values, some)[:]), labels, weight):
        digest.update(np.ascontiguousarray(array).data)
    if len(set(team.gathered(digest.hexdigest()))) > 1:
        raise ValueError(
            "the processes of this training were given different data or settings, or not all of "
            "them a checkpoint. All must call fit() with the same: each then takes its part. To "
            "train alone in each process, set the environment variable HALFSEEN_ALONE=1."
        )


def shared_moments(values: PickedRows, device: torch.device, team: Team) -> ObservedMoments:
    """Return the moments of all samples, of which each process reads a part."""
    own = values.as_stored()
    if team.alone or math.prod(values.shape) <= _READ_BY_ALL:
        return ObservedMoments.of(own, device)
    parts = team.gathered(ObservedMoments.of(own.part(team.block(len(own))), device))
    return functools.reduce(ObservedMoments.merged, parts)


def _weights(settings, values, labels, classes, sample_weight) -> np.ndarray:
    weight = checked_weights(sample_weight, values)
    weight = weight / max(weight.max(), np.finfo(float).tiny)  # sums stay finite
    if settings.class_weight == "balanced":
        # Not scikit-learn's, which counts rows: here a weight of two is a row twice.
        total = np.bincount(labels, weight)
        there = total > 0
        each = np.divide(weight.sum() / max(1, there.sum()), total, out=total * 0, where=there)
        weight = weight * each[labels]
    elif settings.class_weight is not None:
        weight = weight * compute_sample_weight(settings.class_weight, classes[labels])
        if not (np.isfinite(weight).all() and weight.min() >= 0):
            raise ValueError(
                f"class_weight must be finite and at least 0; got {settings.class_weight!r}."
            )
    if not weight.sum() > 0:
        raise ValueError("sample_weight and class_weight leave no sample with a positive weight.")
    return weight
