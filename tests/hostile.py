"""Files that are made to do harm, for the tests that read them."""

import copy
import json
import math
import os
import pickle
import random
import struct
import zlib

import joblib
import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from halfseen import storage

ODD = (
    None, True, -1, 0, 2**31, 2**70, -0.5, 1e-320, 1e308, math.inf, math.nan, "", "x",
    "x" * 5000, "\x1b[2J\nline", "\ud800", [], {}, [[]], [1, "a", None], {"a": {}}, [0] * 1000,
    "<U100000000", "resnet18", "published", "float32", [10**6, 10**6], [2**62],
)  # fmt: skip


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return os.mkdir, (self.marker,)


def pickled_files(folder, marker):
    """Write the same payload in every form that executes code when it is read carelessly."""
    evil = Payload(marker)
    (folder / "plain.pickle").write_bytes(pickle.dumps(evil))
    torch.save({"weights": evil}, folder / "torch.pt")
    torch.save([evil], folder / "old.pt", _use_new_zipfile_serialization=False)
    joblib.dump(evil, folder / "joblib.pickle")
    joblib.dump(evil, folder / "packed.pickle", compress=3)
    objects = np.array([evil, None], dtype=object)
    np.save(folder / "objects.npy", objects, allow_pickle=True)
    np.savez(folder / "objects.npz", X=objects, y=objects)
    return sorted(folder.iterdir())


def raw(header, data=b"", length=None):
    """Return a safetensors file with any header, and any length that it claims to have."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def forged(content, tensors):
    """Return a file with a right checksum over whatever it holds."""
    content = {key: value for key, value in content.items() if key != "checksum"}
    content["checksum"] = storage._checksum(content, tensors)
    return save(tensors, {storage._KEY: json.dumps(content)})


def repaired(path):
    """Return a file with the checksum made right; None if no reader gets as far as that."""
    try:
        with safe_open(path, framework="pt") as file:
            content = json.loads(file.metadata()[storage._KEY])
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            return forged(content, tensors)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RuntimeError):
        return None


def mutated(data, seed):
    """Return bytes with one to three of the accidents that files have."""
    draw, data = random.Random(seed), bytearray(data)
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(data))
        other = draw.randrange(len(data))
        n = draw.randint(1, 64)
        accident = draw.choice(
            ("flip", "flip", "cut", "insert", "remove", "swap", "fill", "repeat")
        )
        if accident == "flip":
            data[place] ^= 1 << draw.randrange(8)
        elif accident == "cut":
            data = data[: max(1, place)]
        elif accident == "insert":
            data[place:place] = draw.randbytes(n)
        elif accident == "remove":
            del data[place : min(place + n, len(data) - 1)]
        elif accident == "swap":
            block, another = data[place : place + n], data[other : other + n]
            n = min(len(block), len(another))
            data[place : place + n], data[other : other + n] = another[:n], block[:n]
        elif accident == "fill":
            data[place : place + 8] = draw.choice((b"\0", b"\xff", b"9")) * len(
                data[place : place + 8]
            )
        else:
            data[place:place] = data[other : other + n]
    return bytes(data)


def twisted(tree, seed):
    """Return a tree in which one thing is odd, missing, superfluous or of another shape."""
    draw, tree = random.Random(seed), copy.deepcopy(tree)
    place, key = draw.choice(list(_places(tree)))
    kind = draw.choice(("odd", "odd", "odd", "tensor", "missing", "more"))
    if kind == "missing":
        del place[key]
    elif kind == "more" and isinstance(place, dict):
        place[f"{key}2"] = copy.deepcopy(place[key])
    elif kind == "tensor" or isinstance(place[key], torch.Tensor):
        place[key] = _odd_tensor(place[key], draw)
    else:
        place[key] = draw.choice(ODD)
    return tree


def _places(tree):
    """Yield every place of a tree: what holds it, and its key there."""
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield tree, key
        if isinstance(value, dict | list):
            yield from _places(value)


def _odd_tensor(given, draw):
    like = given if isinstance(given, torch.Tensor) else torch.ones(3)
    strange = (
        like.to(torch.float16), like.to(torch.complex64), like.to(torch.int32), like.bool(),
        torch.full(like.shape, math.nan), torch.full_like(like, 1), like * math.inf, -like.double(),
        like.reshape(-1), like[..., None], like.flatten()[:0], torch.zeros(()), torch.zeros(7, 2),
        (1e308 * like.double()), like.double().clone(), like.flatten()[:-1],
    )  # fmt: skip
    return draw.choice(strange).contiguous()


def change(tree, *keys, to):
    for key in keys[:-1]:
        tree = tree[key]
    tree[keys[-1]] = to


def huge_files(folder, whole):
    """Write files that promise far more than they hold, some made from a whole classifier."""
    metadata = {"halfseen": json.dumps({"version": 1, "kind": "classifier", "tree": {}})}

    def tensor(shape, start, end, dtype="F32"):
        entry = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
        return {"__metadata__": metadata, "x": entry}

    two = tensor([4], 0, 16) | {"y": {"dtype": "F32", "shape": [4], "data_offsets": [8, 24]}}
    deflated = zlib.compress(b" " * 2**26)  # nobody should inflate this
    tree = storage.read(whole, "classifier")
    labels = ["a"] * 3_000_000
    made = {
        "elements": raw(tensor([2**60], 0, 2**62)),
        "more elements": raw(tensor([2**32, 2**32, 2**32], 0, 16), bytes(16)),
        "negative": raw(tensor([-4], 0, 16), bytes(16)),
        "no elements, long axis": raw(tensor([2**62, 0], 0, 0)),
        "out of range": raw(tensor([4], 2**40, 2**40 + 16), bytes(16)),
        "backwards": raw(tensor([4], 16, 0), bytes(16)),
        "overlapping": raw(two, bytes(24)),
        "header of 2^63": raw({}, length=2**63),
        "header of 2^64 - 1": raw({}, length=2**64 - 1),
        "header of 1 GB": raw({}, length=10**9),
        "header of 99 MB": raw({}, length=99 * 10**6),
        "deep header": raw(b'{"x":' + b"[" * 100_000),
        "deflated": raw(deflated),
        "much JSON": raw({"__metadata__": {"halfseen": "[" + "{}," * 300_000 + "{}]"}}),
    }
    forgeries = {
        "atoms": (("parameters", "n_atoms"), 2**40),
        "batch": (("parameters", "batch_size"), 2**60),
        "shape": (("sample_shape",), [2**20, 2**20]),
        "classes": (("classes", "values"), labels[:10_000]),
        "distinct classes": (("classes", "values"), [str(i) for i in range(300_000)]),
        "whole classes": (("classes",), {"dtype": "<i8", "values": list(range(300_000))}),
        "wide classes": (("classes", "dtype"), "<U500000000"),
        "long class": (("classes", "values"), ["a" * 10**6, *map(str, range(1000))]),
        "patches": (("parameters", "tiling"), {"name": "Patches", "size": [2**40], "stride": [1]}),
        "resnet": (("parameters", "network"), "resnet18"),
    }
    for name, content in made.items():
        (folder / name).write_bytes(content)
    for name, (keys, value) in forgeries.items():
        twin = storage.read(whole, "classifier")
        change(twin, *keys, to=value)
        storage.write(folder / f"forged {name}", "classifier", twin)
    image = torch.zeros(1, 1024, 1024)
    weights = {"completion.mean": image, "standardise.centre": image, "standardise.scale": image}
    tree["weights"] = {**weights, "completion.atoms": torch.zeros(1, 512 * 512)}
    tree["sample_shape"] = [1, 1024, 1024]
    tree["parameters"]["tiling"] = {"name": "Patches", "size": [512, 512], "stride": [1, 1]}
    tree["parameters"]["n_atoms"] = 1
    storage.write(folder / "forged many patches", "classifier", tree)
    return sorted(folder.iterdir())
