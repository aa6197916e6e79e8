"""Coding the tiles of samples with a dictionary that has been learned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from halfseen.boundary import check_squares, choose_device, tensors_with_holes
from halfseen.coding import MAX_ITER, MaskedLasso, make_solver, warn_if_unfinished
from halfseen.disk import MappedRows, PickedRows, entries_at_once, in_parts
from halfseen.moments import ObservedMoments
from halfseen.tilings import Tiling


@dataclass(frozen=True)
class TileCoder:
    """A dictionary for the tiles of centred samples, and how codes are found.

    Attributes
    ----------
    tiling : Tiling
    dictionary : ndarray of shape (n_atoms, n_tile_features)
    moments : ObservedMoments
        Of the samples that were learned from; their means are taken off before coding.
    alpha : float
        Weight of the l1 norm.
    positive : bool
    tol : float
        Relative duality gap at which a code is finished.
    device : str or torch.device
    """

    tiling: Tiling
    dictionary: np.ndarray
    moments: ObservedMoments
    alpha: float
    positive: bool
    tol: float
    device: str | torch.device

    def parts(
        self, values: np.ndarray | MappedRows | PickedRows, use: Callable[[Tensor], np.ndarray]
    ) -> Iterator[tuple[slice, np.ndarray]]:
        """Code samples in parts that fit into memory: which samples, what `use` makes of it.

        `use` gets codes of shape (n_samples, n_tiles, n_atoms).
        """
        layout = self.tiling.layout(tuple(values.shape[1:]))
        device = choose_device(self.device)
        solver = make_solver("auto", device)
        dictionary = torch.from_numpy(self.dictionary.astype(values.dtype)).to(device)
        per_sample = len(layout) * (layout.shape[1] + len(dictionary))
        gaps = [dictionary.new_empty(0)]

        def made(some: slice) -> tuple[Tensor, np.ndarray]:
            centred, observed = tensors_with_holes(
                self.moments.centred(values[some]), device=device
            )
            check_squares(centred.flatten(1), "X, centred,")
            tiles = self.tiling.split(centred).flatten(0, 1)
            seen = self.tiling.split(observed).flatten(0, 1)
            alpha = tiles.new_full((len(tiles),), self.alpha)
            problem = MaskedLasso(tiles, seen, dictionary, alpha, self.positive)
            with torch.autocast(device.type, enabled=False):
                solution = solver.solve(problem, None, self.tol, MAX_ITER)
            return solution.gap, use(solution.codes.reshape(-1, len(layout), len(dictionary)))

        for some, (gap, used) in in_parts(len(values), entries_at_once(device) // per_sample, made):
            gaps.append(gap)
            yield some, used
        warn_if_unfinished(torch.cat(gaps), self.tol, "Raise tol or alpha", stacklevel=4)

    def reconstruction(self, codes: Tensor) -> np.ndarray:
        """Turn codes of shape (n_samples, n_tiles, n_atoms) into samples of their dtype."""
        dictionary = torch.tensor(self.dictionary, device="cpu").to(codes)  # may be a map
        with torch.autocast(codes.device.type, enabled=False):
            tiles = codes @ dictionary
        merged = self.tiling.merge(tiles, self.moments.mean.shape).cpu().numpy()
        return merged + self.moments.mean.astype(merged.dtype)
