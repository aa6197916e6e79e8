"""Tilings: how one sample is cut into the vectors (tiles) that the dictionary codes.

A tiling says which features of a flattened sample make up each tile. Cutting is then a
gather and putting back together an average, whatever the tiling, so that one dense
dictionary and one solver serve all of them. Samples are laid out as in PyTorch: channels
first.
"""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from halfseen.boundary import finite_floats

_MOST_POSITIONS = 2**26  # features of all patches of a sample: half a gigabyte of places
Array = TypeVar("Array", np.ndarray, Tensor)


class Tiling(ABC):
    """Base of all tilings; a subclass says in `layout` which features make up each tile.

    Attributes
    ----------
    in_order : bool
        Whether the tiles, one after the other, are the flattened sample.
    """

    in_order = False

    @abstractmethod
    def layout(self, sample_shape: tuple[int, ...]) -> Tensor:
        """Return the positions of each tile's features in the flattened sample.

        Parameters
        ----------
        sample_shape : tuple of int
            Shape of one sample, without the axis of the samples.

        Returns
        -------
        layout : int64 Tensor of shape (n_tiles, n_tile_features)
            Every feature of the sample is in at least one tile, at most once in each.
        """

    def split(self, X: Array) -> Array:
        """Cut samples into tiles.

        Parameters
        ----------
        X : array or Tensor of shape (n_samples, *sample_shape)

        Returns
        -------
        tiles : array or Tensor of shape (n_samples, n_tiles, n_tile_features)
        """
        if not isinstance(X, Tensor):
            X = np.asarray(X)
        if X.ndim < 2:
            raise ValueError(
                f"{self} cuts samples of shape (n_samples, ...); got shape {tuple(X.shape)}."
            )
        layout = self.layout(tuple(X.shape[1:]))
        if isinstance(X, Tensor):
            return cut(X, layout.to(X.device))
        return X.reshape(len(X), -1)[:, layout.numpy()]

    def merge(self, tiles: Array, sample_shape: tuple[int, ...]) -> Array:
        """Put tiles back together; where several tiles hold a feature it is their mean.

        Parameters
        ----------
        tiles : array or Tensor of shape (n_samples, n_tiles, n_tile_features)
        sample_shape : tuple of int

        Returns
        -------
        X : array or Tensor of shape (n_samples, *sample_shape)
            ``merge(split(X), X.shape[1:])`` is X.
        """
        if not isinstance(tiles, Tensor):
            return self.merge(finite_floats(tiles, "tiles", holes=True), sample_shape).numpy()
        sample_shape = tuple(sample_shape)
        layout = self.layout(sample_shape)
        if tiles.ndim != 3 or tiles.shape[1:] != layout.shape:
            raise ValueError(
                f"{self} makes {layout.shape[0]} tiles of {layout.shape[1]} features from a "
                f"sample of shape {sample_shape}, so tiles of shape (n_samples, "
                f"{layout.shape[0]}, {layout.shape[1]}) were expected; got {tuple(tiles.shape)}."
            )
        tiles = tiles if tiles.is_floating_point() else tiles.double()  # means of whole numbers
        return put_together(tiles, layout.to(tiles.device), sample_shape)


def tiling_of(estimator) -> Tiling:
    """Return the tiling that an estimator was given; by default samples are not cut."""
    return Whole() if estimator.tiling is None else estimator.tiling


def checked_layout(tiling: Tiling, sample_shape: tuple[int, ...]) -> Tensor:
    """Return the layout of a tiling; refuse one of somebody's own that is none."""
    layout, n_features = tiling.layout(sample_shape), math.prod(sample_shape)
    if type(tiling) in (Whole, Channels, Patches) or layout.is_meta:  # ours are right
        return layout
    if layout.ndim != 2 or layout.dtype != torch.int64:
        raise ValueError(
            f"the layout of {tiling} must be an int64 tensor of shape (n_tiles, n_tile_features); "
            f"got {layout.dtype} of shape {tuple(layout.shape)}."
        )
    there = layout.unique()
    if not torch.equal(there, torch.arange(n_features)):
        raise ValueError(
            f"the layout of {tiling} must have the features 0 to {n_features - 1} of a sample of "
            f"shape {sample_shape}, all of them; got {len(there)}, from {int(there.min())} to "
            f"{int(there.max())}."
        )
    if (layout.sort(dim=1).values.diff(dim=1) == 0).any():
        raise ValueError(f"the layout of {tiling} has a feature twice in one tile.")
    return layout


def cut(X: Tensor, layout: Tensor) -> Tensor:
    """Cut samples into tiles by a layout on their device, see `Tiling.split`."""
    return X.flatten(1)[:, layout]


def put_together(tiles: Tensor, layout: Tensor, sample_shape: tuple[int, ...]) -> Tensor:
    """Put tiles back together by a layout on their device, see `Tiling.merge`."""
    n_features = math.prod(sample_shape)
    if layout.numel() == n_features:  # every feature is in one tile: nothing to add up
        nothing = tiles.new_full((tiles.shape[0], n_features), math.nan)
        merged = nothing.index_copy(1, layout.flatten(), tiles.flatten(1))
        return merged.reshape(tiles.shape[0], *sample_shape)
    total = tiles.new_zeros(tiles.shape[0], n_features)
    # One tile at a time: no feature is written twice at once, so the sum has one order.
    for tile in range(layout.shape[0]):
        total.index_add_(1, layout[tile], tiles[:, tile])
    holders = total.new_zeros(n_features).index_add(
        0, layout.flatten(), total.new_ones(layout.numel())
    )
    return (total / holders).reshape(tiles.shape[0], *sample_shape)


@dataclass(frozen=True)
class Whole(Tiling):
    """The whole sample is one tile (in the paper: MNIST)."""

    in_order = True

    def layout(self, sample_shape: tuple[int, ...]) -> Tensor:
        """Return the positions of each tile's features, see `Tiling.layout`."""
        _check_sides(sample_shape)
        return torch.arange(math.prod(sample_shape), device="cpu")[None]


@dataclass(frozen=True)
class Channels(Tiling):
    """One tile per channel, all coded with one dictionary (in the paper: CIFAR-10)."""

    in_order = True

    def layout(self, sample_shape: tuple[int, ...]) -> Tensor:
        """Return the positions of each tile's features, see `Tiling.layout`."""
        _check_sides(sample_shape)
        if len(sample_shape) < 2:
            raise ValueError(
                f"Channels() needs samples of shape (channels, ...), such as (3, 32, 32); got "
                f"{sample_shape}."
            )
        return torch.arange(math.prod(sample_shape), device="cpu").reshape(sample_shape[0], -1)


@dataclass(frozen=True, init=False)
class Patches(Tiling):
    """Overlapping patches through all channels; windows of a signal are the 1-D case.

    Parameters
    ----------
    size : int or tuple of int
        Extent of a patch along each axis but the channels. A tuple of two is for images, of
        one for signals: ``(16,)``. An int is a square for images.
    stride : int or tuple of int
        Distance between patches, at most `size`. Where the last one would stick out, it is
        moved back to end at the edge, so that every feature is in a patch.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]

    def __init__(self, size: int | tuple[int, ...], stride: int | tuple[int, ...] = 1) -> None:
        object.__setattr__(self, "size", _extents(size, 2, "size"))
        object.__setattr__(self, "stride", _extents(stride, len(self.size), "stride"))
        if any(stride > size for size, stride in zip(self.size, self.stride, strict=True)):
            raise ValueError(
                f"stride {self.stride} is larger than size {self.size}: features between the "
                f"patches would be lost. Use a stride of at most the size."
            )

    def layout(self, sample_shape: tuple[int, ...]) -> Tensor:
        """Return the positions of each tile's features, see `Tiling.layout`."""
        _check_sides(sample_shape)
        n_axes = len(self.size)
        if len(sample_shape) not in (n_axes, n_axes + 1):
            raise ValueError(
                f"{self} needs samples with {n_axes} axes, or {n_axes + 1} with channels "
                f"first; got samples of shape {sample_shape}."
            )
        extents = sample_shape[-n_axes:]
        if any(size > extent for size, extent in zip(self.size, extents, strict=True)):
            raise ValueError(f"{self} does not fit into samples of shape {sample_shape}.")
        n_tiles = math.prod(
            math.ceil((extent - size) / stride) + 1
            for extent, size, stride in zip(extents, self.size, self.stride, strict=True)
        )
        n_channels = math.prod(sample_shape[:-n_axes])
        if n_tiles * math.prod(self.size) * n_channels > _MOST_POSITIONS:
            raise ValueError(
                f"{self} cuts a sample of shape {sample_shape} into {n_tiles} patches, more than "
                f"fit into memory; use a larger stride or smaller patches."
            )
        return torch.from_numpy(_patch_layout(self.size, self.stride, tuple(sample_shape)).copy())


@lru_cache(maxsize=4)
def _patch_layout(
    size: tuple[int, ...], stride: tuple[int, ...], sample_shape: tuple[int, ...]
) -> np.ndarray:
    # Kept, so by numpy: a tensor may belong to some mode that torch is in just now.
    n_axes = len(size)
    numbers = np.arange(math.prod(sample_shape), dtype=np.int64)
    positions = numbers.reshape(-1, *sample_shape[-n_axes:])
    for axis in range(n_axes):
        extent = sample_shape[-n_axes + axis]
        last = extent - size[axis]
        starts = np.array(sorted({*range(0, last + 1, stride[axis]), last}))
        inside = starts[:, None] + np.arange(size[axis])  # (n_starts, size)
        # The patched axis becomes two: which patch, where in it. The latter goes last.
        positions = np.moveaxis(positions[(slice(None),) * (1 + axis) + (inside,)], axis + 2, -1)
    # (channels, patches of axis 1, ..., within axis 1, ...) -> (patches, channels × within)
    positions = np.moveaxis(positions, 0, n_axes)
    return positions.reshape(math.prod(positions.shape[:n_axes]), -1)


def _check_sides(sample_shape: tuple[int, ...]) -> None:
    if not all(isinstance(side, numbers.Integral) and side >= 1 for side in sample_shape):
        raise ValueError(
            f"the shape of a sample must be whole numbers ≥ 1, such as (3, 32, 32); got "
            f"{sample_shape!r}."
        )


def _extents(given: int | tuple[int, ...], n_axes: int, name: str) -> tuple[int, ...]:
    extents = tuple(given) if isinstance(given, Iterable) else (given,) * n_axes
    wrong = any(
        isinstance(e, bool) or not isinstance(e, numbers.Integral) or e < 1 for e in extents
    )
    if wrong or not extents or (name == "stride" and len(extents) != n_axes):
        raise ValueError(
            f"{name} must be a whole number ≥ 1 or a tuple of them, one per axis; got {given!r}."
        )
    return tuple(int(extent) for extent in extents)
