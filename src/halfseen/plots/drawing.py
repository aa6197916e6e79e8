"""What goes onto axes: samples, curves, heat maps; also for `halfseen.report`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HOLE = (1.0, 0.85, 0.2)  # a yellow that no grey is taken for
# Okabe and Ito's colours, told apart by the colour-blind; without yellow, too pale for lines.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # lines stay apart in black and white too
_DASHES = ("-", "--", ":", "-.")
_STAR = 0.05  # height of a line of stars, of that of the axes


def make_figure(width: float, height: float) -> Figure:
    """Return an empty figure, in inches, that pyplot knows nothing of."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"drawing needs matplotlib ({error}): pip install 'halfseen[plots]'.", name=error.name
        ) from error
    return Figure(figsize=(width, height), layout="constrained")


def draw_rows(rows: dict[str, np.ndarray], low: float, high: float) -> Figure:
    """Draw arrays of samples, one line of pictures or signals each; see `draw_sample`."""
    n_columns = max(len(samples) for samples in rows.values())
    images = all(samples.ndim == 4 for samples in rows.values())
    width, height = (1.0, 1.0) if images else (1.5, 1.1)
    figure = make_figure(width * n_columns + 1.2, height * len(rows) + 0.3)
    if images:
        figure.set_layout_engine("compressed")  # pictures have fixed sides
    first = None
    for line, (name, samples) in enumerate(rows.items()):
        for column, sample in enumerate(samples):
            place = line * n_columns + column + 1
            shared = None if images else first
            axis = figure.add_subplot(len(rows), n_columns, place, sharex=shared, sharey=shared)
            first = first or axis
            draw_sample(axis, sample, low, high)
            if images:
                axis.set(xticks=[], yticks=[])
            else:
                axis.label_outer()
                clear(axis)
            if column == 0:
                axis.set_ylabel(name, rotation=0, ha="right", va="center")
    if not images:
        figure.supxlabel("position", fontsize="medium")
    return figure


def draw_sample(axis: Axes, sample: np.ndarray, low: float, high: float) -> None:
    """Draw one sample with NaN in the holes.

    Parameters
    ----------
    axis : Axes
    sample : ndarray of shape (1 or 3, height, width), or (n_channels, length)
        An image, or lines. A pixel is yellow if all of its channels are missing; a channel
        that is missing alone is as bright as the others, so that no colour looks like a hole.
    low, high : float
        Of images the values that are black and white.
    """
    if sample.ndim == 2:
        for values, colour in zip(sample, itertools.cycle(_COLOURS), strict=False):
            # A value between two holes has no line to its neighbours, only a dot.
            axis.plot(values, color=colour, lw=0.9, ms=2.5,
                      marker="." if np.isnan(values).any() else None)  # fmt: skip
        return
    # First into the range, lest the quotient of tiny numbers has no room in a float.
    scaled = (np.clip(sample, low, high) - low) / ((high - low) or 1.0)
    seen = ~np.isnan(scaled)
    brightness = np.where(seen, scaled, 0).sum(0) / np.maximum(seen.sum(0), 1)
    picture = np.where(seen, scaled, brightness)
    picture = np.where(seen.any(0), picture, np.array(HOLE)[:, None, None])
    axis.imshow(picture.transpose(1, 2, 0), interpolation="nearest")


def draw_accuracy(
    axis: Axes, frame: pd.DataFrame, methods: Iterable[str], marks: Iterable[tuple[str, float]] = ()
) -> None:
    """Draw what `accuracy_curve` does on one axis; the place in `methods` decides the colour."""
    colours: dict[tuple[str, float], str] = {}
    for method, style in zip(methods, line_styles(), strict=False):
        runs = frame[frame["method"] == method].groupby("rate")["accuracy"]
        means, errors = 100 * runs.mean(), 100 * runs.sem().fillna(0)  # one run has no error
        if len(means):
            axis.errorbar(100 * means.index, means, errors, label=method, capsize=2, **style)
        colours |= {(method, rate): style["color"] for rate in means.index}
    marks = list(marks)
    lines = list(dict.fromkeys(method for method, _ in marks))
    low, high = axis.get_ylim()
    axis.set_ylim(low, high + _STAR * len(lines) * (high - low))
    for method, rate in marks:
        if (method, rate) not in colours:
            raise ValueError(
                f"marks must be pairs (method, rate) of the table; got {(method, rate)!r}."
            )
        place = 100 * rate, 1 - _STAR * lines.index(method)
        axis.annotate("*", place, xycoords=("data", "axes fraction"), ha="center", va="top",
                      color=colours[method, rate], fontsize="large")  # fmt: skip
    clear(axis)


def draw_heat_map(axis: Axes, frame: pd.DataFrame) -> None:
    """Draw what `lambda_heat_map` does on one axis."""
    from matplotlib.patches import Rectangle

    means = frame.groupby(["lambda_rec", "lambda_l1"])["accuracy"].mean().unstack()
    grid = 100 * means.to_numpy()
    image = axis.imshow(grid, cmap="cividis", origin="lower", aspect="auto")
    for (row, column), value in np.ndenumerate(grid):
        if np.isnan(value):
            continue
        best = value == np.nanmax(grid)
        luminance = np.dot(image.cmap(image.norm(value))[:3], (0.299, 0.587, 0.114))
        colour = "white" if luminance < 0.5 else "black"
        axis.text(column, row, f"{value:.1f}", color=colour, ha="center", va="center",
                  fontsize="small", fontweight="bold" if best else "normal")  # fmt: skip
        if best:
            corner = column - 0.45, row - 0.45
            axis.add_patch(Rectangle(corner, 0.9, 0.9, fill=False, edgecolor=colour, lw=2))
    axis.set_xticks(range(len(means.columns)), [f"{value:g}" for value in means.columns])
    axis.set_yticks(range(len(means.index)), [f"{value:g}" for value in means.index])
    axis.set(xlabel="λ2 (lambda_l1)", ylabel="λ1 (lambda_rec)")


def line_styles() -> Iterator[dict]:
    """Yield colour, marker and dashes of one line after the other.

    Lines that follow each other have other dashes: where they coincide, both can be seen.
    """
    looks = list(zip(_COLOURS, _MARKERS, strict=True))
    for number in itertools.count():
        turn, place = divmod(number, len(looks))
        colour, marker = looks[place]
        dashes = _DASHES[(place + turn) % len(_DASHES)]
        yield {"color": colour, "marker": marker, "linestyle": dashes, "lw": 1.2, "ms": 4}


def clear(axis: Axes) -> None:
    """Leave out the lines at the top and on the right, which say nothing."""
    axis.spines[["top", "right"]].set_visible(False)
