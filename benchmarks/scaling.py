"""Seconds and memory of `fit` against the number of rows, from files.

    python benchmarks/scaling.py                                       # 2,000 to 200,000 rows
    python benchmarks/scaling.py --sizes 2000 20000 200000 2000000 --parquet --rows ROWS.jsonl

Tables of 200 float32 columns, sums of six of 100 atoms and noise, half the entries missing, five
classes. They are written to a file, which is mapped (`np.load(mmap_mode="r")`), or to a Parquet
dataset. Every fit has a process of its own; its memory is the largest resident set during `fit`
above that before it, when all libraries are loaded and compiled. One epoch, so that every row is
seen once by each part: the dictionary's 600 mini-batches are the same for every size.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

N_FEATURES, N_ATOMS, N_CLASSES = 200, 100, 5
AT_ONCE = 20_000


def write_table(folder: Path, n_rows: int, parquet: bool) -> None:
    """Write X.npy and y.npy, or a folder of Parquet files."""
    random = np.random.default_rng(0)
    atoms = random.standard_normal((N_ATOMS, N_FEATURES), dtype=np.float32) / 10
    plane = random.standard_normal((N_FEATURES, N_CLASSES), dtype=np.float32)
    X = np.lib.format.open_memmap(folder / "X.npy", "w+", np.float32, (n_rows, N_FEATURES))
    y = np.empty(n_rows, np.int64)
    for start in range(0, n_rows, AT_ONCE):
        some = slice(start, min(start + AT_ONCE, n_rows))
        shape = (some.stop - start, N_ATOMS)
        codes = 4 * random.standard_normal(shape, dtype=np.float32) * (random.random(shape) < 0.06)
        rows = codes @ atoms
        rows += 0.02 * random.standard_normal(rows.shape, dtype=np.float32)
        y[some] = (rows @ plane).argmax(1)
        rows[random.random(rows.shape) < 0.5] = np.nan
        X[some] = rows
    np.save(folder / "y.npy", y)
    if parquet:
        import pyarrow as pa
        from pyarrow import parquet as files

        (folder / "parts").mkdir()
        for start in range(0, n_rows, 10 * AT_ONCE):
            some = slice(start, start + 10 * AT_ONCE)
            columns = {f"c{i}": pa.array(X[some, i], from_pandas=True) for i in range(N_FEATURES)}
            table = pa.table({**columns, "label": y[some]})
            files.write_table(table, folder / "parts" / f"{start:09}.parquet")


def resident(key: str) -> float:
    """Return a figure of this process's memory in MiB."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(key))


def fit(folder: Path, training: str, parquet: bool) -> dict:
    from halfseen import SparseCodingClassifier

    if parquet:
        import pyarrow.dataset

        X, y = pyarrow.dataset.dataset(folder / "parts"), "label"
    else:
        X, y = np.load(folder / "X.npy", mmap_mode="r"), np.load(folder / "y.npy")
    clf = SparseCodingClassifier(training=training, n_epochs=1, random_state=0, device="cpu")
    clf.fit(np.load(folder / "X.npy", mmap_mode="r")[:300].copy(), np.arange(300) % 2)
    before = resident("VmRSS")
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the largest resident set is counted from here
    start = time.perf_counter()
    clf.fit(X, y)
    seconds = time.perf_counter() - start
    return {
        "seconds": round(seconds, 2),
        "epoch_seconds": round(clf.history_[-1]["seconds"], 2),
        "peak_mib": round(resident("VmHWM") - before),
        "accuracy": round(clf.history_[-1]["accuracy"], 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[2_000, 20_000, 200_000])
    parser.add_argument("--trainings", nargs="+", default=["task", "sequential", "joint"])
    parser.add_argument("--parquet", action="store_true", help="the largest also from Parquet")
    parser.add_argument("--rows", type=Path, help="file that rows are appended to")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        folder, training, kind = arguments.one
        print(json.dumps(fit(Path(folder), training, kind == "Parquet")))
        return
    for n_rows in arguments.sizes:
        parquet = arguments.parquet and n_rows == max(arguments.sizes)
        with tempfile.TemporaryDirectory() as folder:
            write_table(Path(folder), n_rows, parquet)
            cells = [(training, "map") for training in arguments.trainings]
            cells += [(arguments.trainings[0], "Parquet")] if parquet else []
            for training, kind in cells:
                command = [sys.executable, __file__, "--one", folder, training, kind]
                result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                cell = {"n_rows": n_rows, "training": training, "file": kind}
                line = json.dumps({**cell, **json.loads(result.stdout), "cores": os.cpu_count()})
                print(line, flush=True)
                if arguments.rows is not None:
                    with arguments.rows.open("a") as file:
                        file.write(line + "\n")


if __name__ == "__main__":
    main()
