"""`halfseen compare` and `halfseen demo`: our method beside the others, with a page to look at."""

from __future__ import annotations

import os
import shlex
import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from halfseen.cli.data import Data, read_labelled
from halfseen.cli.models import Device, Json, Missing, Target, classifier_for, require_place
from halfseen.cli.output import about, progress_bar, say, say_json, show_table
from halfseen.whole_files import write_text

OURS = "halfseen"
_FEW_FEATURES = 100  # that imputers of scikit-learn with a model per feature can take


def compare(
    data: Annotated[Path, typer.Argument(help="Table, .npz or folder of images with labels.")],
    out: Annotated[Path, typer.Option(help="Page to write.")] = Path("report.html"),
    target: Target = None,
    folds: Annotated[int, typer.Option(min=2, help="Parts of the cross-validation.")] = 5,
    network: Annotated[
        str | None, typer.Option(help="logistic, mlp, cnn4, cnn4_bn or resnet18.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of everything that is drawn.")] = 0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; as many as cores.")] = None,
    missing: Missing = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Cross-validate our method and the usual ones on your data, and say which to use.

    Example: halfseen compare patients.csv --target diagnosis --out report.html
    """
    from halfseen.advice import advise
    from halfseen.comparing import fold_scores, summarise
    from halfseen.report.comparison import COLUMNS, comparison_page, score_lines

    require_place(out, data)
    given = read_labelled(data, target, missing or [])
    splits = _folds(given.y, folds, seed)
    methods = contenders(given, network, random_state=seed, device=device)
    with (
        about(data),
        progress_bar(folds * len(methods), quiet=json) as advance,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # of libraries, about convergence
        rows = fold_scores(
            methods,
            _of_one_kind(given.X) if given.is_table else given.X,
            given.y,
            cv=splits,
            n_jobs=jobs or min(os.cpu_count() or 1, folds),
            report=lambda row: advance(f"{row['method']}, fold {row['fold'] + 1}"),
        )
    table = summarise(rows)
    _, counts = np.unique(given.y, return_counts=True)
    advice = advise(table, OURS, float(counts.max() / counts.sum()), len(given.y))
    command = _command(data, target, seed, folds, network, missing or [], device)
    page = comparison_page(data.name, given.X, given.y, table, advice, command)
    write_text(out, page)
    if json:
        say_json({"advice": advice, "file": str(out), "methods": table.to_dict("records")})
    else:
        show_table(COLUMNS, score_lines(table))
        say(f"\n{advice}\n\n{out}")


def demo(
    out: Annotated[Path, typer.Option(help="Page to write.")] = Path("demo/report.html"),
    json: Json = False,
) -> None:
    """Hide pixels of digits, classify them beside the rivals, and write a page about it.

    Takes about a minute.
    """
    from halfseen.report.demo import demo_page, run_demo

    out.parent.mkdir(parents=True, exist_ok=True)
    require_place(out)
    if not json:
        say("Digits with a quarter, half and three quarters of their pixels hidden.\n")
    found = run_demo(lambda total: progress_bar(total, quiet=json))
    page = demo_page(found)
    write_text(out, page)
    if json:
        say_json({"file": str(out), "rows": found.rows})
    else:
        show_table(("method", *(f"{rate:.0%} hidden" for rate in found.rates)), found.lines())
        say(f"\n{out}")


def contenders(data: Data, network: str | None, **training) -> dict[str, Any]:
    """Return our method and what people use instead, for these data."""
    from sklearn.pipeline import make_pipeline

    from halfseen import TableEncoder, rivals

    ours = {OURS: classifier_for(data, network, **training)}
    if not data.is_table:
        kind = ours[OURS].network
        found = {"zero fill": rivals.zero_fill(kind, **training), **rivals.usual(kind, **training)}
        if data.X[0].size > _FEW_FEATURES:
            found = {k: v for k, v in found.items() if k not in ("KNNImputer", "IterativeImputer")}
        return ours | found
    found = {
        "mean, logistic": rivals.mean_fill("logistic", **training),
        "mean + indicator, logistic": rivals.mean_and_indicator("logistic", **training),
        "IterativeImputer, logistic": rivals.iterative_fill("logistic", **training),
        "mean + indicator, mlp": rivals.mean_and_indicator("mlp", **training),
        "gradient boosting": rivals.gradient_boosting(random_state=training["random_state"]),
    }
    return ours | {name: make_pipeline(TableEncoder(), clf) for name, clf in found.items()}


def _of_one_kind(table: Any) -> Any:
    """Return a table whose categories are so in every fold, also where one has only numbers."""
    from halfseen import TableEncoder

    columns = TableEncoder().fit(table).columns_
    names = [column.name for column in columns if column.kind == "category"]
    return table.astype(dict.fromkeys(names, "category"))


def _folds(y: np.ndarray, n_folds: int, seed: int):
    from sklearn.model_selection import StratifiedKFold

    labels, counts = np.unique(y, return_counts=True)
    if len(labels) < 2 or counts.min() < n_folds:
        advice = "leave its rows out" if len(labels) > 2 else "add rows of it"
        if len(labels) < 2:
            advice = "add rows of another class"
        elif counts.min() >= 2:
            advice = "lower --folds"
        raise ValueError(
            f"{n_folds} folds need at least two classes and {n_folds} rows of each; the rarest of "
            f"{len(labels)}, {str(labels[counts.argmin()])!r}, has {counts.min()}: {advice}."
        )
    return StratifiedKFold(n_folds, shuffle=True, random_state=seed)


def _command(
    data: Path,
    target: str | None,
    seed: int,
    folds: int,
    network: str | None,
    missing: list[str],
    device: str,
) -> str:
    chosen = "" if target is None else f" --target {shlex.quote(target)}"
    more = "" if network is None else f" --network {network}"
    more += "".join(f" --missing {shlex.quote(text)}" for text in missing)
    more += "" if device == "auto" else f" --device {shlex.quote(device)}"
    return f"halfseen compare {shlex.quote(str(data))}{chosen} --seed {seed} --folds {folds}{more}"
