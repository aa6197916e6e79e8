"""Data to try things on: embedded digits, the paper's synthetic data, image sets, tables.

Nothing is shuffled: samples come in the order of their source, and image sets with their
standard split. Images are float32 of shape (n, channels, height, width), from 0 (black) to 1.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.error import URLError

import numpy as np

from halfseen.archives import DAMAGE, read_arrays
from halfseen.boundary import is_number, is_whole, seed_from
from halfseen.table_files import read_frame, split_target

if TYPE_CHECKING:
    import pandas as pd

_KEYS = ("x_train", "y_train", "x_test", "y_test")


class ImageSet(NamedTuple):
    """Images and labels with their standard split."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


class Synthetic(NamedTuple):
    """Sparse sums of atoms on two sides of a hyperplane.

    Attributes
    ----------
    X : ndarray of shape (n_samples, n_features)
        ``codes @ dictionary``.
    y : ndarray of shape (n_samples,)
        1 where ``X @ weights + bias > 0``, else 0.
    codes : ndarray of shape (n_samples, n_atoms)
    dictionary : ndarray of shape (n_atoms, n_features)
        Rows have norm 1.
    weights : ndarray of shape (n_features,)
        Of norm 1.
    bias : float
    """

    X: np.ndarray
    y: np.ndarray
    codes: np.ndarray
    dictionary: np.ndarray
    weights: np.ndarray
    bias: float


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return scikit-learn's 1,797 digits, shape (1797, 1, 8, 8), and their labels.

    They come with scikit-learn and have no standard split. Values are divided by 16.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return (bunch.images[:, None] / 16).astype(np.float32), bunch.target


def synthetic(
    n_samples: int = 11_000,
    n_features: int = 100,
    n_atoms: int = 200,
    sparsity: int = 4,
    separation: float = 0.0,
    *,
    random_state=None,
) -> Synthetic:
    """Return the synthetic data of the paper (section 3).

    The dictionary is Gaussian with atoms of norm 1. Each sample sums `sparsity` random atoms
    with Gaussian coefficients. A random hyperplane with a normal of norm 1 divides the
    classes; its bias, on which the paper is silent, is such that they are equally large (the
    authors' code takes the median as well). Samples closer to the hyperplane than
    `separation` are discarded and drawn anew. The paper trains on the first 10,000 of 11,000
    and tests on the others, with sparsity 4 and 32 and separation 0 and 0.2.

    Parameters
    ----------
    n_samples, n_features, n_atoms : int
    sparsity : int
        Atoms in a sample, K.
    separation : float
        Least distance to the hyperplane, d.
    random_state : int, RandomState or None

    Returns
    -------
    data : Synthetic

    Examples
    --------
    >>> from halfseen.datasets import synthetic
    >>> X, y, codes, dictionary, weights, bias = synthetic(50, random_state=0)
    >>> X.shape, dictionary.shape
    ((50, 100), (200, 100))
    """
    for name, value in {
        "n_samples": n_samples,
        "n_features": n_features,
        "n_atoms": n_atoms,
    }.items():
        if not is_whole(value):
            raise ValueError(f"{name} must be a whole number ≥ 1; got {value!r}.")
    if not is_whole(sparsity) or sparsity > n_atoms:
        raise ValueError(f"sparsity must be from 1 to n_atoms={n_atoms}; got {sparsity!r}.")
    random = np.random.default_rng(seed_from(random_state))
    dictionary = random.standard_normal((n_atoms, n_features))
    dictionary /= np.linalg.norm(dictionary, axis=1, keepdims=True)
    weights = random.standard_normal(n_features)
    weights /= np.linalg.norm(weights)
    codes = _sparse_codes(n_samples, n_atoms, sparsity, random)
    projections = dictionary @ weights
    bias = -float(np.median(codes @ projections))
    # A coordinate of a sample has about the deviation √(sparsity / n_features).
    spread = float(np.sqrt(sparsity * np.square(projections).mean()))
    if not is_number(separation) or not 0 <= separation <= 3 * spread:
        raise ValueError(
            f"separation must be from 0 to {3 * spread:.3g}, three deviations of the distance to "
            f"the hyperplane for this data; got {separation!r}."
        )
    close = np.arange(n_samples)
    while len(close := close[np.abs(codes[close] @ projections + bias) < separation]):
        codes[close] = _sparse_codes(len(close), n_atoms, sparsity, random)
    X = codes @ dictionary
    return Synthetic(X, (X @ weights + bias > 0).astype(int), codes, dictionary, weights, bias)


def _sparse_codes(n: int, n_atoms: int, sparsity: int, random: np.random.Generator) -> np.ndarray:
    used = random.random((n, n_atoms)).argpartition(sparsity - 1, axis=1)[:, :sparsity]
    codes = np.zeros((n, n_atoms))
    np.put_along_axis(codes, used, random.standard_normal((n, sparsity)), axis=1)
    return codes


def mnist(folder: str | os.PathLike | None = None) -> ImageSet:
    """Return MNIST: 60,000 + 10,000 images of 10 handwritten digits, shape (n, 1, 28, 28).

    Parameters
    ----------
    folder : path, optional
        Where ``mnist.npz`` is: an archive with the arrays x_train, y_train, x_test and
        y_test, images as unsigned bytes. By default the folder that the environment variable
        HALFSEEN_DATA names, then ``~/.cache/halfseen``. Without an archive the data come
        from OpenML through scikit-learn, which keeps them in its own cache.
    """
    return _image_set("mnist", "mnist_784", (28, 28), 60_000, folder)


def fashion_mnist(folder: str | os.PathLike | None = None) -> ImageSet:
    """Return Fashion-MNIST: 60,000 + 10,000 images of 10 garments, shape (n, 1, 28, 28).

    Parameters
    ----------
    folder : path, optional
        Where ``fashion_mnist.npz`` is, see `mnist`.
    """
    return _image_set("fashion_mnist", "Fashion-MNIST", (28, 28), 60_000, folder)


def cifar10(folder: str | os.PathLike | None = None) -> ImageSet:
    """Return CIFAR-10: 50,000 + 10,000 colour images of 10 things, shape (n, 3, 32, 32).

    Parameters
    ----------
    folder : path, optional
        Where ``cifar10.npz`` is, images as (n, 32, 32, 3); see `mnist`.
    """
    return _image_set("cifar10", "CIFAR_10", (32, 32, 3), 50_000, folder)


def table(path: str | os.PathLike, target: str) -> tuple[pd.DataFrame, np.ndarray]:
    """Return a table of numbers and the column of labels, from a CSV, TSV or Parquet file.

    Parameters
    ----------
    path : path
        Ends in .csv, .tsv or .parquet. Empty fields and the usual spellings of a missing value
        (NA, N/A, NaN, NaT, null, None, ?, -, .) are holes.
    target : str
        Name of the column of labels.

    Returns
    -------
    X : DataFrame
        All other columns, in their order.
    y : ndarray
    """
    X, y = split_target(read_frame(path, target), target, path)
    return X.apply(_numbers, source=Path(path)), y


def _numbers(column: pd.Series, source: Path) -> pd.Series:
    """Return a column as floats; text is fine where it reads as a number, True or False."""
    import pandas as pd

    if not pd.api.types.is_numeric_dtype(column):
        text = column.astype("string").str.strip().replace({"True": "1", "False": "0"})
        numbers = pd.to_numeric(text, errors="coerce")
        wrong = text.notna() & numbers.isna()
        if wrong.any():
            raise ValueError(
                f"column {column.name!r} of {str(source)!r} is not numeric, for example "
                f"{text[wrong].iloc[0]!r}; encode it first, for example by "
                f"halfseen.TableEncoder."
            )
        column = numbers
    return column.astype(np.float64)


def _image_set(
    name: str, openml_name: str, image_shape: tuple[int, ...], n_train: int, folder
) -> ImageSet:
    path = _find(f"{name}.npz", folder)
    if path is not None:
        arrays = _read_archive(path, image_shape)
    else:
        arrays = _from_openml(name, openml_name, image_shape, n_train)
    x_train, y_train, x_test, y_test = arrays
    return ImageSet(_scaled(x_train), y_train, _scaled(x_test), y_test)


def _find(file: str, folder: str | os.PathLike | None) -> Path | None:
    if folder is not None:
        path = Path(folder) / file
        if not path.is_file():
            raise FileNotFoundError(f"{str(path)!r} does not exist. {_how_to_get(file)}")
        return path
    folders = [Path.home() / ".cache" / "halfseen"]
    if os.environ.get("HALFSEEN_DATA"):
        folders.insert(0, Path(os.environ["HALFSEEN_DATA"]))
    return next((place / file for place in folders if (place / file).is_file()), None)


def _how_to_get(file: str) -> str:
    return (
        f"Put an archive {file} with the arrays {', '.join(_KEYS)} (images as unsigned bytes) "
        f"there, into a folder that the environment variable HALFSEEN_DATA names or into "
        f"~/.cache/halfseen; with a network connection and no folder given it comes from OpenML."
    )


def _read_archive(path: Path, image_shape: tuple[int, ...]) -> list[np.ndarray]:
    try:
        found, _ = read_arrays(path, _KEYS)
        missing = [key for key in _KEYS if key not in found]
        if missing:
            raise ValueError(f"it lacks {', '.join(missing)}")
    except DAMAGE as error:
        raise ValueError(
            f"{str(path)!r} is not an archive of images: {error}. {_how_to_get(path.name)}"
        ) from error
    arrays = [found[key] for key in _KEYS]
    for place, key in ((0, "x_train"), (2, "x_test")):
        x, y = arrays[place], arrays[place + 1]
        images = x.dtype == np.uint8 and x.shape[1:] == image_shape
        if not images or y.shape != x.shape[:1] or y.dtype.kind not in "iu":
            raise ValueError(
                f"{str(path)!r}: {key} must be unsigned bytes of shape (n, "
                f"{', '.join(map(str, image_shape))}) with n whole numbers as labels; got "
                f"{x.dtype} of shape {x.shape} with labels {y.dtype} of shape {y.shape}."
            )
    return [arrays[0], arrays[1].astype(np.int64), arrays[2], arrays[3].astype(np.int64)]


def _from_openml(name: str, openml_name: str, image_shape: tuple[int, ...], n_train: int) -> list:
    from sklearn.datasets import fetch_openml

    try:
        bunch = fetch_openml(openml_name, version=1, as_frame=False)
    except (URLError, OSError, ValueError) as error:  # OpenML's own errors are ValueErrors
        raise FileNotFoundError(
            f"there is no archive of {name}, and OpenML cannot be reached ({error}). "
            f"{_how_to_get(f'{name}.npz')}"
        ) from error
    if image_shape == (32, 32, 3):  # rows of all red, then all green, then all blue values
        images = bunch.data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).astype(np.uint8)
    else:
        images = bunch.data.reshape(-1, *image_shape).astype(np.uint8)
    labels = bunch.target.astype(np.int64)
    return [images[:n_train], labels[:n_train], images[n_train:], labels[n_train:]]


def _scaled(images: np.ndarray) -> np.ndarray:
    channels = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(channels, dtype=np.float32) / 255
