import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn.datasets import load_iris
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import DataConversionWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import (
    FixedThresholdClassifier,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_score,
    cross_validate,
)

from halfseen import SparseCodingClassifier, ampute, compare, rivals
from halfseen.comparing import fold_scores, summarise

MODELS = {
    "dummy": DummyClassifier(strategy="prior"),
    "logistic": LogisticRegression(max_iter=2000),
    "strong": LogisticRegression(C=0.01, max_iter=2000),
}


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


def test_scores_equal_scikit_learns(iris):
    X, y = iris
    cv = StratifiedKFold(5, shuffle=True, random_state=0)
    table = compare(MODELS, X, y, cv=cv).set_index("method")
    assert list(table.index) == ["logistic", "strong", "dummy"]
    for name, model in MODELS.items():
        peer = cross_validate(model, X, y, cv=cv, scoring=("accuracy", "neg_log_loss"))
        line = table.loc[name]
        np.testing.assert_allclose(line["accuracy"], peer["test_accuracy"].mean())
        np.testing.assert_allclose(line["log_loss"], -peer["test_neg_log_loss"].mean())
        np.testing.assert_allclose(line["accuracy_sem"], stats.sem(peer["test_accuracy"]))
        np.testing.assert_allclose(line["log_loss_sem"], stats.sem(peer["test_neg_log_loss"]))
        assert line["n"] == 5
        assert line["fit_seconds"] > 0
        assert line["predict_seconds"] > 0


def rows_of(**accuracies):
    """Return records of methods with given accuracies in each fold."""
    return [
        {
            "method": name, "fold": fold, "n_train": 80, "n_test": 20, "accuracy": accuracy,
            "log_loss": 1 - accuracy, "fit_seconds": 1.0, "predict_seconds": 0.5,
        }
        for name, values in accuracies.items()
        for fold, accuracy in enumerate(values)
    ]  # fmt: skip


def test_paired_test_against_the_best():
    best, other = np.array([0.9, 0.8, 0.95, 0.85]), np.array([0.85, 0.8, 0.9, 0.78])
    table = summarise(rows_of(other=other, best=best, same=best))
    # a tie in accuracy and log-loss keeps the order in which they came
    assert list(table["method"]) == ["best", "same", "other"]
    assert np.isnan(table["p_value"][0])
    assert table["p_value"][1] == 1.0
    difference = best - other
    statistic = difference.mean() / np.sqrt((1 / 4 + 20 / 80) * difference.var(ddof=1))
    np.testing.assert_allclose(table["p_value"][2], 2 * stats.t.sf(statistic, 3))
    # without overlap it is the usual paired test
    rows = [{**row, "n_test": 0} for row in rows_of(best=best, other=other)]
    expected = stats.ttest_rel(best, other).pvalue
    np.testing.assert_allclose(summarise(rows)["p_value"][1], expected)
    always = summarise(rows_of(best=[0.9, 0.9], worse=[0.8, 0.8]))  # no spread to judge by
    assert np.isnan(always["p_value"]).all()
    assert np.isnan(summarise(rows_of(best=[0.9], other=[0.5]))["p_value"]).all()
    with pytest.raises(ValueError, match="'other' lacks folds"):
        summarise(rows_of(best=best, other=other)[:-1])


def test_tested_on_other_versions_of_the_same_samples(iris):
    X, y = iris
    holes = ampute(X, "random", 0.4, random_state=0)
    models = {"mean": rivals.mean_fill(n_epochs=60, random_state=0)}
    cv = StratifiedKFold(3)
    complete = fold_scores(models, holes, y, cv=cv, X_test=X)
    by_hand = []
    for train, test in cv.split(X, y):
        clf = rivals.mean_fill(n_epochs=60, random_state=0).fit(holes[train], y[train])
        by_hand.append(clf.score(X[test], y[test]))
    np.testing.assert_allclose([row["accuracy"] for row in complete], by_hand)


def test_takes_everything_of_the_package_and_frames_and_strings(iris):
    X, y = iris
    holes = pd.DataFrame(ampute(X, "random", 0.3, random_state=0), columns=list("abcd"))
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    models = {
        "ours": SparseCodingClassifier(n_epochs=100, random_state=0),
        "boosting": rivals.gradient_boosting(random_state=0),
        "mean": rivals.mean_fill(random_state=0),
    }
    table = compare(models, holes, names, cv=ShuffleSplit(2, test_size=0.3, random_state=0))
    assert set(table["method"]) == set(models)
    assert (table["accuracy"] > 0.55).all()
    assert (table["n"] == 2).all()


def test_a_class_that_training_never_saw_costs_but_does_not_break(iris):
    X, y = iris
    split = [(np.arange(0, 100), np.arange(90, 150))]
    model = {"logistic": MODELS["logistic"]}
    (row,) = fold_scores(model, X, y, cv=split)
    fitted = LogisticRegression(max_iter=2000).fit(X[:100], y[:100])
    probability = np.column_stack([fitted.predict_proba(X[90:]), np.zeros(60)])
    np.testing.assert_allclose(
        row["log_loss"], log_loss(y[90:], probability, labels=[0, 1, 2]), rtol=1e-6
    )
    assert row["accuracy"] == 10 / 60


def test_decisions_are_those_of_predict(iris):
    X, y = iris[0][50:], iris[1][50:]
    cautious = FixedThresholdClassifier(LogisticRegression(max_iter=2000), threshold=0.999)
    cv = StratifiedKFold(3)
    table = compare({"cautious": cautious}, X, y, cv=cv)
    np.testing.assert_allclose(table["accuracy"][0], cross_val_score(cautious, X, y, cv=cv).mean())
    masks = [(np.isin(np.arange(100), train), np.isin(np.arange(100), test))
             for train, test in cv.split(X, y)]  # fmt: skip
    for row, same in zip(
        fold_scores({"m": MODELS["dummy"]}, X, y, cv=masks),
        fold_scores({"m": MODELS["dummy"]}, X, y, cv=cv),
        strict=True,
    ):
        assert (row["n_train"], row["n_test"]) == (same["n_train"], same["n_test"])


def test_errors_name_method_and_fold(iris):
    X, y = iris
    models = {"fine": MODELS["dummy"], "broken": rivals.zero_fill(n_epochs=-1)}
    with pytest.raises(ValueError, match="n_epochs") as caught:
        compare(models, X, y)
    assert caught.value.__notes__ == ["while comparing: method 'broken', fold 0"]
    for estimators in ({}, [MODELS["dummy"]]):
        with pytest.raises(ValueError, match="must be a dict from names to classifiers"):
            compare(estimators, X, y)
    with pytest.raises(ValueError, match="inconsistent"):
        compare(MODELS, X, y[:-1])


def test_no_method_sees_what_a_mask_hides():
    random = np.random.default_rng(0)
    X = random.standard_normal((200, 4))
    y, mask = (X.sum(1) > 0).astype(int), random.random(X.shape) < 0.5
    methods = {"boosting": rivals.gradient_boosting(random_state=0, max_iter=10)}
    masked = compare(methods, np.ma.masked_array(X, mask), y, cv=2)
    holes = compare(methods, np.where(mask, np.nan, X), y, cv=2)
    assert masked["accuracy"].tolist() == holes["accuracy"].tolist()


def test_labels_may_be_tensors(iris):
    X, y = iris
    labels = torch.tensor(y, dtype=torch.float64, requires_grad=True)
    methods = {"halfseen": SparseCodingClassifier(n_epochs=2, random_state=0)}
    accuracy = [compare(methods, X, kind, cv=2)["accuracy"].item() for kind in (labels, y)]
    assert accuracy[0] == accuracy[1]


def test_labels_that_are_missing_are_named(iris):
    X, y = iris
    labels = np.array(y, dtype=object)
    labels[3] = None
    with pytest.raises(ValueError, match="the first is sample 3"):
        compare({"halfseen": SparseCodingClassifier()}, X, labels)


def test_labels_may_be_a_column(iris):
    X, y = iris
    methods = {"mean fill": rivals.mean_fill(n_epochs=5, random_state=0)}
    expected = compare(methods, X, y, cv=2)
    frame = pd.DataFrame({"y": y})
    for labels in (frame, np.array(y)[:, None]):
        with pytest.warns(DataConversionWarning, match="column-vector"):
            found = compare(methods, X, labels, cv=2)
        np.testing.assert_allclose(found["log_loss"], expected["log_loss"])
    lacking = frame.astype(object)
    lacking.iloc[2] = None
    with pytest.raises(ValueError, match="the first is sample 2"):
        compare(methods, X, lacking)
