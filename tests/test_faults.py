"""Full disks, and checkpoints that are damaged or something else."""

import contextlib
import errno
import json
import os
import resource
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from halfseen import Published, SparseCodingClassifier, TableClassifier
from halfseen.cli import main
from halfseen.experiments import rows
from halfseen.training import loop

LIMIT = 4096  # bytes a file may have on the full disk


def data():
    random = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = random.standard_normal((90, 12)) + np.eye(3).repeat(4, 1)[y]
    X[random.random(X.shape) < 0.4] = np.nan
    return X, y


def fitted(**options):
    settings = {"training": Published(), "n_epochs": 5, "random_state": 3}
    return SparseCodingClassifier(**settings).fit(*data(), **options)


@contextlib.contextmanager
def full_disk():
    """Let no file of this process grow beyond a few kilobytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def folder_content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def table(n_rows=120):
    """Return a table with holes whose `state` follows its `age`."""
    random = np.random.default_rng(0)
    age = random.integers(20, 90, n_rows).astype(float)
    frame = pd.DataFrame({"age": age, "blood": random.choice(["A", "B", "0"], n_rows)})
    frame["state"] = np.where(age > 55, "ill", "well")
    return frame.mask(random.random(frame.shape) < [0.2, 0.2, 0])


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return a folder with models and data larger than the full disk lets be written."""
    folder = tmp_path_factory.mktemp("models")
    frame = pd.concat([table()] * 8, ignore_index=True)
    frame.to_csv(folder / "table.csv", index=False)
    settings = {"n_epochs": 2, "random_state": 0}
    clf = TableClassifier(SparseCodingClassifier("mlp", **settings))
    clf.fit(frame.drop(columns="state"), frame["state"]).save(folder / "table.halfseen")
    X, y = data()
    np.savez(folder / "array.npz", X=np.tile(X, (8, 1)), y=np.tile(y, 8))
    array = SparseCodingClassifier("mlp", **settings).fit(X, y)
    array.save(folder / "array.halfseen")
    return folder


COMMANDS = {
    "fit": ["fit", "table.csv", "--target", "state", "--epochs", "2", "--out", "OUT.halfseen"],
    "predict to .csv": ["predict", "table.halfseen", "table.csv", "--out", "OUT.csv"],
    "predict to .parquet": ["predict", "table.halfseen", "table.csv", "--out", "OUT.parquet"],
    "impute a table": ["impute", "table.halfseen", "table.csv", "--out", "OUT.tsv"],
    "impute arrays": ["impute", "array.halfseen", "array.npz", "--out", "OUT.npz"],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("there_before", [False, True])
def test_commands_on_a_full_disk(
    command, there_before, models, tmp_path, monkeypatch, capsys, tried
):
    monkeypatch.chdir(models)
    arguments = [word.replace("OUT", str(tmp_path / "out")) for word in COMMANDS[command]]
    if there_before:
        Path(arguments[-1]).write_bytes(b"older")
    before = folder_content(tmp_path)
    with full_disk():
        assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"'{arguments[-1]}' could not be written: File too large" in said
    assert folder_content(tmp_path) == before
    assert main(arguments) == 0
    tried("commands on a full disk")


def test_reports_on_a_full_disk(tmp_path, capsys, tried):
    pytest.importorskip("matplotlib")
    from test_experiments import row_of

    found = [row_of(method, seed, 0.8) for method in ("Best", "ZF", "MU") for seed in range(40)]
    synthetic = {"experiment": "synthetic", "dataset": "synthetic K=4 d=0 P=200"}
    (tmp_path / "table1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))
    (tmp_path / "synthetic.jsonl").write_text(
        "".join(json.dumps(row | synthetic) + "\n" for row in found)
    )
    out = tmp_path / "page"
    out.mkdir()
    arguments = ["report", str(tmp_path), "--out", str(out / "page.html")]
    with full_disk():
        assert main(arguments) == 2
    said = capsys.readouterr().err
    assert "synthetic.png' could not be written: File too large" in said
    assert said.count("\n") == 1
    assert folder_content(out) == {}
    assert main(arguments) == 0
    before = folder_content(out)
    with full_disk():
        assert main(arguments) == 2
    assert folder_content(out) == before
    tried("commands on a full disk", 2)


def test_checkpoints_models_and_rows_on_a_full_disk(tmp_path, monkeypatch, tried):
    monkeypatch.setattr(loop, "_WRITING_SHARE", 1.0)
    checkpoint, model, written = (tmp_path / name for name in ("checkpoint", "model", "rows.jsonl"))
    clf = SparseCodingClassifier(n_epochs=3, random_state=0)
    with full_disk(), pytest.raises(OSError, match="checkpoint' could not be written: File too l"):
        clf.fit(*data(), checkpoint=checkpoint)
    assert not hasattr(clf, "module_")
    assert folder_content(tmp_path) == {}
    clf.fit(*data(), checkpoint=checkpoint).save(model)
    rows.append(written, {"a": 1})
    before = folder_content(tmp_path)
    with full_disk(), pytest.raises(OSError, match="model' could not be written"):
        clf.save(model)
    assert folder_content(tmp_path) == before
    with full_disk(), pytest.raises(OSError, match="rows.jsonl' could not be written"):
        rows.append(written, {"a": 2, "b": LIMIT * "long"})
    assert rows.read(written) == [{"a": 1}]
    rows.append(written, {"a": 3})
    assert rows.read(written) == [{"a": 1}, {"a": 3}]
    assert written.read_text().count("\n") == 2
    tried("files written to a full disk by the library", 3)


def test_a_disk_that_is_full_only_when_asked_to_keep(tmp_path, monkeypatch):
    """As disks do that find room for what was written later on."""
    path = tmp_path / "model"
    clf = fitted()
    clf.save(path)
    before = folder_content(tmp_path)

    def no_room(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, no_room)
            with pytest.raises(OSError, match="model' could not be written: No space left"):
                clf.save(path)
        assert folder_content(tmp_path) == before


def damaged(whole, random):
    """Return bytes of a file with flipped bits, cut off, overwritten, or with some repeated."""
    changed, place = bytearray(whole), int(random.integers(len(whole)))
    kind = random.choice(["flip", "cut", "zeros", "repeat", "empty"], p=[0.4, 0.3, 0.1, 0.15, 0.05])
    if kind == "flip":
        for spot in (place, *random.integers(len(whole), size=random.integers(3))):
            changed[spot] ^= 1 << int(random.integers(8))
    elif kind == "cut":
        del changed[place:]
    elif kind == "zeros":  # as after a power failure
        changed[place:] = bytes(len(whole) - place)
    elif kind == "repeat":
        changed[place:place] = whole[place : place + int(random.integers(1, 100))]
    return b"" if kind == "empty" else bytes(changed)


def test_damaged_checkpoints_are_refused(tmp_path, times, tried):
    """Or the damage is in white space, and the result is the same."""
    random = np.random.default_rng(0)
    path, n_refused, n_tried = tmp_path / "checkpoint", 0, times(200)
    X, y = data()
    clf = SparseCodingClassifier(n_epochs=2, random_state=0)
    expected = clf.fit(X, y, checkpoint=path).predict_proba(X)
    whole = path.read_bytes()
    for _ in range(n_tried):
        path.write_bytes(damaged(whole, random))
        fresh = SparseCodingClassifier(n_epochs=2, random_state=0)
        try:
            fresh.fit(X, y, checkpoint=path)
        except ValueError as error:
            n_refused += 1
            assert str(path) in str(error)  # noqa: PT017
            assert not hasattr(fresh, "module_")
        else:
            assert (fresh.predict_proba(X) == expected).all()
    assert n_refused > 0.9 * n_tried
    tried("damaged checkpoints", n_tried)


def test_other_things_in_the_place_of_a_checkpoint(tmp_path):
    X, y = data()
    clf = SparseCodingClassifier(n_epochs=2, random_state=0)
    path = tmp_path / "checkpoint"
    fitted().save(path)
    with pytest.raises(ValueError, match="is a classifier of halfseen; a checkpoint was expected"):
        clf.fit(X, y, checkpoint=path)
    path.unlink()
    fitted(checkpoint=path)
    with pytest.raises(ValueError, match="other data, settings"):
        clf.fit(X, y, checkpoint=path)
    path.unlink()
    path.mkdir()
    for seed in (0, None):
        with pytest.raises(ValueError, match="checkpoint' is a folder; a file was expected"):
            clf.set_params(random_state=seed).fit(X, y, checkpoint=path)
    with pytest.raises(ValueError, match="is a folder"):
        fitted().save(path)
    assert not hasattr(clf, "module_")
