"""A fitted `SparseCodingClassifier` as a file: weights and plain values, no code."""

from __future__ import annotations

import os
from dataclasses import asdict

import numpy as np
import torch

from halfseen import storage
from halfseen.background import Background
from halfseen.boundary import plain
from halfseen.sparse_fitting import Fitted, make_module
from halfseen.tilings import Channels, Patches, Tiling, Whole
from halfseen.training.published import Published

KIND = "classifier"
_PLAIN = (
    "n_atoms",
    "lambda_rec",
    "lambda_l1",
    "label_weight",
    "network_input",
    "hide",
    "n_epochs",
    "batch_size",
    "learning_rate",
    "weight_decay",
    "validation_fraction",
    "verbose",
)


def save(classifier, path: str | os.PathLike) -> None:
    """Write a fitted classifier to a file."""
    storage.write(path, KIND, to_tree(classifier))


def to_tree(classifier) -> dict:
    """Return a fitted classifier as a tree of tensors and plain values."""
    module = classifier.module_
    given = classifier._fit_parameters
    random_state = given["random_state"]
    return {
        "parameters": {
            **{name: plain(given[name]) for name in _PLAIN},
            "network": given["network"] if isinstance(given["network"], str) else None,
            "tiling": _tiling_to_plain(given["tiling"]),
            "training": _training_to_plain(given["training"]),
            "class_weight": _class_weight_to_plain(given["class_weight"]),
            "random_state": int(random_state) if _is_whole(random_state) else None,
        },
        "classes": _labels_to_plain(classifier.classes_),
        "n_features_in": int(classifier.n_features_in_),
        "feature_names_in": [str(name) for name in getattr(classifier, "feature_names_in_", [])],
        "sample_shape": list(module.completion.sample_shape),
        "lambda_l1": float(module.completion.lambda_l1),
        "dtype": str(module.completion.atoms.dtype).removeprefix("torch."),
        "test_steps": _test_steps(module.completion),
        "history": classifier.history_,
        "background": {
            "low": torch.from_numpy(classifier.feature_range_[0]),
            "high": torch.from_numpy(classifier.feature_range_[1]),
            "completion_error": torch.from_numpy(classifier.completion_error_),
        },
        "weights": module.state_dict(),
    }


def load(cls, path: str | os.PathLike, network, device):
    """Return a classifier of class `cls` from a file that `save` wrote."""
    return from_tree(cls, storage.read(path, KIND), path, network, device)


def from_tree(cls, tree: dict, path: str | os.PathLike, network, device):
    """Return a classifier of class `cls` from a tree that `to_tree` made, read from `path`."""
    try:
        parameters = dict(tree["parameters"])
        parameters["tiling"] = _tiling_from_plain(parameters["tiling"])
        parameters["training"] = _training_from_plain(parameters["training"])
        parameters["class_weight"] = _class_weight_from_plain(parameters["class_weight"])
        if parameters["network"] is None:
            if network is None:
                raise ValueError(
                    f"{str(path)!r} has a network of its own; pass the function (or module) that "
                    f"makes it: load(path, network=...)."
                )
            parameters["network"] = network
        classifier = cls(**{**parameters, "device": device})
        classes = _labels_from_plain(tree["classes"])
        with torch.random.fork_rng([]):  # the weights drawn here are overwritten
            module = make_module(
                classifier,
                tuple(tree["sample_shape"]),
                len(classes),
                tree["lambda_l1"],
                tree["test_steps"],
                {"float32": torch.float32, "float64": torch.float64}[tree["dtype"]],
                torch.device("cpu"),
            )
        module.load_state_dict(tree["weights"])
        classifier.classes_ = classes
        classifier.n_features_in_ = tree["n_features_in"]
        if tree["feature_names_in"]:
            classifier.feature_names_in_ = np.array(tree["feature_names_in"], dtype=object)
        background = Background(**{k: v.numpy() for k, v in tree["background"].items()})
        return classifier._adopt(Fitted(module.eval(), tree["history"], background))
    except (KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"{str(path)!r} does not hold a whole classifier: {error}") from error


def _test_steps(completion) -> int:
    return getattr(completion.solver, "n_steps", None) or 0


def _is_whole(value) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _tiling_to_plain(tiling: Tiling | None):
    if tiling is None:
        return None
    if not isinstance(tiling, Whole | Channels | Patches):
        raise ValueError(
            f"{tiling!r} cannot be saved: only Whole, Channels and Patches have a form in the file."
        )
    return {"name": type(tiling).__name__, **asdict(tiling)}


def _tiling_from_plain(plain) -> Tiling | None:
    if plain is None:
        return None
    settings = {key: tuple(value) for key, value in plain.items() if key != "name"}
    return {"Whole": Whole, "Channels": Channels, "Patches": Patches}[plain["name"]](**settings)


def _training_to_plain(training: str | Published):
    if isinstance(training, str):
        return training
    return {name: plain(value) for name, value in asdict(training).items()}


def _training_from_plain(plain) -> str | Published:
    return plain if isinstance(plain, str) else Published(**plain)


def _class_weight_to_plain(class_weight):
    if not isinstance(class_weight, dict):
        return class_weight
    labels = _labels_to_plain(np.array(list(class_weight)))
    return {"labels": labels, "weights": [float(weight) for weight in class_weight.values()]}


def _class_weight_from_plain(plain):
    if not isinstance(plain, dict):
        return plain
    return dict(zip(_labels_from_plain(plain["labels"]).tolist(), plain["weights"], strict=True))


def _labels_to_plain(labels: np.ndarray) -> dict:
    """Return labels with their dtype; text, numbers and truth values have one in the file."""
    text = labels.dtype.kind in "OU"
    if labels.dtype.kind not in "OUiufb" or (
        labels.dtype.kind == "O" and not all(isinstance(label, str) for label in labels)
    ):
        raise ValueError(
            f"labels of dtype {labels.dtype} cannot be saved; use text, numbers or booleans."
        )
    return {
        "dtype": "object" if labels.dtype.kind == "O" else labels.dtype.str,
        "values": [str(label) for label in labels] if text else labels.tolist(),
    }


def _labels_from_plain(plain: dict) -> np.ndarray:
    dtype = plain["dtype"]
    if dtype != "object" and np.dtype(dtype).kind not in "Uiufb":
        raise TypeError(f"labels of dtype {dtype}")
    return np.array(plain["values"], dtype=dtype)
