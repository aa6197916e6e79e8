from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets

from halfseen import datasets


def test_digits_are_scikit_learns_in_their_order():
    X, y = datasets.digits()
    bunch = sklearn.datasets.load_digits()
    assert X.shape == (1797, 1, 8, 8)
    assert X.dtype == np.float32
    np.testing.assert_array_equal(X[:, 0] * 16, bunch.images)
    np.testing.assert_array_equal(y, bunch.target)


@pytest.mark.parametrize(("sparsity", "separation"), [(4, 0.0), (4, 0.2), (32, 0.2), (1, 0.0)])
def test_synthetic_data_are_as_in_the_paper(sparsity, separation):
    data = datasets.synthetic(3000, 60, 120, sparsity, separation, random_state=0)
    np.testing.assert_allclose(np.linalg.norm(data.dictionary, axis=1), 1)
    np.testing.assert_allclose(np.linalg.norm(data.weights), 1)
    assert (np.count_nonzero(data.codes, axis=1) == sparsity).all()
    np.testing.assert_allclose(data.codes @ data.dictionary, data.X)
    distance = data.X @ data.weights + data.bias
    np.testing.assert_array_equal(data.y, distance > 0)
    assert np.abs(distance).min() >= separation
    assert abs(data.y.mean() - 0.5) < 0.05
    used = data.codes[data.codes != 0]
    if separation == 0:
        assert abs(used.mean()) < 0.05
        assert abs(used.std() - 1) < 0.05
    # every atom is used about equally often
    count = np.count_nonzero(data.codes, axis=0)
    assert count.min() > 0.3 * count.mean()
    again = datasets.synthetic(3000, 60, 120, sparsity, separation, random_state=0)
    np.testing.assert_array_equal(again.X, data.X)


def test_synthetic_data_refuse_what_cannot_be():
    with pytest.raises(ValueError, match="sparsity must be from 1 to n_atoms=5"):
        datasets.synthetic(10, 4, 5, 6)
    with pytest.raises(ValueError, match="separation must be from 0 to"):
        datasets.synthetic(10, 100, 200, 4, 50.0)
    with pytest.raises(ValueError, match="n_samples must be a whole number ≥ 1"):
        datasets.synthetic(0)
    with pytest.raises(ValueError, match="n_atoms must be a whole number"):
        datasets.synthetic(10, 4, 2.5)


SETS = {
    "mnist": (datasets.mnist, (28, 28), "mnist_784"),
    "fashion_mnist": (datasets.fashion_mnist, (28, 28), "Fashion-MNIST"),
    "cifar10": (datasets.cifar10, (32, 32, 3), "CIFAR_10"),
}


def arrays(shape, n_train=7, n_test=3):
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (n_train + n_test, *shape), dtype=np.uint8)
    y = random.integers(0, 10, n_train + n_test).astype(np.uint8)
    return {
        "x_train": x[:n_train], "y_train": y[:n_train], "x_test": x[n_train:], "y_test": y[n_train:]
    }  # fmt: skip


@pytest.fixture(autouse=True)
def bare_home(monkeypatch, tmp_path):
    """No archives in the user's cache, no network."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HALFSEEN_DATA", raising=False)

    def unreachable(*args, **kwargs):
        raise URLError("no route to host")

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", unreachable)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("where", ["argument", "environment", "cache"])
def test_image_sets_come_from_archives(name, where, tmp_path, monkeypatch):
    load, shape, _ = SETS[name]
    folder = {"cache": tmp_path / "home" / ".cache" / "halfseen"}.get(where, tmp_path / "data")
    folder.mkdir(parents=True)
    given = arrays(shape)
    np.savez(folder / f"{name}.npz", **given)
    if where == "environment":
        monkeypatch.setenv("HALFSEEN_DATA", str(folder))
    data = load(folder) if where == "argument" else load()
    assert data.X_train.shape == (7, *((1, 28, 28) if len(shape) == 2 else (3, 32, 32)))
    assert data.X_train.dtype == np.float32
    assert 0 <= data.X_train.min() < data.X_train.max() <= 1
    back = np.rint(data.X_test * 255)
    back = back[:, 0] if len(shape) == 2 else back.transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(back, given["x_test"])
    np.testing.assert_array_equal(data.y_train, given["y_train"])
    assert data.y_train.dtype == np.int64


@pytest.mark.parametrize("name", SETS)
def test_without_an_archive_openml_is_asked(name, monkeypatch):
    load, shape, openml_name = SETS[name]
    n_train = 50_000 if name == "cifar10" else 60_000
    monkeypatch.setattr(datasets, "_image_set", _with_short_split(datasets._image_set))
    given = arrays(shape)
    images = np.concatenate([given["x_train"], given["x_test"]])
    flat = images.transpose(0, 3, 1, 2) if images.ndim == 4 else images
    labels = np.concatenate([given["y_train"], given["y_test"]]).astype(str)
    asked = {}

    def fetch(name, **settings):
        asked.update(settings, name=name)
        return SimpleNamespace(data=flat.reshape(10, -1).astype(float), target=labels)

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    data = load()
    assert asked["name"] == openml_name
    assert _seen_split == [n_train]
    assert len(data.X_train) == 7
    back = np.rint(data.X_test * 255)
    back = back[:, 0] if len(shape) == 2 else back.transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(back, given["x_test"])
    np.testing.assert_array_equal(data.y_test, given["y_test"])


_seen_split: list[int] = []


def _with_short_split(function):
    def short(name, openml_name, image_shape, n_train, folder):
        _seen_split[:] = [n_train]
        return function(name, openml_name, image_shape, 7, folder)

    return short


@pytest.mark.parametrize("name", SETS)
def test_without_archive_and_network_the_error_says_what_to_do(name, tmp_path):
    load = SETS[name][0]
    with pytest.raises(FileNotFoundError, match=f"no route to host.*{name}.npz.*HALFSEEN_DATA"):
        load()
    with pytest.raises(FileNotFoundError, match=f"{name}.npz' does not exist.*HALFSEEN_DATA"):
        load(tmp_path)


def test_damaged_archives(tmp_path):
    path = tmp_path / "mnist.npz"
    good = arrays((28, 28))
    np.savez_compressed(path, **good)
    whole = path.read_bytes()
    for damaged in (b"", b"no archive", whole[: len(whole) // 2], whole[:-30]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"mnist.npz' is not an archive of images"):
            datasets.mnist(tmp_path)
    with path.open("wb") as file:  # an array, not an archive
        np.save(file, good["x_train"])
    with pytest.raises(ValueError, match=r"mnist.npz' is not an archive of images"):
        datasets.mnist(tmp_path)
    flipped = bytearray(whole)
    flipped[400] ^= 255
    path.write_bytes(bytes(flipped))
    with pytest.raises(ValueError, match=r"mnist.npz' is not an archive of images"):
        datasets.mnist(tmp_path)
    for (key, array), message in [
        (("y_test", None), "it lacks y_test"),
        (("x_train", np.zeros((7, 28, 27), np.uint8)), r"x_train must be unsigned bytes"),
        (("x_test", np.zeros((3, 28, 28))), r"x_test must be unsigned bytes.*float64"),
        (("y_train", np.zeros(5, np.uint8)), r"with labels uint8 of shape \(5,\)"),
        (("y_train", np.array(["a"] * 7)), r"mnist.npz'.*labels <U1"),
        (("y_train", np.full(7, np.nan)), r"mnist.npz'.*labels float64"),
        (("x_train", np.array([{}] * 7, dtype=object)), "is not an archive of images"),
    ]:
        changed = {**good, key: array}
        np.savez(path, **{key: array for key, array in changed.items() if array is not None})
        with pytest.raises(ValueError, match=message):
            datasets.mnist(tmp_path)


FRAME = pd.DataFrame(
    {"a": [1.0, np.nan, 3.0], "b": [4, 5, 6], "flag": [True, False, True], "label": list("xyx")}
)


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet"])
def test_tables(kind, tmp_path):
    path = tmp_path / f"table.{kind}"
    {
        "csv": lambda: FRAME.to_csv(path, index=False),
        "tsv": lambda: FRAME.to_csv(path, index=False, sep="\t"),
        "parquet": lambda: FRAME.to_parquet(path),
    }[kind]()
    X, y = datasets.table(path, "label")
    assert list(X.columns) == ["a", "b", "flag"]
    np.testing.assert_array_equal(X["a"], FRAME["a"])
    np.testing.assert_array_equal(X["flag"], [1.0, 0.0, 1.0])
    assert (X.dtypes == np.float64).all()
    assert list(y) == ["x", "y", "x"]


def test_spellings_of_holes(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b,y\n?,1,0\nNA,-,1\n,nan,0\n2.5,null,1\n")
    X, _ = datasets.table(path, "y")
    np.testing.assert_array_equal(X["a"], [np.nan, np.nan, np.nan, 2.5])
    np.testing.assert_array_equal(X["b"], [1, np.nan, np.nan, np.nan])


def test_labels_may_look_like_holes(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a, b,flag,y\n1, ?,True,+\n\t2, 3,,-\n\tnan, 5,False,None\n")
    X, y = datasets.table(path, "y")
    assert list(y) == ["+", "-", "None"]
    np.testing.assert_array_equal(X["a"], [1, 2, np.nan])  # tabs are blanks, as in real tables
    np.testing.assert_array_equal(X["b"], [np.nan, 3, 5])
    np.testing.assert_array_equal(X["flag"], [1, np.nan, 0])


def test_damaged_parquet_files_are_named(tmp_path):
    path = tmp_path / "t.parquet"
    FRAME.to_parquet(path)
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        flipped = bytearray(whole)
        flipped[place] ^= 0xFF
        path.write_bytes(bytes(flipped))
        try:
            datasets.table(path, "label")
        except ValueError as error:
            assert "t.parquet'" in str(error)  # noqa: PT017


def test_bad_tables_are_named_with_file_and_column(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,red\n2,blue\n")
    with pytest.raises(ValueError, match=r"t.csv' has no column 'label'; its columns are 'a', 'b'"):
        datasets.table(path, "label")
    with pytest.raises(ValueError, match=r"column 'b' of .*t.csv' is not numeric.*'red'"):
        datasets.table(path, "a")
    path.write_text("a,y\n1,0\n2,\n")
    with pytest.raises(ValueError, match="no label in 1 rows, the first is row 1"):
        datasets.table(path, "y")
    for text in ("", 'a,b\n"1,2\n3'):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"t.csv' (cannot be read as a table|has no column)"):
            datasets.table(path, "y")
    path.write_text("a,b,y\n1,2,0,7\n3,4,1,8\n")
    with pytest.raises(ValueError, match="more fields than its header"):
        datasets.table(path, "y")
    path.write_text("a,y\n")
    with pytest.raises(ValueError, match="has 0 rows and 1 columns"):
        datasets.table(path, "y")
    path.write_bytes(b"a,y\n\xff\xfe\x00,1\n")
    with pytest.raises(ValueError, match="cannot be read as a table"):
        datasets.table(path, "y")
    parquet = tmp_path / "t.parquet"
    parquet.write_bytes(b"PAR1 nothing")
    with pytest.raises(ValueError, match="cannot be read as a table"):
        datasets.table(parquet, "y")
    with pytest.raises(ValueError, match=r"must end in .csv, .tsv or .parquet"):
        datasets.table(tmp_path / "t.xls", "y")
    with pytest.raises(FileNotFoundError):
        datasets.table(tmp_path / "absent.csv", "y")
