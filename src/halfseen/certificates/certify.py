"""Whether any values of the missing features could change the class: no oracle is needed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from halfseen.certificates.bounds import lower_margins

# An allowance, not a proof: the network's own scores are rounded, those here hardly.
_ROUNDINGS = 8
_TF32_EPS = 2.0**-11  # of convolutions on a GPU


@dataclass(frozen=True, eq=False)
class Certificate:
    """What holes could do to the class of each sample.

    Attributes
    ----------
    certain : bool ndarray of shape (n_samples,)
        Whether no values within the ranges change the predicted class. False means that some
        do if the network is linear, and otherwise that it could not be shown that none do.
    possible : bool ndarray of shape (n_samples, n_classes)
        The classes that could not be ruled out, the predicted one among them.
    margin : ndarray of shape (n_samples,)
        What is left at least of the lead of the predicted class over the next, in scores;
        infinite if there is one class only.
    """

    certain: np.ndarray
    possible: np.ndarray
    margin: np.ndarray

    @classmethod
    def joined(cls, parts: list[Certificate]) -> Certificate:
        """Return the certificate of all samples from those of some at a time."""
        columns = zip(*((p.certain, p.possible, p.margin) for p in parts), strict=True)
        return cls(*(np.concatenate(column) for column in columns))


def certify_ranges(network: nn.Module, low: Tensor, high: Tensor, label: Tensor) -> Certificate:
    """Say whether inputs that move within ranges can change the class of a network.

    Parameters
    ----------
    network : Module
        In evaluation mode and float64, see `check_supported`.
    low, high : float64 Tensor of shape (n_samples, *sample_shape)
        Equal where an input is known.
    label : int64 Tensor of shape (n_samples,)
        The class that is predicted now.
    """
    margin, size = lower_margins(network, low, high, label)
    own = nn.functional.one_hot(label, margin.shape[1]).bool()
    eps = _TF32_EPS if low.is_cuda else torch.finfo(torch.float32).eps
    # Ranges so wide that numbers overflow leave NaN, which is no lead either.
    possible = own | ~(margin > _ROUNDINGS * eps * size)
    least = margin.nan_to_num(nan=-torch.inf).masked_fill(own, torch.inf).amin(1)
    return Certificate(
        (possible.sum(1) == 1).cpu().numpy(), possible.cpu().numpy(), least.cpu().numpy()
    )
