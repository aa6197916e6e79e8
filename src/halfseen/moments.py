"""Means and spread of features with holes, also of samples that come in parts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ObservedMoments:
    """Observed count and mean of each feature, and the sum of all squared deviations."""

    count: np.ndarray
    mean: np.ndarray  # 0 where nothing was observed
    square_sum: float

    @classmethod
    def of(cls, values: np.ndarray) -> ObservedMoments:
        """Return the moments of samples in which NaN is a hole."""
        count = (~np.isnan(values)).sum(0)
        mean = np.nansum(values, 0, dtype=np.float64) / np.maximum(count, 1)
        return cls(count, mean, float(np.nansum(np.square(values - mean))))

    def merged(self, other: ObservedMoments) -> ObservedMoments:
        """Return the moments of both sets of samples together."""
        count = self.count + other.count
        share = other.count / np.maximum(count, 1)
        difference = np.where(self.count > 0, other.mean - self.mean, other.mean)
        between = np.square(other.mean - self.mean) * self.count * share
        return ObservedMoments(
            count,
            np.where(other.count > 0, self.mean + difference * share, self.mean),
            self.square_sum + other.square_sum + float(between.sum()),
        )

    def centred(self, values: np.ndarray) -> np.ndarray:
        """Subtract the means; holes stay NaN."""
        return values - self.mean.astype(values.dtype)

    def root_mean_square(self) -> float:
        """Return the root mean square of the deviations of observed values."""
        return math.sqrt(self.square_sum / max(int(self.count.sum()), 1))

    def require_every_feature(self) -> None:
        """Refuse features that no sample has shown."""
        never = np.argwhere(self.count == 0)
        if len(never):
            first = int(never[0, 0]) if never.shape[1] == 1 else tuple(never[0].tolist())
            raise ValueError(
                f"{len(never)} feature(s) of X are never observed, the first is {first}; remove "
                f"them or add samples in which they are observed."
            )
