"""Odd parameters of every estimator and function: they work, or say what was expected."""

import inspect
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from odd_input import REFUSED, is_finite, often, samples, watching, what_was_learned
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer

import halfseen
from halfseen import (
    Channels,
    Patches,
    Published,
    SparseCodingClassifier,
    SparseCodingImputer,
    TableClassifier,
    TableEncoder,
    Whole,
    certificates,
    datasets,
    plots,
    published_settings,
    rivals,
    sparse_encode,
)
from halfseen.nn import SparseCompletion
from halfseen.solvers.fista import FixedSteps
from halfseen.solvers.subgradient import SubGradient

NUMBERS = (1, 2, 3, 0.25, 0.5, True, False, 1e-30, 1e30, np.int64(2), np.float32(0.5))
HUGE = 2**70
ODD = (
    None, -1, 0, -0.5, np.nan, np.inf, "", "x",
    "auto", "cpu", "cuda", "meta", "cuda:99", "logistic", "mlp", "cnn4", "task", "joint",
    "completed", "reconstruction", "balanced", "fista", b"x", (), [], {}, (2,), [1, 2], (3, 4),
    np.array([1.0, 2.0]), torch.tensor(1), 1j, object, int,
    {0: 1.0, 1: 2.0}, {0: -1.0, 1: 1.0}, {7: 1.0}, Whole(), Channels(), Patches(2), Patches((2,)),
    Published(), Published(sequential=True), SimpleImputer(), TableEncoder(), HUGE,
    torch.nn.Linear(3, 2), torch.nn.Linear(5, 2), torch.nn.Identity(), torch.float16,
)  # fmt: skip
# A whole number of those is done, however long it takes.
PATIENT = (
    "n_epochs",
    "n_steps",
    "n_supports",
    "n_draws",
    "depth",
    "n_gradient_steps",
    "n_samples",
    "classifier",
)
ESTIMATORS = (
    SparseCodingClassifier(training="joint", n_epochs=1, random_state=0),
    SparseCodingImputer(n_steps=3, random_state=0),
    TableClassifier(SparseCodingClassifier(training="joint", n_epochs=1, random_state=0)),
    TableEncoder(),
    rivals.ImputedClassifier(SimpleImputer(), n_epochs=1, random_state=0),
    rivals.NNGMMClassifier(n_epochs=1, random_state=0),
    rivals.NeuMissClassifier(n_epochs=1, random_state=0),
    rivals.ClassMeanImputer(),
    rivals.ClassKNNImputer(),
)
# What is given out, what others are made of, what is called without a name or takes nothing;
# and scikit-learn's own.
NOT_ASKED = {"Certificate", "Condition", "Completion", "Tiling", "forward", "digits"}
NOT_ASKED |= {"gradient_boosting"}
X = np.random.default_rng(0).standard_normal((10, 3))
X[np.random.default_rng(1).random(X.shape) < 0.2] = np.nan
Y = np.arange(10) % 2


@st.composite
def odd_settings(draw, names, most=2):
    """Draw odd values for some parameters."""
    chosen = draw(st.sets(st.sampled_from(sorted(names)), min_size=1, max_size=most))
    value = st.one_of(st.sampled_from(NUMBERS), st.sampled_from(ODD))
    found = {name: draw(value) for name in sorted(chosen)}
    endless = [name for name in PATIENT if found.get(name, 1) is None or found.get(name) is HUGE]
    return {name: value for name, value in found.items() if name not in endless}


def test_estimators(tried, request):
    watched = watching(tried, "odd settings")

    @often(250, request)
    @given(st.data())
    def one(data):
        estimator = clone(data.draw(st.sampled_from(ESTIMATORS)))
        names = [name for name in estimator.get_params() if "__" not in name]
        if not names:
            return
        estimator.set_params(**data.draw(odd_settings(names)))
        before = repr(estimator.get_params())
        if watched(estimator.fit, X, Y) is REFUSED:
            assert what_was_learned(estimator) == []
            return
        assert repr(estimator.get_params()) == before
        method = "predict_proba" if hasattr(estimator, "predict_proba") else "transform"
        found = watched(getattr(estimator, method), X)
        assert found is not REFUSED
        assert len(found) == len(X)
        assert is_finite(found) or isinstance(estimator, TableEncoder)

    one()


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_a_fit_that_fails_changes_nothing(estimator):
    """Neither before there was another nor after it; names of columns are looked at last."""
    names = ["a", "b", "c"]
    table = pd.DataFrame(X, columns=names)
    bad = pd.DataFrame(X, columns=["a", 1, "c"])
    if isinstance(estimator, TableEncoder):  # takes any names, but not all values
        bad = table.assign(c=np.inf)
    fresh = clone(estimator)
    with pytest.raises((TypeError, ValueError)):
        fresh.fit(bad, Y)
    assert what_was_learned(fresh) == []

    fitted = clone(estimator).fit(table, Y)
    method = "predict_proba" if hasattr(estimator, "predict_proba") else "transform"
    before = getattr(fitted, method)(table)
    known = what_was_learned(fitted)
    with pytest.raises((TypeError, ValueError)):
        fitted.fit(bad, Y[::-1])
    assert what_was_learned(fitted) == known
    np.testing.assert_array_equal(getattr(fitted, method)(table), before)
    # Learning from an array forgets the names.
    if not isinstance(estimator, TableEncoder | TableClassifier):
        assert not hasattr(fitted.fit(X, Y), "feature_names_in_")


def test_a_layer_that_cannot_learn_is_as_it_was():
    layer = SparseCompletion(Whole(), 2, (3,))
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    with pytest.raises(ValueError, match="random_state"):
        layer.learn(X, random_state=-1)
    torch.testing.assert_close(layer.state_dict(), before)


def test_streams_keep_their_number_of_atoms():
    imputer = SparseCodingImputer(4, random_state=0).partial_fit(X)
    with pytest.raises(ValueError, match="n_atoms must be 4, of which"):
        imputer.set_params(n_atoms=9).partial_fit(X)
    imputer.set_params(n_atoms=4).partial_fit(X)


@pytest.mark.parametrize("n_steps", [0, -1, 2.0, True])
def test_solvers_refuse_numbers_of_steps(n_steps):
    with pytest.raises(ValueError, match="n_steps must be a whole number"):
        FixedSteps(n_steps)
    if n_steps != 0:
        with pytest.raises(ValueError, match="n_steps must be a whole number"):
            SubGradient(n_steps=n_steps)


def test_no_step_of_the_published_rule_leaves_codes_where_they_start():
    start = torch.ones(len(X), 2)
    with pytest.warns(ConvergenceWarning):
        found = sparse_encode(X, np.eye(2, 3), 0.1, solver=SubGradient(n_steps=0), init=start)
    np.testing.assert_array_equal(found, start)


def test_weights_of_samples(tried, request):
    watched = watching(tried, "odd settings")

    @often(40, request)
    @given(st.data())
    def one(data):
        weight = data.draw(st.one_of(samples((10,)), samples((10,), most_odd=0).map(np.abs)))
        for clf in (ESTIMATORS[0], ESTIMATORS[2]):
            clf = clone(clf)
            if watched(clf.fit, X, Y, sample_weight=weight) is not REFUSED:
                assert is_finite(clf.predict_proba(X))

    one()


def test_questions(tried, request):
    watched = watching(tried, "odd settings")
    clf = clone(ESTIMATORS[0]).fit(X, Y)

    @often(80, request)
    @given(st.data())
    def one(data):
        seed = data.draw(odd_settings(("n_draws", "random_state")))
        share = watched(clf.completion_proba, X, **seed)
        assert share is REFUSED or is_finite(share)
        found = watched(clf.what_to_measure, X, **data.draw(odd_settings(("n_best",))))
        assert found is REFUSED or len(found.feature) == len(X)
        odd = st.one_of(st.sampled_from(ODD), samples((3,)), samples(X.shape), samples())
        found = watched(clf.certify, X, (data.draw(odd), data.draw(odd)))
        assert found is REFUSED or not np.isnan(found.margin).any()
        watched(clf.certify, X, data.draw(odd))

    one()


def layer(
    tiling, n_atoms, sample_shape, lambda_rec=1.0, lambda_l1=None, rec_scaling="share",
    output="completed", n_gradient_steps=2, positive=False, tol=1e-4, solver="auto",
):  # fmt: skip
    """Make a layer and call it; like all of torch it draws its weights from the global state."""
    with torch.random.fork_rng([]):
        made = SparseCompletion(
            tiling, n_atoms, sample_shape, lambda_rec=lambda_rec, lambda_l1=lambda_l1,
            rec_scaling=rec_scaling, output=output, n_gradient_steps=n_gradient_steps,
            positive=positive, tol=tol, solver=solver,
        )  # fmt: skip
        found = made(torch.ones(2, *made.sample_shape))
    assert is_finite(found)
    return made


FUNCTIONS = {
    "sparse_encode": (sparse_encode, (X, np.eye(3), 1.0)),
    "synthetic": (datasets.synthetic, (12, 4, 5, 2)),
    "published_settings": (published_settings, ()),
    "usual": (rivals.usual, ()),
    "of_the_paper": (rivals.of_the_paper, ()),
    "Patches": (Patches, (2,)),
    "Published": (Published, ()),
    "test_solver": (Published().test_solver, (3, 10, 2, 1.0)),
    "SparseCompletion": (layer, (Whole(), 2, (3,))),
    "learn": (SparseCompletion(Whole(), 2, (3,)).learn, (X,)),
    "isometry_exactly": (certificates.isometry_exactly, (torch.eye(3), 2)),
    "isometry_by_coherence": (certificates.isometry_by_coherence, (torch.eye(3), 2)),
    "isometry_by_sampling": (certificates.isometry_by_sampling, (torch.eye(3), 2)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, tried, request):
    watched = watching(tried, "odd settings")
    function, usual = FUNCTIONS[name]
    parameters = inspect.signature(function).parameters.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]

    @often(30, request)
    @given(st.data())
    def one(data):
        given_ = dict(zip(names, usual, strict=False)) | data.draw(odd_settings(names))
        watched(function, **given_)

    one()


def test_every_documented_name_is_tried():
    folder = Path(__file__).parent
    text = "".join(path.read_text(encoding="utf-8") for path in folder.glob("test_bad_*.py"))
    pages = [page for page in (folder.parent / "docs/api").glob("*.md") if page.stem != "core"]
    told = "".join(page.read_text(encoding="utf-8") for page in pages)
    names = re.findall(r"auto(?:class|function):: [\w.]*?(\w+)\n", told)
    for members in re.findall(r":members: (.+)", told):
        names += members.split(", ")
    for module in (halfseen, certificates, plots, rivals):
        names += module.__all__
    functions = inspect.getmembers(datasets, inspect.isfunction)
    names += [name for name, made in functions if made.__module__ == datasets.__name__]
    public = {name for name in names if not name.startswith("_")} - NOT_ASKED
    assert len(public) > 70
    assert not [name for name in sorted(public) if not re.search(rf"\b{name}\b", text)]
