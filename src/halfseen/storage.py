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
import secrets
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

VERSION = 1
_KEY = "halfseen"
_TENSOR = "__tensor__"
_DAMAGE = (KeyError, TypeError, AttributeError, RecursionError, json.JSONDecodeError)


def write(path: str | os.PathLike, kind: str, tree: dict) -> None:
    """Write a tree to a file, atomically.

    Parameters
    ----------
    path : path
        An existing file is replaced once the new one is complete on the disk.
    kind : str
        What the file is, such as "classifier"; `read` asks for it again.
    tree : dict
        Of dicts with str keys, lists, tensors and what JSON knows.
    """
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    content = {"kind": kind, "version": VERSION, "tree": _split(tree, tensors, "")}
    content["checksum"] = _checksum(content, tensors)
    data = save(tensors, {_KEY: json.dumps(content)})
    path = Path(path).resolve()  # a link stays a link
    require_folder(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def require_folder(path: str | os.PathLike) -> None:
    """Refuse a path to write to whose folder is not there."""
    folder = Path(path).resolve().parent
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {str(folder)!r}; make it first.")


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
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}.")
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            content = json.loads((file.metadata() or {})[_KEY])
            version = content["version"]
            if isinstance(version, int) and version > VERSION:
                raise ValueError(
                    f"{str(path)!r} was written by a newer halfseen (file version {version}, this "
                    f"one reads up to {VERSION}); update halfseen."
                )
            if content["kind"] not in kinds:
                raise ValueError(
                    f"{str(path)!r} is a {content['kind']} of halfseen; a {' or '.join(kinds)} "
                    f"was expected."
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        checksum = content.pop("checksum")
        if checksum != _checksum(content, tensors):
            raise ValueError(f"{str(path)!r} was altered or damaged: its checksum is wrong.")
        return content["kind"], _join(content["tree"], tensors)
    except (*_DAMAGE, SafetensorError) as error:
        raise ValueError(
            f"{str(path)!r} is no file of halfseen, or it is cut off or damaged "
            f"({type(error).__name__}: {error})."
        ) from error


def _split(tree: Any, tensors: dict[str, Tensor], name: str) -> Any:
    """Return a tree for JSON; its tensors go to `tensors`, their names into their places."""
    if isinstance(tree, Tensor):
        # A copy: safetensors takes no two tensors that share memory.
        tensors[name] = tree.detach().to("cpu", copy=True).contiguous()
        return {_TENSOR: name}
    if isinstance(tree, dict):
        return {key: _split(value, tensors, f"{name}/{key}") for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_split(value, tensors, f"{name}/{i}") for i, value in enumerate(tree)]
    return tree


def _join(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(tree, dict):
        if set(tree) == {_TENSOR}:
            return tensors[tree[_TENSOR]]
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
