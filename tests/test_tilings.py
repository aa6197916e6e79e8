import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

from halfseen import Channels, Patches, SparseCodingClassifier, SparseCodingImputer, Whole
from halfseen.nn import SparseCompletion
from halfseen.tilings import Tiling

CASES = [
    (Whole(), (7,)),
    (Whole(), (2, 5, 6)),
    (Channels(), (3, 5, 6)),
    (Channels(), (4, 9)),
    (Patches(3), (5, 6)),
    (Patches(3, 2), (2, 6, 7)),  # the last patches are moved back to the edge
    (Patches((2, 3), (2, 1)), (3, 7, 4)),
    (Patches((4,), (3,)), (11,)),
    (Patches((4,), 3), (2, 11)),
    (Patches((2, 2, 2)), (3, 4, 3)),
    (Patches((5, 6)), (5, 6)),
]


@pytest.mark.parametrize(("tiling", "shape"), CASES, ids=str)
def test_merge_undoes_split(tiling, shape):
    X = np.random.default_rng(0).standard_normal((4, *shape))
    np.testing.assert_allclose(tiling.merge(tiling.split(X), shape), X, rtol=1e-15)
    tensor = torch.from_numpy(X).float()
    tiles = tiling.split(tensor)
    assert isinstance(tiles, torch.Tensor)
    assert tiles.dtype == torch.float32
    torch.testing.assert_close(tiling.merge(tiles, shape), tensor)


@pytest.mark.parametrize(("tiling", "shape"), CASES, ids=str)
def test_every_feature_is_in_a_tile_and_at_most_once_in_each(tiling, shape):
    layout = tiling.layout(shape)
    assert set(layout.flatten().tolist()) == set(range(int(np.prod(shape))))
    assert all(len(set(row)) == len(row) for row in layout.tolist())


def test_patches_are_those_of_unfold():
    X = torch.randn(3, 2, 9, 11, generator=torch.Generator().manual_seed(0))
    tiles = Patches((3, 5), (2, 3)).split(X)
    torch.testing.assert_close(tiles, F.unfold(X, (3, 5), stride=(2, 3)).transpose(1, 2))


def test_merge_averages_tiles_that_disagree():
    # Windows [0, 1], [1, 2]: feature 1 is in both.
    merged = Patches((2,), 1).merge(np.array([[[1.0, 2.0], [4.0, 5.0]]]), (3,))
    np.testing.assert_allclose(merged, [[1.0, 3.0, 5.0]])


def test_windows_reach_the_end_of_a_signal():
    signal = np.arange(10.0)[None]
    np.testing.assert_array_equal(
        Patches((4,), 4).split(signal)[0], [[0, 1, 2, 3], [4, 5, 6, 7], [6, 7, 8, 9]]
    )


def test_holes_stay_where_they_are():
    X = np.arange(12.0).reshape(1, 3, 4)
    X[0, 1, 2] = np.nan
    tiles = Patches(2).split(X)
    np.testing.assert_array_equal(np.isnan(tiles), tiles != tiles)
    assert np.isnan(tiles).sum() == 4  # the hole is inside four patches
    np.testing.assert_array_equal(Patches(2).merge(tiles, (3, 4)), X)


def test_split_and_merge_pass_gradients():
    tiling = Patches((2, 2), (2, 1))
    X = torch.randn(2, 2, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(tiling.split, (X,))
    tiles = tiling.split(X.detach()).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: tiling.merge(t, (2, 3, 4)), (tiles,))


def test_a_layout_may_be_written_to():
    Patches(2).layout((3, 3))[:] = 0
    assert Patches(2).layout((3, 3)).max() == 8


def test_tilings_with_the_same_settings_are_equal():
    assert Patches(8, 4) == Patches((8, 8), (4, 4)) != Patches(8, 2)
    assert Patches(np.int64(8), np.int32(4)) == Patches(8, 4)
    assert Whole() == Whole()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Patches(0), "size must be a whole number"),
        (lambda: Patches(2.5), "size must be a whole number"),
        (lambda: Patches((3, 3), (1, 1, 1)), "stride must be"),
        (lambda: Patches(2, 3), r"stride \(3, 3\) is larger than size \(2, 2\).*lost"),
        (lambda: Patches(8).split(np.ones((2, 3, 4, 5, 6))), r"needs samples with 2 axes.*got"),
        (lambda: Patches(8).split(np.ones((2, 4, 5))), r"does not fit into samples"),
        (lambda: Channels().split(np.ones((2, 5))), r"\(channels, ...\).*got \(5,\)"),
        (lambda: Whole().split(np.ones(5)), r"\(n_samples, ...\); got shape \(5,\)"),
        (lambda: Patches((2,)).merge(np.ones((1, 3, 2)), (3,)), r"2 tiles of 2 features"),
    ],
)  # fmt: skip
def test_wrong_shapes_are_explained(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_a_layout_asked_for_among_fake_tensors_is_real_later():
    with FakeTensorMode():
        Patches(3, 2).layout((5, 11))
    assert Patches(3, 2).layout((5, 11)).sum() > 0


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (torch.tensor([[0, 1]]), "the features 0 to 2.*got 2, from 0 to 1"),
        (torch.tensor([[0, 1, 3]]), "the features 0 to 2.*got 3, from 0 to 3"),
        (torch.tensor([[0, -1, 1]]), "the features 0 to 2.*got 3, from -1 to 1"),
        (torch.tensor([[0, 1, 1], [0, 1, 2]]), "a feature twice in one tile"),
        (torch.tensor([0, 1, 2]), r"\(n_tiles, n_tile_features\); got torch.int64 of shape \(3,\)"),
        (torch.tensor([[0.0, 1, 2]]), "an int64 tensor.*got torch.float32"),
    ],
)
def test_a_tiling_of_ones_own_that_loses_features_is_refused(layout, message):
    class Own(Tiling):
        def layout(self, sample_shape):
            return layout

    X = np.random.default_rng(0).random((20, 3))
    for make in (
        lambda: SparseCompletion(Own(), 2, (3,)),
        lambda: SparseCodingImputer(tiling=Own(), n_steps=2).fit(X),
        lambda: SparseCodingClassifier(tiling=Own(), n_epochs=1).fit(X, X[:, 0] > 0.5),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_a_layer_is_made_among_fake_tensors():
    with FakeTensorMode():
        assert SparseCompletion(Patches(2), 4, (3, 3)).layout.shape == (4, 4)
