"""Trainings that are interrupted and go on; test_faults_of_runs.py kills them."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from halfseen import Published, SparseCodingClassifier
from halfseen.tilings import Tiling


def dropout_network(shape, n_classes):
    return nn.Sequential(nn.Linear(shape[0], 32), nn.Dropout(0.3), nn.ReLU(), nn.Linear(32, 10))


WAYS = {
    "task": {"validation_fraction": 0.2, "random_state": 3},
    "joint": {"training": "joint", "label_weight": 0.2, "random_state": 3},
    "published": {"training": Published(), "label_weight": 1.0, "random_state": 3},
    "sequential, dropout": {
        "training": "sequential",
        "network": dropout_network,
        "random_state": 3,
    },
}


def data():
    X, y = load_digits(return_X_y=True)
    X = X[:400]
    holes = np.random.default_rng(0).random(X.shape) < 0.5
    return np.where(holes, np.nan, X), y[:400]


class StopError(Exception):
    pass


@pytest.mark.parametrize("way", WAYS)
def test_interrupted_at_any_epoch_the_result_is_the_same(way, tmp_path, monkeypatch):
    from halfseen.training import loop

    X, y = data()
    settings = {"n_epochs": 6, "batch_size": 64, **WAYS[way]}
    expected = SparseCodingClassifier(**settings).fit(X, y).predict_proba(X)
    save, n_written = loop._save, [0]

    def save_then_stop(*arguments):
        save(*arguments)
        n_written[0] += 1
        raise StopError

    monkeypatch.setattr(loop, "_save", save_then_stop)
    path = tmp_path / "checkpoint"
    for _ in range(20):
        try:
            clf = SparseCodingClassifier(**settings).fit(X, y, checkpoint=path)
            break
        except StopError:
            pass
    assert n_written[0] >= 6
    assert (clf.predict_proba(X) == expected).all()


@pytest.mark.gpu
@pytest.mark.parametrize("training", ["task", "sequential", "joint", Published()], ids=str)
def test_recorded_steps_go_on_where_they_stopped_on_a_gpu(training, tmp_path, monkeypatch):
    from halfseen.training import loop

    X, y = data()
    settings = {"network": "mlp", "training": training, "n_epochs": 6, "batch_size": 64}
    clf = SparseCodingClassifier(**settings, random_state=0)
    expected = clf.fit(X, y).predict_proba(X)
    save, n_written = loop._save, [0]

    def save_then_stop(*arguments):
        save(*arguments)
        n_written[0] += 1
        if n_written[0] == 1:  # short epochs: the next would be the last
            raise StopError

    monkeypatch.setattr(loop, "_save", save_then_stop)
    with pytest.raises(StopError):
        clf.fit(X, y, checkpoint=tmp_path / "c")
    found = clf.fit(X, y, checkpoint=tmp_path / "c").predict_proba(X)
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_a_finished_training_is_not_repeated(tmp_path):
    X, y = data()
    clf = SparseCodingClassifier(n_epochs=3, random_state=0)
    first = clf.fit(X, y, checkpoint=tmp_path / "c").predict_proba(X)
    history = clf.history_
    assert (clf.fit(X, y, checkpoint=tmp_path / "c").predict_proba(X) == first).all()
    assert clf.history_ == history  # with the seconds of the first time


def test_a_training_without_a_seed_goes_on_with_its_own(tmp_path):
    X, y = data()
    clf = SparseCodingClassifier(n_epochs=3)
    first = clf.fit(X, y, checkpoint=tmp_path / "c").predict_proba(X)
    assert (clf.fit(X, y, checkpoint=tmp_path / "c").predict_proba(X) == first).all()


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    X, y = data()
    path = tmp_path / "c"
    clf = SparseCodingClassifier(n_epochs=2, random_state=0).fit(X, y, checkpoint=path)
    with pytest.raises(ValueError, match="other data, settings"):
        clf.fit(X[1:], y[1:], checkpoint=path)
    with pytest.raises(ValueError, match="other data, settings"):
        clf.set_params(hide=0.1).fit(X, y, checkpoint=path)
    with pytest.raises(ValueError, match="other data, settings"):
        clf.set_params(hide=0.25, network=nn.Linear(64, 10)).fit(X, y, checkpoint=path)
    clf.set_params(network="logistic")
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match="damaged"):
        clf.fit(X, y, checkpoint=path)
    with pytest.raises(FileNotFoundError, match="no folder"):
        clf.fit(X, y, checkpoint=tmp_path / "nowhere" / "c")


class Halves(Tiling):
    def layout(self, sample_shape):
        return torch.arange(64).reshape(2, 32)


def test_a_tiling_of_ones_own_does_not_hinder_going_on(tmp_path):
    X, y = data()
    settings = {"n_epochs": 2, "n_atoms": 8, "random_state": 0}
    first, again = (
        SparseCodingClassifier(tiling=Halves(), **settings).fit(X, y, checkpoint=tmp_path / "c")
        for _ in range(2)
    )
    assert (first.predict_proba(X) == again.predict_proba(X)).all()
    assert again.history_ == first.history_  # read, not trained


class Counting(nn.Linear):
    """Keeps a number beside its tensors."""

    kept = 3

    def get_extra_state(self):
        return {"n": self.kept}

    def set_extra_state(self, state):
        self.n = state["n"]


def test_what_networks_keep_beside_tensors_is_kept(tmp_path):
    X, y = data()
    settings = {"n_epochs": 12, "n_atoms": 8, "random_state": 0, "validation_fraction": 0.2}
    network = lambda shape, n_classes: Counting(shape[0], n_classes)  # noqa: E731
    for _ in range(2):
        clf = SparseCodingClassifier(network, **settings).fit(X, y, checkpoint=tmp_path / "c")
    assert clf.module_.network.n == 3


@pytest.mark.parametrize("kept", [(1, 2), {3}, b"x", {1: 2}, np.float32(2)])
def test_what_has_no_form_in_a_file_is_refused_before_training(kept, tmp_path, monkeypatch):
    X, y = data()
    monkeypatch.setattr(Counting, "kept", kept)
    clf = SparseCodingClassifier(lambda shape, n_classes: Counting(shape[0], n_classes), n_atoms=8)
    with pytest.raises(ValueError, match="network/_extra_state/n is a .* has no form in a file"):
        clf.fit(X, y, checkpoint=tmp_path / "c")
    assert list(tmp_path.iterdir()) == []


class Shown(nn.Linear):
    """Shows itself with a place in memory, as a function in a network does."""

    def extra_repr(self):
        return repr(object())


def test_equal_settings_go_on_however_they_are_written(tmp_path):
    X, y = data()
    for weights in ({0: 1, 1: 2}, {1: 2.0, 0: 1.0}, {np.int64(0): 1, np.int64(1): np.float32(2)}):
        clf = SparseCodingClassifier(
            lambda shape, n_classes: Shown(shape[0], n_classes),
            class_weight=weights, n_epochs=2, n_atoms=8, random_state=0,
        )  # fmt: skip
        clf.fit(X, y % 2, checkpoint=tmp_path / "c")
    with pytest.raises(ValueError, match="other data, settings"):
        clf.set_params(class_weight={0: 1, 1: 3}).fit(X, y % 2, checkpoint=tmp_path / "c")
