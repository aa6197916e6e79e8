"""Bringing features to a common scale; holes stay holes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from halfseen.moments import ObservedMoments


class Standardise(nn.Module):
    """Subtract a centre and divide by a scale, both fixed.

    Parameters
    ----------
    centre, scale : array of the shape of one sample
    """

    centre: Tensor
    scale: Tensor

    def __init__(self, centre: np.ndarray, scale: np.ndarray) -> None:
        super().__init__()
        self.register_buffer("centre", torch.tensor(centre, device="cpu"))
        self.register_buffer("scale", torch.tensor(scale, device="cpu"))

    def forward(self, X: Tensor) -> Tensor:
        """Return X standardised."""
        return (X - self.centre) / self.scale

    def inverse(self, X: Tensor) -> Tensor:
        """Return standardised X in its first units."""
        return X * self.scale + self.centre


def centre_and_scale(moments: ObservedMoments) -> tuple[np.ndarray, np.ndarray]:
    """Return means and scales of features; both of a sample's shape.

    Features in the same unit should keep their proportions: a pixel at the edge that hardly
    ever lights up must not become as important as one in the middle. Images and signals
    (samples with several axes) share one scale, the root mean square of all deviations. So do
    the columns of a table when more than half of them reach both the smallest and the largest
    value of all, as pixels, ratings and one-hot columns do. Other tables get a standard
    deviation per column.
    """
    moments.require_every_feature()
    low, high = moments.low, moments.high
    same_range = ((low == low.min()) & (high == high.max())).mean() > 0.5
    if moments.mean.ndim > 1 or same_range:
        scale = np.full_like(moments.mean, moments.root_mean_square())
    else:
        scale = np.sqrt(moments.squares / moments.count)
        scale[low == high] = 0.0  # rounding may give a constant column a tiny spread
    if not np.isfinite(scale).all():
        raise ValueError(
            f"X has values up to {max(-low.min(), high.max()):g}, whose squares are out of range; "
            f"rescale it."
        )
    return moments.mean, np.where(scale > 0, scale, 1.0)
