"""Seconds from arrays in memory to a trained model, and to predictions, on one GPU.

    python benchmarks/speed.py ROWS.jsonl --data FOLDER [--seeds 3]

MNIST, CNN4, three quarters of the training pixels hidden at random, coding first with 8×8
patches and 128 atoms, after one fit that warms up compilers and libraries. Accuracy is of the
10,000 test images, complete and with as many pixels hidden. Times are wall clock of `fit` and
`predict` with numpy arrays, and of the stages of `fit`. `--data` is the folder with mnist.npz.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from halfseen import Patches, SparseCodingClassifier, ampute
from halfseen.boundary import choose_device
from halfseen.datasets import mnist
from halfseen.sparse_fitting import distinct_data, set_up
from halfseen.team import Team

SCHEDULES = ((2, 250), (4, 500), (3, 250), (6, 250))  # epochs, batch size


def seconds_of(work: Callable[[], object]) -> tuple[object, float]:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    result = work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return result, time.perf_counter() - start


def classifier(n_epochs: int, batch_size: int, seed: int) -> SparseCodingClassifier:
    return SparseCodingClassifier(
        "cnn4",
        tiling=Patches(8, 4),
        n_atoms=128,
        training="sequential",
        n_epochs=n_epochs,
        batch_size=batch_size,
        random_state=seed,
    )


def stages(X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Return the seconds of each stage of a fit."""
    device, settings = choose_device("auto"), classifier(1, 250, 0)
    (data, _), distinct = seconds_of(
        lambda: distinct_data(settings, X, y, np.arange(10), None, device, Team())
    )
    torch.manual_seed(0)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path)
    parser.add_argument("--data", type=Path, help="folder with mnist.npz")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    X_train, y_train, X_test, y_test = mnist(arguments.data)
    X = ampute(X_train, "random", 0.75, random_state=0)
    holes = ampute(X_test, "random", 0.75, random_state=1)
    classifier(1, 250, 0).fit(X, y_train)
    lines = [{"what": name, "seconds": round(s, 4)} for name, s in stages(X, y_train).items()]
    for n_epochs, batch_size in SCHEDULES:
        for seed in range(arguments.seeds):
            clf = classifier(n_epochs, batch_size, seed)
            _, fit = seconds_of(lambda clf=clf: clf.fit(X, y_train))
            predicted, predict = seconds_of(lambda clf=clf: clf.predict(holes))
            lines.append(
                {
                    "what": f"fit, {n_epochs} epochs of batches of {batch_size}",
                    "seed": seed,
                    "seconds": round(fit, 3),
                    "predict_seconds": round(predict, 4),
                    "accuracy_complete": clf.score(X_test, y_test),
                    "accuracy_incomplete": float((predicted == y_test).mean()),
                }
            )
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    text = "".join(json.dumps({**line, "device": device}) + "\n" for line in lines)
    arguments.rows.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
