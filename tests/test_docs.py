"""The pages of the documentation: their code runs, and the site builds without a warning."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import halfseen
import halfseen.certificates
import halfseen.plots
import halfseen.rivals

DOCS = Path(__file__).parents[1] / "docs"
PAGES_THAT_RUN = ("quickstart", "guide", "data_kinds", "coming_from")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LOADED = re.compile(r'<(?:script|img|iframe)[^>]*\ssrc="([^"]*)"|<link[^>]*\shref="([^"]*)"')


@pytest.mark.parametrize("page", PAGES_THAT_RUN)
def test_code_of_a_page_runs_in_its_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # pages write files
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) == text.count("```python")
    names = {"__name__": page}
    for block in blocks:
        above = text.count("\n", 0, block.start(1))  # so that an error names the line of the page
        exec(compile("\n" * above + block[1], f"docs/{page}.md", "exec"), names)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return the folder of the site, built."""
    lacking = [n for n in ("sphinx", "myst_parser", "furo") if not importlib.util.find_spec(n)]
    if lacking:
        pytest.skip(f"the site needs {', '.join(lacking)}: pip install 'halfseen[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "-n", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run([*command, DOCS, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_site_builds_without_warnings(site):
    for page in DOCS.rglob("*.md"):
        if "_build" not in page.parts:
            assert (site / page.relative_to(DOCS)).with_suffix(".html").exists()


def test_every_public_name_is_in_the_reference(site):
    pages = "".join(page.read_text(encoding="utf-8") for page in (site / "api").glob("*.html"))
    described = set(re.findall(r'<dt class="sig[^>]* id="([^"]+)"', pages))
    wanted = {f"halfseen.{name}" for name in halfseen.__all__ if name != "__version__"}
    for module in (halfseen.certificates, halfseen.plots, halfseen.rivals):
        wanted |= {f"{module.__name__}.{name}" for name in module.__all__}
    assert wanted <= described, f"add to docs/api: {sorted(wanted - described)}"


def test_site_loads_nothing_from_the_net(site):
    for page in site.rglob("*.html"):
        for found in LOADED.findall(page.read_text(encoding="utf-8")):
            assert not re.match(r"(https?:)?//", "".join(found)), page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(https?:)?//|@import", sheet.read_text("utf-8")), sheet
