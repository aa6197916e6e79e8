import datetime
import pickle

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import MiniBatchDictionaryLearning
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from halfseen import (
    Channels,
    Patches,
    SparseCodingClassifier,
    SparseCodingImputer,
    Whole,
    sparse_encode,
)
from halfseen.coding import make_solver


def quick(**settings):
    return SparseCodingImputer(**{"n_steps": 20, "random_state": 0, **settings})


@pytest.fixture(scope="module")
def digits():
    X = load_digits().data
    holes = np.random.default_rng(0).random(X.shape) < 0.5
    return X, np.where(holes, np.nan, X)


CHECKS = list(estimator_checks_generator(SparseCodingImputer(n_steps=5)))


@pytest.mark.parametrize(
    ("estimator", "check"), CHECKS, ids=[check.func.__name__ for _, check in CHECKS]
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_conventions(estimator, check):
    """All of check_estimator; none is marked as an expected failure."""
    check(estimator)


def test_digits_are_completed_better_than_by_mean_and_neighbours(digits):
    X, incomplete = digits
    train, test = incomplete[:1200], incomplete[1200:]
    holes = np.isnan(test)

    def error(imputer):
        return np.square(imputer.fit(train).transform(test) - X[1200:])[holes].mean()

    ours = error(SparseCodingImputer(random_state=0))
    assert ours < 0.85 * error(KNNImputer())
    assert ours < 0.5 * error(SimpleImputer())


def test_observed_values_are_kept_and_every_hole_is_filled(digits):
    _, incomplete = digits
    before = incomplete.copy()
    completed = quick().fit(incomplete[:500]).transform(incomplete)
    seen = ~np.isnan(before)
    np.testing.assert_array_equal(completed[seen], before[seen])
    assert np.isfinite(completed).all()
    np.testing.assert_array_equal(incomplete, before)


def test_a_map_of_a_file_is_as_good_as_the_model(digits, tmp_path):
    X = digits[1][:40]
    imputer = quick(n_atoms=8).fit(digits[1])
    joblib.dump(imputer, tmp_path / "i")
    mapped = joblib.load(tmp_path / "i", mmap_mode="r")
    codes = imputer.encode(X)
    for name, given in (("transform", X), ("encode", X), ("inverse_transform", codes)):
        expected = getattr(imputer, name)(given)
        np.testing.assert_array_equal(getattr(mapped, name)(given), expected)  # no warning either


def test_encode_is_the_masked_lasso_and_inverse_transform_its_reconstruction(digits):
    _, incomplete = digits
    imputer = quick(n_atoms=80, alpha=7.0).fit(incomplete)
    assert imputer.alpha_ == 7.0
    np.testing.assert_allclose(imputer.mean_, np.nanmean(incomplete, axis=0))
    codes = imputer.encode(incomplete)
    expected = sparse_encode(incomplete - imputer.mean_, imputer.components_, 7.0)
    np.testing.assert_allclose(codes, expected, atol=1e-10)
    reconstruction = imputer.inverse_transform(codes)
    np.testing.assert_allclose(reconstruction, codes @ imputer.components_ + imputer.mean_)
    holes = np.isnan(incomplete)
    np.testing.assert_array_equal(imputer.transform(incomplete)[holes], reconstruction[holes])


def test_samples_without_values_get_the_means(digits):
    _, incomplete = digits
    imputer = quick().fit(incomplete)
    np.testing.assert_array_equal(imputer.transform(np.full((2, 64), np.nan))[1], imputer.mean_)


def test_a_sample_is_completed_the_same_alone(digits):
    _, incomplete = digits
    imputer = quick().fit(incomplete[:300])
    together = imputer.transform(incomplete)
    np.testing.assert_allclose(imputer.transform(incomplete[5:6])[0], together[5], atol=1e-10)


def test_samples_without_holes_are_not_coded(digits, monkeypatch):
    X, incomplete = digits
    imputer = quick().fit(incomplete)
    mixed = np.where(np.arange(60)[:, None] % 3 == 0, incomplete[:60], X[:60])
    expected = np.where(np.arange(60)[:, None] % 3 == 0, imputer.transform(incomplete[:60]), X[:60])
    coded = []

    class Counting(type(make_solver("auto", torch.device("cpu")))):
        def solve(self, problem, *rest):
            coded.append(len(problem.X))
            return super().solve(problem, *rest)

    monkeypatch.setattr("halfseen.tile_coder.make_solver", lambda *_: Counting())
    np.testing.assert_array_equal(imputer.transform(mixed), expected)
    assert coded == [20]
    np.testing.assert_array_equal(imputer.transform(X), X)
    assert coded == [20]


@pytest.mark.parametrize(
    ("tiling", "codes_shape"),
    [
        (Whole(), (30, 10)),
        (Channels(), (30, 2, 10)),
        (Patches(4, 3), (30, 9, 10)),
    ],
    ids=str,
)
def test_images(tiling, codes_shape):
    random = np.random.default_rng(0)
    grid = np.arange(8)
    waves = np.sin(random.random((30, 1, 1, 1)) * 6 + grid[:, None] + grid)
    X = np.concatenate([waves, 2 * waves], axis=1)
    incomplete = np.where(random.random(X.shape) < 0.3, np.nan, X)
    imputer = SparseCodingImputer(10, tiling, n_steps=100, batch_size=60, random_state=0)
    completed = imputer.fit_transform(incomplete)
    assert completed.shape == X.shape
    holes = np.isnan(incomplete)
    mean = np.broadcast_to(np.nanmean(incomplete, axis=0), X.shape)
    error = np.square(completed - X)[holes].sum() / np.square(mean - X)[holes].sum()
    assert error < 0.2
    codes = imputer.encode(incomplete)
    assert codes.shape == codes_shape
    np.testing.assert_allclose(
        imputer.inverse_transform(codes)[holes], completed[holes], rtol=1e-10, atol=1e-12
    )


def test_transform_in_parts_gives_the_same(digits, monkeypatch):
    _, incomplete = digits
    imputer = quick().fit(incomplete)
    whole = imputer.transform(incomplete)
    monkeypatch.setattr("halfseen.tile_coder.entries_at_once", lambda device: 128 * 100)
    np.testing.assert_allclose(imputer.transform(incomplete), whole, atol=1e-10)


def test_the_same_seed_gives_the_same_and_global_state_is_untouched(digits):
    _, incomplete = digits
    numpy_state, torch_state = np.random.get_state()[1].copy(), torch.get_rng_state()
    first, second, other = (
        quick(random_state=seed).fit(incomplete).components_ for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, second)
    assert not np.allclose(first, other)
    unseeded = [quick(random_state=None).fit(incomplete).components_ for _ in range(2)]
    assert not np.allclose(*unseeded)
    drawn = [
        quick(random_state=np.random.RandomState(3)).fit(incomplete).components_ for _ in range(2)
    ]
    np.testing.assert_array_equal(*drawn)
    np.testing.assert_array_equal(numpy_state, np.random.get_state()[1])
    assert torch.equal(torch_state, torch.get_rng_state())


def test_a_stream_learns_as_well_as_all_at_once(digits):
    X, incomplete = digits
    holes = np.isnan(incomplete)
    stream = SparseCodingImputer(n_steps=200, random_state=0)
    for _ in range(60):
        for part in np.array_split(incomplete, 4):
            stream.partial_fit(part)
    assert stream.n_steps_ == 240
    np.testing.assert_allclose(stream.mean_, np.nanmean(incomplete, axis=0))
    whole = SparseCodingImputer(n_steps=200, random_state=0).fit(incomplete)
    np.testing.assert_allclose(stream.alpha_, whole.alpha_)
    errors = [
        np.square(imputer.transform(incomplete) - X)[holes].mean() for imputer in (stream, whole)
    ]
    assert errors[0] < 1.1 * errors[1]


def test_a_stream_may_show_features_late():
    random = np.random.default_rng(0)
    X = random.standard_normal((40, 3))
    early, late = X[:20].copy(), X[20:]
    early[:, 1] = np.nan
    imputer = quick().partial_fit(early)
    with pytest.raises(ValueError, match="1 feature.*never observed, the first is 1"):
        imputer.transform(early)
    imputer.partial_fit(late)
    np.testing.assert_allclose(imputer.mean_[1], late[:, 1].mean())
    np.testing.assert_allclose(imputer.mean_[0], X[:, 0].mean())
    assert np.isfinite(imputer.transform(early)).all()


def test_on_complete_data_it_is_dictionary_learning():
    """Nothing missing: as good an objective as scikit-learn's dictionary learning reaches."""
    X = load_digits().data
    X = X - X.mean(0)
    alpha = 20.0
    ours = SparseCodingImputer(64, alpha=alpha, n_steps=300, random_state=0).fit(X).components_
    theirs = MiniBatchDictionaryLearning(
        64, alpha=alpha, batch_size=512, max_iter=50, random_state=0, transform_algorithm="lasso_cd"
    ).fit(X)

    def objective(dictionary):
        dictionary = dictionary / np.linalg.norm(dictionary, axis=1, keepdims=True)
        codes = sparse_encode(X, dictionary, alpha)
        return np.square(X - codes @ dictionary).sum() / 2 + alpha * np.abs(codes).sum()

    assert objective(ours) < 1.02 * objective(theirs.components_)


def test_float32_stays_float32(digits):
    _, incomplete = digits
    narrow = incomplete.astype(np.float32)
    imputer = quick().fit(narrow)
    assert imputer.components_.dtype == imputer.transform(narrow).dtype == np.float32
    wide = quick().fit(incomplete)
    difference = imputer.transform(narrow) - wide.transform(incomplete)
    assert np.sqrt(np.square(difference).mean()) < 0.5  # of values up to 16


def test_atoms_have_norm_one_and_settings_are_kept(digits):
    _, incomplete = digits
    imputer = quick(n_atoms=12, positive=True)
    fitted = clone(imputer).fit(incomplete)
    np.testing.assert_allclose(np.linalg.norm(fitted.components_, axis=1), 1)
    assert fitted.components_.shape == (12, 64)
    assert fitted.get_params() == imputer.get_params()
    assert (fitted.encode(incomplete) >= 0).all()


def test_pandas_in_pandas_out_and_pipelines(digits):
    _, incomplete = digits
    names = [f"pixel{i}" for i in range(64)]
    frame = pd.DataFrame(incomplete, columns=names, index=np.arange(len(incomplete)) + 7)
    pipeline = make_pipeline(StandardScaler(), quick()).set_output(transform="pandas")
    completed = pipeline.fit_transform(frame[incomplete[:, 0] == 0])
    assert list(completed.columns) == names == list(pipeline[-1].feature_names_in_)
    assert list(pipeline[-1].get_feature_names_out()) == names
    imputer = quick().set_output(transform="pandas").fit(frame)
    assert list(imputer.transform(frame).index) == list(frame.index)
    with pytest.raises(ValueError, match="feature names"):
        imputer.transform(frame[names[::-1]])


def test_pickled_imputers_complete_and_go_on_learning_alike(digits):
    _, incomplete = digits
    imputer = quick().fit(incomplete)
    twin = pickle.loads(pickle.dumps(imputer))
    np.testing.assert_array_equal(twin.transform(incomplete), imputer.transform(incomplete))
    imputer.partial_fit(incomplete[:100])
    np.testing.assert_array_equal(
        twin.partial_fit(incomplete[:100]).components_, imputer.components_
    )


def test_constant_data_are_completed_by_their_constants():
    X = np.tile([1.0, 2.0, 3.0], (10, 1))
    X[np.arange(10), np.arange(10) % 3] = np.nan
    np.testing.assert_allclose(quick().fit_transform(X), np.tile([1.0, 2.0, 3.0], (10, 1)))


def test_unfinished_codes_are_told_once(digits, monkeypatch):
    _, incomplete = digits
    imputer = quick(alpha=0.01, tol=1e-9).fit(incomplete[:50])
    monkeypatch.setattr("halfseen.tile_coder.MAX_ITER", 1)
    monkeypatch.setattr("halfseen.tile_coder.entries_at_once", lambda device: 128 * 10)
    with pytest.warns(ConvergenceWarning, match="50 of 50 rows") as log:
        imputer.transform(incomplete[:50])
    assert len(log) == 1


def holes_in_column(n=3):
    X = np.random.default_rng(0).standard_normal((8, n))
    X[:, 1] = np.nan
    return X


@pytest.mark.parametrize(
    ("settings", "X", "message"),
    [
        ({}, np.array([[1.0, np.inf]]), "infinity"),
        ({}, np.array([["a", "b"]]), "could not convert string"),
        ({}, np.empty((0, 3)), "0 sample"),
        ({}, holes_in_column(), "1 feature.*never observed, the first is 1; remove"),
        ({"n_atoms": 0}, np.eye(3), "n_atoms must be a whole number ≥ 1 or None; got 0"),
        ({"n_steps": 2.5}, np.eye(3), "n_steps must be"),
        ({"batch_size": True}, np.eye(3), "batch_size must be"),
        ({"alpha": -1.0}, np.eye(3), "alpha must be a positive number or None; got -1.0"),
        ({"tol": "small"}, np.eye(3), "tol must be"),
        ({"tiling": "patches"}, np.eye(3), "tiling must be None or a tiling such as"),
        ({"tiling": Patches(2)}, np.eye(3), "needs samples with 2 axes"),
        ({"random_state": -1}, np.eye(3), "random_state must be"),
        ({"random_state": True}, np.eye(3), "random_state must be"),
        ({"random_state": 2**70}, np.eye(3), "random_state must be"),
        ({"device": "abacus"}, np.eye(3), "cannot be used here"),
    ],
)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_bad_input_is_explained_and_leaves_no_state(settings, X, message, method):
    if method == "partial_fit" and "never observed" in message:
        return  # allowed in a stream: see test_a_stream_may_show_features_late
    imputer = quick(**settings)
    before = vars(imputer).copy()
    with pytest.raises(ValueError, match=message):
        getattr(imputer, method)(X)
    assert vars(imputer) == before


def test_masked_arrays_and_tensors(digits):
    _, incomplete = digits
    holes = np.isnan(incomplete)
    expected = quick().fit_transform(incomplete)
    masked = np.ma.masked_array(np.where(holes, 9e9, incomplete), mask=holes)
    np.testing.assert_array_equal(quick().fit_transform(masked), expected)
    tensor = torch.from_numpy(incomplete).requires_grad_()
    np.testing.assert_array_equal(quick().fit_transform(tensor), expected)
    assert quick().fit_transform(tensor.bfloat16()).dtype == np.float32


@pytest.mark.parametrize("scale", [1e20, 1e-30])
def test_values_beyond_float32_are_refused(digits, scale):
    _, incomplete = digits
    with pytest.raises(ValueError, match="range of float32; rescale it or pass float64"):
        quick().fit((incomplete * scale).astype(np.float32))
    imputer = quick().fit((incomplete * 1).astype(np.float32))
    huge = np.full((1, 64), 1e20, np.float32)
    np.testing.assert_array_equal(imputer.transform(huge), huge)  # nothing to fill
    with pytest.raises(ValueError, match="range of float32"):
        imputer.transform(np.where(np.arange(64) == 0, np.nan, huge))


def test_a_tiling_changed_after_fit_is_noticed(digits):
    _, incomplete = digits
    images = incomplete.reshape(-1, 8, 8)
    imputer = quick(tiling=Patches(4, 2)).fit(images).set_params(tiling=Patches(3, 1))
    for method in (imputer.transform, imputer.encode, imputer.partial_fit):
        with pytest.raises(ValueError, match="tiles of 9 features, but atoms of 16.*fit again"):
            method(images)


def test_codes_may_have_any_layout(digits):
    _, incomplete = digits
    imputer = quick().fit(incomplete)
    codes = imputer.encode(incomplete)
    expected = imputer.inverse_transform(codes)
    backwards = codes[::-1]
    backwards.flags.writeable = False
    np.testing.assert_allclose(imputer.inverse_transform(backwards), expected[::-1], rtol=1e-9)
    with pytest.raises(ValueError, match="codes contains nan"):
        imputer.inverse_transform(np.full_like(codes, np.nan))


def test_a_failed_refit_keeps_the_old_model(digits):
    _, incomplete = digits
    imputer = quick().fit(incomplete)
    completed = imputer.transform(incomplete)
    with pytest.raises(ValueError, match="never observed"):
        imputer.fit(holes_in_column())
    with pytest.raises(ValueError, match="3 features"):
        imputer.partial_fit(np.ones((2, 3)))
    np.testing.assert_array_equal(imputer.transform(incomplete), completed)


def test_wrong_shapes_after_fit_are_explained(digits):
    _, incomplete = digits
    with pytest.raises(NotFittedError):
        quick().transform(incomplete)
    imputer = quick().fit(incomplete)
    with pytest.raises(ValueError, match="X has 3 features.*expecting 64"):
        imputer.transform(np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"\(n_samples, 64\) were expected; got \(2, 5\)"):
        imputer.inverse_transform(np.ones((2, 5)))
    images = quick(tiling=Patches(3, 2)).fit(incomplete.reshape(-1, 8, 8))
    with pytest.raises(ValueError, match=r"shape \(8, 8\) were learned.*\(8, 9\)"):
        images.transform(np.ones((1, 8, 9)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: pd.DataFrame({"a": pd.to_datetime(["2020-01-01", None, "2021-01-01"] * 9)}),
        lambda: pd.DataFrame({"a": pd.to_timedelta([1, None, 3] * 9, unit="D"), "b": 1.0}),
        lambda: np.array([["2020-01-01"], ["NaT"]] * 9, dtype="datetime64[ns]"),
        lambda: pl.DataFrame({"a": [datetime.date(2020, 1, 1), None] * 9}),
    ],
)
def test_dates_are_no_numbers(make):
    for estimator in (SparseCodingImputer(n_steps=2), SparseCodingClassifier(n_epochs=1)):
        with pytest.raises(ValueError, match="X has dates or durations.*TableClassifier"):
            estimator.fit(make(), np.arange(len(make())) % 2)


@pytest.mark.parametrize("kind", [np.int8, np.int64])
def test_whole_numbers_of_numpy_are_whole_numbers(digits, kind):
    settings = {"n_atoms": 8, "n_steps": 3, "random_state": 0}
    found = SparseCodingImputer(batch_size=kind(100), **settings).fit(digits[0])
    same = SparseCodingImputer(batch_size=100, **settings).fit(digits[0])
    np.testing.assert_array_equal(found.components_, same.components_)
    streamed = SparseCodingImputer(batch_size=kind(100), **settings).partial_fit(digits[0])
    assert np.isfinite(streamed.components_).all()


def test_names_of_two_kinds_are_refused_before_learning(monkeypatch):
    def learned(*_, **__):
        raise AssertionError("it learned first")

    monkeypatch.setattr("halfseen.imputer.learn_dictionary", learned)
    frame = pd.DataFrame(np.eye(3), columns=["a", 1, 2])
    with pytest.raises(TypeError, match="names"):
        SparseCodingImputer().fit(frame)
