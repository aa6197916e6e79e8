"""What a fitted classifier says about holes: certificates, plausible completions, measurements."""

import itertools
import types

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from torch import nn

from halfseen import Patches, SparseCodingClassifier, ampute
from halfseen.certificates.bounds import check_supported, lower_margins
from halfseen.certificates.certify import certify_ranges
from halfseen.networks import cnn4, cnn4_bn, mlp, resnet18


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    holes = ampute(X[:800], "random", 0.25, random_state=0)
    fitted = {
        name: SparseCodingClassifier(name, random_state=0, n_epochs=10).fit(holes, y[:800])
        for name in ("logistic", "mlp")
    }
    return fitted, X[800:], y[800:]


def corners(row, low, high):
    """All ways to put the ends of the ranges into the holes of a row."""
    holes = np.flatnonzero(np.isnan(row))
    for ends in itertools.product((0, 1), repeat=len(holes)):
        filled = row.copy()
        filled[holes] = np.where(ends, high[holes], low[holes])
        yield filled


def test_a_linear_network_is_certified_exactly():
    X, y = load_iris(return_X_y=True)
    holes = ampute(X, "random", 0.5, random_state=0)
    clf = SparseCodingClassifier(random_state=0, n_epochs=30).fit(holes, y)
    low, high = np.nanmin(holes, axis=0), np.nanmax(holes, axis=0)
    np.testing.assert_array_equal(clf.feature_range_, [low, high])
    found, predicted = clf.certify(holes), clf.predict(holes)
    assert 20 < found.certain.sum() < 140
    for row, certain, possible, now in zip(
        holes, found.certain, found.possible, predicted, strict=True
    ):
        classes = clf.predict(np.array(list(corners(row, low, high))))
        assert certain == (classes == now).all()
        assert set(classes) <= set(clf.classes_[possible])
        assert possible[now]


def test_certificates_by_hand():
    """A network f = (0, 2·a − b + 1) on known and unknown features."""
    network = nn.Linear(2, 2).double()
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[0.0, 0.0], [2.0, -1.0]]))
        network.bias.copy_(torch.tensor([0.0, 1.0]))
    low = torch.tensor([[1.0, -1.0], [1.0, -1.0], [0.0, 0.5]], dtype=torch.float64)
    high = torch.tensor([[1.0, 2.9], [1.0, 3.1], [0.0, 0.5]], dtype=torch.float64)
    margin, size = lower_margins(network, low, high, torch.tensor([1, 1, 1]))
    np.testing.assert_allclose(margin, [[0.1, 0], [-0.1, 0], [0.5, 0]], atol=1e-12)
    np.testing.assert_allclose(size[:, 0], [2 + 2.9 + 1, 2 + 3.1 + 1, 0.5 + 1])


def random_network(name, seed):
    torch.manual_seed(seed)
    if name == "deep mlp":
        return nn.Sequential(
            nn.Flatten(), nn.Linear(36, 24), nn.ReLU(), nn.Linear(24, 16), nn.ReLU(),
            nn.Dropout(0.5), nn.Linear(16, 4),
        )  # fmt: skip
    if name == "strange cnn":
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
            nn.MaxPool2d(2, stride=1), nn.Conv2d(4, 6, 2, groups=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4),
        )  # fmt: skip
    return {"mlp": mlp, "cnn4": cnn4, "cnn4_bn": cnn4_bn, "resnet18": resnet18}[name]((8, 8), 4)


def with_statistics(network):
    """Give batch normalisation something to do, as after training."""
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.running_mean)
            nn.init.uniform_(part.running_var, 0.5, 2)
            nn.init.normal_(part.weight)
            nn.init.normal_(part.bias)
    return network.double().eval()


@pytest.mark.parametrize(
    ("name", "n_networks", "width", "least"),
    [
        ("mlp", 10, 0.3, 1000), ("deep mlp", 10, 0.3, 1000), ("cnn4", 1, 0.03, 8),
        ("cnn4_bn", 1, 0.03, 8), ("strange cnn", 10, 0.1, 500), ("resnet18", 1, 0.0, 4),
    ],
)  # fmt: skip
def test_what_is_certified_for_networks_is_true(name, n_networks, width, least):
    """Random and adversarial values within the ranges never take the lead away."""
    shape = {"deep mlp": (6, 6), "strange cnn": (1, 8, 8)}.get(name, (8, 8))
    n_samples = {"resnet18": 4, "cnn4": 15, "cnn4_bn": 15}.get(name, 200)
    n_certified = 0
    for seed in range(n_networks):
        network = with_statistics(random_network(name, seed))
        check_supported(network)
        random = torch.Generator().manual_seed(seed)
        X = torch.randn(n_samples, *shape, generator=random).double()
        missing = torch.rand(X.shape, generator=random) < 0.3
        reach = width * torch.rand(n_samples, *(1,) * len(shape), generator=random).double()
        low, high = X - reach * missing, X + reach * missing
        with torch.no_grad():
            label = network(X).argmax(1)
        margin, _ = lower_margins(network, low, high, label)
        others = torch.nn.functional.one_hot(label, 4) == 0
        n_certified += int((margin[others].reshape(n_samples, 3) > 0).all(1).sum())
        least_seen = torch.full_like(margin, torch.inf)
        for attempt in range(30):
            if attempt < 10:
                Z = low + (high - low) * torch.rand(X.shape, generator=random).double()
            elif attempt < 15:
                Z = torch.where(torch.rand(X.shape, generator=random) < 0.5, low, high)
            else:  # from where we are, each input to that end which hurts most
                Z = Z.requires_grad_()
                scores = network(Z)
                lead = scores.gather(1, label[:, None]) - scores
                rival = lead.masked_fill(~others, torch.inf).argmin(1, keepdim=True)
                (slope,) = torch.autograd.grad(lead.gather(1, rival).sum(), Z)
                Z = torch.where(slope > 0, low, high)
            with torch.no_grad():
                scores = network(Z.detach())
            least_seen = torch.minimum(least_seen, scores.gather(1, label[:, None]) - scores)
            Z = Z.detach()
        assert (least_seen >= margin - 1e-9 * margin.abs().clamp(min=1)).all()
    assert n_certified >= least


def test_bounds_are_exact_without_holes_and_for_linear_networks():
    network = with_statistics(cnn4_bn((8, 8), 4))
    X = torch.randn(5, 8, 8, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        scores = network(X)
    margin, _ = lower_margins(network, X, X, scores.argmax(1))
    np.testing.assert_allclose(margin, scores.amax(1, keepdim=True) - scores, atol=1e-12)


def test_certified_digits_keep_their_class(digits):
    fitted, X, _ = digits
    for clf in fitted.values():
        n_certain = 0
        for rate in (0.02, 0.05, 0.1):
            holes = ampute(X, "random", rate, random_state=1)
            found, now = clf.certify(holes), clf.predict(holes)
            n_certain += found.certain.sum()
            assert (found.margin[found.certain] > 0).all()
            random = np.random.default_rng(0)
            low, high = clf.feature_range_
            fillings = [X] if rate < 0.1 else []
            fillings += [random.uniform(low, high, X.shape) for _ in range(5)]
            fillings += [np.where(random.random(X.shape) < 0.5, low, high) for _ in range(5)]
            for values in fillings:
                inside = (values >= low) & (values <= high)
                filled = np.where(np.isnan(holes), values, holes)
                fine = found.certain & (inside | ~np.isnan(holes)).all(1)
                np.testing.assert_array_equal(clf.predict(filled)[fine], now[fine])
        assert n_certain > 1000


def test_ranges_may_be_numbers_or_arrays(digits):
    clf, X = digits[0]["logistic"], ampute(digits[1][:50], "random", 0.2, random_state=0)
    whole = clf.certify(X, (0, 16))
    assert (clf.certify(X, (np.zeros(64), np.full(64, 16.0))).margin == whole.margin).all()
    assert (clf.certify(X, (np.zeros(X.shape), 16)).margin == whole.margin).all()
    error = 0.5 * clf.completion_error_
    near = clf.certify(X, (clf.impute(X) - error, clf.impute(X) + error))
    assert (near.margin >= whole.margin).all()
    assert near.certain.sum() > whole.certain.sum()
    point = clf.certify(X, (clf.impute(X), clf.impute(X)))
    assert point.certain.all()
    order = np.sort(clf.decision_function(X), axis=1)
    np.testing.assert_allclose(point.margin, order[:, -1] - order[:, -2])
    before = X.copy()
    clf.certify(X)
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (3, r"a pair \(low, high\)"),
        ((1, 0), "low must not be above high; got 1 and 0 at"),
        ((np.zeros(5), 1), r"of a sample, \(64,\), or of X, \(2, 64\); got shape \(5,\)"),
        ({0, 1}, r"a pair \(low, high\)"),
        ((0, np.inf), "bounds: high contains inf"),
        ((0, np.nan), "bounds: high contains nan"),
    ],
)
def test_ranges_that_make_no_sense_are_refused(digits, bounds, message):
    with pytest.raises(ValueError, match=message):
        digits[0]["logistic"].certify(digits[1][:2], bounds)


def test_names_of_ranges_are_those_of_the_features():
    frame, y = load_iris(return_X_y=True, as_frame=True)
    clf = SparseCodingClassifier(n_epochs=5, random_state=0).fit(frame, y)
    X = frame.mask(np.random.default_rng(0).random(frame.shape) < 0.3)
    low, high = frame.min(), frame.max()
    expected = clf.certify(X, (low.to_numpy(), high.to_numpy()))
    np.testing.assert_array_equal(clf.certify(X, (low, high)).margin, expected.margin)
    wide = [pd.DataFrame([end] * len(X)) for end in (low, high)]
    np.testing.assert_array_equal(clf.certify(X, wide).margin, expected.margin)
    for bounds in ((low[::-1], high), (low, high.rename({frame.columns[0]: "x"}))):
        with pytest.raises(ValueError, match="names of the features, in their order, 'sepal"):
            clf.certify(X, bounds)


def test_what_cannot_be_bounded_is_refused():
    X, y = load_iris(return_X_y=True)
    network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    clf = SparseCodingClassifier(network, n_epochs=1).fit(X, y)
    with pytest.raises(ValueError, match="no bounds for the layer Tanh.*'mlp'.*Conv2d"):
        clf.certify(X)
    for padded in (nn.MaxPool2d(3, padding=1), nn.MaxPool2d(2, ceil_mode=True)):
        with pytest.raises(ValueError, match="no bounds for MaxPool2d"):
            check_supported(nn.Sequential(padded))
    with pytest.raises(ValueError, match="convolutions that pad with values"):
        check_supported(nn.Sequential(nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect")))
    clf = SparseCodingClassifier(network_input="reconstruction", n_epochs=1).fit(X, y)
    with pytest.raises(ValueError, match="needs network_input='completed'"):
        clf.certify(X)
    assert clf.completion_proba(X).shape == (150, 3)  # needs no bounds


def test_images_and_float32():
    X, y = load_digits(return_X_y=True)
    X = ampute(X[:300].reshape(-1, 8, 8).astype(np.float32), "random", 0.1, random_state=0)
    settings = {"tiling": Patches(4, 2), "n_atoms": 16, "n_epochs": 3, "random_state": 0}
    clf = SparseCodingClassifier("cnn4_bn", **settings).fit(X, y[:300])
    error = 0.2 * clf.completion_error_
    found = clf.certify(X[:20], (clf.impute(X[:20]) - error, clf.impute(X[:20]) + error))
    assert found.certain.any()
    assert clf.completion_proba(X[:20], n_draws=7).shape == (20, 10)
    feature, gain = clf.what_to_measure(X[:5], n_best=3)
    for row, places in zip(X[:5], feature, strict=True):
        assert np.isnan(row.reshape(-1)[places]).all()
    assert (np.diff(gain, axis=1) <= 0).all()


def test_plausible_completions_say_how_often_the_class_stays(digits):
    for clf in digits[0].values():
        X = digits[1]
        holes = ampute(X, "random", 0.5, random_state=2)
        share = clf.completion_proba(holes, n_draws=50)
        np.testing.assert_allclose(share.sum(1), 1)
        np.testing.assert_allclose(share * 50, np.round(share * 50), atol=1e-9)
        stays = clf.predict(holes) == clf.predict(X)
        said = share[np.arange(len(X)), clf.predict(holes)]
        assert abs(said.mean() - stays.mean()) < 0.06
        assert stays[said > 0.98].mean() > 0.95 > 0.8 > stays[said < 0.6].mean()
        complete = clf.completion_proba(X, n_draws=3)
        np.testing.assert_array_equal(clf.classes_[complete.argmax(1)], clf.predict(X))
        np.testing.assert_allclose(complete.max(1), 1)
        again = clf.completion_proba(holes, n_draws=50)
        np.testing.assert_array_equal(share, again)
        assert (clf.completion_proba(holes, n_draws=50, random_state=1) != share).any()
        with pytest.raises(ValueError, match="n_draws must be"):
            clf.completion_proba(holes, n_draws=0)


def test_the_gain_of_a_measurement_is_the_change_it_makes():
    X, y = load_iris(return_X_y=True)
    clf = SparseCodingClassifier(random_state=0, n_epochs=30).fit(
        ampute(X, "random", 0.3, random_state=0), y
    )
    row = X[75:76].copy()
    row[0, [1, 3]] = np.nan
    feature, gain = clf.what_to_measure(row)
    assert feature.tolist()[0][2:] == [-1, -1]
    assert np.isnan(gain[0, 2:]).all()
    now = clf.predict_proba(row)
    for place, expected in zip(feature[0, :2], gain[0, :2], strict=True):
        change = []
        for sign in (-1, 1):
            then = row.copy()
            then[0, place] = clf.impute(row)[0, place] + sign * clf.completion_error_[place]
            change.append(np.abs(clf.predict_proba(then) - now).sum() / 2)
        assert np.mean(change) == pytest.approx(expected)
    assert feature[0, 0] == 3  # the width of petals, not of sepals
    with pytest.raises(ValueError, match="n_best must be"):
        clf.what_to_measure(row, n_best=0)


def test_asking_for_the_right_pixels_beats_random_ones(digits):
    clf, X, y = digits[0]["logistic"], *digits[1:]
    random = np.random.default_rng(0)
    accuracy = {}
    for way in ("ours", "random"):
        holes = ampute(X, "random", 0.75, random_state=3)
        for _ in range(6):
            place = np.where(np.isnan(holes), random.random(holes.shape), -1).argmax(1)
            if way == "ours":
                place = clf.what_to_measure(holes, n_best=1).feature[:, 0]
            holes[np.arange(len(X)), place] = X[np.arange(len(X)), place]
        accuracy[way] = clf.score(holes, y)
    assert accuracy["ours"] > accuracy["random"] + 0.05


def test_completion_error_is_that_on_hidden_entries():
    X, y = load_breast_cancer(return_X_y=True)
    holes = ampute(X, "random", 0.3, random_state=0)
    clf = SparseCodingClassifier(random_state=0).fit(holes, y)
    error = np.where(np.isnan(holes), clf.impute(holes) - X, np.nan)
    measured = np.sqrt(np.nanmean(error**2, axis=0))
    ratio = clf.completion_error_ / measured
    assert 0.6 < np.median(ratio) < 1.4
    assert np.corrcoef(np.log(clf.completion_error_), np.log(measured))[0, 1] > 0.95


def test_answers_survive_a_file(digits, tmp_path):
    clf, X = digits[0]["mlp"], ampute(digits[1][:30], "random", 0.1, random_state=0)
    clf.save(tmp_path / "model")
    again = SparseCodingClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.certify(X).margin, clf.certify(X).margin)
    np.testing.assert_array_equal(again.what_to_measure(X).gain, clf.what_to_measure(X).gain)
    np.testing.assert_array_equal(again.completion_proba(X), clf.completion_proba(X))


def test_frames_keep_their_names():
    data = load_breast_cancer(as_frame=True)
    X = ampute(data.data, "random", 0.1, random_state=0)
    clf = SparseCodingClassifier(random_state=0, n_epochs=5).fit(X, data.target)
    some = X.iloc[:40]
    assert clf.certify(some).certain.any()
    assert clf.completion_proba(some).shape == (40, 2)
    feature, gain = clf.what_to_measure(some, n_best=2)
    for i in np.flatnonzero(some.isna().sum(axis=1) >= 2):
        assert some.iloc[i][clf.feature_names_in_[feature[i]]].isna().all()
    assert (np.nan_to_num(gain) <= 1).all()
    with pytest.raises(ValueError, match="feature names"):
        clf.certify(some.rename(columns={"mean radius": "x"}))


class Bent(nn.Linear):
    def forward(self, X):
        return torch.sin(4 * super().forward(X))


def hooked():
    layer = nn.ReLU()
    layer.register_forward_hook(lambda module, inputs, output: torch.sin(3 * output))
    return layer


def replaced():
    layer = nn.Linear(4, 4)
    layer.forward = types.MethodType(Bent.forward, Bent(4, 4))
    return layer


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (replaced(), "a Linear with hooks or a forward"),
        (Bent(4, 4), "the layer Bent"),
        (type("Own", (nn.Sequential,), {})(nn.Linear(4, 4)), "the layer Own"),
        (hooked(), "a ReLU with hooks"),
        (nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)), "the layer ParametrizedLinear"),
        (nn.BatchNorm1d(4, track_running_stats=False), "without running statistics"),
    ],
)
def test_layers_that_may_compute_anything_are_refused(layer, message):
    with pytest.raises(ValueError, match=message):
        check_supported(nn.Sequential(nn.Sequential(nn.Identity(), layer), nn.Linear(4, 3)))


def test_the_inside_of_a_residual_block_counts():
    network = resnet18((8, 8), 3)
    check_supported(network)
    network[4].inner[2] = nn.Tanh()
    with pytest.raises(ValueError, match="the layer Tanh"):
        check_supported(network)


def test_layers_that_overwrite_their_input_change_nothing():
    network = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(1, 2)).double()
    with torch.no_grad():
        network[1].weight.copy_(torch.tensor([[0.0], [-1.0]]))
        network[1].bias.copy_(torch.tensor([0.0, -0.5]))
    low, high = torch.tensor([[-2.0]]).double(), torch.tensor([[-1.0]]).double()
    margin, _ = lower_margins(network, low, high, torch.tensor([1]))
    assert margin[0, 0] == pytest.approx(-0.5)
    assert (low.item(), high.item()) == (-2, -1)


def test_numbers_that_overflow_certify_nothing():
    X, y = load_iris(return_X_y=True)
    holes = ampute(X, "random", 0.3, random_state=0)
    clf = SparseCodingClassifier("mlp", random_state=0, n_epochs=5).fit(holes, y)
    largest = np.finfo(float).max
    incomplete = np.isnan(holes).any(1)
    for end in (1e6, 1e100, 1e307, largest):
        found = clf.certify(holes, (-end, end))
        assert not found.certain[incomplete].any()
        assert not np.isnan(found.margin).any()


def test_rounding_of_large_values_is_allowed_for():
    X, y = load_iris(return_X_y=True)
    X = np.c_[X[:, :2], X[:, 2:] + 1e8]  # float32 has steps of 8 there
    holes = ampute(X, "random", 0.3, random_state=0)
    clf = SparseCodingClassifier(random_state=0, n_epochs=10).fit(holes.astype(np.float32), y)
    low, high = X.min(0), X.max(0)
    found, now = clf.certify(holes, (low, high)), clf.predict(holes)
    for row, certain, label in zip(holes, found.certain, now, strict=True):
        if certain:
            assert (clf.predict(np.array(list(corners(row, low, high)))) == label).all()


def test_cancelling_biases_are_part_of_the_rounding():
    network = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2))
    with torch.no_grad():
        network[0].weight.copy_(torch.tensor([[1.0], [0.0]]))
        network[0].bias.fill_(1e6)
        network[2].weight.copy_(torch.tensor([[0.0, 0.0], [1.0, -1.0]]))
        network[2].bias.zero_()
    low, high = torch.tensor([[0.01]]).double(), torch.tensor([[0.2]]).double()
    assert network(low.float()).argmax(1) == 0  # rounded away
    found = certify_ranges(network.double(), low, high, torch.tensor([1]))
    assert found.margin == pytest.approx(0.01)
    assert not found.certain[0]


def test_images_without_an_axis_for_channels_may_be_pooled():
    network = nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(9, 3)).double()
    X = torch.randn(20, 6, 6, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        scores = network(X)
    exact, _ = lower_margins(network, X, X, scores.argmax(1))
    np.testing.assert_allclose(exact, scores.amax(1, keepdim=True) - scores, atol=1e-12)
    margin, _ = lower_margins(network, X - 0.1, X + 0.1, scores.argmax(1))
    assert (margin <= exact + 1e-12).all()


def test_constant_features_are_completed_without_error():
    X, y = load_iris(return_X_y=True)
    holes = ampute(np.c_[X, np.full(150, 7.0)], "random", 0.3, random_state=0)
    clf = SparseCodingClassifier(random_state=0, n_epochs=10).fit(holes, y)
    assert clf.completion_error_[4] == 0
    only = np.c_[X, np.full(150, np.nan)]
    np.testing.assert_array_equal(clf.completion_proba(only).max(1), 1)
    np.testing.assert_allclose(clf.what_to_measure(only, 1).gain, 0, atol=1e-12)


def test_errors_of_features_keep_their_units():
    X, y = load_iris(return_X_y=True)
    X = X * [1e4, 1, 1, 1]
    settings = {"n_epochs": 20, "random_state": 0, "training": "published"}
    clf = SparseCodingClassifier(**settings).fit(ampute(X, "random", 0.3, random_state=0), y)
    assert (clf.completion_error_[1:] < 100).all()
    assert clf.completion_error_[0] > 100


def test_a_share_is_a_share_and_depends_on_no_neighbour(digits):
    clf, X = digits[0]["logistic"], ampute(digits[1][:60], "random", 0.6, random_state=0)
    share = clf.completion_proba(X, n_draws=10)
    assert set(np.unique(share)) <= {k / 10 for k in range(11)}
    np.testing.assert_array_equal(clf.completion_proba(X[40:50], n_draws=10), share[40:50])


def test_pixels_that_nearly_never_vary_do_not_blur_the_others():
    X, y = load_digits(return_X_y=True)
    images = X[:600].reshape(-1, 8, 8)
    rare = images.copy()
    rare[np.arange(8), np.arange(8), 0] += 1e-6  # the left edge is dark otherwise
    errors = [
        SparseCodingClassifier(tiling=Patches(4, 2), random_state=0, n_epochs=2)
        .fit(ampute(data, "random", 0.25, random_state=0), y[:600])
        .completion_error_[:, 2:6]
        for data in (images, rare)
    ]
    np.testing.assert_allclose(*errors, rtol=0.5)
