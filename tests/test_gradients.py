"""Every differentiable path against finite differences, in float64."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd import gradcheck

from halfseen import Channels, Patches, Whole
from halfseen.coding import MaskedLasso
from halfseen.implicit import differentiable_codes
from halfseen.networks import NAMED, make_network
from halfseen.nn import SparseCompletion
from halfseen.objective import (
    classification_loss,
    reconstruction_loss,
    sparsity_loss,
    total_loss,
)
from halfseen.rivals.mixture import Mixture, MixtureNetwork, expected_relu
from halfseen.rivals.neumann import NeuMissNetwork
from halfseen.standardise import Standardise
from halfseen.training.completing import CodingPlan
from halfseen.training.joint import Joint
from halfseen.training.samples import Samples

TILINGS = {
    "whole": (Whole(), (6,)),
    "channels": (Channels(), (2, 2, 2)),
    "patches": (Patches(2), (3, 3)),
}


@pytest.fixture(autouse=True)
def _first_weights():
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        yield


def drawn(seed, *shape, least=None):
    """Return standard normal numbers that gradients are wanted of."""
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    if least is not None:  # away from a kink at zero
        numbers = numbers.sign() * (least + numbers.abs())
    return numbers.requires_grad_()


def seen(seed, *shape, share=0.7):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share


def check(function, *inputs):
    assert gradcheck(function, inputs, eps=1e-6, atol=1e-6, rtol=1e-4)


def check_direction(loss, parameters, seed, step=1e-6, rtol=1e-4):
    """Hold the gradient of a scalar against its change along a random direction."""
    parameters = list(parameters)
    gradients = torch.autograd.grad(loss(), parameters)
    direction = [
        torch.as_tensor(drawn(seed + 1000 + i, *p.shape)).detach() for i, p in enumerate(parameters)
    ]
    expected = sum((g * d).sum() for g, d in zip(gradients, direction, strict=True)).item()
    with torch.no_grad():
        values = []
        for sign in (1, -2):
            for parameter, along in zip(parameters, direction, strict=True):
                parameter += sign * step * along
            values.append(loss().item())
        for parameter, along in zip(parameters, direction, strict=True):
            parameter += step * along
    measured = (values[0] - values[1]) / (2 * step)
    assert measured == pytest.approx(expected, rel=rtol, abs=1e-6)


def test_the_objective(tried, times):
    for seed in range(times(5)):
        observed, y = seen(seed, 3, 4), torch.tensor([0, 2, 1])
        scores, X, reconstruction = drawn(seed, 3, 3), drawn(seed + 1, 3, 4), drawn(seed + 2, 3, 4)
        codes = drawn(seed + 3, 3, 2, 5, least=0.01)
        check(lambda s, y=y: classification_loss(s, y), scores)
        check(lambda x, r, o=observed: reconstruction_loss(x, o, r), X, reconstruction)
        check(lambda c: sparsity_loss(c, 7), codes)
        check(
            lambda s, x, r, c, o=observed, y=y: total_loss(
                classification_loss(s, y),
                reconstruction_loss(x, o, r),
                sparsity_loss(c, 7),
                lambda_rec=0.7,
                lambda_l1=1.3,
                label_weight=0.4,
            ),
            scores,
            X,
            reconstruction,
            codes,
        )
        tried("gradients of the objective against finite differences", 4)


@pytest.mark.parametrize("positive", [False, True])
def test_codes_with_respect_to_data_dictionary_and_alpha(positive, tried, times):
    for seed in range(times(4)):
        observed = seen(seed, 3, 6)
        X, dictionary = drawn(seed, 3, 6), drawn(seed + 1, 8, 6)
        dictionary = nn.functional.normalize(dictionary, dim=1).detach().requires_grad_()
        alpha = torch.full((3,), 0.4, dtype=torch.float64, requires_grad=True)

        def codes(x, d, a, solver="auto", observed=observed):
            problem = MaskedLasso(x * observed, observed, d, a, positive)
            return differentiable_codes(problem, solver, 1e-14, 50)

        assert (codes(X, dictionary, alpha) != 0).any()
        check(codes, X, dictionary, alpha)
        # A gap of 1e-14 leaves FISTA's codes 1e-7 off, too much for differences of them.
        expected = torch.autograd.functional.jacobian(codes, (X, dictionary, alpha))
        found = torch.autograd.functional.jacobian(
            lambda *inputs, codes=codes: codes(*inputs, solver="fista"), (X, dictionary, alpha)
        )
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        tried("gradients of codes (implicit) against finite differences")


@pytest.mark.parametrize("kind", TILINGS)
def test_completion_layers_and_the_network_behind_them(kind, tried, times):
    tiling, shape = TILINGS[kind]
    for seed, output in itertools.product(range(times(3)), ("completed", "reconstruction")):
        observed = seen(seed, 4, *shape)
        X = drawn(seed, 4, *shape)
        layer = SparseCompletion(
            tiling, 7, shape, output=output, tol=1e-14, n_gradient_steps=60, dtype=torch.float64
        )
        with torch.no_grad():
            layer.atoms.copy_(drawn(seed + 1, *layer.atoms.shape))
            layer.mean.copy_(0.1 * drawn(seed + 2, *shape))
        network = nn.Sequential(nn.Flatten(), nn.Linear(X[0].numel(), 3)).double()
        y = torch.tensor([0, 1, 2, 1])

        def loss(X=X, observed=observed, layer=layer, network=network, y=y):
            found = layer.complete(torch.where(observed, X, 0), observed)
            J0 = classification_loss(network(getattr(found, layer.output)), y)
            J1 = reconstruction_loss(X, observed, found.reconstruction)
            return (J0 + 0.5 * J1 + sparsity_loss(found.codes, X[0].numel())).sum()

        parameters = [X, layer.atoms, *network.parameters()]
        check_direction(loss, parameters, seed, step=1e-7, rtol=1e-3)
        for parameter in (X, layer.atoms):
            check_direction(loss, [parameter], seed, step=1e-7, rtol=1e-3)
        tried("gradients through completion layers against finite differences", 3)


def test_tilings_and_standardisation(tried, times):
    for seed in range(times(3)):
        for tiling, shape in TILINGS.values():
            X = drawn(seed, 2, *shape)
            check(tiling.split, X)
            tiles = drawn(seed + 1, *tiling.split(X).shape)
            check(lambda t, tiling=tiling, shape=shape: tiling.merge(t, shape), tiles)
            centre, scale = drawn(seed + 2, *shape), drawn(seed + 3, *shape, least=0.5)
            standardise = Standardise(np.zeros(shape), np.ones(shape))

            def both(x, c, s, standardise=standardise):
                standardise.centre, standardise.scale = c, s
                return standardise(x), standardise.inverse(x)

            check(both, X, centre, scale)
            tried("gradients of tilings and standardisation against finite differences", 3)


def test_neumiss(tried, times):
    for seed in range(times(4)):
        spread = drawn(seed, 5, 5).detach()
        module = NeuMissNetwork(
            make_network("logistic", (5,), 3), spread @ spread.T, depth=4
        ).double()
        observed, X = seen(seed, 4, 5), drawn(seed + 1, 4, 5)
        names, weights = zip(*module.named_parameters(), strict=True)

        def scores(x, *weights, module=module, names=names, observed=observed):
            given = dict(zip(names, weights, strict=True))
            return torch.func.functional_call(module, given, (x, observed))

        check(scores, X, *weights)
        tried("gradients of NeuMiss against finite differences")


def first_layers():
    yield "linear", (6,), nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
    yield "no ReLU", (6,), nn.Sequential(nn.Linear(6, 2))
    norm = nn.BatchNorm1d(4)
    yield "batch norm", (6,), nn.Sequential(nn.Linear(6, 4), norm, nn.ReLU(), nn.Linear(4, 2))
    conv = nn.Conv2d(1, 2, 2)
    yield "convolution", (1, 3, 3), nn.Sequential(conv, nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))


def test_nn_gmm(tried, times):
    check(expected_relu, drawn(0, 20), (drawn(1, 20, least=0.1).abs()).detach().requires_grad_())
    for seed in range(times(2)):
        for name, shape, network in first_layers():
            mixture = Mixture(
                torch.tensor([0.3, 0.7], dtype=torch.float64),
                drawn(seed, 2, *shape).detach(),
                drawn(seed + 1, 2, *shape, least=0.3).abs().detach(),
            )
            module = MixtureNetwork(network, mixture).double()
            observed, X = seen(seed, 5, *shape, share=0.6), drawn(seed + 2, 5, *shape)
            pull = drawn(seed + 3, 5, 2).detach()
            for training in (False, True):
                module.train(training)

                def loss(module=module, X=X, observed=observed, pull=pull):
                    return (module(X, observed) * pull).sum()

                check_direction(loss, [X, *module.parameters()], seed)
                check_direction(loss, module.mixture.parameters(), seed)
                tried("gradients of NN-GMM against finite differences", 2)
            assert name


@pytest.mark.parametrize("name", NAMED)
def test_named_networks(name, tried, times):
    shape = (6,) if name in ("logistic", "mlp") else (2, 8, 8)
    torch.manual_seed(0)
    network = make_network(name, shape, 3).double().eval()
    for seed in range(times(2)):
        X, y = drawn(seed, 4, *shape), torch.tensor([0, 1, 2, 0])
        check_direction(
            lambda X=X, y=y: classification_loss(network(X), y).sum(),
            [X, *network.parameters()],
            seed,
            step=1e-8,
            rtol=1e-3,
        )
        tried("gradients of named networks against finite differences")


@pytest.mark.parametrize("kind", TILINGS)
def test_the_steps_of_labelled_codes(kind, tried, times):
    tiling, shape = TILINGS[kind]
    for seed in range(times(3)):
        observed = seen(seed, 3, *shape)
        X = torch.where(observed, drawn(seed, 3, *shape).detach(), 0)
        completion = SparseCompletion(tiling, 5, shape, lambda_rec=0.8, dtype=torch.float64)
        network = make_network("logistic", shape, 2).double()
        samples = Samples(X, observed, torch.tensor([0, 1, 1]), torch.ones(3, dtype=torch.float64))
        plan = CodingPlan(
            2, 3, 0.01, lambda_rec=0.8, lambda_l1=completion.lambda_l1, label_weight=0.6
        )
        trainer = Joint(completion, network, samples, plan, torch.Generator())
        problem = completion.problem(X, observed, completion.dictionary.detach())
        codes = drawn(seed + 1, 3, len(completion.layout), 5, least=0.01)

        def labelled(c, trainer=trainer, problem=problem, samples=samples):
            lasso = problem.objective(c.flatten(0, 1)).reshape(len(c), -1).sum(1)
            return trainer.value(problem, c, samples) - lasso

        value, slope = trainer.value_and_slope(problem, codes, samples)
        with torch.no_grad():
            torch.testing.assert_close(value, trainer.value(problem, codes, samples))
            for place in itertools.product(*map(range, codes.shape)):
                step = torch.zeros_like(codes)
                step[place] = 1e-6
                up, down = labelled(codes + step), labelled(codes - step)
                found = (up - down)[place[0]].item() / 2e-6
                assert found == pytest.approx(slope[place].item(), rel=1e-4, abs=1e-6)
        tried("gradients of labelled code steps against finite differences", codes.numel())
