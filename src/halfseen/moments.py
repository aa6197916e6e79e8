"""Means, spread and range of features with holes, also of samples that come in parts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from halfseen.disk import MappedRows, PickedRows

_ENTRIES_ON_CPU, _ENTRIES_ON_GPU = 2**20, 2**24
Rows = np.ndarray | Tensor | MappedRows | PickedRows


@dataclass(frozen=True)
class ObservedMoments:
    """What is known of each feature from its observed values; arrays of a sample's shape."""

    count: np.ndarray
    mean: np.ndarray  # 0 where nothing was observed
    squares: np.ndarray  # sum of squared deviations from the mean
    low: np.ndarray  # inf where nothing was observed
    high: np.ndarray  # -inf where nothing was observed

    @classmethod
    def of(cls, values: Rows, device: torch.device | None = None) -> ObservedMoments:
        """Return the moments of samples in which NaN is a hole.

        They are read in parts, twice, so little memory is needed beside them.

        Parameters
        ----------
        values : array or Tensor of shape (n_samples, ...)
        device : torch.device, optional
            Where to compute.
        """
        shape, device = tuple(values.shape[1:]), device or torch.device("cpu")
        count = torch.zeros(shape, dtype=torch.int64, device=device)
        total = torch.zeros(shape, dtype=torch.float64, device=device)
        low, high = total + torch.inf, total - torch.inf
        for part in parts_of(values, device):
            seen = ~part.isnan()
            part = part.double()
            count += seen.sum(0)
            total += torch.where(seen, part, 0).sum(0)
            low = torch.minimum(low, torch.where(seen, part, torch.inf).amin(0))
            high = torch.maximum(high, torch.where(seen, part, -torch.inf).amax(0))
        mean = total / count.clamp(min=1)
        squares = torch.zeros_like(total)
        for part in parts_of(values, device):
            squares += torch.nan_to_num(part.double() - mean, posinf=torch.inf).square().sum(0)
        return cls(*(array.cpu().numpy() for array in (count, mean, squares, low, high)))

    @property
    def square_sum(self) -> float:
        """Sum of all squared deviations."""
        return float(self.squares.sum())

    def merged(self, other: ObservedMoments) -> ObservedMoments:
        """Return the moments of both sets of samples together."""
        count = self.count + other.count
        share = other.count / np.maximum(count, 1)
        difference = np.where(self.count > 0, other.mean - self.mean, other.mean)
        with np.errstate(over="ignore"):  # who needs the squares asks whether they are finite
            between = np.square(other.mean - self.mean) * self.count * share
        return ObservedMoments(
            count,
            np.where(other.count > 0, self.mean + difference * share, self.mean),
            self.squares + other.squares + between,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )

    def centred(self, values: np.ndarray) -> np.ndarray:
        """Subtract the means; holes stay NaN."""
        return values - self.mean.astype(values.dtype)

    def root_mean_square(self) -> float:
        """Return the root mean square of the deviations of observed values."""
        return math.sqrt(self.square_sum / max(int(self.count.sum()), 1))

    def root_mean_value(self) -> float:
        """Return the root mean square of the observed values as they are."""
        squares = self.squares + self.count * np.square(self.mean)
        return math.sqrt(squares.sum() / max(int(self.count.sum()), 1))

    def require_every_feature(self) -> None:
        """Refuse features that no sample has shown."""
        never = np.argwhere(self.count == 0)
        if len(never):
            first = int(never[0, 0]) if never.shape[1] == 1 else tuple(never[0].tolist())
            raise ValueError(
                f"{len(never)} feature(s) of X are never observed, the first is {first}; remove "
                f"them or add samples in which they are observed."
            )


def parts_of(values: Rows, device: torch.device | None = None) -> Iterator[Tensor]:
    """Yield samples as tensors on a device, some at a time; they must not be written to."""
    on_gpu = device is not None and device.type == "cuda"
    at_once = _ENTRIES_ON_GPU if on_gpu else _ENTRIES_ON_CPU
    n_at_once = max(1, at_once // max(1, math.prod(values.shape[1:])))
    for start in range(0, len(values), n_at_once):
        part = values[start : start + n_at_once]
        if isinstance(values, np.ndarray):
            # A copy: it may not be writeable, which torch warns of.
            part = np.array(part, order="C")
        yield torch.as_tensor(part, device=device or "cpu")
