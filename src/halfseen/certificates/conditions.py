"""The paper's conditions under which a classifier of reconstructions also separates originals.

All of them compare a margin ε, that of the scores of the reconstruction, with a bound on how far
the scores of the original can be from it; if ε is larger, original and reconstruction have the
same class. They need the original, so they are oracle conditions, for experiments.

As published they assume that the observed part is reconstructed exactly. In practice it is not.
The sound forms bound the whole difference, and the sound form for networks takes the 2-norm of
the change of the first layer where the published one has its largest entry, which may be
smaller: the last step of the published proof goes the wrong way. With several classes the
condition must hold between the predicted class and every other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from halfseen.boundary import finite_floats, is_whole
from halfseen.certificates.bounds import layers_of


@dataclass(frozen=True)
class Condition:
    """A condition on each sample.

    Attributes
    ----------
    margin : Tensor of shape (n_samples,)
        ε: by how much the score of the predicted class is above that of another.
    bound : Tensor of shape (n_samples,)
        What ε is compared with. Of all other classes, that one counts for which margin minus
        bound is smallest.
    """

    margin: Tensor
    bound: Tensor

    @property
    def holds(self) -> Tensor:
        """Whether the condition holds, bool of shape (n_samples,)."""
        return self.margin > self.bound


def type_one(
    weight: Tensor,
    bias: Tensor,
    X: Tensor,
    reconstruction: Tensor,
    observed: Tensor,
    *,
    sound: bool,
) -> Condition:
    """Return the paper's sufficient condition type I (its lemma), for a linear classifier.

    Parameters
    ----------
    weight : Tensor of shape (n_classes, n_features)
    bias : Tensor of shape (n_classes,)
    X : Tensor of shape (n_samples, n_features)
        The originals, without holes.
    reconstruction : Tensor of the same shape
    observed : bool Tensor of the same shape
    sound : bool
        Whether the residual on the observed features counts too; as published it does not.
    """
    weight, bias, X, reconstruction, observed = _checked(weight, bias, X, reconstruction, observed)
    error = X - reconstruction
    seen = error if sound else error * ~observed
    return _tightest(weight, bias, reconstruction, lambda pair: (seen @ pair.T).abs())


def type_two(
    weight: Tensor,
    bias: Tensor,
    X: Tensor,
    reconstruction: Tensor,
    observed: Tensor,
    *,
    sound: bool,
) -> Condition:
    """Return the paper's sufficient condition type II, see `type_one` for the parameters."""
    weight, bias, X, reconstruction, observed = _checked(weight, bias, X, reconstruction, observed)
    hidden = ~observed

    def bound(pair: Tensor) -> Tensor:
        parts = ((X * hidden) @ pair.T).abs() + ((reconstruction * hidden) @ pair.T).abs()
        return parts + _observed_part(pair, X, reconstruction, observed) if sound else parts

    return _tightest(weight, bias, reconstruction, bound)


def rip_based(
    weight: Tensor,
    bias: Tensor,
    X: Tensor,
    reconstruction: Tensor,
    observed: Tensor,
    isometry: Tensor,
    sparsity: int,
    *,
    sound: bool,
) -> Condition:
    """Return the paper's condition from the restricted isometry of the dictionaries.

    Parameters
    ----------
    weight, bias, X, reconstruction, observed, sound
        See `type_one`. As published, samples and reconstructions must have norms of at
        most 1. The sound form takes the norms that they have.
    isometry : Tensor of shape (n_samples,)
        δ_K of the missing part of both dictionaries, from `halfseen.certificates.isometry_*`.
        The condition says nothing where it is 1 or more, or not an upper bound.
    sparsity : int
        K, the largest number of non-zeros of a code.
    """
    weight, bias, X, reconstruction, observed = _checked(weight, bias, X, reconstruction, observed)
    isometry = finite_floats(isometry, "isometry").to(X)
    if isometry.shape != X.shape[:1]:
        raise ValueError(
            f"isometry must have one constant per sample, shape ({len(X)},); got shape "
            f"{tuple(isometry.shape)}."
        )
    if not is_whole(sparsity):
        raise ValueError(f"sparsity must be a whole number ≥ 1; got {sparsity!r}.")
    hidden = ~observed
    factor = (sparsity / (1 - isometry).clamp(min=0)).sqrt()[:, None]
    norms = torch.full_like(X[:, :1], 2.0)
    if sound:
        norms = sum((part * hidden).norm(dim=1, keepdim=True) for part in (X, reconstruction))

    def bound(pair: Tensor) -> Tensor:
        sizes = hidden.to(pair.dtype) @ pair.abs().T  # ‖w^m‖₁
        weighted = norms * sizes
        parts = torch.where(weighted > 0, weighted * factor, 0)  # the factor may be infinite
        return parts + _observed_part(pair, X, reconstruction, observed) if sound else parts

    return _tightest(weight, bias, reconstruction, bound)


def multilayer(
    network: nn.Module, X: Tensor, reconstruction: Tensor, observed: Tensor, *, sound: bool
) -> Condition:
    """Return the paper's condition for a perceptron with ReLU.

    Parameters
    ----------
    network : Module
        Linear layers with ReLU between them, such as the network "mlp".
    X, reconstruction, observed
        See `type_one`; of any shape that the network takes.
    sound : bool
        As published, the largest change of a unit of the first layer by the missing features
        is the measure; in the sound form, the 2-norm of the change by all features.
    """
    first, *rest = _linear_layers(network)
    if not rest:
        raise ValueError("the network has one linear layer only; use type_one.")
    X, reconstruction, observed = _checked_samples(X, reconstruction, observed)
    X, reconstruction = X.to(first.weight), reconstruction.to(first.weight)
    if X[0].numel() != first.in_features:
        raise ValueError(
            f"the network takes {first.in_features} features; got samples of shape "
            f"{tuple(X.shape[1:])}."
        )
    error = (X - reconstruction).flatten(1)
    error = error if sound else error * ~observed.flatten(1)
    change = error @ first.weight.detach().T
    size = change.norm(dim=1) if sound else change.abs().amax(1)
    for layer in rest[:-1]:
        size = size * torch.linalg.matrix_norm(layer.weight.detach(), 2)
    last = rest[-1].weight.detach()
    with torch.no_grad():
        scores = network(reconstruction)
    return _tightest_of_scores(scores, last, lambda pair: size[:, None] * pair.norm(dim=1)[None, :])


def _checked(weight, bias, X, reconstruction, observed) -> tuple[Tensor, ...]:
    """Return a linear classifier and its samples as tensors of the dtype of X."""
    X, reconstruction, observed = _checked_samples(X, reconstruction, observed)
    weight, bias = (
        finite_floats(values, name).to(X) for values, name in ((weight, "weight"), (bias, "bias"))
    )
    if weight.ndim != 2 or X.ndim != 2 or weight.shape[1] != X.shape[1]:
        raise ValueError(
            f"weight must have the shape (n_classes, n_features), X (n_samples, n_features); got "
            f"{tuple(weight.shape)} and {tuple(X.shape)}."
        )
    if bias.shape != weight.shape[:1]:
        raise ValueError(
            f"bias must have one number per class, shape ({len(weight)},); got shape "
            f"{tuple(bias.shape)}."
        )
    return weight, bias, X, reconstruction, observed


def _checked_samples(X, reconstruction, observed) -> tuple[Tensor, Tensor, Tensor]:
    X = finite_floats(X, "X")
    observed = torch.as_tensor(observed, device=X.device)
    reconstruction = finite_floats(reconstruction, "reconstruction").to(X)
    if X.ndim < 2 or 0 in X.shape:
        raise ValueError(
            f"X must have samples and features, shape (n_samples, ...); got {tuple(X.shape)}."
        )
    for name, values in (("reconstruction", reconstruction), ("observed", observed)):
        if values.shape != X.shape:
            raise ValueError(
                f"{name} must have the shape of X, {tuple(X.shape)}; got {tuple(values.shape)}."
            )
    if observed.dtype != torch.bool:
        raise ValueError(f"observed must be boolean; got {observed.dtype}.")
    return X, reconstruction, observed.to(X.device)


def _observed_part(pair: Tensor, X: Tensor, reconstruction: Tensor, observed: Tensor) -> Tensor:
    return (((X - reconstruction) * observed) @ pair.T).abs()


def _tightest(weight: Tensor, bias: Tensor, reconstruction: Tensor, bound) -> Condition:
    return _tightest_of_scores(reconstruction @ weight.T + bias, weight, bound)


def _tightest_of_scores(scores: Tensor, weight: Tensor, bound) -> Condition:
    """Compare the predicted class of each sample with all others.

    `bound(pair)` is given differences of the last layer's weights, shape (n_classes,
    n_inputs), and returns a bound for each sample and class.
    """
    n_samples, n_classes = scores.shape
    if n_classes < 2:
        raise ValueError("a condition needs two classes or more.")
    best = scores.argmax(1)
    margin, limit = scores.new_empty(n_samples), scores.new_empty(n_samples)
    for label in best.unique():
        rows = (best == label).nonzero().flatten()
        gap = scores[rows, label][:, None] - scores[rows]
        bounds = bound(weight[label] - weight)[rows]
        slack = gap - bounds
        slack[:, label] = math.inf
        other = slack.argmin(1, keepdim=True)
        margin[rows] = gap.gather(1, other)[:, 0]
        limit[rows] = bounds.gather(1, other)[:, 0]
    if margin.isnan().any() or limit.isnan().any():
        raise ValueError("X, reconstruction or weights are so large that scores overflow; rescale.")
    return Condition(margin, limit)


def _linear_layers(network: nn.Module) -> list[nn.Linear]:
    """Return the linear layers of a perceptron, which must have ReLU between them."""
    layers = [m for m in layers_of(network) if type(m) not in (nn.Flatten, nn.Identity)]
    wanted = [nn.Linear if place % 2 == 0 else nn.ReLU for place in range(len(layers))]
    fits = all(type(m) is kind for m, kind in zip(layers, wanted, strict=True))
    hooked = any(
        m._forward_hooks or m._forward_pre_hooks or "forward" in vars(m) for m in network.modules()
    )
    if not fits or hooked or len(layers) % 2 == 0:
        raise ValueError(
            f"linear layers with ReLU between them were expected, such as network='mlp'; got "
            f"{', '.join(type(m).__name__ for m in layers)}"
            f"{' with hooks or a forward() of their own' if hooked else ''}."
        )
    return [m for m in layers if isinstance(m, nn.Linear)]
