"""Model files and checkpoints from strangers: nothing is executed, errors are one clear line."""

import contextlib
import json
import math
import os
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hostile import (
    ODD,
    change,
    forged,
    huge_files,
    mutated,
    pickled_files,
    raw,
    repaired,
    twisted,
)

from halfseen import Patches, SparseCodingClassifier, TableClassifier, storage
from halfseen.cli import main
from halfseen.training import loop

KINDS = ("classifier", "table classifier", "checkpoint")


def data():
    draw = np.random.default_rng(0)
    X = draw.standard_normal((40, 5))
    y = np.where(X[:, 0] > 0, "up", "down")
    X[draw.random(X.shape) < 0.3] = np.nan
    return X, y


def table():
    X, _ = data()
    frame = pd.DataFrame(X[:, :2], columns=["a", "b"])
    return frame.assign(kind=["x", "y", None, "z"] * 10, day=pd.Timestamp("2020-01-01"), yes=True)


def training(**settings):
    return SparseCodingClassifier("mlp", training="joint", n_epochs=3, random_state=0, **settings)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return a whole file of each kind; the checkpoint is of a training that was interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    found = {kind: folder / kind.replace(" ", "_") for kind in KINDS}
    X, y = data()
    SparseCodingClassifier("mlp", n_epochs=2, random_state=0).fit(X, y).save(found["classifier"])
    inner = SparseCodingClassifier("mlp", n_epochs=2, random_state=0)
    TableClassifier(inner).fit(table(), y).save(found["table classifier"])

    save = loop._save

    def save_then_stop(*arguments):
        save(*arguments)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(loop, "_save", save_then_stop)
        training(validation_fraction=0.2).fit(X, y, checkpoint=found["checkpoint"])
    return found


def load(kind, path):
    """Return a classifier and what it can be asked about."""
    X, y = data()
    if kind == "checkpoint":
        return training(validation_fraction=0.2).fit(X, y, checkpoint=path), X
    cls = SparseCodingClassifier if kind == "classifier" else TableClassifier
    return cls.load(path), X if kind == "classifier" else table()


def refused(kind, path):
    """Return the one line that loading a file ends in, None if it can be loaded."""
    try:
        clf, X = load(kind, path)
    except ValueError as error:
        message = str(error)
        assert len(message) < 700
        assert message.isprintable(), repr(message)
        return message
    # Weights may be too large for answers, and columns have other names than ours.
    with contextlib.suppress(ValueError), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X has feature names")
        probability = clf.predict_proba(X)
        assert probability.shape == (len(X), len(clf.classes_))
        assert np.isfinite(probability).all()
        assert clf.impute(X).shape == X.shape
    return None


def test_pickles_are_not_executed(files, tmp_path, tried, capsys):
    marker = tmp_path / "executed"
    folder = tmp_path / "evil"
    folder.mkdir()
    evil = pickled_files(folder, marker)
    whole = files["classifier"].read_bytes()
    for name, content in (("before", pickle.dumps(ODD[:5])), ("after", b"")):
        path = folder / f"pickle {name} a model"
        path.write_bytes(content + evil[4].read_bytes() + whole)
        evil.append(path)
    for path in evil:
        for kind in KINDS:
            assert "no file of halfseen" in refused(kind, path)
        assert main(["info", str(path)]) == 2
        assert capsys.readouterr().err.count("\n") == 1
        assert not marker.exists()
    pickle.loads(next(path for path in evil if path.name == "plain.pickle").read_bytes())
    assert marker.exists()  # they were live
    tried("model files with pickles in them, read", len(evil) * (len(KINDS) + 1))


@pytest.mark.parametrize("kind", KINDS)
def test_mutated_files_end_in_one_clear_line_or_work_as_before(kind, files, tmp_path, tried, times):
    whole, path = files[kind].read_bytes(), tmp_path / "file"
    path.write_bytes(whole)
    clf, X = load(kind, path)
    expected = clf.predict_proba(X)
    n_tried = times(100, 1000)
    n_refused = n_repaired = n_repaired_refused = 0
    for seed in range(n_tried):
        path.write_bytes(mutated(whole, f"{kind} {seed}"))
        again = repaired(path)
        message = refused(kind, path)
        n_refused += message is not None
        if message is None:  # white space, or what was changed was changed back
            path.write_bytes(mutated(whole, f"{kind} {seed}"))
            np.testing.assert_array_equal(load(kind, path)[0].predict_proba(X), expected)
        if again is not None:
            path.write_bytes(again)
            n_repaired += 1
            n_repaired_refused += refused(kind, path) is not None
    assert n_refused > 0.9 * n_tried
    assert n_repaired >= 5
    assert n_repaired_refused > 0
    tried("mutated real files (bits, cut-offs, insertions, blocks), read", n_tried)
    tried("mutated real files with a repaired checksum, read", n_repaired)


@pytest.mark.parametrize("kind", KINDS)
def test_files_with_one_odd_setting_or_tensor(kind, files, tmp_path, tried, times):
    tree, path = storage.read(files[kind], kind), tmp_path / "file"
    n_tried, n_refused = times(300, 3000), 0
    for seed in range(n_tried):
        storage.write(path, kind, twisted(tree, f"{kind} {seed}"))
        n_refused += refused(kind, path) is not None
    assert n_refused > n_tried / 2
    tried("files with a right checksum and one odd setting or tensor, read", n_tried)


MISFITS = {
    "NaN weights": (("weights", "network.1.weight"), lambda old: old * math.nan, "not finite"),
    "infinite atoms": (("weights", "completion.atoms"), lambda old: old / 0, "not finite"),
    "narrow weights": (("weights", "network.1.bias"), lambda old: old.half(), "float16"),
    "whole weights": (("weights", "network.1.bias"), lambda old: old.long(), "int64"),
    "other weights": (("weights", "network.1.bias"), lambda old: old[:-1], "shape"),
    "no scale": (("weights", "standardise.scale"), lambda old: 0 * old, "positive"),
    "one more tensor": (("weights", "network.9.weight"), lambda _: torch.ones(1), "not known"),
    "another network": (("parameters", "network"), lambda _: "logistic", "shape"),
    "no such network": (("parameters", "network"), lambda _: "os.system", "must be one of"),
    "images": (("parameters", "network"), lambda _: "resnet18", "needs images"),
    "more atoms": (("parameters", "n_atoms"), lambda _: 10**12, "shape"),
    "tiles": (("parameters", "tiling"), lambda _: {"name": "Channels"}, "Channels"),
    "a class of Python": (("parameters", "tiling"), lambda _: {"name": "Popen"}, "Popen"),
    "another shape": (("sample_shape",), lambda _: [10**6, 10**6], "shape"),
    "one more class": (("classes", "values"), lambda old: [*old, "c"], "shape"),
    "a class twice": (("classes", "values"), lambda _: ["a", "a"], "twice"),
    "wide labels": (("classes", "values"), lambda _: ["a", "b" * 2**24], "too much text"),
    "no history": (("history",), lambda _: [], "records"),
    "wrong ranges": (("background", "low"), lambda old: old + 1e9, "negative"),
    "other features": (("n_features_in",), lambda _: 4, "features"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISFITS)
def test_settings_that_do_not_fit_the_weights(case, files, tmp_path, tried):
    keys, make, words = MISFITS[case]
    tree = storage.read(files["classifier"], "classifier")
    old = tree
    for key in keys:
        old = old.get(key)
    change(tree, *keys, to=make(old))
    storage.write(tmp_path / "file", "classifier", tree)
    assert words in refused("classifier", tmp_path / "file")
    tried("settings that do not fit the weights, refused")


def test_tensors_that_nothing_names_or_that_are_named_twice(files, tmp_path):
    for kind in KINDS:
        tree = storage.read(files[kind], kind)
        tensors = {}
        content = {"kind": kind, "version": 1, "tree": storage._split(tree, tensors, "")}
        path = tmp_path / "file"
        path.write_bytes(forged(content, {**tensors, "../../etc/passwd": torch.ones(2)}))
        assert "nothing names the tensor ../../etc/passwd" in refused(kind, path)
        content["tree"]["again"] = {"__tensor__": min(tensors)}
        path.write_bytes(forged(content, tensors))
        assert "no file of halfseen" in refused(kind, path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file"]


def test_odd_contents_of_the_json_text(tmp_path, tried):
    texts = [
        "[" * 100_000, '{"version": ' + "[" * 100_000 + "]" * 100_000 + "}", "9" * 10_000,
        '{"version": ' + "9" * 10_000 + "}", "null", '"text"', "NaN", "{}", '{"version": 1}',
        '{"version": true, "kind": "classifier", "tree": {}, "checksum": ""}',
        '{"version": 1, "kind": ["classifier"], "tree": {}, "checksum": ""}',
        '{"version": 1, "kind": "classifier", "tree": [], "checksum": null}',
        '{"version": 1, "kind": "classifier", "tree": {}, "checksum": ""}',
        '{"version": 1, "kind": "\\u001b[2J\\n", "tree": {}, "checksum": ""}',
        '{"version": 1, "kind": "' + "long" * 10_000 + '", "tree": {}, "checksum": ""}',
        '{"version": 99, "kind": "classifier"}',
    ]  # fmt: skip
    for text in texts:
        (tmp_path / "file").write_bytes(raw({"__metadata__": {"halfseen": text}}))
        for kind in KINDS:
            assert refused(kind, tmp_path / "file") is not None
    tree = {"a": 1}
    for _ in range(400):
        tree = {"a": tree}
    storage.write(tmp_path / "deep", "classifier", tree)
    assert "whole classifier" in refused("classifier", tmp_path / "deep")
    tried("files with an odd JSON text, refused", len(texts) * len(KINDS) + 1)


MEASURE = """
import json, sys
from halfseen import SparseCodingClassifier

def peak():
    with open("/proc/self/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return [int(lines[key].split()[0]) * 1024 for key in ("VmPeak", "VmHWM")]

good, *evil = sys.argv[1:]
SparseCodingClassifier.load(good)
found = {}
for path in evil:
    before = peak()
    try:
        SparseCodingClassifier.load(path)
        message = None
    except ValueError as error:
        message = str(error)
    found[path] = message, *(b - a for a, b in zip(before, peak()))
print(json.dumps(found))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read from /proc")
def test_files_that_promise_much_take_no_memory(files, tmp_path, tried):
    evil = huge_files(tmp_path, files["classifier"])
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(files["classifier"]), *map(str, evil)],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert len(found) == len(evil)
    for path in evil:
        message, claimed, touched = found[str(path)]
        harmless = path.name in ("forged batch", "forged wide classes")  # used by nothing
        assert harmless or message is not None, path.name
        if message is not None:
            assert message.isprintable()
        size = path.stat().st_size
        assert claimed < 2**26 + 40 * size, (path.name, claimed)
        assert touched < 2**26 + 40 * size, (path.name, touched)
    tried("files that promise more than they hold, memory measured", len(evil))


def test_a_loaded_model_does_not_change_with_its_file(files, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(files["classifier"].read_bytes())
    clf = SparseCodingClassifier.load(path)
    X, _ = data()
    questions = (
        lambda: clf.predict_proba(X),
        lambda: clf.completion_error_.copy(),
        lambda: clf.feature_range_.copy(),
    )
    before = [ask() for ask in questions]
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    with path.open("r+b") as file:
        file.truncate(10)
    for ask, expected in zip(questions, before, strict=True):
        np.testing.assert_array_equal(ask(), expected)


def test_links_in_place_of_model_files(files, tmp_path, tried):
    clf = SparseCodingClassifier.load(files["classifier"])
    X, _ = data()
    other, link = tmp_path / "other", tmp_path / "link"
    link.symlink_to(other)
    clf.save(link)  # to nothing: the file appears where the link points
    assert link.is_symlink()
    assert not other.is_symlink()
    np.testing.assert_array_equal(
        SparseCodingClassifier.load(link).predict_proba(X), clf.predict_proba(X)
    )
    (tmp_path / "folder").mkdir()
    (tmp_path / "to folder").symlink_to(tmp_path / "folder")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "to nowhere").symlink_to(tmp_path / "nowhere" / "file")
    for name in ("to folder", "folder", "loop", "to nowhere"):
        before = sorted(tmp_path.iterdir())
        with pytest.raises((OSError, ValueError), match=name.removeprefix("to ")):
            clf.save(tmp_path / name)
        with pytest.raises((OSError, ValueError), match="there is no file|is a folder"):
            SparseCodingClassifier.load(tmp_path / name)
        assert sorted(tmp_path.iterdir()) == before
        assert list((tmp_path / "folder").iterdir()) == []
    os.mkfifo(tmp_path / "pipe")
    for use in (SparseCodingClassifier.load, clf.save):
        with pytest.raises(ValueError, match="is a pipe or a device"):
            use(tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()
    tried("links and pipes in place of model files", 8)


def test_patches_that_fill_the_memory_are_refused():
    with pytest.raises(ValueError, match="263169 patches, more than fit into memory"):
        Patches(512, stride=1).layout((1, 1024, 1024))
    assert Patches(8, stride=1).layout((3, 64, 64)).shape == (57 * 57, 192)
