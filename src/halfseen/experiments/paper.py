"""The numbers that the paper prints (Caiafa et al. 2021, tables 1 and 2), in percent.

By (dataset, network, mechanism, rate) and method; each value is (tested complete, tested with
holes), None where nothing is printed. The paper does not say what shape its occlusions have: the
printed values stand beside both shapes that were tried.
"""

from __future__ import annotations

from halfseen.experiments.methods import ALGORITHMS, RIVALS

Place = tuple[str, str, str, float]
Pair = tuple[float | None, float | None]

_TABLE1: dict[Place, tuple[float, ...]] = {
    ("mnist", "cnn4", "random", 0.75): (84.86, 83.79, 88.16, 87.94, 87.03, 86.52, 96.36),
    ("mnist", "cnn4", "random", 0.5): (90.13, 88.55, 91.36, 91.11, 90.87, 90.82, 97.57),
    ("cifar10", "resnet18", "random", 0.75): (32.22, 21.30, 22.84, 25.67, 26.52, 26.01, 12.10),
    ("cifar10", "resnet18", "random", 0.5): (46.37, 17.90, 30.94, 29.68, 30.01, 26.23, 14.02),
}
_SIMULTANEOUS: dict[Place, Pair] = {
    ("mnist", "logistic", "random", 0.75): (91.94, 90.45),
    ("mnist", "logistic", "random", 0.5): (93.44, 93.68),
    ("mnist", "logistic", "random", 0.25): (94.43, 94.14),
    ("mnist", "cnn4", "random", 0.75): (98.09, 94.62),
    ("mnist", "cnn4", "random", 0.5): (98.23, 98.34),
    ("mnist", "cnn4", "random", 0.25): (98.95, 98.94),
    ("mnist", "cnn4", "half", 0.5): (91.37, 88.55),
    ("mnist", "cnn4", "rectangle", 0.5): (91.37, 88.55),
    ("fashion_mnist", "cnn4_bn", "random", 0.75): (86.39, 83.71),
    ("fashion_mnist", "cnn4_bn", "random", 0.5): (87.11, 86.09),
    ("fashion_mnist", "cnn4_bn", "random", 0.25): (87.04, 86.38),
    ("fashion_mnist", "cnn4_bn", "half", 0.5): (82.47, 81.73),
    ("fashion_mnist", "cnn4_bn", "rectangle", 0.5): (82.47, 81.73),
    ("cifar10", "resnet18", "random", 0.75): (54.81, 53.82),
    ("cifar10", "resnet18", "random", 0.5): (62.50, 61.08),
    ("cifar10", "resnet18", "random", 0.25): (63.87, 63.73),
}
_COMPLETE: dict[Place, dict[str, Pair]] = {
    ("mnist", "logistic", "random", 0.0): {
        "dropout 0": (91.95, None), "dropout 0.1": (91.97, None), "dropout 0.25": (92.01, None),
    },
    ("mnist", "cnn4", "random", 0.0): {"dropout 0": (98.95, None)},
    ("fashion_mnist", "cnn4_bn", "random", 0.0): {"dropout 0": (90.76, None)},
    ("cifar10", "resnet18", "random", 0.0): {"dropout 0": (80.13, None)},
}  # fmt: skip


def printed(place: Place, method: str) -> Pair:
    """Return what the paper prints; "Best" stands beside its own method."""
    if place in _COMPLETE:
        return _COMPLETE[place].get(method, (None, None))
    if method in ("Simult.", "Best", *ALGORITHMS):
        return _SIMULTANEOUS.get(place, (None, None))
    if method in RIVALS and place in _TABLE1:
        return _TABLE1[place][RIVALS.index(method)], None
    return None, None
