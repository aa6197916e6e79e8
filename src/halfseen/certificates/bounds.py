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
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_MEANS = (nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d)
_PLAIN = (*_NORMS, *_MEANS, nn.Flatten, nn.Identity, nn.Dropout, AsImage)
_KNOWN = (*_WEIGHTED, *_PLAIN, nn.ReLU, nn.MaxPool2d, ResidualBlock)
_MOST_TIGHTENED = 2**24  # units times units below them, for each sample
_ENTRIES_AT_ONCE = 2**21
_DENSE = 2**22  # entries of a layer written as one matrix
Function = tuple[Tensor, Tensor, Tensor]  # weights, constant, size of what the constant sums


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
        the class itself. NaN if the ranges are so wide that numbers overflow.
    size : Tensor of the same shape
        Sum of the absolute values that the margin is the sum of: rounding is in proportion.
    """
    layers = list(layers_of(network))
    n_classes, n_at_once = _sizes(network, low)
    chosen = torch.eye(n_classes, dtype=low.dtype, device=low.device)
    margin, size = low.new_empty(2, len(low), n_classes)
    for rows in torch.arange(len(low), device=low.device).split(n_at_once):
        bounds = _Bounds(low[rows], high[rows])
        for layer in layers:
            bounds.go_through(layer)
        margin[rows], size[rows] = bounds.least(chosen[label[rows]][:, None, :] - chosen)
    return margin, size


def check_supported(network: nn.Module) -> None:
    """Refuse networks with layers whose bounds are not known."""
    for part in network.modules():
        kind = type(part)  # a subclass may compute anything
        if kind not in _KNOWN and kind is not nn.Sequential:
            names = ", ".join(known.__name__ for known in _KNOWN if known.__module__[:5] == "torch")
            raise ValueError(
                f"certify() knows no bounds for the layer {kind.__name__}. It takes the named "
                f"networks, such as 'mlp' and 'cnn4', and nn.Sequential of {names}."
            )
        if part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part):
            raise ValueError(
                f"certify() knows no bounds for a {kind.__name__} with hooks or a forward() of its "
                f"own."
            )
        if isinstance(part, _NORMS) and part.running_mean is None:
            raise ValueError(
                f"certify() knows no bounds for a {kind.__name__} without running statistics: a "
                f"sample's scores depend on its neighbours."
            )
        if isinstance(part, nn.MaxPool2d) and (
            _pair(part.padding) != (0, 0) or _pair(part.dilation) != (1, 1) or part.ceil_mode
        ):
            raise ValueError(
                "certify() knows no bounds for MaxPool2d with padding, dilation or ceil_mode."
            )
        if isinstance(part, _CONVOLUTIONS) and part.padding_mode != "zeros":
            raise ValueError("certify() knows no bounds for convolutions that pad with values.")


class _Bounds:
    """Ranges of the units of a layer, and the way back from them to the inputs."""

    def __init__(self, low: Tensor, high: Tensor) -> None:
        self.low, self.high = low, high
        self._inputs = low, high
        self._passed: list[_Passed] = []
        self._n_units = low[0].numel()
        self._overflowed = torch.zeros(len(low), dtype=torch.bool, device=low.device)

    def go_through(self, layer: nn.Module) -> None:
        """Go on to the units after a layer."""
        if isinstance(layer, nn.ReLU):
            self._tighten()
        passed = _passed(layer, self.low, self.high)
        self._passed.append(passed)
        self.low, self.high = passed.low, passed.high
        finite = self.low.isfinite() & self.high.isfinite()
        self._overflowed |= ~finite.flatten(1).all(1)
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
        below, constant, size = _back(self._passed, wanted)
        low, high = (end.flatten(1) for end in self._inputs)
        below = below.flatten(2)
        least = torch.where(below > 0, below * low[:, None], below * high[:, None])
        widest = torch.maximum(low.abs(), high.abs())
        size = size + (below.abs() @ widest[:, :, None])[:, :, 0]
        return (least.sum(2) + constant).masked_fill(self._overflowed[:, None], torch.nan), size

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
    def back(self, wanted: Tensor) -> Function:
        """Return a linear function of the inputs that is below one of the outputs.

        Parameters
        ----------
        wanted : Tensor of shape (n_samples, n_functions, *shape of the outputs)

        Returns
        -------
        below : Tensor of shape (n_samples, n_functions, *shape of the inputs)
        constant : Tensor of shape (n_samples, n_functions)
        size : Tensor of shape (n_samples, n_functions)
            Sum of the absolute values that the constant is the sum of.
        """


class _Linear(_Passed):
    def __init__(self, layer: nn.Module, low: Tensor, high: Tensor) -> None:
        self._layer, self._shape = layer, low.shape[1:]
        centre, radius = layer((low + high) / 2), (high - low) / 2
        if isinstance(layer, _WEIGHTED):
            size = {"weight": layer.weight.abs()}
            spread = torch.func.functional_call(layer, size, (radius,))
            spread = spread - torch.func.functional_call(layer, size, (radius * 0,))
        else:  # each output is one input, or a mean of some
            spread = (layer(radius) - layer(radius * 0)).abs()
        self.low, self.high = centre - spread, centre + spread

    def back(self, wanted: Tensor) -> Function:
        outputs, pull, *_ = torch.func.vjp(self._layer, wanted.new_zeros(1, *self._shape))
        flat, biases = wanted.flatten(2), outputs.flatten()
        n_outputs, n_functions = len(biases), wanted.shape[0] * wanted.shape[1]
        if n_outputs * math.prod(self._shape) <= _DENSE and n_functions > n_outputs:
            # Convolutions in float64 are slow on a CPU; one matrix product is not.
            each = torch.eye(n_outputs, dtype=wanted.dtype, device=wanted.device)
            (matrix,) = torch.func.vmap(pull)(each.reshape(n_outputs, *outputs.shape))
            below = flat @ matrix.flatten(1)
        else:
            (below,) = torch.func.vmap(pull)(wanted.flatten(0, 1)[:, None])
        below = below.reshape(*wanted.shape[:2], *self._shape)
        return below, flat @ biases, flat.abs() @ biases.abs()


class _Rectified(_Passed):
    def __init__(self, low: Tensor, high: Tensor) -> None:
        self.low, self.high = low.clamp(min=0), high.clamp(min=0)
        undecided = (low < 0) & (high > 0)
        # Halves, whose difference cannot overflow.
        share = high / 2 / torch.where(undecided, high / 2 - low / 2, 1)
        # A line through both corners is above; one of slope 0 or 1 below, what cuts off less.
        self._above = torch.where(undecided, share, (low >= 0).to(low))[:, None]
        self._offset = torch.where(undecided, -low * share, 0)[:, None]
        self._below = torch.where(undecided, (high > -low).to(low), (low >= 0).to(low))[:, None]

    def back(self, wanted: Tensor) -> Function:
        below = torch.where(wanted > 0, wanted * self._below, wanted * self._above)
        constant = (wanted.clamp(max=0) * self._offset).flatten(2).sum(2)
        return below, constant, -constant


class _Pooled(_Passed):
    """The largest of some units: at least each of them, at most the largest upper end."""

    def __init__(self, layer: nn.MaxPool2d, low: Tensor, high: Tensor) -> None:
        self._shape = low.shape[1:]
        if low.ndim == 3:  # images without an axis for channels
            low, high = low[:, None], high[:, None]
        settings = layer.kernel_size, layer.stride
        lower, place = F.max_pool2d(low, *settings, return_indices=True)
        upper = F.max_pool2d(high, *settings)
        # Decided where the lower end of one is above the upper ends of all others.
        number = torch.arange(low[0, 0].numel(), device=low.device).to(low)
        number = number.reshape(1, 1, *low.shape[2:])
        windows = [_windows(ends, layer) for ends in (high, number)]
        others = windows[1].long() != place.flatten(2)[:, :, None]
        rival = torch.where(others, windows[0], -math.inf).amax(2)
        self._place = place.flatten(2)[:, None]  # (n, 1, channels, n_outputs)
        self._decided = (lower.flatten(2) >= rival)[:, None]
        self._upper = upper.flatten(2)[:, None]
        shape = (len(low), *self._shape[:-2], *lower.shape[2:])
        self.low, self.high = lower.reshape(shape), upper.reshape(shape)

    def back(self, wanted: Tensor) -> Function:
        n_channels = self._place.shape[2]
        flat = wanted.reshape(*wanted.shape[:2], n_channels, -1)
        exact = (flat > 0) | self._decided
        kept = torch.where(exact, flat, 0)
        n_inputs = math.prod(self._shape) // n_channels
        below = flat.new_zeros(*wanted.shape[:2], n_channels, n_inputs)
        below = below.scatter_add(3, self._place.expand(kept.shape), kept)
        ends = torch.where(exact, 0, flat) * self._upper
        below = below.reshape(*wanted.shape[:2], *self._shape)
        return below, ends.flatten(2).sum(2), ends.abs().flatten(2).sum(2)


class _Residual(_Passed):
    def __init__(self, layer: ResidualBlock, low: Tensor, high: Tensor) -> None:
        self._branches = []
        ends = []
        for branch in (layer.inner, layer.shortcut):
            passed, ends_here = [], (low, high)
            for part in layers_of(branch):
                passed.append(_passed(part, *ends_here))
                ends_here = passed[-1].low, passed[-1].high
            self._branches.append(passed)
            ends.append(ends_here)
        self._rectified = _Rectified(ends[0][0] + ends[1][0], ends[0][1] + ends[1][1])
        self.low, self.high = self._rectified.low, self._rectified.high

    def back(self, wanted: Tensor) -> Function:
        wanted, constant, size = self._rectified.back(wanted)
        inner, shortcut = (_back(branch, wanted) for branch in self._branches)
        constant, size = constant + inner[1] + shortcut[1], size + inner[2] + shortcut[2]
        return inner[0] + shortcut[0], constant, size


def _passed(layer: nn.Module, low: Tensor, high: Tensor) -> _Passed:
    if isinstance(layer, nn.ReLU):
        return _Rectified(low, high)
    if isinstance(layer, nn.MaxPool2d):
        return _Pooled(layer, low, high)
    if isinstance(layer, ResidualBlock):
        return _Residual(layer, low, high)
    return _Linear(layer, low, high)


def _back(passed: Sequence[_Passed], wanted: Tensor) -> Function:
    constant, size = wanted.new_zeros(2, *wanted.shape[:2])
    for layer in reversed(passed):
        wanted, *added = layer.back(wanted)
        constant, size = constant + added[0], size + added[1]
    return wanted, constant, size


def layers_of(network: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers of a network in their order, as often as each is used."""
    if type(network) is nn.Sequential:  # a subclass may compute anything
        for part in network:
            yield from layers_of(part)
    else:
        yield network


def _sizes(network: nn.Module, low: Tensor) -> tuple[int, int]:
    """Return the number of classes, and for how many samples functions fit into memory."""
    sizes: list[int] = []
    hooks = [
        part.register_forward_hook(lambda _, __, output: sizes.append(output.numel()))
        for part in network.modules()
    ]
    try:
        n_classes = network(low.new_zeros(1, *low.shape[1:])).shape[1]
    finally:
        for hook in hooks:
            hook.remove()
    n_units = max(low[:1].numel(), *sizes)
    return n_classes, max(1, _ENTRIES_AT_ONCE // (n_classes * n_units))


def _windows(values: Tensor, layer: nn.MaxPool2d) -> Tensor:
    """Return what each output of a pooling layer sees, (n, channels, n_seen, n_outputs)."""
    seen = F.unfold(values, layer.kernel_size, stride=layer.stride)
    return seen.reshape(len(values), values.shape[1], -1, seen.shape[2])


def _pair(value) -> tuple:
    return tuple(value) if isinstance(value, Sequence) else (value, value)
