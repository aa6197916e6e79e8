"""Classify and complete images that miss half of their pixels.

Half of the pixels of scikit-learn's digits are hidden, others in each image, in training and
test alike. One fitted classifier names the digits and fills the holes; the picture shows some
test digits as they were, as they were observed, and as they were completed.

    python examples/images_with_random_holes.py [PICTURE]
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split

from halfseen import SparseCodingClassifier, ampute, plots
from halfseen.datasets import digits


def root_mean_square(difference: np.ndarray) -> float:
    return float(np.sqrt(np.square(difference).mean()))


def main(picture: Path) -> None:
    X, y = digits()  # images of shape (1, 8, 8), from 0 to 1
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=450, stratify=y, random_state=0
    )
    train = ampute(X_train, "random", 0.5, random_state=0)
    test = ampute(X_test, "random", 0.5, random_state=1)

    clf = SparseCodingClassifier("mlp", n_epochs=20, random_state=0)
    clf.fit(train, y_train)
    print(f"{len(train)} digits to learn from, {len(test)} others to classify; half is hidden")
    print(f"accuracy with holes:    {clf.score(test, y_test):.1%}")
    print(f"accuracy without holes: {clf.score(X_test, y_test):.1%}")

    hidden = np.isnan(test)
    completed = clf.impute(test)
    means = np.broadcast_to(np.nanmean(train, axis=0), test.shape)
    print("error on hidden pixels, which range from 0 to 1 (root mean square):")
    print(f"  completed: {root_mean_square((completed - X_test)[hidden]):.3f}")
    print(f"  mean fill: {root_mean_square((means - X_test)[hidden]):.3f}")

    picture.parent.mkdir(parents=True, exist_ok=True)
    figure = plots.reconstructions(clf, test, originals=X_test, n=10)
    figure.savefig(picture, dpi=120)
    print(f"picture: {picture}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo/digits.png"))
