"""Seconds from arrays in memory to a trained model, and to predictions.

    python benchmarks/speed.py mnist cifar10 ways together --data FOLDER --rows ROWS.jsonl
    python benchmarks/speed.py digits                      # two CPU cores, a quarter of a minute

Three quarters of the training pixels are hidden at random. Times are wall clock of `fit` and
`predict` with numpy arrays after one fit that warms up compilers and libraries; accuracy is of
the test images, complete and with as many pixels hidden.

mnist     CNN4, coding first with 8×8 patches and 128 atoms; also the stages of a fit
cifar10   ResNet-18, coding first with 8×8×3 patches and 256 atoms, bfloat16 and float32
ways      an epoch of the other ways of training, steps recorded and as written
together  six seeds one after the other, and side by side
digits    the defaults on scikit-learn's digits with half the pixels hidden, and one row

`--data` is the folder with mnist.npz and cifar10.npz.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

from halfseen import Patches, SparseCodingClassifier, ampute, fit_side_by_side, fitting
from halfseen.boundary import choose_device
from halfseen.datasets import cifar10, mnist
from halfseen.learned_data import distinct_data
from halfseen.sparse_fitting import set_up
from halfseen.team import Team
from halfseen.training.trainer import Trainer

# alpha = 0.05, which completed hidden pixels of 300 training images best (0.5, the default: 2.7
# times the squared error)
CIFAR = {
    "network": "resnet18", "tiling": Patches(8, 4), "n_atoms": 256, "training": "sequential",
    "lambda_l1": 77.0, "n_epochs": 12, "batch_size": 250,
}  # fmt: skip
MNIST = {
    "network": "cnn4", "tiling": Patches(8, 4), "n_atoms": 128, "training": "sequential",
    "n_epochs": 6, "batch_size": 250,
}  # fmt: skip


def seconds_of(work: Callable[[], object]) -> tuple[object, float]:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    result = work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return result, time.perf_counter() - start


class Images:
    """An image set with and without holes."""

    def __init__(self, loaded: tuple) -> None:
        self.X_train, self.y_train, self.X_test, self.y_test = loaded
        self.X = ampute(self.X_train, "random", 0.75, random_state=0)
        self.holes = ampute(self.X_test, "random", 0.75, random_state=1)

    def measured(self, what: str, settings: dict, seed: int) -> dict:
        """Fit, predict, and say how long and how well."""
        clf = SparseCodingClassifier(**settings, random_state=seed)
        _, fit = seconds_of(lambda: clf.fit(self.X, self.y_train))
        predicted, predict = seconds_of(lambda: clf.predict(self.holes))
        return {
            "what": what,
            "seed": seed,
            "n_epochs": settings["n_epochs"],
            "seconds": round(fit, 3),
            "epoch_seconds": round(clf.history_[-1]["seconds"], 3),
            "predict_seconds": round(predict, 4),
            "accuracy_complete": clf.score(self.X_test, self.y_test),
            "accuracy_incomplete": float((predicted == self.y_test).mean()),
        }


def stages(images: Images) -> dict[str, float]:
    """Return the seconds of each stage of a fit."""
    device, settings = choose_device("auto"), SparseCodingClassifier(**MNIST)
    (data, _), distinct = seconds_of(
        lambda: distinct_data(
            settings, images.X, images.y_train, np.arange(10), None, device, Team()
        )
    )
    with fitting.training_mode(0, device):
        setup, scaling = seconds_of(lambda: set_up(settings, data, device, 0))
        _, dictionary = seconds_of(setup.prepare)
        _, coding = seconds_of(setup.trainer.start)
        setup.trainer.epoch()  # records its steps
        _, epoch = seconds_of(setup.trainer.epoch)
    return {
        "distinct rows": distinct,
        "scaling, transfer, model": scaling,
        "dictionary": dictionary,
        "codes of 60,000 images": coding,
        "one epoch of 240 steps": epoch,
    }


def mnist_rows(images: Images, n_seeds: int) -> Iterator[dict]:
    yield {"what": "mnist, stages", **{k: round(s, 4) for k, s in stages(images).items()}}
    for n_epochs in (3, 6):
        for seed in range(n_seeds):
            yield images.measured("mnist", {**MNIST, "n_epochs": n_epochs}, seed)


def cifar_rows(images: Images, n_seeds: int) -> Iterator[dict]:
    for seed in range(n_seeds):
        yield images.measured("cifar10 (JPEG), bfloat16", CIFAR, seed)
    kept, fitting._CONVOLUTIONAL = fitting._CONVOLUTIONAL, ()
    yield images.measured("cifar10 (JPEG), float32", CIFAR, 0)
    fitting._CONVOLUTIONAL = kept


def way_rows(images: Images, n_seeds: int) -> Iterator[dict]:
    recording = Trainer.record_steps
    for training in ("task", "joint", "sequential"):
        for recorded in (True, False):
            Trainer.record_steps = recording if recorded else lambda trainer: None
            how = "recorded" if recorded else "as written"
            settings = {**MNIST, "training": training, "n_epochs": 2}
            yield images.measured(f"{training}, {how}", settings, 0)
    Trainer.record_steps = recording


def together_rows(images: Images, n_seeds: int) -> Iterator[dict]:
    settings = {**MNIST, "n_epochs": 20}
    seeds = range(6)

    def fresh(seed):
        return SparseCodingClassifier(**settings, random_state=seed)

    alone = [
        seconds_of(lambda seed=seed: fresh(seed).fit(images.X, images.y_train))[1] for seed in seeds
    ]
    jobs = [(fresh(seed), images.X, images.y_train) for seed in seeds]
    _, together = seconds_of(lambda: fit_side_by_side(jobs))
    yield {"what": "six seeds, 20 epochs", "alone": sum(alone), "side by side": together}


def digits_rows() -> Iterator[dict]:
    X, y = load_digits(return_X_y=True)
    X = ampute(X, "random", 0.5, random_state=0)
    clf = SparseCodingClassifier(random_state=0).fit(X[:200], y[:200])
    _, fit = seconds_of(lambda: clf.fit(X, y))
    rows = [seconds_of(lambda i=i: clf.predict(X[i : i + 1]))[1] for i in range(200)]
    yield {"what": "digits, defaults", "seconds": fit, "one row": statistics.median(rows)}


def main() -> None:
    parts = {"mnist": mnist_rows, "cifar10": cifar_rows, "ways": way_rows}
    parts["together"] = together_rows
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="+", choices=[*parts, "digits"])
    parser.add_argument("--rows", type=Path, help="file that rows are appended to")
    parser.add_argument("--data", type=Path, help="folder with mnist.npz and cifar10.npz")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"

    def report(row: dict) -> None:
        line = json.dumps({**row, "device": device})
        print(line, flush=True)
        if arguments.rows is not None:
            with arguments.rows.open("a") as file:
                file.write(line + "\n")

    warm: set[str] = set()
    for part in arguments.parts:
        if part == "digits":
            for row in digits_rows():
                report(row)
            continue
        images = Images((cifar10 if part == "cifar10" else mnist)(arguments.data))
        settings = CIFAR if part == "cifar10" else MNIST
        if settings["network"] not in warm:
            SparseCodingClassifier(**{**settings, "n_epochs": 1}).fit(images.X, images.y_train)
            warm.add(settings["network"])
        for row in parts[part](images, arguments.seeds):
            report(row)


if __name__ == "__main__":
    main()
