"""Samples minus their means, as a dictionary learns from them; taken when they are needed."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from halfseen.boundary import check_squares, tensors_with_holes
from halfseen.disk import entries_at_once, fits, on_host, slices
from halfseen.moments import ObservedMoments, parts_of


class CentredSamples:
    """Samples with holes, centred; in the memory of a GPU if it has room.

    Parameters
    ----------
    values : ndarray or MappedRows of shape (n_samples, *sample_shape)
        NaN in the holes.
    moments : ObservedMoments
    like : Tensor
        Of the device and dtype that samples get.

    Attributes
    ----------
    resident : bool
        Whether they are in the memory of a GPU.
    """

    def __init__(self, values, moments: ObservedMoments, like: Tensor) -> None:
        self._values = values
        self._moments = moments
        self._like = like
        self._check()
        n_features = math.prod(values.shape[1:])
        self.resident = like.is_cuda and fits(len(values) * n_features * 5, like.device)
        if self.resident:
            try:
                self._X, self._observed = self._read_all(entries_at_once(like.device) // n_features)
            except torch.cuda.OutOfMemoryError:  # it is shared, or may not give all that it has
                self.resident = False

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return values, 0 in the holes, and `observed`, both of shape (n_rows, n_features)."""
        if self.resident:
            return self._X[rows], self._observed[rows]
        return self._read(rows)

    def _read_all(self, n_at_once: int) -> tuple[Tensor, Tensor]:
        parts = [self._read(some) for some in slices(len(self._values), n_at_once)]
        X, observed = (torch.cat(part) for part in zip(*parts, strict=True))
        return X, observed

    def _read(self, rows: Tensor | slice) -> tuple[Tensor, Tensor]:
        centred = self._moments.centred(self._values[on_host(rows)])
        X, observed = tensors_with_holes(centred, device=self._like.device)
        return X.to(self._like).flatten(1), observed.flatten(1)

    def _check(self) -> None:
        for part in parts_of(self._values):
            centred, _ = tensors_with_holes(self._moments.centred(part.numpy()))
            check_squares(centred.to(self._like).flatten(1), "X, centred,")
