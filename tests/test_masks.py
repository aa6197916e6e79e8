import inspect

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from halfseen.masks import _MECHANISMS, ampute

SHAPES = [(40, 7), (30, 9, 11), (20, 3, 8, 12), (12, 2, 3, 5, 6)]
RATES = [0.0, 0.1, 0.25, 0.5, 0.65, 1.0]


def made(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("mechanism", ["random", "mnar", "mar"])
def test_rates_are_exact(mechanism, rate, shape):
    X = made(shape)
    if mechanism == "mar" and rate > 0.7:
        with pytest.raises(ValueError, match="observed_share=0.3"):
            ampute(X, mechanism, rate, random_state=0)
        return
    incomplete = ampute(X, mechanism, rate, random_state=0)
    holes = np.isnan(incomplete)
    assert holes.sum() == round(rate * X.size)
    np.testing.assert_array_equal(incomplete[~holes], X[~holes])


def test_random_holes_are_spread_evenly():
    holes = np.isnan(ampute(np.zeros((400, 50)), "random", 0.3, random_state=1))
    for axis in (0, 1):
        count, n = holes.sum(axis), holes.shape[axis]
        # counts of a hypergeometric law: the sum of squared deviations is nearly chi-squared
        statistic = (np.square(count - 0.3 * n) / (0.3 * 0.7 * n)).sum()
        assert 0.001 < stats.chi2(len(count) - 1).sf(statistic) < 0.999


@pytest.mark.parametrize("shape", SHAPES[1:])
@pytest.mark.parametrize("rate", RATES)
def test_occlusions_are_one_rectangle_through_all_channels(rate, shape):
    holes = np.isnan(ampute(made(shape), "occlusion", rate, random_state=0))
    height, width = shape[-2:]
    by_channel = holes.reshape(shape[0], -1, height, width)
    assert (by_channel == by_channel[:, :1]).all()
    tolerance = 0.5 / min(height, width) + 1e-12
    for covered in by_channel[:, 0]:
        assert abs(covered.mean() - rate) <= tolerance
        rows, columns = covered.any(1), covered.any(0)
        assert (covered == rows[:, None] & columns).all()
        for used in (rows, columns):
            assert np.abs(np.diff(used.astype(int))).sum() <= 2  # no gap
            assert not used.any() or np.ptp(np.flatnonzero(used)) + 1 == used.sum()


def test_occlusions_vary_and_favour_neither_direction():
    holes = np.isnan(ampute(np.zeros((4000, 28, 28)), "occlusion", 0.5, random_state=0))
    heights, widths = holes.any(2).sum(1), holes.any(1).sum(1)
    assert abs(heights.mean() - widths.mean()) < 0.3
    assert heights.min() == widths.min() == 14
    assert heights.max() == widths.max() == 28
    tops = holes.any(2).argmax(1)[heights == 14]
    assert set(tops) == set(range(15))


def test_halves():
    X = made((5, 2, 6, 4))
    for place, part in {
        "left": np.s_[..., :2],
        "right": np.s_[..., 2:],
        "top": np.s_[..., :3, :],
        "bottom": np.s_[..., 3:, :],
    }.items():
        holes = np.isnan(ampute(X, "occlusion", 0.5, place=place))
        expected = np.zeros(X.shape, dtype=bool)
        expected[part] = True
        np.testing.assert_array_equal(holes, expected)


def test_a_signal_loses_one_run():
    holes = np.isnan(ampute(made((50, 20)), "occlusion", 0.35, random_state=0))
    assert (holes.sum(1) == 7).all()
    assert (np.abs(np.diff(holes.astype(int), axis=1)).sum(1) <= 2).all()
    with pytest.raises(ValueError, match="'left', 'right'; got 'top'"):
        ampute(made((5, 4)), "occlusion", 0.5, place="top")


def test_mnar_depends_on_the_value():
    X = made((4000, 4))
    holes = np.isnan(ampute(X, "mnar", 0.3, random_state=0))
    upside_down = np.isnan(ampute(X, "mnar", 0.3, strength=-2, random_state=0))
    for column in range(4):
        hidden, seen = X[holes[:, column], column], X[~holes[:, column], column]
        assert stats.mannwhitneyu(hidden, seen, alternative="greater").pvalue < 1e-20
        hidden, seen = X[upside_down[:, column], column], X[~upside_down[:, column], column]
        assert stats.mannwhitneyu(hidden, seen, alternative="less").pvalue < 1e-20
    free = np.isnan(ampute(X, "mnar", 0.3, strength=0, random_state=0))
    assert stats.mannwhitneyu(X[free], X[~free]).pvalue > 0.001


def test_mar_depends_on_observed_features_alone():
    X = made((4000, 10))
    holes = np.isnan(ampute(X, "mar", 0.4, random_state=3))
    observed = ~holes.any(0)
    assert observed.sum() == 3
    drivers = X[:, observed]
    for column in np.flatnonzero(~observed):
        hidden = holes[:, column]
        # a linear rule of the drivers foretells the hole ...
        slope = np.linalg.lstsq(drivers, hidden - hidden.mean(), rcond=None)[0]
        assert stats.pearsonr(drivers @ slope, hidden).pvalue < 1e-20
        # ... and the value itself does not
        assert stats.mannwhitneyu(X[hidden, column], X[~hidden, column]).pvalue > 1e-4
    # holes do not change when hidden values do
    changed = X.copy()
    changed[:, ~observed] = made((4000, 10), seed=1)[:, ~observed]
    np.testing.assert_array_equal(np.isnan(ampute(changed, "mar", 0.4, random_state=3)), holes)


def test_units_of_the_features_do_not_decide_what_drives_holes():
    X = made((500, 10))
    scales = 10.0 ** np.arange(-4, 6)
    holes = [np.isnan(ampute(some, "mar", 0.3, random_state=0)) for some in (X, 3 + X * scales)]
    np.testing.assert_array_equal(*holes)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rate", RATES)
def test_columns_are_lost_whole(rate, shape):
    holes = np.isnan(ampute(made(shape), "columns", rate, random_state=0))
    lost = holes.reshape(*shape[:2], -1)
    assert (lost == lost[:1, :, :1]).all()
    assert lost[0, :, 0].sum() == round(rate * shape[1])
    groups = np.isnan(ampute(made(shape), "columns", rate, n_groups=4, random_state=0))
    patterns = {tuple(row) for row in groups.reshape(*shape[:2], -1)[:, :, 0]}
    assert len(patterns) <= 4
    assert abs(groups.mean() - rate) <= 0.5 / shape[1] + 1e-12
    if shape == (40, 7) and 0 < rate < 1:
        assert len(patterns) > 1


@pytest.mark.parametrize("mechanism", _MECHANISMS)
def test_inputs_types_and_seeds(mechanism):
    X = made((60, 6))
    X[0, 0] = np.nan
    X.flags.writeable = False
    before, state = X.copy(), np.random.get_state()[1].copy()
    one = ampute(X, mechanism, 0.4, random_state=7)
    np.testing.assert_array_equal(X, before)
    np.testing.assert_array_equal(np.random.get_state()[1], state)
    np.testing.assert_array_equal(one, ampute(X, mechanism, 0.4, random_state=7))
    assert not np.array_equal(np.isnan(one), np.isnan(ampute(X, mechanism, 0.4, random_state=8)))
    assert np.isnan(one[0, 0])
    assert one.dtype == np.float64
    assert ampute(X.astype(np.float32), mechanism, 0.4).dtype == np.float32
    assert ampute(np.ones((9, 5), dtype=int), mechanism, 0.4).dtype == np.float64

    tensor = ampute(torch.from_numpy(before), mechanism, 0.4, random_state=7)
    np.testing.assert_array_equal(tensor.numpy(), one)
    frame = pd.DataFrame(before, columns=list("abcdef"), index=range(100, 160))
    punched = ampute(frame, mechanism, 0.4, random_state=7)
    assert list(punched.columns) == list("abcdef")
    assert punched.index[0] == 100
    np.testing.assert_array_equal(punched.to_numpy(), one)


def test_errors_say_what_was_expected():
    X = made((10, 4))
    with pytest.raises(ValueError, match="'random', 'occlusion', 'mar'.*got 'mcar'"):
        ampute(X, "mcar", 0.5)
    with pytest.raises(TypeError, match="'mnar' has no option 'place'; it has strength"):
        ampute(X, "mnar", 0.5, place="left")
    with pytest.raises(TypeError, match="it has none"):
        ampute(X, "random", 0.5, strength=1)
    for rate in (-0.1, 1.5, np.nan, "half", None, True):
        with pytest.raises(ValueError, match="rate must be a number from 0 to 1"):
            ampute(X, "random", rate)
    for bad in (np.zeros(5), np.zeros((0, 3)), np.zeros((3, 0))):
        with pytest.raises(ValueError, match="samples and features"):
            ampute(bad, "random", 0.5)
    with pytest.raises(ValueError, match="inf at index"):
        ampute([[1.0, np.inf]], "random", 0.5)
    for n_groups in (11, 0, True, 1.5):
        with pytest.raises(ValueError, match="n_groups"):
            ampute(X, "columns", 0.5, n_groups=n_groups)
    for value in ("x", np.nan, np.inf):
        with pytest.raises(ValueError, match="strength must be a finite number"):
            ampute(X, "mnar", 0.5, strength=value)
    with pytest.raises(ValueError, match="got \\['random'\\]"):
        ampute(X, ["random"], 0.5)
    # as many columns as are needed, to the last one
    assert np.isnan(ampute(made((20, 100)), "mar", 0.55, observed_share=0.45)).sum() == 1100
    huge = np.isnan(ampute(made((2000, 2)) * 1e200, "mnar", 0.3, random_state=0))
    assert (huge == np.isnan(ampute(made((2000, 2)), "mnar", 0.3, random_state=0))).all()
    frame = pd.DataFrame({"whole": [1, 2, 3, 4], "flag": [True, False, True, True]})
    assert (ampute(frame, "random", 0.25).dtypes == np.float64).all()
    with pytest.raises(ValueError, match="observed_share"):
        ampute(X, "mar", 0.5, observed_share=1.0)


def test_every_option_is_documented():
    for make_holes in _MECHANISMS.values():
        for option in list(inspect.signature(make_holes).parameters)[3:]:
            assert f"`{option}`" in ampute.__doc__


def test_frames_may_hold_objects():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": pd.Series([1, pd.NA, 3, 4], dtype=object), "b": [1, 2, 3, 4]})
    frame = frame.set_axis(list("wxyz"))
    found = ampute(frame, rate=0.5, random_state=0)
    assert list(found.index) == list("wxyz")
    assert found.isna().sum().sum() in (4, 5)
    assert np.isnan(found["a"]["x"])
    np.testing.assert_array_equal(found["b"].dropna(), frame["b"][found["b"].notna()])
    np.testing.assert_array_equal(found["a"].dropna(), frame["a"][found["a"].notna()])


def test_holes_of_a_constant_column_drive_nothing():
    """0.1 is not what the mean of many 0.1 is, to the last digit."""
    driver = np.full(2000, 0.1)
    driver[::2] = np.nan
    X = np.column_stack([driver, np.random.default_rng(0).normal(size=2000)])
    n_driven = 0
    for seed in range(10):
        holes = np.isnan(ampute(X, "mar", 0.25, random_state=seed))[:, 1]
        if holes.any():  # else the other column was the one that lost values
            n_driven += 1
            assert abs(holes[::2].sum() / holes.sum() - 0.5) < 0.1
    assert n_driven >= 2
