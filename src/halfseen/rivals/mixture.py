"""NN-GMM: a first layer that outputs expected activations under a Gaussian mixture.

Śmieja, Struski, Tabor, Zieliński, Spurek: Processing of missing data by neural networks
(NeurIPS 2018). Holes of a sample are random variables: a mixture of Gaussians with diagonal
covariance, conditioned on what is observed. The first layer returns the expectation of its
activation; everything after it is an ordinary network. Mixture and weights are trained
together.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from halfseen.boundary import is_whole, require
from halfseen.networks import AsImage, NetworkSpec, make_network
from halfseen.rivals.base import NetworkRival
from halfseen.training.plain import HoleNetwork
from halfseen.training.samples import Samples

_RESHAPING = (nn.Flatten, nn.Unflatten, nn.Identity, AsImage)
_FIRST = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_START_SAMPLES = 10_000  # that the first mixture is fitted to
_EM_STEPS = 30
_LEAST_VARIANCE = 1e-3  # added in the first mixture, in units of the standardised data
_NO_VARIANCE = 1e-12
_MIXTURE_RATE = 1e-3  # learning rate; at that of the weights it forgets the data


class NNGMMClassifier(NetworkRival):
    """A network whose first layer takes holes as random variables of a Gaussian mixture.

    Parameters
    ----------
    network : {"logistic", "mlp", "cnn4", "cnn4_bn", "resnet18"}, Module or function
        See `SparseCodingClassifier`. It must be a `torch.nn.Sequential` that begins with a
        linear layer or a convolution, after layers that only reshape. If a ReLU follows,
        its expectation is taken (through a batch normalisation between them, which the
        authors do not treat, as the affine map that it is); else that of the layer itself.
    n_components : int
        Gaussians of the mixture.
    n_epochs, batch_size, learning_rate, weight_decay, validation_fraction
        See `SparseCodingClassifier`.
    hide, device, random_state, verbose
        See `SparseCodingClassifier`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    module_ : the trained network; ``module_.mixture`` is the mixture
    history_ : list of dict
        One record per epoch.
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of str
    """

    def __init__(
        self,
        network: NetworkSpec = "mlp",
        n_components: int = 10,
        *,
        n_epochs: int | None = None,
        batch_size: int = 128,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        validation_fraction: float | None = None,
        hide: float = 0.25,
        device: str | torch.device = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ):
        self.network = network
        self.n_components = n_components
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.validation_fraction = validation_fraction
        self.hide = hide
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _check_settings(self) -> None:
        super()._check_settings()
        require(self, "n_components", is_whole(self.n_components), "a whole number ≥ 1")

    def _make_network(self, samples: Samples, n_classes: int, seed: int) -> HoleNetwork:
        network = make_network(self.network, tuple(samples.X.shape[1:]), n_classes)
        return MixtureNetwork(network, start_mixture(samples, self.n_components, seed))


class Mixture(nn.Module):
    """A mixture of Gaussians with diagonal covariance; all of it is learned.

    Parameters
    ----------
    weights : Tensor of shape (n_components,)
    means, variances : Tensor of shape (n_components, *sample_shape)
    """

    def __init__(self, weights: Tensor, means: Tensor, variances: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(weights.log())
        self.means = nn.Parameter(means)
        self.log_variances = nn.Parameter(variances.log())
        self.log_gamma = nn.Parameter(weights.new_zeros(()))

    @property
    def variances(self) -> Tensor:
        """Variances of all components, shape (n_components, *sample_shape)."""
        return self.log_variances.exp()

    def responsibilities(self, X: Tensor, observed: Tensor) -> Tensor:
        """Return how likely each component is, given what is observed of a sample.

        Variances are enlarged by γ ≥ 0, which is learned: it softens the choice.

        Returns
        -------
        responsibilities : Tensor of shape (n_samples, n_components)
        """
        seen = observed.flatten(1).to(X.dtype)
        values = X.flatten(1) * seen
        means = self.means.flatten(1)
        variances = self.variances.flatten(1) + self.log_gamma.exp()
        precision = 1 / variances
        distance = (
            values.square() @ precision.T
            - 2 * values @ (means * precision).T
            + seen @ (means.square() * precision + variances.log()).T
        )
        return torch.softmax(self.logits.log_softmax(0) - distance / 2, dim=1)


class MixtureNetwork(HoleNetwork):
    """A network of which the first activation is an expectation under a mixture.

    Parameters
    ----------
    network : Sequential
    mixture : Mixture
    """

    def __init__(self, network: nn.Module, mixture: Mixture) -> None:
        super().__init__()
        layers = _flat(network)
        place = 0
        while place < len(layers) and isinstance(layers[place], _RESHAPING):
            place += 1
        first = layers[place] if place < len(layers) else None
        if not isinstance(first, _FIRST):
            raise ValueError(
                f"NN-GMM needs a network that is a torch.nn.Sequential and begins, after layers "
                f"that reshape, with a Linear or convolution layer; got {type(first).__name__} "
                f"there."
            )
        if "weight" not in dict(first.named_parameters(recurse=False)):
            raise ValueError(
                f"NN-GMM needs a first layer that holds its own weight; that of this "
                f"{type(first).__name__} is computed from other parameters: leave out weight_norm, "
                f"spectral_norm or other parametrisations there."
            )
        if getattr(first, "padding_mode", "zeros") not in ("zeros", "circular"):
            raise ValueError(
                f"NN-GMM needs a convolution that sees every feature once in a window; got "
                f"padding_mode={first.padding_mode!r}, take 'zeros' or 'circular'."
            )
        self.mixture = mixture
        self.reshape = nn.Sequential(*layers[:place])
        self.first = first
        rest = layers[place + 1 :]
        self.norm: _BatchNorm | None = None
        if rest and isinstance(rest[0], _BatchNorm):
            self.norm, rest = rest[0], rest[1:]
        self.rectified = bool(rest) and isinstance(rest[0], nn.ReLU)
        self.network = nn.Sequential(*rest[1:] if self.rectified else rest)

    def own_rates(self) -> list[tuple[Tensor, float]]:
        """Return the parameters of the mixture, which move slowly."""
        return [(parameter, _MIXTURE_RATE) for parameter in self.mixture.parameters()]

    def forward(self, X: Tensor, observed: Tensor) -> Tensor:
        """Return scores, shape (n_samples, n_classes)."""
        return self.classified(self.expected_activation(X, observed))

    def expected_activation(self, X: Tensor, observed: Tensor) -> Tensor:
        """Return the expected output of the first layer and its ReLU, given what is observed."""
        share = self.mixture.responsibilities(X, observed)
        # (n_samples, n_components, *sample_shape): each component's view of the holes
        filled = torch.where(observed[:, None], X[:, None], self.mixture.means)
        spread = torch.where(observed[:, None], 0, self.mixture.variances)
        weight, bias = _weight_and_bias(self.first)
        if self.norm is not None or not self.rectified:
            # The layer is linear and shares add up to 1: its expected output is that of the
            # expected sample, and the large tensors of all components need not be normalised.
            expected = torch.einsum("nc,nc...->n...", share, filled)
            output = self.first(self.reshape(expected))
            if not self.rectified:
                return output if self.norm is None else self.norm(output)
            weight, bias = _normalised(self.norm, output, weight, bias)
        mean = self._applied(weight, bias, filled)
        variance = self._applied(weight.square(), torch.zeros_like(bias), spread)
        return torch.einsum("nc,nc...->n...", share, expected_relu(mean, variance))

    def _applied(self, weight: Tensor, bias: Tensor, samples: Tensor) -> Tensor:
        """Return the first layer of samples (n_samples, n_components, ...), with other weights."""
        given = self.reshape(samples.flatten(0, 1))
        layer = torch.func.functional_call(self.first, {"weight": weight, "bias": bias}, (given,))
        return layer.unflatten(0, samples.shape[:2])


def _weight_and_bias(layer: nn.Module) -> tuple[Tensor, Tensor]:
    bias = layer.weight.new_zeros(layer.weight.shape[0]) if layer.bias is None else layer.bias
    return layer.weight, bias


def _normalised(
    norm: _BatchNorm, output: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """Return a linear map with the batch normalisation after it, whose input is `output`."""
    if weight.ndim == 2 and output.ndim > 2:
        raise ValueError(
            f"NN-GMM needs a batch normalisation of the units of the first layer; it is a Linear "
            f"on samples of shape {tuple(output.shape[1:-1])} and more: begin with a Flatten."
        )
    over = [axis for axis in range(output.ndim) if axis != 1]
    centre, variance = norm.running_mean, norm.running_var
    if norm.training or centre is None or variance is None:
        norm(output)  # keeps the running statistics
        centre, variance = output.mean(over), output.var(over, correction=0)
    scale = (variance + norm.eps).rsqrt()
    shift = (bias - centre) * scale
    if norm.affine:
        scale, shift = scale * norm.weight, shift * norm.weight + norm.bias
    return weight * scale.reshape(-1, *(1,) * (weight.ndim - 1)), shift


def expected_relu(mean: Tensor, variance: Tensor) -> Tensor:
    """Return the expectation of max(0, z) for Gaussian z; the plain ReLU without variance."""
    return _ExpectedRelu.apply(mean, variance)


class _ExpectedRelu(torch.autograd.Function):
    """With derivatives in closed form: Φ(μ/σ) and φ(μ/σ)/2σ, half the time of those of each step.

    The tensors are the largest of NN-GMM: one number for each sample, component and neuron.
    """

    @staticmethod
    def forward(ctx, mean: Tensor, variance: Tensor) -> Tensor:
        certain = variance <= _NO_VARIANCE
        deviation = torch.where(certain, 1, variance).sqrt()
        ratio = mean / deviation
        density = (-0.5 * ratio.square()).exp() / math.sqrt(2 * math.pi)
        above = torch.special.ndtr(ratio)  # how likely z > 0 is
        expected = torch.addcmul(mean * above, deviation, density)
        by_mean = torch.where(certain, (mean > 0).to(mean.dtype), above)
        by_variance = torch.where(certain, 0, density / (2 * deviation))
        ctx.save_for_backward(by_mean, by_variance)
        return torch.where(certain, F.relu(mean), expected)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor]:
        by_mean, by_variance = ctx.saved_tensors
        return gradient * by_mean, gradient * by_variance


@torch.no_grad()
def start_mixture(samples: Samples, n_components: int, seed: int) -> Mixture:
    """Return a mixture fitted to some samples, their holes filled with means, by EM."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(samples), generator=generator, device="cpu")[:_START_SAMPLES]
    some = samples.rows(chosen.to(samples.X.device))
    X = (some.X * some.observed).flatten(1)  # the means are 0 here
    given = np.resize(X.double().cpu().numpy(), (max(2, len(X)), X.shape[1]))  # it wants two
    start = GaussianMixture(
        min(n_components, len(X)),
        covariance_type="diag",
        reg_covar=_LEAST_VARIANCE,
        max_iter=_EM_STEPS,
        random_state=seed,
    )
    with warnings.catch_warnings():  # of few different samples, or of steps that were too few
        warnings.simplefilter("ignore", ConvergenceWarning)
        start.fit(given)
    shape = (-1, *samples.X.shape[1:])
    return Mixture(
        X.new_tensor(start.weights_),
        X.new_tensor(start.means_).reshape(shape),
        X.new_tensor(start.covariances_).reshape(shape),
    )


def _flat(network: nn.Module) -> list[nn.Module]:
    """Return the layers of nested `Sequential`s, as far as they are nothing else."""
    if isinstance(network, nn.Sequential) and type(network).forward is nn.Sequential.forward:
        return [layer for part in network for layer in _flat(part)]
    return [network]
