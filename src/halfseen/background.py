"""What a classifier keeps of the samples it learned from, to judge holes in new ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from halfseen.moments import ObservedMoments
from halfseen.nn import SparseCompletion
from halfseen.standardise import Standardise
from halfseen.training.samples import Samples, StoredSamples

_HIDDEN = 0.25  # of the observed entries
_MOST_SAMPLES = 1000
_MOST_ENTRIES = 2**22  # of the samples and their codes
_AS_KNOWN = 4.0  # errors that the mean over all features counts for, in each of them


@dataclass(frozen=True)
class Background:
    """Ranges and errors of features, in the units of X; arrays of a sample's shape.

    Attributes
    ----------
    low, high : ndarray
        The smallest and the largest value that was observed.
    completion_error : ndarray
        Root mean square of the difference between hidden and completed values.
    """

    low: np.ndarray
    high: np.ndarray
    completion_error: np.ndarray


def learn_background(
    standardise: Standardise,
    completion: SparseCompletion,
    samples: Samples | StoredSamples,
    moments: ObservedMoments,
    seed: int,
) -> Background:
    """Return ranges from moments, and errors from hiding entries of some of the samples."""
    scale = standardise.scale.double().cpu().numpy()
    # Rounding may give a constant feature squares, and those of tiny values vanish.
    varying = (moments.low < moments.high) & (moments.squares > 0)
    spread = np.where(varying, np.sqrt(moments.squares / moments.count), 1.0)
    squares, count = _hidden_squares(completion, samples, seed)
    squares = squares * np.square(scale / spread)  # in units of the feature's own deviation
    # A feature that was rarely hidden leans on the others: on their median, since one that
    # nearly never varies is off by many of its deviations.
    known = varying & (count > 0)
    overall = np.median(squares[known] / count[known]) if known.any() else 1.0
    error = spread * np.sqrt((squares + _AS_KNOWN * overall) / (count + _AS_KNOWN))
    return Background(moments.low, moments.high, np.where(varying, error, 0.0))


@torch.no_grad()
def _hidden_squares(
    completion: SparseCompletion, samples: Samples | StoredSamples, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return sums of squared errors on hidden entries, standardised, and their numbers."""
    n_drawn = max(
        1, min(len(samples), _MOST_SAMPLES, _MOST_ENTRIES // completion.entries_per_sample)
    )
    # Drawn on the host, so that all devices draw the same.
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(samples), generator=generator, device="cpu")[:n_drawn].sort().values
    batch = samples.rows(rows.to(samples.y.device))
    hide = torch.rand(batch.X.shape, generator=generator, device="cpu") < _HIDDEN
    hidden = batch.observed & hide.to(batch.X.device)
    shown = batch.observed & ~hidden
    reconstruction = completion.complete(torch.where(shown, batch.X, 0), shown).reconstruction
    squares = torch.where(hidden, (batch.X - reconstruction).double().square(), 0).sum(0)
    return squares.cpu().numpy(), hidden.sum(0).cpu().numpy()
