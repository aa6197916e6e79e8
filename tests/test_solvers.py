"""The steps inside the solvers, by hand; what they do on whole problems is in test_coding."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from halfseen import sparse_encode
from halfseen.coding import MaskedLasso
from halfseen.solvers.fista import (
    Fista,
    State,
    advance,
    largest_curvature,
    row_curvatures,
    soft_threshold,
)
from halfseen.solvers.subgradient import SubGradient, subgradient_step


def small_problem(positive=False):
    # One row, its second feature a hole.
    return MaskedLasso(
        torch.tensor([[2.0, 0.0, 1.0]], dtype=torch.float64),
        torch.tensor([[True, False, True]]),
        torch.tensor([[1.0, 0, 0], [0, 0.6, 0.8]], dtype=torch.float64),
        torch.tensor([0.5], dtype=torch.float64),
        positive,
    )


def test_soft_threshold_by_hand():
    codes = torch.tensor([[-2.0, -0.3, 0.0, 0.4, 3.0]])
    half = torch.tensor([[0.5]])
    torch.testing.assert_close(
        soft_threshold(codes, half), torch.tensor([[-1.5, 0.0, 0.0, 0.0, 2.5]])
    )
    torch.testing.assert_close(
        soft_threshold(codes, half, positive=True), torch.tensor([[0.0, 0.0, 0.0, 0.0, 2.5]])
    )


def test_two_fista_steps_by_hand():
    # Gradient at 0: (2, 0.8). With L = 2: s1 = ((2 - 0.5)/2, (0.8 - 0.5)/2) = (0.75, 0.15).
    problem = small_problem()
    start = State.start(torch.zeros(1, 2, dtype=torch.float64))
    first, _ = advance(problem, start, 2.0, 1)
    torch.testing.assert_close(first.codes, torch.tensor([[0.75, 0.15]], dtype=torch.float64))
    # The first momentum is 0, so the second step starts at s1. Descent there:
    # (2 - 0.75, 0.8·(1 - 0.8·0.15)) = (1.25, 0.704).
    second, gap = advance(problem, first, 2.0, 1)
    expected = torch.tensor([[0.75 + (1.25 - 0.5) / 2, 0.15 + (0.704 - 0.5) / 2]])
    torch.testing.assert_close(second.codes, expected.double())
    clock = (1 + np.sqrt(5)) / 2
    momentum = (clock - 1) / ((1 + np.sqrt(1 + 4 * clock**2)) / 2)
    ahead = second.codes + momentum * (second.codes - first.codes)
    torch.testing.assert_close(second.ahead, ahead)
    torch.testing.assert_close(gap, problem.relative_gap(second.codes))
    both, _ = advance(problem, start, 2.0, 2)
    torch.testing.assert_close(both.ahead, ahead)


def test_fista_never_keeps_a_momentum_that_leads_uphill():
    """The restart resets the clock, so the next momentum is that of a first step."""
    problem = small_problem()
    far = State(
        torch.tensor([[1.0, 0.2]], dtype=torch.float64),
        torch.tensor([[9.0, 9.0]], dtype=torch.float64),  # much too far ahead
        torch.tensor([[50.0]], dtype=torch.float64),
    )
    state, _ = advance(problem, far, 2.0, 1)
    torch.testing.assert_close(state.clock.item(), (1 + np.sqrt(5)) / 2)
    torch.testing.assert_close(state.ahead, state.codes)


def test_subgradient_step_by_hand():
    codes = torch.tensor([1.0, 1.0, -1.0, -1.0, 0.0])
    gradient = torch.tensor([0.5, 3.0, 0.5, -3.0, -7.0])
    # 1 - 0.25; would cross: 0; -1 - 0.25; would cross: 0; zero stays zero.
    expected = torch.tensor([0.75, 0.0, -1.25, 0.0, 0.0])
    torch.testing.assert_close(subgradient_step(codes, gradient, 0.5), expected)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_one_iteration_of_the_papers_rule_on_a_row_with_a_hole():
    # Residual on the observed features: (2 - 1, 1 - 0.8·0.5) = (1, 0.6); gradient of the
    # fit: -(1, 0.48), of the l1 norm: 0.5·(1, 1).
    problem = small_problem()
    start = torch.tensor([[1.0, 0.5]], dtype=torch.float64)
    solution = SubGradient(shrinkage=0.05).solve(problem, start, 0.0, 1)
    expected = torch.tensor([[1.0 - 0.1 * (0.5 - 1.0), 0.5 - 0.1 * (0.5 - 0.48)]])
    torch.testing.assert_close(solution.codes, expected.double())


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_papers_rule_only_gets_sparser_and_ends_no_lower_than_the_minimum(masked_rows):
    X, dictionary = masked_rows(n_rows=20)
    counts = [
        np.count_nonzero(
            sparse_encode(X, dictionary, 0.2, solver="subgradient", max_iter=n), axis=1
        )
        for n in (1, 10, 100)
    ]
    assert all((later <= earlier).all() for earlier, later in itertools.pairwise(counts))
    codes, gap = sparse_encode(
        X, dictionary, 0.2, solver="subgradient", max_iter=200, return_gap=True
    )
    problem = MaskedLasso(
        torch.from_numpy(np.nan_to_num(X)), torch.from_numpy(~np.isnan(X)),
        torch.from_numpy(dictionary), torch.full((20,), 0.2, dtype=torch.float64),
    )  # fmt: skip
    best = torch.from_numpy(sparse_encode(X, dictionary, 0.2, tol=1e-10))
    excess = problem.objective(torch.from_numpy(codes)) - problem.objective(best)
    assert (excess >= -1e-9).all()
    assert (excess <= torch.from_numpy(gap) * problem.X.square().sum(1) / 2 + 1e-9).all()


def test_the_papers_rule_finds_the_minimum_from_its_support(masked_rows):
    X, dictionary = masked_rows(n_rows=20)
    best = sparse_encode(X, dictionary, 0.2, tol=1e-12)
    codes = sparse_encode(
        X, dictionary, 0.2, solver="subgradient", init=best * 1.001, tol=1e-5, max_iter=100_000
    )
    np.testing.assert_allclose(codes, best, atol=1e-2)


def test_a_solver_object_brings_its_own_settings(masked_rows):
    X, dictionary = masked_rows(n_rows=10)
    with pytest.warns(ConvergenceWarning):
        start = sparse_encode(X, dictionary, 0.1, solver=SubGradient(n_steps=0))
    assert (start == start[0]).all()  # one draw serves every row
    with pytest.warns(ConvergenceWarning):
        moved = sparse_encode(X, dictionary, 0.1, solver=SubGradient(n_steps=1))
    assert not (moved == start).any()


def test_rows_with_holes_curve_less_than_complete_ones():
    random = torch.Generator().manual_seed(0)
    dictionary = torch.randn(60, 40, generator=random, dtype=torch.float64)
    observed = torch.rand(50, 40, generator=random) > 0.75
    observed[0] = True
    X = torch.randn(50, 40, generator=random, dtype=torch.float64) * observed
    problem = MaskedLasso(X, observed, dictionary, torch.ones(50, dtype=torch.float64))
    lipschitz = largest_curvature(dictionary)
    own = torch.linalg.matrix_norm(observed[:, None] * dictionary, 2).square()
    guess = row_curvatures(problem, lipschitz)
    assert (guess <= lipschitz).all()
    assert (guess <= 1.06 * own).all()  # from below, but for a margin of 5%
    assert (guess >= 0.7 * own).all()
    X[0] = 0
    assert torch.isfinite(row_curvatures(problem, lipschitz)).all()


def test_fista_recovers_from_steps_that_are_too_long(monkeypatch, masked_rows):
    from halfseen.solvers import fista

    X, dictionary = masked_rows(n_rows=20)
    expected = sparse_encode(X, dictionary, 0.1, solver="fista", tol=1e-8)
    for wrong in (0.01, 0.6):  # NaN at once; out of step
        monkeypatch.setattr(
            fista, "row_curvatures",
            lambda rows, lipschitz, wrong=wrong: rows.alpha.new_full((len(rows.X),), wrong),
        )  # fmt: skip
        codes = sparse_encode(X, dictionary, 0.1, solver="fista", tol=1e-8, max_iter=100_000)
        np.testing.assert_allclose(codes, expected, atol=1e-3)


@pytest.mark.parametrize("wrong", [0.01, 0.6])
def test_a_row_that_runs_away_is_not_worse_off_after_few_steps(monkeypatch, masked_rows, wrong):
    from halfseen.solvers import fista

    X, dictionary = masked_rows(n_rows=20)
    gaps = []
    for guess in (None, wrong):
        monkeypatch.setattr(
            fista, "row_curvatures",
            lambda rows, safe, guess=guess: rows.alpha.new_full((len(rows.X),), guess or safe),
        )  # fmt: skip
        with pytest.warns(ConvergenceWarning):
            _, gap = sparse_encode(
                X, dictionary, 0.1, solver="fista", tol=1e-12, max_iter=32, return_gap=True
            )
        gaps.append(gap)
    assert (gaps[1] <= 10 * gaps[0] + 1e-6).all()


def test_a_fixed_number_of_steps_does_not_diverge_where_power_steps_would():
    c = np.cos(1.0)
    dictionary = np.array([[1, c], [-2 * c, 2.0]])
    codes, gap = sparse_encode([[3.0, 1.0]], dictionary, 0.1, solver="fixed", return_gap=True)
    assert gap < 1e-3
    np.testing.assert_allclose(codes, sparse_encode([[3.0, 1.0]], dictionary, 0.1), atol=0.05)


GPU_SHAPES = [
    ((70, 20, 30), False),
    ((70, 20, 30), True),
    ((5, 3, 4), False),
    ((130, 20, 10), False),
    ((1000, 64, 128), False),
    ((1000, 192, 256), False),
    ((1000, 192, 256), True),
    ((333, 100, 200), False),
    ((100, 64, 250), False),
    ((100, 300, 100), False),
]


def gpu_problem(n_rows, n_features, n_atoms, positive=False):
    random = torch.Generator("cuda").manual_seed(0)
    options = {"generator": random, "device": "cuda"}
    dictionary = torch.randn(n_atoms, n_features, **options)
    observed = torch.rand(n_rows, n_features, **options) > 0.5
    X = 7 * torch.randn(n_rows, n_features, **options) * observed
    alpha = n_features**0.5 * (0.5 + torch.rand(n_rows, **options))
    start = torch.randn(n_rows, n_atoms, **options).abs() / 10
    return MaskedLasso(X, observed, dictionary, alpha, positive), State.start(start)


def distance(values, expected):
    return ((values - expected).norm() / expected.norm()).item()


@pytest.mark.gpu
@pytest.mark.parametrize(("shape", "positive"), GPU_SHAPES)
def test_the_gpu_kernel_takes_the_steps_of_the_torch_code(shape, positive):
    from halfseen.solvers import fista_triton

    problem, start = gpu_problem(*shape, positive)
    exact = problem.to(torch.float64)
    lipschitz = largest_curvature(problem.dictionary)
    assert fista_triton.fits(problem.dictionary)
    same = State(start.codes.double(), start.ahead.double(), start.clock.double())
    expected, _ = advance(exact, same, lipschitz, 20)
    state, gap = fista_triton.advance(problem, start, lipschitz, 20)
    assert distance(state.codes, expected.codes) < 3e-3  # they multiply in float16
    assert distance(state.ahead, expected.ahead) < 3e-3
    # The gap is that of the codes, whatever they are.
    torch.testing.assert_close(
        gap.double(), exact.relative_gap(state.codes.double()), rtol=1e-4, atol=2e-6
    )
    # Where codes have all but settled, steps see what float16 does not.
    far, _ = advance(exact, same, lipschitz, 200)
    expected, _ = advance(exact, State.start(far.codes), lipschitz, 20)
    near = State.start(far.codes.float())
    state, _ = fista_triton.advance(problem, near, lipschitz, 20)
    assert distance(state.codes, expected.codes) < 1e-4


@pytest.mark.gpu
def test_the_gpu_kernel_takes_steps_of_every_rows_own_length():
    from halfseen.solvers import fista_triton

    problem, start = gpu_problem(200, 100, 200)
    lipschitz = largest_curvature(problem.dictionary)
    own = lipschitz * torch.linspace(1, 3, 200, device="cuda")[:, None]
    expected, _ = advance(problem, start, own, 20)
    state, _ = fista_triton.advance(problem, start, own, 20)
    assert distance(state.codes, expected.codes) < 3e-3


@pytest.mark.gpu
def test_the_gpu_kernel_does_not_hide_a_nan_nor_touch_rows_beside_it():
    from halfseen.solvers import fista_triton

    problem, start = gpu_problem(100, 20, 30)
    _, expected = fista_triton.advance(problem, start, 100.0, 5)
    problem.X[3, problem.observed[3].nonzero()[0]] = torch.nan
    start.codes[70, 2] = 1e30
    _, gap = fista_triton.advance(problem, start, 100.0, 5)
    bad = torch.tensor([3, 70], device="cuda")
    assert gap[bad].isnan().all()
    others = torch.ones(100, dtype=torch.bool, device="cuda")
    others[bad] = False
    torch.testing.assert_close(gap[others], expected[others])


@pytest.mark.gpu
def test_the_gpu_kernel_never_waits_for_the_host():
    from halfseen.solvers import fista_triton

    problem, start = gpu_problem(100, 20, 30)
    expected, _ = fista_triton.advance(problem, start, 100.0, 5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        state, _ = fista_triton.advance(problem, start, 100.0, 5)
    graph.replay()
    torch.testing.assert_close(state.codes, expected.codes)


@pytest.mark.gpu
@pytest.mark.parametrize("tol", [1e-3, 1e-5])
@pytest.mark.parametrize(("shape", "positive"), [*GPU_SHAPES, ((50, 784, 784), False)])
def test_every_row_is_solved_on_a_gpu(shape, positive, tol):
    problem, start = gpu_problem(*shape, positive)
    for init in (None, start.codes):
        solution = Fista().solve(problem, init, tol, 10_000)
        gap = problem.to(torch.float64).relative_gap(solution.codes.double())
        assert (solution.gap <= tol).all()
        assert (gap <= tol + 3e-6).all()  # reported in float32
        assert not positive or (solution.codes >= 0).all()


@pytest.mark.gpu
def test_codes_too_large_for_float16_are_found_on_a_gpu():
    problem, _ = gpu_problem(100, 20, 30)
    sizes = torch.logspace(-4, 0, 30, device="cuda")[:, None]
    problem = replace(problem, dictionary=sizes * problem.dictionary, alpha=problem.alpha / 1e4)
    solution = Fista().solve(problem, None, 1e-2, 10_000)
    gap = problem.to(torch.float64).relative_gap(solution.codes.double())
    assert (gap <= 1.01e-2).all()


@pytest.mark.gpu
def test_cpu_and_gpu_agree(masked_rows):
    X, dictionary = masked_rows(n_rows=300)
    host = sparse_encode(X, dictionary, 0.1, device="cpu", tol=1e-10)
    device = sparse_encode(X, dictionary, 0.1, device="cuda", tol=1e-10, max_iter=100_000)
    np.testing.assert_allclose(device, host, atol=1e-4)
    tensor = sparse_encode(torch.from_numpy(X).cuda().float(), dictionary, 0.1, tol=1e-5)
    assert tensor.is_cuda
    np.testing.assert_allclose(tensor.cpu().numpy(), host, atol=3e-2)


def test_too_many_atoms_for_coordinate_descent_say_what_to_do(monkeypatch):
    coordinate_descent = pytest.importorskip("halfseen.solvers.coordinate_descent")

    def full(*arguments):
        raise MemoryError("Allocation failed")

    monkeypatch.setattr(coordinate_descent, "_code_rows", full)
    with pytest.raises(MemoryError, match="two matrices of 4 × 4 .*pass solver='fista'"):
        sparse_encode(np.ones((2, 3)), np.ones((4, 3)), 0.1, solver="cd")
