import importlib.metadata
import subprocess
import sys

import pytest

import halfseen


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_import_touches_no_heavy_library():
    code = (
        "import sys, halfseen; "
        "heavy = {'torch', 'numpy', 'sklearn', 'numba', 'matplotlib', 'pandas'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert run(code).stdout.strip() == "[]"


def test_works_without_the_optional_libraries():
    """numba and the rest may be missing: names import, and coding falls back to FISTA."""
    code = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"numba", "typer", "rich", "matplotlib", "triton", "pandas"}:
            raise ModuleNotFoundError(name)
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "numba" else found(name, *rest)
sys.meta_path.insert(0, Absent())
import halfseen
for name in halfseen.__all__:
    getattr(halfseen, name)
codes = halfseen.sparse_encode([[1.0, float("nan")]], [[1.0, 0.0], [0.0, 1.0]], 0.25, tol=1e-9)
assert abs(codes[0, 0] - 0.75) < 1e-6 and codes[0, 1] == 0, codes
halfseen.SparseCodingImputer(n_steps=2).fit_transform([[1.0, 2.0], [float("nan"), 3.0]])
"""
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_public_names():
    assert set(halfseen.__all__) <= set(dir(halfseen))
    for name in halfseen.__all__:
        assert getattr(halfseen, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        halfseen.nonsense  # noqa: B018


def test_version_is_that_of_the_installed_package():
    assert importlib.metadata.version("halfseen") == halfseen.__version__
