"""Hide half of every digit, in training and test, and classify: beside what people use.

python examples/classify_digits.py
"""

import time

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from halfseen import SparseCodingClassifier

SEED = 0


def main() -> None:
    X, y = load_digits(return_X_y=True)
    X = np.where(np.random.default_rng(SEED).random(X.shape) < 0.5, np.nan, X)
    train, test, y_train, y_test = train_test_split(
        X, y, test_size=450, random_state=SEED, stratify=y
    )
    logistic = LogisticRegression(C=0.01, max_iter=1000)
    classifiers = {
        "mean fill, logistic regression": make_pipeline(SimpleImputer(), logistic),
        "KNNImputer, logistic regression": make_pipeline(KNNImputer(), logistic),
        "HistGradientBoosting": HistGradientBoostingClassifier(random_state=SEED),
        "halfseen, logistic": SparseCodingClassifier(random_state=SEED, verbose=1),
        "halfseen, mlp": SparseCodingClassifier("mlp", random_state=SEED, verbose=1),
    }
    print(f"{len(train)} digits with half of their pixels hidden; {len(test)} more to classify\n")
    print(f"{'':34}{'right':>8}{'seconds':>10}")
    for name, classifier in classifiers.items():
        start = time.perf_counter()
        accuracy = classifier.fit(train, y_train).score(test, y_test)
        print(f"{name:34}{accuracy:>8.1%}{time.perf_counter() - start:>10.1f}", flush=True)


if __name__ == "__main__":
    main()
