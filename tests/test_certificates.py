"""The conditions of the paper, as published and in a sound form."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from halfseen.certificates import (
    isometry_by_coherence,
    isometry_by_sampling,
    isometry_exactly,
    multilayer,
    rip_based,
    type_one,
    type_two,
)
from halfseen.networks import mlp

N_FEATURES = 12


def instance(seed, n_classes, residual, n_samples=400):
    """Samples near their reconstructions; `residual` is the error on the observed features."""
    random = torch.Generator().manual_seed(seed)
    options = {"generator": random, "dtype": torch.float64}
    X = torch.randn(n_samples, N_FEATURES, **options)
    observed = torch.rand(n_samples, N_FEATURES, **options) < 0.6
    size = 10 ** (2 * torch.rand(n_samples, 1, **options) - 2)
    error = size * torch.randn(X.shape, **options)
    error = torch.where(observed, residual * error, error)
    weight = torch.randn(n_classes, N_FEATURES, **options)
    bias = torch.randn(n_classes, **options)
    return weight, bias, X, X - error, observed


def kept_class(scores_of, X, reconstruction):
    return scores_of(X).argmax(1) == scores_of(reconstruction).argmax(1)


@pytest.mark.parametrize("n_classes", [2, 7])
def test_what_is_certified_for_a_linear_classifier_is_true(n_classes):
    certified = 0
    for seed in range(20):
        weight, bias, X, reconstruction, observed = instance(seed, n_classes, residual=0.3)
        kept = kept_class(lambda V, w=weight, b=bias: V @ w.T + b, X, reconstruction)
        for condition in (type_one, type_two):
            found = condition(weight, bias, X, reconstruction, observed, sound=True)
            assert kept[found.holds].all()
            certified += int(found.holds.sum())
        one = type_one(weight, bias, X, reconstruction, observed, sound=True)
        two = type_two(weight, bias, X, reconstruction, observed, sound=True)
        assert not (two.holds & ~one.holds).any()  # type II is the stricter one
    assert certified > 3000


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("width", [3, 40])
def test_what_is_certified_for_a_perceptron_is_true(n_classes, width):
    certified = 0
    for seed in range(20):
        _, _, X, reconstruction, observed = instance(seed, n_classes, residual=0.3)
        torch.manual_seed(seed)
        network = nn.Sequential(
            nn.Linear(N_FEATURES, width), nn.ReLU(), nn.Linear(width, 8), nn.ReLU(),
            nn.Linear(8, n_classes),
        ).double()  # fmt: skip
        found = multilayer(network, X, reconstruction, observed, sound=True)
        with torch.no_grad():
            kept = kept_class(network, X, reconstruction)
        assert kept[found.holds].all()
        certified += int(found.holds.sum())
    assert certified > 300


def test_conditions_by_hand():
    weight = torch.tensor([[0.0, 0.0], [1.0, 2.0]], dtype=torch.float64)
    bias = torch.tensor([0.0, 0.5], dtype=torch.float64)
    X = torch.tensor([[3.0, -1.0]], dtype=torch.float64)
    reconstruction = torch.tensor([[2.5, -0.25]], dtype=torch.float64)
    observed = torch.tensor([[True, False]])
    everything = weight, bias, X, reconstruction, observed
    # f(reconstruction) = 2.5 - 0.5 + 0.5; hidden: x = -1, reconstruction -0.25, weight 2
    for condition, sound, bound in (
        (type_one, False, 1.5),  # |2·(-0.75)|
        (type_one, True, 1.0),  # |0.5 - 1.5|: the residual of what is observed helps here
        (type_two, False, 2.5),  # 2 + 0.5
        (type_two, True, 3.0),  # and 0.5 of what is observed
    ):
        found = condition(*everything, sound=sound)
        assert found.margin.item() == 2.5
        assert found.bound.item() == pytest.approx(bound)
        assert found.holds.item() == (bound < 2.5)
    isometry = torch.tensor([0.75], dtype=torch.float64)
    found = rip_based(*everything, isometry, 2, sound=False)
    assert found.bound.item() == pytest.approx(2 * 2 * np.sqrt(2 / 0.25))
    found = rip_based(*everything, isometry, 2, sound=True)
    assert found.bound.item() == pytest.approx((1 + 0.25) * 2 * np.sqrt(2 / 0.25) + 0.5)
    found = rip_based(*everything, isometry + 1, 2, sound=True)
    assert found.bound.isinf().all()


def test_the_published_condition_for_networks_can_be_wrong():
    """Four equal units: each changes by e, together their 2-norm changes by 2e."""
    network = nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    with torch.no_grad():
        network[0].weight.fill_(1.0)
        network[0].bias.fill_(10.0)
        network[2].weight.copy_(torch.tensor([[0.0] * 4, [1.0] * 4]))
        network[2].bias.copy_(torch.tensor([37.0, 0.0]))
    X, reconstruction = torch.zeros(1, 1).double() - 1.0, torch.zeros(1, 1).double()
    observed = torch.zeros(1, 1, dtype=torch.bool)
    # The reconstruction has margin 40 - 37 = 3. A = 2, the largest change is 1: 3 > 2.
    published = multilayer(network, X, reconstruction, observed, sound=False)
    assert published.holds.all()
    with torch.no_grad():
        assert network(reconstruction).argmax(1) != network(X).argmax(1)  # 36 < 37
    sound = multilayer(network, X, reconstruction, observed, sound=True)
    assert sound.bound.item() == pytest.approx(4.0)
    assert not sound.holds.any()


def test_the_published_condition_for_linear_classifiers_needs_an_exact_fit():
    wrong = 0
    for seed in range(20):
        weight, bias, X, reconstruction, observed = instance(seed, 2, residual=3.0)
        kept = kept_class(lambda V, w=weight, b=bias: V @ w.T + b, X, reconstruction)
        wrong += int((type_one(weight, bias, X, reconstruction, observed, sound=False).holds
                      & ~kept).sum())  # fmt: skip
    assert wrong > 0
    for seed in range(20):  # with an exact fit it is right, as the paper says
        weight, bias, X, reconstruction, observed = instance(seed, 2, residual=0.0)
        kept = kept_class(lambda V, w=weight, b=bias: V @ w.T + b, X, reconstruction)
        assert kept[type_one(weight, bias, X, reconstruction, observed, sound=False).holds].all()


def test_the_isometry_condition_is_true_with_upper_bounds_of_the_constant():
    random = torch.Generator().manual_seed(0)
    atoms = torch.linalg.qr(torch.randn(16, 16, generator=random, dtype=torch.float64)).Q
    certified = 0
    for seed in range(300):
        random.manual_seed(seed)
        codes = torch.zeros(2, 16, dtype=torch.float64)
        codes[:, :2] = torch.rand(2, 2, generator=random, dtype=torch.float64)
        X, reconstruction = (codes / 2) @ atoms
        observed = torch.zeros(16, dtype=torch.bool)
        observed[torch.randperm(16, generator=random)[:1]] = True
        weight = torch.zeros(2, 16, dtype=torch.float64)
        weight[1] = 0.02 * torch.randn(16, generator=random, dtype=torch.float64)
        bias = torch.tensor([0.0, 0.5], dtype=torch.float64)
        delta = isometry_by_coherence(atoms[:, ~observed], 2)
        arrays = weight, bias, X[None], reconstruction[None], observed[None]
        found = rip_based(*arrays, torch.tensor([delta]).double(), 2, sound=True)
        if found.holds.item():
            certified += 1
            assert kept_class(
                lambda V, w=weight, b=bias: V @ w.T + b, X[None], reconstruction[None]
            )
    assert certified > 30


@pytest.mark.parametrize("sparsity", [1, 2, 3])
def test_isometry_constants_are_in_order_and_exact_is_brute_force(sparsity):
    random = torch.Generator().manual_seed(sparsity)
    dictionary = torch.randn(9, 12, generator=random, dtype=torch.float64)
    dictionary = 0.9 * dictionary / dictionary.norm(dim=1, keepdim=True)
    worst = 0.0
    for support in itertools.combinations(range(9), sparsity):
        values = np.linalg.svd(dictionary[list(support)].numpy(), compute_uv=False) ** 2
        worst = max(worst, abs(values - 1).max())
    exact = isometry_exactly(dictionary, sparsity)
    assert exact == pytest.approx(worst)
    low = isometry_by_sampling(dictionary, sparsity, n_supports=20, random_state=0)
    assert low <= exact + 1e-12
    assert exact <= isometry_by_coherence(dictionary, sparsity) + 1e-12
    assert isometry_by_sampling(dictionary, sparsity, n_supports=5000) == pytest.approx(exact)


def test_what_cannot_be_certified_is_told():
    dictionary = torch.randn(200, 10)
    with pytest.raises(ValueError, match="64,684,950 supports"):
        isometry_exactly(dictionary, 4)
    with pytest.raises(ValueError, match="from 1 to the number of atoms"):
        isometry_by_coherence(dictionary, 0)
    X, observed = torch.zeros(2, 4), torch.ones(2, 4, dtype=torch.bool)
    for network in (nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), nn.Linear(4, 2)):
        with pytest.raises(ValueError, match="ReLU|type_one"):
            multilayer(network, X, X, observed, sound=True)
    with pytest.raises(ValueError, match="type_one"):
        multilayer(nn.Sequential(nn.Linear(4, 2)), X, X, observed, sound=True)
    with pytest.raises(ValueError, match="two classes"):
        type_one(torch.ones(1, 4), torch.ones(1), X, X, observed, sound=True)
    assert multilayer(mlp((4,), 3), X, X, observed, sound=True).bound.eq(0).all()
