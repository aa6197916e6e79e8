"""Figures: what is drawn, where, and from which numbers."""

import runpy
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError

from halfseen import (
    Channels,
    Patches,
    SparseCodingClassifier,
    SparseCodingImputer,
    Whole,
    ampute,
    plots,
)
from halfseen.plots import drawing, views
from halfseen.plots.drawing import HOLE
from halfseen.plots.views import sample_view, tile_view

pyplot = pytest.importorskip("matplotlib.pyplot")
Figure = pyplot.Figure


@pytest.fixture(scope="module")
def digits():
    """A small fitted classifier, and new digits with holes, complete, and their classes."""
    X, y = load_digits(return_X_y=True)
    holes = ampute(X, "random", 0.5, random_state=0)
    clf = SparseCodingClassifier(n_epochs=3, n_atoms=20, validation_fraction=0.2, random_state=0)
    return clf.fit(holes[:300], y[:300]), holes[300:], X[300:], y[300:]


@pytest.fixture(autouse=True)
def _no_trace_in_pyplot():
    yield
    assert pyplot.get_fignums() == []


def imputer(X, n_atoms=6, **settings):
    return SparseCodingImputer(n_atoms, n_steps=3, random_state=0, **settings).fit(X)


def pictures(figure):
    """The pixels of all images, in the order of the axes: (n_images, height, width, 3)."""
    return np.array([axis.images[0].get_array() for axis in figure.axes])


def grey(values, low, high):
    return np.repeat(((values - low) / (high - low))[..., None], 3, axis=-1)


def test_flat_digits_are_drawn_in_rows(digits):
    clf, X, originals, _ = digits
    before = X.copy(), originals.copy()
    figure = plots.reconstructions(clf, X, originals, n=4)
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(originals, before[1])
    assert [axis.get_ylabel() for axis in figure.axes[::4]] == [
        "original", "observed", "reconstructed", "completed",
    ]  # fmt: skip
    found = pictures(figure).reshape(4, 4, 8, 8, 3)
    first, hole = originals[:4].reshape(4, 8, 8), np.isnan(X[:4]).reshape(4, 8, 8)
    np.testing.assert_allclose(found[0], grey(first, 0, 16))
    assert (found[1][hole] == HOLE).all()
    np.testing.assert_allclose(found[1][~hole], grey(first, 0, 16)[~hole])
    made = clf.inverse_transform(clf.transform(X[:4])).reshape(4, 8, 8)
    np.testing.assert_allclose(found[2], np.clip(grey(made, 0, 16), 0, 1), atol=1e-6)
    np.testing.assert_allclose(found[3][~hole], found[0][~hole])
    np.testing.assert_allclose(found[3][hole], found[2][hole], atol=1e-6)


def test_frames_and_tensors_are_drawn_as_arrays_are(digits):
    clf, X, _, _ = digits
    expected = pictures(plots.reconstructions(clf, X, n=2))
    assert len(expected) == 6  # no row for originals
    np.testing.assert_array_equal(
        pictures(plots.reconstructions(clf, torch.from_numpy(X), n=2)), expected
    )
    names = [f"pixel {i}" for i in range(64)]
    named = imputer(pd.DataFrame(X[:50], columns=names)).set_output(transform="pandas")
    figure = plots.reconstructions(named, pd.DataFrame(X[:2], columns=names))
    np.testing.assert_array_equal(pictures(figure)[:2], expected[:2])


def test_in_colour_only_pixels_without_any_channel_are_holes():
    X = np.random.default_rng(0).random((30, 3, 4, 5))
    X[0, :, 0, 0] = np.nan
    X[0, 1:, 2, 3] = np.nan
    figure = plots.reconstructions(imputer(X, tiling=Channels()), X, n=1)
    observed = pictures(figure)[0]
    assert (observed[0, 0] == HOLE).all()
    np.testing.assert_array_equal(observed[2, 3], observed[2, 3, [0, 0, 0]])
    low, high = np.nanmin(X[:1]), np.nanmax(X[:1])
    np.testing.assert_allclose(observed[1], ((X[0] - low) / (high - low))[:, 1].T)


def test_tiny_values_outside_of_the_range_are_black_or_white():
    axis = Figure().add_subplot()
    drawing.draw_sample(axis, np.array([[[-3.0, 1e-310, 3.0]]]), 0.0, 2e-310)
    np.testing.assert_allclose(axis.images[0].get_array()[0, :, 0], [0, 0.5, 1])


def test_a_sample_without_any_value_can_be_drawn():
    X = np.random.default_rng(0).random((30, 4, 5))
    figure = plots.reconstructions(imputer(X), np.full((1, 4, 5), np.nan))
    assert (pictures(figure)[0] == HOLE).all()


def test_signals_are_lines_with_gaps():
    X = ampute(np.random.default_rng(0).random((30, 16)), "random", 0.3, random_state=0)
    figure = plots.reconstructions(imputer(X, tiling=Patches((8,), 4)), X, X, n=2)
    assert len(figure.axes) == 8
    assert not any(axis.images for axis in figure.axes)
    for axis, row in zip(figure.axes[2:4], X, strict=False):
        np.testing.assert_array_equal(axis.lines[0].get_ydata(), row)
    completed = figure.axes[6].lines[0].get_ydata()
    seen = ~np.isnan(X[0])
    np.testing.assert_array_equal(completed[seen], X[0][seen])
    assert np.isfinite(completed).all()
    assert len({axis.get_ylim() for axis in figure.axes}) == 1


@pytest.mark.parametrize(
    ("tiling", "shape", "sample", "tile"),
    [
        (Whole(), (64,), (1, 8, 8), (1, 8, 8)),
        (Whole(), (30,), None, (1, 30)),
        (Whole(), (4,), None, (1, 4)),  # iris, no image
        (Whole(), (1, 50), (1, 50), (1, 50)),
        (Whole(), (7, 9), (1, 7, 9), (1, 7, 9)),
        (Whole(), (5, 7, 9), None, (1, 315)),
        (Channels(), (3, 7, 9), (3, 7, 9), (1, 7, 9)),
        (Channels(), (2, 50), (2, 50), (1, 50)),
        (Patches((16,), 8), (64,), (1, 64), (1, 16)),
        (Patches((16,), 8), (2, 64), (2, 64), (2, 16)),
        (Patches(4, 2), (8, 8), (1, 8, 8), (1, 4, 4)),
        (Patches((4, 5), 2), (3, 8, 8), (3, 8, 8), (3, 4, 5)),
        (Patches(4, 2), (5, 8, 8), None, (1, 80)),
    ],
)
def test_shape_and_tiling_tell_images_from_signals(tiling, shape, sample, tile):
    assert sample_view(tiling, shape) == sample
    assert tile_view(tiling, shape, tiling.layout(shape).shape[1]) == tile


def test_what_cannot_be_drawn_is_refused(digits):
    clf, X, originals, _ = digits
    table = np.random.default_rng(0).random((20, 5))
    with pytest.raises(ValueError, match=r"draws images.*samples of shape \(5,\) were learned"):
        plots.reconstructions(imputer(table), table)
    with pytest.raises(ValueError, match=r"shape of X, \(1497, 64\); got \(3, 64\)"):
        plots.reconstructions(clf, X, originals[:3])
    with pytest.raises(ValueError, match="n must be a whole number ≥ 1; got 0"):
        plots.reconstructions(clf, X, n=0)
    with pytest.raises(ValueError, match="n must be a whole number ≥ 1; got 2.5"):
        plots.atoms(clf, n=2.5)
    with pytest.raises(TypeError, match="a fitted SparseCodingClassifier or .* got PCA"):
        plots.atoms(PCA())
    for draw in (plots.atoms, plots.training_curve):
        with pytest.raises(NotFittedError):
            draw(SparseCodingClassifier())
    with pytest.raises(ValueError, match="SparseCodingImputer has none"):
        plots.training_curve(imputer(table))


def test_atoms_are_pictures_with_0_in_the_middle(digits):
    clf = digits[0]
    figure = plots.atoms(clf, n=7)
    found = pictures(figure)
    assert found.shape == (7, 8, 8, 3)
    assert figure.get_suptitle() == "7 of 20 atoms"
    atoms = clf.module_.completion.dictionary.detach().numpy()[:7].reshape(7, 8, 8)
    ends = np.abs(atoms).max((1, 2), keepdims=True)
    np.testing.assert_allclose(found, grey(atoms, -ends, ends), atol=1e-6)
    every = plots.atoms(clf)
    assert len(every.axes) == 20
    assert every.get_suptitle() == ""


def test_atoms_of_tables_are_lines():
    model = imputer(np.random.default_rng(0).random((20, 5)))
    figure = plots.atoms(model)
    drawn = [axis.lines[0].get_ydata() for axis in figure.axes]
    np.testing.assert_array_equal(drawn, model.components_)


def test_training_curve_has_the_records(digits):
    clf = digits[0]
    figure = plots.training_curve(clf)
    assert len(figure.axes) == 4
    lines = [line for axis in figure.axes for line in axis.lines]
    keys = ("J0", "J1", "J2", "accuracy", "validation_accuracy")
    for line, key, scale in zip(lines, keys, (1, 1, 1, 100, 100), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3])
        expected = [scale * record[key] for record in clf.history_]
        np.testing.assert_allclose(line.get_ydata(), expected)
    assert lines[-1].get_label() == "validation"


ROWS = [
    {"method": method, "rate": rate, "seed": seed, "accuracy": accuracy}
    for method, rate, accuracies in (
        ("ours", 0.75, (0.5, 0.7, 0.6)),
        ("ours", 0.25, (0.9, 0.92, 0.94)),
        ("theirs", 0.25, (0.8,)),
    )
    for seed, accuracy in enumerate(accuracies)
]


@pytest.mark.parametrize("table", [ROWS, pd.DataFrame(ROWS)])
def test_accuracy_curve_has_means_and_standard_errors(table):
    figure = plots.accuracy_curve(table, marks=[("ours", 0.75)])
    axis = figure.axes[0]
    ours, theirs = axis.containers
    assert [ours.get_label(), theirs.get_label()] == ["ours", "theirs"]
    np.testing.assert_allclose(ours.lines[0].get_xydata(), [[25, 92], [75, 60]])
    np.testing.assert_allclose(theirs.lines[0].get_xydata(), [[25, 80]])
    # deviations of 2 and 10 over the root of 3 runs
    bars = [segment[:, 1] for segment in ours.lines[2][0].get_segments()]
    errors = np.array([2, 10]) / np.sqrt(3)
    np.testing.assert_allclose(
        bars, [[92 - errors[0], 92 + errors[0]], [60 - errors[1], 60 + errors[1]]]
    )
    (star,) = axis.texts
    assert star.get_text() == "*"
    assert star.xy[0] == 75
    assert star.get_color() == ours.lines[0].get_color() != theirs.lines[0].get_color()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ours", "theirs"]


def test_many_methods_look_different():
    rows = [{"method": i, "rate": 0.5, "accuracy": i / 20} for i in range(20)]
    lines = [drawn.lines[0] for drawn in plots.accuracy_curve(rows).axes[0].containers]
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 20


def test_tables_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="method, rate, accuracy were expected; got 1 rows with a"):
        plots.accuracy_curve([{"a": 1}])
    with pytest.raises(ValueError, match="got 0 rows with nothing"):
        plots.lambda_heat_map([])
    with pytest.raises(ValueError, match="accuracy must be a number from 0 to 1; got .*93"):
        plots.accuracy_curve([{"method": "ours", "rate": 0.5, "accuracy": 93.0}])
    with pytest.raises(ValueError, match="accuracy must be a number from 0 to 1; got .*nan"):
        plots.accuracy_curve([{"method": "ours", "rate": 0.5, "accuracy": np.nan}])
    with pytest.raises(ValueError, match=r"'seed': 0\} is there again"):
        plots.accuracy_curve([*ROWS, ROWS[0]])
    with pytest.raises(ValueError, match=r"marks must be pairs .* got \('ours', 0.3\)"):
        plots.accuracy_curve(ROWS, marks=[("ours", 0.3)])


def test_certificate_coverage_has_the_shares(digits):
    clf, _, X, y = digits
    X, y = X[:200], y[:200]
    before = X.copy()
    figure = plots.certificate_coverage(clf, X, y, rates=(0.9, 0.0, 0.1), random_state=3)
    np.testing.assert_array_equal(X, before)
    certified, right_of_those, right = (line.get_ydata() for line in figure.axes[0].lines)
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_xdata(), [0, 10, 90])
    score = 100 * clf.score(X, y)
    np.testing.assert_allclose([certified[0], right_of_those[0], right[0]], [100, score, score])
    holes = ampute(X, "random", 0.1, random_state=3)
    certain = clf.certify(holes).certain
    assert 0 < certain.sum() < 200
    np.testing.assert_allclose(certified[1], certain.sum() / 2)
    np.testing.assert_allclose(right_of_those[1], 100 * clf.score(holes[certain], y[certain]))
    assert certified[2] == 0
    assert np.isnan(right_of_those[2])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        plots.certificate_coverage(clf, X, y[:-1])
    with pytest.raises(ValueError, match="got none"):
        plots.certificate_coverage(clf, X, y, rates=())


def test_the_best_lambdas_are_framed():
    rows = [
        {"lambda_rec": rec, "lambda_l1": l1, "accuracy": accuracy}
        for rec, l1, accuracy in (
            (10, 0.5, 0.7), (10, 8, 0.9), (10, 8, 0.8), (1, 0.5, 0.2), (1, 8, 0.6), (10, 2, 0.75)
        )
    ]  # fmt: skip
    axis = plots.lambda_heat_map(rows).axes[0]
    grid = axis.images[0].get_array()
    np.testing.assert_allclose(grid.filled(np.nan), [[20, np.nan, 60], [70, 75, 85]])
    assert [label.get_text() for label in axis.get_xticklabels()] == ["0.5", "2", "8"]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["1", "10"]
    written = {text.get_position(): text.get_text() for text in axis.texts}
    assert written == {
        (0, 0): "20.0", (2, 0): "60.0", (0, 1): "70.0", (1, 1): "75.0", (2, 1): "85.0"
    }  # fmt: skip
    (frame,) = axis.patches
    np.testing.assert_allclose(frame.get_center(), [2, 1])


def test_figures_can_be_saved_without_a_screen(digits, tmp_path):
    clf, X, _, _ = digits
    for name, figure in (
        ("a", plots.reconstructions(clf, X, n=2)),
        ("b", plots.lambda_heat_map([{"lambda_rec": 1, "lambda_l1": 1, "accuracy": 0.5}])),
    ):
        figure.savefig(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 1000


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    for name in [*sys.modules, "matplotlib", "matplotlib.figure"]:
        if name.split(".")[0] == "matplotlib":
            monkeypatch.setitem(sys.modules, name, None)
    for module in (plots, drawing, views):
        runpy.run_path(module.__file__)  # as an import does
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'halfseen\[plots\]'"):
        plots.accuracy_curve(ROWS)
