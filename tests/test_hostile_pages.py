"""Names from strangers on pages: whatever a label or a file is called, it is shown as text."""

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from halfseen import SparseCodingClassifier, TableClassifier
from halfseen.cli import main
from halfseen.experiments.examples import packed
from halfseen.report.comparison import comparison_page
from halfseen.report.demo import RATES, Demonstration, demo_page, split
from halfseen.report.document import Document
from halfseen.report.page import results_page
from halfseen.report.text import results_text

EVIL = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg/onload=alert(1)>",
    "</style><script>alert(1)</script>",
    "</title></head><body onload=alert(1)>",
    "</textarea></pre></code></table><h1>",
    "javascript:alert(1)",
    '" onmouseover="alert(1)" x="',
    "<!-- --!> <![CDATA[ ]]>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;",
    "<a href=javascript:alert(1)>",
    "`<code>` | a | \n\n## heading\n\n| b |",
    "${alert(1)} {{7*7}} {% x %}",
    "\u202e<b>\u202c \u2028 \ufeff \x1b[2J \x00 \ufdd0 \U0001f600",
    "＜script＞alert(1)＜/script＞",
)
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)


class Skeleton(HTMLParser):
    """The elements of a page with their attributes, and its texts."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.texts = [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        shown = [
            (name, value if name not in ("src", "alt") else value[:22] * (name == "src"))
            for name, value in attrs
        ]
        self.elements.append((tag, shown))

    def handle_data(self, text):
        self.texts.append(text)

    def handle_comment(self, text):
        self.elements.append(("comment", text))

    def handle_pi(self, text):
        self.elements.append(("instruction", text))

    unknown_decl = handle_comment


def require_only_text(make, tried, where):
    """Make a page with every evil name and hold its elements against a harmless one's."""
    harmless = Skeleton(make("harmless"))
    for name in EVIL:
        page = make(name)
        found = Skeleton(page)
        assert found.elements == harmless.elements, name
        assert len(re.findall("<script", page)) == 1  # that of the page
        assert any("alert(1)" in text or "alert" not in name for text in found.texts)
    tried(f"evil names on the page of {where}", len(EVIL))


def scores(methods):
    values = {"accuracy": 0.9, "accuracy_sem": 0.1, "log_loss": 0.3, "log_loss_sem": 0.0}
    values |= {"fit_seconds": 1.0, "predict_seconds": 0.1, "p_value": 0.5, "n": 5}
    return pd.DataFrame([{"method": method, **values} for method in methods])


def test_names_on_the_page_of_a_comparison(tried):
    def make(name):
        X = pd.DataFrame({name: [1.0, None, 3.0, 2.0], ("level", name): [1.0] * 4})
        y = np.array([name, "other", name, "other"])
        return comparison_page(name, X, y, scores(["a", "b"]), name.replace("`", ""), name)

    require_only_text(make, tried, "a comparison")
    page = comparison_page(
        EVIL[1], pd.DataFrame({"x": [1.0]}), np.array(["a"]), scores("ab"), "", ""
    )
    assert html.escape(EVIL[1]) in page


def test_names_of_methods_on_the_pages(tried):
    plain = [name for name in EVIL if name.isascii() and name.isprintable()]
    harmless = Skeleton(comparison_page("", np.ones((2, 2)), np.arange(2), scores("ab"), "", ""))
    for name in plain:
        table = scores([name, "b"])
        page = comparison_page("", np.ones((2, 2)), np.arange(2), table, "", "")
        assert Skeleton(page).elements == harmless.elements
    tried("evil names on the page of a comparison", len(plain))


def test_names_on_the_page_of_the_demonstration(tried):
    X, y, X_test, y_test = split()
    X[::2, ::3] = np.nan
    clf = SparseCodingClassifier(n_epochs=1, random_state=0).fit(X[:200], y[:200])

    def make(name):
        settings = {"class_weight": {name: 1.0}, "verbose": 0}
        shown = SparseCodingClassifier.__new__(SparseCodingClassifier)
        shown.__dict__.update({**vars(clf), **settings})
        rows = [
            {"method": method, "rate": rate, "seed": seed, "accuracy": 0.5 + seed / 10}
            for method in ("halfseen", "other")
            for rate in RATES
            for seed in (0, 1)
        ]
        return demo_page(Demonstration(rows, shown, X_test[:40], y_test[:40], 1.0))

    harmless = Skeleton(make("harmless"))
    assert Skeleton(make(" ".join(EVIL))).elements == harmless.elements
    tried("evil names on the page of a demonstration", len(EVIL))


def row_of(name, experiment, **more):
    row = {"experiment": experiment, "dataset": "cifar10", "variant": name, "mechanism": "random"}
    row |= {"rate": 0.75, "method": "Best", "network": "resnet18", "seed": 0, "status": "done"}
    return {**row, "accuracy_complete": 0.5, "accuracy_incomplete": None, **more}


def test_names_on_the_page_of_experiments(tried, tmp_path):
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"png")

    def make(name):
        rows = [
            row_of(name, "table1"),
            row_of(name, "table2", method="Simult."),
            row_of("", "table1", method=f"x{name}", status="failed", error=name),
            row_of("", "tuning", method=f"x{name}", accuracy_validation=0.4),
        ]
        return results_page(results_text(rows), {name: picture})

    require_only_text(make, tried, "experiments")


def test_the_report_of_rows_from_strangers(tried, tmp_path, capsys):
    images = packed(np.zeros((2, 1, 4, 4)))
    pictures = dict.fromkeys(("original", "observed", "reconstructed", "completed"), images)
    names = [*EVIL[:6], "../../outside", "/etc/passwd"]
    for name in names:
        row = row_of(name, "examples", pictures=pictures, atoms=packed(np.zeros((8, 16))))
        (tmp_path / "examples.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
        out = tmp_path / "out" / "page.html"
        out.parent.mkdir(exist_ok=True)
        assert main(["report", str(tmp_path), "--out", str(out)]) == 0
        capsys.readouterr()
        assert [tag for tag, _ in Skeleton(out.read_text()).elements].count("script") == 1
    made = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*")}
    assert made == {"examples.jsonl", "out"}
    tried("reports of rows with evil names", len(names))


def test_every_part_of_a_page_escapes(tried):
    parts = {
        "title": lambda page, name: Document(name),
        "heading": lambda page, name: page.heading(name),
        "text": lambda page, name: page.text(name.replace("`", "")),
        "note": lambda page, name: page.text(name.replace("`", ""), note=True),
        "code": lambda page, name: page.code(name),
        "head": lambda page, name: page.table([name], [["x"]]),
        "cell": lambda page, name: page.table(["x"], [[name], [("a", name)]]),
        "caption": lambda page, name: page.picture(b"png", name),
    }  # fmt: skip
    for put in parts.values():

        def make(name, put=put):
            page = Document("page")
            return str(put(page, name) or page)

        require_only_text(make, tried, "any kind, in each of its parts")


def test_the_terminal_cannot_be_steered_by_names(tmp_path, capsys, tried):
    names = ["\x1b[2J\x1b[1;1H", "\x07bell", "\x9b31m", "back\x08\x08", "\r"]
    frame = pd.DataFrame({f"a{name}": [1.0, 2.0, None, 4.0] * 4 for name in names})
    inner = SparseCodingClassifier("mlp", n_epochs=1, random_state=0)
    labels = [f"b{name}" for name in (names[0], names[1])] * 8
    TableClassifier(inner).fit(frame, labels).save(tmp_path / "model")
    for arguments in (["info"], ["info", "--json"]):
        assert main([*arguments, str(tmp_path / "model")]) == 0
        assert capsys.readouterr().out.replace("\n", "").isprintable()
    frame.rename(columns=lambda name: f"c{name}").to_csv(tmp_path / "new.csv", index=False)
    assert (
        main(["predict", *map(str, (tmp_path / "model", tmp_path / "new.csv")), "--out", "o.csv"])
        == 2
    )
    assert capsys.readouterr().err.removesuffix("\n").isprintable()
    tried("names with control characters, shown in the terminal", 3 * len(names))


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
def test_nothing_runs_in_a_browser(tmp_path, tried):
    page = Document("page")
    for name in EVIL:
        page.heading(name)
        page.text(name)
        page.table([name], [[name]])
        page.picture(b"png", name)
    watched = str(page).replace(
        "<head>", "<head><script>window.alert = () => { document.title = 'executed'; };</script>", 1
    )
    (tmp_path / "page.html").write_text(watched, encoding="utf-8")
    done = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000",
            f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom",
            (tmp_path / "page.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "<title>page</title>" in done.stdout
    tried("evil names on a page in a browser", 4 * len(EVIL))
