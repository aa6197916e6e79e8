"""Rows of a table in, classes, completed tables and certificates out; one file keeps all."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from halfseen import SparseCodingClassifier, TableClassifier, TableEncoder, rivals, storage
from halfseen.table_values import filled_column


def patients(n=160, seed=0):
    """A table with columns of all kinds and holes, and labels that hang on some of them."""
    random = np.random.default_rng(seed)
    ill = random.random(n) < 0.5
    table = pd.DataFrame(
        {
            "age": np.where(ill, 60, 40) + random.integers(-10, 10, n),
            "dose": random.standard_normal(n),
            "blood": np.where(random.random(n) < 0.8, np.where(ill, "A", "B"), "AB"),
            "smokes": random.random(n) < 0.3,
            "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(random.integers(0, 300, n), "D"),
        }
    )
    for place, name in enumerate(table.columns):
        table[name] = table[name].mask(random.random(n) < 0.1 + 0.02 * place)
    return table, np.where(ill, "ill", "well")


@pytest.fixture(scope="module")
def fitted():
    table, y = patients()
    return TableClassifier(SparseCodingClassifier("mlp", random_state=0)).fit(table, y)


@parametrize_with_checks(
    [TableClassifier(SparseCodingClassifier(n_epochs=30, learning_rate=0.05, random_state=0))]
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_it_learns_and_says_the_same_as_its_parts(fitted):
    table, y = patients(seed=1)
    assert fitted.score(table, y) > 0.85
    values = fitted.encoder_.transform(table)
    np.testing.assert_array_equal(
        fitted.predict_proba(table), fitted.classifier_.predict_proba(values)
    )
    assert list(fitted.feature_names_in_) == list(table.columns)
    assert clone(fitted).get_params()["classifier__random_state"] == 0


def test_a_certain_class_stays_whatever_is_filled_in(fitted):
    table, _ = patients(seed=2)
    found, labels = fitted.certify(table), fitted.predict(table)
    assert found.certain.any()
    random = np.random.default_rng(0)
    train, _ = patients()
    for _ in range(20):
        filled = table.copy()
        for name in table:
            drawn = train[name].dropna().sample(len(table), replace=True, random_state=random)
            filled[name] = table[name].where(table[name].notna(), drawn.to_numpy())
        assert not ((fitted.predict(filled) != labels) & found.certain).any()


def test_that_a_value_is_missing_is_no_certainty():
    random = np.random.default_rng(0)
    y = random.integers(2, size=300)
    value = np.where((y == 1) & (random.random(300) < 0.9), np.nan, random.integers(2, size=300))
    table = pd.DataFrame({"v": value, "w": random.standard_normal(300)})
    settings = {"n_epochs": 60, "random_state": 0}
    clf = TableClassifier(SparseCodingClassifier("logistic", **settings)).fit(table, y)
    asked = pd.DataFrame({"v": [np.nan, 0.0, 1.0], "w": 0.0})
    assert clf.predict(asked).tolist() == [1, 0, 0]
    assert not clf.certify(asked).certain[0]
    assert clf.certify(asked).possible[0].all()


def test_completed_tables_keep_what_was_observed(fitted):
    table, _ = patients(seed=3)
    table.index = np.arange(len(table))[::-1]
    table.loc[3, "blood"] = "rare"  # never seen: kept, though it is a hole to the classifier
    before = table.copy()
    completed = fitted.impute(table)
    pd.testing.assert_frame_equal(table, before)
    assert not completed.isna().any(axis=None)
    assert completed.index.equals(table.index)
    assert completed["seen"].dtype == table["seen"].dtype
    assert set(completed["blood"]) == {"A", "B", "AB", "rare"}
    assert completed.loc[3, "blood"] == "rare"
    for name in table:
        same = completed[name].astype(object) == table[name].astype(object)
        assert same[table[name].notna()].all()
    assert (completed["age"] % 1 == 0).all()


def test_a_file_keeps_the_whole_way(fitted, tmp_path):
    table, _ = patients(seed=4)
    path = tmp_path / "model.halfseen"
    fitted.save(path)
    again = TableClassifier.load(path)
    np.testing.assert_array_equal(again.predict_proba(table), fitted.predict_proba(table))
    pd.testing.assert_frame_equal(again.impute(table), fitted.impute(table))
    with pytest.raises(ValueError, match="is a table classifier of halfseen; a classifier was"):
        SparseCodingClassifier.load(path)
    with pytest.raises(ValueError, match="feature names"):
        again.predict(table.rename(columns={"age": "years"}))


def test_a_network_of_ones_own_is_passed_when_loading(tmp_path):
    table, y = patients()
    clf = TableClassifier(SparseCodingClassifier(nn.LazyLinear(2), n_epochs=3, random_state=0))
    clf.fit(table, y).save(tmp_path / "m")
    again = TableClassifier.load(tmp_path / "m", network=nn.LazyLinear(2))
    np.testing.assert_array_equal(again.predict_proba(table), clf.predict_proba(table))
    with pytest.raises(ValueError, match=r"pass the function.*load\(path, network=...\)"):
        TableClassifier.load(tmp_path / "m")
    with pytest.raises(ValueError, match="classifier for the network that was passed"):
        TableClassifier.load(tmp_path / "m", network=nn.Sequential(nn.LazyLinear(2)))


def test_a_named_network_is_not_passed(fitted, tmp_path):
    fitted.save(tmp_path / "m")
    with pytest.raises(ValueError, match="made by its name, .*leave out network="):
        TableClassifier.load(tmp_path / "m", network=nn.LazyLinear(2))


def test_frames_that_encoders_are_asked_for_change_nothing(tmp_path):
    table, y = patients()
    encoder = TableEncoder().set_output(transform="pandas")
    clf = TableClassifier(SparseCodingClassifier(n_epochs=3, random_state=0), encoder)
    clf.fit(table, y).save(tmp_path / "m")
    again = TableClassifier.load(tmp_path / "m")  # a warning of names would be an error
    np.testing.assert_array_equal(again.predict_proba(table), clf.predict_proba(table))
    with sklearn.config_context(transform_output="pandas"):
        np.testing.assert_array_equal(again.predict_proba(table), clf.predict_proba(table))


def test_a_file_whose_parts_do_not_fit_is_refused(fitted, tmp_path):
    path = tmp_path / "model.halfseen"
    fitted.save(path)
    tree = storage.read(path, "table classifier")
    for change in ({"columns": tree["columns"][:2]}, {"encoder": {"colour": 1}}, {"columns": [3]}):
        storage.write(path, "table classifier", {**tree, **change})
        with pytest.raises(ValueError, match="does not hold a whole classifier"):
            TableClassifier.load(path)


def test_tables_without_names_work_too(tmp_path):
    table, y = patients()
    clf = TableClassifier(SparseCodingClassifier(n_epochs=30, random_state=0), TableEncoder())
    clf.fit(table.to_numpy(object), y).save(tmp_path / "m")
    again = TableClassifier.load(tmp_path / "m")
    rows = table.to_numpy(object)
    np.testing.assert_array_equal(again.predict(rows), clf.predict(rows))
    assert not hasattr(again, "feature_names_in_")


def test_types_come_back_as_they_were_given(fitted):
    table, y = patients()
    table["ward"] = pd.Categorical(np.where(y == "ill", "east", "west"))
    table["visits"] = pd.array(np.arange(len(y)) % 5, dtype="Int64")
    table.loc[::7, ["ward", "visits"]] = None
    settings = {"training": "sequential", "n_epochs": 2, "random_state": 0}
    clf = TableClassifier(SparseCodingClassifier(**settings)).fit(table, y)
    completed = clf.impute(table)
    assert completed["ward"].dtype == table["ward"].dtype
    assert completed["visits"].dtype == "Int64"
    assert (completed["seen"] == completed["seen"].dt.normalize()).all()  # whole days, as all were
    narrow = table.assign(ward=table["ward"].cat.remove_categories("west"))
    assert set(clf.impute(narrow)["ward"]) <= {"east", "west"}
    fractions = table.assign(age=table["age"] + 0.5)  # no whole numbers as in training
    np.testing.assert_array_equal(
        clf.impute(fractions)["age"][table["age"].notna()], fractions["age"].dropna()
    )


def test_filled_values_are_of_the_column_s_own_kind():
    days = [datetime.date(2020, 1, day) for day in (1, 2, 3)]
    table = pd.DataFrame(
        {
            "grade": pd.Categorical([1, 2, 3, None] * 15),
            "range": pd.cut(pd.Series([1.0, 5.0, 9.0, None] * 15), 3),
            "day": [*days, None] * 15,
            "mixed": [1, "a", 2.5, None] * 15,
        }
    )
    clf = TableClassifier(SparseCodingClassifier("mlp", n_epochs=3, random_state=0))
    clf.fit(table, ["ill", "well"] * 30)
    filled = clf.impute(table)
    for name in table:
        observed = table[name].dropna()
        assert filled[name].notna().all()
        assert filled[name].dtype == table[name].dtype
        if name != "day":
            assert set(filled[name]) == set(observed)
    assert all(type(value) is datetime.date for value in filled["day"])
    unknown = filled_column(
        pd.Series([None], dtype=object), pd.Series([pd.Timestamp("2020-01-02")])
    )
    assert unknown[0] == pd.Timestamp("2020-01-02")  # nothing says that it should be a date alone


def test_names_of_columns_that_are_no_text_can_be_saved(tmp_path):
    months = pd.date_range("2024-01-01", periods=2)
    table = pd.DataFrame([[1.0, 2.0], [np.nan, 3.0]] * 20, columns=months)
    clf = TableClassifier(SparseCodingClassifier("mlp", n_epochs=3, random_state=0))
    filled = clf.fit(table, ["ill", "well"] * 20).impute(table)
    clf.save(tmp_path / "model")
    pd.testing.assert_frame_equal(TableClassifier.load(tmp_path / "model").impute(table), filled)


@pytest.mark.parametrize(
    "labels", [["a", None, "b"] * 20, pd.Series(["a", pd.NA, "b"] * 20, dtype="string")]
)
def test_missing_labels_are_told(labels):
    table = pd.DataFrame({"x": range(60)})
    for clf in (TableClassifier(), SparseCodingClassifier(), rivals.mean_fill()):
        with pytest.raises(ValueError, match="no label for 20 samples, the first is sample 1"):
            clf.fit(table, labels)


def quick(table, y):
    settings = {"training": "joint", "n_epochs": 3, "random_state": 0}
    return TableClassifier(SparseCodingClassifier(**settings)).fit(table, y)


def test_what_was_learned_from_text_fills_typed_columns_and_the_other_way_round():
    random = np.random.default_rng(0)
    days = pd.Series(pd.date_range("2020-01-01", periods=60))
    table = pd.DataFrame(
        {
            "age": random.integers(20, 80, 60),
            "dose": random.normal(size=60),
            "day": days,
            "second": days.astype("datetime64[s]"),
            "berlin": days.dt.tz_localize("Europe/Berlin"),
            "smokes": random.random(60) < 0.5,
        }
    )
    y, holes = table["age"] > 50, random.random(table.shape) < 0.3
    given = table.assign(smokes=table["smokes"].astype("boolean")).mask(holes)
    filled = quick(table.astype(str), y).impute(given)
    assert filled.dtypes.equals(given.dtypes)
    assert filled.notna().all(axis=None)
    assert ((filled.astype(object) == given.astype(object)) | holes).all(axis=None)
    text = table.astype(str).astype(object).mask(holes)
    filled = quick(table, y).impute(text)
    assert filled.map(type).eq(str).all(axis=None)
    assert filled["age"].str.fullmatch(r"\d+").all()
    assert filled["day"].str.fullmatch(r"\d{4}-\d\d-\d\d").all()


def test_a_row_alone_without_a_known_type_is_filled():
    table = pd.DataFrame({"code": ["A1", "B2", None, "A1"] * 9, "n": range(36)})
    clf = quick(table, [0, 1] * 18)
    for empty in (np.nan, None):  # a column of floats, or of objects
        assert clf.impute(pd.DataFrame({"code": [empty], "n": [3]}))["code"][0] in ("A1", "B2")


@pytest.mark.parametrize(
    ("form", "offset"),
    [
        ("%Y-%m-%dT%H:%M:%SZ", 0),
        ("%Y-%m-%d %H:%M:%S+02:00", 2),
        ("%Y-%m-%d %H:%M:%S-0330", -3.5),
        ("%Y-%m-%dT%H:%M:%S", 0),
        ("%Y-%m-%dT%H:%M", 0),
        ("%Y-%m-%d %H:%M+02:00", 2),
    ],
)
def test_times_are_filled_in_their_own_time_zone(form, offset):
    noon = pd.Series(pd.date_range("2020-06-01 12:00", periods=40))
    table = pd.DataFrame({"at": noon.dt.strftime(form), "x": np.arange(40.0)})
    table.loc[::4, "at"] = None
    filled = quick(table, [0, 1] * 20).impute(table)["at"]
    read = pd.to_datetime(filled, format="ISO8601", utc=True)  # all of one spelling
    assert filled.str.len().nunique() == 1
    encoder = TableEncoder().fit(table)
    again = encoder.inverse_transform(encoder.transform(table))["at"]
    assert again.dropna().tolist() == table["at"].dropna().tolist()
    (column,) = (column for column in encoder.columns_ if column.name == "at")
    expected = noon.drop(noon.index[::4]) - pd.Timedelta(hours=offset)
    assert column.centre == pytest.approx(expected.astype("int64").mean() / 86_400e6, abs=0.1)
    assert read.notna().all()


def test_differing_time_zones_are_filled_in_utc():
    table = pd.DataFrame(
        {"at": ["2020-06-01 12:00:00+02:00", "2020-12-01 12:00:00+01:00", None, None] * 9}
    )
    filled = quick(table.assign(x=np.arange(36.0)), [0, 1] * 18).impute(table.assign(x=1.0))["at"]
    assert filled[table["at"].isna()].str.endswith("+00:00").all()


def test_filled_whole_numbers_have_no_sign_of_zero_and_stay_whole():
    spelled = TableEncoder().fit(pd.DataFrame({"n": ["-1", "0", "1"]}))
    assert spelled.inverse_transform([[-0.1]])["n"][0] == "0"
    table = pd.DataFrame({"n": pd.Series([1, 2, 3, None] * 9, dtype=object), "x": range(36)})
    clf = quick(table, [0, 1] * 18)
    for some in (table, table[3:4]):
        assert type(clf.impute(some)["n"].iloc[-1]) is int


def test_that_values_are_missing_does_not_fill_them():
    """A value and the sign that it is missing are never seen together."""
    random = np.random.default_rng(0)
    grade = random.integers(0, 6, 300).astype(float)
    table = pd.DataFrame({f"x{i}": 50 + 3 * grade + random.normal(size=300) for i in range(4)})
    table["grade"] = grade
    y = np.where(grade > 2, "ill", "well")
    holes = table.mask(random.random(table.shape) < 0.05)
    clf = SparseCodingClassifier("mlp", n_epochs=10, random_state=0)
    fitted = TableClassifier(clf, TableEncoder(add_indicator=True)).fit(holes, y)
    filled = fitted.impute(holes)
    for name in table:
        hidden = holes[name].isna()
        error = (filled[name] - table[name])[hidden].to_numpy(dtype=float)
        assert np.sqrt(np.mean(error**2)) < holes[name].std()
        assert filled[name].between(holes[name].min(), holes[name].max()).all()


def test_filled_values_stay_within_the_range_of_training():
    random = np.random.default_rng(0)
    table = pd.DataFrame({name: random.normal(size=60) for name in "abc"})
    y = (table["a"] > 0).to_numpy()
    holes = table.mask(random.random(table.shape) < 0.2)
    clf = SparseCodingClassifier(n_epochs=1, lambda_l1=1e-3, random_state=0)
    fitted = TableClassifier(clf).fit(holes, y)
    far = pd.DataFrame({"a": 40 * random.normal(size=60), "b": np.nan, "c": np.nan})
    encoded = fitted.encoder_.transform(far)
    encoded[:, 3:] = np.nan  # the signs that values are missing do not fill them
    raw = fitted.encoder_.inverse_transform(fitted.classifier_.impute(encoded))
    filled = fitted.impute(far)
    for name in ("b", "c"):
        ends = holes[name].min(), holes[name].max()
        assert not raw[name].between(*ends).all()  # so there is something to hold back
        np.testing.assert_allclose(filled[name], raw[name].clip(*ends))


def test_a_refit_without_names_forgets_them(tmp_path):
    table = pd.DataFrame({"a": [1.0, 2, None, 4] * 9, "b": [1, 0, 1, 0.0] * 9})
    y = [0, 1, 1, 0] * 9
    clf = TableClassifier(SparseCodingClassifier(n_epochs=2, random_state=0)).fit(table, y)
    assert list(clf.feature_names_in_) == ["a", "b"]
    clf.fit(table.to_numpy(), y).save(tmp_path / "model")
    assert not hasattr(clf, "feature_names_in_")
    again = TableClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(table.to_numpy()), clf.predict(table.to_numpy()))


@pytest.mark.parametrize("question", ["predict", "predict_proba", "certify", "impute"])
def test_questions_before_the_fit_are_refused_as_elsewhere(question):
    with pytest.raises(NotFittedError, match="not fitted"):
        getattr(TableClassifier(), question)(pd.DataFrame({"a": [1.0, None]}))


def short():
    return TableClassifier(SparseCodingClassifier("mlp", n_epochs=2, random_state=0))


def test_lists_of_numbers_text_and_holes_are_what_frames_are():
    rows = [[1.0, "a"], [np.nan, "b"], [3.0, "b"], [4.0, "a"]] * 5
    y = [0, 1, 1, 0] * 5
    fitted = [short().fit(given, y) for given in (rows, pd.DataFrame(rows))]
    kinds = [[column.kind for column in clf.encoder_.columns_] for clf in fitted]
    assert kinds[0] == kinds[1] == ["number", "category"]
    one, other = fitted[0].certify(rows), fitted[1].certify(pd.DataFrame(rows))
    np.testing.assert_array_equal(one.possible, other.possible)
    assert 1 <= fitted[0].impute(rows).iloc[1, 0] <= 4


def test_tensors_and_single_columns_are_tables_or_refused():
    X = torch.randn(12, 2, generator=torch.Generator().manual_seed(0), requires_grad=True)
    y = torch.arange(12).remainder(2).double().requires_grad_()
    assert short().fit(X, y).predict(X).shape == (12,)
    with pytest.raises(ValueError, match=r"rows and columns.*got a Series: pass X.to_frame\(\)"):
        TableEncoder().fit(pd.Series([1, 2, 3]))


def test_categories_of_arrow_are_filled():
    kind = pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))
    frame = pd.DataFrame({"a": pd.array(["x", "y", None, "x"] * 4, dtype=kind), "b": range(16)})
    completed = short().fit(frame, [0, 1] * 8).impute(frame)
    assert completed["a"].isin(["x", "y"]).all()


@pytest.mark.parametrize("make", [pl.DataFrame, pa.table], ids=["polars", "arrow"])
def test_whole_numbers_and_truth_values_of_other_frames_stay_what_they_are(make):
    big = [2**60 + k for k in range(35)]
    columns = {"id": [*big, None], "n": [None, *range(35)], "ok": [True, None, False] * 12}
    complete = {"whole": list(range(36)), "sure": [True, False] * 18}
    table = make({**columns, **complete})
    filled = quick(table, [0, 1] * 18).impute(table)
    assert filled["id"][:35].tolist() == big
    assert filled["n"][1:].tolist() == list(range(35))
    kinds = [str(kind) for kind in filled.dtypes]
    assert kinds == ["Int64", "Int64", "boolean", "int64", "bool"]
    assert not filled.isna().any(axis=None)


def test_filled_times_have_a_zone_where_observed_ones_have():
    zone = datetime.timezone(datetime.timedelta(hours=2))
    start = datetime.datetime(2020, 1, 1, tzinfo=zone)
    times = [start + datetime.timedelta(days=k) for k in range(36)]
    when = pd.Series([*times[:5], None, *times[6:]], dtype=object)
    table = pd.DataFrame({"x": np.arange(36.0), "when": when})
    filled = quick(table, [0, 1] * 18).impute(table)["when"]
    assert filled[5].utcoffset() == datetime.timedelta(hours=2)
    assert filled.sort_values().is_monotonic_increasing
    assert filled[:5].tolist() == times[:5]


def test_sparse_columns_are_filled_and_columns_of_lists_are_refused():
    thin = pd.arrays.SparseArray([0.0, 0, 1, np.nan] * 9, fill_value=0.0)
    whole = pd.arrays.SparseArray([0, 0, 1, 0] * 9)
    table = pd.DataFrame({"thin": thin, "whole": whole, "x": np.arange(36.0)})
    filled = quick(table, [0, 1] * 18).impute(table)
    assert filled["thin"].notna().all()
    assert filled["thin"][:3].tolist() == [0, 0, 1]
    assert filled["whole"].tolist() == [0, 0, 1, 0] * 9
    lists = pd.Series([[1, 2]] * 36, dtype=pd.ArrowDtype(pa.list_(pa.int64())))
    columns = {"some": [[1, 2]] * 36, "x": np.arange(36.0)}
    tables = pd.DataFrame(columns | {"some": lists}), pd.DataFrame(columns), pl.DataFrame(columns)
    for lists in (*tables, pa.table(columns)):
        with pytest.raises(ValueError, match="column 'some' has .*several values in a field"):
            quick(lists, [0, 1] * 18)


def test_frames_may_be_asked_for_everywhere(fitted):
    clf, table = fitted, patients(seed=1)[0]
    expected = clf.impute(table), clf.predict_log_proba(table)
    with sklearn.config_context(transform_output="pandas"):
        pd.testing.assert_frame_equal(clf.impute(table), expected[0])
        np.testing.assert_array_equal(clf.predict_log_proba(table), expected[1])
    np.testing.assert_allclose(np.exp(expected[1]), clf.predict_proba(table))
