import numpy as np
import pytest
import torch

torch.set_num_threads(1)  # the problems are small: threads would spend their time waiting


@pytest.fixture
def masked_rows():
    """Return a maker of rows with holes and a dictionary for them."""

    def make(n_rows=40, n_features=20, n_atoms=30, missing=0.4, seed=0, dtype=np.float64):
        random = np.random.default_rng(seed)
        dictionary = random.standard_normal((n_atoms, n_features))
        dictionary /= np.linalg.norm(dictionary, axis=1, keepdims=True)
        X = random.standard_normal((n_rows, n_features))
        X[random.random(X.shape) < missing] = np.nan
        return X.astype(dtype), dictionary.astype(dtype)

    return make


def planted_rows(n_rows=10_000, n_features=100, n_atoms=200, n_used=4, missing=0.5, seed=0):
    """Return rows made of few atoms of a random dictionary, and where they are observed."""
    random = np.random.default_rng(seed)
    dictionary = random.standard_normal((n_atoms, n_features))
    dictionary /= np.linalg.norm(dictionary, axis=1, keepdims=True)
    used = random.random((n_rows, n_atoms)).argpartition(n_used, axis=1)[:, :n_used]
    codes = np.zeros((n_rows, n_atoms))
    np.put_along_axis(codes, used, random.standard_normal((n_rows, n_used)), axis=1)
    return codes @ dictionary, random.random((n_rows, n_features)) >= missing
