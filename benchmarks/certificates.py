"""How many digits are certified, whether that is right, and what is worth measuring.

    python benchmarks/certificates.py run ROWS.jsonl            # half an hour on two cores
    python benchmarks/certificates.py run ROWS.jsonl --small
    python benchmarks/certificates.py show ROWS.jsonl --plot PICTURE.png

A classifier learns from digits of which a share of the pixels is hidden at random, and is asked
about other digits with as many hidden. Coverage is the share that is certified; validity the
share of those whose class is the same when nothing is hidden. Ranges of the hidden pixels:

any         any value that the pixel had in training (`certify(X)`): a proof
near        the completed value, two completion errors up and down: no proof, since the true
            value may be outside
plausible   95 of 100 plausible completions have the predicted class (`completion_proba`)

`acquisition`: from 75% hidden on, one pixel after the other is shown, chosen by
`what_to_measure`, at random, or that with the largest completion error.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from halfseen import SparseCodingClassifier, ampute

RATES = (0.05, 0.1, 0.25, 0.5, 0.75)
NETWORKS = ("logistic", "mlp", "cnn4")
N_SHOWN = 24


def digits(small: bool) -> tuple:
    X, y = load_digits(return_X_y=True)
    X, y = (X[:400], y[:400]) if small else (X, y)
    return train_test_split(X.reshape(-1, 8, 8), y, test_size=0.25, stratify=y, random_state=0)


def asked(clf, holes: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield ranges and which samples are certified for them."""
    yield "any", clf.certify(holes).certain
    completed, error = clf.impute(holes), 2 * clf.completion_error_
    yield "near", clf.certify(holes, (completed - error, completed + error)).certain
    yield "plausible", clf.completion_proba(holes).max(1) >= 0.95


def coverage_rows(network: str, rate: float, seed: int, small: bool) -> Iterator[dict]:
    X_train, X_test, y_train, _ = digits(small)
    X_test = X_test[:150] if network == "cnn4" else X_test
    holes = ampute(X_train, "random", rate, random_state=seed)
    clf = SparseCodingClassifier(network, random_state=seed).fit(holes, y_train)
    holes = ampute(X_test, "random", rate, random_state=1000 + seed)
    same = clf.predict(holes) == clf.predict(X_test)
    for ranges, certain in asked(clf, holes):
        yield {
            "experiment": "coverage", "network": network, "rate": rate, "seed": seed,
            "ranges": ranges, "n": len(same), "certified": int(certain.sum()),
            "right": int(same[certain].sum()), "same": int(same.sum()),
        }  # fmt: skip


def acquisition_rows(network: str, seed: int, small: bool) -> Iterator[dict]:
    X_train, X_test, y_train, y_test = digits(small)
    shape = (-1, 64)
    holes = ampute(X_train.reshape(shape), "random", 0.75, random_state=seed)
    clf = SparseCodingClassifier(network, random_state=seed).fit(holes, y_train)
    X_test = X_test.reshape(shape)
    random, every = np.random.default_rng(seed), np.arange(len(X_test))
    for way in ("what_to_measure", "random", "largest error"):
        holes = ampute(X_test, "random", 0.75, random_state=1000 + seed)
        for n_shown in range(N_SHOWN + 1):
            accuracy = clf.score(holes, y_test)
            yield {
                "experiment": "acquisition", "network": network, "seed": seed, "way": way,
                "n_shown": n_shown, "accuracy": accuracy,
            }  # fmt: skip
            worth = {
                "random": lambda: random.random(X_test.shape),
                "largest error": lambda: np.broadcast_to(clf.completion_error_, X_test.shape),
            }
            if way == "what_to_measure":
                place = clf.what_to_measure(holes, n_best=1).feature[:, 0]
            else:
                place = np.where(np.isnan(holes), worth[way](), -1).argmax(1)
            holes[every, place] = X_test[every, place]


def run(path: Path, small: bool, n_seeds: int) -> None:
    seeds = range(1 if small else n_seeds)
    cells = [
        (coverage_rows, (network, rate, seed))
        for seed in seeds
        for network in (NETWORKS[:2] if small else NETWORKS)
        for rate in ((0.1, 0.5) if small else RATES)
        if network != "cnn4" or seed < 3
    ]
    cells += [
        (acquisition_rows, (network, seed)) for seed in seeds for network in ("logistic", "mlp")
    ]
    done = {row["cell"] for row in read(path)} if path.exists() else set()
    for cell, arguments in cells:
        name = f"{cell.__name__}{arguments}"
        if name in done:
            continue
        rows = [json.dumps({"cell": name, **row}) for row in cell(*arguments, small)]
        with path.open("a") as file:
            file.write("\n".join(rows) + "\n")
        print(name, flush=True)


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def show(path: Path, plot: Path | None) -> None:
    rows = read(path)
    print("| network | missing | same class, all | any | near | plausible |")
    print("|---|---|---|---|---|---|")
    coverage = [row for row in rows if row["experiment"] == "coverage"]
    for network in NETWORKS:
        for rate in RATES:
            here = [r for r in coverage if r["network"] == network and r["rate"] == rate]
            if not here:
                continue
            cells = []
            for ranges in ("any", "near", "plausible"):
                some = [r for r in here if r["ranges"] == ranges]
                n, certified, right = (sum(r[k] for r in some) for k in ("n", "certified", "right"))
                valid = f", {100 * right / certified:.1f}% right" if certified else ""
                cells.append(f"{100 * certified / n:.1f}%{valid}")
            same = sum(r["same"] for r in here) / sum(r["n"] for r in here)
            print(f"| {network} | {rate:.0%} | {100 * same:.1f}% | {' | '.join(cells)} |")
    print()
    for network in ("logistic", "mlp"):
        for way in ("what_to_measure", "largest error", "random"):
            curve = means(rows, network, way)[0]
            shown = ", ".join(f"{k}: {100 * curve[k]:.1f}" for k in (0, 4, 8, 16, 24))
            print(f"{network}, {way}: {shown}")
    if plot is not None:
        draw(rows, plot)


def means(rows: list[dict], network: str, way: str) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard error of the accuracy after each measurement."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if row["experiment"] == "acquisition" and (row["network"], row["way"]) == (network, way):
            found.setdefault(row["n_shown"], []).append(row["accuracy"])
    values = np.array([found[k] for k in sorted(found)])
    return values.mean(1), values.std(1, ddof=min(1, values.shape[1] - 1)) / values.shape[1] ** 0.5


def draw(rows: list[dict], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    colours = {"logistic": "tab:blue", "mlp": "tab:orange", "cnn4": "tab:green"}
    styles = {"any": "-", "near": "--", "plausible": ":"}
    for network in NETWORKS:
        for ranges, style in styles.items():
            here = [r for r in rows if r.get("ranges") == ranges and r["network"] == network]
            rates = sorted({r["rate"] for r in here})
            totals = np.array(
                [
                    [
                        sum(r[k] for r in here if r["rate"] == rate)
                        for k in ("n", "certified", "right")
                    ]
                    for rate in rates
                ]
            ).reshape(-1, 3)
            x, some = 100 * np.array(rates), totals[:, 1] > 0
            label = f"{network}, {ranges}"
            axes[0].plot(x, 100 * totals[:, 1] / totals[:, 0], style, marker=".",
                         color=colours[network], label=label)  # fmt: skip
            axes[1].plot(x[some], 100 * totals[some, 2] / totals[some, 1], style, marker=".",
                         color=colours[network])  # fmt: skip
    axes[0].set(xlabel="hidden pixels, %", ylabel="certified, %", title="Coverage")
    axes[1].set(xlabel="hidden pixels, %", ylabel="same class as complete, %", title="Validity")
    axes[1].legend(*axes[0].get_legend_handles_labels(), fontsize=7, loc="lower left")
    for network in ("logistic", "mlp"):
        for way, style in (("what_to_measure", "-"), ("largest error", "--"), ("random", ":")):
            mean, error = means(rows, network, way)
            x = np.arange(len(mean))
            axes[2].plot(x, 100 * mean, style, color=colours[network], label=f"{network}, {way}")
            axes[2].fill_between(x, 100 * (mean - error), 100 * (mean + error),
                                 color=colours[network], alpha=0.2, lw=0)  # fmt: skip
    axes[2].set(xlabel="pixels measured, from 75% hidden on", ylabel="accuracy, %",
                title="What to measure next")  # fmt: skip
    axes[2].legend(fontsize=7)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["run", "show"])
    parser.add_argument("rows", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    if arguments.command == "run":
        run(arguments.rows, arguments.small, arguments.seeds)
    else:
        show(arguments.rows, arguments.plot)


if __name__ == "__main__":
    main()
