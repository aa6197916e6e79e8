"""The loop over epochs: records, validation, checkpoints, and a stop when a loss explodes."""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from halfseen import storage
from halfseen.boundary import is_whole
from halfseen.disk import slices
from halfseen.training.samples import Samples, StoredSamples
from halfseen.training.trainer import Trainer, evaluating, finished

_LEAST_PATIENCE = 10  # epochs without a better validation accuracy
_PATIENT_SHARE = 0.25  # of all epochs
_WRITING_SHARE = 0.05  # of the time may go into checkpoints
_SAMPLES_AT_ONCE = 256
_WHOLE = "a whole training", "; remove it to begin anew."
_ADVICE = {
    "J0": "lower learning_rate, or check the scale of what the network sees",
    "J1": "lower the rate of dictionary and codes, or lambda_rec; check X for huge values",
    "J2": "lower the rate of the codes; check X for huge values",
}


@dataclass(frozen=True)
class Checkpoint:
    """Where a training keeps its state, and which training it is.

    Attributes
    ----------
    path : path
    fingerprint : str
        Of data and settings; a file with another one is not gone on with.
    seed : int
        Kept, so that a training that was given no seed can go on.
    """

    path: str | os.PathLike
    fingerprint: str
    seed: int


def saved_seed(path: str | os.PathLike) -> int:
    """Return the seed of the training that a checkpoint is of."""
    tree = storage.read(path, "checkpoint")
    with storage.must_hold(path, *_WHOLE):
        seed = tree["seed"]
        if not is_whole(seed, least=0) or seed >= 2**32:
            raise ValueError(f"its seed is {seed!r}")
        return seed


def run(trainer: Trainer, **options) -> list[dict]:
    """Train to the end at once; see `run_by_steps`."""
    return finished(run_by_steps(trainer, **options))


def run_by_steps(
    trainer: Trainer,
    *,
    validation: Samples | StoredSamples | None = None,
    checkpoint: Checkpoint | None = None,
    prepare: Callable[[], object] | None = None,
    report: Callable[[dict], object] | None = None,
) -> Generator[None, None, list[dict]]:
    """Train to the end, or go on from a checkpoint to the end; return one record per epoch.

    Pauses after every step, so that several trainings may take turns. With `validation` the
    network and dictionary of the best epoch are restored at the end, and training stops when a
    quarter of all epochs (and at least ten) brought no better accuracy. Epochs of the warm-up
    do not count.

    Parameters
    ----------
    trainer : Trainer
    validation : Samples or StoredSamples, optional
        Those that this process owns.
    checkpoint : Checkpoint, optional
    prepare : callable, optional
        Called first, unless there is a checkpoint to go on from.
    report : callable, optional
        Called with each record as it is made.
    """
    history: list[dict] = []
    best: dict | None = None
    saved = None if checkpoint is None else _load(checkpoint, trainer)
    if saved is not None:
        history, best = saved["history"], saved["best"]
    elif prepare is not None:
        prepare()
    if checkpoint is not None:  # before anything is trained that could not be written
        storage.require_form({name: m.state_dict() for name, m in trainer.modules.items()})
    trainer.start()
    last_write, cost = -math.inf, 0.0
    while not _is_over(history, trainer, validation):
        start = time.perf_counter()
        means = yield from trainer.epoch_by_steps()
        # Running statistics other than batch normalisation's are of each process's samples.
        trainer.team.follow_first(list(trainer.network.buffers()))
        record = {"epoch": len(history) + 1, **means}
        _check_finite(record)
        if validation is not None:
            record["validation_accuracy"] = accuracy(trainer, validation)
            judged = _judged(history, trainer)
            if len(history) >= trainer.judged_from and record["validation_accuracy"] > max(
                judged, default=-math.inf
            ):
                best = {name: _copied(module) for name, module in trainer.modules.items()}
        record["seconds"] = time.perf_counter() - start
        history.append(record)
        if report is not None:
            report(record)
        if checkpoint is not None:
            over = _is_over(history, trainer, validation)
            due = time.perf_counter() - last_write > cost / _WRITING_SHARE
            if trainer.team.from_first(over or due):
                before = time.perf_counter()
                _save(checkpoint, trainer, history, best)
                last_write = time.perf_counter()
                cost = last_write - before
    if best is not None:
        for name, module in trainer.modules.items():
            module.load_state_dict(best[name])
    _check_weights(trainer, len(history))
    return history


@torch.no_grad()
def accuracy(trainer: Trainer, samples: Samples | StoredSamples) -> float:
    """Return the weighted share of the samples of all processes that are classified rightly."""
    right = samples.weight.new_zeros(2)
    with evaluating(trainer.network):
        for some in slices(len(samples), _SAMPLES_AT_ONCE):
            batch = samples.rows(some)
            hit = trainer.scores(batch.X, batch.observed).argmax(1) == batch.y
            right += torch.stack([(hit * batch.weight).sum(), batch.weight.sum()])
    trainer.team.add_up([right])
    return (right[0] / right[1]).item()


def _is_over(
    history: list[dict], trainer: Trainer, validation: Samples | StoredSamples | None
) -> bool:
    if len(history) >= trainer.n_epochs:
        return True
    judged = [] if validation is None else _judged(history, trainer)
    if not judged:
        return False
    patience = max(_LEAST_PATIENCE, math.ceil(_PATIENT_SHARE * trainer.n_epochs))
    return len(judged) - 1 - judged.index(max(judged)) >= patience


def _judged(history: list[dict], trainer: Trainer) -> list[float]:
    return [record["validation_accuracy"] for record in history[trainer.judged_from :]]


def _check_finite(record: dict) -> None:
    for term, advice in _ADVICE.items():
        if not math.isfinite(record.get(term, 0.0)):
            raise ValueError(
                f"training stopped in epoch {record['epoch']}: {term} became {record[term]}. "
                f"What may help: {advice}."
            )


def _check_weights(trainer: Trainer, n_epochs: int) -> None:
    """Refuse a result that the last steps have spoilt: records are of before each step."""
    weights = [weight for module in trainer.modules.values() for weight in module.parameters()]
    if not all(bool(weight.isfinite().all()) for weight in weights):
        raise ValueError(
            f"training ended after epoch {n_epochs} with weights that are not finite. What may "
            f"help: {_ADVICE['J0']}."
        )


def _copied(module: nn.Module) -> dict:
    return copy.deepcopy(module.state_dict())


def _save(checkpoint: Checkpoint, trainer: Trainer, history: list[dict], best) -> None:
    state = trainer.state()  # all processes take part
    if trainer.team.rank != 0:
        return
    tree = {
        "fingerprint": checkpoint.fingerprint,
        "seed": checkpoint.seed,
        "trainer": state,
        "history": history,
        "best": best,
        "torch_random": torch.get_rng_state(),
    }
    if trainer.device.type == "cuda":
        tree["cuda_random"] = torch.cuda.get_rng_state(trainer.device)
    storage.write(checkpoint.path, "checkpoint", tree)


def _load(checkpoint: Checkpoint, trainer: Trainer) -> dict | None:
    if not trainer.team.from_first(Path(checkpoint.path).exists()):
        return None
    if not Path(checkpoint.path).exists():
        raise FileNotFoundError(
            f"there is no checkpoint {str(checkpoint.path)!r} here, but the first process has it; "
            f"it must be on a disk that all processes can read."
        )
    tree = storage.read(checkpoint.path, "checkpoint")
    if tree.get("fingerprint") != checkpoint.fingerprint:
        raise ValueError(
            f"the checkpoint {str(checkpoint.path)!r} is of a training with other data, settings "
            f"or device; remove it or pass another path."
        )
    with storage.must_hold(checkpoint.path, *_WHOLE):
        check_history(tree["history"])
        for saved in (tree["trainer"], *([] if tree["best"] is None else [tree["best"]])):
            for name, module in trainer.modules.items():
                storage.require_like(saved[name], module.state_dict())
        trainer.load_state(tree["trainer"])
        torch.set_rng_state(tree["torch_random"])
        if "cuda_random" in tree:
            torch.cuda.set_rng_state(tree["cuda_random"], trainer.device)
    return tree


def check_history(history: list[dict]) -> None:
    """Refuse records from a file that no training has made."""
    listed = isinstance(history, list) and history
    if not listed or any(record.keys() != history[0].keys() for record in history):
        raise ValueError("its records of training are not whole")
    if "accuracy" not in history[0] or not all(
        isinstance(value, int | float) for record in history for value in record.values()
    ):
        raise ValueError("its records of training are not numbers")
