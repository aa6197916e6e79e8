"""Fitted objects that many threads and processes ask at once."""

import multiprocessing
import os
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch
from joblib import Parallel, delayed
from sklearn.datasets import load_digits

from halfseen import (
    Patches,
    SparseCodingClassifier,
    SparseCodingImputer,
    TableClassifier,
    rivals,
    storage,
)

N_THREADS = 16
N_PROCESSES = 4
QUESTIONS = (
    "predict",
    "predict_proba",
    "decision_function",
    "transform",
    "impute",
    "certify",
    "completion_proba",
    "what_to_measure",
    "encode",
)
FAST = {"n_epochs": 2, "random_state": 0}


def digits(n_samples=60):
    X, y = load_digits(return_X_y=True)
    X, y = X[y < 3][:n_samples], y[y < 3][:n_samples]
    return np.where(np.random.default_rng(0).random(X.shape) < 0.3, np.nan, X), y


def table():
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"age": random.random(60), "blood": random.choice(["A", "B"], 60)})
    return frame.mask(random.random(frame.shape) < 0.2)


@pytest.fixture(scope="module")
def fitted():
    """Return fitted objects of several kinds, and what each is asked about."""
    X, y = digits()
    images = X.reshape(-1, 1, 8, 8)
    tiles = {"tiling": Patches(4, 4), "n_atoms": 8}
    mlp = SparseCodingClassifier("mlp", **FAST)
    return {
        "logistic": (SparseCodingClassifier(**FAST).fit(X, y), X),
        "mlp": (SparseCodingClassifier("mlp", training="joint", **FAST).fit(X, y), X),
        "images": (SparseCodingClassifier("cnn4_bn", **tiles, **FAST).fit(images, y), images[:1]),
        "table": (TableClassifier(mlp).fit(table(), y), table()),
        "NeuMiss": (rivals.neumiss("mlp", **FAST).fit(X, y), X),
        "mean and indicator": (rivals.mean_and_indicator("mlp", **FAST).fit(X, y), X),
        "neighbours of a class": (rivals.class_knn_fill("mlp", 5, **FAST).fit(X, y), X),
        "imputer": (SparseCodingImputer(random_state=0, n_steps=20).fit(X), X),
    }


def answers(model, X):
    """Return all that a fitted object can be asked, as plain arrays."""
    found = {}
    for question in QUESTIONS:
        if hasattr(model, question):
            answer = getattr(model, question)(X)
            parts = vars(answer).values() if hasattr(answer, "certain") else [answer]
            parts = answer if question == "what_to_measure" else parts
            found[question] = [np.asarray(part) for part in parts]
    return found


def require_same(found, expected):
    assert found.keys() == expected.keys()
    for question, parts in expected.items():
        for one, other in zip(found[question], parts, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=question)


def torch_state():
    return {
        "threads": torch.get_num_threads(),
        "threads between operators": torch.get_num_interop_threads(),
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "dtype": torch.get_default_dtype(),
        "benchmark": torch.backends.cudnn.benchmark,
        "precision": torch.get_float32_matmul_precision(),
        "random": torch.get_rng_state().tolist(),
        "random of numpy": np.random.get_state()[1].tolist(),
    }


def test_sixteen_threads_get_the_answers_of_one(fitted, times, tried):
    filters = list(warnings.filters)
    expected = {name: answers(*pair) for name, pair in fitted.items()}
    assert warnings.filters == filters
    before, start = torch_state(), threading.Barrier(N_THREADS)

    def ask(number):
        start.wait()
        mine = torch_state()
        order = np.random.default_rng(number).permutation(list(fitted))
        for name in order:
            require_same(answers(*fitted[name]), expected[name])
        assert torch_state() == mine
        return sum(map(len, expected.values()))

    for _ in range(times(1, 5)):
        # Several threads of pandas and scikit-learn may mix up the filters, which no thread owns.
        with warnings.catch_warnings(), ThreadPoolExecutor(N_THREADS) as pool:
            tried("answers given to 16 threads at once", sum(pool.map(ask, range(N_THREADS))))
    assert torch_state() == before


def test_threads_may_fit_and_ask_at_once(fitted, tried):
    """One fits anew, others ask other objects; all is as it would be alone."""
    X, y = digits()

    def probabilities(seed):
        return (
            SparseCodingClassifier("mlp", n_epochs=2, random_state=seed).fit(X, y).predict_proba(X)
        )

    alone = [probabilities(seed) for seed in range(2)]
    expected = {name: answers(*fitted[name]) for name in ("logistic", "NeuMiss")}
    before = torch_state()

    def work(number):
        if number % 2:
            seed = number // 2 % 2
            np.testing.assert_array_equal(probabilities(seed), alone[seed])
        else:
            for name in expected:
                require_same(answers(*fitted[name]), expected[name])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert torch_state() == before
    tried("fits in threads beside each other", 4)


def by_pool(method):
    def ask(jobs, n_processes):
        context = multiprocessing.get_context(method)
        # Sums that are shared out over another number of threads round differently.
        threads = {"initializer": torch.set_num_threads, "initargs": (torch.get_num_threads(),)}
        with ProcessPoolExecutor(n_processes, mp_context=context, **threads) as pool:
            return list(pool.map(answers, *zip(*jobs, strict=True)))

    return ask


def by_joblib(backend):
    def ask(jobs, n_processes):
        parallel = Parallel(n_processes, backend=backend)
        return parallel(delayed(answers)(*job) for job in jobs)

    return ask


WAYS = {
    "fork": by_pool("fork"),
    "spawn": by_pool("spawn"),
    "joblib, loky": by_joblib("loky"),
    "joblib, multiprocessing": by_joblib("multiprocessing"),
    "joblib, threading": by_joblib("threading"),
}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("way", WAYS)
def test_processes_get_the_answers_of_one(way, fitted, times, tried):
    # Those that load everything anew are slow to start.
    n_processes = times({"spawn": 1, "joblib, loky": 0}.get(way, N_PROCESSES), N_PROCESSES)
    if n_processes == 0:
        pytest.skip("slow: only with --nightly; spawn is like it")
    expected = {name: answers(*pair) for name, pair in fitted.items()}
    names = [name for name in fitted for _ in range(2)]
    all_found = WAYS[way]([fitted[name] for name in names], n_processes)
    for name, found in zip(names, all_found, strict=True):
        require_same(found, expected[name])
    n_answers = sum(len(expected[name]) for name in names)
    tried("answers given to several processes, by fork, spawn and joblib", n_answers)


AFTER_THREADS = """
import multiprocessing
import numpy as np
import torch
import test_concurrency as here
from halfseen import SparseCodingClassifier
torch.set_num_threads(2)
(torch.ones(600, 600) @ torch.ones(600, 600)).exp()  # its threads are there now
X, y = here.digits()
clf = SparseCodingClassifier("mlp", **here.FAST).fit(X, y)
expected = here.answers(clf, X)
with multiprocessing.get_context("fork").Pool(2) as pool:
    for found in pool.starmap(here.answers, [(clf, X)] * 4):
        for question, parts in expected.items():  # sums on one thread may round otherwise
            for one, other in zip(found[question], parts, strict=True):
                np.testing.assert_allclose(one, other, atol=1e-6)
"""


def test_processes_may_split_after_work_on_several_threads():
    done = subprocess.run(
        [sys.executable, "-c", AFTER_THREADS],
        env={**os.environ, "PYTHONPATH": os.path.dirname(__file__), "OMP_NUM_THREADS": "2"},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_threads_may_write_the_same_file(fitted, tmp_path, times, tried):
    clf, X = fitted["logistic"]
    expected, path, n_writes = clf.predict_proba(X), tmp_path / "model", times(100)
    with ThreadPoolExecutor(N_THREADS) as pool:
        list(pool.map(lambda _: clf.save(path), range(n_writes)))
    assert list(tmp_path.iterdir()) == [path]
    assert (SparseCodingClassifier.load(path).predict_proba(X) == expected).all()
    tried("models written to one file by 16 threads", n_writes)


def write_and_read(path, number):
    for _ in range(25):
        storage.write(path, "thing", {"numbers": torch.full((5000,), float(number))})
        numbers = storage.read(path, "thing")["numbers"]
        assert (numbers == numbers[0]).all()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_processes_may_write_the_same_file(tmp_path, tried):
    path = tmp_path / "thing"
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(N_PROCESSES, mp_context=context) as pool:
        list(pool.map(write_and_read, [path] * N_PROCESSES, range(N_PROCESSES)))
    assert list(tmp_path.iterdir()) == [path]
    tried("files written to one place by 4 processes", 25 * N_PROCESSES)


FORK_WITHIN_TRAINING = """
import os, threading
import torch
import test_concurrency as here
from halfseen import SparseCodingClassifier
X, y = here.digits()
begun, end = threading.Event(), threading.Event()
def network(shape, n_classes):
    begun.set()
    end.wait()
    return torch.nn.Linear(64, n_classes)
training = threading.Thread(target=SparseCodingClassifier(network, **here.FAST).fit, args=(X, y))
training.start()
begun.wait()
child = os.fork()
if child == 0:
    SparseCodingClassifier(**here.FAST).fit(X, y)
    os._exit(0)
status = os.waitpid(child, 0)[1]
end.set()
training.join()
assert status == 0
"""


def test_a_process_split_off_during_a_training_can_train():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK_WITHIN_TRAINING],
        env={**os.environ, "PYTHONPATH": os.path.dirname(__file__), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
