import functools

import pytest
import torch
from torch import nn

from halfseen.networks import NAMED, make_network


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (8, 8), (1, 9, 17)])
def test_named_networks_give_one_score_per_class(name, shape):
    network = make_network(name, shape, 7).train()
    X = torch.randn(4, *shape)
    scores = network(X)
    assert scores.shape == (4, 7)
    scores[:, 0].sum().backward()
    assert all(weight.grad is not None for weight in network.parameters())
    network.eval()
    torch.testing.assert_close(network(X[:1]), network(X)[:1], rtol=1e-4, atol=1e-5)


def test_sizes_are_those_of_the_known_architectures():
    def size(name, shape):
        return sum(weight.numel() for weight in make_network(name, shape, 10).parameters())

    assert size("logistic", (784,)) == 7850
    # LeCun's form: 20 and 50 kernels of 5×5, 500 hidden units
    assert size("cnn4", (1, 28, 28)) == 520 + 25_050 + 400_500 + 5_010
    # ResNet-18 for 32×32 images, as widely published
    assert size("resnet18", (3, 32, 32)) == 11_173_962
    assert sum(isinstance(m, nn.BatchNorm2d) for m in make_network("cnn4_bn", (8, 8), 2).modules())


def test_a_module_is_copied_and_a_function_is_called():
    given = nn.Linear(3, 2)
    made = make_network(given, (3,), 2)
    assert made is not given
    assert torch.equal(made.weight, given.weight)
    assert isinstance(make_network(lambda: nn.Linear(3, 2), (3,), 2), nn.Linear)
    flexible = make_network(lambda shape, n_classes: nn.Linear(shape[0], n_classes), (5,), 4)
    assert flexible.weight.shape == (4, 5)
    optional = make_network(lambda bias=False: nn.Linear(3, 2, bias=bias), (3,), 2)
    assert optional.bias is None
    assert make_network(functools.partial(nn.Linear, 3, 2), (3,), 2).weight.shape == (2, 3)
    assert make_network(lambda: given, (3,), 2) is not given
    assert make_network(nn.LazyLinear(2), (3,), 2).weight.shape == (2, 3)
    lazy = make_network(lambda: nn.Sequential(nn.LazyBatchNorm1d(), nn.LazyLinear(2)), (3,), 2)
    assert lazy[0].running_mean.shape == (3,)


@pytest.mark.parametrize(
    ("network", "shape", "message"),
    [
        ("cnn", (8, 8), "one of 'logistic'"),
        ("cnn4", (64,), "Reshape X"),
        ("resnet18", (3, 4, 4), "at least 8×8"),
        (nn.Linear(3, 2), (4,), "cannot take samples"),
        (nn.Linear(4, 5), (4,), "scores of shape"),
        (lambda: "no module", (4,), "torch.nn.Module"),
        (None, (4,), "torch.nn.Module"),
        (nn.Linear(4, 2, dtype=torch.complex64), (4,), "complex weights"),
        (nn.Sequential(nn.LazyBatchNorm1d(), nn.Linear(4, 2)), (4,), "Pass a function"),
        (lambda n_classes: nn.Linear(4, n_classes), (4,), r"takes \(n_classes\)"),
        (lambda *, sample_shape, n_classes: None, (4,), r"called with \(sample_shape, n_classes\)"),
    ],
)
def test_networks_that_do_not_fit_are_refused(network, shape, message):
    with pytest.raises(ValueError, match=message):
        make_network(network, shape, 2)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torchscript_is_refused():
    with pytest.raises(ValueError, match="TorchScript"):
        make_network(torch.jit.script(nn.Linear(4, 2)), (4,), 2)


def test_checking_a_network_does_not_train_it():
    network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).train()
    made = make_network(network, (3,), 2)
    assert made.training
    assert int(made[1].num_batches_tracked) == 0
