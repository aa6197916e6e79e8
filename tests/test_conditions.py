"""The paper's conditions against loops over samples and classes, in numpy."""

import itertools
import re

import numpy as np
import pytest
import torch
from torch import nn

from halfseen.certificates import (
    isometry,
    isometry_by_coherence,
    isometry_by_sampling,
    isometry_exactly,
    multilayer,
    rip_based,
    type_one,
    type_two,
)

N_SAMPLES, N_FEATURES, N_CLASSES = 12, 7, 4


@pytest.fixture
def problem():
    """Return weight, bias, X, reconstruction, observed: samples with 0 to all entries missing."""
    random = np.random.default_rng(0)
    observed = random.random((N_SAMPLES, N_FEATURES)) < 0.6
    observed[0], observed[1] = True, False
    X = random.standard_normal((N_SAMPLES, N_FEATURES))
    return (
        random.standard_normal((N_CLASSES, N_FEATURES)),
        random.standard_normal(N_CLASSES),
        X,
        X + 0.3 * random.standard_normal(X.shape),
        observed,
    )


def tightest(scores, bound_of):
    """Return margin and bound of each sample for the class that comes nearest."""
    margins, bounds = [], []
    for sample, row in enumerate(scores):
        best = row.argmax()
        pairs = [
            (row[best] - row[other], bound_of(sample, best, other))
            for other in range(len(row))
            if other != best
        ]
        margin, bound = min(pairs, key=lambda pair: pair[0] - pair[1])
        margins.append(margin)
        bounds.append(bound)
    return margins, bounds


def assert_is(condition, margins, bounds):
    np.testing.assert_allclose(condition.margin, margins)
    np.testing.assert_allclose(condition.bound, bounds)
    assert condition.holds.tolist() == (np.array(margins) > np.array(bounds)).tolist()


@pytest.mark.parametrize("sound", [False, True])
@pytest.mark.parametrize("constant", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_linear_conditions(problem, sound, constant, scale):
    problem = (scale * problem[0], *problem[1:])
    weight, bias, X, reconstruction, observed = problem
    tensors = [torch.from_numpy(part) for part in problem]
    scores = reconstruction @ weight.T + bias

    def of_features(sample, best, other):
        pair, seen = weight[best] - weight[other], observed[sample]
        error = X[sample] - reconstruction[sample]
        return pair, ~seen, abs(pair[seen] @ error[seen]) if sound else 0.0

    def one(sample, *classes):
        pair, hidden, _ = of_features(sample, *classes)
        error = X[sample] - reconstruction[sample]
        return abs(pair @ error) if sound else abs(pair[hidden] @ error[hidden])

    def two(sample, *classes):
        pair, hidden, seen_part = of_features(sample, *classes)
        parts = (abs(pair[hidden] @ part[sample][hidden]) for part in (X, reconstruction))
        return sum(parts) + seen_part

    def rip(sample, *classes):
        pair, hidden, seen_part = of_features(sample, *classes)
        norms = 2.0
        if sound:
            norms = sum(np.linalg.norm(part[sample][hidden]) for part in (X, reconstruction))
        if not hidden.any():
            return seen_part
        factor = np.sqrt(3 / (1 - constant)) if constant < 1 else np.inf
        return norms * abs(pair[hidden]).sum() * factor + seen_part

    assert_is(type_one(*tensors, sound=sound), *tightest(scores, one))
    assert_is(type_two(*tensors, sound=sound), *tightest(scores, two))
    constants = torch.full((N_SAMPLES,), constant)
    if constant < 1:
        assert_is(rip_based(*tensors, constants, 3, sound=sound), *tightest(scores, rip))
    else:
        found = rip_based(*tensors, constants, 3, sound=sound).bound
        assert found.isinf().tolist() == (~observed.all(1)).tolist()


@pytest.mark.parametrize("sound", [False, True])
def test_the_condition_for_perceptrons(problem, sound):
    _, _, X, reconstruction, observed = problem
    sizes = [N_FEATURES, 6, 5, 5, N_CLASSES]  # more than one layer between first and last
    torch.manual_seed(0)
    linear = [nn.Linear(*pair, dtype=torch.float64) for pair in itertools.pairwise(sizes)]
    network = nn.Sequential(*[part for layer in linear for part in (layer, nn.ReLU())][:-1])
    first, *between, last = (layer.weight.detach().numpy() for layer in linear)
    with torch.no_grad():
        scores = network(torch.from_numpy(reconstruction)).numpy()
    norms = np.prod([np.linalg.norm(layer, 2) for layer in between])

    def bound(sample, best, other):
        error = X[sample] - reconstruction[sample]
        change = first @ (error if sound else np.where(observed[sample], 0, error))
        size = np.linalg.norm(change) if sound else abs(change).max()
        return size * norms * np.linalg.norm(last[best] - last[other])

    given = (torch.from_numpy(part) for part in (X, reconstruction, observed))
    assert_is(multilayer(network, *given, sound=sound), *tightest(scores, bound))


def test_arrays_of_another_precision_are_taken(problem):
    expected = type_two(*problem, sound=True)
    weight, bias, X, reconstruction, observed = problem
    found = type_two(
        weight.astype(np.float32), bias.astype(np.float32), X, reconstruction.tolist(),
        observed, sound=True,
    )  # fmt: skip
    torch.testing.assert_close(found.bound, expected.bound, atol=1e-5, rtol=1e-5)
    assert found.bound.dtype == torch.float64
    narrow = type_two(weight, bias, X.astype(np.float32), reconstruction, observed, sound=True)
    torch.testing.assert_close(narrow.bound, expected.bound.float(), atol=1e-5, rtol=1e-5)


def test_a_network_has_its_own_precision(problem):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(N_FEATURES, 5), nn.ReLU(), nn.Linear(5, N_CLASSES))
    found = multilayer(network, *problem[2:], sound=True)
    assert found.bound.dtype == torch.float32
    expected = multilayer(network.double(), *problem[2:], sound=True)
    torch.testing.assert_close(found.bound, expected.bound.float(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("scale", [0.4, 1.0, 2.5])
@pytest.mark.parametrize("sparsity", [1, 2, 5])
def test_isometry_constants_by_eigenvalues(scale, sparsity):
    """Short atoms make the smallest eigenvalue decide, long ones the largest."""
    dictionary = np.random.default_rng(1).standard_normal((5, 8))
    dictionary *= scale / np.linalg.norm(dictionary, axis=1, keepdims=True)
    values = [
        np.linalg.eigvalsh(dictionary[list(some)] @ dictionary[list(some)].T)
        for some in itertools.combinations(range(5), sparsity)
    ]
    expected = max(max(1 - value[0], value[-1] - 1, 0) for value in values)
    exact = isometry_exactly(dictionary, sparsity)
    assert exact == pytest.approx(expected)
    sampled = [isometry_by_sampling(dictionary, sparsity, random_state=seed) for seed in (0, 0, 1)]
    assert sampled == pytest.approx([exact] * 3)  # so many draws find every support
    assert isometry_by_coherence(dictionary, sparsity) >= exact - 1e-12
    few = [isometry_by_sampling(dictionary, sparsity, n_supports=1, random_state=s) for s in (3, 3)]
    assert few[0] == few[1] <= exact + 1e-12
    each = [max(1 - value[0], value[-1] - 1, 0) for value in values]
    assert abs(np.array(each) - few[0]).min() < 1e-12  # one support, and not none


def test_supports_are_drawn_from_the_seed_and_in_parts(monkeypatch):
    dictionary = np.random.default_rng(1).standard_normal((40, 8))
    found = [isometry_by_sampling(dictionary, 2, n_supports=1, random_state=s) for s in range(6)]
    assert isometry_by_sampling(dictionary, 2, n_supports=1) == found[0]
    assert len(set(found)) == 6
    monkeypatch.setattr(isometry, "_AT_ONCE", 7)
    assert isometry_exactly(dictionary[:6], 2) >= isometry_by_sampling(dictionary[:6], 2)
    some = isometry_by_sampling(dictionary[:6], 2, n_supports=500)
    assert isometry_exactly(dictionary[:6], 2) == pytest.approx(some)


def test_as_many_supports_as_may_be_are_searched(monkeypatch):
    monkeypatch.setattr(isometry, "_MOST_SUPPORTS", 10)
    assert isometry_exactly(np.eye(5), 2) == 0
    with refused("there are 15 supports of 2 of 6 atoms; up to 10 are searched."):
        isometry_exactly(np.eye(6), 2)


def test_the_coherence_bound_by_hand():
    """Discs around norms of the atoms: rows of the Gram matrix, the largest entries of each."""
    dictionary = np.random.default_rng(2).standard_normal((6, 9)) / 3
    gram = dictionary @ dictionary.T
    worst = 0.0
    for row in range(6):
        others = sorted(abs(np.delete(gram[row], row)))[::-1]
        worst = max(worst, abs(gram[row, row] - 1) + sum(others[:2]))
    assert isometry_by_coherence(dictionary, 3) == pytest.approx(worst)


def refused(text):
    return pytest.raises(ValueError, match=f"^{re.escape(text)}")


def test_errors_say_what_came(problem):
    weight, bias, X, reconstruction, observed = problem
    with refused("weight must have the shape (n_classes, n_features), X (n_samples, n_features); "
                 "got (4, 6) and (12, 7)."):  # fmt: skip
        type_one(weight[:, :6], bias, X, reconstruction, observed, sound=True)
    for odd in ((weight[:, :, None], X), (weight, X[:, :, None])):
        with refused(f"weight must have the shape (n_classes, n_features), X (n_samples, "
                     f"n_features); got {odd[0].shape} and {odd[1].shape}."):  # fmt: skip
            type_one(odd[0], bias, odd[1], odd[1], np.ones(odd[1].shape, bool), sound=True)
    with refused("bias must have one number per class, shape (4,); got shape (3,)."):
        type_one(weight, bias[:3], X, reconstruction, observed, sound=True)
    with refused("reconstruction must have the shape of X, (12, 7); got (11, 7)."):
        type_one(weight, bias, X, reconstruction[1:], observed, sound=True)
    with refused("observed must have the shape of X, (12, 7); got (12, 6)."):
        type_one(weight, bias, X, reconstruction, observed[:, 1:], sound=True)
    with refused("observed must be boolean; got torch.int64."):
        type_one(weight, bias, X, reconstruction, observed.astype(int), sound=True)
    with refused("X must have samples and features, shape (n_samples, ...); got (12,)."):
        type_one(weight, bias, X[:, 0], reconstruction[:, 0], observed[:, 0], sound=True)
    with refused("isometry must have one constant per sample, shape (12,); got shape (3,)."):
        rip_based(*problem, np.zeros(3), 2, sound=True)
    with refused("sparsity must be a whole number ≥ 1; got 0."):
        rip_based(*problem, np.zeros(N_SAMPLES), 0, sound=True)
    with refused("X, reconstruction or weights are so large that scores overflow; rescale."):
        type_one(weight * 1e300, bias, X * 1e300, reconstruction * 1e300, observed, sound=True)
    with refused("X, reconstruction or weights are so large that scores overflow; rescale."):
        # Scores are fine; the first feature has no weight, but an infinite error.
        type_one(
            [[0.0, 1.0], [0.0, -1.0]], [0.0, 0.0], [[1.7e308, 1.0]], [[-1.7e308, 1.0]],
            [[True, True]], sound=True,
        )  # fmt: skip
    with refused("isometry contains nan"):
        rip_based(*problem, np.full(N_SAMPLES, np.nan), 2, sound=True)
    with refused("a condition needs two classes or more."):
        type_one(weight[:1], bias[:1], X, reconstruction, observed, sound=True)
    for name in ("weight", "bias", "X", "reconstruction"):
        parts = dict(zip(("weight", "bias", "X", "reconstruction"), problem, strict=False))
        parts[name] = np.full_like(parts[name], np.nan)
        with pytest.raises(ValueError, match=f"^{name} "):
            type_one(**parts, observed=observed, sound=True)


def test_errors_of_perceptrons_and_dictionaries(problem):
    _, _, X, reconstruction, observed = problem
    narrow = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))
    with refused("the network takes 5 features; got samples of shape (7,)."):
        multilayer(narrow, X, reconstruction, observed, sound=True)
    with refused("the network has one linear layer only; use type_one."):
        multilayer(nn.Sequential(nn.Linear(7, 2)), X, reconstruction, observed, sound=True)
    curved = nn.Sequential(nn.Linear(7, 4), nn.Tanh(), nn.Linear(4, 2))
    with pytest.raises(ValueError, match=r"got Linear, Tanh, Linear\.$"):
        multilayer(curved, X, reconstruction, observed, sound=True)
    with refused("dictionary must have the shape (n_atoms, n_features); got (3,)."):
        isometry_exactly(np.ones(3), 1)
    with refused("dictionary has values whose squares are out of range; rescale it."):
        isometry_exactly(np.full((3, 4), 1e200), 1)
    with refused("sparsity must be from 1 to the number of atoms, 3; got 4."):
        isometry_exactly(np.eye(3), 4)
    with refused("n_supports must be a whole number ≥ 1; got 0."):
        isometry_by_sampling(np.eye(3), 2, n_supports=0)
    with pytest.raises(ValueError, match="^dictionary "):
        isometry_exactly(np.full((3, 3), np.nan), 1)
    assert isometry_exactly(np.eye(3), 3) == 0.0


def test_a_layer_that_is_used_twice_counts_twice():
    """By hand: 5 − 1·3·3 of the original, 5·3·3 of the reconstruction, against 40."""
    again = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    network = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), again, again, nn.Linear(1, 2))
    with torch.no_grad():
        for layer, weight, bias in (
            (network[0], [[1.0]], [5.0]), (again[0], [[3.0]], [0.0]),
            (network[4], [[1.0], [0.0]], [0.0, 40.0]),
        ):  # fmt: skip
            layer.weight.copy_(torch.tensor(weight))
            layer.bias.copy_(torch.tensor(bias))
    X, reconstruction, observed = np.array([[-1.0]]), np.zeros((1, 1)), np.array([[False]])
    with torch.no_grad():
        originals = network(torch.tensor(X, dtype=torch.float32))
    assert originals.tolist() == [[36.0, 40.0]]  # another class than (45, 40)
    found = multilayer(network, X, reconstruction, observed, sound=True)
    assert found.margin.item() == 5
    assert found.bound.item() == pytest.approx(9)
    assert not found.holds.item()


def test_networks_that_are_more_than_their_layers_are_refused(problem):
    _, _, X, reconstruction, observed = problem

    class Tenfold(nn.Sequential):
        def forward(self, X):
            return 10 * super().forward(X)

    layers = nn.Linear(7, 4), nn.ReLU(), nn.Linear(4, 2)
    for network in (Tenfold(*layers), nn.Sequential(Tenfold(*layers[:1]), *layers[1:])):
        with pytest.raises(ValueError, match="got Tenfold"):
            multilayer(network, X, reconstruction, observed, sound=True)
    hooked = nn.Sequential(*layers)
    hooked[0].register_forward_hook(lambda *_: None)
    replaced = nn.Sequential(nn.Linear(7, 4), nn.ReLU(), nn.Linear(4, 2))
    replaced[1].forward = torch.sin
    for network in (hooked, replaced):
        with pytest.raises(ValueError, match="got Linear, ReLU, Linear with hooks"):
            multilayer(network, X, reconstruction, observed, sound=True)
