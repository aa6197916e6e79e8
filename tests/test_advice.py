"""Advice in words: it names the better method, and does not claim more than the test says."""

import numpy as np
import pandas as pd
import pytest

from halfseen.advice import advise


def comparison(accuracies, p):
    names = list(accuracies)
    return pd.DataFrame(
        {
            "method": names,
            "accuracy": list(accuracies.values()),
            "accuracy_sem": 0.01,
            "p_value": [np.nan, *([p] * (len(names) - 1))],
            "fit_seconds": [2.0 + place for place in range(len(names))],
            "n": 5,
        }
    )


@pytest.mark.parametrize(
    ("accuracies", "p", "begins"),
    [
        ({"boosting": 0.9, "halfseen": 0.8}, 0.01, "Use boosting here."),
        ({"boosting": 0.9, "halfseen": 0.88}, 0.1, "boosting is probably the better choice here."),
        ({"boosting": 0.9, "halfseen": 0.895}, 0.6, "These data cannot tell: boosting is right in"),
        ({"halfseen": 0.9, "boosting": 0.8}, 0.0001, "Use halfseen here."),
        ({"halfseen": 0.9, "boosting": 0.88}, 0.1, "halfseen is probably the better choice here."),
        ({"halfseen": 0.9, "boosting": 0.895}, 0.6, "halfseen is ahead, but not surely."),
        ({"halfseen": 0.9978, "boosting": 0.9976}, 1.0, "These data cannot tell: halfseen and boo"),
        ({"halfseen": 0.9, "boosting": 0.88}, np.nan, "halfseen is probably the better choice"),
        ({"boosting": 0.9, "halfseen": 0.88}, np.nan, "boosting is probably the better choice"),
        ({"boosting": 0.505, "halfseen": 0.5}, 0.01, "No method is clearly better than guessing"),
        ({"halfseen": 0.9}, 0.5, "halfseen is right in 90.0%."),
    ],
)
def test_advice(accuracies, p, begins):
    text = advise(comparison(accuracies, p), "halfseen", most_common=0.5, n_rows=400)
    assert text.startswith(begins)
    if p < 0.05 and "Use" in text:
        assert "p < 0.001" in text or "p = 0.01" in text


def test_advice_gives_the_difference_in_points():
    text = advise(comparison({"boosting": 0.9, "halfseen": 0.8}, 0.01), "halfseen", 0.5, 400)
    assert "boosting is right in 90.0%, halfseen in 80.0%: 10.0 points less" in text


def test_noise_is_called_guessing():
    random = np.random.default_rng(0)
    wrong = 0
    for _ in range(200):
        right = random.random((6, 5, 30)) < 0.5  # methods, folds, rows of each: all of them guess
        accuracy = right.mean(2)
        order = np.argsort(-accuracy.mean(1))
        table = pd.DataFrame(
            {
                "method": ["halfseen", *"abcde"],
                "accuracy": accuracy.mean(1)[order],
                "accuracy_sem": accuracy.std(1, ddof=1)[order] / 5**0.5,
                "p_value": 0.5, "fit_seconds": 1.0, "n": 5,
            }
        )  # fmt: skip
        wrong += not advise(table, "halfseen", 0.5, 150).startswith("No method")
    assert wrong < 20
