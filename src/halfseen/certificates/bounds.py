"""How far the scores of a network can go when its inputs move within given ranges.

Intervals go forward through the layers; then a linear function below each difference of two
scores is carried backward from the scores to the inputs (Zhang et al. 2018, "CROWN"), which is
exact for a linear network and never wrong for others, only loose. Where a layer is small
enough, the ranges of its units come from such functions too, not from intervals alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfseen.networks import AsImage, ResidualBlock

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_WEIGHTED = (nn.Linear, *_CONVOLUTIONS)
_PLAIN = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.AvgPool1d, nn.AvgPool2d),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.Flatten, nn.Identity, nn.Dropout, AsImage),
)
_MOST_TIGHTENED = 2**24  # units times units below them, for each sample
_ENTRIES_AT_ONCE = 2**21
_DENSE = 2**22  # entries of a layer written as one matrix


@torch.no_grad()
def lower_margins(
    network: nn.Module, low: Tensor, high: Tensor, label: Tensor
) -> tuple[Tensor, Tensor]:
    """Return what is left at least of the lead of one class over every other.

    Parameters
    ----------
    network : Module
        In evaluation mode, of layers named in `check_supported`.
    low, high : Tensor of shape (n_samples, *sample_shape)
        The ranges of the inputs; equal where an input is known.
    label : int64 Tensor of shape (n_samples,)
        The class whose lead is asked for.

    Returns
    -------
    margin : Tensor of shape (n_samples, n_classes)
        No inputs in the ranges make the score of `label` minus that of a class smaller; 0 for
        the class itself.
    size : Tensor of the same shape
        Sum of the absolute values that the margin is the sum of: rounding is in proportion.
    """
    layers = list(_flat(network))
    with torch.no_grad():
        n_classes = network(low[:1]).shape[1]
    chosen = torch.eye(n_classes, dtype=low.dtype, device=low.device)
    margins, sizes = [], []
    for rows in torch.arange(len(low), device=low.device).split(_n_at_once(network, low[:1])):
        bounds = _Bounds(low[rows], high[rows])
        for layer in layers:
            bounds.go_through(layer)
        differences = chosen[label[rows]][:, None, :] - chosen
        margin, size = bounds.least(differences)
        margins.append(margin)
        sizes.append(size)
    if not margins:
        return low.new_empty(0, n_classes), low.new_empty(0, n_classes)
    return torch.cat(margins), torch.cat(sizes)


def check_supported(network: nn.Module) -> None:
    """Refuse networks with layers whose bounds are not known."""
    for layer in _flat(network):
        if not isinstance(layer, (*_WEIGHTED, *_PLAIN, nn.ReLU, nn.MaxPool2d, ResidualBlock)):
            raise ValueError(
                f"certify() knows no bounds for the layer {type(layer).__name__}. It takes the "
                f"networks 'logistic', 'mlp', 'cnn4', 'cnn4_bn' and 'resnet18', and nn.Sequential "
                f"of linear and convolution layers, batch normalisation, ReLU, pooling, Flatten "
                f"and Dropout."
            )
        if isinstance(layer, nn.MaxPool2d) and _pair(layer.padding) != (0, 0):
            raise ValueError("certify() knows no bounds for MaxPool2d with padding.")
        if isinstance(layer, nn.MaxPool2d) and (layer.ceil_mode or _pair(layer.dilation) != (1, 1)):
            raise ValueError("certify() knows no bounds for MaxPool2d with ceil_mode or dilation.")
        if isinstance(layer, _CONVOLUTIONS) and layer.padding_mode != "zeros":
            raise ValueError("certify() knows no bounds for convolutions that pad with values.")


class _Bounds:
    """Ranges of the units of a layer, and the way back from them to the inputs."""

    def __init__(self, low: Tensor, high: Tensor) -> None:
        self.low, self.high = low, high
        self._inputs = low, high
        self._passed: list[_Passed] = []
        self._n_units = low[0].numel()

    def go_through(self, layer: nn.Module) -> None:
        """Go on to the units after a layer."""
        if isinstance(layer, nn.ReLU):
            self._tighten()
        passed = _passed(layer, self.low, self.high)
        self._passed.append(passed)
        self.low, self.high = passed.low, passed.high
        self._n_units += self.low[0].numel()

    def least(self, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """Return the least that linear functions of the units can be.

        Parameters
        ----------
        wanted : Tensor of shape (n_samples, n_functions, *shape of the units)

        Returns
        -------
        least, size : Tensor of shape (n_samples, n_functions)
        """
        below, constant = _back(self._passed, wanted)
        low, high = (end.flatten(1) for end in self._inputs)
        below = below.flatten(2)
        least = torch.where(below > 0, below * low[:, None], below * high[:, None])
        widest = torch.maximum(low.abs(), high.abs())
        size = (below.abs() @ widest[:, :, None])[:, :, 0]
        return least.sum(2) + constant, size + constant.abs()

    def _tighten(self) -> None:
        """Narrow the ranges by linear functions, if that is not too much work."""
        n_samples, n_here = len(self.low), self.low[0].numel()
        if not any(isinstance(passed, _Rectified) for passed in self._passed):
            return  # intervals are exact after one linear layer
        if n_here * self._n_units > _MOST_TIGHTENED:
            return
        n_functions = max(1, _ENTRIES_AT_ONCE // (n_samples * self._n_units))
        ends = []
        for sign in (1.0, -1.0):
            found = []
            for some in torch.arange(n_here, device=self.low.device).split(n_functions):
                one = F.one_hot(some, n_here).to(self.low) * sign
                one = one.reshape(1, len(some), *self.low.shape[1:])
                found.append(self.least(one.expand(n_samples, *one.shape[1:]))[0])
            ends.append(sign * torch.cat(found, 1).reshape(self.low.shape))
        self.low, self.high = torch.maximum(self.low, ends[0]), torch.minimum(self.high, ends[1])
        self.high = torch.maximum(self.low, self.high)  # rounding


class _Passed(ABC):
    """A layer with the ranges of its inputs.

    Attributes
    ----------
    low, high : Tensor
        Ranges of its outputs.
    """

    low: Tensor
    high: Tensor

    @abstractmethod
    def back(self, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """Return a linear function of the inputs that is below one of the outputs.

        Parameters
        ----------
        wanted : Tensor of shape (n_samples, n_functions, *shape of the outputs)

        Returns
        -------
        below : Tensor of shape (n_samples, n_functions, *shape of the inputs)
        constant : Tensor of shape (n_samples, n_functions)
        """


class _Linear(_Passed):
    def __init__(self, layer: nn.Module, low: Tensor, high: Tensor) -> None:
        self._layer, self._shape = layer, low.shape[1:]
        with torch.no_grad():
            centre, radius = layer((low + high) / 2), (high - low) / 2
            if isinstance(layer, _WEIGHTED):
                size = {"weight": layer.weight.abs()}
                spread = torch.func.functional_call(layer, size, (radius,))
                spread = spread - torch.func.functional_call(layer, size, (radius * 0,))
            else:  # each output is one input, or a mean of some
                spread = (layer(radius) - layer(radius * 0)).abs()
        self.low, self.high = centre - spread, centre + spread

    def back(self, wanted: Tensor) -> tuple[Tensor, Tensor]:
        outputs, pull, *_ = torch.func.vjp(self._layer, wanted.new_zeros(1, *self._shape))
        constant = (wanted * outputs).flatten(2).sum(2)
        n_outputs, n_functions = outputs.numel(), wanted.shape[0] * wanted.shape[1]
        if n_outputs * math.prod(self._shape) <= _DENSE and n_functions > n_outputs:
            # Convolutions in float64 are slow on a CPU; one matrix product is not.
            each = torch.eye(n_outputs, dtype=wanted.dtype, device=wanted.device)
            (matrix,) = torch.func.vmap(pull)(each.reshape(n_outputs, *outputs.shape))
            below = wanted.flatten(2) @ matrix.flatten(1)
        else:
            (below,) = torch.func.vmap(pull)(wanted.flatten(0, 1)[:, None])
        return below.reshape(*wanted.shape[:2], *self._shape), constant


class _Rectified(_Passed):
    def __init__(self, low: Tensor, high: Tensor) -> None:
        self.low, self.high = low.clamp(min=0), high.clamp(min=0)
        undecided = (low < 0) & (high > 0)
        share = high / torch.where(undecided, high - low, 1)
        # A line through both corners is above; one of slope 0 or 1 below, what cuts off less.
        self._above = torch.where(undecided, share, (low >= 0).to(low))[:, None]
        self._offset = torch.where(undecided, -low * share, 0)[:, None]
        self._below = torch.where(undecided, (high > -low).to(low), (low >= 0).to(low))[:, None]

    def back(self, wanted: Tensor) -> tuple[Tensor, Tensor]:
        below = torch.where(wanted > 0, wanted * self._below, wanted * self._above)
        return below, (wanted.clamp(max=0) * self._offset).flatten(2).sum(2)


class _Pooled(_Passed):
    """The largest of some units: at least each of them, at most the largest upper end."""

    def __init__(self, layer: nn.MaxPool2d, low: Tensor, high: Tensor) -> None:
        settings = layer.kernel_size, layer.stride
        self._shape = low.shape[1:]
        self.low, place = F.max_pool2d(low, *settings, return_indices=True)
        self.high = F.max_pool2d(high, *settings)
        # Decided where the lower end of one is above the upper ends of all others.
        number = torch.arange(low[0, 0].numel(), device=low.device).to(low)
        number = number.reshape(1, 1, *low.shape[2:])
        windows = [_windows(ends, layer) for ends in (high, number)]
        others = windows[1].long() != place.flatten(2)[:, :, None]
        rival = torch.where(others, windows[0], -math.inf).amax(2).reshape(self.low.shape)
        self._decided = (self.low >= rival)[:, None]
        self._place = place

    def back(self, wanted: Tensor) -> tuple[Tensor, Tensor]:
        exact = (wanted > 0) | self._decided
        kept = torch.where(exact, wanted, 0).flatten(3)
        place = self._place.flatten(2)[:, None].expand(kept.shape)
        below = wanted.new_zeros(*wanted.shape[:2], self._shape[0], math.prod(self._shape[1:]))
        below = below.scatter_add(3, place, kept).reshape(*wanted.shape[:2], *self._shape)
        ends = torch.where(exact, 0, wanted) * self.high[:, None]
        return below, ends.flatten(2).sum(2)


class _Residual(_Passed):
    def __init__(self, layer: ResidualBlock, low: Tensor, high: Tensor) -> None:
        self._branches = []
        ends = []
        for branch in (layer.inner, layer.shortcut):
            passed, ends_here = [], (low, high)
            for part in _flat(branch):
                passed.append(_passed(part, *ends_here))
                ends_here = passed[-1].low, passed[-1].high
            self._branches.append(passed)
            ends.append(ends_here)
        self._rectified = _Rectified(ends[0][0] + ends[1][0], ends[0][1] + ends[1][1])
        self.low, self.high = self._rectified.low, self._rectified.high

    def back(self, wanted: Tensor) -> tuple[Tensor, Tensor]:
        wanted, constant = self._rectified.back(wanted)
        inner, shortcut = (_back(branch, wanted) for branch in self._branches)
        return inner[0] + shortcut[0], constant + inner[1] + shortcut[1]


def _passed(layer: nn.Module, low: Tensor, high: Tensor) -> _Passed:
    if isinstance(layer, nn.ReLU):
        return _Rectified(low, high)
    if isinstance(layer, nn.MaxPool2d):
        return _Pooled(layer, low, high)
    if isinstance(layer, ResidualBlock):
        return _Residual(layer, low, high)
    return _Linear(layer, low, high)


def _back(passed: Sequence[_Passed], wanted: Tensor) -> tuple[Tensor, Tensor]:
    constant = wanted.new_zeros(wanted.shape[:2])
    for layer in reversed(passed):
        wanted, added = layer.back(wanted)
        constant = constant + added
    return wanted, constant


def _flat(network: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers of a network in their order."""
    if type(network) is nn.Sequential:
        for part in network:
            yield from _flat(part)
    else:
        yield network


def _n_at_once(network: nn.Module, sample: Tensor) -> int:
    """Return for how many samples functions of one layer's units fit into memory."""
    sizes: list[int] = []
    hooks = [
        part.register_forward_hook(lambda _, __, output: sizes.append(output.numel()))
        for part in network.modules()
    ]
    with torch.no_grad():
        n_classes = network(sample).shape[1]
    for hook in hooks:
        hook.remove()
    return max(1, _ENTRIES_AT_ONCE // (n_classes * max(sample.numel(), *sizes)))


def _windows(values: Tensor, layer: nn.MaxPool2d) -> Tensor:
    """Return what each output of a pooling layer sees, (n, channels, n_seen, n_outputs)."""
    seen = F.unfold(values, layer.kernel_size, stride=layer.stride)
    return seen.reshape(len(values), values.shape[1], -1, seen.shape[2])


def _pair(value) -> tuple:
    return tuple(value) if isinstance(value, Sequence) else (value, value)
