"""The examples run as they say, from any folder, and what they print is about right."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
# How python is called with each; torchrun first, because it takes longest.
SCRIPTS = {
    "torchrun": TORCHRUN,
    "occluded_images": ("-W", "error"),
    "images_with_random_holes": ("-W", "error"),
    "own_network": ("-W", "error"),
    "gpu": ("-W", "error"),
    "sensor_signals": ("-W", "error"),
    "hospital_table": ("-W", "error"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder that the examples run in."""
    return tmp_path_factory.mktemp("examples")


@pytest.fixture(scope="module")
def printed(folder):
    """Return what each example printed; they run two at a time, each on one thread."""

    def run(name):
        return subprocess.run(
            [sys.executable, *SCRIPTS[name], EXAMPLES / f"{name}.py"],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    with ThreadPoolExecutor(2) as pool:
        finished = dict(zip(SCRIPTS, pool.map(run, SCRIPTS), strict=True))
    for name, process in finished.items():
        assert process.returncode == 0, f"{name}.py:\n{process.stderr}"
    return {name: process.stdout for name, process in finished.items()}


def numbers(text, before):
    """Return the numbers in the rest of the line after some words, percentages as shares."""
    (line,) = re.findall(rf"{before}(.*)$", text, re.MULTILINE)
    found = re.findall(r"(\d+\.?\d*(?:e[+-]\d+)?)(%?)", line)
    return [float(number) / (100 if percent else 1) for number, percent in found]


def test_every_example_is_tested_short_and_says_how_to_run_it():
    files = {path.stem: path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.py")}
    assert set(files) == set(SCRIPTS)
    for name, text in files.items():
        assert len(text.splitlines()) < 120, name
        assert f"examples/{name}.py" in text.split('"""')[1], name


def test_images_with_random_holes(printed, folder):
    text = printed["images_with_random_holes"]
    assert numbers(text, "accuracy with holes: ")[0] > 0.85
    assert numbers(text, "accuracy without holes: ")[0] > 0.93
    assert numbers(text, "completed: ")[0] < 0.8 * numbers(text, "mean fill: ")[0]
    assert (folder / "demo/digits.png").read_bytes().startswith(b"\x89PNG")


def test_occluded_images(printed):
    mean = {
        (task, method): numbers(printed["occluded_images"], f"hide a {task} +{method}")[-1]
        for task in ("half", "rectangle")
        for method in ("halfseen", "mean fill")
    }
    assert min(mean.values()) > 0.75
    assert mean["rectangle", "halfseen"] > 0.88
    for method in ("halfseen", "mean fill"):
        assert mean["rectangle", method] > mean["half", method]


def test_sensor_signals(printed):
    text = printed["sensor_signals"]
    assert numbers(text, "with drop-outs: ")[0] > 0.88
    assert numbers(text, "without drop-outs: ")[0] > 0.93
    error, deviation, noise = numbers(text, "sensors were silent: ")
    assert noise < error < 0.8 * deviation


def test_hospital_table(printed):
    text = printed["hospital_table"]
    assert numbers(text, "accuracy: ")[0] > 0.78
    assert numbers(text, "not told what is missing: ")[0] > 0.7
    assert 0.1 < numbers(text, "whatever is in the holes: ")[0] < 0.9
    assert re.search(r"lacks [a-z, ]+: (ill|well)$", text, re.MULTILINE)
    assert "types kept: True" in text
    assert "it says the same: True" in text


def test_own_network(printed):
    text = printed["own_network"]
    assert numbers(text, "SparseCodingClassifier, accuracy: ")[0] > 0.84
    accuracy, _, moved = numbers(text, "  accuracy: ")
    assert accuracy > 0.84
    assert moved > 0.05


def test_gpu(printed):
    text = printed["gpu"]
    assert "computing on the CPU" in text
    for seed in range(3):
        side_by_side, alone, difference = numbers(text, f"^   {seed}")
        assert side_by_side == alone > 0.84
        assert difference < 1e-6


def test_torchrun(printed):
    text = printed["torchrun"]
    assert text.startswith("2 process(es)")
    assert text.count("accuracy") == 1  # one of them prints
    assert numbers(text, "accuracy: ")[0] > 0.84
