"""From checked arrays and the parameters of a `SparseCodingClassifier` to a trained model."""

from __future__ import annotations

import hashlib
import numbers
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from halfseen.background import Background, learn_background
from halfseen.boundary import choose_device, seed_from
from halfseen.disk import gpu_memory_is_told
from halfseen.first_dictionary import start_from_samples
from halfseen.fitting import (
    FOR_LESS_MEMORY,
    epochs,
    is_small,
    learning_rate,
    learns_in_half,
    split_for_validation,
    training_mode,
    weight_decay,
)
from halfseen.learned_data import Data, compared, described, distinct_data, shared_moments
from halfseen.model import Model, check_settings, module_for, published
from halfseen.progress import live_line
from halfseen.team import Team, this_team
from halfseen.threads import torch_on_one_thread
from halfseen.tilings import Channels, Patches, Whole
from halfseen.training.batch_norm import shared_batch_norm
from halfseen.training.completing import CodingPlan
from halfseen.training.joint import Joint
from halfseen.training.loop import Checkpoint, run, saved_seed
from halfseen.training.published import PublishedSequential, Simultaneous
from halfseen.training.samples import Samples, StoredSamples
from halfseen.training.task import Sequential, TaskDriven
from halfseen.training.trainer import Trainer
from halfseen.whole_files import require_folder

_ALONE = Team()


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
    given = settings, values, labels, classes, sample_weight, device, team
    data, keys = distinct_data(*given, is_kept=checkpoint is not None)
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
    module = module_for(settings, data, moments, len(kept), device)
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
            start_from_samples(module.completion, everything, seed, team)
        team.follow_first([*module.parameters(), *module.buffers()])

    def fitted(history: list[dict]) -> Fitted:
        parts = module.eval().standardise, module.completion
        return Fitted(module, history, learn_background(*parts, everything, moments, seed))

    return Setup(module, trainer, validation if len(held_out) else None, prepare, fitted)


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
    network, completion = setup.module.network, setup.module.completion
    device = setup.trainer.device.type
    shape = data.values.shape, str(data.values.dtype)
    digest = hashlib.sha256(repr((compared(settings), seed, device, shape)).encode())
    if not isinstance(completion.tiling, Whole | Channels | Patches):  # not told by its parameters
        digest.update(completion.layout.cpu().numpy().data)
    # A network is what it is made of and what it starts from; code has no name that lasts.
    digest.update(described(network).encode())
    for tensor in network.state_dict().values():
        if not isinstance(tensor, Tensor):  # what a module of its own keeps beside tensors
            digest.update(repr(tensor).encode())
            continue
        digest.update(repr((tuple(tensor.shape), tensor.dtype)).encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    # Samples by their keys: whatever the number of processes, all of them know those.
    for array in (keys, data.labels, data.weight):
        digest.update(np.ascontiguousarray(array).data)
    return Checkpoint(path, digest.hexdigest(), seed)
