"""Numbers that stay finite and do not depend on how the work is cut, ordered or stored."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

from halfseen import (
    Patches,
    Published,
    SparseCodingClassifier,
    SparseCodingImputer,
    Whole,
    ampute,
    rivals,
    sparse_encode,
)
from halfseen.datasets import digits
from halfseen.nn import SparseCompletion

WAYS = {
    "sequential": SparseCodingClassifier(training="sequential"),
    "task": SparseCodingClassifier("mlp"),
    "joint": SparseCodingClassifier(training="joint"),
    "joint, labels in the codes": SparseCodingClassifier(training="joint", label_weight=0.5),
    "published": SparseCodingClassifier(training="published", label_weight=1.0),
    "published, coding first": SparseCodingClassifier(training=Published(sequential=True)),
    "NeuMiss": rivals.neumiss("mlp"),
    "NN-GMM": rivals.nn_gmm("mlp"),
    "mean fill": rivals.mean_fill("mlp"),
}


def small_problem(n=24, seed=0):
    draw = np.random.default_rng(seed)
    X = draw.standard_normal((n, 5)) * [1, 2, 5, 0.1, 1] + [0, 1, 20, 0, -3]
    y = (X[:, 0] + X[:, 1] / 2 > 0.5).astype(int)
    X[draw.random(X.shape) < 0.3] = np.nan
    return X, y


@pytest.mark.parametrize("way", WAYS)
def test_the_default_device_of_torch_does_not_matter(way):
    X, y = small_problem()
    settings = {"n_epochs": 2, "random_state": 0, "device": "cpu", "validation_fraction": 0.25}
    clf = clone(WAYS[way]).set_params(**settings)
    expected = clone(clf).fit(X, y).predict_proba(X)
    with torch.device("meta"):  # on which nothing can be computed
        np.testing.assert_array_equal(clf.fit(X, y).predict_proba(X), expected)


def test_the_default_device_of_torch_does_not_matter_to_imputers_and_questions(tmp_path):
    X, y = small_problem()
    imputer = SparseCodingImputer(n_steps=5, random_state=0, device="cpu")
    clf = SparseCodingClassifier("mlp", n_epochs=2, random_state=0, device="cpu").fit(X, y)

    def answers():
        fitted = clone(imputer).fit(X)
        yield fitted.transform(X)
        yield fitted.partial_fit(X).encode(X)
        yield sparse_encode(X, np.eye(5), alpha=0.1)
        yield clf.certify(X).margin
        yield clf.completion_proba(X, random_state=0)
        yield clf.what_to_measure(X)[1]
        clf.save(tmp_path / "m")
        yield SparseCodingClassifier.load(tmp_path / "m", device="cpu").predict_proba(X)

    expected = list(answers())
    with torch.device("meta"):
        for answer, before in zip(answers(), expected, strict=True):
            np.testing.assert_array_equal(answer, before)


def digits_with_holes(n=300, dtype=np.float64):
    X, y = digits()
    X = X[: 2 * n].reshape(2 * n, -1).astype(dtype)
    X = ampute(X, "random", 0.4, random_state=0)
    return X[:n], y[:n], X[n:], y[n : 2 * n]


@pytest.fixture(scope="module")
def fitted():
    """Return classifiers and imputers that were fitted, and new samples with holes for each."""
    X, y, new, _ = digits_with_holes(150)
    images = X.reshape(-1, 1, 8, 8)
    settings = {"n_epochs": 3, "random_state": 0, "device": "cpu"}
    found = {
        "mlp": SparseCodingClassifier("mlp", **settings).fit(X, y),
        "logistic": SparseCodingClassifier(**settings).fit(X, y),
        "NeuMiss": rivals.neumiss("mlp", **settings).fit(X, y),
        "NN-GMM": rivals.nn_gmm("mlp", **settings).fit(X, y),
        "mean fill": rivals.mean_fill("mlp", **settings).fit(X, y),
        "imputer": SparseCodingImputer(n_steps=20, random_state=0, device="cpu").fit(X),
    }
    patches = SparseCodingClassifier("cnn4", Patches(4, 2), 32, **settings)
    found = {name: (clf, new[:30]) for name, clf in found.items()}
    found["patches"] = patches.fit(images, y), new[:30].reshape(-1, 1, 8, 8)
    return found


def answers(estimator, X):
    """Return everything that an estimator says of each row, by name."""
    asked = ("predict", "predict_proba", "decision_function", "impute", "transform", "encode")
    found = {name: getattr(estimator, name)(X) for name in asked if hasattr(estimator, name)}
    if hasattr(estimator, "certify") and X.ndim == 2:  # bounds of convolutions take long
        certificate = estimator.certify(X)
        found |= {"certain": certificate.certain, "possible": certificate.possible}
        found["margin"] = certificate.margin
        found["gain"] = estimator.what_to_measure(X).gain
    return found


def require_same(found, expected, tol=1e-9):
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(found[name], values, rtol=tol, atol=tol, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], values, err_msg=name)


NAMES = ("mlp", "logistic", "patches", "NeuMiss", "NN-GMM", "mean fill", "imputer")


@pytest.mark.parametrize("way", WAYS)
def test_long_training_stays_finite(way, times, tried):
    X, y = small_problem()
    n_epochs = times(10_000 if way == "sequential" else 150, 10_000)
    clf = clone(WAYS[way]).set_params(n_epochs=n_epochs, random_state=0, device="cpu").fit(X, y)
    assert len(clf.history_) >= n_epochs
    values = np.array([[v for k, v in record.items() if k != "seconds"] for record in clf.history_])
    assert np.isfinite(values).all()
    assert all(bool(p.isfinite().all()) for p in clf.module_.parameters())
    losses = np.array([record["J0"] for record in clf.history_])
    assert losses[-10:].mean() < losses[:10].mean()
    assert np.isfinite(clf.predict_proba(X)).all()
    if hasattr(clf.module_, "completion"):
        norms = clf.module_.completion.atoms.norm(dim=1)
        torch.testing.assert_close(norms, torch.ones_like(norms))
        assert np.isfinite(clf.impute(X)).all()
    tried("epochs of long trainings that stayed finite", n_epochs)


def test_an_imputer_that_learns_from_a_long_stream_stays_finite(times, tried):
    X, _ = small_problem(64)
    imputer = SparseCodingImputer(n_steps=200, batch_size=32, random_state=0, device="cpu")
    n_parts = times(300, 10_000)
    for part in range(n_parts):
        imputer.partial_fit(X[part % 2 :: 2])
    np.testing.assert_allclose(np.linalg.norm(imputer.components_, axis=1), 1)
    assert np.isfinite(imputer.transform(X)).all()
    tried("parts of a stream that an imputer stayed finite over", n_parts)


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_answered_alike_in_any_order_and_company(name, fitted, monkeypatch, tried):
    estimator, X = fitted[name]
    expected = answers(estimator, X)
    order = np.random.default_rng(1).permutation(len(X))
    found = answers(estimator, X[order])
    require_same(found, {name: values[order] for name, values in expected.items()})
    tried("rows asked again in another order", len(X))
    alone = [answers(estimator, X[row : row + 1]) for row in range(10)]
    together = {name: np.concatenate([one[name] for one in alone]) for name in expected}
    require_same(together, {name: values[:10] for name, values in expected.items()})
    tried("rows asked again alone", 10)
    for at_once in (1, 3000, 50_000):
        for module in ("classifier", "tile_coder"):
            monkeypatch.setattr(f"halfseen.{module}.entries_at_once", lambda _, n=at_once: n)
        require_same(answers(estimator, X), expected)
        tried("rows asked again in parts of another size", len(X))


@pytest.mark.parametrize("name", NAMES)
def test_answers_do_not_depend_on_the_number_of_threads(name, fitted, tried):
    estimator, X = fitted[name]
    expected = answers(estimator, X)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        require_same(answers(estimator, X), expected)
    finally:
        torch.set_num_threads(before)
    tried("rows asked again with two threads", len(X))


@pytest.mark.parametrize("name", NAMES)
def test_answers_do_not_depend_on_how_an_array_is_stored(name, fitted, tried):
    estimator, X = fitted[name]
    expected = answers(estimator, X)
    wide = np.zeros((2 * len(X), *X.shape[1:]))
    wide[::2] = X
    read_only = X.copy()
    read_only.flags.writeable = False
    stored = {
        "columns first": np.asfortranarray(X), "every other row": wide[::2], "read-only": read_only,
        "backwards": X[::-1].copy()[::-1], "other bytes": X.astype(">f8"), "list": X.tolist(),
        "objects": X.astype(object), "masked": np.ma.masked_invalid(X), "torch": torch.tensor(X),
    }  # fmt: skip
    for kind, given in stored.items():
        found = estimator.predict_proba(given) if name != "imputer" else estimator.transform(given)
        wanted = expected["predict_proba" if name != "imputer" else "transform"]
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12, err_msg=kind)
    tried("ways of storing an array", len(stored))


@pytest.mark.parametrize("name", NAMES)
def test_float32_is_answered_like_float64(name, fitted, tried):
    estimator, X = fitted[name]
    narrow = X.astype(np.float32)
    if name == "imputer":
        np.testing.assert_allclose(estimator.transform(narrow), estimator.transform(X), atol=2e-3)
    else:
        found, expected = estimator.predict_proba(narrow), estimator.predict_proba(X)
        np.testing.assert_allclose(found, expected, atol=1e-4)
        assert (found.argmax(1) == expected.argmax(1)).all()
    tried("rows asked in float32 and float64", len(X))


def without_draws(way):
    """Return a classifier that draws nothing for rows in the order of their bits, which differ."""
    return clone(WAYS[way]).set_params(hide=0.0, batch_size=1000, random_state=0, device="cpu")


@pytest.mark.parametrize("way", ["sequential", "task", "joint", "NeuMiss", "NN-GMM", "mean fill"])
def test_training_in_float32_is_that_in_float64(way, tried):
    X, y, new, y_new = digits_with_holes()
    found = []
    for dtype in (np.float32, np.float64):
        clf = without_draws(way).set_params(n_epochs=15).fit(X.astype(dtype), y)
        assert next(clf.module_.parameters()).dtype == (
            torch.float32 if dtype == np.float32 else torch.float64
        )
        found.append((clf.predict_proba(new.astype(dtype)), clf.score(new.astype(dtype), y_new)))
    (narrow, score), (wide, wide_score) = found
    assert abs(score - wide_score) < 0.06
    if way in ("NeuMiss", "NN-GMM", "mean fill"):  # a dictionary begins with other draws
        assert np.abs(narrow - wide).mean() < 5e-3
        assert (narrow.argmax(1) == wide.argmax(1)).mean() > 0.99
    clf = without_draws(way).set_params(n_epochs=2).fit(X.astype(np.float32), y)
    narrow = clf.predict_proba(new.astype(np.float32))
    clf.module_.double()
    np.testing.assert_allclose(clf.predict_proba(new.astype(float)), narrow, atol=2e-4)
    tried("trainings in float32 beside float64")


@pytest.mark.parametrize("way", ["sequential", "task", "joint"])
def test_the_order_of_training_rows_does_not_matter(way, tried):
    X, y = small_problem(60)
    clf = clone(WAYS[way]).set_params(n_epochs=20, random_state=0, device="cpu")
    expected = clf.fit(X, y).predict_proba(X)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(X))
        found = clf.fit(X[order], y[order]).predict_proba(X)
        np.testing.assert_allclose(found, expected, atol=1e-6)
        tried("trainings on rows in another order")


@pytest.mark.parametrize("way", ["sequential", "task", "joint", "NeuMiss", "NN-GMM", "mean fill"])
def test_units_of_columns_do_not_matter(way, tried):
    X, y = small_problem(60)
    clf = without_draws(way).set_params(n_epochs=20)
    expected = clf.fit(X, y).predict_proba(X)
    completed = clf.impute(X) if hasattr(clf, "impute") else None
    draw = np.random.default_rng(0)
    for _ in range(3):
        scale = 10.0 ** draw.integers(-6, 6, 5) * draw.choice([1.0, 3.7], 5)
        offset = scale * draw.integers(-50, 50, 5)
        clf.fit(X * scale + offset, y)
        found = clf.predict_proba(X * scale + offset)
        np.testing.assert_allclose(found, expected, atol=1e-4)
        assert (found.argmax(1) == expected.argmax(1)).all()
        if completed is not None:
            back = (clf.impute(X * scale + offset) - offset) / scale
            np.testing.assert_allclose(back, completed, atol=1e-3, rtol=1e-3)
        tried("trainings on columns in other units")


@pytest.mark.gpu
@pytest.mark.parametrize("way", ["sequential", "task", "joint", "published", "NeuMiss", "NN-GMM"])
def test_a_gpu_learns_and_answers_like_a_cpu(way, tried):
    X, y, new, y_new = digits_with_holes(600, np.float32)
    rate = {"learning_rate": 0.05} if way == "published" else {}
    clf = clone(WAYS[way]).set_params(n_epochs=20, random_state=0, device="cpu", **rate).fit(X, y)
    on_cpu, score = clf.predict_proba(new), clf.score(new, y_new)
    clf.set_params(device="cuda")
    if way != "published":  # draws the first codes of new samples, on either device its own
        np.testing.assert_allclose(clf.predict_proba(new), on_cpu, atol=5e-3)
    assert abs(clf.fit(X, y).score(new, y_new) - score) < 0.05
    tried("trainings on a GPU beside a CPU")


@pytest.mark.gpu
def test_a_gpu_codes_and_completes_like_a_cpu(tried):
    X, _, new, _ = digits_with_holes(300, np.float32)
    imputer = SparseCodingImputer(random_state=0, device="cpu", n_steps=100).fit(X)
    expected = imputer.transform(new)
    np.testing.assert_allclose(
        imputer.set_params(device="cuda").transform(new), expected, atol=0.05
    )
    dictionary = imputer.components_
    codes = sparse_encode(new, dictionary, alpha=0.5, device="cpu")
    on_gpu = sparse_encode(new, dictionary, alpha=0.5, device="cuda")
    np.testing.assert_allclose(on_gpu @ dictionary, codes @ dictionary, atol=0.1)
    tried("rows coded on a GPU and a CPU", len(new))


def test_a_training_on_a_cpu_leaves_gpus_alone(monkeypatch):
    def seeded(seed):
        raise AssertionError("the generators of all GPUs were seeded")

    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded)
    X, y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    before = torch.get_rng_state()
    SparseCodingClassifier(n_epochs=1, random_state=0, device="cpu").fit(X, y)
    rivals.mean_fill(n_epochs=1, random_state=0, device="cpu").fit(X, y)
    assert (torch.get_rng_state() == before).all()


def test_values_that_float32_cannot_tell_apart_are_refused(monkeypatch):
    """As on a GPU, which learns in float32."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    X[:, 1] += 1e8
    X[:, 2] = 1e9  # says nothing in any precision
    y = (X[:, 0] > 0).astype(int)
    clf = SparseCodingClassifier(n_epochs=1, random_state=0, device="cpu")
    assert clf.fit(X, y).score(X, y) > 0.5
    monkeypatch.setattr("halfseen.model.learning_dtype", lambda *_: torch.float32)
    with pytest.raises(ValueError, match=r"varies by 0\.\d+ about 1e\+08 in feature 1, too little"):
        clf.fit(X, y)
    assert clf.fit(X - X.mean(0), y).score(X - X.mean(0), y) > 0.5
    layer = SparseCompletion(Whole(), 3, (3,))
    with pytest.raises(ValueError, match="feature 1, too little for float32.*dtype=torch.float64"):
        layer.learn(X, random_state=0)
    SparseCompletion(Whole(), 3, (3,), dtype=torch.float64).learn(X, random_state=0)
    # Constants that are not what their mean is, and layers in less than float32.
    X[:, 1:] = 0.1, 0.7
    layer.learn(X[:50], random_state=0)
    SparseCompletion(Whole(), 3, (3,)).to(torch.bfloat16).learn(X[:, :1] + [[5, 9, 7]])
