"""The paper's figures from rows; matplotlib is loaded when one is drawn."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from halfseen.experiments import conditions, synthetic
from halfseen.experiments.examples import unpacked
from halfseen.experiments.summary import SIGNIFICANT, groups, mean_of, newest, paired_p

_COLOURS = {
    "Simult.": "tab:red", "Best": "black", "Seq. Sp.": "tab:purple", "ZF": "tab:blue",
    "MU": "tab:cyan", "MS": "tab:green", "KNN": "tab:orange",
}  # fmt: skip
_DPI = 90


def planned(rows: list[dict]) -> dict[str, tuple[str, list[dict]]]:
    """Return the figures that rows are there for: title, name of the file, rows."""
    found: dict[str, tuple[str, list[dict]]] = {}
    for name in _DRAWN:
        some = newest([row for row in rows if row["experiment"] == name])
        if some:
            found[name.capitalize()] = (f"{name}.png", some)
    for row in newest([row for row in rows if row["experiment"] == "examples"]):
        parts = (row["dataset"], row["variant"], row["mechanism"], row["method"])
        words = " ".join(part for part in parts if part)
        file = "examples_" + re.sub(r"\W+", "_", words.lower()).strip("_") + ".png"
        found[f"Examples: {words}"] = (file, [row])
    return found


def draw_all(rows: list[dict], folder: Path) -> dict[str, Path]:
    """Draw every figure for which there are rows; return title and path of each."""
    import matplotlib

    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    with matplotlib.rc_context({"backend": "agg", "font.size": 8}):
        for title, (file, some) in planned(rows).items():
            figure = _DRAWN.get(some[0]["experiment"], _examples)(some)
            drawn[title] = _saved(figure, folder / file)
    return drawn


def _saved(figure, path: Path) -> Path:
    from matplotlib import pyplot as plt

    figure.savefig(path, dpi=_DPI, metadata={"Software": None})
    plt.close(figure)
    return path


def _synthetic(rows: list[dict]):
    from matplotlib import pyplot as plt

    found = groups(rows)
    names = {f"synthetic K={K} d={d:g} P=200": f"K = {K}, d = {d:g}" for K, d in synthetic.PANELS}
    there = {place[0] for place in found}
    panels = {name: title for name, title in names.items() if name in there} or names
    figure, axes = plt.subplots(
        1, len(panels), figsize=(3.6 * len(panels), 3.6), layout="constrained", squeeze=False
    )
    for axis, (dataset, title) in zip(axes[0], panels.items(), strict=True):
        for method in synthetic.METHODS:
            cells = [
                (rate, mean)
                for (name, _, _, rate, way, _), some in found.items()
                if (name, way) == (dataset, method)
                and (mean := mean_of(some, "accuracy_complete")) is not None
            ]
            cells.sort(key=lambda cell: cell[0])
            if cells:
                axis.errorbar(
                    [100 * rate for rate, _ in cells],
                    [mean.mean for _, mean in cells],
                    yerr=[np.nan_to_num(mean.sem) for _, mean in cells],
                    color=_COLOURS[method], label=method, marker=".", capsize=2,
                )  # fmt: skip
        for rate in synthetic.RATES:
            at = {
                way: some
                for (n, _, _, r, way, _), some in found.items()
                if (n, r) == (dataset, rate)
            }
            for method, height in (("Best", 1.0), ("Simult.", 0.96)):
                p = paired_p(at.get(method, []), at.get("MS", []), "accuracy_complete")
                if p is not None and p < SIGNIFICANT:
                    axis.annotate(
                        "*", (100 * rate, height), color=_COLOURS[method], ha="center", va="top",
                        xycoords=("data", "axes fraction"),
                    )  # fmt: skip
        axis.set(title=title, xlabel="missing in training, %")
    axes[0, 0].set_ylabel("accuracy on complete test samples, %")
    axes[0, 0].legend(fontsize=7)
    figure.suptitle("Mean ± s.e.m.; * differs from MS (in the method's colour), p < 0.05, paired")
    return figure


def _conditions(rows: list[dict]):
    from matplotlib import pyplot as plt

    found = groups(rows)
    methods = [m for m in ("Simult.", "Best") if any(place[4] == m for place in found)]
    there = {place[0] for place in found}
    sparsities = [K for K in conditions.SPARSITIES if f"synthetic K={K} d=0 P=100" in there]
    figure, axes = plt.subplots(
        len(methods), len(sparsities), squeeze=False, layout="constrained",
        figsize=(2.6 * len(sparsities), 2.6 * len(methods) + 0.4),
    )  # fmt: skip
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
    from matplotlib import pyplot as plt

    found = groups(rows)
    places = sorted({(place[0], place[5], place[3]) for place in found})
    figure, axes = plt.subplots(
        1, len(places), squeeze=False, figsize=(3.2 * len(places), 3.2), layout="constrained"
    )
    for axis, (dataset, network, rate) in zip(axes[0], places, strict=True):
        values = {
            tuple(float(part.split("=")[1]) for part in place[4].split()): mean.mean
            for place, some in found.items()
            if (place[0], place[5], place[3]) == (dataset, network, rate)
            and (mean := mean_of(some, "accuracy_validation")) is not None
        }
        rec, l1 = (sorted({pair[i] for pair in values}) for i in (0, 1))
        grid = np.array([[values.get((a, b), np.nan) for b in l1] for a in rec])
        image = axis.imshow(grid, cmap="viridis")
        axis.set_xticks(range(len(l1)), [f"{value:g}" for value in l1])
        axis.set_yticks(range(len(rec)), [f"{value:g}" for value in rec])
        axis.set(title=f"{dataset}, {network}, {rate:.0%}", xlabel="λ2", ylabel="λ1")
        figure.colorbar(image, ax=axis, shrink=0.8)
    return figure


def _examples(rows: list[dict]):
    from matplotlib import pyplot as plt

    (row,) = rows
    pictures = {name: unpacked(stored) for name, stored in row["pictures"].items()}
    n_images = len(pictures["original"])
    figure, axes = plt.subplots(
        len(pictures) + 1, n_images, figsize=(n_images, len(pictures) + 1.3), layout="constrained"
    )
    for line, (name, values) in zip(axes, pictures.items(), strict=False):
        for axis, image in zip(line, values, strict=True):
            _show(axis, image)
        line[0].set_ylabel(name)
    atoms = unpacked(row["atoms"])
    side = round((atoms.shape[1] / _channels(pictures["original"], atoms.shape[1])) ** 0.5)
    for axis, atom in zip(axes[-1], atoms, strict=False):
        _show(axis, atom.reshape(-1, side, side))
    axes[-1, 0].set_ylabel("atoms")
    figure.suptitle(f"{row['dataset']}, {row['mechanism']} {row['rate']:.0%}, {row['method']}")
    return figure


def _channels(images: np.ndarray, n_tile_features: int) -> int:
    """Return how many channels an atom has: those of the image, or one of a shared dictionary."""
    n_channels = images.shape[1]
    side = (n_tile_features / n_channels) ** 0.5
    return n_channels if abs(side - round(side)) < 1e-9 else 1


def _show(axis, image: np.ndarray) -> None:
    """Show (channels, height, width); holes are yellow, of some channels only they are dark."""
    picture = np.repeat(image, 3, axis=0) if len(image) == 1 else image
    empty = np.isnan(picture).all(0)
    picture = np.where(empty, np.array([1.0, 0.85, 0.2])[:, None, None], np.nan_to_num(picture))
    axis.imshow(picture.transpose(1, 2, 0), interpolation="nearest")
    axis.set(xticks=[], yticks=[])


_DRAWN = {"synthetic": _synthetic, "conditions": _conditions, "tuning": _tuning}
