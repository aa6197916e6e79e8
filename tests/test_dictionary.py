import itertools

import numpy as np
import pytest
import torch
from conftest import planted_rows

from halfseen import SparseCodingImputer
from halfseen.coding import MaskedLasso, make_solver
from halfseen.dictionary import (
    DictionaryState,
    learn_dictionary,
    learn_step,
    shuffled_batches,
    start_dictionary,
)
from halfseen.solvers.fista import FixedSteps

SOLVER = make_solver("auto", torch.device("cpu"))


def batch_with_holes(n_rows=200, n_features=10, seed=0):
    random = torch.Generator().manual_seed(seed)
    observed = torch.rand(n_rows, n_features, generator=random) > 0.4
    atoms = torch.randn(12, n_features, generator=random, dtype=torch.float64)
    atoms = atoms / atoms.norm(dim=1, keepdim=True)
    codes = torch.randn(n_rows, 12, generator=random, dtype=torch.float64)
    codes = torch.where(torch.rand(n_rows, 12, generator=random) < 0.15, codes, 0)
    return torch.where(observed, codes @ atoms, 0), observed


def test_a_step_by_hand():
    # One atom, one row, second feature a hole; alpha·6 at the first of many steps.
    state = DictionaryState(
        torch.tensor([[0.6, 0.8, 0.0]], dtype=torch.float64),
        torch.zeros(1, 3, dtype=torch.float64),
        torch.zeros(1, dtype=torch.int64),
    )
    X = torch.tensor([[2.0, 0.0, 1.0]], dtype=torch.float64)
    observed = torch.tensor([[True, False, True]])
    new = learn_step(state, X, observed, 0.01, 10**9, SOLVER)
    code = (2 * 0.6 - 0.06) / 0.36
    # Curvature |s|·‖s‖₁ = s², so the step is residual/s on the observed features.
    atom = np.array([0.6 + (2 - code * 0.6) / code, 0.8, (1 - 0) / code])
    np.testing.assert_allclose(new.dictionary[0].numpy(), atom / np.linalg.norm(atom), rtol=1e-6)
    np.testing.assert_allclose(new.curvature[0].numpy(), [code**2, 0, code**2])
    assert new.n_steps == 1


def test_a_step_lowers_the_error_of_its_batch_and_atoms_keep_norm_one():
    X, observed = batch_with_holes()
    random = torch.Generator().manual_seed(1)
    state = start_dictionary(15, 10, X, random)
    alpha, errors = 0.05, []
    for _ in range(100):
        problem = MaskedLasso(X, observed, state.dictionary, X.new_full((len(X),), alpha))
        codes = SOLVER.solve(problem, None, 1e-8, 10_000).codes
        errors.append(problem.objective(codes).sum().item())
        state = learn_step(state, X, observed, alpha, 1, SOLVER)
        torch.testing.assert_close(state.dictionary.norm(dim=1), X.new_ones(15))
    assert errors[-1] < 0.75 * errors[0]
    assert all(later < earlier * 1.01 for earlier, later in itertools.pairwise(errors))


def test_alpha_is_large_first_and_steps_shrink_last():
    X, observed = batch_with_holes()
    random = torch.Generator().manual_seed(1)
    first = start_dictionary(15, 10, X, random)

    def movement(n_steps, horizon):
        state = DictionaryState(first.dictionary, first.curvature, first.idle, n_steps)
        moved = learn_step(state, X, observed, alpha, horizon, SOLVER)
        return (moved.dictionary - first.dictionary).norm().item()

    # Six times this alpha leaves no code, so nothing moves.
    alpha = 1.1 * (X @ first.dictionary.T).abs().max().item() / 6
    assert movement(0, 10**6) < 1e-12 < movement(600_000, 10**6)
    assert movement(700_000, 10**6) < movement(600_000, 10**6) / 100


def test_atoms_that_nobody_uses_are_replaced_by_what_is_fitted_worst():
    X, observed = batch_with_holes()
    state = start_dictionary(12, 10, X, torch.Generator().manual_seed(1))
    useless = DictionaryState(state.dictionary, state.curvature, state.idle + 19)
    new = learn_step(useless, X, observed, 100.0, 1, SOLVER)  # every code is zero
    worst = X[X.square().sum(1).argsort(descending=True)[:12]]
    torch.testing.assert_close(new.dictionary, worst / worst.norm(dim=1, keepdim=True))
    assert not new.idle.any()
    kept = learn_step(state, X, observed, 100.0, 1, SOLVER)
    torch.testing.assert_close(kept.dictionary, state.dictionary)
    assert (kept.idle == 1).all()


@pytest.mark.parametrize(("missing", "limit"), [(0.5, 0.1), (0.75, 0.25)])
def test_a_planted_dictionary_completes_the_holes(missing, limit):
    """Mean fill has relative squared error 1.0."""
    X, observed = planted_rows(missing=missing)
    incomplete = np.where(observed, X, np.nan)
    imputer = SparseCodingImputer(n_atoms=200, alpha=0.05, random_state=0)
    completed = imputer.fit_transform(incomplete)
    error = np.square(completed - X)[~observed].sum() / np.square(X)[~observed].sum()
    assert error < limit


@pytest.mark.gpu
def test_recorded_steps_on_a_gpu_are_the_steps_as_written():
    random = torch.Generator().manual_seed(0)
    X = torch.randn(400, 16, generator=random).cuda()
    observed = (torch.rand(400, 16, generator=random) < 0.7).cuda()
    layout = torch.arange(16)[None]
    start = start_dictionary(24, 16, X, random)
    batches = list(shuffled_batches(400, 64, 40, random))
    seen = X * observed
    recorded = learn_dictionary(
        start, lambda rows: (seen[rows], observed[rows]), layout, batches, 0.3, 40, record=True
    )
    written = start
    for batch in batches:
        rows = batch.cuda()
        tiles = (X * observed)[rows], observed[rows]
        written = learn_step(written, *tiles, 0.3, 40, FixedSteps())
    torch.testing.assert_close(recorded.dictionary, written.dictionary, atol=1e-3, rtol=0)
    assert recorded.n_steps == 40
