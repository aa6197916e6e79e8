"""Classify images of which a part is covered, beside mean fill with the same network.

Each digit has a half hidden (left, right, top or bottom), or a rectangle of a quarter of its
area. What lies in the middle of such a hole has no neighbours to be guessed from.

    python examples/occluded_images.py
"""

from collections.abc import Callable

import numpy as np
from sklearn.model_selection import train_test_split

from halfseen import SparseCodingClassifier, ampute, rivals
from halfseen.datasets import digits

HALVES = ("left", "right", "top", "bottom")
N_REPEATS = 3


def hide_a_half(images: np.ndarray, seed: int) -> np.ndarray:
    which = np.random.default_rng(seed).integers(len(HALVES), size=len(images))
    occluded = images.copy()
    for number, place in enumerate(HALVES):
        some = which == number
        occluded[some] = ampute(images[some], "occlusion", 0.5, place=place)
    return occluded


def hide_a_rectangle(images: np.ndarray, seed: int) -> np.ndarray:
    return ampute(images, "occlusion", 0.25, random_state=seed)


def accuracies(occlude: Callable, seed: int) -> tuple[float, float]:
    """Return the accuracy of our method and of mean fill; split, holes and weights are drawn."""
    X, y = digits()
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=450, stratify=y, random_state=seed
    )
    train, test = occlude(X_train, seed), occlude(X_test, seed + 1000)
    settings = {"network": "mlp", "n_epochs": 15, "random_state": seed}
    ours = SparseCodingClassifier(training="joint", **settings)  # the fastest on small data
    theirs = rivals.mean_fill(**settings)
    return tuple(method.fit(train, y_train).score(test, y_test) for method in (ours, theirs))


def main() -> None:
    print(f"accuracy in {N_REPEATS} repeats, and their mean")
    for occlude in (hide_a_half, hide_a_rectangle):
        columns = zip(*(accuracies(occlude, seed) for seed in range(N_REPEATS)), strict=True)
        for name, column in zip(("halfseen", "mean fill"), columns, strict=True):
            shown = "".join(f"{accuracy:>8.1%}" for accuracy in (*column, np.mean(column)))
            print(f"{occlude.__name__.replace('_', ' '):18}{name:12}{shown}", flush=True)


if __name__ == "__main__":
    main()
