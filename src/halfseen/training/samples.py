"""Labelled samples with holes: in the memory of a device, or where they came from."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from halfseen.disk import PickedRows, entries_at_once, fits, on_host, slices
from halfseen.moments import parts_of
from halfseen.standardise import Standardise


@dataclass(frozen=True)
class Samples:
    """Samples in memory.

    Attributes
    ----------
    X : Tensor of shape (n_samples, *sample_shape)
        0 in the holes.
    observed : bool Tensor of the same shape
    y : int64 Tensor of shape (n_samples,)
    weight : Tensor of shape (n_samples,)
    """

    X: Tensor
    observed: Tensor
    y: Tensor
    weight: Tensor

    def __len__(self) -> int:
        return len(self.X)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self.X.shape[1:])

    def rows(self, index: Tensor | slice) -> Samples:
        """Return some of the samples."""
        return Samples(self.X[index], self.observed[index], self.y[index], self.weight[index])

    def part(self, index: Tensor | slice) -> Samples:
        """Return some of the samples, as `StoredSamples` do."""
        return self.rows(index)

    def settled(self) -> Samples:
        """Return the samples: they are in memory."""
        return self

    def parts(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield values and `observed` of all samples, some at a time."""
        for some in slices(len(self), entries_at_once(self.y.device) // self.X[0].numel()):
            yield self.X[some], self.observed[some]

    def to(self, device: torch.device, dtype: torch.dtype) -> Samples:
        """Return the samples on a device, numbers in a precision."""
        return Samples(
            self.X.to(device, dtype),
            self.observed.to(device),
            self.y.to(device),
            self.weight.to(device, dtype),
        )


class StoredSamples:
    """Samples that stay where they are; some are read, scaled and moved when asked for.

    Parameters
    ----------
    values : PickedRows of shape (n_samples, *sample_shape)
        NaN in the holes.
    standardise : Standardise
        Of the device and precision that the samples get.
    y, weight : Tensor of shape (n_samples,)
        On that device.
    """

    def __init__(
        self, values: PickedRows, standardise: Standardise, y: Tensor, weight: Tensor
    ) -> None:
        self._values = values
        self._standardise = standardise
        self.y = y
        self.weight = weight
        self.sample_shape = tuple(values.shape[1:])

    def __len__(self) -> int:
        return len(self.y)

    def rows(self, index: Tensor | slice) -> Samples:
        """Return some of the samples, in memory."""
        given = torch.from_numpy(self._values[on_host(index)])
        X = self._standardise(given.to(self._standardise.centre))
        observed = ~X.isnan()
        return Samples(torch.where(observed, X, 0), observed, self.y[index], self.weight[index])

    def part(self, index: Tensor | slice) -> StoredSamples:
        """Return some of the samples, where they are."""
        values = self._values.part(on_host(index))
        return StoredSamples(values, self._standardise, self.y[index], self.weight[index])

    def parts(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield values and `observed` of all samples, in the order that is read fastest."""
        for part in parts_of(self._values.as_stored(), self.y.device):
            X = self._standardise(part.to(self.weight))
            observed = ~X.isnan()
            yield torch.where(observed, X, 0), observed

    def settled(self) -> Samples | StoredSamples:
        """Return the samples in the memory of a GPU, if they are for one and it has room."""
        device, n_entries = self.y.device, len(self) * math.prod(self.sample_shape)
        dtype = self.weight.dtype
        if device.type == "cpu" or not fits(n_entries * (dtype.itemsize + 1), device):
            return self
        shape = (len(self), *self.sample_shape)
        try:
            X = torch.empty(shape, dtype=dtype, device=device)
            observed = torch.empty(shape, dtype=torch.bool, device=device)
        except torch.cuda.OutOfMemoryError:  # it is shared, or may not give all that it has
            return self
        for some in slices(len(self), 2**24 // math.prod(self.sample_shape)):
            part = self.rows(some)
            X[some], observed[some] = part.X, part.observed
        return Samples(X, observed, self.y, self.weight)
