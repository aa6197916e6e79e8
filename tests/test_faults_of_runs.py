"""Trainings and runs of experiments that are killed at random moments."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import torch
from torch import nn

from halfseen import Patches, Published, SparseCodingClassifier, storage
from halfseen.cli import main
from halfseen.experiments import rows
from halfseen.training import loop

WATCHED = 0.3  # share of kills that wait until a file is being written
SECONDS = ("seconds", "fit_seconds")


def network_with_memory(shape, n_classes):
    """Return a network that draws numbers and counts samples while it learns."""
    layers = nn.Linear(shape[0], 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU()
    return nn.Sequential(*layers, nn.Linear(8, n_classes))


WAYS = {
    "task, validated": {"network": "mlp", "validation_fraction": 0.2},
    "joint": {"training": "joint", "label_weight": 0.2},
    "published": {"training": Published(), "label_weight": 1.0, "n_epochs": 25},
    "sequential, dropout": {"training": "sequential", "network": network_with_memory},
    "patches": {"tiling": Patches((4,), 2), "n_atoms": 4, "training": "joint", "n_epochs": 12},
}


def data():
    random = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = random.standard_normal((90, 12)) + np.eye(3).repeat(4, 1)[y]
    X[random.random(X.shape) < 0.4] = np.nan
    return X, y


def fitted(way, **options):
    settings = {"n_epochs": 6, "batch_size": 24, "random_state": 3, **WAYS[way]}
    return SparseCodingClassifier(**settings).fit(*data(), **options)


def train(way, folder, with_checkpoint=True):
    loop._WRITING_SHARE = 1.0  # so that many kills fall into writing
    options = {"checkpoint": folder / "checkpoint"} if with_checkpoint else {}
    fitted(way, **options).save(folder / "model")


def in_a_child(work, *arguments):
    """Return the number of a new process that does some work."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work(*arguments)
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    return child


def seconds_of(work, *arguments):
    """Return how long some work takes in a child."""
    start = time.perf_counter()
    assert os.waitpid(in_a_child(work, *arguments), 0)[1] == 0
    return time.perf_counter() - start


def started_apart(work, folder, n_kills):
    """Return what a function prints, in a process of its own that all is loaded into once.

    It then splits off the processes to be killed, which costs next to nothing.
    """
    call = f"here.{work.__name__}(Path({str(folder)!r}), {n_kills})"
    load = f"import torch; from pathlib import Path; import {work.__module__} as here"
    one_thread = "torch.set_num_threads(1)"  # others would not survive the split
    done = subprocess.run(
        [sys.executable, "-c", f"{load}; {one_thread}; {call}"],
        env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def environment():
    return {
        **os.environ,
        "PYTHONPATH": os.path.dirname(__file__),
        "OMP_NUM_THREADS": "1",
        "HALFSEEN_COMMIT": "none",
    }


def kill_trainings(folder, n_kills):
    total = Counter()
    for seed, way in enumerate(WAYS):
        fitted(way)  # loads what it needs
        place = folder / way
        place.mkdir()
        total.update(kill_one_way(way, place, n_kills // len(WAYS), np.random.default_rng(seed)))
    print(json.dumps(total))


def kill_one_way(way, folder, n_kills, random):
    """Kill trainings at random moments and look at what they leave."""
    seen = {"kills": 0, "while writing": 0, "resumed": 0, "finished": 0}
    undisturbed = folder / "undisturbed"
    undisturbed.mkdir()
    life = seconds_of(train, way, undisturbed, False)
    expected = storage.read(undisturbed / "model", "classifier")
    while seen["kills"] < n_kills:
        place, n_epochs, status = folder / str(seen["finished"]), 0, -1
        place.mkdir()
        while status != 0:
            seen["resumed"] += n_epochs > 0
            left_before = hidden_in(place)
            child = in_a_child(train, way, place)
            if seen["kills"] < n_kills:
                wait_for_a_moment(random, child, place, 1.2 * life)
                os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            assert status in (0, signal.SIGKILL), status
            seen["kills"] += status != 0
            left = hidden_in(place)
            assert len(left) <= (status != 0), left
            seen["while writing"] += len(left - left_before)
            before, n_epochs = n_epochs, epochs_in(place / "checkpoint")
            assert n_epochs >= before, "what was done is lost"
        assert same(storage.read(place / "model", "classifier"), expected), place
        seen["finished"] += 1
    return seen


def hidden_in(folder):
    return {name for name in os.listdir(folder) if name.startswith(".")}


def wait_for_a_moment(random, child, folder, longest):
    """Wait for some time, or until a new file appears in a folder, or the child has ended."""
    if random.random() >= WATCHED:
        time.sleep(longest * random.random())
        return
    before = set(os.listdir(folder))
    ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while set(os.listdir(folder)) <= before and os.waitid(os.P_PID, child, ended) is None:
        time.sleep(1e-4)


def epochs_in(checkpoint):
    """Return how far a training has come; whatever is on the disk must be whole."""
    return len(storage.read(checkpoint, "checkpoint")["history"]) if checkpoint.exists() else 0


def same(one, other):
    """Say whether two trees are equal bit for bit, apart from the seconds that things took."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(
            name in SECONDS or same(one[name], other[name]) for name in one
        )
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def test_a_killed_training_ends_with_the_same_bits(tmp_path, times, tried):
    seen = started_apart(kill_trainings, tmp_path, times(20, 100))
    assert seen["resumed"] > 0
    assert seen["while writing"] > 0
    tried("trainings killed at a random moment", seen["kills"])
    tried("of these while a checkpoint or model was being written", seen["while writing"])
    tried("killed trainings that went on from a checkpoint", seen["resumed"])


def reproduce(folder):
    arguments = ["--small", "--seeds", "1", "--out", str(folder), "--device", "cpu"]
    assert main(["reproduce", "tuning", *arguments]) == 0


def kill_experiments(folder, n_kills):
    """Kill runs of an experiment at random moments and look at their rows."""
    reproduce(folder / "first")  # loads what it needs
    random, seen = np.random.default_rng(0), {"kills": 0, "half lines": 0, "finished": 0}
    life = seconds_of(reproduce, folder / "undisturbed")
    expected = rows.read(folder / "undisturbed" / "small" / "tuning.jsonl")
    while seen["kills"] < n_kills:
        place, status, lines = folder / str(seen["finished"]), -1, []
        file = place / "small" / "tuning.jsonl"
        while status != 0:
            child = in_a_child(reproduce, place)
            time.sleep(1.2 * life * random.random())
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            assert status in (0, signal.SIGKILL), status
            seen["kills"] += status != 0
            before, lines = lines, finished_lines(file)
            assert lines[: len(before)] == before, "a finished row is lost or damaged"
            assert len(set(map(rows.key, rows.read(file)))) == len(lines), "a row came twice"
            if status != 0 and lines and random.random() < 0.5:
                cut = int(random.integers(1, len(lines[0]) - 1))
                with file.open("ab") as half:
                    half.write(lines[0][:cut])
                seen["half lines"] += 1
        assert same(rows.read(file), expected)
        seen["finished"] += 1
    print(json.dumps(seen))


def finished_lines(file):
    return file.read_bytes().split(b"\n")[:-1] if file.exists() else []


def test_a_killed_experiment_keeps_its_rows(tmp_path, times, tried):
    seen = started_apart(kill_experiments, tmp_path, times(4, 30))
    tried("runs of experiments killed at a random moment", seen["kills"])
    tried("half-written last rows", seen["half lines"])
