"""The paper's figures from rows; matplotlib is loaded when one is drawn."""

from __future__ import annotations

import functools
import math
import re
from operator import itemgetter
from pathlib import Path

import numpy as np

from halfseen.experiments import conditions, synthetic, tuning
from halfseen.experiments.examples import unpacked
from halfseen.experiments.summary import SIGNIFICANT, groups, mean_of, newest, paired_p
from halfseen.plots.drawing import draw_accuracy, draw_heat_map, draw_rows, make_figure
from halfseen.whole_files import write_whole

_DPI = 90
_ACROSS = 4  # heat maps in a line


def planned(rows: list[dict]) -> dict[str, tuple[str, list[dict]]]:
    """Return the figures that rows are there for: title, name of the file, rows."""
    found: dict[str, tuple[str, list[dict]]] = {}
    for name in _DRAWN:
        some = newest([row for row in rows if row["experiment"] == name])
        some = tuning.whole_grids(some) if name == "tuning" else some
        if some:
            found[name.capitalize()] = (f"{name}.png", some)
    shown = newest([row for row in rows if row["experiment"] == "examples"])
    names = itemgetter("dataset", "variant", "mechanism", "method")
    for row in sorted(shown, key=names):  # in one order, however they were run
        parts = names(row)
        words = " ".join(part for part in parts if part)
        file = "examples_" + re.sub(r"\W+", "_", words.lower()).strip("_") + ".png"
        found[f"Examples: {words}"] = (file, [row])
    return found


def draw_all(rows: list[dict], folder: Path) -> dict[str, Path]:
    """Draw every figure for which there are rows; return title and path of each."""
    import matplotlib

    with matplotlib.rc_context({"backend": "agg", "font.size": 8}):
        # All are drawn before one is written: a row that cannot be drawn leaves nothing behind.
        figures = {
            title: (folder / file, _DRAWN.get(some[0]["experiment"], _examples)(some))
            for title, (file, some) in planned(rows).items()
        }
        folder.mkdir(parents=True, exist_ok=True)
        for path, figure in figures.values():
            save = functools.partial(figure.savefig, dpi=_DPI, metadata={"Software": None})
            write_whole(path, save)
    return {title: path for title, (path, _) in figures.items()}


def _synthetic(rows: list[dict]):
    import pandas as pd

    names = {f"synthetic K={K} d={d:g} P=200": f"K = {K}, d = {d:g}" for K, d in synthetic.PANELS}
    there = {row["dataset"] for row in rows}
    panels = {name: title for name, title in names.items() if name in there} or names
    figure = make_figure(3.6 * len(panels), 3.6)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (dataset, title) in zip(axes, panels.items(), strict=True):
        some = [row for row in rows if row["dataset"] == dataset]
        table = pd.DataFrame(some, columns=["method", "rate", "accuracy_complete"]).dropna()
        table = table.rename(columns={"accuracy_complete": "accuracy"})
        draw_accuracy(axis, table, synthetic.METHODS, _significant(some))
        axis.set(title=title, xlabel="missing in training, %")
    axes[0].set_ylabel("accuracy on complete test samples, %")
    axes[0].legend(fontsize=7)
    figure.suptitle(
        "Mean ± s.e.m.; * differs from MS (in the method's colour), p < 0.05, paired", wrap=True
    )
    return figure


def _significant(rows: list[dict]) -> list[tuple[str, float]]:
    """Return for which method and rate our methods differ from MS."""
    runs = {(place[4], place[3]): some for place, some in groups(rows).items()}
    marks = []
    for (method, rate), some in runs.items():
        if method in ("Best", "Simult."):
            p = paired_p(some, runs.get(("MS", rate), []), "accuracy_complete")
            if p is not None and p < SIGNIFICANT:
                marks.append((method, rate))
    return marks


def _conditions(rows: list[dict]):
    found = groups(rows)
    methods = [m for m in ("Simult.", "Best") if any(place[4] == m for place in found)]
    there = {place[0] for place in found}
    sparsities = [K for K in conditions.SPARSITIES if f"synthetic K={K} d=0 P=100" in there]
    figure = make_figure(2.6 * len(sparsities), 2.6 * len(methods) + 0.4)
    axes = figure.subplots(len(methods), len(sparsities), squeeze=False)
    for line, method in zip(axes, methods, strict=True):
        for axis, K in zip(line, sparsities, strict=True):
            some = found.get((f"synthetic K={K} d=0 P=100", "", "random", 0.95, method, "logistic"))
            if not some:
                axis.set_axis_off()
                continue
            histogram = some[0]["histogram"]
            ends = histogram["epsilon_end"], histogram["g_end"]
            counts = np.array(histogram["counts"], dtype=float).T
            axis.imshow(np.log1p(counts), origin="lower", extent=(0, ends[0], 0, ends[1]),
                        aspect="auto", cmap="viridis")  # fmt: skip
            axis.plot([0, min(ends)], [0, min(ends)], color="white", lw=1)
            parts = [row["type II"] for row in some]
            above, below = (mean_of(parts, k) for k in ("right_if_holds", "right_if_not"))
            axis.set_title(f"{method}, K = {K}\nε > g: {_short(above)}, else {_short(below)}")
            axis.set(xlabel="ε", ylabel="g")
    figure.suptitle("ε against g (log counts, one seed); percent right where ε > g and elsewhere")
    return figure


def _short(mean) -> str:
    return "none" if mean is None else f"{mean.mean:.1f}%"


def _tuning(rows: list[dict]):
    import pandas as pd

    table = pd.DataFrame(rows).rename(columns={"accuracy_validation": "accuracy"})
    lambdas = table["method"].str.extract("λ1=(?P<lambda_rec>.+) λ2=(?P<lambda_l1>.+)")
    panels = table.join(lambdas.astype(float)).groupby(
        ["dataset", "network", "mechanism", "rate"], sort=False
    )
    n_lines = math.ceil(len(panels) / _ACROSS)
    figure = make_figure(3.2 * min(len(panels), _ACROSS), 2.8 * n_lines)
    axes = figure.subplots(n_lines, min(len(panels), _ACROSS), squeeze=False).flatten()
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    for axis, ((dataset, network, mechanism, rate), some) in zip(axes, panels, strict=False):
        draw_heat_map(axis, some)
        axis.set_title(f"{dataset}, {network}, {mechanism} {rate:.0%}")
    figure.suptitle("Validation accuracy, %; the best is framed (which is taken: the table)")
    return figure


def _examples(rows: list[dict]):
    (row,) = rows
    pictures = {name: unpacked(stored) for name, stored in row["pictures"].items()}
    atoms = unpacked(row["atoms"])
    n_channels = _channels(pictures["original"], atoms.shape[1])
    side = round((atoms.shape[1] / n_channels) ** 0.5)
    pictures["atoms"] = atoms.reshape(-1, n_channels, side, side)
    figure = draw_rows(pictures, 0.0, 1.0)
    figure.suptitle(f"{row['dataset']}, {row['mechanism']} {row['rate']:.0%}, {row['method']}")
    return figure


def _channels(images: np.ndarray, n_tile_features: int) -> int:
    """Return how many channels an atom has: those of the image, or one of a shared dictionary."""
    n_channels = images.shape[1]
    side = (n_tile_features / n_channels) ** 0.5
    return n_channels if abs(side - round(side)) < 1e-9 else 1


_DRAWN = {"synthetic": _synthetic, "conditions": _conditions, "tuning": _tuning}
