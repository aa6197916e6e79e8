import gc
import importlib
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from halfseen import (
    Channels,
    Patches,
    SparseCodingClassifier,
    SparseCodingImputer,
    Whole,
    sparse_encode,
)
from halfseen.nn import SparseCompletion


@pytest.fixture
def batch():
    """Return a maker of standard normal samples with holes."""

    def make(*shape, missing=0.4, seed=0, dtype=torch.float64):
        generator = torch.Generator().manual_seed(seed)
        X = torch.randn(shape, generator=generator, dtype=dtype)
        X[torch.rand(shape, generator=generator) < missing] = math.nan
        return X

    return make


def test_codes_are_those_of_sparse_encode(batch):
    X = batch(9, 12)
    layer = SparseCompletion(Whole(), 20, (12,), lambda_rec=0.5, lambda_l1=3.0, tol=1e-10).double()
    codes = layer(X, details=True).codes[:, 0]
    n_observed = (~X.isnan()).sum(1)
    alpha = 3.0 / (2 * 0.5 * n_observed)  # λ2 / (2·λ1·M)
    expected = sparse_encode(X, layer.dictionary, alpha.double(), tol=1e-10)
    torch.testing.assert_close(codes.detach(), expected, atol=1e-5, rtol=0)
    layer.rec_scaling = "inverse"
    codes = layer(X, details=True).codes[:, 0]
    alpha = 3.0 * n_observed / (2 * 0.5 * 12**2)  # λ2·M / (2·λ1·N²)
    expected = sparse_encode(X, layer.dictionary, alpha.double(), tol=1e-10)
    torch.testing.assert_close(codes.detach(), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("tiling", "shape"), [(Whole(), (12,)), (Channels(), (2, 3, 3)), (Patches(3, 2), (1, 5, 6))]
)
def test_observed_values_are_kept_and_holes_come_from_the_reconstruction(batch, tiling, shape):
    X = batch(7, *shape)
    layer = SparseCompletion(tiling, 15, shape).double()
    completed, reconstruction, codes = layer(X, details=True)
    holes = X.isnan()
    assert torch.equal(completed[~holes], X[~holes])
    assert torch.equal(completed[holes], reconstruction[holes])
    torch.testing.assert_close(layer.reconstruct(codes), reconstruction)
    assert torch.equal(layer(X), completed)
    layer.output = "reconstruction"
    assert torch.equal(layer(X), reconstruction)


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize(("tiling", "shape"), [(Whole(), (12,)), (Patches(3, 2), (5, 6))])
def test_gradient_is_that_of_finite_differences(batch, tiling, shape, positive):
    X = batch(6, *shape)
    layer = SparseCompletion(
        tiling, 10, shape, tol=1e-12, n_gradient_steps=50, positive=positive
    ).double()
    pull = torch.randn(X.shape, generator=torch.Generator().manual_seed(1), dtype=X.dtype)

    def loss():
        return (layer(X) * pull).sum()

    loss().backward()
    direction = torch.randn(layer.atoms.shape, dtype=X.dtype) * 1e-6
    with torch.no_grad():
        layer.atoms += direction
        above = loss()
        layer.atoms -= 2 * direction
        below = loss()
    slope = (layer.atoms.grad * direction).sum()
    assert slope.item() == pytest.approx((above - below).item() / 2, rel=1e-4)


def test_gradient_reaches_inputs_that_are_observed(batch):
    X = batch(5, 8)
    layer = SparseCompletion(Whole(), 6, (8,), tol=1e-12).double()
    values = torch.where(X.isnan(), 0, X).requires_grad_()

    def total(values):
        return layer.complete(values, ~X.isnan()).reconstruction.square().sum()

    (gradient,) = torch.autograd.grad(total(values), values)
    assert (gradient[X.isnan()] == 0).all()
    step = 1e-6 * torch.randn_like(X)
    with torch.no_grad():
        slope = (total(values + step) - total(values - step)) / 2
    assert (gradient * step).sum().item() == pytest.approx(slope.item(), rel=1e-4)


def test_no_gradient_steps_means_constant_codes(batch):
    layer = SparseCompletion(Whole(), 6, (8,), n_gradient_steps=0).double()
    _, reconstruction, codes = layer(batch(5, 8), details=True)
    (gradient,) = torch.autograd.grad(reconstruction.sum(), layer.atoms)
    atoms = layer.atoms.detach().clone().requires_grad_()
    held = codes.detach() @ nn.functional.normalize(atoms, dim=1)
    (expected,) = torch.autograd.grad(held.sum(), atoms)
    torch.testing.assert_close(gradient, expected)


def test_atoms_have_norm_one_under_any_optimiser(batch):
    layer = SparseCompletion(Whole(), 6, (8,)).double()
    optimiser = torch.optim.SGD(layer.parameters(), lr=1.0)
    for _ in range(3):
        optimiser.zero_grad()
        layer(batch(5, 8)).square().sum().backward()
        optimiser.step()
        norms = layer.dictionary.norm(dim=1)
        torch.testing.assert_close(norms, torch.ones_like(norms))
    before = layer(batch(5, 8))
    layer.normalise_atoms()
    norms = layer.atoms.norm(dim=1)
    torch.testing.assert_close(norms, torch.ones_like(norms))
    torch.testing.assert_close(layer(batch(5, 8)), before)


@pytest.mark.parametrize("solver", ["auto", "cd", "fista", "subgradient"])
def test_observed_values_keep_their_digits_and_an_empty_batch_passes(solver):
    layer = SparseCompletion(Whole(), 6, (2,), solver=solver)
    X = torch.tensor([[1e9 + 0.5, math.nan]], dtype=torch.float64)
    assert layer(X)[0, 0] == X[0, 0]
    assert layer(X[:0]).shape == (0, 2)
    layer(X[:0]).sum().backward()
    assert (layer.atoms.grad == 0).all()


def test_rows_are_independent(batch):
    X = batch(20, 12, dtype=torch.float32)
    layer = SparseCompletion(Whole(), 20, (12,))
    together = layer(X)
    alone = torch.cat([layer(row[None]) for row in X])
    torch.testing.assert_close(alone, together)


def test_sequential_network_learns_in_a_plain_loop():
    generator = torch.Generator().manual_seed(0)
    factors = torch.randn(400, 3, generator=generator)
    complete = factors @ torch.randn(3, 10, generator=generator)
    y = (factors[:, 0] > 0).long()
    X = complete.clone()
    X[torch.rand(X.shape, generator=generator) < 0.3] = math.nan
    torch.manual_seed(0)
    layer = SparseCompletion(Whole(), 10, (10,), lambda_l1=1.0)
    model = nn.Sequential(layer, nn.Linear(10, 2))
    start = layer.dictionary.detach().clone()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(X), y).backward()
        optimiser.step()
    accuracy = (model(X).argmax(1) == y).float().mean()
    assert accuracy > 0.9
    assert (layer.dictionary - start).abs().max() > 0.05


def test_learn_takes_over_dictionary_and_mean_of_the_imputer(batch):
    X = 3 + batch(300, 8).numpy()
    layer = SparseCompletion(Whole(), 5, (8,), lambda_l1=4.0).double()
    layer.learn(X, n_steps=50, random_state=0)
    alpha = (4.0 / (2 * (~np.isnan(X)).sum(1))).mean()
    imputer = SparseCodingImputer(5, alpha=alpha, n_steps=50, random_state=0).fit(X)
    np.testing.assert_allclose(layer.dictionary.detach(), imputer.components_, rtol=1e-6)
    np.testing.assert_allclose(layer.mean, np.nanmean(X, axis=0))
    with pytest.raises(ValueError, match="samples of shape"):
        layer.learn(X[:, :7])


def test_state_dict_moves_the_layer(batch):
    X = batch(4, 8)
    one = SparseCompletion(Whole(), 6, (8,)).double()
    one.mean.add_(1.0)
    other = SparseCompletion(Whole(), 6, (8,)).double()
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(X), other(X))


def test_autocast_does_not_touch_the_codes(batch):
    X = batch(6, 8, dtype=torch.float32)
    layer = SparseCompletion(Whole(), 6, (8,))
    expected = layer(X)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model = nn.Sequential(layer, nn.Linear(8, 2))
        assert torch.equal(layer(X), expected)
        scores = model(X)
    assert scores.dtype == torch.bfloat16
    scores.float().sum().backward()
    assert torch.isfinite(layer.atoms.grad).all()
    assert layer(X.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("tiling", [Whole(), Channels(), Patches(3, 2)])
def test_an_exported_layer_takes_any_number_of_samples(tiling, batch):
    X = batch(5, 2, 6, 6, dtype=torch.float32)
    layer = SparseCompletion(tiling, 8, (2, 6, 6))
    n_samples = torch.export.Dim("n_samples")
    program = torch.export.export(layer, (X,), dynamic_shapes=({0: n_samples},))
    torch.testing.assert_close(program.module()(X[:3]), layer(X[:3]))


@pytest.mark.parametrize("tiling", [Whole(), Patches(3, 2)])
def test_a_layer_without_memory_can_be_given_it_later(tiling, batch):
    X = batch(5, 6, 6, dtype=torch.float32)
    filled = SparseCompletion(tiling, 8, (6, 6))
    with torch.device("meta"):
        layer = SparseCompletion(tiling, 8, (6, 6))
    assert {tensor.device.type for tensor in (layer.atoms, layer.layout)} == {"meta"}
    layer.to_empty(device="cpu").load_state_dict(filled.state_dict())
    torch.testing.assert_close(layer(X), filled(X))
    torch.testing.assert_close(SparseCompletion(tiling, 8, (6, 6)).layout, filled.layout)


@pytest.mark.parametrize("tiling", [Whole(), Patches(3, 2)])
def test_weights_can_be_assigned_to_a_layer_without_memory(tiling, batch):
    X = batch(5, 6, 6, dtype=torch.float32)
    layer = SparseCompletion(tiling, 8, (6, 6))
    with torch.device("meta"):
        empty = SparseCompletion(tiling, 8, (6, 6))
    empty.load_state_dict(layer.state_dict(), assign=True)
    torch.testing.assert_close(empty(X), layer(X))


def test_autocast_does_not_touch_what_is_learned():
    X = np.random.default_rng(0).standard_normal((80, 6)).astype(np.float32)
    X[np.random.default_rng(1).random(X.shape) < 0.2] = np.nan
    y = np.arange(80) % 2

    def learned() -> list:
        imputer = SparseCodingImputer(4, n_steps=20, random_state=0).fit(X)
        clf = SparseCodingClassifier(n_epochs=2, random_state=0).fit(X, y)
        layer = SparseCompletion(Whole(), 4, (6,)).learn(X, n_steps=20, random_state=0)
        codes = imputer.encode(X)
        sparse = sparse_encode(X, np.eye(3, 6, dtype=np.float32), 0.1, solver="fista")
        filled = [imputer.transform(X), imputer.inverse_transform(codes), sparse]
        return [*filled, clf.inverse_transform(clf.transform(X)), layer.dictionary.detach().numpy()]

    usual = learned()
    with torch.autocast("cpu", torch.bfloat16):
        shortened = learned()
    for one, other in zip(usual, shortened, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("tiling", [Whole(), Patches((2,), 1)])
@pytest.mark.parametrize("worst", [math.inf, -math.inf, 1e25])
def test_nothing_is_made_up_for_samples_out_of_range(tiling, worst):
    layer = SparseCompletion(tiling, 4, (3,))
    X = torch.tensor([[worst, 1, math.nan], [0.5, math.nan, 1]])
    completed, reconstruction, codes = layer(X, details=True)
    for values in (completed[0, 2], reconstruction[0], codes[0]):
        assert not values.isfinite().any()
    assert torch.equal(completed[1:], layer(X[1:]))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own
def test_forward_mode_derivatives_are_refused():
    """Without a formula for them, codes would silently count as constants."""
    layer = SparseCompletion(Whole(), 4, (6,), dtype=torch.float64)
    X = torch.from_numpy(np.random.default_rng(0).standard_normal((3, 6)))

    def completed(atoms: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, {"atoms": atoms}, (X,))

    atoms = layer.atoms.detach()
    assert torch.autograd.functional.jacobian(completed, atoms).shape == (3, 6, 4, 6)
    for derivative in (
        lambda: torch.func.jvp(completed, (atoms,), (torch.ones_like(atoms),)),
        lambda: torch.func.jacfwd(completed)(atoms),
    ):
        with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
            derivative()


def test_compile_and_export_give_the_same(batch):
    X = batch(6, 6, 6, dtype=torch.float32)
    layer = SparseCompletion(Patches(3, 2), 8, (6, 6))
    expected = layer(X)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    result = compiled(X)
    torch.testing.assert_close(result, expected)
    (gradient,) = torch.autograd.grad(result.square().sum(), layer.atoms)
    (eager,) = torch.autograd.grad(expected.square().sum(), layer.atoms)
    torch.testing.assert_close(gradient, eager)
    n_samples = torch.export.Dim("n_samples")
    program = torch.export.export(layer, (X,), dynamic_shapes=({0: n_samples},))
    torch.testing.assert_close(program.module()(X[:4]), expected[:4])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tiling": "whole"}, "tiling"),
        ({"n_atoms": 0}, "n_atoms"),
        ({"output": "filled"}, "output"),
        ({"lambda_l1": 0.0}, "positive"),
        ({"rec_scaling": "mean"}, "rec_scaling"),
        ({"n_gradient_steps": -1}, "n_gradient_steps"),
        ({"solver": "lars"}, "solver"),
        ({"tol": math.nan}, "tol"),
    ],
)
def test_settings_that_make_no_sense_are_refused(arguments, message):
    good = {"tiling": Whole(), "n_atoms": 3, "sample_shape": (4,)}
    with pytest.raises(ValueError, match=message):
        SparseCompletion(**{**good, **arguments})


def test_input_of_another_shape_or_kind_is_refused():
    layer = SparseCompletion(Whole(), 3, (4,))
    with pytest.raises(ValueError, match=r"\(n_samples, 4\)"):
        layer(torch.zeros(2, 5))
    with pytest.raises(ValueError, match="floating-point"):
        layer(torch.zeros(2, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"a dense tensor was expected.*to_dense"):
        SparseCompletion(Whole(), 4, (3,))(torch.eye(3).to_sparse())


def test_atoms_that_are_computed_are_not_set_in_vain(batch):
    layer = SparseCompletion(Whole(), 4, (8,))
    parametrizations.weight_norm(layer, "atoms")
    pruned = SparseCompletion(Whole(), 4, (8,))
    prune.l1_unstructured(pruned, "atoms", 0.5)
    for computed in (layer, pruned):
        before = computed.mean.clone()
        for call in (
            lambda one: one.learn(batch(20, 8), n_steps=2),
            SparseCompletion.normalise_atoms,
        ):
            with pytest.raises(ValueError, match="computed from other parameters"):
                call(computed)
        torch.testing.assert_close(computed.mean, before)
        computed(batch(5, 8)).sum().backward()  # in a loop of one's own they learn


def test_distributed_data_parallel_averages_the_gradient(tmp_path, batch):
    if not torch.distributed.is_available():
        pytest.skip("torch was built without torch.distributed")
    layer = SparseCompletion(Whole(), 6, (8,), tol=1e-12).double()
    X = batch(10, 8)
    torch.multiprocessing.spawn(
        _gradient_of_one_rank, (str(tmp_path), layer.state_dict(), X), nprocs=2
    )
    layer(X).square().mean().backward()
    for rank in range(2):
        gradient = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        torch.testing.assert_close(gradient, layer.atoms.grad)


def _gradient_of_one_rank(rank, folder, state, X):
    importlib.import_module("torch.distributed.nn.functional")  # see halfseen.team.this_team
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
    )
    layer = SparseCompletion(Whole(), 6, (8,), tol=1e-12).double()
    layer.load_state_dict(state)
    model = nn.parallel.DistributedDataParallel(layer)
    model(X[rank::2]).square().mean().backward()
    torch.save(layer.atoms.grad, f"{folder}/{rank}.pt")
    # Before the group: a DDP that goes last waits, with Python's lock, for a thread that needs it.
    del model
    gc.collect()
    torch.distributed.destroy_process_group()
