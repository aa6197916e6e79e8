"""From checked arrays and the parameters of a `SparseCodingClassifier` to a trained model."""

from __future__ import annotations

import hashlib
import math
import numbers
import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from halfseen.background import Background, learn_background
from halfseen.boundary import (
    check_finite,
    check_squares,
    choose_device,
    is_number,
    is_whole,
    plain,
    require,
    seed_from,
)
from halfseen.disk import gpu_memory_is_told
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
from halfseen.learned_data import Data, distinct_data, shared_moments
from halfseen.moments import ObservedMoments
from halfseen.networks import make_network
from halfseen.nn import OUTPUTS, SparseCompletion
from halfseen.objective import SCALINGS, alpha_of_counts, share_weight
from halfseen.progress import live_line
from halfseen.standardise import Standardise, centre_and_scale
from halfseen.team import Team, this_team
from halfseen.threads import torch_on_one_thread
from halfseen.tilings import Tiling, Whole
from halfseen.training.batch_norm import shared_batch_norm
from halfseen.training.completing import CodingPlan
from halfseen.training.joint import Joint
from halfseen.training.loop import Checkpoint, run, saved_seed
from halfseen.training.published import Published, PublishedSequential, Simultaneous
from halfseen.training.samples import Samples, StoredSamples
from halfseen.training.task import Sequential, TaskDriven
from halfseen.training.trainer import Trainer
from halfseen.whole_files import require_folder

_ALONE = Team()
_TRAININGS = ("task", "joint", "sequential", "published")


class Model(nn.Sequential):
    """A tensor with NaN in, scores out: the three parts of a classifier, one after the other."""

    standardise: Standardise
    completion: SparseCompletion
    network: nn.Module


@dataclass(frozen=True)
class Fitted:
    """What training leaves behind."""

    module: Model
    history: list[dict]
    background: Background


@gpu_memory_is_told(FOR_LESS_MEMORY)
def fit_classifier(settings, values, labels, classes, sample_weight, checkpoint) -> Fitted:
    """Train a model.

    Parameters
    ----------
    settings : SparseCodingClassifier
        Only its parameters are read.
    values : ndarray or MappedRows of shape (n_samples, *sample_shape)
        NaN in the holes.
    labels : ndarray of shape (n_samples,)
        Places of the labels in `classes`.
    classes : ndarray of shape (n_classes,)
    sample_weight : array of shape (n_samples,) or None
    checkpoint : path or None
    """
    check_settings(settings)
    team, device = this_team(settings.device), choose_device(settings.device)
    data, keys = distinct_data(settings, values, labels, classes, sample_weight, device, team)
    seed = team.from_first(_seed(settings, checkpoint))
    if checkpoint is not None:
        require_folder(checkpoint)
    with training_mode(seed, device):
        setup = set_up(settings, data, device, seed, team)
        with (
            torch_on_one_thread(is_small(setup.module.network, settings, device)),
            shared_batch_norm(setup.module.network, team, lambda: setup.trainer.counts),
            live_line(settings.verbose if team.rank == 0 else 0, setup.trainer.n_epochs) as report,
        ):
            history = run(
                setup.trainer,
                validation=setup.validation,
                checkpoint=_checkpoint(settings, checkpoint, seed, setup, data, keys),
                prepare=setup.prepare,
                report=report,
            )
    return setup.fitted(history)


@dataclass(frozen=True)
class Setup:
    """A training that is ready: `prepare` first, then the epochs, `fitted` with their records."""

    module: Model
    trainer: Trainer
    validation: Samples | StoredSamples | None
    prepare: Callable[[], object]
    fitted: Callable[[list[dict]], Fitted]


def set_up(settings, data: Data, device: torch.device, seed: int, team: Team = _ALONE) -> Setup:
    """Put together model, samples and trainer; see `fit_classifier` for the parameters."""
    kept, held_out = split_for_validation(settings.validation_fraction, data.labels, seed)
    if len(kept) < team.size:
        raise ValueError(
            f"{team.size} processes cannot share {len(kept)} distinct samples; start fewer."
        )
    moments = shared_moments(data.values, device, team)
    module = _module_for(settings, data, moments, len(kept), device)
    mean_weight = data.weight[kept].mean()
    everything: Samples | StoredSamples = StoredSamples(
        data.values,
        module.standardise,
        torch.from_numpy(data.labels).to(device),
        torch.from_numpy(data.weight / mean_weight).to(module.standardise.centre),
    )
    if team.alone:
        everything = everything.settled()
    samples = validation = everything
    if len(held_out) or not team.alone:
        samples, validation = (
            everything.part(rows[team.block(len(rows))]).settled() for rows in (kept, held_out)
        )
    generator = torch.Generator(device).manual_seed(seed)
    if learns_in_half(settings, device):
        # As tensor cores read images.
        module.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    trainer = _make_trainer(settings, module, samples, len(kept), generator, team)
    if isinstance(settings.network, str):  # ours do the same work in every step
        trainer.record_steps()

    def prepare() -> None:
        # The first dictionary comes from all samples: it sees no labels.
        if settings.training in ("task", "sequential"):
            _learn_first_dictionary(module.completion, everything, seed, team)
        team.follow_first([*module.parameters(), *module.buffers()])

    def fitted(history: list[dict]) -> Fitted:
        parts = module.eval().standardise, module.completion
        return Fitted(module, history, learn_background(*parts, everything, moments, seed))

    return Setup(module, trainer, validation if len(held_out) else None, prepare, fitted)


def _learn_first_dictionary(
    completion: SparseCompletion, samples: Samples | StoredSamples, seed: int, team: Team
) -> None:
    """Start the dictionary; all processes do the same, from the same samples."""

    def take(rows: Tensor) -> tuple[Tensor, Tensor]:
        batch = samples.rows(rows)
        return batch.X.flatten(1), batch.observed.flatten(1)

    # How many samples show how many features: whole numbers add up alike in any team.
    n_features = math.prod(samples.sample_shape)
    shown = torch.zeros(n_features + 1, dtype=torch.int64, device=samples.y.device)
    for X, observed in samples.part(team.block(len(samples))).parts():
        check_squares(X.flatten(1), "X, standardised,")
        shown += observed.flatten(1).sum(1).bincount(minlength=n_features + 1)
    team.add_up([shown])
    counts = torch.arange(n_features + 1, device="cpu")
    lambdas = completion.lambda_rec, completion.lambda_l1
    alpha = alpha_of_counts(counts, n_features, *lambdas, rec_scaling=completion.rec_scaling)
    mean_alpha = (alpha * shown.cpu()).sum().item() / len(samples)
    completion.learn_from(
        take,
        len(samples),
        samples.weight,
        mean_alpha,
        random_state=seed,
        record=isinstance(samples, Samples),
    )


def check_settings(settings) -> None:
    """Refuse parameters that make no sense, before any work is done."""
    check_training_settings(settings)

    def check(name: str, ok: bool, expected: str) -> None:
        require(settings, name, ok, expected)

    n_atoms, lambda_l1 = settings.n_atoms, settings.lambda_l1
    check("n_atoms", n_atoms is None or is_whole(n_atoms), "a whole number ≥ 1 or None")
    check("lambda_rec", is_number(settings.lambda_rec) and settings.lambda_rec > 0, "positive")
    check(
        "lambda_l1",
        lambda_l1 is None or (is_number(lambda_l1) and lambda_l1 > 0),
        "positive or None",
    )
    check("label_weight", is_number(settings.label_weight) and settings.label_weight >= 0, "≥ 0")
    check(
        "tiling",
        settings.tiling is None or isinstance(settings.tiling, Tiling),
        "None or a tiling such as Whole() or Patches(8, 4)",
    )
    check(
        "training",
        isinstance(settings.training, Published) or settings.training in _TRAININGS,
        f"one of {', '.join(map(repr, _TRAININGS))} or a Published",
    )
    check("rec_scaling", settings.rec_scaling in SCALINGS, " or ".join(map(repr, SCALINGS)))
    check("network_input", settings.network_input in OUTPUTS, " or ".join(map(repr, OUTPUTS)))


def published(settings) -> Published | None:
    """Return the paper's rates if the paper's algorithms are asked for."""
    if isinstance(settings.training, Published):
        return settings.training
    return Published() if settings.training == "published" else None


def make_module(
    settings, sample_shape, n_classes, n_atoms, lambda_l1, n_epochs, dtype, device
) -> Model:
    """Return standardisation, completion and network as one module, untrained."""
    tiling = Whole() if settings.tiling is None else settings.tiling
    rates = published(settings)
    completion = SparseCompletion(
        tiling,
        n_atoms,
        sample_shape,
        lambda_rec=float(settings.lambda_rec),
        lambda_l1=lambda_l1,
        rec_scaling=settings.rec_scaling,
        output=settings.network_input,
        device="cpu",
        dtype=dtype,
    )
    if rates is not None:
        completion.tol = 0.0
        completion.solver = rates.test_solver(
            math.prod(sample_shape), int(settings.batch_size), n_epochs, lambda_l1
        )
    with torch.device("cpu"):  # whatever torch's default device is
        network = make_network(settings.network, sample_shape, n_classes)
    blank = np.zeros(sample_shape), np.ones(sample_shape)
    parts = {"standardise": Standardise(*blank), "completion": completion, "network": network}
    return Model(OrderedDict(parts)).to(device=device, dtype=dtype)


def _module_for(
    settings, data: Data, moments: ObservedMoments, n_kept: int, device: torch.device
) -> Model:
    """Return the untrained model of these samples, `n_kept` of which are learned from."""
    centre, scale = centre_and_scale(moments)
    rms = 1.0
    if published(settings) is not None:  # the paper works on the values as they are
        rms = moments.root_mean_value() or 1.0
        centre, scale = np.zeros_like(centre), np.ones_like(scale)
    lambda_l1 = settings.lambda_l1
    if lambda_l1 is None:
        mean_observed = torch.tensor(moments.count.sum() / len(data.values), device="cpu")
        n_features = math.prod(data.values.shape[1:])
        weight = share_weight(mean_observed, n_features, settings.rec_scaling).item()
        lambda_l1 = settings.lambda_rec * rms * n_features * weight  # alpha = rms / 2 there
    # A GPU learns in float32, as the imputer does; a CPU in the precision of X.
    double = data.values.dtype == np.float64 and device.type == "cpu"
    tiling = Whole() if settings.tiling is None else settings.tiling
    n_tiles, n_tile_features = tiling.layout(data.values.shape[1:]).shape
    module = make_module(
        settings,
        data.values.shape[1:],
        data.n_classes,
        settings.n_atoms or min(n_tile_features, n_kept * n_tiles),
        float(lambda_l1),
        epochs(settings, n_kept),
        torch.float64 if double else torch.float32,
        device,
    )
    module.standardise.centre.copy_(torch.from_numpy(centre))
    module.standardise.scale.copy_(torch.from_numpy(scale))
    ends = torch.from_numpy(np.stack([moments.low, moments.high]))
    check_finite(module.standardise(ends.to(module.standardise.centre)), "X, standardised,", False)
    return module


def _make_trainer(
    settings, module: Model, samples, n_samples: int, generator: torch.Generator, team: Team
) -> Trainer:
    plan = CodingPlan(
        n_epochs=epochs(settings, n_samples),
        batch_size=int(settings.batch_size),
        learning_rate=learning_rate(settings),
        lambda_rec=float(settings.lambda_rec),
        lambda_l1=module.completion.lambda_l1,
        label_weight=float(settings.label_weight),
        hide=settings.hide,
        weight_decay=weight_decay(settings),
        half=published(settings) is None and learns_in_half(settings, generator.device),
    )
    parts = module.completion, module.network, samples, plan, generator, team
    rates = published(settings)
    if rates is not None:
        return (PublishedSequential if rates.sequential else Simultaneous)(*parts, rates=rates)
    return {"task": TaskDriven, "joint": Joint, "sequential": Sequential}[settings.training](*parts)


def _seed(settings, checkpoint: str | os.PathLike | None) -> int:
    """Return the seed; a training that goes on and was not given one keeps its own."""
    fixed = isinstance(settings.random_state, numbers.Integral)
    if checkpoint is not None and not fixed and Path(checkpoint).exists():
        return saved_seed(checkpoint)
    return seed_from(settings.random_state)


def _checkpoint(settings, path, seed: int, setup: Setup, data: Data, keys) -> Checkpoint | None:
    if path is None:
        return None
    parameters = {name: plain(value) for name, value in settings.get_params(deep=False).items()}
    for name in ("network", "device", "random_state", "verbose"):
        del parameters[name]
    network = setup.module.network
    device = setup.trainer.device.type
    shape = data.values.shape, str(data.values.dtype)
    digest = hashlib.sha256(repr((sorted(parameters.items()), seed, device, shape)).encode())
    # A network is what it is made of and what it starts from; code has no name that lasts.
    digest.update(repr(network).encode())
    for tensor in network.state_dict().values():
        digest.update(repr((tuple(tensor.shape), tensor.dtype)).encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    # Samples by their keys: whatever the number of processes, all of them know those.
    for array in (keys, data.labels, data.weight):
        digest.update(np.ascontiguousarray(array).data)
    return Checkpoint(path, digest.hexdigest(), seed)
