"""What a classifier learns from: distinct samples, their labels and their weights."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import _check_sample_weight

from halfseen.disk import PickedRows
from halfseen.duplicates import distinct_rows, row_keys
from halfseen.moments import ObservedMoments
from halfseen.team import Team


@dataclass(frozen=True)
class Data:
    """What is learned from: distinct samples with holes, their labels and weights."""

    values: PickedRows  # (n_samples, *sample_shape)
    labels: np.ndarray  # (n_samples,), places among the classes
    weight: np.ndarray  # (n_samples,)
    n_classes: int


def distinct_data(
    settings, values, labels, classes, sample_weight, device: torch.device, team: Team
) -> tuple[Data, np.ndarray]:
    """Return distinct samples and their keys; see `fit_classifier` for the parameters."""
    weight = _weights(settings, values, labels, classes, sample_weight)
    keys = row_keys(values, device, team)
    rows, weight = distinct_rows(keys, labels, weight)
    return Data(PickedRows(values, rows), labels[rows], weight, len(classes)), keys[rows]


def shared_moments(values: PickedRows, device: torch.device, team: Team) -> ObservedMoments:
    """Return the moments of all samples, of which each process reads a part."""
    own = values.as_stored()
    if team.alone:
        return ObservedMoments.of(own, device)
    parts = team.gathered(ObservedMoments.of(own.part(team.block(len(own))), device))
    return functools.reduce(ObservedMoments.merged, parts)


def _weights(settings, values, labels, classes, sample_weight) -> np.ndarray:
    weight = _check_sample_weight(sample_weight, values, dtype=np.float64, ensure_non_negative=True)
    weight = weight / max(weight.max(), np.finfo(float).tiny)  # sums stay finite
    if settings.class_weight is not None:
        weight = weight * compute_sample_weight(settings.class_weight, classes[labels])
    if not weight.sum() > 0:
        raise ValueError("sample_weight and class_weight leave no sample with a positive weight.")
    return weight
