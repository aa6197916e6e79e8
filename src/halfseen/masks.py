"""Making holes: complete data in, the same data with NaN out, by a stated mechanism."""

from __future__ import annotations

import inspect
import sys

import numpy as np
import torch
from torch import Tensor

from halfseen.boundary import finite_floats, is_number, is_whole, seed_from


def ampute(X, mechanism: str = "random", rate: float = 0.5, *, random_state=None, **options):
    """Return a copy of X with holes.

    Holes are drawn as if X had none; NaN that are in X stay. For holes in training only, at
    test only or of different kinds, call it for each part.

    Parameters
    ----------
    X : array of shape (n_samples, ...), Tensor or DataFrame
        Numbers; whole numbers become floats, which can be NaN.
    mechanism : {"random", "occlusion", "mar", "mnar", "columns"}
        - ``"random"``: all entries alike. Exactly ``round(rate * X.size)`` are hidden.
        - ``"occlusion"``: one rectangle per sample, through all channels. The last two axes of
          X are an image; of a table the last axis is a signal and a run of it is hidden.
          The share is within half a row or half a column of pixels of the rate. Option
          `place`: ``"random"`` (size and place of each rectangle are drawn) or ``"left"``,
          ``"right"``, ``"top"``, ``"bottom"``: with rate 0.5 the halves of the paper.
        - ``"mar"``: some features are always observed, and hidden features depend on them
          alone. Exact. Options `observed_share`, the share of those features (0.3), and
          `strength` (2.0).
        - ``"mnar"``: an entry depends on its own value; large values are hidden more often.
          Exact. Option `strength` (2.0); below 0 small values are hidden.
        - ``"columns"``: whole features (along axis 1: columns of a table, channels of an
          image) of all samples, like a sensor that broke. A whole number of features, so
          within half a feature of the rate. Option `n_groups` (1): samples are dealt into
          as many groups at random, each with features of its own.

        In "mar" and "mnar" an entry is hidden if ``strength * z`` plus noise of a logistic
        distribution is among the largest of its feature, where z is the standardised value
        (for "mar" a random combination of the observed features). With strength 0 nothing
        depends on anything.
    rate : float
        Share of the entries to hide, from 0 to 1.
    random_state : int, RandomState or None
        None is different every time. The global random state is neither used nor changed.
    **options
        See `mechanism`.

    Returns
    -------
    incomplete : as X
        An ndarray unless X is a Tensor or a DataFrame.

    Examples
    --------
    >>> import numpy as np
    >>> from halfseen.masks import ampute
    >>> holes = np.isnan(ampute(np.ones((10, 8)), "random", 0.25, random_state=0))
    >>> int(holes.sum())
    20
    """
    if not isinstance(mechanism, str) or mechanism not in _MECHANISMS:
        raise ValueError(
            f"mechanism must be one of {', '.join(map(repr, _MECHANISMS))}; got {mechanism!r}."
        )
    if not is_number(rate) or not 0 <= rate <= 1:
        raise ValueError(f"rate must be a number from 0 to 1; got {rate!r}.")
    make_holes = _MECHANISMS[mechanism]
    known = list(inspect.signature(make_holes).parameters)[3:]
    for name, value in options.items():
        if name not in known:
            choice = f"it has {', '.join(known)}" if known else "it has none"
            raise TypeError(f"mechanism {mechanism!r} has no option {name!r}; {choice}.")
        if name in ("strength", "observed_share") and not is_number(value):
            raise ValueError(f"{name} must be a finite number; got {value!r}.")
    values = finite_floats(X, "X", holes=True)
    if values.ndim < 2 or 0 in values.shape:
        raise ValueError(
            f"X must have samples and features, shape (n_samples, ...); got {tuple(values.shape)}."
        )
    random = np.random.default_rng(seed_from(random_state))
    holes = make_holes(values.cpu().numpy(), float(rate), random, **options)
    incomplete = values.masked_fill(torch.from_numpy(holes).to(values.device), torch.nan)
    if "pandas" in sys.modules and isinstance(X, sys.modules["pandas"].DataFrame):
        return type(X)(incomplete.numpy(), index=X.index, columns=X.columns)
    return incomplete if isinstance(X, Tensor) else incomplete.numpy()


def _random(X: np.ndarray, rate: float, random: np.random.Generator) -> np.ndarray:
    holes = np.zeros(X.size, dtype=bool)
    holes[: round(rate * X.size)] = True
    random.shuffle(holes)
    return holes.reshape(X.shape)


def _occlusion(
    X: np.ndarray, rate: float, random: np.random.Generator, place: str = "random"
) -> np.ndarray:
    places = ("random", "left", "right", *(("top", "bottom") if X.ndim > 2 else ()))
    if place not in places:
        raise ValueError(
            f"for X of shape {X.shape} place must be one of {', '.join(map(repr, places))}; got "
            f"{place!r}."
        )
    height, width = X.shape[-2:] if X.ndim > 2 else (1, X.shape[1])
    if place == "random":
        # Both sides come from one law: height · rate^u and width · rate^(1 − u).
        heights = np.rint(height * rate ** random.random(len(X)))
        heights = np.clip(heights, max(1, np.ceil(rate * height)), height)
        widths = np.rint(rate * height * width / heights)
        top = random.integers(0, height - heights, endpoint=True)
        left = random.integers(0, width - widths, endpoint=True)
    else:
        full = np.array([height, width])
        size = np.rint(
            [rate * height, width] if place in ("top", "bottom") else [height, rate * width]
        )
        corner = full - size if place in ("bottom", "right") else np.zeros(2)
        heights, widths, top, left = (np.full(len(X), side) for side in (*size, *corner))
    in_rows = _between(np.arange(height), top, heights)
    in_columns = _between(np.arange(width), left, widths)
    covered = in_rows[:, :, None] & in_columns[:, None, :]
    channels = (1,) * (X.ndim - 3)
    covered = covered.reshape(len(X), *channels, *X.shape[-2:]) if X.ndim > 2 else covered[:, 0]
    return np.broadcast_to(covered, X.shape).copy()


def _between(positions: np.ndarray, start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Say of each sample (row) which positions are covered."""
    return (positions >= start[:, None]) & (positions < (start + length)[:, None])


def _mar(
    X: np.ndarray,
    rate: float,
    random: np.random.Generator,
    observed_share: float = 0.3,
    strength: float = 2.0,
) -> np.ndarray:
    flat = X.reshape(len(X), -1)
    n_features = flat.shape[1]
    n_observed = max(1, round(observed_share * n_features))
    n_hidden = n_features - n_observed
    n_holes = round(rate * flat.size)
    if not 0 < observed_share < 1 or n_hidden < 1 or n_holes > n_hidden * len(X):
        raise ValueError(
            f"observed_share={observed_share} of {n_features} features cannot always be observed "
            f"when a share of {rate:g} of all entries is hidden: it must be above 0 and leave "
            f"enough features to hide; lower it or the rate."
        )
    order = random.permutation(n_features)
    observed, hidden = order[:n_observed], order[n_observed:]
    drivers = _standardised(flat[:, observed]) @ random.standard_normal((n_observed, n_hidden))
    holes = np.zeros(flat.shape, dtype=bool)
    holes[:, hidden] = _hide_by_rank(strength * _standardised(drivers), n_holes, random)
    return holes.reshape(X.shape)


def _mnar(
    X: np.ndarray, rate: float, random: np.random.Generator, strength: float = 2.0
) -> np.ndarray:
    flat = X.reshape(len(X), -1)
    n_holes = round(rate * flat.size)
    return _hide_by_rank(strength * _standardised(flat), n_holes, random).reshape(X.shape)


def _columns(
    X: np.ndarray, rate: float, random: np.random.Generator, n_groups: int = 1
) -> np.ndarray:
    if not is_whole(n_groups) or n_groups > len(X):
        raise ValueError(
            f"n_groups must be a whole number from 1 to the number of samples, {len(X)}; got "
            f"{n_groups!r}."
        )
    group = random.permutation(len(X)) % n_groups
    n_lost = round(rate * X.shape[1])
    lost = np.zeros((n_groups, X.shape[1]), dtype=bool)
    lost[:, :n_lost] = True
    lost = random.permuted(lost, axis=1)
    return np.broadcast_to(lost[group].reshape(*X.shape[:2], *(1,) * (X.ndim - 2)), X.shape).copy()


def _standardised(flat: np.ndarray) -> np.ndarray:
    """Return columns with mean 0 and deviation 1; 0 for NaN and in constant columns."""
    flat = flat.astype(np.float64)
    seen = ~np.isnan(flat)
    flat = flat / max(1.0, np.abs(flat[seen]).max(initial=0.0))  # so that squares stay in range
    count = np.maximum(seen.sum(0), 1)
    centred = np.where(seen, flat - np.where(seen, flat, 0).sum(0) / count, 0)
    scale = np.sqrt(np.square(centred).sum(0) / count)
    low = np.where(seen, flat, np.inf).min(0, initial=np.inf)
    high = np.where(seen, flat, -np.inf).max(0, initial=-np.inf)
    varying = (low < high) & (scale > 0)  # rounding may give a constant column a tiny spread
    return np.where(varying, centred / np.where(varying, scale, 1), 0)


def _hide_by_rank(leaning: np.ndarray, n_holes: int, random: np.random.Generator) -> np.ndarray:
    """Hide the entries of each column that lean most towards it, after noise; exactly `n_holes`.

    Columns have as many holes as each other, but for the remainder.
    """
    n_samples, n_columns = leaning.shape
    per_column, rest = divmod(n_holes, n_columns)
    n_wanted = per_column + (random.permutation(n_columns) < rest)
    order = (leaning + random.logistic(size=leaning.shape)).argsort(axis=0)[::-1]
    holes = np.zeros(leaning.shape, dtype=bool)
    np.put_along_axis(holes, order, np.arange(n_samples)[:, None] < n_wanted, axis=0)
    return holes


_MECHANISMS = {
    "random": _random,
    "occlusion": _occlusion,
    "mar": _mar,
    "mnar": _mnar,
    "columns": _columns,
}
