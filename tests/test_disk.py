"""Samples that stay on the disk: the same results, little memory, nothing left behind."""

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet
import pytest
import torch
from sklearn.datasets import load_digits

from halfseen import SparseCodingClassifier, SparseCodingImputer, ampute, disk, rivals
from halfseen.disk import DiskRows, MappedRows, PickedRows, give_back, map_under

FEATURES = [f"pixel{i}" for i in range(64)]


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    X = ampute(X[:500].astype(np.float32), "random", 0.5, random_state=0)
    return X, np.array(["low", "middle", "high"])[y[:500] // 4]


@pytest.fixture
def mapped(digits, tmp_path):
    np.save(tmp_path / "X.npy", digits[0])
    return np.load(tmp_path / "X.npy", mmap_mode="r")


@pytest.fixture
def dataset(digits, tmp_path):
    X, y = digits
    folder = tmp_path / "parts"
    folder.mkdir()
    for start in range(0, 500, 180):
        some = slice(start, start + 180)
        columns = {n: pa.array(X[some, i], from_pandas=True) for i, n in enumerate(FEATURES)}
        table = pa.table({"kind": y[some], **columns})
        pa.parquet.write_table(table, folder / f"{start:04}.parquet", row_group_size=70)
    return pa.dataset.dataset(folder, format="parquet")


@pytest.mark.parametrize("training", ["task", "sequential", "joint", "published"])
def test_learning_from_a_file_is_learning_from_its_array(digits, mapped, training, monkeypatch):
    X, y = digits
    settings = {"training": training, "n_epochs": 3, "random_state": 0}
    expected = SparseCodingClassifier(**settings, validation_fraction=0.2).fit(X, y)
    monkeypatch.setattr(disk, "_IN_MEMORY", 1000)  # codes and completed samples too
    clf = SparseCodingClassifier(**settings, validation_fraction=0.2).fit(mapped, y)
    np.testing.assert_allclose(clf.predict_proba(mapped), expected.predict_proba(X), atol=1e-4)
    np.testing.assert_allclose(clf.impute(mapped), expected.impute(X), atol=1e-2)
    np.testing.assert_array_equal(mapped, X)


def test_a_killed_training_with_codes_on_disk_goes_on(digits, mapped, tmp_path, monkeypatch):
    from halfseen.training import loop

    monkeypatch.setattr(disk, "_IN_MEMORY", 1000)
    clf = SparseCodingClassifier(training="joint", n_epochs=3, random_state=0)
    expected = clf.fit(mapped, digits[1]).predict_proba(mapped)

    class StopError(Exception):
        pass

    def save_then_stop(*arguments, save=loop._save):
        save(*arguments)
        raise StopError

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_save", save_then_stop)
        with pytest.raises(StopError):
            clf.fit(mapped, digits[1], checkpoint=tmp_path / "c")
    found = clf.fit(mapped, digits[1], checkpoint=tmp_path / "c").predict_proba(mapped)
    np.testing.assert_array_equal(found, expected)


def test_a_parquet_dataset_is_learned_from_by_column_names(digits, dataset):
    X, y = digits
    settings = {"n_epochs": 3, "random_state": 0}
    expected = SparseCodingClassifier(**settings).fit(X, y)
    clf = SparseCodingClassifier(**settings).fit(dataset, "kind")
    assert clf.feature_names_in_.tolist() == FEATURES
    assert clf.classes_.tolist() == ["high", "low", "middle"]
    np.testing.assert_allclose(clf.predict_proba(dataset), expected.predict_proba(X), atol=1e-4)
    # Other columns and another order do not matter, only names do.
    again = SparseCodingClassifier(**settings).fit(dataset.replace_schema(dataset.schema), "kind")
    backwards = pa.schema(list(dataset.schema)[::-1])
    np.testing.assert_allclose(
        again.predict_proba(dataset.replace_schema(backwards)),
        clf.predict_proba(dataset),
        atol=1e-6,
    )
    with pytest.raises(ValueError, match="no column 'pixel3'"):
        clf.predict(pa.dataset.dataset(dataset.to_table().drop_columns(["pixel3"])))


def test_datasets_that_cannot_be_learned_from_are_refused(dataset, tmp_path):
    clf = SparseCodingClassifier(n_epochs=1)
    with pytest.raises(ValueError, match="no column 'label'; it has 'kind', 'pixel0'"):
        clf.fit(dataset, "label")
    with pytest.raises(ValueError, match="column 'kind' has type string"):
        clf.fit(dataset, np.zeros(500))
    with pytest.raises(ValueError, match="needs samples in memory"):
        rivals.mean_fill().fit(dataset, "kind")
    table = pa.table({"a": [1.0, 2.0], "b": [1, 2], "y": pa.array(["x", None])})
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="'y' has 1 missing"):
        clf.fit(pa.dataset.dataset(tmp_path / "t.parquet"), "y")
    pa.parquet.write_table(table.slice(0, 0), tmp_path / "empty.parquet")
    with pytest.raises(ValueError, match="no rows"):
        clf.fit(pa.dataset.dataset(tmp_path / "empty.parquet").replace_schema(
            pa.schema([("a", pa.float64())])), np.zeros(0))  # fmt: skip


def test_datasets_of_any_kind_are_read_alike(tmp_path):
    from halfseen.parquet import spooled

    columns = {
        "a": pa.array([1, None, 3], pa.int32()),
        "b": pa.array([True, None, False]),
        "c": pa.array([1.5, None, 2.5], pa.float32()),
        "d": pa.array([1, None, 2]).cast(pa.decimal128(30, 2)),
    }
    expected = np.array([[1, 1, 1.5, 1], [np.nan] * 4, [3, 0, 2.5, 2]])
    table = pa.table(columns)
    pa.parquet.write_to_dataset(
        table.append_column("part", pa.array([7, 7, 7])), tmp_path / "p", partition_cols=["part"]
    )
    pa.csv.write_csv(table.drop_columns(["d"]), tmp_path / "t.csv")
    for dataset, names in (
        (pa.dataset.dataset(table), list("abcd")),
        (pa.dataset.dataset(tmp_path / "p", partitioning="hive"), list("abcd")),
        (pa.dataset.dataset(tmp_path / "t.csv", format="csv"), list("abc")),
    ):
        found = spooled(dataset, names)
        np.testing.assert_array_equal(found[:], expected[:, : len(names)])
        assert found.columns == names
    parted = spooled(pa.dataset.dataset(tmp_path / "p", partitioning="hive"), ["c", "part"])
    np.testing.assert_array_equal(parted[:], np.column_stack([expected[:, 2], [7, 7, 7]]))
    assert spooled(pa.dataset.dataset(table.select(["c"])), ["c"]).dtype == np.float32


def test_the_imputer_learns_from_files_too(digits, mapped, dataset):
    X, _ = digits
    expected = SparseCodingImputer(n_steps=30, random_state=0).fit(X)
    imputer = SparseCodingImputer(n_steps=30, random_state=0).fit(mapped)
    np.testing.assert_allclose(imputer.transform(mapped), expected.transform(X), atol=1e-3)
    columns = dataset.replace_schema(pa.schema([dataset.schema.field(n) for n in FEATURES]))
    imputer = SparseCodingImputer(n_steps=30, random_state=0).fit(columns)
    np.testing.assert_allclose(imputer.transform(dataset), expected.transform(X), atol=1e-3)


def test_rows_come_as_asked_and_infinities_are_named(mapped, tmp_path):
    rows = MappedRows(mapped)
    order = np.random.default_rng(0).permutation(500)
    np.testing.assert_array_equal(rows[order], mapped[order])
    np.testing.assert_array_equal(rows[-3:], mapped[-3:])
    np.testing.assert_array_equal(np.asarray(rows), mapped)
    picked = PickedRows(rows, order).part(slice(10, 20))
    np.testing.assert_array_equal(picked[np.array([3, 1])], mapped[order[[13, 11]]])
    np.testing.assert_array_equal(picked.as_stored()[:], mapped[np.sort(order[10:20])])
    for kind in (np.int16, np.float16, np.dtype(">f4")):  # as arrays in memory
        small = np.lib.format.open_memmap(tmp_path / "i.npy", "w+", kind, (9, 2))
        assert MappedRows(small)[:].dtype == np.float64
    broken = np.lib.format.open_memmap(tmp_path / "f.npy", "w+", np.float32, (9, 2))
    broken[7, 1] = np.inf
    for bad in (slice(5, 9), np.array([1, 7])):
        with pytest.raises(ValueError, match="infinity in row 7"):
            MappedRows(broken)[bad]
    with pytest.raises(ValueError, match="infinity in row 7"):
        SparseCodingClassifier().fit(broken, np.arange(9) % 2)
    with pytest.raises(ValueError, match="numbers were expected"):
        MappedRows(np.memmap(tmp_path / "s", "S3", "w+", shape=(4, 2)))
    with pytest.raises(ValueError, match="shape"):
        MappedRows(np.memmap(tmp_path / "v", "f4", "w+", shape=(4,)))


def test_the_mask_of_a_masked_map_is_kept(digits, mapped):
    X, _ = digits
    hidden = np.isnan(X)
    file = np.lib.format.open_memmap(
        str(mapped.filename).replace("X.npy", "Y.npy"), "w+", X.dtype, X.shape
    )
    file[:] = np.where(hidden, 1000, X)
    imputer = SparseCodingImputer(n_steps=2, random_state=0).fit(np.ma.array(file, mask=hidden))
    np.testing.assert_allclose(imputer.mean_, np.nanmean(X, axis=0), rtol=1e-5)


def test_parts_of_files_and_filtered_datasets_give_what_they_show(dataset, tmp_path):
    from halfseen.parquet import spooled

    file = tmp_path / "parts" / "0000.parquet"
    (fragment,) = pa.dataset.dataset(file).get_fragments()
    some = pa.dataset.FileSystemDataset(
        fragment.split_by_row_group()[1:2], dataset.schema, dataset.format, dataset.filesystem
    )
    expected = some.to_table(columns=["pixel20"]).column(0).to_numpy()
    np.testing.assert_array_equal(spooled(some, ["pixel20"])[:][:, 0], expected)
    filtered = dataset.filter(pa.dataset.field("kind") == "high")
    expected = filtered.to_table(columns=["pixel20"]).column(0).to_numpy()
    np.testing.assert_array_equal(spooled(filtered, ["pixel20"])[:][:, 0], expected)


def test_changes_of_a_private_map_are_kept(tmp_path):
    np.save(tmp_path / "X.npy", np.zeros((1000, 10), np.float32))
    private = np.load(tmp_path / "X.npy", mmap_mode="c")
    private[500] = 7
    assert MappedRows(private)[np.array([500])].sum() == 70
    give_back(map_under(private[400:]))
    assert (private[500] == 7).all()
    assert map_under(np.zeros(3)) is None
    assert map_under(np.asarray(private)) is private


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_on_disk_are_a_tensor(dtype):
    stored = DiskRows((300, 2, 3), dtype, torch.device("cpu"))
    memory = torch.zeros(300, 2, 3, dtype=dtype)
    random = torch.Generator().manual_seed(0)
    for rows in (torch.randperm(300, generator=random)[:150], slice(20, 40)):
        values = torch.randn(memory[rows].shape, generator=random, dtype=dtype)
        stored[rows] = values
        memory[rows] = values
    assert (stored[slice(0, 300)] == memory).all()
    order = torch.randperm(300, generator=random)
    assert (stored[order] == memory[order]).all()


def test_a_full_disk_is_told_and_nothing_stays(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(OSError, match="no room for a temporary file of .* GiB.*TMPDIR"):
        DiskRows((2**40, 1000), torch.float64, torch.device("cpu"))
    DiskRows((10, 10), torch.float64, torch.device("cpu"))
    assert os.listdir(tmp_path) == []


PEAK = """
import os, sys
import numpy as np
from halfseen import SparseCodingClassifier
from halfseen.first_dictionary import start_from_samples
start_from_samples.__kwdefaults__["n_steps"] = 20  # it is not about that
X, training = np.load(sys.argv[1], mmap_mode="r"), sys.argv[2]
y = np.arange(len(X)) % 3
settings = {"n_atoms": 64 if training == "joint" else 16, "n_epochs": 1, "batch_size": 1000}
clf = SparseCodingClassifier(training=training, random_state=0, **settings)
clf.fit(np.array(X[:600]), y[:600])  # what compilers and libraries take is not meant
import halfseen.disk
halfseen.disk._IN_MEMORY = 2**24
def resident(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key))
before = resident("VmRSS")
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
clf.fit(X, y)
print(resident("VmHWM") - before)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="needs Linux's /proc")
@pytest.mark.parametrize("training", ["sequential", "joint"])
def test_memory_does_not_grow_with_the_file(training, tmp_path):
    """A file of 240 MB, of which a copy must not be made, nor of what is learned from it."""
    X = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", np.float32, (200_000, 300))
    random = np.random.default_rng(0)
    for start in range(0, len(X), 10_000):
        part = random.standard_normal((10_000, 300), dtype=np.float32)
        part[random.random(part.shape) < 0.8] = np.nan
        X[start : start + 10_000] = part
    X.flush()
    command = [sys.executable, "-c", PEAK, str(tmp_path / "X.npy"), training]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(result.stdout) < 200 * 1024  # KiB


def test_the_name_of_a_folder_counts_more_than_its_files(tmp_path):
    from halfseen.parquet import spooled

    for part in (1, 2):
        (tmp_path / f"part={part}").mkdir()
        table = pa.table({"a": [1.0, 2.0], "part": pa.array([7, 7], pa.int32())})
        pa.parquet.write_table(table, tmp_path / f"part={part}" / "0.parquet")
    dataset = pa.dataset.dataset(tmp_path, partitioning="hive")
    expected = dataset.to_table().to_pandas()[["a", "part"]]
    np.testing.assert_array_equal(spooled(dataset, ["a", "part"])[:], expected)
    assert set(expected["part"]) == {1, 2}
