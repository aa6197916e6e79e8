"""Memory: none is lost over many fits, and a GPU that has too little is not the end."""

import gc
import json
import os
import subprocess
import sys
import weakref
from collections import Counter

import numpy as np
import pytest
import torch
from sklearn.base import clone

from halfseen import (
    Patches,
    SparseCodingClassifier,
    SparseCodingImputer,
    TableClassifier,
    fit_side_by_side,
    rivals,
)
from halfseen.disk import in_parts
from halfseen.solvers.coordinate_descent import CoordinateDescent

PAGE = os.sysconf("SC_PAGE_SIZE")
FAST = {"n_epochs": 1, "random_state": 0}
NO_ROOM = torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def data(n_samples=200, n_features=16):
    random = np.random.default_rng(0)
    y = np.arange(n_samples) % 3
    X = random.standard_normal((n_samples, n_features)) + y[:, None]
    X[random.random(X.shape) < 0.3] = np.nan
    return X, y


def estimators():
    """Return estimators of all kinds; those with a first dictionary take longer."""
    quick = {"training": "joint", **FAST}
    return [
        SparseCodingClassifier(**quick),
        rivals.mean_fill("mlp", **FAST),
        SparseCodingClassifier("mlp", training="published", **FAST),
        SparseCodingImputer(n_steps=5, random_state=0),
        SparseCodingClassifier(validation_fraction=0.2, **FAST),
        TableClassifier(SparseCodingClassifier("mlp", **quick)),
        rivals.neumiss("mlp", **FAST),
        SparseCodingClassifier(tiling=Patches((8,), 8), n_atoms=8, **quick),
    ]


def fit_again_and_again(n_fits):
    """Print how much memory this process has after each fit, and what stays behind."""
    torch.set_num_threads(1)
    X, y = data(100, 64)
    X, y = np.tile(X, (20, 1)), np.tile(y, 20)  # a megabyte: whoever keeps it is seen
    kinds, memory, before = estimators(), [], None
    for number in range(n_fits):
        estimator = kinds[number % len(kinds)]
        estimator.fit(X, y)
        if hasattr(estimator, "predict_proba"):
            estimator.predict_proba(X[:100])
        else:
            estimator.transform(X[:100])
        with open("/proc/self/statm") as file:
            memory.append(int(file.read().split()[1]) * PAGE)
        if number == n_fits // 2:
            before = tensors_alive()
    print(json.dumps({"memory": memory, "new": dict(tensors_alive() - before)}))


def tensors_alive():
    gc.collect()
    kinds = (torch.Tensor, torch.nn.Module, torch.Generator, np.ndarray)
    return Counter(type(one).__name__ for one in gc.get_objects() if issubclass(type(one), kinds))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_stays_flat_over_many_fits(times, tried):
    n_fits = times(64, 200)
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(__file__), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", f"import test_memory; test_memory.fit_again_and_again({n_fits})"],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    memory, warm = found["memory"], n_fits // 4
    growth = max(memory[-warm:]) / max(memory[warm : 2 * warm]) - 1
    assert growth < 0.05, [f"{size / 2**20:.0f} MiB" for size in memory]
    assert sum(found["new"].values()) < 10, found["new"]
    tried("fits in one process whose memory stays flat", n_fits)


def test_what_was_fitted_goes_when_nobody_keeps_it():
    X, y = data()
    waiting = estimators()
    while waiting:
        estimator = waiting.pop().fit(X, y)
        inner = getattr(estimator, "classifier_", estimator)
        held = [weakref.ref(estimator)]
        held += [weakref.ref(inner.module_)] if hasattr(inner, "module_") else []
        del estimator, inner
        gc.collect()
        assert [one() for one in held] == [None] * len(held)


class FullAfter:
    """Raises what a full GPU raises when more rows than it has room for are coded."""

    def __init__(self, n_rows):
        self.n_rows, self.n_refused, self.sizes = n_rows, 0, []
        self.solve = CoordinateDescent.solve

    def __call__(self, solver, problem, *arguments):
        if len(problem.X) > self.n_rows:
            self.n_refused += 1
            raise NO_ROOM
        self.sizes.append(len(problem.X))
        return self.solve(solver, problem, *arguments)


@pytest.fixture
def small_gpu(monkeypatch):
    """Return a function that lets coding have room for so many tiles at once."""

    def make(n_rows):
        full = FullAfter(n_rows)
        monkeypatch.setattr(CoordinateDescent, "solve", lambda *given: full(*given))
        return full

    return make


def answers(model, X):
    names = ("predict_proba", "transform", "impute", "encode", "completion_proba", "certify")
    found = {name: getattr(model, name)(X) for name in names if hasattr(model, name)}
    if "certify" in found:
        found["certify"] = found["certify"].margin
    return found


@pytest.mark.parametrize("room", [1, 7, 20, 50])
def test_with_little_room_fewer_samples_are_taken_at_once(room, small_gpu, tried):
    X, y = data(60)
    models = [
        SparseCodingClassifier(training="joint", **FAST).fit(X, y),
        SparseCodingImputer(n_steps=20, random_state=0).fit(X),
    ]
    expected = [answers(model, X) for model in models]
    full = small_gpu(room)
    for model, before in zip(models, expected, strict=True):
        for name, answer in answers(model, X).items():
            # A network may round otherwise with other numbers of rows; codes do not.
            np.testing.assert_allclose(answer, before[name], rtol=1e-12, atol=1e-12, err_msg=name)
    assert full.n_refused > 0
    assert max(full.sizes) <= room
    tried("questions to a model with too little memory", sum(map(len, expected)))


def test_what_a_full_gpu_held_is_free_before_fewer_rows_are_tried():
    held, errors = [], []

    class Holder:  # in a circle: goes only when the garbage collector comes
        def __init__(self, tensor):
            self.tensor, self.itself = tensor, self

    def work(some):
        assert [one() for one in held] == [None] * len(held)
        tensor = torch.zeros(some.stop - some.start)
        holder = Holder(tensor)
        held.append(weakref.ref(tensor))
        if len(holder.tensor) > 3:
            errors.append(torch.cuda.OutOfMemoryError("CUDA out of memory."))
            raise errors[-1]  # somebody keeps it, and with it the frame
        holder.itself = None
        return len(tensor)

    was_on = gc.isenabled()
    gc.disable()
    try:
        assert [part for _, part in in_parts(10, 10, work)] == [2] * 5
    finally:
        if was_on:
            gc.enable()
    assert len(held) == 7
    assert len(errors) == 2  # ten and five rows were too many


def test_without_any_room_the_error_says_what_to_do(tried):
    X, y = data()
    kinds = SparseCodingClassifier(**FAST), SparseCodingImputer(n_steps=20, random_state=0)
    models, fresh = [clone(kind).fit(X, y) for kind in kinds], [*kinds, TableClassifier(kinds[0])]
    before = [answers(model, X) for model in models]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CoordinateDescent, "solve", lambda *given: FullAfter(0)(*given))
        for model in models:
            with pytest.raises(torch.cuda.OutOfMemoryError, match="too little free memory.*cpu"):
                model.transform(X)
        for model in [*models, *fresh]:  # fitted ones stay as they are, others unfitted
            with pytest.raises(torch.cuda.OutOfMemoryError, match="lower batch_size.*'cpu'"):
                model.fit(X, y)
        with pytest.raises(torch.cuda.OutOfMemoryError, match="fit fewer side by side"):
            fit_side_by_side([(fresh[0], X, y)])
    for model, expected in zip(models, before, strict=True):
        for name, answer in answers(model, X).items():
            np.testing.assert_array_equal(answer, expected[name])
    for model in fresh:
        assert not [name for name in vars(model) if name.endswith("_")]
        model.fit(X, y)  # nothing stands in the way of another try
    tried("fits and questions without any memory", 8)


def test_a_rival_s_network_takes_fewer_samples_at_once():
    X, y = data()
    clf = rivals.neumiss("mlp", **FAST).fit(X, y)
    expected, forward, sizes = clf.predict_proba(X), type(clf.module_).forward, []

    def narrow(module, values, observed):
        if len(values) > 50:
            raise NO_ROOM
        sizes.append(len(values))
        return forward(module, values, observed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(clf.module_), "forward", narrow)
        np.testing.assert_allclose(clf.predict_proba(X), expected, rtol=1e-12)
    assert max(sizes) == 32  # half of half of 128
    assert sum(sizes) == len(X)


@pytest.mark.gpu
def test_a_gpu_with_a_small_budget(tried):
    X, y = data(100_000, 64)
    settings = {"n_atoms": 256, "n_epochs": 2, "random_state": 0, "device": "cuda"}
    clf = SparseCodingClassifier("mlp", **settings).fit(X, y)
    imputer = SparseCodingImputer(256, n_steps=20, random_state=0).fit(X)
    expected, completed = clf.predict_proba(X), imputer.transform(X)
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    used = torch.cuda.memory_reserved()
    try:
        # cuBLAS takes some tens of MiB for itself; the codes of all samples are 98 MiB.
        torch.cuda.set_per_process_memory_fraction((used + 160 * 2**20) / total)
        np.testing.assert_allclose(clf.predict_proba(X), expected, atol=1e-4)
        np.testing.assert_allclose(imputer.transform(X), completed, atol=1e-3)
        torch.cuda.set_per_process_memory_fraction((used + 64 * 2**20) / total)
        wide = SparseCodingClassifier("mlp", **{**settings, "n_atoms": 2048, "batch_size": 20_000})
        for model in (wide, SparseCodingImputer(2048, batch_size=20_000)):
            with pytest.raises(torch.cuda.OutOfMemoryError, match="lower batch_size.*'cpu'"):
                model.fit(X, y)
            assert not [name for name in vars(model) if name.endswith("_")]
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    again = SparseCodingClassifier("mlp", **settings).fit(X, y)
    np.testing.assert_allclose(again.predict_proba(X), expected, atol=1e-3)
    tried("questions and fits on a GPU with a small budget", 4)
