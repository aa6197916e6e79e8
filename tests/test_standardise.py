import numpy as np
import torch

from halfseen.moments import ObservedMoments
from halfseen.standardise import Standardise, centre_and_scale

NAN = np.nan


def test_columns_of_a_table_get_their_own_scale():
    X = np.array([[1.0, 100.0], [3.0, NAN], [NAN, 500.0], [5.0, 900.0]])
    centre, scale = centre_and_scale(ObservedMoments.of(X))
    np.testing.assert_allclose(centre, [3.0, 500.0])
    np.testing.assert_allclose(scale, np.nanstd(X, axis=0))


def test_pixels_share_one_scale():
    X = np.random.default_rng(0).integers(0, 17, (50, 9)).astype(float)
    X[:, 0] = 0.0  # a corner that never lights up
    X[0, 1:], X[1, 1:] = 0.0, 16.0
    _, scale = centre_and_scale(ObservedMoments.of(X))
    assert len(set(scale)) == 1
    np.testing.assert_allclose(scale[0] ** 2, np.square(X - X.mean(0)).mean())
    _, of_images = centre_and_scale(ObservedMoments.of(X.reshape(50, 3, 3) * [1.0, 2.0, 3.0]))
    assert len(set(of_images.ravel())) == 1


def test_constant_columns_are_not_divided_by_zero():
    _, scale = centre_and_scale(ObservedMoments.of(np.array([[1.0, 2.0, 0.0], [1.0, 5.0, 3.0]])))
    assert scale[0] == 1.0


def test_standardise_and_back():
    X = torch.tensor([[1.0, NAN], [3.0, 4.0]], dtype=torch.float64)
    layer = Standardise(np.array([2.0, 4.0]), np.array([0.5, 2.0]))
    expected = torch.tensor([[-2.0, NAN], [2.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(layer(X), expected, equal_nan=True)
    torch.testing.assert_close(layer.inverse(layer(X)), X, equal_nan=True)
