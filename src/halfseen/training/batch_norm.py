"""Batch normalisation over the mini-batch of a whole team, of which each process has a part."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from halfseen.team import Team

_KNOWN = (_BatchNorm.forward, nn.SyncBatchNorm.forward)


class _Sum(torch.autograd.Function):
    """Sum over the team; the gradient of a sum that all use is the sum of their gradients."""

    @staticmethod
    def forward(ctx, values: Tensor, team: Team) -> Tensor:
        ctx.team = team
        total = values.clone()
        team.add_up([total])
        return total

    @staticmethod
    def backward(ctx, gradient: Tensor):
        total = gradient.clone()
        ctx.team.add_up([total])
        return total, None


@contextlib.contextmanager
def shared_batch_norm(
    network: nn.Module, team: Team, counts: Callable[[], bool] = lambda: True
) -> Iterator[None]:
    """Let the batch normalisations of a network see the batches of all processes for a while.

    torch's own SyncBatchNorm does so on GPUs only.

    Parameters
    ----------
    network : Module
    team : Team
    counts : callable
        Says whether what this process puts through the network is part of the batch.
    """
    layers = [] if team.alone else [m for m in network.modules() if isinstance(m, _BatchNorm)]
    for layer in layers:
        if type(layer).forward not in _KNOWN:
            raise ValueError(
                f"several processes cannot share the batches of a {type(layer).__name__}, a batch "
                f"normalisation that does more than torch's; put what it adds into a layer of its "
                f"own, or train in one process."
            )
    for layer in layers:
        shared = functools.partial(_normalised, layer, team=team, counts=counts)
        setattr(layer, "forward", shared)  # noqa: B010
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _normalised(layer: _BatchNorm, X: Tensor, team: Team, counts: Callable[[], bool]) -> Tensor:
    if not layer.training:
        return type(layer).forward(layer, X)
    values = X.to(torch.promote_types(X.dtype, torch.float32))  # autocast may have made it short
    others = [axis for axis in range(X.ndim) if axis != 1]
    part = 1.0 if counts() else 0.0
    own_count = values.new_full((1,), X.numel() / X.shape[1])
    total = _Sum.apply(part * torch.cat([values.sum(others), own_count]), team)
    count = total[-1].detach()
    if count <= 1:
        raise ValueError(
            f"batch normalisation needs more than one value per channel in a batch; got a batch "
            f"of shape {tuple(X.shape)}. Raise batch_size."
        )
    shape = [-1 if axis == 1 else 1 for axis in range(X.ndim)]
    mean = total[:-1] / count
    centred = values - mean.reshape(shape)
    variance = _Sum.apply(part * centred.square().sum(others), team) / count
    tracked = layer.num_batches_tracked, layer.running_mean, layer.running_var
    if all(tensor is not None for tensor in tracked):
        _track(*tracked, layer.momentum, mean, variance * count / (count - 1))
    result = centred * (variance + layer.eps).rsqrt().reshape(shape)
    if layer.affine:
        result = result * layer.weight.reshape(shape) + layer.bias.reshape(shape)
    return result.to(X.dtype)


@torch.no_grad()
def _track(n_batches, running_mean, running_var, momentum: float | None, mean, variance) -> None:
    n_batches.add_(1)
    # No momentum is torch's way to ask for the mean over all batches.
    share = 1 / n_batches.item() if momentum is None else momentum
    running_mean.lerp_(mean, share)
    running_var.lerp_(variance, share)
