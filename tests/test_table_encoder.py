"""Tables with columns of any kind: to numbers with holes, and back."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from halfseen import SparseCodingClassifier, TableEncoder
from halfseen.table_values import filled_column


@pytest.fixture
def table():
    return pd.DataFrame(
        {
            "age": [31, 45, 62, 50],
            "dose": [0.5, np.nan, 1.5, 2.5],
            "blood": ["A", None, "B", "AB"],
            "smokes": [True, False, None, True],
            "seen": pd.to_datetime(
                ["2024-01-01 00:00", None, "2024-03-01 00:00", "2024-02-01 12:30"]
            ),
            "ward": pd.Categorical(["x", "y", None, "y"]),
            "count": pd.array([1, None, 3, 4], dtype="Int64"),
            "born": ["1960-05-01", "1980-01-31", None, "1955-12-12"],
            "code": ["1", " 2", None, "4.5"],
        }
    )


@parametrize_with_checks([TableEncoder(), TableEncoder(add_indicator=True)])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_kinds_are_found(table):
    kinds = {column.name: column.kind for column in TableEncoder().fit(table).columns_}
    assert kinds == {
        "age": "number", "dose": "number", "blood": "category", "smokes": "boolean",
        "seen": "date", "ward": "category", "count": "number", "born": "date", "code": "number",
    }  # fmt: skip


def test_holes_stay_holes_and_numbers_are_scaled_as_by_scikit_learn(table):
    before = table.copy()
    encoder = TableEncoder().fit(table)
    frame = pd.DataFrame(encoder.transform(table), columns=encoder.get_feature_names_out())
    pd.testing.assert_frame_equal(table, before)
    for name in ("age", "dose", "count"):
        given = table[[name]].astype(float).to_numpy()
        expected = StandardScaler().fit_transform(given)
        np.testing.assert_allclose(frame[[name]], expected, atol=2e-5)
    blocks = {"blood": ["A", "AB", "B"], "ward": ["x", "y"]}
    for name, categories in blocks.items():
        block = frame[[f"{name}={category}" for category in categories]].to_numpy()
        assert np.isnan(block[table[name].isna()]).all()
        np.testing.assert_array_equal(block[table[name].notna()].sum(1), 1)
    assert np.isnan(frame.loc[1, "dose"])
    days = (table["seen"] - table["seen"].mean()) / pd.Timedelta(days=1)
    ratio = frame["seen"] / days
    assert ratio.max() == pytest.approx(ratio.min(), rel=1e-4)


def test_the_way_back_gives_values_and_types(table):
    encoder = TableEncoder().fit(table)
    back = encoder.inverse_transform(encoder.transform(table))
    assert list(back.columns) == list(table.columns)
    for name in ("age", "dose", "count", "seen"):
        assert back[name].dtype == table[name].dtype
        pd.testing.assert_series_equal(back[name], table[name])
    for name in ("blood", "smokes", "ward"):
        assert back[name].isna().equals(table[name].isna())
        assert (back[name].astype(object) == table[name].astype(object))[table[name].notna()].all()
    assert back["code"].tolist()[3] == "4.5"


def test_completed_numbers_come_back_as_whole_ones_where_they_were(table):
    encoder = TableEncoder().fit(table)
    values = np.nan_to_num(encoder.transform(table), nan=0.3)
    back = encoder.inverse_transform(values)
    assert not back.isna().any(axis=None)
    assert back["age"].dtype == np.int64
    assert (back["count"] % 1 == 0).all()


def test_time_zones_come_back():
    dates = pd.Series(
        pd.to_datetime(["2024-07-01 12:00", None, "2024-12-01 00:00"])
    ).dt.tz_localize("Europe/Warsaw")
    table = pd.DataFrame({"when": dates})
    encoder = TableEncoder().fit(table)
    back = encoder.inverse_transform(encoder.transform(table))
    pd.testing.assert_frame_equal(back, table)


def test_unseen_and_rare_categories_are_holes():
    table = pd.DataFrame({"town": ["a"] * 5 + ["b"] * 3 + ["c"] + [None]})
    encoder = TableEncoder(max_categories=2).fit(table)
    assert list(encoder.get_feature_names_out()) == ["town=a", "town=b"]
    values = encoder.transform(pd.DataFrame({"town": ["b", "c", "new", None]}))
    np.testing.assert_array_equal(values[0], [0, 1])
    assert np.isnan(values[1:]).all()


def test_indicators_say_where_holes_were(table):
    plain, marked = (TableEncoder(add_indicator=flag).fit(table) for flag in (False, True))
    n_plain = len(plain.get_feature_names_out())
    values = marked.transform(table)
    np.testing.assert_array_equal(values[:, :n_plain], plain.transform(table))
    names = list(marked.get_feature_names_out())[n_plain:]
    assert "age missing" not in names  # it never was
    for place, name in enumerate(names):
        holes = table[name.removesuffix(" missing")].isna()
        np.testing.assert_array_equal(values[:, n_plain + place], holes)
    pd.testing.assert_frame_equal(
        marked.inverse_transform(values), plain.inverse_transform(values[:, :n_plain])
    )


def test_in_a_pipeline_with_text_and_holes():
    random = np.random.default_rng(0)
    y = random.integers(2, size=200)
    colour = np.where(random.random(200) < 0.9, np.array(["red", "blue"])[y], "green")
    table = pd.DataFrame({"colour": colour, "noise": random.standard_normal(200)})
    table = table.mask(random.random(table.shape) < 0.2)
    pipeline = make_pipeline(TableEncoder(), SparseCodingClassifier(random_state=0))
    assert pipeline.fit(table[:150], y[:150]).score(table[150:], y[150:]) > 0.75


def test_other_frames_and_arrays():
    rows = {"a": [1.0, None, 3.0], "b": ["x", "y", None]}
    expected = TableEncoder().fit_transform(pd.DataFrame(rows))
    np.testing.assert_array_equal(TableEncoder().fit_transform(pl.DataFrame(rows)), expected)
    objects = np.array(list(zip(*rows.values(), strict=True)), dtype=object)
    np.testing.assert_array_equal(TableEncoder().fit_transform(objects), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": ["31", "old", "2", "3"]}, "column 'age' has numbers; got 'old' in row 1"),
        ({"age": [1, 2, np.inf, 3]}, "infinite value in row 2"),
        ({"seen": ["2024-01-01", "soon", None, None]}, "'seen' has dates; got 'soon' in row 1"),
        ({"smokes": [True, "maybe", None, None]}, "'smokes' has booleans; got 'maybe' in row 1"),
    ],
)
def test_values_of_another_kind_are_refused(table, change, message):
    encoder = TableEncoder().fit(table)
    with pytest.raises(ValueError, match=message):
        encoder.transform(table.assign(**change))


def test_tables_that_cannot_be_learned_are_refused(table):
    with pytest.raises(ValueError, match="feature names"):
        TableEncoder().fit(table).transform(table.rename(columns={"age": "years"}))
    with pytest.raises(ValueError, match="max_categories must be a whole number"):
        TableEncoder(max_categories=0).fit(table)
    with pytest.raises(ValueError, match="X must have shape"):
        TableEncoder().fit(table).inverse_transform(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="squares are out of range"):
        TableEncoder().fit(pd.DataFrame({"a": [1e300, -1e300]}))


def test_categories_that_are_numbers_are_the_same_with_and_without_holes():
    whole = pd.DataFrame({"v": pd.Categorical([1, 2, 2])})
    holes = pd.DataFrame({"v": pd.Categorical([1, None, 2])})
    encoder = TableEncoder().fit(whole)
    np.testing.assert_array_equal(encoder.transform(holes), [[1, 0], [np.nan, np.nan], [0, 1]])
    np.testing.assert_array_equal(
        TableEncoder().fit(holes).transform(whole), [[1, 0], [0, 1], [0, 1]]
    )


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "UInt8"])
def test_filled_whole_numbers_do_not_overflow(dtype):
    encoder = TableEncoder().fit(pd.DataFrame({"v": pd.array([1, 2, 127], dtype=dtype)}))
    far = encoder.inverse_transform([[1e30], [-1e30]])["v"]
    limits = np.iinfo(dtype.lower())
    assert far.tolist() == [limits.max, limits.min]


def test_holes_keep_the_column_s_type_where_it_has_room():
    second = pd.Timedelta("1s")
    for given, new, expected in (
        ([1.5, None], [7.0, 2.0], [1.5, 2.0]),
        ([1.5, None], [second, second], [1.5, second]),
        ([second, None], [2.0, 2.0], [second, 2.0]),
    ):
        filled = filled_column(pd.Series(given), pd.Series(new))
        assert filled.tolist() == expected
        alike = type(expected[0]) is type(expected[1])
        assert filled.dtype == (pd.Series(given).dtype if alike else object)


def test_text_that_only_looks_like_dates_is_a_category():
    codes = pd.DataFrame({"code": ["A12", "1200", "0123"], "word": ["now", "today", "later"]})
    assert [column.kind for column in TableEncoder().fit(codes).columns_] == ["category"] * 2
    old = pd.DataFrame({"born": ["0999-12-31", "9999-12-31", None]})
    encoder = TableEncoder().fit(old)
    assert encoder.columns_[0].kind == "date"
    assert encoder.inverse_transform(encoder.transform(old))["born"].tolist()[1] == "9999-12-31"


def test_text_comes_back_as_text():
    table = pd.DataFrame({"n": ["1", "2", "4"], "x": ["1.5", "2", "3"], "t": ["yes", "TRUE", "no"]})
    table["t"] = ["TRUE", "false", "TRUE"]
    encoder = TableEncoder().fit(table)
    back = encoder.inverse_transform(encoder.transform(table))
    assert back["n"].tolist() == ["1", "2", "4"]
    assert back["t"].tolist() == ["TRUE", "false", "TRUE"]
    assert back["x"].tolist() == ["1.5", "2", "3"]


def test_own_spellings_of_missing_values():
    table = pd.DataFrame(
        {"a": [1.0, -999.0, 3.0], "b": ["x", "unknown", "y"], "c": ["1", "-999.0", "2"]}
    )
    encoder = TableEncoder(missing_values=(-999, "unknown")).fit(table)
    holes = np.isnan(encoder.transform(table))
    assert holes[1].all()
    assert not holes[[0, 2]].any()
    days = pd.Series(pd.to_datetime(["1900-01-01", "2020-01-01", "2020-01-02"]))
    for when in (days, days.dt.tz_localize("Europe/Berlin")):
        for spelling in ("1900-01-01", pd.Timestamp("1900-01-01"), "1900-01-01 00:00:00"):
            found = TableEncoder(missing_values=(spelling, "2020")).fit_transform(when.to_frame())
            assert np.isnan(found).ravel().tolist() == [True, False, False]
    truth = TableEncoder(missing_values=("False",)).fit(pd.DataFrame({"t": [True, False, True]}))
    assert np.isnan(truth.transform(pd.DataFrame({"t": [False, True]}))).ravel().tolist() == [1, 0]
    words = pd.DataFrame({"b": ["none", "unknown", "-"]})  # other words are words
    assert len(TableEncoder(missing_values=("unknown",)).fit(words).columns_[0].categories) == 2


def test_infinite_values_are_named_by_their_row():
    with pytest.raises(ValueError, match="infinite value in row 3"):
        TableEncoder().fit(pd.DataFrame({"v": [np.nan, np.nan, 1, np.inf]}))


def test_a_column_without_values_is_left_out(table):
    encoder = TableEncoder(add_indicator=True).fit(table.assign(blood=None))
    assert not [name for name in encoder.get_feature_names_out() if "blood" in name]
    values = encoder.transform(table)
    assert values.shape == (4, len(encoder.get_feature_names_out()))
    back = encoder.inverse_transform(values)
    assert list(back.columns) == list(table.columns)
    assert back["blood"].isna().all()


def test_masked_arrays_hide_what_is_masked():
    X = np.random.default_rng(0).standard_normal((40, 3))
    mask = np.random.default_rng(1).random(X.shape) < 0.3
    holes = np.where(mask, np.nan, X)
    encoder = TableEncoder().fit(np.ma.masked_array(np.where(mask, -999.0, X), mask))
    np.testing.assert_array_equal(
        encoder.transform(np.ma.masked_array(X, mask)), TableEncoder().fit_transform(holes)
    )


@pytest.mark.parametrize("in_training", [True, False])
def test_periods_are_dates_wherever_holes_are(in_training):
    table = pd.DataFrame({"month": pd.period_range("2020-01", periods=60, freq="M")})
    with_hole = table.copy()
    with_hole.loc[3, "month"] = pd.NaT
    encoder = TableEncoder().fit(with_hole if in_training else table)
    assert encoder.columns_[0].kind == "date"
    numbers = encoder.transform(with_hole)
    assert np.flatnonzero(np.isnan(numbers[:, 0])).tolist() == [3]
    assert (np.diff(np.delete(numbers[:, 0], 3)) > 0).all()
    back = encoder.inverse_transform(numbers)["month"]
    assert back.dtype == table["month"].dtype
    assert back.drop(3).equals(table["month"].drop(3))


def test_whole_numbers_that_begin_with_a_zero_are_codes():
    table = pd.DataFrame({"zip": ["01000", "01001", None], "n": ["0", "10", "-3"]})
    encoder = TableEncoder().fit(table)
    assert [column.kind for column in encoder.columns_] == ["category", "number"]
    assert encoder.inverse_transform(encoder.transform(table))["zip"][0] == "01000"


@pytest.mark.parametrize("between", [" ", "T"])
def test_dates_in_text_come_back_as_they_were_spelled(between):
    spelled = [f"2020-01-{day:02d}{between}00:00:00" for day in (1, 5, 9)]
    encoder = TableEncoder().fit(pd.DataFrame({"when": spelled}))
    filled = encoder.inverse_transform([[0.0]])["when"][0]
    assert filled == f"2020-01-05{between}00:00:00"
    mixed = TableEncoder().fit(pd.DataFrame({"when": [spelled[0], "2020-01-09"]}))
    assert mixed.inverse_transform([[0.0]])["when"][0] == "2020-01-05"


@pytest.mark.parametrize(
    ("value", "arrow"),
    [(datetime.date(2020, 1, 1), pa.date32()), (Decimal("1.25"), pa.decimal128(5, 2))],
)
def test_types_of_arrow_that_are_not_known_are_refused(value, arrow):
    column = pd.Series([value, None], dtype=pd.ArrowDtype(arrow))
    with pytest.raises(ValueError, match="column 'x' has the type .*convert it"):
        TableEncoder().fit(pd.DataFrame({"x": column}))
    whole = pd.Series([1, None], dtype=pd.ArrowDtype(pa.int64()))
    encoder = TableEncoder().fit(pd.DataFrame({"x": whole}))
    assert encoder.columns_[0].kind == "number"
    with pytest.raises(ValueError, match="column 'x' has the type .*convert it"):
        encoder.transform(pd.DataFrame({"x": column}))


def test_what_is_no_table_is_told():
    with pytest.raises(ValueError, match=r"no rows or no columns; its shape is \(0, 1\)"):
        TableEncoder().fit(pd.DataFrame({"a": []}))
    with pytest.raises(ValueError, match=r"pass X.collect\(\)"):
        TableEncoder().fit(pl.LazyFrame({"a": [1, 2]}))
    with pytest.raises(ValueError, match=r"got a dict: pass pandas.DataFrame"):
        TableEncoder().fit({"a": [1, 2]})
