"""Archives, images and tables from strangers: no code, no files elsewhere, no memory bombs."""

import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hostile import Payload, mutated
from PIL import Image
from pyarrow import parquet

from halfseen import datasets
from halfseen.archives import read_array, read_arrays, require_proportion
from halfseen.cli import main
from halfseen.table_files import read_frame

FIT = ("--epochs", "1", "--network", "logistic", "--json")


def fails(capsys, *arguments):
    """Run a command that must fail; return its one line."""
    assert main(list(map(str, arguments))) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    assert err.removesuffix("\n").isprintable()
    return err


def npy_header(shape, dtype="<f8"):
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def archive(path, compression=zipfile.ZIP_DEFLATED, **members):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)


def bomb(path, name, n_bytes, compression=zipfile.ZIP_DEFLATED):
    """Write an archive with an array of so many zeros; it is never in memory as a whole."""
    member = zipfile.ZipInfo(f"{name}.npy")
    member.compress_type = compression
    with (
        zipfile.ZipFile(path, "a") as file,
        file.open(member, "w", force_zip64=True) as stream,
    ):
        stream.write(npy_header((n_bytes // 80, 10)))
        for _ in range(n_bytes // 2**20):
            stream.write(bytes(2**20))


def test_objects_in_archives_and_images_are_not_unpickled(tmp_path, tried, capsys):
    marker = tmp_path / "executed"
    objects = np.empty((4, 3), dtype=object)
    objects[:] = Payload(marker)
    fine, labels = np.ones((4, 3)), np.array([0, 1, 0, 1])
    np.savez(tmp_path / "X.npz", X=objects, y=labels)
    np.savez(tmp_path / "y.npz", X=fine, y=objects[:, 0])
    np.savez(tmp_path / "observed.npz", X=fine, y=labels, observed=objects)
    np.savez_compressed(tmp_path / "packed.npz", X=objects, y=labels)
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps(Payload(marker)))
    for path in sorted(tmp_path.glob("*.npz")):
        assert "not an archive" in fails(capsys, "fit", path, "--out", tmp_path / "m", *FIT)
    folder = tmp_path / "images" / "a"
    folder.mkdir(parents=True)
    np.save(folder / "1.npy", objects)
    assert "as an image" in fails(capsys, "fit", folder.parent, "--out", tmp_path / "m", *FIT)
    np.savez(tmp_path / "mnist.npz", x_train=objects, y_train=1, x_test=1, y_test=1)
    with pytest.raises(ValueError, match="not an archive of images"):
        datasets.mnist(tmp_path)
    assert not marker.exists()
    np.load(tmp_path / "X.npz", allow_pickle=True)["X"]
    assert marker.exists()  # they were live
    tried("archives and arrays with pickles in them, read", 7)


def test_types_of_arrow_are_not_unpickled(tmp_path, tried):
    marker = tmp_path / "executed"
    payload = pickle.dumps(Payload(marker))
    about = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": payload,
    }
    schema = pa.schema([pa.field("x", pa.int64(), metadata=about), pa.field("y", pa.int64())])
    parquet.write_table(pa.table([[1, 2], [0, 1]], schema=schema), tmp_path / "t.parquet")
    assert read_frame(tmp_path / "t.parquet").shape == (2, 2)
    assert not marker.exists()
    tried("tables with pickles in them, read")


def test_names_in_archives_lead_nowhere(tmp_path, tried, capsys):
    inner = tmp_path / "inner"
    inner.mkdir()
    X = np.arange(20.0).reshape(10, 2)
    names = [
        "../../outside",
        "/tmp/halfseen-outside",
        "..\\outside",
        "C:\\outside",
        "a\0b",
        "\x1b[2J",
    ]
    np.savez(inner / "a.npz", X=X, y=np.array([0, 1] * 5), **dict.fromkeys(names, X))
    before = sorted(path for path in tmp_path.rglob("*"))
    assert main(["fit", str(inner / "a.npz"), "--out", str(inner / "m"), *FIT]) == 0
    assert capsys.readouterr().err == ""
    assert sorted(tmp_path.rglob("*")) == sorted([*before, inner / "m"])
    assert not os.path.exists("/tmp/halfseen-outside")
    line = fails(capsys, "fit", inner / "a.npz", "--target", "z", "--out", inner / "n", *FIT)
    assert "no array 'z'" in line
    tried("names that lead elsewhere in archives", len(names))


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_bombs_in_archives_are_refused_before_they_are_inflated(
    compression, tmp_path, tried, capsys
):
    path = tmp_path / "bomb.npz"
    archive(path, y=npy_header((1,)) + bytes(8))
    bomb(path, "X", 300 * 2**20, compression)
    assert path.stat().st_size < 2**20
    line = fails(capsys, "fit", path, "--out", tmp_path / "m", *FIT)
    assert "would become 300 MiB in memory, more than 100 times" in line
    found, names = read_arrays(path, ["y"])  # what nobody asks for is not inflated
    assert set(found) == {"y"}
    assert names == ["y", "X"]
    tried("zip bombs, refused")


def test_what_is_large_because_it_holds_much_is_read():
    require_proportion(2**28, 1)
    require_proportion(2**40, 2**34)
    with pytest.raises(ValueError, match=r"1.0 MiB would become 1024 MiB"):
        require_proportion(2**30, 2**20)


def test_arrays_that_are_larger_than_their_files_are_refused(tmp_path, tried, capsys):
    headers = [
        npy_header((2**60,)), npy_header((2**30, 2**30, 2**30)), npy_header((-1, 4)),
        npy_header((4, 2**33)), npy_header((4,), "|S1000000000"), npy_header((4,), "|V2000000000"),
        npy_header((4, 3), "<f4,<f4"), npy_header("((((" * 500), npy_header("10**10"),
        npy_header("__import__('os').getcwd()"), npy_header((4, 3), "O"), b"\x93NUMPY\x09\x00",
        npy_header((4, 3)).replace(b"\x01\x00", b"\x02\x00", 1), b"", b"\x93NUMPY",
        npy_header(()) + bytes(8),
    ]  # fmt: skip
    y = npy_header((4,)) + np.arange(4.0).tobytes()
    folder = tmp_path / "images" / "a"
    folder.mkdir(parents=True)
    for header in headers:
        path = tmp_path / "a.npz"
        archive(path, X=header + bytes(64), y=y)
        fails(capsys, "fit", path, "--out", tmp_path / "m", *FIT)
        (folder / "1.npy").write_bytes(header + bytes(64))
        fails(capsys, "fit", folder.parent, "--out", tmp_path / "m", *FIT)
    assert not (tmp_path / "m").exists()
    np.save(tmp_path / "fine.npy", np.arange(6).reshape(2, 3))
    assert read_array(tmp_path / "fine.npy").shape == (2, 3)
    tried("arrays that are not what their headers say", 2 * len(headers))


def pictures(folder, suffix=".png", **options):
    """Write four small pictures in two classes."""
    draw = np.random.default_rng(0)
    for place in range(4):
        path = folder / "ab"[place % 2] / f"{place}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(path, **options)
    return folder


def test_pictures_are_of_the_formats_that_are_named(tmp_path, tried, capsys, monkeypatch):
    from PIL import EpsImagePlugin

    ran = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *a, **k: ran.append(a))
    folder = pictures(tmp_path / "images")
    disguised = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(x) run\n"
    (folder / "a" / "0.png").write_bytes(disguised)
    line = fails(capsys, "fit", folder, "--out", tmp_path / "m", *FIT)
    assert "cannot identify image file" in line
    assert ran == []  # Pillow would have called Ghostscript
    with Image.open(folder / "a" / "0.png") as picture:
        assert picture.format == "EPS"
    tried("pictures in disguise, refused")


def test_pictures_that_are_bombs_are_refused(tmp_path, tried, capsys):
    folder = tmp_path / "images" / "a"
    folder.mkdir(parents=True)
    for place in range(2):  # 2 × 140 million pixels out of 2 × 17 kB
        Image.new("1", (9000, 9000)).save(folder / f"{place}.png")
    Image.new("RGB", (7500, 7500)).save(folder / "large.png", compress_level=9)
    line = fails(capsys, "fit", folder.parent, "--out", tmp_path / "m", *FIT)
    assert "more than 100 times" in line
    for path in folder.iterdir():
        path.unlink()
    Image.new("1", (20_000, 20_000)).save(folder / "0.png")
    assert "decompression bomb" in fails(
        capsys, "fit", folder.parent, "--out", tmp_path / "m", *FIT
    )
    tried("pictures that are bombs, refused", 2)


def test_links_in_folders_of_pictures(tmp_path, tried, capsys):
    folder, outside = pictures(tmp_path / "images"), pictures(tmp_path / "outside")
    (folder / "a" / "linked.png").symlink_to(outside / "a" / "0.png")
    (folder / "c").symlink_to(outside / "b")  # a class that is elsewhere, as people have them
    (folder / "a" / "up").symlink_to(folder)  # in a circle
    os.mkfifo(folder / "a" / "pipe.png")
    assert main(["fit", str(folder), "--out", str(tmp_path / "m"), *FIT]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["classes"] == ["a", "b", "c"]
    assert record["rows"] == 7
    (folder / "a" / "broken.png").symlink_to(tmp_path / "nothing")
    line = fails(capsys, "fit", folder, "--out", tmp_path / "m", *FIT)
    assert "broken.png" in line
    tried("links and pipes in folders of pictures", 5)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".bmp", ".tif", ".npz", ".csv", ".parquet"])
def test_mutated_data_files_end_in_one_line_or_work(suffix, tmp_path, tried, times, capsys):
    place = whole = tmp_path / f"data{suffix}"
    X = np.random.default_rng(0).standard_normal((12, 3))
    y = np.array([0, 1] * 6)
    if suffix == ".npz":
        np.savez_compressed(whole, X=X, y=y)
    elif suffix in (".csv", ".parquet"):
        frame = pd.DataFrame(X, columns=list("abc")).assign(y=y, text="some")
        frame.to_csv(whole) if suffix == ".csv" else frame.to_parquet(whole)
    else:
        whole = pictures(tmp_path / "images", suffix)
        place = whole / "a" / f"0{suffix}"
    content, n_tried, n_failed = place.read_bytes(), times(12, 200), 0
    target = ("--target", "y") if suffix in (".csv", ".parquet") else ()
    for seed in range(n_tried):
        place.write_bytes(mutated(content, f"{suffix} {seed}"))
        status = main(["fit", str(whole), *target, "--out", str(tmp_path / "m"), *FIT])
        err = capsys.readouterr().err
        assert status in (0, 2)
        assert err.count("\n") == (status == 2), err
        assert "see --debug" not in err, err
        n_failed += status == 2
    assert n_failed > 0
    tried("mutated archives, pictures and tables, learned from", n_tried)


def test_tables_that_promise_many_rows_are_refused(tmp_path, tried):
    ones = pa.array(np.zeros(40_000_000, dtype=np.int8))
    parquet.write_table(pa.table({"x": ones}), tmp_path / "long.parquet", compression="zstd")
    assert (tmp_path / "long.parquet").stat().st_size < 2**20
    with pytest.raises(ValueError, match="would become 305 MiB"):
        read_frame(tmp_path / "long.parquet")
    tried("tables that are bombs, refused")


MEASURE = """
import json, sys
from pathlib import Path
from halfseen.archives import read_arrays

def peak():
    with open("/proc/self/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return int(lines["VmPeak"].split()[0]) * 1024

before = peak()
for path in sys.argv[1:]:
    try:
        read_arrays(Path(path), ["X", "y"])
    except ValueError:
        pass
print(peak() - before)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read from /proc")
def test_archives_that_are_bombs_take_no_memory(tmp_path, tried):
    bomb(tmp_path / "bomb.npz", "X", 300 * 2**20)
    archive(tmp_path / "huge.npz", X=npy_header((2**34,)) + bytes(64))
    paths = [str(path) for path in sorted(tmp_path.iterdir())]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *paths], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 2**25
    tried("archives that promise more than they hold, memory measured", len(paths))
