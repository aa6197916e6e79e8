"""Files without code in them: trees of tensors and plain values, written whole or not at all.

A file is a safetensors file whose metadata hold a JSON text: what kind of file it is, of
which version, everything that is not a tensor, and a checksum over all of it. Nothing is
executed on reading.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from halfseen.whole_files import refuse_what_is_no_file, write_whole

VERSION = 1
_KEY = "halfseen"
_TENSOR = "__tensor__"
_DAMAGE = (KeyError, TypeError, AttributeError, RuntimeError)  # too deep JSON is a RuntimeError


def write(path: str | os.PathLike, kind: str, tree: dict) -> None:
    """Write a tree to a file, atomically.

    Parameters
    ----------
    path : path
        An existing file is replaced once the new one is complete on the disk.
    kind : str
        What the file is, such as "classifier"; `read` asks for it again.
    tree : dict
        See `require_form`.
    """
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    content = {"kind": kind, "version": VERSION, "tree": _split(tree, tensors, "")}
    content["checksum"] = _checksum(content, tensors)
    data = save(tensors, {_KEY: json.dumps(content)})
    write_whole(path, lambda temporary: temporary.write_bytes(data))


def require_form(tree: dict) -> None:
    """Refuse a tree that would not come back as it is.

    It may have dicts with text as keys, lists, tensors, numbers, text, truth values and None.
    """
    _split(tree, {}, "")


def read(path: str | os.PathLike, kind: str) -> dict:
    """Return the tree of a file that `write` wrote, its tensors on the CPU; see `read_any`."""
    return read_any(path, (kind,))[1]


def read_any(path: str | os.PathLike, kinds: tuple[str, ...]) -> tuple[str, dict]:
    """Return the kind and the tree of a file of one of several kinds.

    Raises
    ------
    ValueError
        If the file is not ours, of another kind, from a newer version, cut off or altered.
    """
    path = Path(path)
    refuse_what_is_no_file(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}.")
    while True:
        before = _version_of(path)
        try:
            return _read_once(path, kinds)
        except ValueError:
            # safetensors opens a file more than once, and it may have been replaced meanwhile.
            if _version_of(path) == before:
                raise


def _version_of(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _read_once(path: Path, kinds: tuple[str, ...]) -> tuple[str, dict]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            content = _content(file.metadata())
            kind, version = content["kind"], content["version"]
            if version > VERSION:
                raise ValueError(
                    f"{str(path)!r} was written by a newer halfseen (file version {version}, this "
                    f"one reads up to {VERSION}); update halfseen."
                )
            if kind not in kinds:
                raise ValueError(
                    f"{str(path)!r} is a {one_line(kind)} of halfseen; a {' or '.join(kinds)} "
                    f"was expected."
                )
            # Copies: a map of the file would change with it, and end the process if it is cut.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        checksum = content.pop("checksum")
        if checksum != _checksum(content, tensors):
            raise ValueError(f"{str(path)!r} was altered or damaged: its checksum is wrong.")
        tree = _join(content["tree"], tensors)
        if tensors:
            raise KeyError(f"nothing names the tensor {min(tensors)}")
        if not isinstance(tree, dict):
            raise TypeError(f"a {type(tree).__name__} instead of a tree")
        return kind, tree
    except (*_DAMAGE, SafetensorError) as error:
        raise ValueError(
            f"{str(path)!r} is no file of halfseen, or it is cut off or damaged "
            f"({type(error).__name__}: {one_line(error)})."
        ) from error


@contextlib.contextmanager
def must_hold(path: str | os.PathLike, what: str, advice: str = "") -> Iterator[None]:
    """Say which file it is that does not hold what it should, whatever goes wrong with its tree.

    Parameters
    ----------
    path : path
    what : str
        Such as "a whole classifier".
    advice : str
        What to do, for the end of the message.
    """
    try:
        yield
    except (
        LookupError, TypeError, AttributeError, RuntimeError, ValueError, OverflowError,
    ) as error:  # fmt: skip
        reason = f"it has no {error}" if isinstance(error, KeyError) else error
        raise ValueError(
            f"{str(path)!r} does not hold {what}: {one_line(reason)}{advice}"
        ) from error


def one_line(text: object, most: int = 200) -> str:
    """Return text from a file for a message: in one line, without control characters, not long."""
    words = " ".join(str(text).split())
    shown = words if len(words) <= most else f"{words[: most - 1]}…"
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in shown
    )


def require_like(given: dict[str, Any], made: dict[str, Any]) -> None:
    """Refuse weights from a file that are not those of a module.

    Parameters
    ----------
    given, made : dict
        Of the file and of the untrained module, by the names that `state_dict` gives them. They
        must have the same names, shapes and types, and be finite where the module's are.
    """
    strange = given.keys() ^ made.keys()
    if strange:
        name = min(strange)
        raise ValueError(f"{name} is {'missing' if name in made else 'not known'}")
    for name, expected in made.items():
        if not isinstance(expected, Tensor):
            continue
        found = given[name]
        if found.dtype != expected.dtype or found.shape != expected.shape:
            raise ValueError(
                f"{name} is {found.dtype} of shape {tuple(found.shape)}; {expected.dtype} of shape "
                f"{tuple(expected.shape)} was expected"
            )
        if (expected.cpu().isfinite() & ~found.isfinite()).any():
            raise ValueError(f"{name} has values that are not finite")


def _content(metadata: dict[str, str] | None) -> dict:
    """Return what a file has beside its tensors; a KeyError or TypeError if it is not ours."""
    try:
        content = json.loads((metadata or {})[_KEY])
    except ValueError as error:  # no JSON, or a number with thousands of digits
        raise TypeError(error) from error
    version = content["version"]
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise TypeError("its version is no number")
    if version <= VERSION and set(content) != {"kind", "version", "tree", "checksum"}:
        raise KeyError("kind, version, tree and checksum were expected")
    if not isinstance(content["kind"], str):
        raise TypeError("its kind is no text")
    return content


def _split(tree: Any, tensors: dict[str, Tensor], name: str) -> Any:
    """Return a tree for JSON; its tensors go to `tensors`, their names into their places."""
    if isinstance(tree, Tensor):
        # A copy: safetensors takes no two tensors that share memory.
        tensors[name] = tree.detach().to("cpu", copy=True).contiguous()
        return {_TENSOR: name}
    if isinstance(tree, dict) and all(isinstance(key, str) for key in tree):
        return {key: _split(value, tensors, f"{name}/{key}") for key, value in tree.items()}
    if isinstance(tree, list):
        return [_split(value, tensors, f"{name}/{i}") for i, value in enumerate(tree)]
    if tree is None or isinstance(tree, str | int | float):
        return tree
    raise ValueError(
        f"{name.removeprefix('/')} is a {type(tree).__name__}, {one_line(tree)}, which has no form "
        f"in a file; there are lists, dicts with text as keys, tensors, numbers and text."
    )


def _join(tree: Any, tensors: dict[str, Tensor]) -> Any:
    """Return the tree with its tensors, which are taken out of `tensors`."""
    if isinstance(tree, dict):
        if set(tree) == {_TENSOR}:
            return tensors.pop(tree[_TENSOR])
        return {key: _join(value, tensors) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_join(value, tensors) for value in tree]
    return tree


def _checksum(content: dict, tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
