"""Odd samples and labels for tests, and calls that are watched while they get them."""

import pickle
import random
import warnings

import numpy as np
import pandas as pd
import polars as pl
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning

REFUSED = object()  # what a watched call returns after a ValueError or TypeError

SHAPES = (
    (0, 3), (3, 0), (1, 3), (1, 1), (5,), (), (4, 1, 5, 5), (6, 2, 8), (4, 3, 1), (2, 1, 2, 1, 2),
)  # fmt: skip
VALUES = (
    "constant", "zero", "duplicates", "constant column", 1e30, 1e-30, 1e300, 1e-310, "any size",
    "columns of any size", "far from zero", np.inf, -np.inf, "whole",
)  # fmt: skip
HOLES = ("none", "all", "a column", "a row", "all but one")
DTYPES = (
    "f2", "i1", "u1", "i8", "u8", "?", "c8", "O", "text", "words", "S8", "M8[s]", "m8[s]", "g",
    ">f8", "None", "Decimal",
)  # fmt: skip
LAYOUTS = ("F", "every second", "backwards", "columns backwards", "read-only", "one row repeated")
CONTAINERS = (
    "list", "tensor", "tensor with gradient", "frame", "frame of Float64", "frame, names twice",
    "frame, names of all kinds", "frame, odd index", "categories", "polars", "masked", "sparse",
    "matrix", "map", "dict", "None", "word", "rows of all lengths", "generator",
)  # fmt: skip
LABELS = (
    "one class", "all different", "NaN", "continuous", "None", "too few", "too many", "column",
    "matrix", "int and str", "object", "dates", "tensor", "series", "categories", "list", "bytes",
    "infinite", "complex", "nothing", "word", "polars", "huge", "whole floats", "bool",
)  # fmt: skip


def often(n_examples, request):
    """Return settings that try half of `n_examples`, alike in every run; by night ten times all."""
    nightly = request.config.getoption("--nightly")
    return settings(
        max_examples=10 * n_examples if nightly else n_examples // 2,
        deadline=None,
        derandomize=not nightly,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@st.composite
def samples(draw, shape=None, most_odd=2, arrays=False):
    """Draw samples: numbers with holes that are odd in none, one or two respects."""
    respects = st.sampled_from(("shape", "values", "holes", "dtype", "layout", "container"))
    odd = draw(st.sets(respects, max_size=most_odd))
    seed = draw(st.integers(0, 2**16))
    if shape is None:
        usual = st.tuples(st.integers(4, 12), st.integers(1, 5))
        shape = draw(st.sampled_from(SHAPES) if "shape" in odd else usual)
    values = draw(st.sampled_from(VALUES)) if "values" in odd else "usual"
    holes = draw(st.sampled_from(HOLES)) if "holes" in odd else "some"
    X = with_holes(numbers(shape, values, np.random.default_rng(seed)), holes, seed)
    X = of_dtype(X, draw(st.sampled_from(DTYPES if "dtype" in odd else ("f8", "f4"))))
    X = laid_out(X, draw(st.sampled_from(LAYOUTS)) if "layout" in odd else "C")
    if arrays or "container" not in odd:
        return X
    return contained(X, draw(st.sampled_from(CONTAINERS)))


def numbers(shape, kind, generator):
    """Return numbers of a kind of VALUES."""
    X = generator.standard_normal(shape)
    if isinstance(kind, float):
        if np.isfinite(kind):
            return X * kind
        return np.where(generator.random(shape) < 0.1, kind, X)
    if kind == "any size":
        return X * 10.0 ** generator.integers(-30, 31, shape)
    if kind == "columns of any size":
        return X * 10.0 ** generator.integers(-30, 31, shape[1:])
    if kind == "duplicates":
        return X[generator.integers(0, max(1, len(X) // 3), len(X))] if X.size and X.ndim else X
    if kind == "constant column" and X.ndim > 1 and X.shape[1]:
        X[:, 0] = 3.0
    changed = {
        "constant": np.full(shape, 7.0),
        "zero": np.zeros(shape),
        "far from zero": 1e9 + X,
        "whole": np.rint(4 * X),
    }
    return changed.get(kind, X)


def with_holes(X, kind, seed):
    """Return numbers with the holes of a kind of HOLES."""
    X = np.array(X, dtype=float)
    if kind == "none" or X.ndim == 0:
        return X
    if kind == "a column":
        X[..., :1] = np.nan
    elif kind == "a row":
        X[:1] = np.nan
    elif kind == "some":
        X[np.random.default_rng(seed + 1).random(X.shape) < 0.25] = np.nan
    else:
        first = X.flat[:1].copy()
        X[:] = np.nan
        if kind == "all but one":
            X.flat[:1] = first
    return X


def of_dtype(X, dtype):
    """Return numbers in a type of DTYPES; what has no room for holes has none."""
    if dtype in ("O", "None", "Decimal"):
        from decimal import Decimal

        objects = X.astype(object)
        if dtype == "Decimal" and X.ndim == 2:
            return np.array([[Decimal(str(x)) for x in row] for row in X]).reshape(X.shape)
        return np.where(np.isnan(X), None, objects) if dtype == "None" else objects
    if dtype == "words":
        return np.where(np.nan_to_num(X) > 0, "up", "down")
    if dtype in ("text", "S8"):
        return X.astype("U" if dtype == "text" else "S8")
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if np.dtype(dtype).kind in "iubMm":
            X = np.nan_to_num(X, posinf=9, neginf=-9).clip(-1e9, 1e9)
            X = np.abs(X) if np.dtype(dtype).kind == "u" else X
            return X.astype("i8").astype(dtype)
        return X.astype(dtype)


def laid_out(X, layout):
    """Return an array in an order in memory of LAYOUTS."""
    if X.ndim == 0 or layout == "C":
        return X
    if layout == "F":
        return np.asfortranarray(X)
    if layout == "every second":
        return np.repeat(X, 2, axis=0)[::2]
    if layout == "backwards":
        return np.ascontiguousarray(X[::-1])[::-1]
    if layout == "columns backwards":
        return np.ascontiguousarray(X[..., ::-1])[..., ::-1]
    if layout == "one row repeated" and len(X):
        return np.broadcast_to(X[0], X.shape)
    X = X.copy()
    X.setflags(write=False)
    return X


def contained(X, container):
    """Return an array as something of CONTAINERS; as it is where that has no room for it."""
    made = {
        "list": X.tolist, "masked": lambda: np.ma.masked_invalid(X),
        "sparse": lambda: sparse.csr_array(X), "matrix": lambda: _matrix(X),
        "tensor": lambda: torch.tensor(X), "tensor with gradient": lambda: _with_gradient(X),
        "dict": lambda: {"X": X}, "None": lambda: None, "word": lambda: "samples",
        "generator": lambda: (row for row in X), "polars": lambda: pl.DataFrame(X),
        "rows of all lengths": lambda: [
            np.ravel(row).tolist()[: 1 + n % 2] for n, row in enumerate(X)
        ],
    }  # fmt: skip
    try:
        if container.startswith("frame") or container == "categories":
            return _frame(X, container)
        return made[container]() if container in made else X
    except (TypeError, ValueError, AttributeError, RuntimeError, pl.exceptions.PolarsError):
        return X


def _with_gradient(X):
    return torch.tensor(X, requires_grad=True) * 1


def _matrix(X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        return np.asmatrix(X)


def _frame(X, kind):
    frame = pd.DataFrame(X).add_prefix("column ")
    if kind == "frame of Float64":
        return frame.astype("Float64")
    if kind == "frame, names twice":
        frame.columns = ["same"] * frame.shape[1]
    if kind == "frame, names of all kinds":
        frame.columns = [1, "<b>", None, 2.5, ("a", "b")][: frame.shape[1]]
    if kind == "frame, odd index":
        frame.index = ["same"] * len(frame)
    return frame.astype("category") if kind == "categories" else frame


def more_like(X):
    """Return a strategy of samples, half of them of the shape of X."""
    try:
        return st.one_of(samples(np.shape(X)), samples())
    except (TypeError, ValueError):  # rows of all lengths
        return samples()


def length(X):
    """Return how many samples there are, for labels; 5 where nobody could say."""
    try:
        return X.shape[0] if hasattr(X, "shape") else len(X)
    except (TypeError, IndexError):
        return 5


@st.composite
def labels(draw, n, odd=True):
    """Draw labels for `n` samples, about half of them usual ones of two or three classes."""
    generator = np.random.default_rng(draw(st.integers(0, 2**16)))
    y = generator.integers(0, draw(st.integers(2, 3)), n)
    y[:2] = [0, 1][:n]
    usual = (y, np.array(["a", "b", "c"])[y])
    kind = draw(st.sampled_from(LABELS)) if odd and draw(st.booleans()) else "usual"
    if kind == "usual":
        return draw(st.sampled_from(usual))
    return _odd_labels(y, kind)


def _odd_labels(y, kind):
    words = np.array(["a", "b", "c"], dtype=object)[y]
    made = {
        "one class": lambda: np.zeros_like(y), "all different": lambda: np.arange(len(y)),
        "NaN": lambda: np.where(y == 1, np.nan, y), "continuous": lambda: y + 0.5 * (y > 0),
        "None": lambda: np.where(y == 1, None, words), "too few": lambda: y[:-1],
        "too many": lambda: np.append(y, 1), "column": lambda: y[:, None],
        "matrix": lambda: np.stack([y, y], 1), "object": lambda: words,
        "int and str": lambda: np.where(y == 1, "a", y.astype(object)),
        "dates": lambda: y.astype("M8[D]"), "tensor": lambda: torch.tensor(y),
        "series": lambda: pd.Series(words, index=range(7, 7 + len(y)), dtype=object),
        "categories": lambda: pd.Series(words).astype("category"), "list": y.tolist,
        "bytes": lambda: words.astype("S1"), "infinite": lambda: np.where(y == 1, np.inf, y),
        "complex": lambda: y * 1j, "nothing": lambda: None, "word": lambda: "labels",
        "polars": lambda: pl.Series(words.astype(str)), "huge": lambda: y * 2**62,
        "whole floats": lambda: y.astype("f4"), "bool": lambda: y == 1,
    }  # fmt: skip
    return made[kind]()


def attempt(call, *given, refuses=(ValueError, TypeError), **options):
    """Return what a call returns, or REFUSED if it says that it does not take what was given.

    It may not change what it is given, nor the global random states; other errors and all
    warnings but those of scikit-learn about convergence and the form of labels come through.
    """
    before = _written((given, options)), _random_states()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DataConversionWarning)
        warnings.filterwarnings("ignore", "X (has|does not have valid) feature names")
        warnings.filterwarnings("ignore", "The least populated class in y has only")
        warnings.filterwarnings("ignore", "The number of unique classes is greater than 50%")
        try:
            result = call(*given, **options)
        except refuses as error:
            result, said = REFUSED, str(error)
    assert result is not REFUSED or said.strip(), f"{call} refused its input without a word"
    assert _written((given, options)) == before[0], f"{call} changed its input"
    assert _random_states() == before[1], f"{call} changed a global random state"
    return result


def what_was_learned(estimator):
    """Return the names of all attributes that only a fit sets."""
    return [name for name in vars(estimator) if name.endswith("_") and not name.endswith("__")]


def watching(tried, what):
    """Return `attempt`, its calls counted in plain words."""

    def watched(call, *given, **options):
        result = attempt(call, *given, **options)
        tried(f"calls with {what} that were {'refused' if result is REFUSED else 'answered'}")
        return result

    return watched


def _written(value):
    """Return the bytes of all that can be written down."""
    if isinstance(value, tuple | list):
        return [_written(part) for part in value]
    if isinstance(value, dict):
        return {name: _written(part) for name, part in value.items()}
    if isinstance(value, torch.Tensor):
        return value.detach().numpy().tobytes()
    if isinstance(value, np.ma.MaskedArray):
        return pickle.dumps((value.data, np.ma.getmaskarray(value)))
    if isinstance(value, pd.DataFrame):
        columns = [value.iloc[:, place] for place in range(value.shape[1])]
        return repr((value.columns, value.index)), [_written(column) for column in columns]
    if isinstance(value, pd.Series):
        return str(value.dtype), pickle.dumps(value.to_list())
    try:
        return pickle.dumps(value)
    except (TypeError, AttributeError, pickle.PicklingError, pl.exceptions.PolarsError):
        return repr(value)


def _random_states():
    return random.getstate(), pickle.dumps(np.random.get_state()), torch.get_rng_state().tolist()


def is_finite(result):
    """Say whether there is neither NaN nor an infinity in a result, whatever it is made of."""
    if isinstance(result, dict):
        return all(is_finite(part) for part in result.values())
    if isinstance(result, tuple | list):
        return all(is_finite(part) for part in result)
    if isinstance(result, torch.Tensor):
        return bool(result.isfinite().all())
    values = np.asarray(result)
    if values.dtype.kind in "fc":
        return bool(np.isfinite(values).all())
    return not bool(np.any(pd.isna(values)))
