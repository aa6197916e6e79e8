"""The networks of the paper and two small ones for tables, and how a network is made.

All map samples of shape (n_samples, *sample_shape) to scores (n_samples, n_classes).
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

NetworkSpec = str | nn.Module | Callable[..., nn.Module]


def logistic(sample_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """Return multinomial logistic regression: one linear layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(sample_shape), n_classes))


def mlp(sample_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """Return a perceptron with one hidden layer of 128 units."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(math.prod(sample_shape), 128), nn.ReLU(), nn.Linear(128, n_classes)
    )


def cnn4(sample_shape: tuple[int, ...], n_classes: int, batch_norm: bool = False) -> nn.Module:
    """Return two convolutions with pooling and two dense layers, after LeCun.

    Kernels are 5×5 without padding, 3×3 with padding for images below 16 pixels.
    """
    channels, height, width = _image_shape(sample_shape, "cnn4", smallest=4)
    kernel, padding = (5, 0) if min(height, width) >= 16 else (3, 1)

    def block(n_in: int, n_out: int) -> list[nn.Module]:
        norm = [nn.BatchNorm2d(n_out)] if batch_norm else []
        conv = nn.Conv2d(n_in, n_out, kernel, padding=padding)
        return [conv, *norm, nn.ReLU(), nn.MaxPool2d(2)]

    features = nn.Sequential(AsImage(), *block(channels, 20), *block(20, 50), nn.Flatten())

    def halved(extent: int) -> int:
        return (extent - kernel + 1 + 2 * padding) // 2

    n_features = 50 * halved(halved(height)) * halved(halved(width))
    return nn.Sequential(features, nn.Linear(n_features, 500), nn.ReLU(), nn.Linear(500, n_classes))


def cnn4_bn(sample_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """Return `cnn4` with batch normalisation after the convolutions."""
    return cnn4(sample_shape, n_classes, batch_norm=True)


def resnet18(sample_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """Return ResNet-18 in its form for small images: a 3×3 stem and no first pooling."""
    channels, _, _ = _image_shape(sample_shape, "resnet18", smallest=8)
    stages: list[nn.Module] = []
    n_in = 64
    for n_out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        stages += [ResidualBlock(n_in, n_out, stride), ResidualBlock(n_out, n_out, 1)]
        n_in = n_out
    stem = [AsImage(), nn.Conv2d(channels, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, n_classes)]
    return nn.Sequential(*stem, nn.ReLU(), *stages, *head)


class AsImage(nn.Module):
    """Give images of shape (n, height, width) their one channel."""

    def forward(self, X: Tensor) -> Tensor:
        """Return X of shape (n, channels, height, width)."""
        return X[:, None] if X.ndim == 3 else X


class ResidualBlock(nn.Module):
    """Two convolutions and the shortcut around them (He et al. 2016)."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(n_out),
            nn.ReLU(),
            nn.Conv2d(n_out, n_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(n_out),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or n_in != n_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out)
            )

    def forward(self, X: Tensor) -> Tensor:
        """Return the activations, (n, n_out, height / stride, width / stride)."""
        return torch.relu(self.inner(X) + self.shortcut(X))


NAMED = {
    "logistic": logistic,
    "mlp": mlp,
    "cnn4": cnn4,
    "cnn4_bn": cnn4_bn,
    "resnet18": resnet18,
}


def named_shapes(
    name: str, sample_shape: tuple[int, ...], n_classes: int
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights of a network of ours, without making any."""
    if name not in NAMED:
        raise ValueError(f"network must be one of {', '.join(map(repr, NAMED))}; got {name!r}.")
    with torch.device("meta"):
        made = NAMED[name](sample_shape, n_classes)
    return {key: tuple(weight.shape) for key, weight in made.state_dict().items()}


def make_network(network: NetworkSpec, sample_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """Return a network that gives `n_classes` scores, checked on one sample of zeros.

    Parameters
    ----------
    network : str, Module or function
        A name; a module, of which a copy is returned; or a function that makes a module,
        called with ``(sample_shape, n_classes)``, or with nothing if it requires nothing.
    sample_shape : tuple of int
    n_classes : int
    """
    if isinstance(network, str):
        if network not in NAMED:
            raise ValueError(
                f"network must be one of {', '.join(map(repr, NAMED))}, a torch.nn.Module or a "
                f"function that makes one; got {network!r}."
            )
        made = NAMED[network](sample_shape, n_classes)
    elif isinstance(network, nn.Module):
        made = _copied(network)
    elif callable(network):
        signature = inspect.signature(network)
        parameters = signature.parameters.values()
        required = [p for p in parameters if p.default is p.empty and p.kind not in _VARIADIC]
        given = (sample_shape, n_classes) if required else ()
        try:
            signature.bind(*given)
        except TypeError as error:
            raise ValueError(
                f"a function that makes a network is called with (sample_shape, n_classes), or "
                f"with nothing if it requires nothing; {network!r} takes {signature}."
            ) from error
        made = network(*given)
        # A copy, lest two classifiers share what a function returns twice. What is lazy has not
        # been used yet, and not all of it can be copied.
        lazy = isinstance(made, nn.Module) and _is_lazy(made)
        made = made if lazy else _copied(made)
    else:
        made = network
    if not isinstance(made, nn.Module):
        raise ValueError(
            f"network must be a name, a torch.nn.Module or a function that makes one; got {made!r}."
        )
    if isinstance(made, torch.jit.ScriptModule):
        raise ValueError(
            "the network is compiled to TorchScript, whose weights cannot be given other types and "
            "places; pass the module that it was made from."
        )
    if any(tensor.is_complex() for tensor in (*made.parameters(), *made.buffers())):
        raise ValueError(
            "the network has complex weights, and training would keep their real parts alone; "
            "hold real and imaginary parts as two real tensors."
        )
    _check_scores(made, sample_shape, n_classes)
    return made


def _copied(network: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(network)
    except RuntimeError as error:
        raise ValueError(
            f"torch cannot copy this network: {error} If it has torch.nn.utils.weight_norm, take "
            f"that of torch.nn.utils.parametrizations."
        ) from error
    except ValueError as error:
        if not _is_lazy(network):
            raise
        raise ValueError(
            f"torch cannot copy this network before it has been used: {error} Pass a function that "
            f"makes it."
        ) from error


def _is_lazy(network: nn.Module) -> bool:
    return any(is_lazy(tensor) for tensor in (*network.parameters(), *network.buffers()))


def _check_scores(network: nn.Module, sample_shape: tuple[int, ...], n_classes: int) -> None:
    like = next((p for p in network.parameters() if not is_lazy(p)), torch.zeros((), device="cpu"))
    was_training = network.training
    with torch.no_grad():
        try:
            scores = network.eval()(like.new_zeros(1, *sample_shape))
        except RuntimeError as error:
            raise ValueError(
                f"the network cannot take samples of shape {tuple(sample_shape)}: {error}"
            ) from error
        finally:
            network.train(was_training)
    if not isinstance(scores, Tensor) or scores.shape != (1, n_classes):
        got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(
            f"the network must turn (1, {', '.join(map(str, sample_shape))}) into scores of "
            f"shape (1, {n_classes}), one per class; got {got}."
        )


def _image_shape(sample_shape: tuple[int, ...], name: str, smallest: int) -> tuple[int, int, int]:
    shape = (1, *sample_shape) if len(sample_shape) == 2 else tuple(sample_shape)
    if len(shape) != 3 or min(shape[1:]) < smallest:
        raise ValueError(
            f"network={name!r} needs images of shape (height, width) or (channels, height, "
            f"width), at least {smallest}×{smallest}; got samples of shape {tuple(sample_shape)}. "
            f"Reshape X, for example to (n, 1, 28, 28), or take 'logistic' or 'mlp'."
        )
    return shape
