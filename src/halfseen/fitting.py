"""What fitting a network classifier takes, whatever stands before the network.

Settings are estimators; only the parameters that all of them have are read here: `network`,
`n_epochs`, `batch_size`, `learning_rate`, `weight_decay`, `validation_fraction`, `hide`.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from halfseen.boundary import is_number, is_whole, require

# Networks draw their first weights and dropout from torch's global generator, which is lent to
# one training at a time and then put back as it was.
_one_at_a_time = threading.RLock()  # an imputer or network may fit something itself
_IN_HALF = ("resnet18",)
_SMALL = 2**22  # multiplications a step, below which torch is faster on one thread
_LEAST_STEPS = 600
_MOST_STEPS = 20_000  # many samples need fewer passes
_USUAL_EPOCHS = 10
_USUAL_DECAY = 1e-3
FOR_LESS_MEMORY = (
    "lower batch_size, take a smaller network or fewer atoms, free what other programs use, or "
    "pass device='cpu'"
)
# Strong for those of our networks that overfit.
_DECAYS = {"mlp": 0.5, "cnn4": 1.0, "cnn4_bn": 1.0, "resnet18": 0.3}


def _lend_anew() -> None:
    """Forget, in a process split off by a fork, a training of a thread that is not in it."""
    global _one_at_a_time
    _one_at_a_time = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_lend_anew)


@contextlib.contextmanager
def training_mode(seed: int, device: torch.device) -> Iterator[None]:
    """Lend torch's global generators, freshly seeded, to one training, see `learning_mode`."""
    on_gpu = device.type == "cuda"
    with _one_at_a_time, learning_mode(device), torch.random.fork_rng([device] if on_gpu else []):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed every GPU
        if on_gpu:
            torch.cuda.manual_seed(seed)
        yield


@contextlib.contextmanager
def learning_mode(device: torch.device) -> Iterator[None]:
    """Have gradients on, autocast off (codes need all their digits), and the GPU chosen."""
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast(device.type, enabled=False),
        torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext(),
    ):
        yield


def check_training_settings(settings) -> None:
    """Refuse parameters of training that make no sense, before any work is done."""
    n_epochs, rate = settings.n_epochs, settings.learning_rate
    share = settings.validation_fraction
    require(settings, "n_epochs", n_epochs is None or is_whole(n_epochs), _WHOLE_OR_NONE)
    require(settings, "batch_size", is_whole(settings.batch_size), "a whole number ≥ 1")
    positive = rate is None or (is_number(rate) and rate > 0)
    require(settings, "learning_rate", positive, "positive or None")
    decay = settings.weight_decay
    not_negative = decay is None or (is_number(decay) and decay >= 0)
    require(settings, "weight_decay", not_negative, "at least 0, or None")
    between = share is None or (is_number(share) and 0 < share < 1)
    require(settings, "validation_fraction", between, "between 0 and 1, or None")
    hide = settings.hide
    require(settings, "hide", is_number(hide) and 0 <= hide <= 0.5, "from 0 to 0.5")


_WHOLE_OR_NONE = "a whole number ≥ 1 or None"


def is_small(network: nn.Module, settings, device: torch.device) -> bool:
    """Say whether steps on a CPU are so short that torch should not share them out."""
    n_weights = sum(weight.numel() for weight in network.parameters())
    return device.type == "cpu" and n_weights * int(settings.batch_size) < _SMALL


def learns_in_half(settings, device: torch.device) -> bool:
    """Say whether a network should multiply in bfloat16 while it learns.

    Only on a GPU, and only networks of ours for which it is faster there, and no less accurate.
    """
    return device.type == "cuda" and settings.network in _IN_HALF


def epochs(settings, n_samples: int) -> int:
    """Return the number of epochs, also when it is left to us."""
    if settings.n_epochs is not None:
        return int(settings.n_epochs)
    n_batches = math.ceil(n_samples / int(settings.batch_size))
    usual = max(_USUAL_EPOCHS, math.ceil(_LEAST_STEPS / n_batches))
    return max(1, min(usual, _MOST_STEPS // n_batches))


def learning_rate(settings) -> float:
    """Return the learning rate of the network, also when it is left to us."""
    if settings.learning_rate is not None:
        return float(settings.learning_rate)
    return 0.01 if settings.network in ("logistic", "mlp") else 0.002


def weight_decay(settings) -> float:
    """Return the weight decay of the network, also when it is left to us."""
    if settings.weight_decay is not None:
        return float(settings.weight_decay)
    if not isinstance(settings.network, str):
        return _USUAL_DECAY
    return _DECAYS.get(settings.network, _USUAL_DECAY)


def split_for_validation(fraction: float | None, labels: np.ndarray, seed: int) -> tuple:
    """Return which rows to learn from and which to validate with, class by class."""
    if fraction is None:
        everything = torch.arange(len(labels), device="cpu")
        return everything, everything[:0]
    random = np.random.default_rng(seed)
    held_out = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        rows = random.permutation(np.flatnonzero(labels == label))
        # Every class is learned from.
        held_out[rows[: min(round(fraction * len(rows)), len(rows) - 1)]] = True
    if not held_out.any():
        raise ValueError(
            f"validation_fraction={fraction} of {len(labels)} distinct samples leaves nothing to "
            f"validate with."
        )
    return torch.from_numpy(np.flatnonzero(~held_out)), torch.from_numpy(np.flatnonzero(held_out))
