"""The data of the experiments: by name, complete, split into training and test."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split

from halfseen import datasets
from halfseen.datasets import ImageSet
from halfseen.masks import ampute

IMAGES = ("mnist", "fashion_mnist", "cifar10")
_SIDES = ("left", "right", "top", "bottom")
_TEST_SEED = 100_000  # masks of test samples are drawn from seeds of their own


def load(name: str, folder: Path | None, seed: int, small: bool) -> ImageSet:
    """Return a data set.

    Parameters
    ----------
    name : str
        "mnist", "fashion_mnist", "cifar10" or "digits"; or "synthetic K=4 d=0.2 P=200", drawn
        anew for every seed: K atoms of P in a sample, classes d apart.
    folder : Path or None
        Where archives are.
    seed : int
    small : bool
        Whether to take few samples.
    """
    return _loaded(name, folder, seed if name.startswith("synthetic") else 0, small)


@functools.lru_cache(maxsize=2)
def _loaded(name: str, folder: Path | None, seed: int, small: bool) -> ImageSet:
    if name.startswith("synthetic"):
        return _synthetic(name, seed, small)
    if name == "digits":
        X, y = datasets.digits()
        X, y = (X[:600], y[:600]) if small else (X, y)
        parts = train_test_split(X, y, test_size=0.25, stratify=y, random_state=0)
        return ImageSet(parts[0], parts[2], parts[1], parts[3])
    return getattr(datasets, name)(folder)


def _synthetic(name: str, seed: int, small: bool) -> ImageSet:
    sparsity, separation, n_atoms = re.findall(r"=([\d.]+)", name)
    n_train, n_test = (600, 200) if small else (10_000, 1_000)
    data = datasets.synthetic(
        n_train + n_test,
        n_atoms=int(n_atoms),
        sparsity=int(sparsity),
        separation=float(separation),
        random_state=seed,
    )
    return ImageSet(data.X[:n_train], data.y[:n_train], data.X[n_train:], data.y[n_train:])


def with_holes(X: np.ndarray, mechanism: str, rate: float, seed: int, *, test: bool) -> np.ndarray:
    """Return samples with holes.

    Parameters
    ----------
    X : ndarray of shape (n_samples, ...)
    mechanism : {"random", "half", "rectangle"}
        Entries at random; the left, right, upper or lower half of an image; or a rectangle.
    rate : float
        Share that is hidden; 0.5 for a half.
    seed : int
    test : bool
        Whether these are test samples.
    """
    seed = seed + _TEST_SEED * test
    if mechanism == "random":
        return ampute(X, "random", rate, random_state=seed)
    if mechanism == "rectangle":
        return ampute(X, "occlusion", rate, random_state=seed)
    side = np.random.default_rng(seed).integers(len(_SIDES), size=len(X))
    holes = np.array(X)
    for number, place in enumerate(_SIDES):
        some = side == number
        if some.any():
            holes[some] = ampute(X[some], "occlusion", rate, place=place, random_state=seed)
    return holes
