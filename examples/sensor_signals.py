"""Classify and complete signals of several sensors, each of which drops out for a while.

The signals are made here: a body moves in one of three ways, and three sensors record it. Each
of them loses a stretch of its own, 40% of its values. Windows of 16 values through all sensors
are coded, so a sensor that is silent is completed from those that are not. The network is a
small convolutional one, written here.

    python examples/sensor_signals.py
"""

import numpy as np
from torch import nn

from halfseen import Patches, SparseCodingClassifier, ampute

N_SENSORS, LENGTH = 3, 64
PERIODS = {"walking": 20, "running": 12, "climbing": 28}


def record(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return signals of shape (n, N_SENSORS, LENGTH) and what was done."""
    random = np.random.default_rng(seed)
    activity = random.choice(list(PERIODS), n)
    period = np.array([PERIODS[name] for name in activity]) * random.uniform(0.9, 1.1, n)
    phase = random.random((n, 1)) + np.arange(N_SENSORS) / 8  # sensors lag behind each other
    turns = np.arange(LENGTH) / period[:, None, None] + phase[:, :, None]
    signals = np.sin(2 * np.pi * turns) + 0.4 * np.sin(4 * np.pi * turns)
    return signals + 0.4 * random.standard_normal(signals.shape), activity


def drop_out(signals: np.ndarray, seed: int) -> np.ndarray:
    """Return the signals with a stretch of each sensor missing."""
    sensors = [
        ampute(signals[:, sensor], "occlusion", 0.4, random_state=10 * seed + sensor)
        for sensor in range(N_SENSORS)
    ]
    return np.stack(sensors, axis=1)


def convolutional(sample_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    n_sensors, _ = sample_shape
    return nn.Sequential(
        nn.Conv1d(n_sensors, 16, kernel_size=7, padding=3),
        nn.ReLU(),
        nn.MaxPool1d(4),
        nn.Conv1d(16, 32, kernel_size=5, padding=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(32, n_classes),
    )


def main() -> None:
    (X_train, y_train), (X_test, y_test) = record(600, seed=0), record(300, seed=1)
    train, test = drop_out(X_train, seed=0), drop_out(X_test, seed=1)

    clf = SparseCodingClassifier(
        convolutional,
        tiling=Patches((16,), stride=8),
        training="sequential",
        n_epochs=20,
        random_state=0,
    )
    clf.fit(train, y_train)
    print(f"{len(train)} recordings to learn from, {len(test)} others to classify")
    print(f"accuracy with drop-outs:    {clf.score(test, y_test):.1%}")
    print(f"accuracy without drop-outs: {clf.score(X_test, y_test):.1%}")

    hidden = np.isnan(test)
    error = np.sqrt(np.square(clf.impute(test) - X_test)[hidden].mean())
    print(f"error where sensors were silent: {error:.2f}; the values deviate by", end=" ")
    print(f"{X_test[hidden].std():.2f}, of which 0.40 is noise")


if __name__ == "__main__":
    main()
