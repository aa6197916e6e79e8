"""`halfseen fit`, `predict`, `impute` and `info`: models as files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from halfseen.cli.data import PICTURES, Data, load_model, read_labelled, read_new
from halfseen.cli.output import about, say, say_json, show_table
from halfseen.table_files import KINDS, write_frame
from halfseen.table_values import almost_numbers, nearly_all_differ
from halfseen.whole_files import require_folder, write_whole

if TYPE_CHECKING:
    import pandas as pd

_LEAST_SIDE = 4  # of images, for convolutions
_MANY_LABELS = 20  # that could not be classes if most rows have their own

Missing = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="What else is a missing value, say -999. Repeatable."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON instead.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, ...; auto takes a GPU.")]
Target = Annotated[str | None, typer.Option(metavar="COLUMN", help="The column of labels.")]
Model = Annotated[Path, typer.Argument(help="A file that fit wrote.")]


def fit(
    train: Annotated[Path, typer.Argument(help="Table, .npz or folder of images to learn from.")],
    out: Annotated[Path, typer.Option(help="Model file to write.")],
    target: Target = None,
    network: Annotated[
        str | None, typer.Option(help="logistic, mlp, cnn4, cnn4_bn or resnet18.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the data.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of everything that is drawn.")] = 0,
    missing: Missing = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Learn a classifier from data with holes and write it to a file.

    Data are a table (.csv, .tsv, .parquet) with --target; an archive (.npz) with the array X,
    NaN in the holes or False in the array observed, and labels y; or a folder with a folder of
    images per class: holes are transparent pixels, black in NAME.mask.png beside NAME.png, or
    NaN in .npy files.

    Example: halfseen fit patients.csv --target diagnosis --out patients.halfseen
    """
    from halfseen import classifier_file

    require_place(out, train)
    data = read_labelled(train, target, missing or [])
    labels = np.unique(data.y)
    if len(labels) < 2:
        raise ValueError(
            f"{str(train)!r} has one label only, {str(data.y[0])!r}; two classes are needed."
        )
    if len(labels) > max(_MANY_LABELS, len(data.y) / 2):
        raise ValueError(
            f"{str(train)!r} has {len(labels)} labels in {len(data.y)} rows, the first is "
            f"{str(labels[0])!r}; a column of classes was expected. Group values into classes."
        )
    settings = {"n_epochs": epochs, "random_state": seed, "device": device}
    settings["verbose"] = 0 if json else 1
    clf = classifier_for(data, network, tuple(missing or ()), **settings)
    with about(train):
        classifier_file.labels_to_plain(labels)  # refuses what cannot be saved
        clf.fit(data.X, data.y)
    if missing and not data.is_table:  # tables have an encoder that keeps it
        clf.missing_values_ = missing
    clf.save(out)
    record = {**description(clf), "rows": len(data.X), "file": str(out)}
    if data.is_table:
        record["notes"] = _doubts(clf.encoder_, data.X)
    if json:
        say_json(record)
        return
    shape = "" if data.is_table else f" of shape {' × '.join(map(str, data.X.shape[1:]))}"
    n_classes = len(record["classes"])
    say(f"{out}: {record['network']}, {len(data.X)} rows{shape}, {n_classes} classes")
    if data.is_table:  # a number with one typo is a category: better seen at once
        say(f"columns: {', '.join(record['columns'])}")
        for note in record["notes"]:
            say(f"note: {note}")


def predict(
    model: Model,
    data: Annotated[Path, typer.Argument(help="New rows, in the form of the training data.")],
    out: Annotated[Path, typer.Option(help="Table to write: .csv, .tsv or .parquet.")],
    target: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="True labels, to count what is right.")
    ] = None,
    certificates: Annotated[
        bool, typer.Option(help="Say whether holes could change the class.")
    ] = True,
    missing: Missing = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Write label, probabilities and certificate of each row to a table.

    `certain` means that no values in the holes, within what was seen in training, change the
    label; `possible` are the labels that could not be ruled out.

    Example: halfseen predict patients.halfseen new.csv --out labels.csv
    """
    _require_table(out)
    require_place(out, model, data)
    clf = load_model(model, device)
    given = read_new(data, missing or [], clf, target)
    if given.y is not None:
        _require_known(given.y, clf.classes_, data)
    with about(data):
        table = predictions(clf, given, certificates)
    write_frame(out, table)
    record: dict[str, Any] = {"file": str(out), "rows": len(table), **_unknown(clf, given)}
    if certificates:
        record["certain"] = int(table["certain"].sum())
    if given.y is not None:
        right = table["label"].to_numpy().astype(str) == given.y.astype(str)
        record["accuracy"] = float(right.mean())
    if json:
        say_json(record)
    else:
        text = f", {record['certain']} of them certain" if certificates else ""
        text += f", {record['accuracy']:.1%} of them right" if given.y is not None else ""
        say(f"{out}: {len(table)} labels{text}")
        _say_unknown(record)


def impute(
    model: Model,
    data: Annotated[Path, typer.Argument(help="Rows with holes.")],
    out: Annotated[Path, typer.Option(help="File to write; .npz for arrays and images.")],
    missing: Missing = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Fill the holes of a table, with its columns and types, or of arrays and images.

    Example: halfseen impute patients.halfseen new.csv --out filled.csv
    """
    import pandas as pd

    clf = load_model(model, device)
    given = read_new(data, missing or [], clf)
    ends = KINDS if given.is_table else (".npz",)
    if out.suffix.lower() not in ends:
        raise ValueError(f"--out {str(out)!r} must end in {' or '.join(ends)} for these data.")
    require_place(out, model, data)
    with about(data):
        completed = clf.impute(given.X)
    holes = pd.isna(clf.encoder_.with_holes(given.X) if given.is_table else given.X)
    still = np.asarray(pd.isna(completed))
    n_left, n_filled = int(still.sum()), int((np.asarray(holes) & ~still).sum())
    if given.is_table:
        table = given.whole.copy()
        table[completed.columns] = completed
        # Text of a CSV file becomes numbers and dates in Parquet; what has types keeps them.
        untyped = out.suffix.lower() == ".parquet" and data.suffix.lower() != ".parquet"
        write_frame(out, typed(table, clf.encoder_) if untyped else table)
    else:
        names = {} if given.names is None else {"names": np.array(given.names)}
        write_whole(out, lambda path: _write_archive(path, X=completed, **names))
    record: dict[str, Any] = {"file": str(out), "rows": len(completed), "filled": n_filled}
    record |= {"left": n_left, **_unknown(clf, given)}
    if json:
        say_json(record)
    else:
        text = f"; {n_left} left in columns that had no values in training" if n_left else ""
        say(f"{out}: {len(completed)} rows, {n_filled} holes filled{text}")
        _say_unknown(record)


def info(model: Model, json: Json = False) -> None:
    """Show what a model file holds.

    Example: halfseen info patients.halfseen
    """
    record = description(load_model(model, "cpu"))
    if json:
        say_json(record)
        return
    lines = []
    for name, value in record.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        lines.append((name.replace("_", " "), text))
    show_table(("", str(model)), lines)


def classifier_for(
    data: Data, network: str | None, missing: tuple[str, ...] = (), **settings
) -> Any:
    """Return an unfitted classifier that suits the data.

    Tables get a perceptron that sees which values are missing; images a small convolutional
    network on completed patches; signals a perceptron on completed windows.
    """
    from halfseen import Patches, SparseCodingClassifier, TableClassifier, TableEncoder

    shape = data.X.shape[1:]
    if data.is_table:
        encoder = TableEncoder(add_indicator=True, missing_values=missing)
        return TableClassifier(SparseCodingClassifier(network or "mlp", **settings), encoder)
    if len(shape) in (2, 3) and min(shape[-2:]) >= _LEAST_SIDE:
        size = min(8, *(side // 2 for side in shape[-2:]))
        tiling = Patches(size, stride=size // 2)
        return SparseCodingClassifier(network or "cnn4", tiling, 2 * size**2, **settings)
    if len(shape) == 2:  # few channels of a signal
        size = max(1, min(32, shape[1] // 2))
        tiling = Patches((size,), stride=max(1, size // 2))
        return SparseCodingClassifier(network or "mlp", tiling, **settings)
    return SparseCodingClassifier(network or "mlp", **settings)


def description(clf: Any) -> dict:
    """Return what a fitted classifier is, as plain values."""
    from halfseen import TableClassifier

    inner = clf.classifier_ if isinstance(clf, TableClassifier) else clf
    last = inner.history_[-1]
    record = {
        "network": inner.network,
        "classes": [str(label) for label in clf.classes_],
        "sample_shape": list(inner.module_.completion.sample_shape),
        "atoms": len(inner.module_.completion.atoms),
        "training": str(inner.training),
        "epochs": inner.n_iter_,
        "training_accuracy": round(float(last["accuracy"]), 4),
    }
    if isinstance(clf, TableClassifier):
        record["columns"] = [f"{column.name} ({column.kind})" for column in clf.encoder_.columns_]
    return record


def predictions(clf: Any, data: Data, certificates: bool) -> pd.DataFrame:
    """Return label, probabilities and certificates, one row for each sample."""
    import pandas as pd

    probability = clf.predict_proba(data.X)
    labels = clf.classes_[probability.argmax(1)]
    columns: dict[str, Any] = {} if data.names is None else {"name": data.names}
    columns["label"] = labels
    for place, label in enumerate(clf.classes_):
        columns[f"probability of {label}"] = probability[:, place]
    if certificates:
        found = clf.certify(data.X)
        columns["certain"] = found.certain
        names = np.array([_quoted(str(label)) for label in clf.classes_], dtype=object)
        columns["possible"] = [";".join(names[row]) for row in found.possible]
    return pd.DataFrame(columns)


def _quoted(label: str) -> str:
    """Return a label as it stands in a list; like a field of CSV, quoted where it must be."""
    if ";" not in label and '"' not in label:
        return label
    return '"' + label.replace('"', '""') + '"'


def typed(frame: pd.DataFrame, encoder: Any) -> pd.DataFrame:
    """Return a table of text with numbers and dates where its columns have those."""
    import pandas as pd

    frame = frame.copy()
    for column in encoder.columns_:
        if column.dtype == "text" and column.kind == "number":
            frame[column.name] = pd.to_numeric(frame[column.name])
        elif column.dtype == "text" and column.kind == "date":
            zoned = frame[column.name].str.contains(r"(?:Z|[+-]\d{2}:?\d{2})$").any()
            dates = pd.to_datetime(frame[column.name], format="ISO8601", utc=True)
            frame[column.name] = dates if zoned else dates.dt.tz_localize(None)
    return frame


def require_place(out: Path, *inputs: Path) -> None:
    """Refuse, before any work is done, a place that cannot be written to or is an input.

    In a folder that is an input, that is every file with an ending of what is read there.
    """
    require_folder(out)
    place = out.resolve()
    among = any(given.is_dir() and given.resolve() in place.parents for given in inputs)
    if among and place.suffix.lower() in (*PICTURES, ".jsonl"):
        raise ValueError(f"--out {str(out)!r} is a place of the input; choose another name.")
    if any(place == given.resolve() for given in inputs):
        raise ValueError(f"--out {str(out)!r} is the input itself; choose another name.")
    if not os.access(place.parent, os.W_OK):
        raise ValueError(f"the folder of --out {str(out)!r} cannot be written to.")


def _doubts(encoder: Any, frame: pd.DataFrame) -> list[str]:
    """Return what may be wrong with columns that became categories."""
    notes = []
    for column in encoder.columns_:
        if column.kind != "category":
            continue
        values = frame[column.name]
        found = almost_numbers(values)
        if found is not None:
            notes.append(
                f"column {column.name!r} is a category, although {found[0]} of "
                f"{int(values.notna().sum())} values look like numbers; {found[1]!r} "
                f"is none. Numbers have a point and nothing else beside their digits."
            )
        elif nearly_all_differ(values):
            notes.append(
                f"column {column.name!r} has a text of its own in nearly every row, as names of "
                f"rows have: it says nothing of new rows, and while it is there hardly a row is "
                f"certain. Leave it out."
            )
    return notes


def _unknown(clf: Any, data: Data) -> dict:
    """Return how many values of which columns of a table training did not know."""
    return {"unknown": clf.encoder_.unknown(data.X)} if data.is_table else {}


def _say_unknown(record: dict) -> None:
    for name, number in record.get("unknown", {}).items():
        say(
            f"note: column {name!r} has values in {number} of {record['rows']} rows that training "
            f"did not know; they count as missing"
        )


def _require_known(y: np.ndarray, classes: np.ndarray, path: Path) -> None:
    strange = np.flatnonzero(~np.isin(y.astype(str), classes.astype(str)))
    if len(strange):
        raise ValueError(
            f"{str(path)!r} has the label {str(y[strange[0]])!r} in row {strange[0]}, which the "
            f"model has never seen; it knows {', '.join(map(repr, map(str, classes)))}."
        )


def _write_archive(path: Path, **arrays: np.ndarray) -> None:
    with path.open("wb") as file:  # given a name, numpy would change its ending
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def _require_table(path: Path) -> None:
    """Refuse an ending that no table has."""
    if path.suffix.lower() not in KINDS:
        raise ValueError(f"--out {str(path)!r} must end in {', '.join(KINDS)}.")
