import io
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, make_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from halfseen import (
    Channels,
    Patches,
    Published,
    SparseCodingClassifier,
    SparseCodingImputer,
    TableClassifier,
    ampute,
    sparse_encode,
)
from halfseen.fitting import split_for_validation
from halfseen.nn import SparseCompletion
from halfseen.rivals import mean_fill


@parametrize_with_checks([SparseCodingClassifier(n_epochs=200, random_state=0)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def punched(X, missing=0.3, seed=0):
    """Return a copy of X with holes."""
    return np.where(np.random.default_rng(seed).random(X.shape) < missing, np.nan, X)


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return punched(X), np.array(["setosa", "versicolor", "virginica"])[y]


@pytest.fixture(scope="module")
def fitted(iris):
    return SparseCodingClassifier(n_epochs=60, random_state=0).fit(*iris)


@pytest.fixture(scope="module")
def blobs():
    X, y = make_blobs(200, 8, centers=3, cluster_std=1.5, center_box=(-3, 3), random_state=0)
    return punched(X), y


RATES = {"code_rate": 2.0, "test_code_rate": 2.0}
AS_PUBLISHED = {"label_weight": 0.1, "learning_rate": 0.05, "batch_size": 20, "lambda_l1": 0.3}
WAYS = {
    "task": {},
    "joint": {"training": "joint"},
    "joint with labels": {"training": "joint", "label_weight": 0.5},
    "sequential": {"training": "sequential"},
    "published": {"training": Published(**RATES), **AS_PUBLISHED},
    "published, sequential": {"training": Published(**RATES, sequential=True), **AS_PUBLISHED},
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_learns_from_samples_with_holes(blobs, way):
    X, y = blobs
    clf = SparseCodingClassifier(n_epochs=150, random_state=0, **WAYS[way]).fit(X[:120], y[:120])
    assert clf.score(X[120:], y[120:]) > 0.75
    norms = clf.module_.completion.dictionary.norm(dim=1)
    torch.testing.assert_close(norms, torch.ones_like(norms))


def test_digits_with_half_hidden_beat_zero_fill_by_far():
    X, y = load_digits(return_X_y=True)
    train, test, y_train, y_test = train_test_split(
        punched(X, 0.5), y, test_size=0.3, random_state=0, stratify=y
    )
    clf = SparseCodingClassifier(random_state=0).fit(train, y_train)
    zero_fill = LogisticRegression(C=0.01, max_iter=2000).fit(np.nan_to_num(train), y_train)
    assert clf.score(test, y_test) > zero_fill.score(np.nan_to_num(test), y_test) + 0.1
    assert clf.score(test, y_test) > 0.86


def test_holes_in_training_only_at_test_only_in_both_and_in_neither():
    X, y = make_blobs(300, 6, centers=3, cluster_std=2.0, random_state=0)
    whole, holes = X, punched(X, 0.2)
    for train in (whole, holes):
        clf = SparseCodingClassifier(n_epochs=60, random_state=0).fit(train, y)
        for test in (whole, holes):
            assert clf.score(test, y) > 0.9


@pytest.mark.parametrize("network_input", ["completed", "reconstruction"])
def test_network_sees_what_it_is_told_to(iris, network_input):
    X, y = iris
    clf = SparseCodingClassifier(n_epochs=5, network_input=network_input, random_state=0)
    clf.fit(X, y)
    module = clf.module_
    with torch.no_grad():
        parts = module.completion(module.standardise(torch.from_numpy(X)), details=True)
        expected = module.network(getattr(parts, network_input))
    np.testing.assert_allclose(clf.decision_function(X), expected)
    np.testing.assert_allclose(clf.decision_function(X), module(torch.from_numpy(X)).detach())


def test_logarithms_of_probabilities_are_right_where_those_are_zero(iris):
    X, y = iris
    clf = SparseCodingClassifier(n_epochs=5, random_state=0).fit(X, y)
    np.testing.assert_allclose(np.exp(clf.predict_log_proba(X)), clf.predict_proba(X))
    with torch.no_grad():
        clf.module_.network[1].weight.mul_(1e5)
    assert (clf.predict_proba(X) == 0).any()
    assert np.isfinite(clf.predict_log_proba(X)).all()


@pytest.mark.parametrize("network_input", ["completed", "reconstruction"])
def test_only_what_the_network_needs_is_coded(iris, network_input, monkeypatch):
    X, y = iris
    clf = SparseCodingClassifier(n_epochs=5, network_input=network_input, random_state=0).fit(X, y)
    complete = load_iris().data
    mixed = np.where(np.arange(150)[:, None] % 3 == 0, X, complete)
    n_with_holes = int(np.isnan(mixed).any(1).sum())
    expected = clf.module_(torch.from_numpy(mixed)).softmax(1).detach().numpy()
    filled = np.where(np.isnan(mixed), clf.inverse_transform(clf.transform(mixed)), mixed)
    coded = []
    encode = SparseCompletion.encode

    def counting(self, values, *rest):
        coded.append(len(values))
        return encode(self, values, *rest)

    monkeypatch.setattr(SparseCompletion, "encode", counting)
    np.testing.assert_allclose(clf.predict_proba(mixed), expected, atol=1e-12)
    assert coded == [n_with_holes if network_input == "completed" else 150]
    coded.clear()
    np.testing.assert_allclose(clf.impute(mixed), filled, atol=1e-12)
    assert coded == [n_with_holes]
    np.testing.assert_array_equal(clf.impute(complete), complete)
    assert coded == [n_with_holes]


def test_outputs_hang_together(fitted, iris):
    X, _ = iris
    codes = fitted.transform(X)
    completed = fitted.impute(X)
    holes = np.isnan(X)
    np.testing.assert_array_equal(completed[~holes], X[~holes])
    np.testing.assert_allclose(fitted.inverse_transform(codes)[holes], completed[holes])
    probability = fitted.predict_proba(X)
    np.testing.assert_allclose(probability.sum(1), 1)
    assert (fitted.predict(X) == fitted.classes_[probability.argmax(1)]).all()
    scores = fitted.decision_function(X)
    np.testing.assert_allclose(
        np.log(probability[:, 1] / probability[:, 0]), scores[:, 1] - scores[:, 0]
    )
    with pytest.raises(ValueError, match="transform"):
        fitted.inverse_transform(codes[:, 1:])


def test_two_classes_have_one_score(iris):
    X, y = iris
    two = y != "setosa"
    clf = SparseCodingClassifier(n_epochs=20, random_state=0).fit(X[two], y[two])
    scores = clf.decision_function(X)
    assert scores.shape == (150,)
    assert ((scores > 0) == (clf.predict(X) == "virginica")).all()


def test_completions_are_better_than_means():
    X, y = load_digits(return_X_y=True)
    holes = np.random.default_rng(0).random(X.shape) < 0.5
    incomplete = np.where(holes, np.nan, X)
    clf = SparseCodingClassifier(n_epochs=20, random_state=0).fit(incomplete, y)
    error = np.square(clf.impute(incomplete) - X)[holes].mean()
    mean_error = np.square(np.nanmean(incomplete, 0) - X)[holes].mean()
    assert error < 0.5 * mean_error
    imputer = SparseCodingImputer(random_state=0).fit(incomplete)
    unsupervised = np.square(imputer.transform(incomplete) - X)[holes].mean()
    assert error < 1.1 * unsupervised


def test_rows_are_independent_at_prediction(fitted, iris):
    X, _ = iris
    together = fitted.predict_proba(X)
    alone = np.concatenate([fitted.predict_proba(row[None]) for row in X])
    np.testing.assert_allclose(alone, together, rtol=1e-10)
    order = np.random.default_rng(0).permutation(len(X))
    np.testing.assert_allclose(fitted.predict_proba(X[order]), together[order], rtol=1e-10)


def test_order_of_training_rows_does_not_matter_and_input_is_not_modified(fitted, iris):
    X, y = iris
    before = X.copy()
    order = np.random.default_rng(1).permutation(len(X))
    other = clone(fitted).fit(X[order], y[order])
    assert (other.predict_proba(X) == fitted.predict_proba(X)).all()
    np.testing.assert_array_equal(X, before)


def test_seeds_decide_and_global_random_state_is_untouched(fitted, iris):
    X, y = iris
    torch.manual_seed(5)
    np.random.seed(5)
    states = torch.get_rng_state(), np.random.get_state()[1].copy()
    again = clone(fitted).fit(X, y)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()
    assert (again.predict_proba(X) == fitted.predict_proba(X)).all()
    other = clone(fitted).set_params(random_state=1).fit(X, y)
    assert not (other.predict_proba(X) == fitted.predict_proba(X)).all()
    generator = np.random.RandomState(0)
    assert clone(fitted).set_params(random_state=generator, n_epochs=1).fit(X, y).n_iter_ == 1


def test_class_weight_balances(iris):
    X, y = iris
    X, y = X[50:], y[50:]
    few = np.r_[0:50, 50:55]  # 50 versicolor, 5 virginica
    plain = SparseCodingClassifier(n_epochs=60, random_state=0).fit(X[few], y[few])
    balanced = clone(plain).set_params(class_weight="balanced").fit(X[few], y[few])
    rare = y == "virginica"
    assert balanced.score(X[rare], y[rare]) > plain.score(X[rare], y[rare])
    with pytest.raises(ValueError, match="positive weight"):
        plain.set_params(class_weight={"versicolor": 0, "virginica": 0}).fit(X, y)


def test_balanced_classes_count_weights_not_rows(iris):
    X, y = iris
    weight = 1.0 + (np.arange(len(y)) < 50)
    weight[-1] = 0
    clf = SparseCodingClassifier(n_epochs=5, random_state=0, class_weight="balanced")
    twice = np.r_[0 : len(y) - 1, 0:50]
    expected = clone(clf).fit(X[twice], y[twice]).predict_proba(X)
    np.testing.assert_array_equal(
        clone(clf).fit(X, y, sample_weight=weight).predict_proba(X), expected
    )


def test_images_with_a_convolutional_network_and_patches():
    X, y = load_digits(return_X_y=True)
    X = punched(X.reshape(-1, 8, 8).astype(np.float32), 0.3)
    clf = SparseCodingClassifier("cnn4_bn", Patches(4, 2), 24, n_epochs=12, random_state=0)
    clf.fit(X[:900], y[:900])
    assert clf.score(X[900:], y[900:]) > 0.85
    assert clf.transform(X[:3]).shape == (3, 9, 24)
    assert clf.impute(X[:3]).dtype == np.float32
    assert clf.impute(X[:3]).shape == (3, 8, 8)
    alone = clf.predict_proba(X[:1])
    np.testing.assert_allclose(alone, clf.predict_proba(X[:50])[:1], rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="samples of shape"):
        clf.predict(X[:, :, :7])


def test_channels_and_windows_are_coded_one_by_one():
    X, y = load_digits(return_X_y=True)
    signals = punched(X[:300].reshape(-1, 2, 32))
    for tiling, samples, n_tiles in (
        (Channels(), signals, 2),
        (Patches((8,), 8), signals[:, 0], 4),
    ):
        clf = SparseCodingClassifier(tiling=tiling, n_epochs=3, random_state=0)
        module = clf.fit(samples, y[:300]).module_
        module.completion.tol = 1e-10
        centred = module.standardise(torch.from_numpy(samples)) - module.completion.mean
        alpha = module.completion.alpha(~centred.isnan(), centred.dtype)
        expected = sparse_encode(
            centred.reshape(300 * n_tiles, -1),
            module.completion.dictionary.detach(),
            alpha.repeat_interleave(n_tiles),
            tol=1e-10,
        )
        found = clf.transform(samples)
        np.testing.assert_allclose(found, expected.reshape(300, n_tiles, -1), atol=1e-4)
        assert (found != 0).any(-1).mean() > 0.5


def test_a_network_of_ones_own(iris):
    X, y = iris
    module = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.1), nn.Tanh(), nn.Linear(16, 3))
    before = [weight.clone() for weight in module.parameters()]
    clf = SparseCodingClassifier(module, learning_rate=0.01, random_state=0).fit(X, y)
    assert clf.score(X, y) > 0.85
    for weight, old in zip(module.parameters(), before, strict=True):
        assert torch.equal(weight, old)
    made = SparseCodingClassifier(
        lambda shape, n_classes: nn.Linear(shape[0], n_classes), n_epochs=3, random_state=0
    )
    assert made.fit(X, y).predict(X).shape == (150,)


def test_works_inside_scikit_learn(blobs):
    X, y = blobs
    clf = SparseCodingClassifier(n_epochs=50, training="joint", random_state=0)
    pipeline = make_pipeline(StandardScaler(), clf)
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.75
    search = GridSearchCV(clf, {"network": ["logistic", "mlp"]}, cv=2)
    assert search.fit(X, y).best_score_ > 0.75


def test_frames_of_pandas_and_polars(iris):
    import pandas as pd
    import polars as pl

    X, y = iris
    names = ["a", "b", "c", "d"]
    frame = pd.DataFrame(X, columns=names)
    clf = SparseCodingClassifier(n_epochs=5, random_state=0).fit(frame, pd.Series(y))
    assert list(clf.feature_names_in_) == names
    expected = clf.predict_proba(frame)
    with pytest.warns(UserWarning, match="feature names"):
        np.testing.assert_array_equal(clf.predict_proba(X), expected)
    with pytest.raises(ValueError, match="feature names"):
        clf.predict(frame[names[::-1]])
    polars = pl.DataFrame(X, schema=names)
    np.testing.assert_array_equal(clf.predict_proba(polars), expected)
    nulls = polars.with_columns(pl.all().fill_nan(None))
    np.testing.assert_array_equal(clf.predict_proba(nulls), expected)
    assert clone(clf).fit(polars, pl.Series(y)).predict(polars).shape == (150,)


def test_early_stopping_keeps_the_best_epoch(iris):
    X, y = iris
    clf = SparseCodingClassifier("mlp", validation_fraction=0.3, n_epochs=300, random_state=0)
    clf.fit(X, y)
    accuracies = [record["validation_accuracy"] for record in clf.history_]
    best = 30 + int(np.argmax(accuracies[30:]))  # a tenth of the epochs is warm-up
    assert clf.n_iter_ == best + 1 + 75  # a quarter of the epochs is patience
    assert clf.score(X, y) > 0.8
    shorter = clone(clf).set_params(validation_fraction=None)
    assert not (shorter.fit(X, y).predict_proba(X) == clf.predict_proba(X)).all()
    with pytest.raises(ValueError, match="validate with"):
        SparseCodingClassifier(validation_fraction=0.01).fit(X[::10], y[::10])


def test_every_class_is_learned_from_however_much_is_held_out():
    labels = np.array([0] * 40 + [1, 1] + [2])
    learned, held_out = split_for_validation(0.75, labels, 0)
    assert sorted(labels[learned]) == [0] * 10 + [1, 2]
    assert len(held_out) == 31


def test_the_default_decay_is_the_documented_one(blobs):
    X, y = blobs
    for network, decay in (("mlp", 0.5), ("logistic", 0.001)):
        default, named = (
            SparseCodingClassifier(network, n_epochs=2, random_state=0, **chosen).fit(X, y)
            for chosen in ({}, {"weight_decay": decay})
        )
        np.testing.assert_array_equal(default.predict_proba(X), named.predict_proba(X))


def test_early_stopping_waits_for_the_network_of_algorithm_3(blobs):
    clf = SparseCodingClassifier(
        training=Published(**RATES, sequential=True), n_epochs=30, validation_fraction=0.3
    )
    assert clf.fit(*blobs).n_iter_ > 30


def test_weights_do_not_change_the_scale_of_the_history(blobs):
    X, y = blobs
    weight = np.ones(len(X))
    weight[:20] = 1e300
    clf = SparseCodingClassifier(n_epochs=20, validation_fraction=0.5, random_state=0)
    clf.fit(X, y, sample_weight=weight)
    assert 0 < clf.history_[-1]["accuracy"] <= 1


def test_a_constant_column_changes_nothing(blobs):
    X, y = blobs
    X = np.column_stack([X, np.full(len(X), 0.1)])
    clf = SparseCodingClassifier(n_epochs=20, random_state=0).fit(X, y)
    before = clf.predict_proba(X)
    X[:, -1] = 0.1001
    np.testing.assert_allclose(clf.predict_proba(X), before, atol=1e-2)


def test_arrays_of_any_layout_are_predicted(fitted, iris):
    X, _ = iris
    expected = fitted.predict_proba(X)
    np.testing.assert_allclose(fitted.predict_proba(X[::-1])[::-1], expected)
    locked = np.asfortranarray(X)
    locked.flags.writeable = False
    np.testing.assert_allclose(fitted.predict_proba(locked), expected)


def test_values_out_of_range_are_refused(iris):
    X, y = iris
    with pytest.raises(ValueError, match="rescale"):
        SparseCodingClassifier().fit(X * 1e200, y)
    clf = SparseCodingClassifier(n_epochs=2, random_state=0).fit(X.astype(np.float32), y)
    with pytest.raises(ValueError, match="contains inf"):
        clf.predict(np.full((1, 4), 1e39))
    with pytest.raises(ValueError, match="without features"):
        clf.fit(np.zeros((6, 2, 0)), [0, 1] * 3)


@pytest.mark.parametrize(
    "question",
    [
        "predict",
        "predict_proba",
        "decision_function",
        "transform",
        "impute",
        "certify",
        "completion_proba",
        "what_to_measure",
    ],
)
@pytest.mark.parametrize(("dtype", "huge"), [(np.float64, 1e300), (np.float32, 1e25)])
def test_holes_beside_values_too_large_to_code_are_not_filled(iris, question, dtype, huge):
    X, y = iris
    clf = SparseCodingClassifier(n_epochs=2, random_state=0).fit(X.astype(dtype), y)
    new = np.tile(X, (3, 1)).astype(dtype)
    new[407] = [huge, 1, 1, np.nan]
    with pytest.raises(ValueError, match="of row 407 of X are not finite: its values"):
        getattr(clf, question)(new)


def test_fits_in_threads_do_not_disturb_each_other(blobs):
    X, y = blobs
    clf = SparseCodingClassifier("mlp", n_epochs=5, random_state=0)
    expected = clone(clf).fit(X, y).predict_proba(X)
    state = torch.get_rng_state()
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: clone(clf).fit(X, y).predict_proba(X), range(4)))
    assert all((result == expected).all() for result in results)
    assert torch.equal(torch.get_rng_state(), state)


def test_fit_works_inside_no_grad(blobs):
    with torch.no_grad():
        assert SparseCodingClassifier(n_epochs=2).fit(*blobs).n_iter_ == 2
    frozen = nn.Linear(8, 3).requires_grad_(False)
    with pytest.raises(ValueError, match="no parameters to train"):
        SparseCodingClassifier(frozen, training="sequential").fit(*blobs)


def test_codes_have_names(fitted, iris):
    X, _ = iris
    names = fitted.get_feature_names_out()
    assert len(names) == fitted.transform(X).shape[1]
    assert names[0] == "sparsecodingclassifier0"


def test_history_is_plain_records(fitted):
    record = fitted.history_[-1]
    assert fitted.n_iter_ == len(fitted.history_) == record["epoch"] == 60
    assert set(record) == {"epoch", "J0", "J1", "J2", "nonzero", "accuracy", "seconds"}
    assert record["J0"] < fitted.history_[0]["J0"]
    assert 0 < record["nonzero"] < 1


def test_a_loss_that_explodes_names_epoch_and_term(iris):
    X, y = iris
    clf = SparseCodingClassifier(learning_rate=1e300, random_state=0)
    with pytest.raises(ValueError, match=r"epoch \d: J0 became (nan|inf).*learning_rate"):
        clf.fit(X, y)
    assert not hasattr(clf, "module_")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"network": "transformer"}, "network must be"),
        ({"tiling": "patches"}, "tiling must be"),
        ({"n_atoms": 0}, "n_atoms must be"),
        ({"lambda_rec": 0.0}, "lambda_rec must be"),
        ({"lambda_l1": -1.0}, "lambda_l1 must be"),
        ({"rec_scaling": "mean"}, "rec_scaling must be"),
        ({"training": "supervised"}, "training must be"),
        ({"label_weight": -0.1}, "label_weight must be"),
        ({"network_input": "imputed"}, "network_input must be"),
        ({"hide": 1.0}, "hide must be"),
        ({"n_epochs": 0}, "n_epochs must be"),
        ({"batch_size": 1.5}, "batch_size must be"),
        ({"learning_rate": np.nan}, "learning_rate must be"),
        ({"weight_decay": -1}, "weight_decay must be"),
        ({"validation_fraction": 1.0}, "validation_fraction must be"),
        ({"device": "abacus"}, "device"),
        ({"random_state": -1}, "random_state must be"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(iris, parameters, message):
    with pytest.raises(ValueError, match=message):
        SparseCodingClassifier(**parameters).fit(*iris)


def test_a_feature_that_is_never_observed_is_refused(iris):
    X, y = iris
    X = X.copy()
    X[:, 2] = np.nan
    with pytest.raises(ValueError, match="never observed"):
        SparseCodingClassifier().fit(X, y)


def test_a_row_without_any_observation_is_classified(fitted):
    probability = fitted.predict_proba(np.full((1, 4), np.nan))
    np.testing.assert_allclose(probability.sum(), 1)
    completed = fitted.impute(np.full((1, 4), np.nan))
    np.testing.assert_allclose(completed[0], fitted.module_.standardise.centre)


def test_save_and_load(fitted, iris, tmp_path):
    X, _ = iris
    path = tmp_path / "model.halfseen"
    fitted.save(path)
    loaded = SparseCodingClassifier.load(path)
    assert (loaded.predict_proba(X) == fitted.predict_proba(X)).all()
    assert (loaded.predict(X) == fitted.predict(X)).all()
    assert (loaded.impute(X) == fitted.impute(X)).all()
    assert repr(loaded.get_params()) == repr(fitted.get_params())
    assert loaded.history_ == fitted.history_
    loaded.fit(*iris)  # goes on being an estimator
    assert (loaded.predict_proba(X) == fitted.predict_proba(X)).all()


def test_what_is_saved_is_what_was_fitted(fitted, iris, tmp_path):
    X, _ = iris
    changed = pickle.loads(pickle.dumps(fitted))
    changed.set_params(network="mlp", lambda_rec=20.0, network_input="reconstruction")
    changed.save(tmp_path / "model")
    loaded = SparseCodingClassifier.load(tmp_path / "model")
    assert (loaded.predict_proba(X) == fitted.predict_proba(X)).all()
    assert loaded.network == "logistic"
    with pytest.raises(FileNotFoundError, match="no folder"):
        fitted.save(tmp_path / "nowhere" / "model")


@pytest.mark.parametrize("labels", [[3, 1, 2], [1.0, 2.0, 4.0], ["x", "y", "ÿ"], [True, False]])
def test_save_and_load_with_many_settings(labels, tmp_path):
    X = punched(np.random.default_rng(0).standard_normal((60, 2, 6, 6)))
    y = np.resize(np.array(labels), 60)
    clf = SparseCodingClassifier(
        "mlp",
        Patches((3, 2), (2, 2)),
        np.int64(7),
        class_weight={labels[0]: 2.0, labels[1]: 1.0},
        training=Published(code_rate=np.float32(0.4), sequential=True),
        n_epochs=3,
        random_state=0,
    ).fit(X, y)
    clf.save(tmp_path / "model")
    loaded = SparseCodingClassifier.load(tmp_path / "model")
    assert (loaded.predict_proba(X) == clf.predict_proba(X)).all()
    assert (loaded.classes_ == clf.classes_).all()
    assert loaded.classes_.dtype == clf.classes_.dtype
    assert loaded.class_weight == clf.class_weight
    assert loaded.training == clf.training
    assert loaded.tiling == clf.tiling


@pytest.mark.parametrize(
    "question", ["predict", "certify", "completion_proba", "what_to_measure", "predict_proba"]
)
def test_scores_that_are_not_finite_answer_nothing(iris, question):
    X, y = iris
    clf = SparseCodingClassifier(n_epochs=2, random_state=0).fit(X.astype(np.float32), y)
    with torch.no_grad():
        clf.module_.network[1].weight *= 5e38
    with pytest.raises(ValueError, match="the scores of row 0 of X are not finite"):
        getattr(clf, question)(np.float32([[1, 2, 3, np.nan]]))


def test_completed_samples_have_room_in_the_precision_of_x(iris):
    X, y = iris
    X = X * [1, 1, 1, 1000]
    clf = SparseCodingClassifier(n_epochs=2, random_state=0).fit(X, y)
    large = np.random.default_rng(0).uniform(-3.4e38, 3.4e38, (100, 4)).astype(np.float32)
    large[:, 3] = np.nan
    with pytest.raises(ValueError, match="completed values of row .* of X are not finite"):
        clf.impute(large)
    assert np.isfinite(clf.impute(large.astype(np.float64))).all()


class Short(SparseCodingClassifier):
    def __init__(self, n_epochs=2):
        super().__init__("mlp", n_epochs=n_epochs, training="joint", random_state=0)


def test_a_subclass_may_fix_parameters(iris, tmp_path):
    X, y = iris
    clf = Short().fit(X, y, checkpoint=tmp_path / "training")
    clf.save(tmp_path / "model")
    again = SparseCodingClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
    with pytest.raises(ValueError, match="Short does not take batch_size.*Classifier.load"):
        Short.load(tmp_path / "model")


@pytest.mark.parametrize(
    "tensor", [torch.empty(30, 4, device="meta"), torch.eye(30, 4).to_sparse()], ids=str
)
def test_tensors_without_all_their_values_are_refused(tensor):
    y = [0, 1] * 15
    for call in (
        lambda: SparseCodingClassifier(n_epochs=1).fit(tensor, y),
        lambda: SparseCodingImputer(n_steps=1).fit(tensor),
        lambda: TableClassifier().fit(tensor, y),
        lambda: ampute(tensor, "random", 0.5),
        lambda: sparse_encode(tensor, np.eye(4), 0.1),
    ):
        with pytest.raises(ValueError, match="one with all its values was expected"):
            call()
    for labels, weights in ((tensor[:, 0], None), (y, tensor[:, 0])):
        with pytest.raises(ValueError, match="one with all its values was expected"):
            SparseCodingClassifier(n_epochs=1).fit(np.eye(30, 4), labels, weights)
    halves = torch.rand(30, 4).bfloat16()
    clf = TableClassifier(SparseCodingClassifier(n_epochs=1, random_state=0)).fit(halves, y)
    np.testing.assert_array_equal(clf.predict(halves), clf.predict(halves.float()))


def test_networks_that_torch_cannot_copy_are_refused_in_words(iris):
    with pytest.warns(FutureWarning, match="weight_norm"):
        network = torch.nn.utils.weight_norm(nn.Linear(4, 3))
    for given in (network, lambda: network):
        with pytest.raises(ValueError, match="cannot copy this network.*parametrizations"):
            SparseCodingClassifier(given, n_epochs=1).fit(*iris)


def test_a_network_of_ones_own_is_rebuilt_by_a_function(iris, tmp_path):
    X, y = iris

    def make(shape, n_classes):
        return nn.Sequential(nn.Linear(shape[0], 5), nn.ReLU(), nn.Linear(5, n_classes))

    clf = SparseCodingClassifier(make, n_epochs=3, random_state=0).fit(X, y)
    clf.save(tmp_path / "model")
    with pytest.raises(ValueError, match="network="):
        SparseCodingClassifier.load(tmp_path / "model")
    with pytest.raises(ValueError, match="does not hold"):
        SparseCodingClassifier.load(tmp_path / "model", network=nn.Linear(4, 3))
    loaded = SparseCodingClassifier.load(tmp_path / "model", network=make)
    assert (loaded.predict_proba(X) == clf.predict_proba(X)).all()


def test_pickle(fitted, iris):
    X, _ = iris
    copy = pickle.loads(pickle.dumps(fitted))
    assert (copy.predict_proba(X) == fitted.predict_proba(X)).all()


def test_quiet_without_a_terminal(iris):
    code = (
        "import numpy as np; from halfseen import SparseCodingClassifier as C;"
        "C(n_epochs=2, verbose=1).fit(np.eye(6), [0, 1] * 3)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_live_line_in_a_terminal(monkeypatch, iris):
    from halfseen.progress import live_line

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "160")
    record = {"epoch": 2, "J0": 0.5, "J1": 3.0, "J2": 0.1, "nonzero": 0.07, "accuracy": 0.9}
    with live_line(1, 2) as report:
        report({**record, "validation_accuracy": 0.8})
    text = stream.getvalue()
    for part in ("2/2", "J0 0.500", "J1 3", "J2 0.1", "non-zero 7%", "accuracy 0.900", "0.800"):
        assert part in text
    with live_line(0, 2) as report:
        assert report is None


def test_wide_tables_get_no_more_atoms_than_samples(tmp_path):
    X = np.random.default_rng(0).standard_normal((30, 80))
    X[X > 1] = np.nan
    y = np.arange(30) % 2
    clf = SparseCodingClassifier(n_epochs=2, random_state=0).fit(X, y)
    assert clf.transform(X).shape == (30, 30)
    clf.save(tmp_path / "model")
    again = SparseCodingClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
    assert again.n_atoms is None
    explicit = SparseCodingClassifier(n_atoms=80, n_epochs=1, random_state=0).fit(X, y)
    assert explicit.transform(X).shape == (30, 80)
    signals = SparseCodingClassifier(
        tiling=Patches((40,), 20), n_epochs=1, training="joint", random_state=0
    ).fit(X[:9], y[:9])
    assert signals.transform(X[:9]).shape == (9, 3, 27)


@pytest.mark.parametrize("kind", [np.int8, np.int64])
def test_whole_numbers_of_numpy_are_whole_numbers(kind):
    X, y = load_iris(return_X_y=True)
    for make in (SparseCodingClassifier, mean_fill):
        found = make("mlp", batch_size=kind(100), n_epochs=kind(2), random_state=0).fit(X, y)
        same = make("mlp", batch_size=100, n_epochs=2, random_state=0).fit(X, y)
        np.testing.assert_array_equal(found.predict_proba(X), same.predict_proba(X))


def test_samples_of_another_shape_are_named_by_their_shape():
    X, y = np.random.default_rng(0).random((12, 3, 8, 8)), np.arange(12) % 2
    clf = SparseCodingClassifier(n_epochs=1, random_state=0).fit(X, y)
    for wrong in (X[:, :1], X.transpose(0, 2, 3, 1), X.reshape(12, -1), X[0]):
        text = re.escape(
            f"samples of shape (3, 8, 8) were learned; got samples of shape {wrong.shape[1:]}"
        )
        with pytest.raises(ValueError, match=text):
            clf.predict(wrong)


def test_arrays_of_objects_may_have_the_holes_of_pandas():
    X = np.array([[1.0, pd.NA], [2.0, 3.0], [pd.NA, 1.0], [0.5, 2.0]] * 4, dtype=object)
    y = np.arange(16) % 2
    expected = np.array([[np.nan if v is pd.NA else v for v in row] for row in X], dtype=float)
    one, other = (
        SparseCodingClassifier(n_epochs=2, random_state=0).fit(given, y).predict_proba(given)
        for given in (X, expected)
    )
    np.testing.assert_array_equal(one, other)


def test_class_weights_of_no_kind_are_refused():
    X, y = np.random.default_rng(0).random((12, 3)), np.arange(12) % 2
    with pytest.raises(ValueError, match=r"class_weight must be 'balanced', a dict.*got \[1, 2\]"):
        SparseCodingClassifier(class_weight=[1, 2]).fit(X, y)
