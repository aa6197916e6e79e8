"""Hide half of every digit, learn a dictionary from what is left, complete the images.

Prints the error on the hidden pixels beside mean fill and scikit-learn's KNNImputer, and
saves a picture of some test digits. Nothing has seen the hidden pixels or the test digits
before.

    python examples/complete_digits.py [FOLDER FOR THE PICTURE]
"""

import sys
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.model_selection import train_test_split

from halfseen import SparseCodingImputer, sparse_encode

SEED = 0


def main(folder: Path) -> None:
    X = load_digits().data
    hidden = np.random.default_rng(SEED).random(X.shape) < 0.5
    incomplete = np.where(hidden, np.nan, X)
    train, test, _, truth, _, holes = train_test_split(
        incomplete, X, hidden, test_size=500, random_state=SEED
    )
    imputers = {
        "mean fill": SimpleImputer(),
        "KNNImputer (scikit-learn)": KNNImputer(),
        "SparseCodingImputer (halfseen)": SparseCodingImputer(random_state=SEED),
    }
    print("compiling the solver (the first run on a machine waits for it)", flush=True)
    sparse_encode(np.eye(2), np.eye(2), alpha=0.1)
    print(
        f"{len(train)} digits with half of their 64 pixels hidden; {len(test)} more to complete\n"
    )
    print(f"{'':32}{'error on hidden pixels':>24}{'relative':>10}{'seconds':>9}")
    baseline = None
    for name, imputer in imputers.items():
        start = time.perf_counter()
        completed = imputer.fit(train).transform(test)
        seconds = time.perf_counter() - start
        error = np.sqrt(np.square(completed - truth)[holes].mean())
        baseline = baseline or error
        print(f"{name:32}{error:>18.2f} of 16{error / baseline:>10.2f}{seconds:>9.1f}")
    folder.mkdir(parents=True, exist_ok=True)
    print(f"\npicture: {draw(truth, test, completed, folder / 'digits.png')}")


def draw(truth: np.ndarray, test: np.ndarray, completed: np.ndarray, path: Path) -> Path:
    """Save original, observed and completed images of the first test digits."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = {"original": truth, "observed": test, "completed": np.clip(completed, 0, 16)}
    n_shown = 12
    figure, axes = plt.subplots(
        len(rows), n_shown, figsize=(n_shown, 1.08 * len(rows)), layout="constrained"
    )
    colours = plt.get_cmap("gray_r").with_extremes(bad="#f2c14e")
    for line, (name, images) in zip(axes, rows.items(), strict=True):
        for axis, image in zip(line, images, strict=False):
            axis.imshow(image.reshape(8, 8), cmap=colours, vmin=0, vmax=16)
            axis.set(xticks=[], yticks=[])
        line[0].set_ylabel(name)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
