import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from halfseen import SparseCodingClassifier, ampute, fit_side_by_side


@pytest.mark.parametrize("training", ["task", "sequential", "joint"])
def test_each_is_what_it_would_be_alone(training):
    X, y = load_digits(return_X_y=True)
    names = np.array(["zero", "one", "two", "three", "many"])[np.minimum(y, 4)][:300]
    settings = [
        {"random_state": 0, "n_epochs": 3},
        {"random_state": 1, "n_epochs": 5, "network": "mlp", "validation_fraction": 0.2},
        {"random_state": 2, "n_epochs": 2, "batch_size": 50},
    ]
    data = [ampute(X[:300], "random", share, random_state=0) for share in (0.25, 0.5, 0.75)]
    jobs = [
        (SparseCodingClassifier(training=training, n_atoms=16, **chosen), holes, names)
        for chosen, holes in zip(settings, data, strict=True)
    ]
    together = fit_side_by_side(jobs)
    assert [clf.n_iter_ for clf in together] == [3, 5, 2]
    for clf, (given, holes, labels) in zip(together, jobs, strict=True):
        assert clf is given
        alone = SparseCodingClassifier(**given.get_params()).fit(holes, labels)
        np.testing.assert_allclose(clf.predict_proba(X), alone.predict_proba(X), atol=1e-9)
        assert clf.classes_.tolist() == alone.classes_.tolist()


def test_networks_that_may_draw_random_numbers_are_refused():
    X, y = np.random.default_rng(0).random((20, 4)), np.arange(20) % 2
    with pytest.raises(ValueError, match="named ones.*Call fit"):
        fit_side_by_side([(SparseCodingClassifier(nn.Linear(4, 2)), X, y)])
    with pytest.raises(ValueError, match="n_epochs must be"):
        fit_side_by_side([(SparseCodingClassifier(n_epochs=0), X, y)])
    assert fit_side_by_side([]) == []


def test_one_classifier_in_two_jobs_is_refused():
    X, y = np.random.default_rng(0).random((20, 4)), np.arange(20) % 2
    clf = SparseCodingClassifier(n_epochs=1)
    with pytest.raises(ValueError, match="in several jobs.*clone"):
        fit_side_by_side([(clf, X, y), (clf, X[:10], y[:10])])
    assert not hasattr(clf, "module_")


def test_training_is_the_same_within_autocast():
    X, y = load_digits(return_X_y=True)
    X, y = ampute(X[:100].astype(np.float32), "random", 0.5, random_state=0), y[:100]
    settings = {"training": "joint", "n_atoms": 8, "n_epochs": 3, "random_state": 0}
    alone = SparseCodingClassifier(**settings).fit(X, y)
    with torch.autocast("cpu", torch.bfloat16):
        (beside,) = fit_side_by_side([(SparseCodingClassifier(**settings), X, y)])
    one, other = (clf.module_.completion.atoms for clf in (alone, beside))
    torch.testing.assert_close(other, one, atol=1e-6, rtol=0)
