import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from halfseen import SparseCodingClassifier, ampute, rivals
from halfseen.datasets import digits, synthetic
from halfseen.rivals import nearest
from halfseen.rivals.mixture import Mixture, MixtureNetwork, expected_relu, start_mixture
from halfseen.rivals.neumann import NeuMissNetwork, observed_covariance
from halfseen.training.completing import CodingPlan
from halfseen.training.plain import HoleNetwork, Plain
from halfseen.training.plan import Plan
from halfseen.training.samples import Samples
from halfseen.training.task import Sequential

NETWORK_RIVALS = {
    "zero": rivals.zero_fill,
    "mean": rivals.mean_fill,
    "class mean": rivals.class_mean_fill,
    "class knn": rivals.class_knn_fill,
    "indicator": rivals.mean_and_indicator,
    "knn": rivals.knn_fill,
    "iterative": rivals.iterative_fill,
    "neumiss": rivals.neumiss,
    "nn-gmm": rivals.nn_gmm,
}
NAMES = ["logistic", "mlp", "cnn4", "cnn4_bn", "resnet18"]
pytestmark = pytest.mark.filterwarnings("ignore:.*Early stopping criterion not reached")
QUICK = {"n_epochs": 2, "random_state": 0, "device": "cpu"}


@parametrize_with_checks(
    [
        rivals.ImputedClassifier(SimpleImputer(), n_epochs=100, random_state=0),
        rivals.complete_data(n_epochs=100, random_state=0),
        rivals.NNGMMClassifier("mlp", 2, n_epochs=40, random_state=0),
        rivals.NeuMissClassifier("mlp", 3, n_epochs=40, random_state=0),
        rivals.ClassMeanImputer(),
        rivals.ClassKNNImputer(3),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def blobs():
    X, y = make_blobs(300, 6, centers=3, cluster_std=1.5, center_box=(-3, 3), random_state=0)
    return ampute(X, "random", 0.3, random_state=0), np.array(["a", "b", "c"])[y]


@pytest.mark.parametrize("rival", NETWORK_RIVALS)
def test_every_rival_learns_from_samples_with_holes(blobs, rival):
    X, y = blobs
    clf = NETWORK_RIVALS[rival]("mlp", n_epochs=60, random_state=0).fit(X[:200], y[:200])
    # class means leak the label into training: the paper's MS is known to be weak with holes
    assert clf.score(X[200:], y[200:]) > (0.5 if rival == "class mean" else 0.6)
    probability = clf.predict_proba(X[200:])
    np.testing.assert_allclose(probability.sum(1), 1)
    assert (clf.predict(X[200:]) == clf.classes_[probability.argmax(1)]).all()


@pytest.mark.parametrize("network", NAMES)
@pytest.mark.parametrize("rival", NETWORK_RIVALS)
def test_every_rival_takes_every_network(rival, network):
    X, y = digits()
    X, y = ampute(X[:24], "random", 0.3, random_state=0), y[:24]
    X[:, :, 0, 0] = 0.0  # a pixel that is constant
    clf = NETWORK_RIVALS[rival](network, n_epochs=1, random_state=0, device="cpu").fit(X, y)
    assert np.isfinite(clf.decision_function(X)).all()


def test_the_rest_of_the_named_rivals(blobs):
    X, y = blobs
    for named in (rivals.of_the_paper("mlp", **QUICK), rivals.usual("mlp", **QUICK)):
        for clf in named.values():
            assert clf.fit(X, y).predict(X[:3]).shape == (3,)
    assert list(rivals.of_the_paper()) == [
        "ZF", "MU", "MS", "KNN10", "KNN20", "KNN50", "KNN100", "Seq. Sp.", "NN-GMM",
    ]  # fmt: skip
    images, labels = digits()
    boosted = rivals.gradient_boosting(random_state=0, max_iter=5).fit(images, labels)
    flat = images.reshape(len(images), -1)
    plain = HistGradientBoostingClassifier(random_state=0, max_iter=5).fit(flat, labels)
    np.testing.assert_array_equal(boosted.predict_proba(images), plain.predict_proba(flat))


def test_zero_fill_is_as_good_as_scikit_learns_logistic_regression():
    """The paper's synthetic data with 75% missing, tested complete: about 0.88."""
    X, y, *_ = synthetic(random_state=0)
    holes = ampute(X[:10_000], "random", 0.75, random_state=0)
    peer = LogisticRegression(max_iter=3000).fit(np.nan_to_num(holes), y[:10_000])
    ours = rivals.zero_fill(random_state=0, device="cpu").fit(holes, y[:10_000])
    expected = peer.score(X[10_000:], y[10_000:])
    assert expected > 0.86
    assert ours.score(X[10_000:], y[10_000:]) > expected - 0.01
    agreement = (ours.predict(X[10_000:]) == peer.predict(X[10_000:])).mean()
    assert agreement > 0.97


def test_rivals_train_as_our_method_does():
    """On complete samples a rival takes the very steps of our network trained on codes' input."""
    X, y = make_blobs(200, 5, centers=3, random_state=0)
    training = {"n_epochs": 7, "batch_size": 32, "random_state": 3}
    rival = rivals.complete_data("mlp", **training).fit(X, y)
    ours = SparseCodingClassifier("mlp", training="sequential", **training).fit(X, y)
    assert rival.n_iter_ == ours.n_iter_ == 7
    free = {"n_epochs": None}
    n_epochs = [clone(clf).set_params(**free).fit(X, y).n_iter_ for clf in (rival, ours)]
    assert n_epochs[0] == n_epochs[1] == 86  # 600 steps
    # the same schedule from the same kind of start ends at nearly the same loss
    np.testing.assert_allclose(rival.history_[-1]["J0"], ours.history_[-1]["J0"], rtol=0.3)
    samples = Samples(torch.zeros(4, 5), torch.ones(4, 5, dtype=torch.bool), None, torch.ones(4))
    plain = Plain(rival.module_, samples, Plan(7, 32, 0.01), torch.Generator())
    module = ours.module_
    plan = CodingPlan(7, 32, 0.01)
    coded = Sequential(module.completion, module.network, samples, plan, torch.Generator())
    assert type(plain.optimiser) is type(coded.optimiser)
    for mine, theirs in zip(
        plain.optimiser.param_groups, coded.optimiser.param_groups, strict=True
    ):
        assert {**mine, "params": 0} == {**theirs, "params": 0}
    stopped = rivals.mean_fill("mlp", validation_fraction=0.2, n_epochs=400, random_state=0)
    stopped.fit(X, y)
    assert stopped.n_iter_ < 400
    assert "validation_accuracy" in stopped.history_[0]


def test_simple_fillers_equal_scikit_learn(blobs):
    X, _ = blobs
    clf = rivals.mean_fill(**QUICK).fit(*blobs)
    standardised = (X - np.nanmean(X, 0)) / np.nanstd(X, 0)
    np.testing.assert_allclose(
        clf._fill(X), SimpleImputer().fit_transform(standardised), atol=1e-12
    )
    clf = rivals.zero_fill(**QUICK).fit(*blobs)
    expected = (np.nan_to_num(X) - np.nanmean(X, 0)) / np.nanstd(X, 0)
    np.testing.assert_allclose(clf._fill(X), expected, atol=1e-12)
    clf = rivals.knn_fill(**QUICK).fit(*blobs)
    expected = KNNImputer().fit_transform(standardised)
    np.testing.assert_allclose(clf._fill(X), expected, atol=1e-12)


def test_class_means_equal_scikit_learn_per_class(blobs):
    X, y = blobs
    filled = rivals.ClassMeanImputer().fit_transform(X, y)
    for label in np.unique(y):
        rows = y == label
        np.testing.assert_allclose(filled[rows], SimpleImputer().fit_transform(X[rows]))


@pytest.mark.parametrize("n_neighbors", [1, 5, 100])
@pytest.mark.parametrize("compiled", [True, False])
def test_class_neighbours_equal_scikit_learn_per_class(blobs, n_neighbors, compiled, monkeypatch):
    X, y = blobs
    if not compiled:
        monkeypatch.setattr(nearest, "_mean_of_first_compiled", nearest._mean_of_first)
    monkeypatch.setattr(nearest, "_ENTRIES_AT_ONCE", 3000)  # several blocks
    monkeypatch.setattr(nearest, "_NEIGHBOURS_AT_ONCE", 7)
    imputer = rivals.ClassKNNImputer(n_neighbors, device="cpu")
    filled = imputer.fit_transform(X, y)
    for label in np.unique(y):
        rows = y == label
        expected = KNNImputer(n_neighbors=n_neighbors).fit_transform(X[rows])
        np.testing.assert_allclose(filled[rows], expected)
    new = ampute(np.random.default_rng(1).normal(size=(40, 6)), "random", 0.4, random_state=2)
    expected = KNNImputer(n_neighbors=n_neighbors).fit(X).transform(new)
    np.testing.assert_allclose(imputer.transform(new), expected)


def test_where_no_neighbour_has_a_distance_the_mean_of_the_class_stands_in():
    nan = np.nan
    X = np.array([[1.0, nan, nan], [nan, 2.0, 7.0], [1.1, 5.0, nan], [nan, nan, nan]])
    filled = rivals.ClassKNNImputer(1).fit_transform(X, [0, 0, 0, 0])
    # only row 2 has a distance to row 0, and it has no third feature
    np.testing.assert_allclose(filled[0], [1.0, 5.0, 7.0])
    np.testing.assert_allclose(filled[3], [1.05, 3.5, 7.0])
    # a class that never shows a feature gets it from all classes
    filled = rivals.ClassMeanImputer().fit_transform(X, [0, 1, 0, 1])
    np.testing.assert_allclose(filled, [[1, 5, 7], [1.05, 2, 7], [1.1, 5, 7], [1.05, 2, 7]])


@pytest.mark.parametrize("imputer", [rivals.ClassMeanImputer(), rivals.ClassKNNImputer(5)])
def test_labels_help_in_training_only(blobs, imputer):
    X, y = blobs
    with_labels = clone(imputer).fit_transform(X, y)
    shuffled = np.random.default_rng(0).permutation(y)
    assert not np.allclose(with_labels, clone(imputer).fit_transform(X, shuffled))
    without = clone(imputer).fit(X, y).transform(X)
    np.testing.assert_array_equal(without, clone(imputer).fit(X, shuffled).transform(X))
    np.testing.assert_array_equal(without, clone(imputer).fit_transform(X))
    assert not np.allclose(without, with_labels)
    kept = ~np.isnan(X)
    np.testing.assert_array_equal(with_labels[kept], X[kept])


def test_validation_samples_are_filled_without_their_labels():
    """Filled by labels that mean nothing, training looks perfect; validation must not."""
    random = np.random.default_rng(0)
    X = ampute(random.normal(size=(400, 30)), "random", 0.7, random_state=0)
    y = random.integers(0, 2, 400)
    settings = {"validation_fraction": 0.5, "n_epochs": 40, "hide": 0.0, "random_state": 0}
    clf = rivals.class_mean_fill("mlp", **settings).fit(X, y)
    assert max(record["accuracy"] for record in clf.history_) > 0.85
    assert max(record["validation_accuracy"] for record in clf.history_) < 0.65


def test_indicator_shows_holes_as_columns_or_channels():
    seen = {}

    class Look(nn.Module):
        def __init__(self, shape, n_classes):
            super().__init__()
            self.linear = nn.Linear(int(np.prod(shape)), n_classes)

        def forward(self, X):
            seen["input"] = X.detach().clone()
            return self.linear(X.flatten(1))

    for shape, expected in {(5,): (10,), (4, 3): (2, 4, 3), (2, 4, 3): (4, 4, 3)}.items():
        X = ampute(np.random.default_rng(0).normal(size=(20, *shape)), "random", 0.3)
        rivals.mean_and_indicator(Look, **QUICK).fit(X, np.arange(20) % 2).predict(X)
        assert seen["input"].shape[1:] == expected
        indicator = seen["input"].numpy().reshape(20, 2, -1)[:, 1]
        np.testing.assert_array_equal(indicator, np.isnan(X).reshape(20, -1))
        values = seen["input"].numpy().reshape(20, 2, -1)[:, 0]
        np.testing.assert_allclose(values[indicator == 1], 0, atol=1e-9)  # standardised means


def test_dropout_at_the_input_is_for_training_alone():
    X, y = make_blobs(100, 4, centers=2, random_state=0)
    clf = rivals.complete_data("logistic", 0.25, n_epochs=3, random_state=0).fit(X, y)
    plain = rivals.complete_data("logistic", 0.0, n_epochs=3, random_state=0).fit(X, y)
    assert clf.history_[-1]["J0"] != plain.history_[-1]["J0"]
    np.testing.assert_array_equal(clf.predict_proba(X), clf.predict_proba(X))
    weights = clf.module_.network[1].weight.detach().cpu().numpy()
    scores = StandardScaler().fit_transform(X) @ weights.T
    scores += clf.module_.network[1].bias.detach().cpu().numpy()
    np.testing.assert_allclose(clf.decision_function(X), scores[:, 1] - scores[:, 0])
    for dropout in (1.0, -0.1, "x"):
        with pytest.raises(ValueError, match="dropout must be from 0 to below 1"):
            rivals.complete_data(dropout=dropout).fit(X, y)


def test_complete_data_means_complete():
    X, y = make_blobs(30, 4, centers=2, random_state=0)
    clf = rivals.complete_data(**QUICK).fit(X, y)
    X[0, 0] = np.nan
    for call in (lambda: clf.predict(X), lambda: clone(clf).fit(X, y)):
        with pytest.raises(ValueError, match="no imputer; pass complete samples or an imputer"):
            call()


def test_an_imputer_that_drops_features_is_told_off():
    X, y = make_blobs(40, 3, centers=2, random_state=0)
    X[:, 0] = np.nan
    X[0, 0] = 1.0  # seen once, and perhaps held out

    class Dropping(SimpleImputer):
        def transform(self, X):
            return super().transform(X)[:, 1:]

    with pytest.raises(ValueError, match=r"all 3 features without NaN; got shape \(40, 2\)"):
        rivals.ImputedClassifier(Dropping(), **QUICK).fit(X, y)
    held = rivals.mean_fill(validation_fraction=0.5, **QUICK)
    assert np.isfinite(held.fit(X, y).predict_proba(X)).all()


# NN-GMM


def small_mixture(n_components=3, shape=(4,), seed=0):
    generator = torch.Generator().manual_seed(seed)
    options = {"generator": generator, "dtype": torch.float64}
    weights = torch.softmax(torch.randn(n_components, **options), 0)
    means = torch.randn(n_components, *shape, **options)
    variances = torch.rand(n_components, *shape, **options) + 0.2
    return Mixture(weights, means, variances)


def test_expected_relu_equals_monte_carlo():
    mean = torch.tensor([-2.0, -0.5, 0.0, 0.7, 3.0], dtype=torch.float64)
    variance = torch.tensor([1.0, 0.3, 2.0, 1.5, 0.01], dtype=torch.float64)
    draws = torch.randn(4_000_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sampled = torch.relu(mean + variance.sqrt() * draws[:, None]).mean(0)
    torch.testing.assert_close(expected_relu(mean, variance), sampled, atol=1e-3, rtol=0)
    zero = torch.zeros_like(mean)
    torch.testing.assert_close(expected_relu(mean, zero), torch.relu(mean))


def test_expected_relu_has_the_right_gradient_also_without_variance():
    mean = torch.tensor([-1.0, 0.3, 2.0, -3.0], dtype=torch.float64, requires_grad=True)
    variance = torch.tensor([0.5, 1.0, 0.2, 4.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(expected_relu, (mean, variance))
    nothing = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    expected_relu(mean, nothing).sum().backward()
    assert torch.isfinite(mean.grad).all()
    assert torch.isfinite(nothing.grad).all()


LAYERS = {
    "dense": ((4,), lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))),
    "convolution": (
        (2, 5, 5),
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(27, 2)
        ),
    ),
    "convolution of images without channel": (
        (6, 6),
        lambda: nn.Sequential(
            rivals.mixture.AsImage(), nn.Conv2d(1, 3, 3, bias=False), nn.ReLU(), nn.Flatten(),
            nn.Linear(48, 2),
        ),
    ),
    "with batch normalisation": (
        (2, 5, 5),
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(27, 2)
        ),
    ),
    "without activation": ((4,), lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 2))),
}  # fmt: skip


@pytest.mark.parametrize("kind", LAYERS)
def test_expected_activation_equals_monte_carlo(kind):
    """Draw the component, then the holes; push each draw through the ordinary network."""
    torch.manual_seed(0)
    shape, make = LAYERS[kind]
    layers = make().double()
    for layer in layers:
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
            nn.init.normal_(layer.weight)
            nn.init.normal_(layer.bias)
    mixture = small_mixture(shape=shape)
    with torch.no_grad():
        mixture.log_gamma.fill_(-0.7)
    network = MixtureNetwork(layers.eval(), mixture).eval()
    X = torch.randn(3, *shape, dtype=torch.float64)
    observed = torch.rand(X.shape) < 0.5
    observed[2] = True
    with torch.no_grad():
        activation = network.expected_activation(torch.where(observed, X, 0), observed)
        for row in range(3):
            normal = torch.distributions.Normal(
                mixture.means, (mixture.variances + mixture.log_gamma.exp()).sqrt()
            )
            fit = torch.where(observed[row], normal.log_prob(X[row]), 0).flatten(1).sum(1)
            share = torch.softmax(fit + mixture.logits, 0)
            torch.testing.assert_close(
                mixture.responsibilities(X[row : row + 1], observed[row : row + 1])[0], share
            )
            n_draws, tolerance = (8_000_000, 1.5e-3) if kind == "dense" else (600_000, 6e-3)
            component = torch.multinomial(share, n_draws, replacement=True)
            sampled = 0.0
            for part in component.split(100_000):
                noise = torch.randn(len(part), *shape, dtype=torch.float64)
                draw = mixture.means[part] + mixture.variances[part].sqrt() * noise
                filled = torch.where(observed[row], X[row], draw)
                plain = layers[: 1 + _last_before_rest(layers)](filled)
                sampled = sampled + plain.sum(0) / n_draws
            torch.testing.assert_close(activation[row], sampled, atol=tolerance, rtol=0)


def _last_before_rest(layers):
    """Return the place of the first ReLU, or of the last layer if there is none."""
    places = [i for i, layer in enumerate(layers) if isinstance(layer, nn.ReLU)]
    return places[0] if places else len(layers) - 1


def test_nothing_missing_is_the_plain_network():
    torch.manual_seed(0)
    for shape, make in LAYERS.values():
        layers = make().double()
        network = MixtureNetwork(layers, small_mixture(shape=shape))
        X = torch.randn(5, *shape, dtype=torch.float64)
        for mode in (False, True):  # batch normalisation: running and batch statistics
            expected = layers.train(mode)(X)
            actual = network.train(mode)(X, torch.ones_like(X, dtype=torch.bool))
            torch.testing.assert_close(actual, expected)


def test_mixture_is_trained_with_the_weights(blobs):
    X, y = blobs
    clf = rivals.nn_gmm("mlp", 3, n_epochs=1, random_state=0).fit(X, y)
    later = rivals.nn_gmm("mlp", 3, n_epochs=20, random_state=0).fit(X, y)
    for name in ("logits", "means", "log_variances", "log_gamma"):
        first, last = (getattr(c.module_.mixture, name).detach() for c in (clf, later))
        assert not torch.equal(first, last)
    standardised = (X - np.nanmean(X, 0)) / np.nanstd(X, 0)
    observed = torch.from_numpy(~np.isnan(X))
    values = torch.from_numpy(np.nan_to_num(standardised))
    samples = Samples(values, observed, torch.zeros(300), torch.ones(300))
    start = start_mixture(samples, 3, 0)
    assert start.means.shape == (3, 6)
    torch.testing.assert_close(start.logits.exp().sum(), torch.tensor(1.0, dtype=torch.float64))


def test_neighbours_in_float32_are_those_of_float64():
    """Two far groups: squares of one column are a million times those of the others."""
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 6))
    X[:, 0] = 1000 * random.choice([-1, 1], 300) + 0.1 * X[:, 0]
    X = ampute(X, "random", 0.2, random_state=0).astype(np.float32)
    filled = rivals.ClassKNNImputer(5, device="cpu").fit_transform(X, np.zeros(300))
    expected = KNNImputer(n_neighbors=5).fit_transform(X.astype(np.float64))
    np.testing.assert_allclose(filled, expected, rtol=1e-4, atol=1e-4)


def test_mixture_starts_from_mean_filled_samples_of_all_rows():
    """Two far clusters, sorted: both are found, although only some of the rows are looked at."""
    random = np.random.default_rng(0)
    X = np.repeat([[-2.0] * 8, [2.0] * 8], 600, axis=0) + 0.5 * random.normal(size=(1200, 8))
    whole = torch.ones(X.shape, dtype=torch.bool)
    samples = Samples(torch.from_numpy(X), whole, torch.zeros(1200), torch.ones(1200))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rivals.mixture, "_START_SAMPLES", 500)
        start = start_mixture(samples, 2, 0)
    np.testing.assert_allclose(np.sort(start.means.detach().mean(1)), [-2, 2], atol=0.1)
    np.testing.assert_allclose(start.variances.detach().numpy(), 0.25, atol=0.1)
    # holes count as the mean, 0
    observed = torch.from_numpy(random.random(X.shape) < 0.5)
    holes = Samples(torch.from_numpy(X), observed, torch.zeros(1200), torch.ones(1200))
    filled = Samples(torch.from_numpy(X) * observed, whole, torch.zeros(1200), torch.ones(1200))
    torch.testing.assert_close(start_mixture(holes, 3, 0).means, start_mixture(filled, 3, 0).means)
    assert start_mixture(samples.rows(slice(0, 1)), 5, 0).means.shape == (1, 8)


def test_nn_gmm_does_not_take_a_sequential_apart_that_is_more_than_that():
    class Squared(nn.Sequential):
        def forward(self, X):
            return super().forward(X**2)

    X, y = make_blobs(20, 4, centers=2, random_state=0)
    for network in (
        Squared(nn.Linear(4, 2)),
        nn.Sequential(nn.Identity(), Squared(nn.Linear(4, 2))),
    ):
        with pytest.raises(ValueError, match="got Squared there"):
            rivals.nn_gmm(network, **QUICK).fit(X, y)
    X, y = make_blobs(20, 2, centers=2, random_state=0)
    with pytest.raises(ValueError, match="got NoneType there"):
        rivals.nn_gmm(nn.Sequential(nn.Identity()), **QUICK).fit(X, y)


def test_nn_gmm_needs_a_linear_layer_first():
    X, y = make_blobs(20, 4, centers=2, random_state=0)
    network = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 2))
    with pytest.raises(ValueError, match="begins.*got LayerNorm there"):
        rivals.nn_gmm(network, **QUICK).fit(X, y)
    with pytest.raises(ValueError, match="n_components"):
        rivals.nn_gmm("mlp", 0, **QUICK).fit(X, y)


# NeuMiss


def test_neumiss_starts_at_the_best_linear_guess():
    """With the true covariance and many terms it is the conditional mean of a Gaussian."""
    random = np.random.default_rng(0)
    root = random.normal(size=(5, 5))
    covariance = root @ root.T + 0.5 * np.eye(5)
    network = NeuMissNetwork(nn.Identity(), torch.from_numpy(covariance), 2000)
    x = random.normal(size=5)
    seen = np.array([True, False, True, True, False])
    completed = network.complete(
        torch.from_numpy(np.where(seen, x, 0))[None], torch.from_numpy(seen)[None]
    )[0]
    solved = np.linalg.solve(covariance[np.ix_(seen, seen)], x[seen])
    np.testing.assert_allclose(
        completed.detach()[~seen], covariance[np.ix_(~seen, seen)] @ solved, atol=1e-6
    )
    np.testing.assert_array_equal(completed.detach()[seen], x[seen])


def test_observed_covariance():
    random = np.random.default_rng(0)
    root = random.normal(size=(4, 4))
    X = torch.from_numpy(random.normal(size=(50_000, 4)) @ root)
    observed = torch.from_numpy(random.random(X.shape) < 0.5)
    torch.testing.assert_close(
        observed_covariance(X * observed, observed),
        torch.from_numpy(root.T @ root),
        atol=0.1,
        rtol=0.05,
    )
    never_together = torch.eye(3, dtype=torch.bool)
    covariance = observed_covariance(torch.ones(3, 3), never_together)
    torch.testing.assert_close(covariance, torch.eye(3))


# what all share


@pytest.mark.parametrize("rival", ["class knn", "nn-gmm", "neumiss"])
def test_estimators_behave(blobs, rival):
    X, y = blobs
    before, state = X.copy(), torch.get_rng_state()
    clf = NETWORK_RIVALS[rival]("mlp", **QUICK).fit(X, y)
    np.testing.assert_array_equal(X, before)
    assert torch.equal(torch.get_rng_state(), state)
    again = NETWORK_RIVALS[rival]("mlp", **QUICK).fit(X, y)
    np.testing.assert_array_equal(clf.predict_proba(X), again.predict_proba(X))
    copied = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(clf.predict_proba(X), copied.predict_proba(X))
    np.testing.assert_allclose(clf.predict_proba(X)[:5], clf.predict_proba(X[:5]))
    with pytest.raises(ValueError, match="samples of shape"):
        clf.predict(X.reshape(-1, 6, 1))
    with pytest.raises(ValueError, match="n_epochs must be a whole number"):
        clf.set_params(n_epochs=0).fit(X, y)
    with pytest.raises(ValueError, match="training stopped"):  # in its midst
        clf.set_params(n_epochs=20, learning_rate=1e300).fit(X[:50], y[:50])
    np.testing.assert_array_equal(clf.predict_proba(X), again.predict_proba(X))  # still there
    whole = rivals.complete_data("mlp", **QUICK).fit(np.nan_to_num(X), y)
    assert whole.predict(np.nan_to_num(X)).shape == y.shape


def test_hiding_shows_each_network_other_holes():
    seen = []

    class Look(HoleNetwork):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(40, 2)

        def forward(self, X, observed):
            seen.append((X.detach().clone(), observed))
            return self.linear(X)

    torch.manual_seed(0)
    X = torch.randn(500, 40)
    given = torch.rand(X.shape) < 0.7
    samples = Samples(X * given, given, torch.zeros(500, dtype=torch.long), torch.ones(500))
    trainer = Plain(
        Look(), samples, Plan(1, 500, 0.01, hide=0.25), torch.Generator().manual_seed(0)
    )
    for _ in range(2):
        trainer.step(torch.arange(500))
    (values, observed), (_, later) = seen
    assert (observed <= given).all()
    assert (values[~observed] == 0).all()
    assert not torch.equal(observed, later)
    lost = 1 - observed.float().sum(1) / given.float().sum(1)
    assert abs(lost.mean() - 0.25) < 0.02
    assert lost.min() < 0.05
    assert lost.max() > 0.4
    # constant fills put their own constant there: 0 in the units of X
    clf = rivals.zero_fill(hide=0.25, **QUICK).fit(X.double().numpy() + 3, np.arange(500) % 2)
    hidden = clf.module_.hidden(torch.zeros(1, 40), torch.zeros(1, 40, dtype=torch.bool))
    expected = clf._standardised(np.zeros((1, 40)))
    np.testing.assert_allclose(hidden.numpy(), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="hide must be from 0 to 0.5"):
        rivals.zero_fill(hide=0.7).fit(X.numpy(), np.arange(500) % 2)


def test_hiding_is_the_default_where_it_helped():
    for make in NETWORK_RIVALS.values():
        assert make("mlp").hide == 0.25
        assert make("logistic", hide=0.1).hide == 0.1
    for make in (rivals.mean_and_indicator, rivals.neumiss, rivals.class_mean_fill):
        assert make("logistic").hide == 0.25
    for make in (rivals.zero_fill, rivals.mean_fill, rivals.knn_fill, rivals.nn_gmm):
        assert make("logistic").hide == 0.0
    assert rivals.complete_data("mlp").hide == 0.0


def test_values_out_of_range_are_refused_not_answered_with_nan(blobs):
    X, y = blobs
    for make in NETWORK_RIVALS.values():
        clf = make("mlp", **QUICK).fit(X.astype(np.float32), y)
        with pytest.raises(ValueError, match="X"):
            clf.predict_proba(np.full((2, 6), 1e39))


def test_a_network_without_parameters_is_refused():
    X, y = make_blobs(20, 4, centers=2, random_state=0)
    frozen = nn.Linear(4, 2).requires_grad_(False)
    with pytest.raises(ValueError, match="no parameters to train"):
        rivals.mean_fill(frozen, **QUICK).fit(X, y)


def test_an_imputer_may_itself_train_a_classifier(blobs):
    class Nested(SimpleImputer):
        def fit(self, X, y=None):
            rivals.zero_fill(**QUICK).fit(X, np.arange(len(X)) % 2)
            return super().fit(X, y)

        def fit_transform(self, X, y=None):
            return self.fit(X, y).transform(X)

    clf = rivals.ImputedClassifier(Nested(), **QUICK).fit(*blobs)  # and does not wait for itself
    assert clf.n_iter_ == QUICK["n_epochs"]


def test_imputers_check_before_they_learn(blobs):
    X, y = blobs
    imputer = rivals.ClassMeanImputer().fit(X)
    before = imputer.sources_.copy()
    with pytest.raises(ValueError, match="inconsistent"):
        imputer.fit_transform(100 * X, y[:-1])
    np.testing.assert_array_equal(imputer.sources_, before)
    with pytest.raises(ValueError, match="n_neighbors must be a whole number"):
        rivals.ClassKNNImputer(0).fit(X)
    with pytest.raises(ValueError, match="device='zpu'"):
        rivals.ClassKNNImputer(device="zpu").fit(X)


def test_neighbours_do_not_lose_digits_to_an_offset(blobs):
    X, y = blobs
    exact = rivals.ClassKNNImputer(5).fit_transform(X, y)
    shifted = rivals.ClassKNNImputer(5).fit_transform((X + 1000).astype(np.float32), y)
    close = np.isclose(shifted - 1000, exact, atol=0.01)
    assert close.mean() > 0.99


def test_device_and_order_of_scaling_are_those_of_the_classifier(blobs):
    X, y = blobs
    clf = rivals.class_knn_fill(device="cpu", n_epochs=2, random_state=0).fit(X, y)
    assert clf.imputer_.device == "cpu"
    before = clf.predict_proba(X)
    np.testing.assert_array_equal(clf.set_params(impute_scaled=False).predict_proba(X), before)


def test_memory_of_neighbours_does_not_grow_with_the_square():
    """12,000 rows: one n × n matrix of float32 alone would be 0.55 GiB."""
    code = """
import resource, numpy as np
from halfseen import rivals
X = np.random.default_rng(0).normal(size=(12_000, 10)).astype(np.float32)
X[np.random.default_rng(1).random(X.shape) < 0.5] = np.nan
imputer = rivals.ClassKNNImputer(3, device="cpu")
imputer.fit_transform(X[:300])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
imputer.fit(X).transform(X[:3000])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.35


@pytest.mark.gpu
def test_gpu_and_cpu_agree(blobs):
    X, y = blobs
    on = {
        device: rivals.ClassKNNImputer(5, device=device).fit_transform(X, y)
        for device in ("cpu", "cuda")
    }
    np.testing.assert_allclose(on["cuda"], on["cpu"])
    for make in NETWORK_RIVALS.values():
        clf = make("mlp", n_epochs=20, random_state=0, device="cuda").fit(X, y)
        probability = clf.predict_proba(X)
        clf.set_params(device="cpu")
        np.testing.assert_allclose(clf.predict_proba(X), probability, atol=2e-3)
        assert next(pickle.loads(pickle.dumps(clf)).module_.parameters()).device.type == "cpu"


@pytest.mark.parametrize("n_features", [1, 5])
def test_mixture_starts_from_the_groups(n_features):
    """Two groups that differ in one feature; standardised, it varies no more than the others."""
    random = np.random.default_rng(0)
    X = random.normal(size=(2000, n_features))
    X[:, 0] += np.repeat([-3.0, 3.0], 1000)
    X = (X - X.mean(0)) / X.std(0)
    whole = torch.ones(X.shape, dtype=torch.bool)
    samples = Samples(torch.from_numpy(X), whole, torch.zeros(2000), torch.ones(2000))
    start = start_mixture(samples, 2, 0)
    means = np.sort(start.means.detach().numpy()[:, 0])
    np.testing.assert_allclose(means, np.array([-3, 3]) / np.sqrt(10), atol=0.05)
    assert start.log_gamma.item() == 0  # where training goes on from


def test_nn_gmm_refuses_what_it_has_no_expectation_for():
    X, y = np.random.default_rng(0).normal(size=(12, 1, 4, 3)), np.arange(12) % 2
    mirrored = nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect")
    with pytest.raises(ValueError, match="every feature once.*got padding_mode='reflect'"):
        rivals.nn_gmm(nn.Sequential(mirrored, nn.Flatten(), nn.Linear(24, 2)), **QUICK).fit(X, y)
    computed = nn.utils.parametrizations.weight_norm(nn.Linear(12, 3))
    with pytest.raises(ValueError, match="holds its own weight"):
        rivals.nn_gmm(nn.Sequential(nn.Flatten(), computed, nn.Linear(3, 2)), **QUICK).fit(X, y)
    by_row = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)
    with pytest.raises(ValueError, match="batch normalisation of the units"):
        rivals.nn_gmm(nn.Sequential(*by_row), **QUICK).fit(X[:, 0], y)


def test_an_imputer_that_was_told_its_device_keeps_it(blobs):
    X, y = blobs

    class Numbered(SimpleImputer):
        def __init__(self, device=0):
            super().__init__()
            self.device = device

    clf = rivals.ImputedClassifier(Numbered(), **QUICK).fit(X, y)
    assert clf.imputer_.device == 0
    clf = rivals.ImputedClassifier(rivals.ClassKNNImputer(3), **QUICK).fit(X, y)
    assert clf.imputer_.device == "cpu"
    clf.imputer_.device = "a GPU that is not here"  # where it was fitted
    assert clf.predict(X).shape == y.shape
