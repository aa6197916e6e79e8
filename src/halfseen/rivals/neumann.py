"""A layer in the manner of NeuMiss before any network.

Le Morvan, Josse, Moreau, Scornet, Varoquaux: NeuMiss networks (NeurIPS 2020). Under a Gaussian
law with covariance Σ the best guess of the holes is mean + Σ_ho Σ_oo⁻¹ (x_o − mean). The
inverse is a Neumann series, whose terms are one matrix product each, followed by
a multiplication with `observed`. The matrices are learned with the network.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from halfseen.boundary import is_whole, require
from halfseen.networks import NetworkSpec, make_network
from halfseen.rivals.base import NetworkRival
from halfseen.training.plain import HoleNetwork
from halfseen.training.samples import Samples

_MATRIX_RATE = 8e-4  # in units of the size of the entries; faster it forgets the data


class NeuMissClassifier(NetworkRival):
    """A network on samples that a Neumann series with learned matrices completes.

    Parameters
    ----------
    network : {"logistic", "mlp", "cnn4", "cnn4_bn", "resnet18"}, Module or function
        See `SparseCodingClassifier`.
    depth : int
        Terms of the series.
    n_epochs, batch_size, learning_rate, weight_decay, validation_fraction
        See `SparseCodingClassifier`.
    hide, device, random_state, verbose
        See `SparseCodingClassifier`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    module_ : the trained network
    history_ : list of dict
        One record per epoch.
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of str
    """

    def __init__(
        self,
        network: NetworkSpec = "mlp",
        depth: int = 10,
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
        self.depth = depth
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
        require(self, "depth", is_whole(self.depth), "a whole number ≥ 1")

    def _make_network(self, samples: Samples, n_classes: int, seed: int) -> HoleNetwork:
        network = make_network(self.network, tuple(samples.X.shape[1:]), n_classes)
        covariance = observed_covariance(samples.X.flatten(1), samples.observed.flatten(1))
        return NeuMissNetwork(network, covariance, self.depth)


class NeuMissNetwork(HoleNetwork):
    """Complete samples by a Neumann series, then classify them.

    Parameters
    ----------
    network : Module
    covariance : Tensor of shape (n_features, n_features)
        Where the matrices start: they are then those of a Gaussian with this covariance.
    depth : int
    """

    def __init__(self, network: nn.Module, covariance: Tensor, depth: int) -> None:
        super().__init__()
        scaled = covariance / torch.linalg.matrix_norm(covariance, 2).clamp(min=1e-12)
        self.mean = nn.Parameter(covariance.new_zeros(len(covariance)))
        self.step = nn.Parameter(torch.eye(len(covariance), device="cpu").to(scaled) - scaled)
        self.mix = nn.Parameter(scaled.clone())
        self.network = network
        self.depth = depth

    def own_rates(self) -> list[tuple[Tensor, float]]:
        """Return the two matrices with rates that fit the size of their entries."""
        rate = _MATRIX_RATE / len(self.step) ** 0.5
        return [(self.step, rate), (self.mix, rate)]

    def complete(self, X: Tensor, observed: Tensor) -> Tensor:
        """Return samples with their holes filled."""
        seen = observed.flatten(1)
        residual = torch.where(seen, X.flatten(1) - self.mean, 0)
        whitened = residual
        for _ in range(self.depth):
            whitened = (whitened @ self.step) * seen + residual
        guess = self.mean + whitened @ self.mix
        return torch.where(observed, X, guess.reshape(X.shape))

    def forward(self, X: Tensor, observed: Tensor) -> Tensor:
        """Return scores, shape (n_samples, n_classes)."""
        return self.classified(self.complete(X, observed))


def observed_covariance(X: Tensor, observed: Tensor) -> Tensor:
    """Return the covariance of centred features over the samples that have both of a pair.

    What is not positive semi-definite in it, as such a matrix need not be, is cut off.
    """
    seen = observed.to(X.dtype)
    values = X * seen
    covariance = (values.T @ values) / (seen.T @ seen).clamp(min=1)
    levels, directions = torch.linalg.eigh(covariance)
    return (directions * levels.clamp(min=0)) @ directions.T
