"""Pages in a real browser: nothing is loaded, no errors, every image shows, tables sort."""

import json
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config

from halfseen import SparseCodingClassifier, ampute, rivals
from halfseen.cli import main
from halfseen.report import demo
from halfseen.report.comparison import comparison_page
from halfseen.report.demo import RATES, Demonstration, demo_page, methods, split
from halfseen.report.document import Document
from halfseen.report.page import results_page

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")

# Looks at the page from inside: errors, images, width, and what clicks do to the tables.
_WATCH = "<script>window.errors = []; window.onerror = m => errors.push(String(m));</script>"
_INSPECT = """<script>window.addEventListener("load", () => {
  const column = (table, place) =>
    [...table.tBodies[0].rows].map(row => row.cells[place].textContent);
  const found = {errors, images: [...document.images].map(i => i.complete && i.naturalWidth > 0),
    width: document.documentElement.scrollWidth, background:
    getComputedStyle(document.body).backgroundColor, tables: []};
  document.querySelectorAll("table.sorts").forEach(table => {
    const heads = [...table.querySelectorAll("th button")];
    found.tables.push(heads.map((head, place) => {
      head.click(); const up = column(table, place);
      head.click(); return [up, column(table, place)];
    }));
  });
  const out = document.createElement("pre"); out.id = "found";
  out.textContent = JSON.stringify(found); document.body.append(out);
});</script>"""


def look(page, folder, width=1000, dark=False):
    """Open a page in Chromium and return what it looks like from inside."""
    path = folder / "page.html"
    page = page.replace("<head>", f"<head>{_WATCH}", 1).replace("</body>", f"{_INSPECT}</body>", 1)
    path.write_text(page, encoding="utf-8")
    done = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900",
            *(["--blink-settings=preferredColorScheme=0"] if dark else []),
            f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr",
            "--virtual-time-budget=5000", "--dump-dom", path.as_uri(),
        ],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr, done.stderr
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL).group(1)
    return json.loads(found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


def number(text):
    return float(re.match(r"[-\d.]+", text).group())


@pytest.fixture(scope="module")
def demonstration():
    X, y, X_test, y_test = split()
    clf = SparseCodingClassifier("mlp", n_epochs=2, random_state=0)
    clf.fit(ampute(X, "random", 0.5, random_state=0), y)
    rows = [
        {"method": name, "rate": rate, "seed": seed, "accuracy": 1 - rate / (2 + place + seed / 9)}
        for place, name in enumerate(methods(0))
        for rate in RATES
        for seed in (0, 1)
    ]
    return Demonstration(rows, clf, X_test, y_test, 12.3)


def test_the_table_of_the_demonstration_has_means_and_errors(demonstration):
    first = demonstration.lines()[0]
    given = 100 * np.array([1 - 0.25 / 2, 1 - 0.25 / (2 + 1 / 9)])
    error = abs(given[0] - given[1]) / 2
    assert first[:2] == ("halfseen", f"{given.mean():.1f} ± {error:.1f}")


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_the_command_demo_fits_all_and_writes_the_page(more, tmp_path, monkeypatch, capsys):
    def few(seed):
        quick = {"n_epochs": 2, "random_state": seed}
        ours = SparseCodingClassifier("mlp", n_atoms=16, training="joint", **quick)
        return {demo.OURS: ours, "mean fill, mlp": rivals.mean_fill("mlp", **quick)}

    monkeypatch.setattr(demo, "methods", few)
    monkeypatch.setattr(demo, "_SEEDS", 2)
    out = tmp_path / "new" / "page.html"
    with parallel_config(backend="sequential"):  # other processes would not see the few
        assert main(["demo", "--out", str(out), *more]) == 0
    printed, page = capsys.readouterr().out, out.read_text(encoding="utf-8")
    if more:
        rows = json.loads(printed)["rows"]
        assert len(rows) == 2 * len(RATES) * 2
        assert all(0.1 < row["accuracy"] <= 1 for row in rows)
    for name in (demo.OURS, "mean fill, mlp"):
        assert name in printed
        assert name in page
    assert str(out) in printed


@needs_browser
def test_the_page_of_the_demonstration(demonstration, tmp_path):
    page = demo_page(demonstration)
    for width, dark in ((1000, False), (400, True)):
        found = look(page, tmp_path, width, dark)
        assert found["errors"] == []
        assert found["images"] == [True] * 6
        assert found["width"] <= max(width, 500)  # a headless window is no narrower
        assert found["background"] == ("rgb(22, 24, 28)" if dark else "rgb(255, 255, 255)")
    assert 'src="http' not in page
    accuracies = found["tables"][0]
    assert accuracies[0][0] == sorted(methods(0), key=str.lower)
    assert [number(cell) for cell in accuracies[1][0]] == sorted(map(number, accuracies[1][0]))
    assert accuracies[1][1] == accuracies[1][0][::-1]


@needs_browser
def test_pages_show_names_as_text(tmp_path):
    evil = '<script>errors.push("run")</script><img src=x onerror="errors.push(1)">'
    table = pd.DataFrame(
        {
            "method": ["halfseen", evil], "accuracy": [0.9, 0.5], "accuracy_sem": [0.1, 0.1],
            "log_loss": [0.3, 0.6], "log_loss_sem": [0.0, 0.0], "fit_seconds": [10.0, 9.0],
            "predict_seconds": [0.1, 0.1], "p_value": [np.nan, 0.04], "n": [5, 5],
        }
    )  # fmt: skip
    X = pd.DataFrame({evil: [1.0, None, 3.0]})
    page = comparison_page(evil, X, np.array([evil, "b", "b"]), table, evil, evil)
    found = look(page, tmp_path)
    assert found["errors"] == []
    assert found["images"] == [True]
    scores, labels, columns = found["tables"]
    assert evil in scores[0][0]
    assert evil in labels[0][0]
    assert columns[0][0] == [evil]
    assert scores[4][0] == ["9.0", "10.0"]  # numbers, not letters


@needs_browser
def test_the_page_of_results(tmp_path):
    text = "# Results\n\nWith `code`.\n\n## One\n\n| a | b |\n|---|---|\n| x | 10 |\n| y | 9 |\n"
    found = look(results_page(text, {}), tmp_path)
    assert found["errors"] == []
    assert found["tables"][0][1] == [["9", "10"], ["10", "9"]]


def test_lists_in_the_text_are_lists_on_the_page():
    page = results_page("# Results\n\nHow:\n\n- one\n  more\n- two - three\n\nEnd.\n", {})
    assert "<p>How:</p><ul><li>one\n  more</li><li>two - three</li></ul><p>End.</p>" in page


def test_documents_hold_everything():
    page = Document("A & B")
    page.text("see `x < y`")
    page.points(["`one` < two", "three"])
    page.code("a <b>")
    page.picture(b"png", 'quoted "caption"')
    text = str(page)
    assert "<code>x &lt; y</code>" in text
    assert "a &lt;b&gt;" in text
    assert "<ul><li><code>one</code> &lt; two</li><li>three</li></ul>" in text
    assert "quoted &quot;caption&quot;" in text
    assert "<title>A &amp; B</title>" in text
