"""The objective of Caiafa et al. (2021), per sample: J0 + λ1·J1 + λ2·J2.

All scaling is defined here and nowhere else, after the text of the paper:

- J0: cross-entropy of the network on the reconstruction,
- J1 = (M/N)·‖observed ⊙ (x − reconstruction)‖², M of N features observed,
- J2 = ‖codes‖₁/N.

The authors' public code differs: it divides J1 by the observed share instead of multiplying by
it, which is `rec_scaling="inverse"` here, and scales J2 otherwise, so values of λ do not carry
over.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

SCALINGS = ("share", "inverse")


def classification_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Return J0 of each sample.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, n_classes)
    labels : int64 Tensor of shape (n_samples,)
    """
    return F.cross_entropy(scores, labels, reduction="none")


def reconstruction_loss(
    X: Tensor, observed: Tensor, reconstruction: Tensor, rec_scaling: str = "share"
) -> Tensor:
    """Return J1 of each sample.

    Parameters
    ----------
    X : Tensor of shape (n_samples, *sample_shape)
        Values in holes do not matter, as long as they are finite.
    observed : bool Tensor of the same shape
    reconstruction : Tensor of the same shape
    rec_scaling : {"share", "inverse"}
        See `share_weight`.
    """
    residual = ((X - reconstruction) * observed).flatten(1)
    n_observed, n_features = observed.flatten(1).sum(1), residual.shape[1]
    weight = share_weight(n_observed, n_features, rec_scaling, X.dtype)
    return weight * residual.square().sum(1)


def share_weight(
    n_observed: Tensor, n_features: int, rec_scaling: str, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Return what the squared error of each sample is multiplied by in J1.

    A sample without observed features, whose error is zero, has the weight of one feature.

    Parameters
    ----------
    n_observed : int Tensor of shape (n_samples,)
        M.
    n_features : int
        N.
    rec_scaling : {"share", "inverse"}
        M/N, as in the paper, or N/M, as in the authors' code.
    dtype : torch.dtype
        Of the result.
    """
    share = n_observed.clamp(min=1).to(dtype) / n_features
    return share if rec_scaling == "share" else 1 / share


def sparsity_loss(codes: Tensor, n_features: int) -> Tensor:
    """Return J2 of each sample.

    Parameters
    ----------
    codes : Tensor of shape (n_samples, ...)
        All codes of a sample, of one tile or several.
    n_features : int
        N, of the whole sample.
    """
    return codes.flatten(1).abs().sum(1) / n_features


def total_loss(
    J0: Tensor,
    J1: Tensor,
    J2: Tensor,
    lambda_rec: float,
    lambda_l1: float,
    label_weight: float = 1.0,
) -> Tensor:
    """Return J0 + λ1·J1 + λ2·J2 of each sample; `label_weight` is 1 in the paper."""
    return label_weight * J0 + lambda_rec * J1 + lambda_l1 * J2


def lasso_alpha(
    observed: Tensor,
    lambda_rec: float,
    lambda_l1: float,
    dtype: torch.dtype = torch.float64,
    rec_scaling: str = "share",
) -> Tensor:
    """Return for each sample the alpha whose lasso has the codes that minimise λ1·J1 + λ2·J2.

    λ1·w·‖r‖² + (λ2/N)·‖s‖₁ is 2·λ1·w times ½‖r‖² + alpha·‖s‖₁ with alpha = λ2 / (2·λ1·w·N): for
    w = M/N that is λ2 / (2·λ1·M). Tiles that do not overlap add up, so all tiles of a sample
    share its alpha. A sample without observed features has the code zero for any alpha and
    gets that of one feature.

    Parameters
    ----------
    observed : bool Tensor of shape (n_samples, *sample_shape)
    lambda_rec, lambda_l1 : float
        λ1 and λ2, positive.
    dtype : torch.dtype
        Of the result.
    rec_scaling : {"share", "inverse"}
        See `share_weight`.
    """
    if not (lambda_rec > 0 and lambda_l1 > 0):
        raise ValueError(
            f"lambda_rec and lambda_l1 must be positive; got {lambda_rec!r} and {lambda_l1!r}."
        )
    n_observed, n_features = observed.flatten(1).sum(1), math.prod(observed.shape[1:])
    return alpha_of_counts(n_observed, n_features, lambda_rec, lambda_l1, dtype, rec_scaling)


def alpha_of_counts(
    n_observed: Tensor,
    n_features: int,
    lambda_rec: float,
    lambda_l1: float,
    dtype: torch.dtype = torch.float64,
    rec_scaling: str = "share",
) -> Tensor:
    """Return what `lasso_alpha` returns, for samples with so many observed features."""
    weight = share_weight(n_observed, n_features, rec_scaling, dtype)
    return float(lambda_l1) / (2 * float(lambda_rec) * n_features * weight)
