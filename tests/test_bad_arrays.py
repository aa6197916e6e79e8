"""Arrays of every kind into every public function and estimator: it works, or says why not."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from odd_input import (
    REFUSED,
    is_finite,
    labels,
    length,
    more_like,
    often,
    samples,
    watching,
    what_was_learned,
)
from sklearn.exceptions import NotFittedError

from halfseen import (
    Channels,
    Patches,
    SparseCodingClassifier,
    SparseCodingImputer,
    Whole,
    ampute,
    compare,
    fit_side_by_side,
    rivals,
    sparse_encode,
)
from halfseen.boundary import finite_floats
from halfseen.comparing import fold_scores, summarise

IMAGES = st.tuples(st.integers(4, 8), st.integers(1, 3), st.just(8), st.just(8))
IMAGE_TILINGS = (None, Whole(), Channels(), Patches(4, 4), Patches((3, 8), (2, 1)))
SCORES = ("predict", "predict_proba", "decision_function", "transform", "certify")
FILLINGS = ("impute", "completion_proba", "what_to_measure")
RIVALS = (
    "zero_fill", "mean_fill", "class_mean_fill", "class_knn_fill", "sequential_sparse", "nn_gmm",
    "mean_and_indicator", "knn_fill", "iterative_fill", "neumiss", "complete_data",
)  # fmt: skip


def test_classifier(tried, request):
    watched = watching(tried, "odd arrays")

    @often(45, request)
    @given(st.data())
    def one(data):
        images = data.draw(st.integers(0, 5)) == 0
        X = data.draw(samples(data.draw(IMAGES) if images else None))
        y = data.draw(labels(length(X)))
        clf = SparseCodingClassifier(
            data.draw(
                st.sampled_from(("logistic", "mlp", "cnn4") if images else ("logistic", "mlp"))
            ),
            data.draw(st.sampled_from(IMAGE_TILINGS)) if images else None,
            training=data.draw(st.sampled_from(("joint", "published", "task", "sequential"))),
            n_epochs=1,
            random_state=0,
        )
        with pytest.raises(NotFittedError):
            clf.predict(X)
        if watched(clf.fit, X, y) is REFUSED:
            assert what_was_learned(clf) == []
            return
        for new in (X, data.draw(more_like(X))):
            check_answers(watched, clf, new)

    one()


def check_answers(watched, clf, X):
    scores = answers(watched, clf, SCORES, X)
    filled = answers(watched, clf, FILLINGS, X)
    if scores is REFUSED:
        assert filled is REFUSED
        return
    label, share, decision, codes, certificate = scores
    shape = len(label), len(clf.classes_)
    assert np.isin(label, clf.classes_).all()
    assert share.shape == certificate.possible.shape == shape
    np.testing.assert_allclose(share.sum(1), 1)
    assert is_finite([decision, codes])
    assert certificate.possible[np.arange(len(label)), share.argmax(1)].all()
    np.testing.assert_array_equal(certificate.certain, certificate.possible.sum(1) == 1)
    assert not np.isnan(certificate.margin).any()
    back = watched(clf.inverse_transform, codes)
    assert is_finite(back)
    assert len(back) == len(label)
    if filled is not REFUSED:  # values may be learned that the precision of X has no room for
        completed, how_often, (feature, gain) = filled
        assert completed.shape == back.shape
        assert is_finite(completed)
        np.testing.assert_allclose(how_often.sum(1), 1)
        np.testing.assert_array_equal(np.isnan(gain), feature == -1)  # where there is no hole


def answers(watched, clf, questions, X):
    """Return what methods say; REFUSED if all of them refuse the samples."""
    found = [watched(getattr(clf, name), X) for name in questions]
    n_refused = sum(result is REFUSED for result in found)
    assert n_refused in (0, len(found)), dict(zip(questions, found, strict=True))
    return REFUSED if n_refused else found


def test_imputer(tried, request):
    watched = watching(tried, "odd arrays")

    @often(60, request)
    @given(st.data())
    def one(data):
        images = data.draw(st.integers(0, 5)) == 0
        X = data.draw(samples(data.draw(IMAGES) if images else None))
        more = data.draw(more_like(X))
        imputer = SparseCodingImputer(
            data.draw(st.sampled_from((None, 1, 3))),
            data.draw(st.sampled_from(IMAGE_TILINGS)) if images else None,
            positive=data.draw(st.booleans()),
            n_steps=3,
            random_state=0,
        )
        fit = imputer.fit if data.draw(st.booleans()) else imputer.partial_fit
        if watched(fit, X) is REFUSED:
            assert what_was_learned(imputer) == []
            return
        assert is_finite([imputer.components_, imputer.mean_])
        for new in (X, more):
            completed, codes = watched(imputer.transform, new), watched(imputer.encode, new)
            assert (completed is REFUSED) == (codes is REFUSED)
            if codes is not REFUSED:
                back = watched(imputer.inverse_transform, codes)
                assert back.shape == np.shape(completed)
                assert is_finite([completed, codes, back])
        watched(imputer.inverse_transform, more)
        if watched(imputer.partial_fit, more) is not REFUSED:
            assert is_finite([imputer.components_, imputer.mean_])

    one()


def test_rivals(tried, request):
    watched = watching(tried, "odd arrays")

    @often(90, request)
    @given(st.data())
    def one(data):
        X = data.draw(samples())
        new = data.draw(more_like(X))
        name = data.draw(st.sampled_from(RIVALS))
        clf = getattr(rivals, name)(n_epochs=1, random_state=0)
        if watched(clf.fit, X, data.draw(labels(length(X)))) is REFUSED:
            return
        for some in (X, new):
            label, share = watched(clf.predict, some), watched(clf.predict_proba, some)
            assert (label is REFUSED) == (share is REFUSED)
            if label is not REFUSED:
                assert np.isin(label, clf.classes_).all()
                assert share.shape == (len(label), len(clf.classes_))
                np.testing.assert_allclose(share.sum(1), 1)

    one()


def test_imputers_of_rivals(tried, request):
    watched = watching(tried, "odd arrays")

    @often(40, request)
    @given(st.data())
    def one(data):
        X = data.draw(samples())
        new = data.draw(more_like(X))
        y = data.draw(labels(length(X)))
        imputer = data.draw(st.sampled_from((rivals.ClassMeanImputer, rivals.ClassKNNImputer)))()
        filled = watched(imputer.fit_transform, X, y)
        assert filled is REFUSED or is_finite(filled)
        if watched(imputer.fit, X) is REFUSED:
            assert filled is REFUSED
            return
        for some in (X, new):
            filled = watched(imputer.transform, some)
            assert filled is REFUSED or (is_finite(filled) and filled.ndim == 2)

    one()


def test_sparse_encode(tried, request):
    watched = watching(tried, "odd arrays")

    @often(150, request)
    @given(st.data())
    def one(data):
        X = data.draw(samples())
        n_features = X.shape[1] if getattr(X, "ndim", 0) == 2 else 3
        shape = data.draw(st.integers(1, 5)), n_features
        dictionary = data.draw(samples(shape, most_odd=1))
        alpha = data.draw(st.sampled_from((1.0, 1e-3, 1e-30, 1e30, np.float32(0.1), 0, "one")))
        init = data.draw(samples((length(X), shape[0]))) if data.draw(st.booleans()) else None
        options = {
            "solver": data.draw(st.sampled_from(("cd", "fista", "fixed", "subgradient"))),
            "positive": data.draw(st.booleans()),
            "max_iter": 50,
        }
        found = watched(sparse_encode, X, dictionary, alpha, init=init, return_gap=True, **options)
        if found is not REFUSED:
            codes, gap = found
            assert codes.shape == (length(X), len(dictionary))
            assert gap.shape == (length(X),)
            assert is_finite(codes)
            values = finite_floats(X, "X", holes=True).nan_to_num()
            blank = (values == 0).all(1).numpy()  # zero is the minimum there
            assert is_finite(np.asarray(gap)[~blank])
            assert not np.isnan(np.asarray(gap)).any()
            assert isinstance(codes, torch.Tensor) == isinstance(X, torch.Tensor)
            assert not options["positive"] or (codes >= 0).all()

    one()


def test_ampute(tried, request):
    watched = watching(tried, "odd arrays")

    options = {
        "occlusion": {"place": ("random", "left", "top", "nowhere", None)},
        "mar": {"observed_share": (0.3, 0, 1, np.nan, "x"), "strength": (2.0, -1e30, np.inf)},
        "mnar": {"strength": (2.0, 1e30, None)},
        "columns": {"n_groups": (1, 2, 0, 100, 1.5)},
        "random": {"place": ("left",)},
        "else": {},
    }

    @often(150, request)
    @given(st.data())
    def one(data):
        X = data.draw(samples())
        mechanism = data.draw(st.sampled_from(list(options)))
        rate = data.draw(st.sampled_from((0, 0.25, 0.5, 1, 1e-30, -0.1, np.nan, "half", None)))
        chosen = {
            name: data.draw(st.sampled_from(values))
            for name, values in options[mechanism].items()
            if data.draw(st.booleans())
        }
        found = watched(ampute, X, mechanism, rate, random_state=0, **chosen)
        if found is not REFUSED:
            assert found.shape == np.shape(X)
            assert isinstance(found, torch.Tensor) == isinstance(X, torch.Tensor)
            values = np.asarray(found, dtype=float)
            assert not np.isinf(values).any()
            assert mechanism != "random" or np.isnan(values).sum() >= round(rate * values.size)

    one()


def test_comparisons(tried, request):
    watched = watching(tried, "odd arrays")

    @often(25, request)
    @given(st.data())
    def one(data):
        X = data.draw(samples())
        y = data.draw(labels(length(X)))
        methods = {
            name: rivals.mean_fill(network, n_epochs=1, random_state=0)
            for name, network in (("one", "logistic"), ("other", "mlp"))
        }
        cv = data.draw(st.sampled_from((2, 3, 1, 100, "x", [])))
        X_test = data.draw(samples(np.shape(X))) if data.draw(st.booleans()) else None
        found = watched(compare, methods, X, y, cv=cv, X_test=X_test)
        rows = watched(fold_scores, methods, X, y, cv=cv, X_test=X_test)
        assert (found is REFUSED) == (rows is REFUSED)
        if rows is not REFUSED:
            assert list(found["method"]) == list(watched(summarise, rows)["method"])
            assert is_finite(found[["accuracy", "log_loss"]])
        pair = [SparseCodingClassifier(training="joint", n_epochs=1) for _ in range(2)]
        fit = lambda X, y: fit_side_by_side([(clf, X, y) for clf in pair])  # noqa: E731
        if watched(fit, X, y) is not REFUSED:
            assert is_finite([clf.predict_proba(X) for clf in pair])
        else:
            assert [what_was_learned(clf) for clf in pair] == [[], []]

    one()
