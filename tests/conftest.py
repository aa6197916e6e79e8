from collections import Counter

import numpy as np
import pytest
import torch

torch.set_num_threads(1)  # the problems are small: threads would spend their time waiting


# They go first, so that at the end no worker is left alone with one of them.
LONG_FILES = (
    "test_examples", "test_faults_of_runs", "test_team", "test_docs", "test_disk",
    "test_classifier", "test_concurrency", "test_bad_commands", "test_faults_of_teams",
    "test_side_by_side", "test_hole_questions", "test_memory", "test_experiments",
)  # fmt: skip


def pytest_configure(config):
    """Declare the mark of tests that need a GPU; `pytest -m gpu` runs them all."""
    config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU, and is skipped without one")


def pytest_collection_modifyitems(items):
    """Put long files first; all else stays in its order. Skip what needs a GPU if none is there."""
    items.sort(key=lambda item: item.path.stem not in LONG_FILES)
    for item in [] if torch.cuda.is_available() else items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))


def pytest_addoption(parser):
    parser.addoption("--nightly", action="store_true", help="try ten times as much of everything")


@pytest.fixture
def times(request):
    """Return a function: how often to try something, usually and with --nightly."""

    def choose(usually, nightly=None):
        if not request.config.getoption("--nightly"):
            return usually
        return 10 * usually if nightly is None else nightly

    return choose


@pytest.fixture
def tried(request):
    """Return a function that counts what was tried; the sums are printed after the tests."""
    counts = {}
    request.node.user_properties.append(("tried", counts))

    def count(what, n=1):
        counts[what] = counts.get(what, 0) + n

    return count


def pytest_terminal_summary(terminalreporter):
    """Print how often things were tried, in all tests together."""
    total = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                for name, counts in report.user_properties:
                    total.update(counts if name == "tried" else {})
    if total:
        terminalreporter.section("tried")
        for what in sorted(total):
            terminalreporter.write_line(f"{total[what]:>7,} {what}")


@pytest.fixture
def masked_rows():
    """Return a maker of rows with holes and a dictionary for them."""

    def make(n_rows=40, n_features=20, n_atoms=30, missing=0.4, seed=0, dtype=np.float64):
        random = np.random.default_rng(seed)
        dictionary = random.standard_normal((n_atoms, n_features))
        dictionary /= np.linalg.norm(dictionary, axis=1, keepdims=True)
        X = random.standard_normal((n_rows, n_features))
        X[random.random(X.shape) < missing] = np.nan
        return X.astype(dtype), dictionary.astype(dtype)

    return make


def planted_rows(n_rows=10_000, n_features=100, n_atoms=200, n_used=4, missing=0.5, seed=0):
    """Return rows made of few atoms of a random dictionary, and where they are observed."""
    random = np.random.default_rng(seed)
    dictionary = random.standard_normal((n_atoms, n_features))
    dictionary /= np.linalg.norm(dictionary, axis=1, keepdims=True)
    used = random.random((n_rows, n_atoms)).argpartition(n_used, axis=1)[:, :n_used]
    codes = np.zeros((n_rows, n_atoms))
    np.put_along_axis(codes, used, random.standard_normal((n_rows, n_used)), axis=1)
    return codes @ dictionary, random.random((n_rows, n_features)) >= missing
