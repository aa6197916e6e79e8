"""Odd arrays and tensors into tilings, the layer and the paper's conditions."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from odd_input import REFUSED, is_finite, often, samples, watching

from halfseen import Channels, Patches, Whole, certificates
from halfseen.nn import SparseCompletion

IMAGES = st.tuples(st.integers(4, 8), st.integers(1, 3), st.just(8), st.just(8))
TILINGS = (Whole(), Channels(), Patches(4, 4), Patches((3, 8), (2, 1)))


def test_conditions(tried, request):
    watched = watching(tried, "odd arrays")
    shapes = ((2, 3), (2,), (4, 3), (4, 3), (4, 3))

    @often(60, request)
    @given(st.data())
    def one(data):
        torch.manual_seed(0)
        wrong = data.draw(st.sets(st.integers(0, 4), max_size=1))
        given_ = [
            data.draw(tensors((5, 1) if n in wrong else shape, n == 4))
            for n, shape in enumerate(shapes)
        ]
        sound = data.draw(st.booleans())
        X, reconstruction, observed = given_[2:]
        for condition in (certificates.type_one, certificates.type_two):
            check_condition(watched(condition, *given_, sound=sound))
        isometry = data.draw(st.sampled_from(([0.5, 0, 0.9, 0.1], [1.0] * 4, [0.5] * 3)))
        sparsity = data.draw(st.sampled_from((1, 2, 0, -1, 2.5)))
        check_condition(watched(certificates.rip_based, *given_, isometry, sparsity, sound=sound))
        layers = torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)
        network = torch.nn.Sequential(*layers[: data.draw(st.integers(0, 3))]).double()
        check_condition(
            watched(certificates.multilayer, network, X, reconstruction, observed, sound=sound)
        )
        for isometry in (
            certificates.isometry_exactly,
            certificates.isometry_by_coherence,
            certificates.isometry_by_sampling,
        ):
            found = watched(isometry, X, sparsity)
            assert found is REFUSED or is_finite(found)

    one()


@st.composite
def tensors(draw, shape, boolean):
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    if boolean:
        return values > 0
    size = draw(st.sampled_from((1.0, 1.0, 1.0, 1e30, 1e-30, 0.0, np.nan, np.inf)))
    return values * size


def check_condition(found):
    if found is not REFUSED:
        assert found.margin.shape == found.bound.shape == found.holds.shape == (4,)
        assert not found.margin.isnan().any()
        assert not found.bound.isnan().any()


def test_layer(tried, request):
    watched = watching(tried, "odd arrays")

    @often(60, request)
    @given(st.data())
    def one(data):
        torch.manual_seed(0)
        shape = data.draw(st.sampled_from(((3,), (1, 4, 4), (2, 6))))
        layer = SparseCompletion(
            data.draw(st.sampled_from((Whole(), Channels()) if len(shape) > 1 else (Whole(),))),
            data.draw(st.integers(1, 4)),
            shape,
            output=data.draw(st.sampled_from(("completed", "reconstruction"))),
            positive=data.draw(st.booleans()),
            dtype=data.draw(st.sampled_from((torch.float32, torch.float64))),
        )
        n_samples = data.draw(st.integers(0, 6))
        X = data.draw(st.one_of(samples((n_samples, *shape)), samples()))
        if watched(layer.learn, X, n_steps=3, random_state=0) is not REFUSED:
            assert is_finite(list(layer.state_dict().values()))
        if isinstance(X, np.ndarray) and X.dtype in (np.float32, np.float64):
            X = torch.from_numpy(X.copy())
        found = watched(layer, X, details=True)
        if found is not REFUSED:
            assert found.completed.shape == found.reconstruction.shape == X.shape
            sound = ~X.isinf().flatten(1).any(1)
            assert is_finite([part[sound] for part in found])
            sound &= ~X.to(layer.atoms).isinf().flatten(1).any(1)  # float64 may be too large
            values, observed = X[sound].nan_to_num().to(layer.atoms), ~X[sound].isnan()
            problem = layer.problem(values, observed, layer.dictionary)
            assert is_finite(list(layer.complete(values, observed)))
            codes = layer.encode(values, observed)
            assert len(problem.X) == codes.shape[0] * codes.shape[1]
            layer.normalise_atoms()
            assert is_finite(layer.reconstruct(codes))

    one()


def test_tilings(tried, request):
    watched = watching(tried, "odd arrays")

    shapes = st.sampled_from(
        ((8,), (8, 8), (3, 8, 8), (3, 9, 10), (), (0, 8), (-1, 8), 8, "8", (8.5,))
    )

    @often(100, request)
    @given(st.data())
    def one(data):
        tiling = data.draw(st.sampled_from(TILINGS))
        X = data.draw(st.one_of(samples(data.draw(IMAGES)), samples()))
        tiles = watched(tiling.split, X)
        if tiles is not REFUSED:
            back = watched(tiling.merge, tiles, np.shape(X)[1:])
            assert back is REFUSED or back.shape == np.shape(X)
        watched(tiling.merge, X, (1, 8, 8))
        layout = watched(tiling.layout, data.draw(shapes))
        assert layout is REFUSED or (layout.ndim == 2 and layout.min() == 0)

    one()
