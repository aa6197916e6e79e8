"""Files of every kind into every command: it works, or one line says why not."""

import contextlib
import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from odd_files import USUAL, as_text, contents, place_data, place_out
from odd_input import REFUSED, often, watching

from halfseen import SparseCodingClassifier, TableClassifier, datasets
from halfseen.cli import main
from halfseen.cli.app import app

ODD_OPTIONS = {
    "--network": ("logistic", "resnet19", ""),
    "--device": ("cpu", "cuda:99", "tpu", ""),
    "--missing": ("50", "A", "", "nan", "1e999"),
    "--seed": ("0", "4294967296", "-1", "x"),
    "--nothing": ("",),
}
RESPECTS = st.sets(
    st.sampled_from(("content", "ending", "place", "pictures", "out", "target", "model", "option")),
    max_size=2,
)
KINDS = st.sampled_from(("table", "table", "table", "rows", "rows", "images", "pictures"))


def run(arguments, folder):
    """Run a command; return its status, or fail where it does not fail as it should."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([str(argument) for argument in arguments])
    said = err.getvalue()
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    new = {path: content for path, content in after.items() if before.get(path) != content}
    if status == 0:
        assert not said, said
        return status, out.getvalue(), new
    assert status == 2
    assert said.startswith("halfseen: "), said
    assert said.find("\n") == len(said) - 1, f"more than a line: {said!r}"
    assert "see --debug" not in said, said  # an error that nobody thought of
    assert not new, f"{list(new)} appeared though {said!r}"
    return status, said, new


def check(arguments, folder, tried):
    status, said, new = run(arguments, folder)
    tried(f"commands with odd files that {'failed in one line' if status else 'worked'}")
    return (REFUSED if status else said), new


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Files of models of each kind of data, and one that holds none."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "table.csv").write_text(as_text(USUAL), encoding="utf-8")
    random = np.random.default_rng(0)
    np.savez(folder / "rows.npz", X=random.random((8, 3)), y=np.arange(8) % 2)
    np.savez(folder / "images.npz", X=random.random((6, 1, 8, 8)), y=np.arange(6) % 2)
    for data, target in (("table.csv", "state"), ("rows.npz", "y"), ("images.npz", "y")):
        arguments = ["--target", target, "--epochs", "1", "--out", folder / Path(data).stem]
        assert main([*map(str, ("fit", folder / data, *arguments))]) == 0
    (folder / "none").write_bytes(b"no model")
    return {name: folder / name for name in ("table", "rows", "images", "none")}


def options(data, odd, *names):
    if "option" not in odd:
        return []
    name = data.draw(st.sampled_from(names))
    return [name, data.draw(st.sampled_from(ODD_OPTIONS[name]))]


def target_of(data, odd, kind):
    if "target" in odd:
        return data.draw(st.sampled_from((["--target", "age"], ["--target", "X"], [])))
    return ["--target", "state"] if kind == "table" else []


def test_fit_and_compare(tried, request):
    @often(40, request)
    @given(KINDS, RESPECTS, st.data())
    def one(kind, odd, data):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name).resolve()
            path = place_data(folder, data, kind, odd)
            out = place_out(folder, data, ".model", odd)
            more = options(data, odd, "--network", "--device", "--missing", "--seed", "--nothing")
            arguments = [path, *target_of(data, odd, kind), "--out", out, *more]
            # So many folds that comparing ends after reading: it takes long.
            said, _ = check(["compare", *arguments, "--folds", 40], folder, tried)
            assert said is REFUSED
            said, new = check(["fit", *arguments, "--epochs", 1], folder, tried)
            if said is not REFUSED:
                assert list(new) == [out]
                said, _ = check(["info", out, "--json"], folder, tried)
                assert len(json.loads(said)["classes"]) > 1

    one()


def test_predict_and_impute(models, tried, request):
    @often(90, request)
    @given(KINDS, RESPECTS, st.data())
    def one(kind, odd, data):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name).resolve()
            path = place_data(folder, data, kind, odd)
            model = models["images" if kind == "pictures" else kind]
            if "model" in odd:
                model = data.draw(st.sampled_from([*models.values(), folder, path]))
            out = place_out(folder, data, data.draw(st.sampled_from((".csv", ".parquet"))), odd)
            more = options(data, odd, "--device", "--missing", "--nothing")
            target = target_of(data, odd, kind) if data.draw(st.booleans()) else []
            said, new = check(["predict", model, path, "--out", out, *target, *more], folder, tried)
            if said is not REFUSED:
                assert list(new) == [out]
                check_labels(read(out))
            out = out if kind == "table" else out.with_suffix(".npz")
            said, new = check(["impute", model, path, "--out", out, *more], folder, tried)
            if said is not REFUSED:
                assert list(new) == [out]
                check_filled(out)
            check(["info", model], folder, tried)

    one()


def read(path):
    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    return pd.read_csv(path, sep="\t" if path.suffix == ".tsv" else ",")


def check_labels(table):
    share = table.filter(regex="^probability of ").to_numpy()
    np.testing.assert_allclose(share.sum(1), 1)
    assert table["label"].notna().all()
    assert table["certain"].dtype == bool


def check_filled(path):
    if path.suffix == ".npz":
        with np.load(path) as archive:
            assert np.isfinite(archive["X"]).all()
    else:
        assert not read(path)[["age", "blood", "day"]].isna().any(axis=None)


def test_experiments(tried, request):
    value = st.sampled_from(("mnist", 1, 0.5, None, [], "<b>", True, "synthetic K=4 d=0 P=100"))
    keys = ("dataset", "variant", "mechanism", "rate", "method", "network", "seed", "accuracy")
    row = st.one_of(st.dictionaries(st.sampled_from(keys), value), st.just(4), st.text(max_size=5))
    line = st.one_of(row.map(json.dumps), st.text(max_size=9))
    only = st.sampled_from(("seed=99", "x=1", "x", "=", "dataset=", "seed=nan", "rate=1e999"))

    @often(60, request)
    @given(st.data())
    def one(data):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            experiment = data.draw(st.sampled_from(("table2", "synthetic", "table9", "tuning")))
            lines = "\n".join(data.draw(st.lists(line, max_size=4)))
            (folder / f"{experiment}.jsonl").write_text(lines, encoding="utf-8", errors="replace")
            out = place_out(folder, data, ".html", data.draw(RESPECTS))
            check(["report", folder, "--out", out], folder, tried)
            more = ["--only", data.draw(only), *options(data, {"option"}, "--device", "--nothing")]
            check(["reproduce", experiment, "--out", folder, *more], folder, tried)

    one()


def test_data_sets(tried, request):
    watched = watching(tried, "odd files of data sets")

    @often(60, request)
    @given(st.data())
    def one(data):
        with tempfile.TemporaryDirectory() as name:
            path = place_data(Path(name), data, "table", {"content"})
            refuses = (ValueError, TypeError, FileNotFoundError)
            watched(datasets.table, path, "state", refuses=refuses)
            for read in (datasets.mnist, datasets.fashion_mnist, datasets.cifar10):
                (Path(name) / f"{read.__name__}.npz").write_bytes(data.draw(contents())[0])
                assert watched(read, name, refuses=refuses) is REFUSED

    one()


def test_model_files(models, tried, request):
    watched = watching(tried, "odd files of models")
    clf, table = SparseCodingClassifier.load(models["rows"]), TableClassifier.load(models["table"])

    @often(40, request)
    @given(RESPECTS, st.data())
    def one(odd, data):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name).resolve()
            path = place_data(folder, data, "rows", {"content", *odd})
            out = place_out(folder, data, "", odd)
            for model in (clf, table):
                assert watched(type(model).load, path, refuses=(ValueError, OSError)) is REFUSED
                there = out.read_bytes() if out.is_file() else None
                if watched(model.save, out, refuses=(ValueError, OSError)) is not REFUSED:
                    assert len(type(model).load(out).classes_) == 2
                else:
                    assert not (there is None and out.is_file())
                    assert there is None or out.read_bytes() == there
                assert not list(folder.glob(".*"))

    one()


def test_the_demonstration_asks_for_a_place_first(tmp_path, tried):
    (tmp_path / "file").write_bytes(b"")
    for place in (tmp_path, tmp_path / "file" / "page.html"):
        said, _ = check(["demo", "--out", place], tmp_path, tried)
        assert said is REFUSED


def test_commands_as_programs(models, tmp_path, tried):
    (tmp_path / "data.csv").write_bytes(b'a,"b\n1,2\n\xff')
    commands = (
        ["fit", "data.csv", "--out", "out", "--target", "a"],
        ["predict", str(models["table"]), "data.csv", "--out", "out.csv"],
        ["info", "data.csv"],
    )
    for arguments in commands:
        done = subprocess.run(
            [sys.executable, "-m", "halfseen", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 2
        assert done.stderr.startswith("halfseen: ")
        assert done.stderr.count("\n") == 1
        assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]
        tried("commands with odd files that failed in one line")


def test_every_command_is_tried():
    tried_here = {"demo", "fit", "predict", "impute", "compare", "info", "reproduce", "report"}
    assert {command.callback.__name__ for command in app.registered_commands} == tried_here
