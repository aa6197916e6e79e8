import numpy as np
import pytest
import torch

from halfseen import sparse_encode
from halfseen.objective import (
    alpha_of_counts,
    classification_loss,
    lasso_alpha,
    reconstruction_loss,
    sparsity_loss,
    total_loss,
)


def test_terms_by_hand():
    X = torch.tensor([[1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 1.0, 1.0]])
    observed = torch.tensor([[True, True, False, False], [True, True, True, True]])
    reconstruction = torch.tensor([[0.0, 0.0, 7.0, 7.0], [1.0, 1.0, 1.0, 0.0]])
    # Half observed: ½·(1 + 4); all observed: 1·1.
    torch.testing.assert_close(
        reconstruction_loss(X, observed, reconstruction), torch.tensor([2.5, 1.0])
    )
    torch.testing.assert_close(
        reconstruction_loss(X, observed, reconstruction, "inverse"), torch.tensor([10.0, 1.0])
    )
    codes = torch.tensor([[1.0, -3.0], [0.0, 0.5]])
    torch.testing.assert_close(sparsity_loss(codes, 4), torch.tensor([1.0, 0.125]))
    scores = torch.tensor([[0.0, 0.0], [float(np.log(3.0)), 0.0]])
    labels = torch.tensor([1, 0])
    torch.testing.assert_close(
        classification_loss(scores, labels), torch.tensor([np.log(2.0), np.log(4 / 3)]).float()
    )
    J0, J1 = classification_loss(scores, labels), reconstruction_loss(X, observed, reconstruction)
    total = total_loss(J0, J1, sparsity_loss(codes, 4), 2.0, 4.0)
    expected = [np.log(2) + 2 * 2.5 + 4 * 1.0, np.log(4 / 3) + 2 * 1.0 + 4 * 0.125]
    torch.testing.assert_close(total, torch.tensor(expected).float())
    without_labels = total_loss(J0, J1, sparsity_loss(codes, 4), 2.0, 4.0, label_weight=0.0)
    torch.testing.assert_close(without_labels, torch.tensor([9.0, 2.5]))


def test_what_stands_in_a_hole_changes_nothing():
    random = torch.Generator().manual_seed(0)
    X = torch.randn(3, 2, 4, 4, generator=random)
    observed = torch.rand(3, 2, 4, 4, generator=random) > 0.5
    reconstruction = torch.randn(3, 2, 4, 4, generator=random)
    other = torch.where(observed, X, -99.0)
    torch.testing.assert_close(
        reconstruction_loss(X, observed, reconstruction),
        reconstruction_loss(other, observed, reconstruction),
    )


def test_gradients():
    random = torch.Generator().manual_seed(0)

    def tensor(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64, requires_grad=True)

    X, dictionary, weights, codes = tensor(4, 5), tensor(6, 5), tensor(5, 3), tensor(4, 6)
    observed = torch.rand(4, 5, generator=random) > 0.4
    labels = torch.tensor([0, 2, 1, 1])

    def objective(dictionary, weights, codes):
        reconstruction = codes @ dictionary
        J0 = classification_loss(reconstruction @ weights, labels)
        J1 = reconstruction_loss(X.detach(), observed, reconstruction)
        return total_loss(J0, J1, sparsity_loss(codes, X.shape[1]), 0.7, 0.3).mean()

    assert torch.autograd.gradcheck(objective, (dictionary, weights, codes))


@pytest.mark.parametrize("rec_scaling", ["share", "inverse"])
def test_lasso_alpha_gives_the_codes_that_minimise_the_objective(masked_rows, rec_scaling):
    X, dictionary = masked_rows(n_rows=12)
    values, observed = torch.from_numpy(np.nan_to_num(X)), torch.from_numpy(~np.isnan(X))
    lambda_rec, lambda_l1 = 0.7, 1.9 if rec_scaling == "share" else 6.0
    alpha = lasso_alpha(observed, lambda_rec, lambda_l1, rec_scaling=rec_scaling)
    codes = torch.from_numpy(sparse_encode(X, dictionary, alpha, tol=1e-12))
    atoms = torch.from_numpy(dictionary)

    def value(codes):
        J1 = reconstruction_loss(values, observed, codes @ atoms, rec_scaling)
        return lambda_rec * J1 + lambda_l1 * sparsity_loss(codes, X.shape[1])

    assert (codes != 0).any(1).all()
    random = torch.Generator().manual_seed(0)
    for size in (1e-1, 1e-2, 1e-3):
        for _ in range(50):
            nudge = torch.randn(codes.shape, generator=random, dtype=torch.float64)
            assert (value(codes + size * nudge) >= value(codes)).all()
            assert (value(codes * (1 + size * nudge)) >= value(codes) - 1e-12).all()


def test_lasso_alpha_of_an_unobserved_sample_is_finite():
    observed = torch.tensor([[False, False], [True, True]])
    expected = torch.tensor([2.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(lasso_alpha(observed, 1.0, 4.0), expected)
    inverse = lasso_alpha(observed, 1.0, 4.0, rec_scaling="inverse")  # 4·M / (2·2²)
    torch.testing.assert_close(inverse, torch.tensor([0.5, 1.0], dtype=torch.float64))


@pytest.mark.parametrize("values", [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0)])
def test_lasso_alpha_needs_positive_weights(values):
    with pytest.raises(ValueError, match="must be positive; got"):
        lasso_alpha(torch.ones(1, 2, dtype=torch.bool), *values)


def test_lasso_alpha_has_the_dtype_that_is_asked_for():
    alpha = lasso_alpha(torch.ones(1, 2, dtype=torch.bool), 0.5, 0.25, torch.float32)
    torch.testing.assert_close(alpha, torch.tensor([0.125], dtype=torch.float32))
    counts = torch.tensor([3, 0])
    expected = torch.tensor([0.25 / 3, 0.25], dtype=torch.float64)
    torch.testing.assert_close(alpha_of_counts(counts, 7, 0.5, 0.25), expected)


def test_shares_are_as_precise_as_the_data():
    X, observed = torch.ones(1, 3, dtype=torch.float64), torch.tensor([[True, False, False]])
    loss = reconstruction_loss(X, observed, torch.zeros_like(X))
    assert loss.item() == pytest.approx(1 / 3, rel=1e-12)
