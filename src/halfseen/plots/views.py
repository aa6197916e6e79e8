"""What samples and tiles look like: images, signals, or neither."""

from __future__ import annotations

import math

import numpy as np
from sklearn.utils.validation import check_is_fitted

from halfseen.classifier import SparseCodingClassifier
from halfseen.imputer import SparseCodingImputer
from halfseen.tilings import Channels, Patches, Tiling, Whole

_LEAST_SIDE = 4  # of flat images: a sample of 4 or 9 features is a row of a table


def learned(model) -> tuple[np.ndarray, Tiling, tuple[int, ...]]:
    """Return the dictionary, the tiling and the shape of the samples of a fitted estimator."""
    if not isinstance(model, SparseCodingClassifier | SparseCodingImputer):
        raise TypeError(
            f"a fitted SparseCodingClassifier or SparseCodingImputer was expected; got "
            f"{type(model).__name__}."
        )
    check_is_fitted(model)
    if isinstance(model, SparseCodingImputer):
        return model.components_, model.tiling or Whole(), model.mean_.shape
    completion = model.module_.completion
    dictionary = completion.dictionary.detach().cpu().numpy()
    return dictionary, completion.tiling, completion.sample_shape


def sample_view(tiling: Tiling, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return (channels, height, width) of an image, (channels, length) of a signal, or None.

    The tiling tells signals with channels from images, and signals from flat images.
    """
    windows = isinstance(tiling, Patches) and len(tiling.size) == 1
    side = math.isqrt(shape[-1])
    match shape:
        case (length,) if windows:
            return 1, length
        case (length,) if side * side == length and side >= _LEAST_SIDE:
            return 1, side, side
        case (n_channels, _) if windows or n_channels == 1 or isinstance(tiling, Channels):
            return shape
        case (height, width):
            return 1, height, width
        case (1 | 3, _, _):
            return shape
    return None


def tile_view(tiling: Tiling, shape: tuple[int, ...], n_tile_features: int) -> tuple[int, ...]:
    """Return what `sample_view` does, for the tiles of a sample; what is no image is a line."""
    if isinstance(tiling, Whole):
        return sample_view(tiling, shape) or (1, n_tile_features)
    extents: tuple[int, ...] = (n_tile_features,)
    if isinstance(tiling, Channels):
        extents = shape[1:]
    elif isinstance(tiling, Patches):
        extents = tiling.size
    view = n_tile_features // math.prod(extents), *extents
    drawable = len(view) == 2 or (len(view) == 3 and view[0] in (1, 3))
    return view if drawable else (1, n_tile_features)
