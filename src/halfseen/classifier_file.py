"""A fitted `SparseCodingClassifier` as a file: weights and plain values, no code."""

from __future__ import annotations

import os
from dataclasses import asdict

import numpy as np
import torch
from torch import Tensor

from halfseen import storage
from halfseen.background import Background
from halfseen.boundary import is_number, is_whole, plain
from halfseen.model import check_settings, make_module
from halfseen.networks import named_shapes
from halfseen.sparse_fitting import Fitted
from halfseen.tilings import Channels, Patches, Tiling, Whole, tiling_of
from halfseen.training.loop import check_history
from halfseen.training.published import Published

KIND = "classifier"
WHOLE = "a whole classifier"
_MOST_LETTERS = 2**24  # of all labels, each counted as the longest
_PLAIN = (
    "n_atoms",
    "lambda_rec",
    "lambda_l1",
    "rec_scaling",
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
            "random_state": int(random_state) if is_whole(random_state, least=0) else None,
        },
        "classes": labels_to_plain(classifier.classes_),
        "n_features_in": int(classifier.n_features_in_),
        "feature_names_in": [str(name) for name in getattr(classifier, "feature_names_in_", [])],
        "missing_values": list(getattr(classifier, "missing_values_", [])),
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
    with storage.must_hold(path, WHOLE):
        parameters = dict(tree["parameters"])
        own = parameters["network"] is None
    if own and network is None:
        raise ValueError(
            f"{str(path)!r} has a network of its own; pass the function (or module) that makes "
            f"it: load(path, network=...)."
        )
    if network is not None and not own:
        raise ValueError(
            f"{str(path)!r} has a network that is made by its name, {parameters['network']!r}; "
            f"leave out network=."
        )
    fixed = {"network", "tiling", "training", "class_weight", *_PLAIN} - {*cls._get_param_names()}
    if fixed:  # by a subclass
        raise ValueError(
            f"{cls.__name__} does not take {', '.join(sorted(fixed))}, which {str(path)!r} has; "
            f"load it by SparseCodingClassifier.load()."
        )
    with storage.must_hold(path, f"{WHOLE} for the network that was passed" if own else WHOLE):
        if own:
            parameters["network"] = network
        return _restored(cls, tree, parameters, device)


def _restored(cls, tree: dict, parameters: dict, device):
    """Return a classifier; nothing is made that the tensors in the tree are not as large as."""
    parameters["tiling"] = _tiling_from_plain(parameters["tiling"])
    parameters["training"] = _training_from_plain(parameters["training"])
    parameters["class_weight"] = _class_weight_from_plain(parameters["class_weight"])
    classifier = cls(**{**parameters, "device": device})
    check_settings(classifier)
    classes = _labels_from_plain(tree["classes"])
    weights = tree["weights"]
    shape = tuple(weights["completion.mean"].shape)
    if list(shape) != tree["sample_shape"] or 0 in shape or not shape:
        raise ValueError("samples of another shape than its weights are for")
    if not is_number(tree["lambda_l1"]) or not is_whole(tree["test_steps"], least=0):
        raise ValueError("lambda_l1 or test_steps is no number")
    _check_sizes(classifier, weights, shape, len(classes))
    with torch.random.fork_rng([]):  # the weights drawn here are overwritten
        module = make_module(
            classifier,
            shape,
            len(classes),
            len(weights["completion.atoms"]),
            tree["lambda_l1"],
            tree["test_steps"],
            {"float32": torch.float32, "float64": torch.float64}[tree["dtype"]],
            torch.device("cpu"),
        )
    storage.require_like(weights, module.state_dict())
    module.load_state_dict(weights)
    if not (module.standardise.scale > 0).all():
        raise ValueError("standardise.scale must be positive")
    classifier.classes_ = classes
    classifier.n_features_in_ = shape[0]
    names = tree["feature_names_in"]
    if names:
        classifier.feature_names_in_ = np.array(names, dtype=object)
    if tree["n_features_in"] != shape[0] or not (
        names == [] or (len(names) == shape[0] and all(isinstance(name, str) for name in names))
    ):
        raise ValueError(f"its features are not those of samples of shape {shape}")
    missing_values = [str(text) for text in tree.get("missing_values", [])]
    np.array(missing_values, dtype=np.float64)  # refuses what stands for no number
    background = Background(**{k: v.numpy() for k, v in tree["background"].items()})
    _check_background(background, shape)
    check_history(tree["history"])
    classifier._adopt(Fitted(module.eval(), tree["history"], background))
    if missing_values:
        classifier.missing_values_ = missing_values
    return classifier


def _check_sizes(classifier, weights: dict, shape: tuple, n_classes: int) -> None:
    """Refuse settings that ask for more, or for other things, than the weights of the file."""
    for name in ("standardise.centre", "standardise.scale"):
        _check_shape(name, weights[name], shape)
    n_tile_features = tiling_of(classifier).layout(shape).shape[1]
    atoms = weights["completion.atoms"]
    n_atoms = classifier.n_atoms or max(1, min(len(atoms), n_tile_features))
    _check_shape("completion.atoms", atoms, (n_atoms, n_tile_features))
    if isinstance(classifier.network, str):
        for name, expected in named_shapes(classifier.network, shape, n_classes).items():
            _check_shape(f"network.{name}", weights[f"network.{name}"], expected)


def _check_shape(name: str, tensor: Tensor, expected: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != tuple(expected):
        raise ValueError(
            f"{name} has the shape {tuple(tensor.shape)}; its settings want {tuple(expected)}"
        )


def _check_background(found: Background, shape: tuple[int, ...]) -> None:
    for values in (found.low, found.high, found.completion_error):
        if values.shape != shape or values.dtype.kind != "f" or not np.isfinite(values).all():
            raise ValueError(f"ranges and errors of features must be {shape} finite numbers")
    if (found.low > found.high).any() or (found.completion_error < 0).any():
        raise ValueError("ranges or errors of features are negative")


def _test_steps(completion) -> int:
    return getattr(completion.solver, "n_steps", None) or 0


def _tiling_to_plain(tiling: Tiling | None):
    if tiling is None:
        return None
    if not isinstance(tiling, Whole | Channels | Patches):
        raise ValueError(
            f"{tiling!r} cannot be saved: only Whole, Channels and Patches have a form in the file."
        )
    sizes = {name: list(extents) for name, extents in asdict(tiling).items()}
    return {"name": type(tiling).__name__, **sizes}


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
    labels = labels_to_plain(np.array(list(class_weight)))
    return {"labels": labels, "weights": [float(weight) for weight in class_weight.values()]}


def _class_weight_from_plain(plain):
    if not isinstance(plain, dict):
        return plain
    return dict(zip(_labels_from_plain(plain["labels"]).tolist(), plain["weights"], strict=True))


def labels_to_plain(labels: np.ndarray) -> dict:
    """Return labels with their dtype; text, numbers and truth values have one in the file."""
    text = labels.dtype.kind in "OU"
    if labels.dtype.kind not in "OUiufb" or (
        labels.dtype.kind == "O" and not all(isinstance(label, str) for label in labels)
    ):
        raise ValueError(
            f"labels of dtype {labels.dtype} cannot be saved; use text, numbers or booleans."
        )
    if labels.dtype.kind == "U":
        _check_room(labels.tolist())
    return {
        "dtype": "object" if labels.dtype.kind == "O" else labels.dtype.str,
        "values": [str(label) for label in labels] if text else labels.tolist(),
    }


def _labels_from_plain(plain: dict) -> np.ndarray:
    dtype, values = plain["dtype"], plain["values"]
    kind = "O" if dtype == "object" else np.dtype(str(dtype)).kind
    if kind not in "OUiufb":
        raise TypeError(f"labels of dtype {dtype}")
    wanted = {"O": str, "U": str, "b": bool, "f": float}.get(kind, int)
    if not values or not all(type(value) is wanted for value in values):
        raise TypeError(f"labels that are not of dtype {dtype}")
    if len(set(values)) < len(values):
        raise ValueError("a label is there twice")
    if kind == "U":
        _check_room(values)
        dtype = str  # as wide as its longest label
    return np.array(values, dtype=dtype)


def _check_room(labels: list[str]) -> None:
    """Refuse labels of which an array, all as wide as the longest, would be very large."""
    if len(labels) * max(map(len, labels)) > _MOST_LETTERS:
        raise ValueError(
            f"{len(labels)} labels, the longest of {max(map(len, labels))} letters, are too much "
            f"text for a file; use shorter ones."
        )
