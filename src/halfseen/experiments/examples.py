"""The paper's pictures: original, observed, reconstructed and completed images, and atoms."""

from __future__ import annotations

import base64

import numpy as np

from halfseen.experiments.classifying import prepared
from halfseen.experiments.data import load, with_holes
from halfseen.experiments.methods import settings_of
from halfseen.experiments.rows import cell
from halfseen.experiments.runner import Context

SETS = (("mnist", "cnn4"), ("fashion_mnist", "cnn4_bn"), ("cifar10", "resnet18"))
_N_IMAGES, _N_ATOMS = 8, 8


def cells(seeds: int, small: bool) -> list[dict]:
    """Return the cells; pictures need one seed only."""
    sets = (("digits", "cnn4"),) if small else SETS
    found = []
    for dataset, network in sets:
        for mechanism, rate in (("random", 0.75), ("rectangle", 0.5)):
            if dataset != "cifar10" or mechanism == "random":
                found += [
                    cell(dataset, mechanism, rate, method, network, 0)
                    for method in ("Best", "Simult.")
                ]
    return found


def run(cell: dict, context: Context) -> dict:
    """Return a few test images as bytes: original, observed, reconstructed, completed."""
    data = load(cell["dataset"], context.folder, 0, context.small)
    mechanism, rate = cell["mechanism"], cell["rate"]
    clf, *training = prepared(cell, context)
    clf.fit(*training)
    _, first = np.unique(data.y_test, return_index=True)  # of every class
    originals = data.X_test[first[:_N_IMAGES]]
    holes = with_holes(originals, mechanism, rate, 0, test=True)
    pictures = {
        "original": originals,
        "observed": holes,
        "reconstructed": clf.inverse_transform(clf.transform(holes)),
        "completed": clf.impute(holes),
    }
    atoms = clf.module_.completion.dictionary.detach().cpu().numpy()[:_N_ATOMS]
    return {
        "settings": settings_of(clf),
        "labels": data.y_test[first[:_N_IMAGES]].tolist(),
        "predicted": clf.predict(holes).tolist(),
        "pictures": {name: packed(values) for name, values in pictures.items()},
        "atoms": packed(atoms / np.abs(atoms).max() / 2 + 0.5),
    }


def packed(values: np.ndarray) -> dict:
    """Return numbers from 0 to 1 as bytes from 1 to 255 in text; 0 is a hole."""
    levels = np.where(np.isnan(values), 0, 1 + 254 * np.clip(np.nan_to_num(values), 0, 1))
    data = np.rint(levels).astype(np.uint8)
    return {"shape": list(data.shape), "bytes": base64.b64encode(data.tobytes()).decode()}


def unpacked(stored: dict) -> np.ndarray:
    """Return what `packed` was given; holes are NaN."""
    data = np.frombuffer(base64.b64decode(stored["bytes"]), np.uint8).reshape(stored["shape"])
    return np.where(data == 0, np.nan, (data.astype(float) - 1) / 254)
