"""Several classifiers trained at the same time, in turns: a GPU has room for more than one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from halfseen.boundary import choose_device, seed_from
from halfseen.disk import gpu_memory_is_told
from halfseen.fitting import learning_mode, training_mode
from halfseen.learned_data import distinct_data
from halfseen.model import check_settings
from halfseen.networks import NAMED
from halfseen.sparse_fitting import set_up
from halfseen.team import Team
from halfseen.training.loop import run_by_steps

if TYPE_CHECKING:
    from halfseen.classifier import SparseCodingClassifier


def fit_side_by_side(jobs: Sequence[tuple[SparseCodingClassifier, object, object]]) -> list:
    """Fit several classifiers in one process, such as the seeds of an experiment.

    Each is what its own ``fit(X, y)`` would make of it in a process of its own: a team of
    ``torchrun`` is not joined. They take their steps in turns; on a GPU each has a stream of its
    own, so that small steps fill it together.

    Parameters
    ----------
    jobs : sequence of (SparseCodingClassifier, X, y)
        Networks must be named ones: others may draw random numbers while they learn, and would
        draw each other's.

    Returns
    -------
    classifiers : list of SparseCodingClassifier
        Those of the jobs, fitted.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from halfseen import SparseCodingClassifier, ampute, fit_side_by_side
    >>> X, y = load_digits(return_X_y=True)
    >>> X = ampute(X[:200], "random", 0.5, random_state=0)
    >>> seeds = [SparseCodingClassifier(n_epochs=2, random_state=seed) for seed in range(3)]
    >>> fitted = fit_side_by_side([(clf, X, y[:200]) for clf in seeds])
    >>> [clf.n_iter_ for clf in fitted]
    [2, 2, 2]
    """
    if len({id(clf) for clf, _, _ in jobs}) < len(jobs):
        raise ValueError(
            "a classifier stands in several jobs, and would keep the last fit alone; pass copies, "
            "sklearn.base.clone(clf)."
        )
    for clf, _, _ in jobs:
        check_settings(clf)
        if not isinstance(clf.network, str) or clf.network not in NAMED:
            raise ValueError(
                f"networks side by side must be named ones, {', '.join(map(repr, NAMED))}; got "
                f"{clf.network!r}. Call fit() for others."
            )
    with gpu_memory_is_told("fit fewer side by side"):
        begun = [_begin(*job) for job in jobs]
        devices = [choose_device(clf.device) for clf, _, _ in jobs]
        histories: list = [None] * len(jobs)
        going = set(range(len(jobs)))
        while going:
            for place in sorted(going):
                stream, _, _, steps = begun[place]
                try:
                    with learning_mode(devices[place]), _on(stream):
                        next(steps)
                except StopIteration as end:
                    histories[place] = end.value
                    going.remove(place)
    for stream, _, _, _ in begun:
        if stream is not None:
            torch.cuda.current_stream(stream.device).wait_stream(stream)
    ends = [finish(history) for (_, finish, _, _), history in zip(begun, histories, strict=True)]
    for (clf, X, _), (_, _, learned, _), fitted in zip(jobs, begun, ends, strict=True):
        clf._remember(X, *learned)
        clf._adopt(fitted)
    return [clf for clf, _, _ in jobs]


def _begin(clf, X, y):
    """Return a stream, how to finish, what to remember of the data, and the steps to come."""
    values, labels, classes = clf._checked_training(X, y)
    device, seed = choose_device(clf.device), seed_from(clf.random_state)
    data, _ = distinct_data(clf, values, labels, classes, None, device, Team())
    stream = torch.cuda.Stream(device) if device.type == "cuda" else None
    with training_mode(seed, device), _on(stream):
        setup = set_up(clf, data, device, seed)
    steps = run_by_steps(setup.trainer, validation=setup.validation, prepare=setup.prepare)
    return stream, setup.fitted, (values, classes), steps


def _on(stream) -> contextlib.AbstractContextManager:
    return contextlib.nullcontext() if stream is None else torch.cuda.stream(stream)
