"""Tables with columns of every kind, and pictures of odd data: they work, or say why not."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from odd_input import REFUSED, labels, length, often, samples, watching, what_was_learned
from odd_tables import tables

from halfseen import (
    SparseCodingClassifier,
    SparseCodingImputer,
    TableClassifier,
    TableEncoder,
    plots,
)


@pytest.fixture(scope="module")
def fitted():
    """A classifier and an imputer of small images."""
    X = np.random.default_rng(0).random((12, 1, 4, 4))
    X[np.random.default_rng(1).random(X.shape) < 0.2] = np.nan
    clf = SparseCodingClassifier(training="joint", n_epochs=2, random_state=0)
    return clf.fit(X, np.arange(12) % 2), SparseCodingImputer(n_steps=3, random_state=0).fit(X)


def test_pictures(fitted, tried, request):
    watched = watching(tried, "odd tables and pictures")
    records = st.lists(
        st.dictionaries(
            st.sampled_from(("method", "rate", "accuracy", "seed", "lambda_rec", "lambda_l1")),
            st.sampled_from((0, 0.5, 1, 2, np.nan, np.inf, "a", None)),
        ),
        max_size=3,
    )
    run = st.fixed_dictionaries(
        {"method": st.sampled_from("ab"), "rate": st.floats(0, 1), "accuracy": st.floats(0, 1)}
    )
    number = st.sampled_from((1, 2, 100, 0, -1, 1.5, None, "x"))

    @often(25, request)
    @given(st.data())
    def one(data):
        model = data.draw(st.sampled_from((*fitted, SparseCodingClassifier(), TableEncoder(), 1)))
        X = data.draw(st.one_of(samples((5, 1, 4, 4)), samples()))
        table = data.draw(st.one_of(records, st.lists(run, max_size=4)))
        rates = data.draw(st.lists(st.sampled_from((0, 0.5, 1, 2, np.nan)), max_size=2))
        drawn = [
            watched(partial(plots.reconstructions, model), X, n=data.draw(number)),
            watched(partial(plots.atoms, model), data.draw(number)),
            watched(partial(plots.training_curve, model)),
            watched(plots.accuracy_curve, table),
            watched(plots.lambda_heat_map, table),
            watched(
                partial(plots.certificate_coverage, model), X, data.draw(labels(length(X))), rates
            ),
        ]
        for figure in drawn:
            if figure is not REFUSED:
                figure.draw_without_rendering()

    one()


def test_encoder(tried, request):
    watched = watching(tried, "odd tables and pictures")

    @often(150, request)
    @given(st.data())
    def one(data):
        X, kinds = data.draw(tables())
        new, _ = data.draw(st.one_of(tables(kinds), tables()))
        encoder = TableEncoder(
            add_indicator=data.draw(st.booleans()),
            max_categories=data.draw(st.integers(1, 3)),
            missing_values=data.draw(st.sampled_from(((), (-3,), ("a", 2), ("unknown",)))),
        )
        if watched(encoder.fit, X) is REFUSED:
            return
        n_columns = len(encoder.get_feature_names_out())
        for some in (X, new):
            values = watched(encoder.transform, some)
            if values is REFUSED:
                continue
            assert values.shape == (len(some), n_columns)
            assert not np.isinf(values).any()
            back = watched(encoder.inverse_transform, values)
            assert back.shape == np.shape(some)
        watched(encoder.inverse_transform, data.draw(samples((3, n_columns))))

    one()


def test_table_classifier(tried, request):
    watched = watching(tried, "odd tables and pictures")

    @often(60, request)
    @given(st.data())
    def one(data):
        X, kinds = data.draw(tables())
        new, _ = data.draw(st.one_of(tables(kinds), tables()))
        clf = TableClassifier(SparseCodingClassifier(training="joint", n_epochs=1, random_state=0))
        if watched(clf.fit, X, data.draw(labels(length(X)))) is REFUSED:
            assert what_was_learned(clf) == []
            return
        for some in (X, new):
            found = [
                watched(method, some)
                for method in (clf.predict, clf.predict_proba, clf.certify, clf.impute)
            ]
            n_refused = sum(result is REFUSED for result in found)
            assert n_refused in (0, 4), found
            if n_refused:
                continue
            label, share, certificate, completed = found
            assert np.isin(label, clf.classes_).all()
            np.testing.assert_allclose(share.sum(1), 1)
            assert certificate.possible.shape == share.shape == (len(label), len(clf.classes_))
            assert completed.shape == np.shape(some)
            known = [column.kind != "empty" for column in clf.encoder_.columns_]
            assert not completed.loc[:, known].isna().any(axis=None)

    one()
