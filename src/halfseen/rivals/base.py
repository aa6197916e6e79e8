"""What the rivals with a network share: scaling, training, prediction, as our method has them."""

from __future__ import annotations

import copy
from abc import abstractmethod

import numpy as np
import torch

from halfseen.boundary import (
    check_finite,
    choose_device,
    learning_dtype,
    seed_from,
    tensors_with_holes,
)
from halfseen.disk import gpu_memory_is_told, in_parts
from halfseen.fitting import (
    FOR_LESS_MEMORY,
    check_training_settings,
    epochs,
    is_small,
    learning_rate,
    learns_in_half,
    split_for_validation,
    training_mode,
    weight_decay,
)
from halfseen.moments import ObservedMoments
from halfseen.networks import NetworkSpec
from halfseen.progress import live_line
from halfseen.scoring import ScoringClassifier
from halfseen.standardise import Standardise, centre_and_scale
from halfseen.threads import torch_on_one_thread
from halfseen.training.loop import run
from halfseen.training.plain import HoleNetwork, Plain
from halfseen.training.plan import Plan
from halfseen.training.samples import Samples

_SAMPLES_AT_ONCE = 128


class NetworkRival(ScoringClassifier):
    """A network that gets along with holes in some way of its own.

    Optimiser, schedule, number of epochs, early stopping and standardisation are those of
    `SparseCodingClassifier`. Subclasses say how holes are filled and what the network is.
    """

    network: NetworkSpec
    n_epochs: int | None
    batch_size: int
    learning_rate: float | None
    weight_decay: float | None
    validation_fraction: float | None
    hide: float
    device: str | torch.device
    random_state: int | np.random.RandomState | None
    verbose: int

    @abstractmethod
    def _make_network(self, samples: Samples, n_classes: int, seed: int) -> HoleNetwork:
        """Return the untrained network; `samples` are those to learn from."""

    def _check_settings(self) -> None:
        """Refuse parameters that make no sense."""
        check_training_settings(self)

    def _fill_training(self, values: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the samples to learn from, standardised; NaN where the network takes holes."""
        return self._standardised(values)

    def _fill(self, values: np.ndarray) -> np.ndarray:
        """Return new samples, standardised; NaN where the network takes holes."""
        return self._standardised(values)

    @gpu_memory_is_told(FOR_LESS_MEMORY)
    def fit(self, X, y) -> NetworkRival:
        """Learn from samples with holes.

        Parameters
        ----------
        X : array of shape (n_samples, n_features) or (n_samples, *sample_shape)
            NaN marks a hole. Every feature must be observed in some sample.
        y : array of shape (n_samples,)
            Labels of any kind.

        Returns
        -------
        self
        """
        values, labels, classes = self._checked_training(X, y)
        self._check_settings()
        device, seed = choose_device(self.device), seed_from(self.random_state)
        centre, scale = centre_and_scale(ObservedMoments.of(values, device))
        dtype = learning_dtype(values.dtype, device)
        fresh = copy.copy(self)  # so that a failure leaves nothing behind
        fresh.standardise_ = Standardise(centre, scale)
        with training_mode(seed, device):
            split = split_for_validation(self.validation_fraction, labels, seed)
            kept, held_out = (rows.numpy() for rows in split)
            # Samples for validation are filled as new ones are: without their labels.
            samples = _samples(
                fresh._fill_training(values[kept], labels[kept]), values, labels, kept
            ).to(device, dtype)
            validation = None
            if len(held_out):
                filled = fresh._fill(values[held_out])
                validation = _samples(filled, values, labels, held_out).to(device, dtype)
            with torch.device("cpu"):  # whatever torch's default device is
                network = fresh._make_network(samples, len(classes), seed)
            network = network.to(device, dtype)
            if learns_in_half(self, device):  # as our method does; images as tensor cores read them
                network.learns_in_half = True
                network.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            n_epochs = epochs(self, len(samples))
            plan = Plan(
                n_epochs, int(self.batch_size), learning_rate(self), self.hide, weight_decay(self)
            )
            generator = torch.Generator(device).manual_seed(seed)
            trainer = Plain(network, samples, plan, generator)
            if isinstance(self.network, str):  # ours do the same work in every step
                trainer.record_steps()
            with (
                torch_on_one_thread(is_small(network, self, device)),
                live_line(self.verbose, n_epochs) as report,
            ):
                history = run(trainer, validation=validation, report=report)
        fresh.module_ = network.eval()
        fresh.history_ = history
        fresh.n_iter_ = len(history)
        fresh._remember(X, values, classes)
        self.__dict__ = fresh.__dict__
        return self

    @property
    def _sample_shape(self) -> tuple[int, ...]:
        return tuple(self.standardise_.centre.shape)

    def _scores(self, values: np.ndarray) -> np.ndarray:
        device = choose_device(self.device)
        module = self.module_.to(device).eval()
        like = next(module.parameters())
        filled, _ = tensors_with_holes(self._fill(values), "X, standardised,")
        filled = filled.to(like.dtype)
        check_finite(filled, "X, standardised,", holes=False)
        observed = torch.from_numpy(~np.isnan(values))

        def made(some: slice) -> torch.Tensor:
            return module(filled[some].to(device), observed[some].to(device))

        with torch.no_grad():
            parts = in_parts(len(filled), _SAMPLES_AT_ONCE, made)
            scores = torch.cat([part for _, part in parts])
        return scores.double().cpu().numpy()

    def _standardised(self, values: np.ndarray) -> np.ndarray:
        given = torch.tensor(np.ascontiguousarray(values), device=choose_device(self.device))
        return self.standardise_.to(given.device)(given).to(given.dtype).cpu().numpy()


def _samples(
    filled: np.ndarray, values: np.ndarray, labels: np.ndarray, rows: np.ndarray
) -> Samples:
    # `observed` is of the samples as they came, also where they are filled now.
    X, _ = tensors_with_holes(filled, "X, standardised,")
    observed = torch.from_numpy(~np.isnan(values[rows]))
    y = torch.from_numpy(labels[rows])
    return Samples(X, observed, y, torch.ones_like(y, dtype=X.dtype))
