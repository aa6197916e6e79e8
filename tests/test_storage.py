import json
import os
import stat
import struct

import pandas as pd
import pytest
import torch

from halfseen import storage
from halfseen.table_files import read_frame, write_frame

TREE = {
    "numbers": [1, 2.5, None, True, "text"],
    "tensors": {"a": torch.arange(6.0).reshape(2, 3), "b": [torch.tensor([True, False])]},
    "scalar": torch.tensor(3, dtype=torch.int64),
    "empty": torch.zeros(0, 4),
}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tree.halfseen"
    storage.write(path, "thing", TREE)
    return path


def test_a_tree_comes_back(file):
    tree = storage.read(file, "thing")
    assert tree["numbers"] == TREE["numbers"]
    assert torch.equal(tree["tensors"]["a"], TREE["tensors"]["a"])
    assert torch.equal(tree["tensors"]["b"][0], TREE["tensors"]["b"][0])
    assert tree["scalar"].item() == 3
    assert tree["scalar"].shape == ()
    assert tree["empty"].shape == (0, 4)


def test_files_are_as_readable_as_others_and_links_stay(file, tmp_path):
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    assert file.stat().st_mode == plain.stat().st_mode
    link = tmp_path / "link"
    link.symlink_to(file)
    storage.write(link, "thing", {"new": 1})
    assert link.is_symlink()
    assert storage.read(file, "thing") == {"new": 1}


def test_tensors_may_share_memory(tmp_path):
    base = torch.arange(4.0)
    storage.write(tmp_path / "x", "thing", {"one": base, "other": base[:2]})
    tree = storage.read(tmp_path / "x", "thing")
    assert torch.equal(tree["other"], base[:2])


def test_cut_off_files_are_refused(file):
    data = file.read_bytes()
    for length in (0, 1, 7, 8, 50, len(data) // 2, len(data) - 1):
        file.write_bytes(data[:length])
        with pytest.raises(ValueError, match="cut off or damaged"):
            storage.read(file, "thing")


def test_every_changed_byte_is_noticed(file):
    data = file.read_bytes()
    for place in range(0, len(data), 11):
        changed = bytearray(data)
        changed[place] ^= 0x15
        file.write_bytes(changed)
        try:
            tree = storage.read(file, "thing")
        except ValueError:
            continue
        # White space in the header may change without changing what it says.
        assert tree["numbers"] == TREE["numbers"]
        assert torch.equal(tree["tensors"]["a"], TREE["tensors"]["a"])


def test_other_kinds_newer_versions_and_strange_files_are_refused(file, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="a thing of halfseen; a classifier was expected"):
        storage.read(file, "classifier")
    monkeypatch.setattr(storage, "VERSION", storage.VERSION + 1)
    storage.write(tmp_path / "newer", "thing", {})
    monkeypatch.undo()
    with pytest.raises(ValueError, match="newer halfseen"):
        storage.read(tmp_path / "newer", "thing")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        storage.read(tmp_path / "nowhere", "thing")
    torch.save({"a": 1}, tmp_path / "pickle.pt")
    with pytest.raises(ValueError, match="no file of halfseen"):
        storage.read(tmp_path / "pickle.pt", "thing")
    header = json.dumps({"__metadata__": {"other": "1"}}).encode()
    (tmp_path / "foreign").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(ValueError, match="no file of halfseen"):
        storage.read(tmp_path / "foreign", "thing")
    for content in ("[]", '{"version": 1}', "nonsense"):
        header = json.dumps({"__metadata__": {"halfseen": content}}).encode()
        (tmp_path / "foreign").write_bytes(struct.pack("<Q", len(header)) + header)
        with pytest.raises(ValueError, match="no file of halfseen"):
            storage.read(tmp_path / "foreign", "thing")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(file, monkeypatch):
    before = file.read_bytes()

    def full_disk(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        storage.write(file, "thing", {"new": torch.ones(3)})
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


def test_a_file_that_few_may_read_stays_so(file, tmp_path):
    path = tmp_path / "secret"
    storage.write(path, "thing", {"a": 1})
    path.chmod(0o600)
    storage.write(path, "thing", {"a": 2})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert storage.read(path, "thing") == {"a": 2}


def test_a_name_may_be_as_long_as_a_disk_takes(tmp_path):
    path = tmp_path / ("ü" * 124 + ".model")  # 254 bytes
    storage.write(path, "thing", {"a": 1})
    storage.write(path, "thing", {"a": 2})
    assert storage.read(path, "thing") == {"a": 2}
    assert list(tmp_path.iterdir()) == [path]
    odd = tmp_path / ("ü" * 104 + "x.parquet")  # 200 bytes begin within a letter
    write_frame(odd, pd.DataFrame({"a": [1]}))
    assert read_frame(odd)["a"].tolist() == [1]
