"""The command line, from files to files."""

import gzip
import json
import os
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import ExifTags, Image
from sklearn.datasets import load_digits

from halfseen import SparseCodingClassifier, TableClassifier, ampute
from halfseen.cli import main
from halfseen.cli.data import read_labelled


def table(n=120, seed=0):
    random = np.random.default_rng(seed)
    ill = random.random(n) < 0.5
    frame = pd.DataFrame(
        {
            "age": np.where(ill, 65, 40) + random.integers(-9, 9, n),
            "blood": np.where(random.random(n) < 0.8, np.where(ill, "A", "B"), "AB"),
            "dose": random.random(n).round(3),
        }
    )
    frame = frame.mask(random.random(frame.shape) < 0.15)
    return frame.assign(state=np.where(ill, "ill", "well"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a table, a model learned from it, and new rows."""
    folder = tmp_path_factory.mktemp("cli")
    table().to_csv(folder / "train.csv", index=False)
    table(seed=1).to_csv(folder / "new.csv", index=False)
    arguments = ["--target", "state", "--out", str(folder / "model")]
    assert main(["fit", str(folder / "train.csv"), *arguments]) == 0
    return folder


def test_from_a_table_to_labels(trained, tmp_path, capsys):
    out = tmp_path / "labels.csv"
    arguments = [str(trained / "model"), str(trained / "new.csv"), "--out", str(out), "--json"]
    assert main(["predict", *arguments, "--target", "state"]) == 0
    record = json.loads(capsys.readouterr().out)
    found, new = pd.read_csv(out), table(seed=1)
    assert list(found.columns) == [
        "label", "probability of ill", "probability of well", "certain", "possible",
    ]  # fmt: skip
    assert record["rows"] == len(found) == len(new)
    assert record["certain"] == found["certain"].sum()
    assert record["accuracy"] == pytest.approx((found["label"] == new["state"]).mean())
    assert record["accuracy"] > 0.8
    clf = TableClassifier.load(trained / "model")
    np.testing.assert_array_equal(found["label"], clf.predict(new.drop(columns="state")))
    certain = found[found["certain"]]
    assert (certain["possible"] == certain["label"]).all()


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_filled_tables_keep_columns_and_types(trained, tmp_path, ending, capsys):
    out = tmp_path / f"filled.{ending}"
    assert (
        main(["impute", str(trained / "model"), str(trained / "new.csv"), "--out", str(out)]) == 0
    )
    reader = {"csv": pd.read_csv, "tsv": lambda p: pd.read_csv(p, sep="\t")}
    found = reader.get(ending, pd.read_parquet)(out)
    new = pd.read_csv(trained / "new.csv")
    assert list(found.columns) == list(new.columns)  # also those that the model does not take
    assert not found.isna().any(axis=None)
    for name in new:
        seen = new[name].notna()
        np.testing.assert_array_equal(found[name][seen], new[name][seen])
    assert (found["age"] % 1 == 0).all()
    assert f"{new.isna().sum().sum()} holes filled" in capsys.readouterr().out


def test_info_says_what_a_model_is(trained, capsys):
    assert main(["info", str(trained / "model"), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["classes"] == ["ill", "well"]
    assert record["columns"] == ["age (number)", "blood (category)", "dose (number)"]
    assert main(["info", str(trained / "model")]) == 0
    assert "blood (category)" in capsys.readouterr().out


def test_spellings_of_missing_values(tmp_path, capsys):
    frame = table().astype(object)
    odd = frame.copy()
    odd["age"] = frame["age"].fillna(-999)
    odd["blood"] = frame["blood"].fillna("unknown")
    odd["dose"] = frame["dose"].fillna(" ? ")
    for name, given in (("plain", frame), ("odd", odd)):
        given.to_csv(tmp_path / f"{name}.csv", index=False)
        arguments = [str(tmp_path / f"{name}.csv"), "--target", "state", "--epochs", "5"]
        arguments += ["--out", str(tmp_path / name)]
        assert main(["fit", *arguments, "--missing", "-999", "--missing", "unknown"]) == 0
    new = frame.drop(columns="state")
    one, other = (TableClassifier.load(tmp_path / name) for name in ("plain", "odd"))
    np.testing.assert_array_equal(
        one.predict_proba(new.infer_objects()), other.predict_proba(new.infer_objects())
    )


def test_archives_with_nan_or_observed(tmp_path):
    X, y = load_digits(return_X_y=True)
    X, y = X[:300], y[:300]
    holes = ampute(X, "random", 0.3, random_state=0)
    np.savez(tmp_path / "nan.npz", X=holes, y=y)
    np.savez(tmp_path / "observed.npz", X=X, y=y, observed=~np.isnan(holes))
    filled = []
    for name in ("nan", "observed"):
        data, model, out = (str(tmp_path / f"{name}{end}") for end in (".npz", "", "_filled.npz"))
        assert main(["fit", data, "--out", model, "--epochs", "5"]) == 0
        assert main(["impute", model, data, "--out", out]) == 0
        filled.append(np.load(out)["X"])
    np.testing.assert_array_equal(*filled)
    np.testing.assert_array_equal(filled[0][~np.isnan(holes)], holes[~np.isnan(holes)])


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Folders of digits 0 and 1: holes by masks, transparency and NaN."""
    folder = tmp_path_factory.mktemp("pictures")
    X, y = load_digits(return_X_y=True)
    random = np.random.default_rng(0)
    for digit in (0, 1):
        (folder / f"class {digit}").mkdir()
        for number, row in enumerate(X[y == digit][:30]):
            image = (row.reshape(8, 8) * 15.9).astype(np.uint8)
            seen = random.random((8, 8)) > 0.3
            path = folder / f"class {digit}" / f"{number:02d}.png"
            if number % 3 == 0:
                Image.fromarray(image).save(path)
                Image.fromarray(seen.astype(np.uint8) * 255).save(path.with_suffix(".mask.png"))
            elif number % 3 == 1:
                both = np.dstack([image, seen.astype(np.uint8) * 255])
                Image.fromarray(both, "LA").save(path)
            else:
                np.save(path.with_suffix(".npy"), np.where(seen, image / 255, np.nan))
    return folder


@pytest.mark.filterwarnings("ignore:'mode' parameter:DeprecationWarning")
def test_folders_of_images(pictures, tmp_path, capsys):
    model, labels = str(tmp_path / "model"), tmp_path / "labels.csv"
    assert main(["fit", str(pictures), "--out", model, "--epochs", "15"]) == 0
    arguments = ["predict", model, str(pictures), "--out", str(labels), "--no-certificates"]
    assert main([*arguments, "--target", "folder", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["accuracy"] > 0.9
    found = pd.read_csv(labels)
    assert found["name"][0] == "class 0/00.png"
    assert len(found) == 60
    assert set(found["label"]) == {"class 0", "class 1"}
    out = tmp_path / "filled.npz"
    assert main(["impute", model, str(pictures), "--out", str(out)]) == 0
    filled = np.load(out)
    assert filled["X"].shape == (60, 1, 8, 8)
    assert not np.isnan(filled["X"]).any()
    assert filled["names"][0] == "class 0/00.png"


def test_an_index_that_pandas_wrote_is_not_learned_from_and_stays(tmp_path):
    data, new, out = (tmp_path / name for name in ("train.csv", "new.csv", "filled.csv"))
    table().to_csv(data)  # its first column has no name
    assert main(["fit", str(data), "--target", "state", "--out", str(tmp_path / "m")]) == 0
    assert list(TableClassifier.load(tmp_path / "m").feature_names_in_) == ["age", "blood", "dose"]
    table(seed=1)[:9].to_csv(new)
    assert main(["impute", str(tmp_path / "m"), str(new), "--out", str(out)]) == 0
    assert out.read_text().splitlines()[0] == new.read_text().splitlines()[0]
    assert pd.read_csv(out, index_col=0).index.tolist() == list(range(9))


def test_columns_that_the_model_does_not_take_may_have_one_name_or_none(trained, tmp_path):
    model, new, out = str(trained / "model"), tmp_path / "new.csv", tmp_path / "out.csv"
    new.write_text("zz,age,NA,blood,zz,dose,,\n1,50,2,A,3,,x,\n2,,3,B,4,0.5,,y\n")
    assert main(["impute", model, str(new), "--out", str(out)]) == 0
    lines = out.read_text().splitlines()
    assert lines[0] == "zz,age,NA,blood,zz,dose,,"
    assert [line.split(",")[0] + line.split(",")[4] for line in lines[1:]] == ["13", "24"]
    assert main(["predict", model, str(new), "--out", str(out)]) == 0


def test_what_parquet_cannot_hold_is_said_in_one_line(trained, tmp_path, capsys):
    new, out = tmp_path / "new.csv", tmp_path / "out.parquet"
    for text in ("zz,zz,age,blood,dose\n1,2,50,A,\n", f"age,blood,dose\n{'9' * 40},A,1\n,B,\n"):
        new.write_text(text)
        assert main(["impute", str(trained / "model"), str(new), "--out", str(out)]) == 2
        said = capsys.readouterr().err
        assert "out.parquet' cannot be written as Parquet: " in said
        assert said.endswith("; take .csv.\n")
        assert not out.exists()


def test_empty_lines_of_one_column_are_holes(tmp_path):
    data, new = tmp_path / "train.csv", tmp_path / "new.csv"
    table()[["age", "state"]].to_csv(data, index=False)
    model, out = str(tmp_path / "m"), tmp_path / "out.csv"
    assert main(["fit", str(data), "--target", "state", "--out", model]) == 0
    new.write_text("age\n50\n\n60\n\n70\n")
    for command, n_rows in (("predict", 5), ("impute", 5)):
        assert main([command, model, str(new), "--out", str(out)]) == 0
        assert len(pd.read_csv(out)) == n_rows


def broken(folder):
    """Files that cannot be used, with the command and what is said about it."""
    train = table()
    train.to_csv(folder / "good.csv", index=False)
    train.drop(columns="age").to_csv(folder / "narrow.csv", index=False)
    train.assign(state="odd").to_csv(folder / "odd.csv", index=False)
    train.assign(age="old").to_csv(folder / "words.csv", index=False)
    train.assign(state=None).to_csv(folder / "unlabelled.csv", index=False)
    train.assign(state=["x"] + ["y"] * 119).to_csv(folder / "rare.csv", index=False)
    train[:0].to_csv(folder / "no_rows.csv", index=False)
    (folder / "empty.csv").write_bytes(b"")
    (folder / "latin.csv").write_bytes("größe,state\n1,a\n".encode("latin-1"))
    (folder / "packed.csv").write_bytes(gzip.compress(b"age,state\n1,a\n"))
    (folder / "quotes.csv").write_text('a,state\n"1,x\n2,y\n')
    (folder / "twice.csv").write_text("y,a,y\n1,2,3\n")
    (folder / "nameless.csv").write_text("a,state,,\n1,x,,\n2,y,,\n")
    (folder / "semicolons.csv").write_text("a;state\n1,5;x\n2,5;y\n")
    (folder / "late.csv").write_text("\nage\n1\n")
    (folder / "long.csv").write_text("a,state\n1,x,3\n2,y,4\n")
    (folder / "text.npz").write_text("no archive")
    (folder / "text.parquet").write_text("no table")
    np.savez(folder / "lonely.npz", X=np.ones((3, 2)))
    (folder / "pictures").mkdir()
    (folder / "bad").mkdir()
    (folder / "bad" / "a").mkdir()
    (folder / "bad" / "a" / "x.png").write_text("no picture")
    fit, model = ["--out", "m", "--target", "state"], ["MODEL", "--out", "o.csv"]
    return [
        ("fit", ["good.csv", "--out", "m"], "name its column of labels with --target"),
        ("fit", ["good.csv", "--out", "m", "--target", "colour"], "has no column 'colour'"),
        ("fit", ["absent.csv", *fit], "absent.csv"),
        ("fit", ["empty.csv", *fit], "'empty.csv' cannot be read as a table"),
        ("fit", ["no_rows.csv", *fit], "has 0 rows"),
        ("fit", ["unlabelled.csv", *fit], "has no label in 120 rows, the first is row 0"),
        ("fit", ["latin.csv", *fit], "'latin.csv' cannot be read as a table"),
        ("fit", ["packed.csv", *fit], "; it is compressed, unpack it"),
        ("fit", ["quotes.csv", *fit], "'quotes.csv'"),
        ("fit", ["twice.csv", *fit], "has the column 'y' more than once"),
        ("fit", ["nameless.csv", *fit], "its columns 3, 4 have no name; name or remove them"),
        ("fit", ["semicolons.csv", *fit], "is one field, 'a;state'; separate fields by commas"),
        ("predict", ["late.csv", *model], "begins with an empty line"),
        ("fit", ["long.csv", *fit], "more fields than its header"),
        ("fit", ["text.npz", "--out", "m"], "'text.npz' is not an archive"),
        ("fit", ["lonely.npz", "--out", "m"], "has no array 'y'"),
        ("fit", ["text.parquet", *fit], "'text.parquet' cannot be read as a table"),
        ("fit", ["pictures", "--out", "m"], "'pictures' has no images"),
        ("fit", ["bad", "--out", "m"], "cannot be read as an image"),
        ("fit", ["good.csv", "--out", "no/m", "--target", "state"], "there is no folder"),
        ("fit", ["good.xls", *fit], "must end in .csv, .tsv or .parquet"),
        ("fit", ["good.csv", *fit, "--network", "brain"], "brain"),
        ("fit", ["odd.csv", *fit], "has one label only, 'odd'"),
        ("predict", ["narrow.csv", *model], "'narrow.csv' has no column 'age'"),
        ("predict", ["words.csv", *model], "'words.csv': column 'age' has numbers; got 'old'"),
        ("predict", ["odd.csv", *model, "--target", "state"], "has the label 'odd' in row 0"),
        ("predict", ["good.csv", "MODEL", "--out", "o.txt"], "must end in .csv, .tsv"),
        ("predict", ["good.csv", "good.csv", "--out", "o.csv"], "is no file of halfseen"),
        ("impute", ["good.csv", "MODEL", "--out", "o.npz"], "must end in .csv or .tsv"),
        ("compare", ["rare.csv", "--target", "state"], "folds need at least two classes"),
    ]  # fmt: skip


def test_errors_are_one_line_and_leave_nothing_behind(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cases = broken(tmp_path)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    for command, arguments, message in cases:
        if command in ("predict", "impute"):  # the model comes first
            arguments = [arguments[1].replace("MODEL", str(trained / "model")), *arguments]
            del arguments[2]
        assert main([command, *arguments]) == 2, (command, arguments)
        said = capsys.readouterr().err
        assert message in said, (command, arguments, said)
        assert said.count("\n") == 1
        assert "Traceback" not in said
        assert sorted(path.name for path in tmp_path.rglob("*")) == before, (command, arguments)


@pytest.mark.parametrize("place", ["halfseen.cli.app.run", "halfseen.cli.models.load_model"])
def test_a_command_that_is_stopped_says_so(trained, place, monkeypatch, capsys):
    """Before a command begins, and within one."""

    def stopped(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(place, stopped)
    assert main(["info", str(trained / "model")]) == 130
    assert capsys.readouterr().err == "halfseen: stopped.\n"


def test_debug_shows_where_an_error_came_from(tmp_path):
    with pytest.raises(FileNotFoundError):
        main(["info", str(tmp_path / "absent"), "--debug"])


def test_compare_gives_advice_and_escapes_names(tmp_path, capsys):
    frame = table(90).rename(columns={"dose": "<script>alert(1)</script>"})
    frame["state"] = frame["state"].replace("ill", "<b>ill</b>")
    frame["typo"] = ["soon", *[f"2024-01-{1 + day % 28:02d}" for day in range(89)]]  # in one fold
    frame["rare"] = [1.5] + [None] * 89
    path = tmp_path / "a<i>b.csv"
    frame.to_csv(path, index=False)
    out = tmp_path / "report.html"
    arguments = [str(path), "--target", "state", "--out", str(out), "--folds", "2", "--json"]
    assert main(["compare", *arguments, "--jobs", "1"]) == 0
    record = json.loads(capsys.readouterr().out)
    names = [line["method"] for line in record["methods"]]
    assert {"halfseen", "gradient boosting", "mean + indicator, mlp"} <= set(names)
    page = out.read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)" in page
    for raw in ("<script>alert", "<b>ill", "a<i>b"):
        assert raw not in page
    assert "http" not in page.replace("http-equiv", "")
    assert record["advice"].split(".")[0] in page.replace("&#x27;", "'")


def test_the_module_runs_as_a_program(trained):
    environment = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, "-m", "halfseen", "info", str(trained / "model")],
        capture_output=True, text=True, env=environment,
    )  # fmt: skip
    assert done.returncode == 0
    assert "ill, well" in done.stdout


@pytest.mark.parametrize("command", ["fit", "predict", "impute", "compare", "reproduce", "info"])
def test_help_has_an_example(command, capsys):
    assert main([command, "--help"]) == 0
    assert f"Example: halfseen {command}" in capsys.readouterr().out


def test_a_row_has_the_same_answer_in_any_file(tmp_path):
    rows = [f"{code},{number % 7},{label}" for number in range(30)
            for code, label in (("TRUE", "ill"), ("FALSE", "well"), ("012", "well"))]  # fmt: skip
    (tmp_path / "t.csv").write_text("code,w,y\n" + "\n".join(rows))
    model = str(tmp_path / "m")
    assert main(["fit", str(tmp_path / "t.csv"), "--target", "y", "--out", model]) == 0
    found = []
    for name, more in (("one", ""), ("two", "012,5\n")):
        (tmp_path / f"{name}.csv").write_text(f"code,w\nTRUE,5\n{more},5\n")
        out = str(tmp_path / f"{name}_out.csv")
        assert main(["predict", model, str(tmp_path / f"{name}.csv"), "--out", out]) == 0
        found.append(pd.read_csv(out).iloc[0])
        filled = tmp_path / f"{name}_filled.csv"
        assert main(["impute", model, str(tmp_path / f"{name}.csv"), "--out", str(filled)]) == 0
        assert filled.read_text().startswith(f"code,w\nTRUE,5\n{more}")
    pd.testing.assert_series_equal(*found)


def test_spellings_of_missing_values_are_kept_in_the_model(tmp_path, capsys):
    frame = table().fillna({"age": -999})
    frame.to_csv(tmp_path / "t.csv", index=False)
    model, data = str(tmp_path / "m"), str(tmp_path / "t.csv")
    arguments = ["--target", "state", "--missing", "-999", "--epochs", "3"]
    assert main(["fit", data, *arguments, "--out", model]) == 0
    out = tmp_path / "filled.csv"
    assert main(["impute", model, data, "--out", str(out)]) == 0
    assert (pd.read_csv(out)["age"] > 0).all()


def test_a_model_of_an_array_keeps_its_spellings_until_it_learns_anew(tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 4))
    X[::3, 0] = -999
    y, model = np.arange(30) % 2, str(tmp_path / "m")
    np.savez(tmp_path / "t.npz", X=X, y=y)
    arguments = ["--missing", "-999", "--epochs", "3", "--out", model]
    assert main(["fit", str(tmp_path / "t.npz"), *arguments]) == 0
    clf = SparseCodingClassifier.load(model)
    assert clf.missing_values_ == ["-999"]
    clf.fit(np.where(X == -999, np.nan, X), y).save(model)
    assert not hasattr(SparseCodingClassifier.load(model), "missing_values_")


def test_infinity_may_stand_for_missing(tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 4))
    np.savez(tmp_path / "whole.npz", X=X, y=np.arange(30) % 2)
    X[::3, 0] = np.inf
    np.savez(tmp_path / "t.npz", X=X, y=np.arange(30) % 2)
    model, out = str(tmp_path / "m"), str(tmp_path / "filled.npz")
    arguments = ["--missing", "inf", "--epochs", "3", "--out", model]
    assert main(["fit", str(tmp_path / "t.npz"), *arguments]) == 0
    assert main(["impute", model, str(tmp_path / "t.npz"), "--out", out]) == 0
    filled = np.load(out)["X"]
    assert np.isfinite(filled).all()
    np.testing.assert_array_equal(filled[:, 1:], X[:, 1:])


def test_columns_may_have_any_name(tmp_path):
    frame = table().rename(columns={"age": "self"})
    frame.to_csv(tmp_path / "t.csv", index=False)
    model, data, out = (str(tmp_path / name) for name in ("m", "t.csv", "filled.csv"))
    assert main(["fit", data, "--target", "state", "--epochs", "3", "--out", model]) == 0
    assert main(["impute", model, data, "--out", out]) == 0
    filled = pd.read_csv(out)
    assert list(filled) == list(frame)
    assert filled["self"].notna().all()
    seen = frame["self"].notna()
    np.testing.assert_array_equal(filled["self"][seen], frame["self"][seen])


def test_dates_in_text_can_become_parquet(tmp_path):
    frame = table().assign(seen="2024-01-11")
    frame.loc[::4, "seen"] = None
    frame.to_csv(tmp_path / "t.csv", index=False)
    model, data, out = (str(tmp_path / name) for name in ("m", "t.csv", "o.parquet"))
    assert main(["fit", data, "--target", "state", "--epochs", "3", "--out", model]) == 0
    assert main(["impute", model, data, "--out", out]) == 0
    found = pd.read_parquet(out)
    assert found["age"].dtype.kind in "if"
    assert found["seen"].dtype.kind == "M"
    assert found["seen"].dt.tz is None


def test_depth_masks_and_hidden_files_of_images(tmp_path):
    for name, values in (("a", np.full((4, 4), 200)), ("b", np.full((4, 4), 30000))):
        (tmp_path / name).mkdir()
        Image.fromarray(values.astype(np.uint16)).save(tmp_path / name / "0.png")
    mask = np.eye(4, dtype=np.uint8)  # 0 and 1: what is not black is seen
    Image.fromarray(mask).save(tmp_path / "a" / "0.mask.png")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "0.png").write_text("no image")
    (tmp_path / "a" / "._0.png").write_text("no image")
    data = read_labelled(tmp_path, None, [])
    assert data.y.tolist() == ["a", "b"]
    np.testing.assert_allclose(data.X[1], 30000 / 65535)
    np.testing.assert_allclose(np.diag(data.X[0, 0]), 200 / 65535)
    np.testing.assert_array_equal(np.isnan(data.X[0, 0]), mask == 0)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": np.empty((0, 3)), "y": np.empty(0)}, "none of it 0"),
        ({"X": np.ones(3), "y": np.ones(3)}, "must have the shape"),
        ({"X": np.ones((3, 2)), "y": np.ones(2)}, "must have 3 labels"),
        ({"X": np.ones((3, 2)), "y": np.float64(1)}, "must have 3 labels"),
    ],
)
def test_archives_of_wrong_shapes(arrays, message, tmp_path, capsys):
    np.savez(tmp_path / "a.npz", **arrays)
    assert main(["fit", str(tmp_path / "a.npz"), "--out", str(tmp_path / "m")]) == 2
    assert message in capsys.readouterr().err


def test_models_and_data_of_two_kinds(trained, tmp_path, capsys):
    np.savez(tmp_path / "a.npz", X=np.random.default_rng(0).random((20, 3)), y=np.arange(20) % 2)
    model, data = str(tmp_path / "m"), str(tmp_path / "a.npz")
    assert main(["fit", data, "--out", model, "--epochs", "2"]) == 0
    new = str(trained / "new.csv")
    assert main(["impute", model, new, "--out", str(tmp_path / "o.csv")]) == 2
    assert "this model was trained on arrays" in capsys.readouterr().err
    assert main(["predict", str(trained / "model"), data, "--out", str(tmp_path / "o.csv")]) == 2
    assert "this model was trained on a table" in capsys.readouterr().err
    copy = tmp_path / "copy.csv"
    copy.write_text((trained / "new.csv").read_text())
    assert main(["predict", str(trained / "model"), str(copy), "--out", str(copy)]) == 2
    assert "is the input itself" in capsys.readouterr().err
    assert copy.read_text() == (trained / "new.csv").read_text()
    assert (
        main(["predict", str(trained / "model"), new, "--out", str(tmp_path / "d.csv" / "x")]) == 2
    )


def test_columns_that_the_model_does_not_take_are_copied_as_they_are(trained, tmp_path, capsys):
    new = table(seed=1).drop(columns="state").head(4).round({"dose": 2})
    new = new.assign(country=["NA", "DE", "-", "?"], state=["none", "", "null", "ill "])
    new.to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "filled.csv"
    assert (
        main(["impute", str(trained / "model"), str(tmp_path / "new.csv"), "--out", str(out)]) == 0
    )
    found = pd.read_csv(out, dtype=str, keep_default_na=False)
    for name in ("country", "state"):
        assert found[name].tolist() == new[name].tolist()
    n_holes = int(new[["age", "blood", "dose"]].isna().sum().sum())
    assert f"{n_holes} holes filled" in capsys.readouterr().out


def test_parquet_keeps_its_types(tmp_path):
    frame = table().assign(zip=[f"{place % 7:05d}" for place in range(len(table()))])
    frame = frame.assign(number=[str(place % 9) for place in range(len(frame))])
    frame.loc[::5, ["zip", "number"]] = None
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    model, data, out = (str(tmp_path / name) for name in ("m", "t.parquet", "o.parquet"))
    assert main(["fit", data, "--target", "state", "--epochs", "3", "--out", model]) == 0
    assert main(["impute", model, data, "--out", out]) == 0
    found = pd.read_parquet(out)
    given = pd.read_parquet(tmp_path / "t.parquet")
    for name in ("zip", "number", "blood"):
        assert found[name].dtype == given[name].dtype
        seen = given[name].notna()
        assert found[name][seen].tolist() == given[name][seen].tolist()
        assert all(isinstance(value, str) for value in found[name])
    assert set(found["zip"]) <= set(given["zip"].dropna())


def test_labels_are_stripped_as_other_fields_are(tmp_path, capsys):
    frame = table()
    frame["state"] = [f"{label}{' ' * (row % 2)}" for row, label in enumerate(frame["state"])]
    frame.to_csv(tmp_path / "t.csv", index=False)
    model, data = (str(tmp_path / name) for name in ("m", "t.csv"))
    assert main(["fit", data, "--target", "state", "--epochs", "3", "--out", model]) == 0
    assert TableClassifier.load(model).classes_.tolist() == ["ill", "well"]
    frame.loc[4, "state"] = "  "
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert main(["fit", data, "--target", "state", "--out", model]) != 0
    assert "no label in 1 rows, the first is row 4" in capsys.readouterr().err


def test_archives_of_objects_say_what_to_do(tmp_path, capsys):
    X, y = np.zeros((4, 2)), np.array(["a", "b"] * 2, dtype=object)
    np.savez(tmp_path / "t.npz", X=X, y=y)
    assert main(["fit", str(tmp_path / "t.npz"), "--out", str(tmp_path / "m")]) != 0
    assert "holds Python objects" in capsys.readouterr().err


@pytest.mark.parametrize("shape", [(1, 50), (3, 20), (1, 1, 30), (3, 4, 5, 6), (6, 7), (2, 1)])
def test_arrays_of_any_shape(shape, tmp_path, capsys):
    random = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = random.random((40, *shape)) + y.reshape(-1, *[1] * len(shape))
    np.savez(tmp_path / "X.npz", X=ampute(X, rate=0.3, random_state=0), y=y)
    model, filled = str(tmp_path / "model"), str(tmp_path / "filled.npz")
    arguments = ["--out", model, "--epochs", "5", "--json"]
    assert main(["fit", str(tmp_path / "X.npz"), *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["sample_shape"] == list(shape)
    assert main(["impute", model, str(tmp_path / "X.npz"), "--out", filled]) == 0
    assert np.isfinite(np.load(filled)["X"]).all()


def test_a_rare_class_is_named_with_what_can_be_done(tmp_path, capsys):
    rows = pd.DataFrame({"x": range(41), "y": ["a", "b"] * 20 + ["once"]})
    rows.to_csv(tmp_path / "rare.csv", index=False)
    arguments = [str(tmp_path / "rare.csv"), "--target", "y", "--out", str(tmp_path / "o.html")]
    assert main(["compare", *arguments, "--folds", "2"]) == 2
    said = capsys.readouterr().err
    assert "'once', has 1: leave its rows out" in said
    assert "--folds" not in said


def test_compare_says_where_it_failed(tmp_path, capsys):
    X = np.random.default_rng(0).random((40, 6))
    X[1:, 5] = np.nan  # seen once, so in one fold not at all
    np.savez(tmp_path / "X.npz", X=X, y=np.arange(40) % 2)
    out = ["--out", str(tmp_path / "o.html")]
    assert main(["compare", str(tmp_path / "X.npz"), "--folds", "2", *out]) == 2
    said = capsys.readouterr().err
    assert "never observed" in said
    assert "while comparing: method 'halfseen'" in said
    assert len(said.splitlines()) == 1


def test_files_that_cannot_be_learned_from_are_refused_first(tmp_path, capsys):
    table().to_csv(tmp_path / "wide.csv", index=False, encoding="utf-16")
    arguments = ["--target", "state", "--out", str(tmp_path / "model")]
    assert main(["fit", str(tmp_path / "wide.csv"), *arguments]) == 2
    assert "save it as UTF-8" in capsys.readouterr().err
    dated = table().assign(state=pd.to_datetime("2020-01-01"))
    dated.loc[::2, "state"] = pd.to_datetime("2021-01-01")
    dated.to_parquet(tmp_path / "dated.parquet")
    assert main(["fit", str(tmp_path / "dated.parquet"), *arguments, "--epochs", "9999999"]) == 2
    assert "cannot be saved" in capsys.readouterr().err


def test_a_column_of_measurements_is_no_target(tmp_path, capsys):
    table().dropna().to_csv(tmp_path / "rows.csv", index=False)
    out = str(tmp_path / "model")
    assert main(["fit", str(tmp_path / "rows.csv"), "--target", "dose", "--out", out]) == 2
    assert "a column of classes was expected" in capsys.readouterr().err


def test_whole_numbers_with_holes_keep_all_their_digits_in_parquet(tmp_path):
    pl = pytest.importorskip("polars")
    number = [None if i % 5 == 0 else 999_000_011_000_000_113 + 10 * i for i in range(60)]
    frame = pl.DataFrame(
        {
            "number": number,
            "grade": pl.Series([i % 7 if i % 4 else None for i in range(60)], dtype=pl.UInt8),
            "state": ["ill" if i % 2 else "well" for i in range(60)],
        }
    )
    frame.write_parquet(tmp_path / "ids.parquet")
    data, model, out = (str(tmp_path / name) for name in ("ids.parquet", "model", "out.parquet"))
    assert main(["fit", data, "--target", "state", "--out", model, "--epochs", "2"]) == 0
    assert main(["impute", model, data, "--out", out]) == 0
    filled = pl.read_parquet(out)
    assert filled.schema["number"] == pl.Int64
    assert filled.schema["grade"] == pl.UInt8
    kept = frame.with_columns(filled["number"].alias("filled")).drop_nulls("number")
    assert kept["filled"].to_list() == kept["number"].to_list()
    assert filled.null_count().sum_horizontal().item() == 0


def test_an_index_with_a_name_is_a_column(tmp_path):
    frame = table().assign(patient=[f"P{i}" for i in range(120)]).set_index("patient")
    frame.to_parquet(tmp_path / "all.parquet")
    plain = tmp_path / "plain.csv"
    frame.to_csv(plain, index=False)
    model, out = str(tmp_path / "model"), str(tmp_path / "filled.csv")
    arguments = ["--target", "state", "--out", model, "--epochs", "2"]
    assert main(["fit", str(plain), *arguments]) == 0
    assert main(["impute", model, str(tmp_path / "all.parquet"), "--out", out]) == 0
    assert pd.read_csv(out)["patient"].tolist() == frame.index.tolist()


def test_what_is_left_is_told(tmp_path, capsys):
    frame = table().assign(nothing=np.nan)
    frame.to_csv(tmp_path / "data.csv", index=False)
    data, model, out = (str(tmp_path / name) for name in ("data.csv", "model", "filled.csv"))
    assert main(["fit", data, "--target", "state", "--out", model, "--epochs", "2"]) == 0
    assert main(["impute", model, data, "--out", out]) == 0
    n_holes = int(frame.drop(columns=["nothing", "state"]).isna().sum().sum())
    said = capsys.readouterr().out
    assert f"{n_holes} holes filled; 120 left in columns that had no values in training" in said


def test_numbers_that_stand_for_holes_are_kept_with_arrays(tmp_path):
    X, y = load_digits(return_X_y=True)
    holes = ampute(X[:200], "random", 0.3, random_state=0)
    np.savez(tmp_path / "nan.npz", X=holes, y=y[:200])
    np.savez(tmp_path / "odd.npz", X=np.nan_to_num(holes, nan=-999), y=y[:200])
    found = []
    for name, more in (("nan", []), ("odd", ["--missing", "-999"])):
        data, model, out = (str(tmp_path / f"{name}{end}") for end in (".npz", "", ".csv"))
        assert main(["fit", data, "--out", model, "--epochs", "3", *more]) == 0
        assert main(["predict", model, data, "--out", out]) == 0
        found.append(pd.read_csv(out))
    pd.testing.assert_frame_equal(*found)


def test_pipes_and_devices_are_neither_read_nor_replaced(trained, tmp_path, capsys):
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    model = str(trained / "model")
    data = tmp_path / "data.csv"
    table().drop(columns="state").to_csv(data, index=False)
    assert main(["predict", model, str(pipe), "--out", str(tmp_path / "out.csv")]) == 2
    assert "is a pipe or a device" in capsys.readouterr().err
    assert main(["predict", model, str(data), "--out", str(pipe)]) == 2
    assert "is a pipe or a device" in capsys.readouterr().err
    assert pipe.is_fifo()


def test_rows_that_lack_fields_are_refused(tmp_path, capsys):
    text = table().to_csv(index=False)
    (tmp_path / "cut.csv").write_text(text[: text.rindex(",")])
    arguments = ["fit", str(tmp_path / "cut.csv"), "--target", "state"]
    assert main([*arguments, "--out", str(tmp_path / "model")]) == 2
    said = capsys.readouterr().err
    assert "line 121 has" in said
    assert not (tmp_path / "model").exists()


def test_pictures_that_would_be_misread(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        values = np.arange(64, dtype=np.uint16).reshape(8, 8) * 900
        Image.fromarray(values).save(tmp_path / name / "0.png", transparency=900)
    found = read_labelled(tmp_path, None, []).X
    assert np.isnan(found).sum() == 2  # 16 bits, one value of which is transparent
    assert np.isnan(found[0, 0, 0, 1])
    pages = [Image.fromarray(np.zeros((8, 8), np.uint8)) for _ in range(3)]
    pages[0].save(tmp_path / "a" / "1.tif", save_all=True, append_images=pages[1:])
    with pytest.raises(ValueError, match="3 pages"):
        read_labelled(tmp_path, None, [])
    Image.fromarray(np.zeros((8, 8), np.int32)).save(tmp_path / "a" / "1.tif")
    with pytest.raises(ValueError, match="whole numbers of 32 bits"):
        read_labelled(tmp_path, None, [])
    (tmp_path / "a" / "1.tif").unlink()
    for name, message in (("1.webp", "convert it"), ("2.mask.png", "that is not there")):
        pages[0].save(tmp_path / "b" / "2.png")
        (tmp_path / "b" / "2.png").rename(tmp_path / "b" / name)
        with pytest.raises(ValueError, match=message):
            read_labelled(tmp_path, None, [])
        (tmp_path / "b" / name).unlink()


@pytest.mark.parametrize("ending", ["png", "jpg", "tif"])
def test_photographs_are_turned_as_viewers_show_them(ending, tmp_path):
    shown = np.kron(np.array([[0, 85, 170], [255, 0, 40]]), np.ones((8, 8))).astype(np.uint8)
    stored = {1: shown, 2: shown[:, ::-1], 3: shown[::-1, ::-1], 6: np.rot90(shown), 5: shown.T}
    (tmp_path / "a").mkdir()
    for orientation, values in stored.items():
        picture = Image.fromarray(np.ascontiguousarray(values))
        notes = picture.getexif()
        notes[ExifTags.Base.Orientation] = orientation
        picture.save(tmp_path / "a" / f"{orientation}.{ending}", exif=notes)
    seen = Image.fromarray(np.where(np.rot90(shown) > 0, np.uint8(255), np.uint8(0)))
    notes[ExifTags.Base.Orientation] = 6
    seen.save(tmp_path / "a" / "6.mask.png", exif=notes)
    found = read_labelled(tmp_path, None, [])
    assert found.names == [f"a/{orientation}.{ending}" for orientation in sorted(stored)]
    for orientation, image in zip(sorted(stored), found.X, strict=True):
        hidden = (shown == 0) & (orientation == 6)
        np.testing.assert_array_equal(np.isnan(image[0]), hidden)
        np.testing.assert_allclose(image[0][~hidden], shown[~hidden] / 255, atol=0.02)


@pytest.mark.parametrize("ending", ["png", "jpg"])
def test_damaged_notes_of_a_camera_say_nothing(ending, tmp_path):
    (tmp_path / "a").mkdir()
    values = np.full((8, 12), 51, np.uint8)
    notes = b"Exif\0\0II*\0\x08\0\0\0\xff\0\x12\x01" if ending == "jpg" else b"no notes"
    Image.fromarray(values).save(tmp_path / "a" / f"0.{ending}", exif=notes)
    np.testing.assert_allclose(read_labelled(tmp_path, None, []).X, 0.2, atol=0.01, strict=False)
    assert read_labelled(tmp_path, None, []).X.shape == (1, 1, 8, 12)


def test_numbers_with_separators_and_values_never_seen_are_told(tmp_path, capsys):
    random = np.random.default_rng(0)
    numbers = random.normal(1000, 300, 40)
    frame = pd.DataFrame({
        "comma": [f"{n:,.1f}" for n in numbers], "typo": [*map(str, numbers[1:].round(2)), "12 x"],
        "code": [f"{n:05d}" for n in range(40)], "colour": random.choice(["red", "blue"], 40),
        "state": np.where(numbers > 1000, "ill", "well"),
    })  # fmt: skip
    data, model, out = (str(tmp_path / name) for name in ("t.csv", "m", "o.csv"))
    frame.to_csv(data, index=False)
    assert main(["fit", data, "--target", "state", "--epochs", "2", "--out", model]) == 0
    notes = [line for line in capsys.readouterr().out.split("\n") if line.startswith("note: ")]
    assert len(notes) == 3
    assert "'comma' is a category, although 40 of 40 values look like numbers; '1," in notes[0]
    assert "'typo' is a category, although 39 of 40 values look like numbers; '12 x'" in notes[1]
    assert "'code' has a text of its own in nearly every row" in notes[2]
    frame.head(4).assign(colour=["red", "pink", "Red", None]).to_csv(data, index=False)
    for command in ("predict", "impute"):
        assert main([command, model, data, "--out", out]) == 0
        said = capsys.readouterr().out
        assert "note: column 'colour' has values in 2 of 4 rows that training did not know" in said
        assert said.count("note") == 1
        assert main([command, model, data, "--out", out, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["unknown"] == {"colour": 2}


def test_files_among_an_input_are_not_written_over(tmp_path, capsys):
    pictures = tmp_path / "pictures"
    for label in ("a", "b"):
        (pictures / label).mkdir(parents=True)
        Image.fromarray(np.full((6, 6), 9, np.uint8)).save(pictures / label / "1.png")
    before = (pictures / "a" / "1.png").read_bytes()
    for command in ("fit", "compare"):
        for name in ("1.png", "2.png"):
            assert main([command, str(pictures), "--out", str(pictures / "a" / name)]) == 2
            assert "is a place of the input" in capsys.readouterr().err
    assert (pictures / "a" / "1.png").read_bytes() == before
    rows = tmp_path / "rows"
    rows.mkdir()
    (rows / "table2.jsonl").write_text("")
    assert main(["report", str(rows), "--out", str(rows / "table2.jsonl")]) == 2
    assert "is a place of the input" in capsys.readouterr().err
    assert main(["report", str(rows), "--out", str(rows / "RESULTS.md")]) == 2
    assert "is where the text goes" in capsys.readouterr().err


def test_pictures_too_deep_and_channels_last_are_refused(tmp_path, capsys):
    out = ["--out", str(tmp_path / "m")]
    deep = tmp_path / "pictures" / "a" / "more"
    deep.mkdir(parents=True)
    for place in (deep, deep.parent):
        Image.fromarray(np.zeros((6, 6), np.uint8)).save(place / "1.png")
    assert main(["fit", str(tmp_path / "pictures"), *out]) == 2
    assert "more/1.png' lies too deep" in capsys.readouterr().err
    X, y = np.random.default_rng(0).random((24, 12, 10, 3)), np.arange(24) % 2
    np.savez(tmp_path / "last.npz", X=X, y=y)
    assert main(["fit", str(tmp_path / "last.npz"), *out]) == 2
    assert "(12, 10, 3) looks as if their channels were last" in capsys.readouterr().err
    np.savez(tmp_path / "first.npz", X=X.transpose(0, 3, 1, 2), y=y)
    assert main(["fit", str(tmp_path / "first.npz"), "--epochs", "1", *out]) == 0
    assert "24 rows of shape 3 × 12 × 10, 2 classes" in capsys.readouterr().out
    # A model of such samples, made in Python, takes them.
    model, labels = str(tmp_path / "last"), tmp_path / "labels.csv"
    SparseCodingClassifier(n_epochs=1, n_atoms=4, random_state=0).fit(X, y).save(model)
    assert main(["predict", model, str(tmp_path / "last.npz"), "--out", str(labels)]) == 0
    assert len(pd.read_csv(labels)) == 24


def test_decimals_stay_decimals(tmp_path):
    some = [Decimal("1.25"), None, Decimal("3.10"), Decimal("20000000000.00")]
    price = pa.array(some * 8, type=pa.decimal128(38, 18))
    frame = pa.table({"price": price, "size": range(32), "state": ["a", "b"] * 16})
    data, model, out = (str(tmp_path / name) for name in ("t.parquet", "m", "o.parquet"))
    pq.write_table(frame, data)
    assert main(["fit", data, "--target", "state", "--epochs", "2", "--out", model]) == 0
    assert main(["impute", model, data, "--out", out]) == 0
    found = pq.read_table(out)["price"]
    assert pa.types.is_decimal(found.type)
    assert found.null_count == 0
    for was, now in zip(price.to_pylist(), found.to_pylist(), strict=True):
        assert now == was if was is not None else 1 <= now <= Decimal("2e10")


def test_letters_that_a_terminal_lacks_do_not_fail_a_command(tmp_path):
    frame = table().rename(columns={"age": "größe"})
    frame.to_csv(tmp_path / "t.csv", index=False)
    command = ["fit", "t.csv", "--target", "state", "--epochs", "1", "--out", "m"]
    done = subprocess.run(
        [sys.executable, "-m", "halfseen", *command],
        cwd=tmp_path, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert rb"gr\xf6\xdfe (number)" in done.stdout


def test_blanks_around_names_of_columns_are_not_part_of_them(tmp_path):
    frame = table()
    frame.to_csv(tmp_path / "t.csv", index=False)
    text = (tmp_path / "t.csv").read_text()
    head, rows = text.split("\n", 1)
    (tmp_path / "blank.csv").write_text(head.replace(",", "  ,") + "  \n" + rows)
    data = [read_labelled(tmp_path / name, "state", []) for name in ("t.csv", "blank.csv")]
    pd.testing.assert_frame_equal(data[0].X, data[1].X)
    assert data[0].y.tolist() == data[1].y.tolist()
    # What a model was fitted with in Python, blanks and all, is found.
    given = pd.read_csv(tmp_path / "blank.csv")
    name = str(given.columns[1])
    assert name.endswith(" ")
    clf = TableClassifier(SparseCodingClassifier("mlp", n_epochs=1, random_state=0))
    clf.fit(given[[name]], given.iloc[:, -1]).save(tmp_path / "m")
    out = ["--out", str(tmp_path / "labels.csv")]
    assert main(["predict", str(tmp_path / "m"), str(tmp_path / "blank.csv"), *out]) == 0


def test_a_column_of_names_is_told_and_one_class_is_no_comparison(tmp_path, capsys):
    frame = table().assign(patient=[f"P{k:04}" for k in range(len(table()))])
    frame.to_csv(tmp_path / "t.csv", index=False)
    place = [str(tmp_path / "t.csv"), "--target", "state"]
    assert main(["fit", *place, "--epochs", "1", "--out", str(tmp_path / "m"), "--json"]) == 0
    (note,) = json.loads(capsys.readouterr().out)["notes"]
    assert "'patient' has a text of its own in nearly every row" in note
    frame.assign(state="ill").to_csv(tmp_path / "t.csv", index=False)
    assert main(["compare", *place, "--out", str(tmp_path / "r.html")]) == 2
    assert "the rarest of 1, 'ill'" in (error := capsys.readouterr().err)
    assert "add rows of another class" in error
