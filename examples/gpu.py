"""Train several seeds on a GPU at the same time, or on the CPU if there is none.

fit_side_by_side trains classifiers in turns in one process, so that small ones fill a GPU
together. Each becomes what its own fit would have made of it: both are shown.

    python examples/gpu.py
"""

import time

import numpy as np
import torch
from sklearn.base import clone
from sklearn.model_selection import train_test_split

from halfseen import SparseCodingClassifier, ampute, fit_side_by_side
from halfseen.datasets import digits


def main() -> None:
    if torch.cuda.is_available():
        device = "cuda"
        print(f"computing on {torch.cuda.get_device_name()}")
    else:
        device = "cpu"
        print("there is no GPU that PyTorch can use: computing on the CPU")

    X, y = digits()
    X = ampute(X, "random", 0.5, random_state=0)
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=450, stratify=y, random_state=0
    )
    settings = {"network": "mlp", "training": "joint", "n_epochs": 10, "device": device}
    seeds = [SparseCodingClassifier(**settings, random_state=seed) for seed in range(3)]
    first = clone(seeds[0]).set_params(n_epochs=1)
    first.fit(X_train, y_train)  # compilers run at first use: that is not to be timed

    start = time.perf_counter()
    together = fit_side_by_side([(clone(clf), X_train, y_train) for clf in seeds])
    middle = time.perf_counter()
    alone = [clf.fit(X_train, y_train) for clf in seeds]
    end = time.perf_counter()

    print(f"side by side {middle - start:.1f} s, one after the other {end - middle:.1f} s")
    print(f"{'seed':>4}{'side by side':>14}{'alone':>8}   largest difference of probabilities")
    for seed, (one, other) in enumerate(zip(together, alone, strict=True)):
        accuracies = one.score(X_test, y_test), other.score(X_test, y_test)
        difference = np.abs(one.predict_proba(X_test) - other.predict_proba(X_test)).max()
        print(f"{seed:>4}{accuracies[0]:>14.1%}{accuracies[1]:>8.1%}{difference:>12.1e}")


if __name__ == "__main__":
    main()
