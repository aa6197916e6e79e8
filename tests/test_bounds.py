"""Bounds through small networks: by hand, against loops in numpy, and against brute force."""

import copy
import itertools
import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from halfseen.certificates import Certificate, bounds
from halfseen.certificates.bounds import check_supported, lower_margins
from halfseen.certificates.certify import certify_ranges
from halfseen.networks import AsImage, ResidualBlock


def two_classes(*layers, weight, bias=0.0):
    """Return a network with the scores 0 and weight · units + bias."""
    last = nn.Linear(len(weight), 2)
    network = nn.Sequential(*layers, last).double().eval()
    with torch.no_grad():
        last.weight.copy_(torch.tensor([[0.0] * len(weight), weight]))
        last.bias.copy_(torch.tensor([0.0, bias]))
    return network


def lead(network, low, high, label):
    """Return least lead over the other of two classes, and its size, for one sample."""
    low, high = torch.tensor([low], dtype=torch.float64), torch.tensor([high], dtype=torch.float64)
    margin, size = lower_margins(network, low, high, torch.tensor([label]))
    assert margin[0, label] == 0 or margin.isnan().all()
    return margin[0, 1 - label].item(), size[0, 1 - label].item()


@pytest.mark.parametrize(
    ("low", "high", "above", "below"),
    [
        (-1.0, 2.0, (2.0, 2.0), (-1.0, 2.0)),  # below 2/3·(a + 1); above a, which cuts off less
        (-2.0, 1.0, (1.0, 4 / 3), (0.0, 0.0)),  # below 1/3·(a + 2); above 0
        (-1.0, 1.0, (1.0, 1.0), (0.0, 0.0)),  # either line would do
        (1.0, 2.0, (2.0, 2.0), (1.0, 2.0)),
        (-2.0, -1.0, (0.0, 0.0), (0.0, 0.0)),
        (0.0, 1.0, (1.0, 1.0), (0.0, 1.0)),
        (-1.0, 0.0, (0.0, 0.0), (0.0, 0.0)),
        (0.5, 0.5, (0.5, 0.5), (0.5, 0.5)),
    ],
)
def test_one_rectified_unit_by_hand(low, high, above, below):
    """What ReLU is at most, with its size, and what it is at least."""
    network = two_classes(nn.ReLU(), weight=[1.0])
    assert lead(network, [low], [high], 0) == pytest.approx((-above[0], above[1]))
    assert lead(network, [low], [high], 1) == pytest.approx(below)


def test_lines_of_several_units_add_up():
    """relu(a) - relu(-a) is a; the lines leave a slope where both units are undecided."""
    first = nn.Linear(1, 2)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        first.bias.zero_()
    network = two_classes(first, nn.ReLU(), weight=[1.0, -1.0], bias=0.25)
    # a in [-1, 3]: relu(a) ≥ a and relu(-a) ≤ (3 - a)/4, so a - (3 - a)/4 + 1/4 at a = -1.
    margin, size = lead(network, [-1.0], [3.0], 1)
    assert margin == pytest.approx(-1.75)
    assert size == pytest.approx(0.25 + 0.75 + 1.25 * 3)
    assert lead(network, [1.0], [3.0], 1) == pytest.approx((1.25, 3.25))
    # -relu(a) + relu(-a) ≥ -3/4·(a + 1) + 0, minus 1/4, at a = 3.
    assert lead(network, [-1.0], [3.0], 0) == pytest.approx((-3.25, 0.25 + 0.75 + 0.75 * 3))


@pytest.mark.parametrize(
    ("low", "high", "at_most", "at_least"),
    [
        ([[0.0, 1.0], [-1.0, -3.0]], [[0.5, 4.0], [2.0, 3.0]], (-4.0, 4.0), (1.0, 4.0)),
        # The largest is known: the lower end of one is as high as the upper ends of the others.
        ([[0.0, 1.0], [-1.0, -3.0]], [[0.5, 4.0], [1.0, 1.0]], (-4.0, 4.0), (1.0, 4.0)),
        ([[-5.0, -6.0], [-5.5, -7.0]], [[-1.0, -2.0], [-3.0, -4.0]], (1.0, 1.0), (-5.0, 5.0)),
    ],
)
def test_the_largest_of_four_by_hand(low, high, at_most, at_least):
    network = two_classes(nn.MaxPool2d(2), nn.Flatten(), weight=[1.0])
    assert lead(network, [low], [high], 0) == pytest.approx(at_most)
    assert lead(network, [low], [high], 1) == pytest.approx(at_least)


def test_a_decided_maximum_is_an_input():
    """max - its largest input is 0 if that input is known to be the largest, else only ≤."""
    network = nn.Sequential(nn.MaxPool2d((1, 2)), nn.Flatten(), nn.Linear(2, 2)).double()
    with torch.no_grad():
        network[2].weight.copy_(torch.tensor([[0.0, 0.0], [-1.0, 1.0]]))
        network[2].bias.zero_()
    low, high = [[[0.0, 2.0], [0.0, 2.0]]], [[[2.0, 3.0], [2.5, 3.0]]]
    # -max(first) is -b of [2, 3] exactly; +max(second) ≥ d of [2, 3]: both ends are met.
    assert lead(network, low, high, 1) == pytest.approx((-1.0, 6.0))
    # max(first) is b; -max(second) is only known to be ≥ -3.
    assert lead(network, low, high, 0) == pytest.approx((-1.0, 6.0))


# --- the same bounds for any network, one sample and one unit at a time ---


def as_matrix(layer, shape):
    """Return matrix and constant of a layer that is linear."""
    inputs = torch.eye(int(np.prod(shape)), dtype=torch.float64).reshape(-1, *shape)
    with torch.no_grad():
        constant = layer(torch.zeros(1, *shape, dtype=torch.float64))
        matrix = layer(inputs) - constant
    return matrix.flatten(1).T.numpy(), constant.flatten().numpy(), constant.shape[1:]


def through_linear(layer, low, high):
    matrix, constant, shape = as_matrix(layer, low.shape)
    low, high = low.ravel(), high.ravel()
    least = np.minimum(matrix * low, matrix * high).sum(1) + constant
    most = np.maximum(matrix * low, matrix * high).sum(1) + constant

    def back(wanted):
        return wanted @ matrix, wanted @ constant, abs(wanted * constant).sum()

    return least.reshape(shape), most.reshape(shape), back


def through_relu(low, high):
    ends = list(zip(low.ravel(), high.ravel(), strict=True))

    def back(wanted):
        below, constant = np.zeros(len(wanted)), 0.0
        for unit, (start, end) in enumerate(ends):
            if start >= 0:
                below[unit] = wanted[unit]
            elif end > 0 and wanted[unit] > 0:
                below[unit] = wanted[unit] * (end > -start)
            elif end > 0:
                below[unit] = wanted[unit] * end / (end - start)
                constant += wanted[unit] * -start * end / (end - start)
        return below, constant, abs(constant)

    return np.maximum(low, 0), np.maximum(high, 0), back


def through_pooling(layer, low, high):
    window, step = (np.broadcast_to(part, 2) for part in (layer.kernel_size, layer.stride))
    places = np.arange(low.size).reshape(-1, *low.shape[-2:])
    sizes = (np.array(low.shape[-2:]) - window) // step + 1
    seen = [
        channel[y : y + window[0], x : x + window[1]].ravel()
        for channel in places
        for y in step[0] * np.arange(sizes[0])
        for x in step[1] * np.arange(sizes[1])
    ]
    shape, low, high = (*low.shape[:-2], *sizes), low.ravel(), high.ravel()

    def back(wanted):
        below, ends = np.zeros(len(low)), []
        for weight, some in zip(wanted, seen, strict=True):
            best = some[low[some].argmax()]
            if weight > 0 or all(low[best] >= high[other] for other in some if other != best):
                below[best] += weight
            else:
                ends.append(weight * high[some].max())
        return below, sum(ends), sum(map(abs, ends))

    least, most = (np.array([values[some].max() for some in seen]) for values in (low, high))
    return least.reshape(shape), most.reshape(shape), back


def through_block(block, low, high):
    branches, low_sum, high_sum = [], 0.0, 0.0
    for branch in (block.inner, block.shortcut):
        backs, start, end = [], low, high
        for layer in branch if isinstance(branch, nn.Sequential) else [branch]:
            start, end, back = through(layer, start, end)
            backs.append(back)
        branches.append(backs)
        low_sum, high_sum = low_sum + start, high_sum + end
    low, high, last = through_relu(low_sum, high_sum)

    def back(wanted):
        wanted, constant, size = last(wanted)
        found = [all_back(backs, wanted) for backs in branches]
        return (
            sum(part[0] for part in found),
            constant + sum(part[1] for part in found),
            size + sum(part[2] for part in found),
        )

    return low, high, back


def through(layer, low, high):
    if isinstance(layer, nn.ReLU):
        return through_relu(low, high)
    if isinstance(layer, nn.MaxPool2d):
        return through_pooling(layer, low, high)
    if isinstance(layer, ResidualBlock):
        return through_block(layer, low, high)
    return through_linear(layer, low, high)


def all_back(backs, wanted):
    constant = size = 0.0
    for back in backs[::-1]:
        wanted, here, size_here = back(wanted)
        constant, size = constant + here, size + size_here
    return wanted, constant, size


def expected_margins(network, low, high, label, narrowed=True):
    """Return margins and sizes of one sample; each is a loop over layers, units and classes."""
    inputs, backs, rectified = (low.ravel(), high.ravel()), [], False

    def least(wanted):
        below, constant, size = all_back(backs, wanted)
        ends = np.minimum(below * inputs[0], below * inputs[1])
        return ends.sum() + constant, size + abs(below) @ np.maximum(*map(abs, inputs))

    for layer in network:
        if isinstance(layer, nn.ReLU):
            if rectified and narrowed:
                units = np.eye(low.size)
                starts = np.array([least(unit)[0] for unit in units]).reshape(low.shape)
                ends = np.array([-least(-unit)[0] for unit in units]).reshape(low.shape)
                low, high = np.maximum(low, starts), np.minimum(high, ends)
            rectified = True
        low, high, back = through(layer, low, high)
        backs.append(back)
    return np.transpose([least(row) for row in np.eye(low.size)[label] - np.eye(low.size)])


PERCEPTRON = [
    nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4), nn.ReLU(),
    nn.Linear(4, 3),
]  # fmt: skip
NETWORKS = {
    "linear": ((6,), [nn.Linear(6, 3)]),
    "perceptron": ((6,), PERCEPTRON),
    "rectified inputs": ((6,), [nn.ReLU(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3)]),
    "normalised": (
        (6,),
        [nn.Dropout(0.5), nn.BatchNorm1d(6), nn.Linear(6, 4, bias=False), nn.ReLU(),
         nn.BatchNorm1d(4, affine=False), nn.Identity(), nn.Linear(4, 3)],
    ),
    "signal": (
        (2, 8),
        [nn.Conv1d(2, 3, 3, padding=1, groups=1), nn.BatchNorm1d(3), nn.ReLU(), nn.AvgPool1d(2),
         nn.Conv1d(3, 2, 2, bias=False), nn.ReLU(), nn.AdaptiveAvgPool1d(2), nn.Flatten(),
         nn.Linear(4, 3)],
    ),
    "image": (
        (2, 5, 5),
        [nn.Conv2d(2, 4, 3, padding=1, groups=2), nn.BatchNorm2d(4), nn.ReLU(),
         nn.MaxPool2d(2, stride=1), nn.Conv2d(4, 3, 2, stride=2), nn.ReLU(),
         nn.AdaptiveAvgPool2d((1, 2)), nn.Flatten(), nn.Linear(6, 3)],
    ),
    "image of one channel": (
        (6, 6),
        [AsImage(), nn.Conv2d(1, 3, 3), nn.ReLU(), nn.AvgPool2d(2), nn.MaxPool2d((1, 2)),
         nn.Flatten(), nn.Linear(6, 3)],
    ),
    "pooled first": ((5, 6), [nn.MaxPool2d((2, 3), (1, 2)), nn.Flatten(), nn.Linear(8, 3)]),
    "pooled only": ((3, 2, 2), [nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3, 3)]),
    "volume": (
        (1, 2, 3, 3),
        [nn.Conv3d(1, 2, 2), nn.BatchNorm3d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)],
    ),
    "residual": (
        (2, 4, 4),
        [ResidualBlock(2, 2, 1), ResidualBlock(2, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
         nn.ReLU(), nn.Linear(3, 3)],
    ),
}  # fmt: skip


def made(name, n_samples=6, width=0.5):
    """Return a random network in use, and ranges around samples, wide and narrow and none."""
    shape, layers = NETWORKS[name]
    random = torch.Generator().manual_seed(len(name))
    network = nn.Sequential(*copy.deepcopy(layers)).double().eval()
    for key, values in network.state_dict().items():
        if key.endswith("running_var"):
            values.copy_(0.5 + torch.rand(values.shape, generator=random))
        elif values.is_floating_point():
            values.copy_(torch.randn(values.shape, generator=random) / max(1, values.ndim - 1))
    X = torch.randn(n_samples, *shape, generator=random, dtype=torch.float64)
    reach = width * torch.arange(n_samples).reshape(-1, *(1,) * len(shape)) / n_samples
    reach = reach * (torch.rand(X.shape, generator=random) < 0.6)
    return network, X - reach, X + reach, torch.arange(n_samples) % 3


@pytest.mark.parametrize("name", NETWORKS)
def test_margins_are_those_of_loops_over_units(name):
    network, low, high, label = made(name)
    check_supported(network)
    margin, size = lower_margins(network, low, high, label)
    for row in range(len(low)):
        expected = expected_margins(network, low[row].numpy(), high[row].numpy(), label[row])
        np.testing.assert_allclose(margin[row], expected[0], atol=1e-12)
        np.testing.assert_allclose(size[row], expected[1], atol=1e-12)


def leads(network, X, label):
    with torch.no_grad():
        scores = network(X)
    return (scores.gather(1, label.expand(len(X), 1)) - scores).numpy()


@pytest.mark.parametrize("name", NETWORKS)
def test_no_point_of_the_ranges_has_less(name):
    network, low, high, label = made(name)
    margin, _ = lower_margins(network, low, high, label)
    random = torch.Generator().manual_seed(0)
    for row in range(len(low)):
        share = torch.rand(400, *low.shape[1:], generator=random, dtype=torch.float64)
        share[:200] = share[:200].round()  # corners
        points = low[row] + share * (high[row] - low[row])
        assert (leads(network, points, label[row]).min(0) >= margin[row].numpy() - 1e-9).all()
    known = leads(network, low[:1], label[0])  # the first sample has no holes
    np.testing.assert_allclose(margin[:1], known, atol=1e-12)


def test_bounds_of_a_linear_network_are_met_at_corners():
    network, low, high, label = made("linear")
    margin, _ = lower_margins(network, low, high, label)
    for row in range(len(low)):
        ends = itertools.product(*zip(low[row].tolist(), high[row].tolist(), strict=True))
        corners = torch.tensor(list(ends), dtype=torch.float64)
        found = leads(network, corners, label[row]).min(0)
        np.testing.assert_allclose(margin[row], found, atol=1e-12)


def test_sequences_in_sequences_and_single_layers_are_networks_too():
    network, low, high, label = made("perceptron")
    expected, _ = lower_margins(network, low, high, label)
    nested = nn.Sequential(nn.Sequential(network[0], nn.Sequential(*network[1:4])), *network[4:])
    torch.testing.assert_close(lower_margins(nested, low, high, label)[0], expected)
    alone, _ = lower_margins(network[0], low, high, label)
    wrapped, _ = lower_margins(nn.Sequential(network[0]), low, high, label)
    torch.testing.assert_close(alone, wrapped)


class Largest(TorchDispatchMode):
    """Notes how many numbers the largest tensor holds that is computed."""

    n_entries = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor):
            self.n_entries = max(self.n_entries, found.untyped_storage().nbytes() // 8)
        return found


@pytest.mark.parametrize("name", ["perceptron", "residual"])
@pytest.mark.parametrize("n_entries", [1, 250])
def test_margins_do_not_depend_on_how_much_is_computed_at_once(name, n_entries, monkeypatch):
    network, low, high, label = made(name)
    whole = lower_margins(network, low, high, label)
    monkeypatch.setattr(bounds, "_ENTRIES_AT_ONCE", n_entries)
    torch.testing.assert_close(lower_margins(network, low, high, label), whole)


@pytest.mark.parametrize("name", NETWORKS)
def test_margins_do_not_depend_on_whether_layers_are_written_as_matrices(name, monkeypatch):
    network, low, high, label = made(name)
    whole = lower_margins(network, low, high, label)
    monkeypatch.setattr(bounds, "_DENSE", 0)
    torch.testing.assert_close(lower_margins(network, low, high, label), whole)


def test_functions_of_many_samples_and_units_fit_into_memory(monkeypatch):
    network, low, high, label = made("perceptron", n_samples=20)
    with Largest() as whole:
        lower_margins(network, low, high, label)
    assert whole.n_entries == 20 * 6 * 6  # samples, functions, units of the widest layer
    for n_entries in (130, 400):
        monkeypatch.setattr(bounds, "_ENTRIES_AT_ONCE", n_entries)
        with Largest() as found:
            lower_margins(network, low, high, label)
        assert 120 <= found.n_entries <= n_entries  # 20 samples of 6 inputs are there already


def test_as_many_samples_as_fit_are_taken_at_once(monkeypatch):
    """A sample has functions of 40 classes of 50 inputs."""
    low = torch.rand(6, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    label = torch.zeros(6, dtype=torch.int64)
    for n_entries, n_taken in ((1, 1), (3 * 2000 - 1, 2), (3 * 2000, 3), (2**21, 6)):
        monkeypatch.setattr(bounds, "_ENTRIES_AT_ONCE", n_entries)
        with Largest() as found:
            lower_margins(nn.Linear(50, 40).double(), low, low + 1, label)
        assert found.n_entries == n_taken * 2000


def test_large_layers_are_not_narrowed(monkeypatch):
    network, low, high, label = made("perceptron")
    # Units so far: 6 inputs, 5, 5 rectified and 6 before the second ReLU, then 6 and 4.
    for most, narrowed in ((6 * 22, True), (6 * 22 - 1, False)):
        monkeypatch.setattr(bounds, "_MOST_TIGHTENED", most)
        margin, _ = lower_margins(network[:5], low, high, label)
        for row in range(len(low)):
            expected, _ = expected_margins(
                network[:5], low[row].numpy(), high[row].numpy(), label[row], narrowed
            )
            np.testing.assert_allclose(margin[row], expected, atol=1e-12)


def test_ranges_that_overflow_give_nan_in_their_row_only():
    network, low, high, label = made("perceptron")
    expected, _ = lower_margins(network, low, high, label)
    low[2], high[2] = -1.7e308, 1.7e308
    margin, _ = lower_margins(network, low, high, label)
    assert margin[2].isnan().all()
    others = [0, 1, 3, 4, 5]
    torch.testing.assert_close(margin[others], expected[others])
    found = certify_ranges(network, low, high, label)
    assert found.margin[2] == -np.inf
    assert found.possible[2].all()
    assert not found.certain[2]


def test_what_overflowed_on_the_way_is_not_forgotten():
    """The unit's lower end overflows, ReLU makes 0 of both ends: nothing is known all the same."""
    first = nn.Linear(1, 1)
    nn.init.constant_(first.weight, 1.06)
    nn.init.zeros_(first.bias)
    network = two_classes(first, nn.ReLU(), weight=[1.0], bias=1.0)
    assert lead(network, [-1e308], [-1e306], 1)[0] == 1
    assert np.isnan(lead(network, [-1.7e308], [-1e306], 1)[0])


def test_arrays_keep_their_precision_and_networks_their_hooks():
    network, low, high, label = made("image")
    expected, _ = lower_margins(network, low, high, label)
    margin, size = lower_margins(network.float(), low.float(), high.float(), label)
    assert margin.dtype == size.dtype == torch.float32
    torch.testing.assert_close(margin.double(), expected, atol=1e-4, rtol=1e-4)
    with pytest.raises(RuntimeError):
        lower_margins(network, low.float()[:, :1], high.float()[:, :1], label)
    assert not any(part._forward_hooks for part in network.modules())


# --- certificates ---


def test_a_certificate_names_the_classes_that_stay_possible():
    network = nn.Linear(1, 3, dtype=torch.float64)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[1.0], [0.0], [-1.0]]))
        network.bias.copy_(torch.tensor([0.0, 0.0, -3.0]))
    low = torch.tensor([[1.0], [-1.0], [-2.0]], dtype=torch.float64)
    high = torch.tensor([[2.0], [1.0], [2.0]], dtype=torch.float64)
    found = certify_ranges(network, low, high, torch.tensor([0, 0, 0]))
    assert found.certain.tolist() == [True, False, False]
    assert found.possible.tolist() == [[True, False, False], [True, True, False], [True] * 3]
    np.testing.assert_allclose(found.margin, [1, -1, -2])
    single = certify_ranges(nn.Linear(1, 1).double(), low, high, torch.tensor([0, 0, 0]))
    assert single.certain.all()
    assert np.isposinf(single.margin).all()


@pytest.mark.parametrize(("ahead", "certain"), [(7.0, False), (9.0, True)])
def test_a_lead_must_be_larger_than_eight_roundings_of_float32(ahead, certain):
    """Scores of size 1, led by a few roundings."""
    eps = float(np.finfo(np.float32).eps)
    network = two_classes(weight=[1.0], bias=-1.0)
    value = torch.tensor([[1 + 2 * ahead * eps]], dtype=torch.float64)  # value and bias: size 2
    found = certify_ranges(network, value, value, torch.tensor([1]))
    assert found.margin[0] == pytest.approx(2 * ahead * eps)
    assert found.certain.tolist() == [certain]


def test_a_tie_is_not_certain():
    network, known = two_classes(weight=[0.0]), torch.ones(1, 1, dtype=torch.float64)
    found = certify_ranges(network, known, known, torch.tensor([0]))
    assert found.possible.tolist() == [[True, True]]
    assert found.margin[0] == 0


def test_certificates_are_joined_in_order():
    network, low, high, label = made("perceptron")
    whole = certify_ranges(network, low, high, label)
    parts = [certify_ranges(network, low[s], high[s], label[s]) for s in (slice(2), slice(2, 6))]
    joined = Certificate.joined(parts)
    for name in ("certain", "possible", "margin"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))


# --- what is refused ---


def hooked(register):
    layer = nn.ReLU()
    getattr(layer, register)(lambda *_: None)
    return layer


KNOWN = (
    "Linear, Conv1d, Conv2d, Conv3d, BatchNorm1d, BatchNorm2d, BatchNorm3d, AvgPool1d, "
    "AvgPool2d, AdaptiveAvgPool1d, AdaptiveAvgPool2d, Flatten, Identity, Dropout, ReLU, MaxPool2d"
)
POOLING = "certify() knows no bounds for MaxPool2d with padding, dilation or ceil_mode."


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (
            nn.Tanh(),
            "certify() knows no bounds for the layer Tanh. It takes the named networks, such as "
            f"'mlp' and 'cnn4', and nn.Sequential of {KNOWN}.",
        ),
        (
            hooked("register_forward_hook"),
            "certify() knows no bounds for a ReLU with hooks or a forward() of its own.",
        ),
        (
            hooked("register_forward_pre_hook"),
            "certify() knows no bounds for a ReLU with hooks or a forward() of its own.",
        ),
        (
            nn.BatchNorm2d(2, track_running_stats=False),
            "certify() knows no bounds for a BatchNorm2d without running statistics: a sample's "
            "scores depend on its neighbours.",
        ),
        (nn.MaxPool2d(3, padding=1), POOLING),
        (nn.MaxPool2d(3, padding=(0, 1)), POOLING),
        (nn.MaxPool2d(3, dilation=2), POOLING),
        (nn.MaxPool2d(3, dilation=[1, 2]), POOLING),
        (nn.MaxPool2d(3, ceil_mode=True), POOLING),
        (
            nn.Conv1d(1, 1, 3, padding=1, padding_mode="circular"),
            "certify() knows no bounds for convolutions that pad with values.",
        ),
    ],
)
def test_errors_name_the_layer(layer, message):
    for network in (layer, nn.Sequential(nn.Identity(), nn.Sequential(layer))):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            check_supported(network)


@pytest.mark.parametrize("padding", [0, (0, 0), [0, 0]])
@pytest.mark.parametrize("dilation", [1, (1, 1)])
def test_pooling_may_say_in_any_way_that_it_does_not_pad(padding, dilation):
    check_supported(nn.MaxPool2d(2, padding=padding, dilation=dilation))


def test_a_unit_whose_range_is_wider_than_numbers_go_may_still_be_large():
    end = torch.tensor([[1.2e308]], dtype=torch.float64)
    network = nn.Sequential(nn.ReLU(), nn.Linear(1, 2)).double()
    with torch.no_grad():  # the second score is ahead once the unit is above 1
        network[1].weight.copy_(torch.tensor([[0.0], [1e-3]]))
        network[1].bias.copy_(torch.tensor([1.0, 0.0]))
    margin, _ = lower_margins(network, -end, end, torch.tensor([0]))
    assert not margin[0, 1] > 1 - 1.2e305
