"""A self-contained HTML page: text, tables that sort, pictures inside, nothing loaded."""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Iterable, Sequence

_STYLE = """
:root { color-scheme: light dark; --line: #d8dade; --soft: #5c626b; --back: #fff; --ink: #17191c;
  --note: #f2f5fa; }
@media (prefers-color-scheme: dark) { :root { --line: #3b3f46; --soft: #a4abb6; --back: #16181c;
  --ink: #e8e8e8; --note: #20242b; } }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  background: var(--back); color: var(--ink); }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { margin-top: 2.5rem; font-size: 1.25rem; }
p.note { background: var(--note); padding: .8rem 1rem; border-left: 4px solid #3a7bd5; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 14px; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .8rem .3rem 0; text-align: left;
  white-space: nowrap; }
th button { all: unset; cursor: pointer; } th button:focus-visible { outline: 2px solid #3a7bd5; }
th[aria-sort=ascending] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
figure { margin: 1.2rem 0; } figcaption { color: var(--soft); font-size: 14px; }
img { max-width: 100%; height: auto; background: #fff; border-radius: 4px; }
pre { background: var(--note); padding: .8rem 1rem; overflow-x: auto; font-size: 14px; }
code { font-size: .92em; }
"""
# A column is numeric if all of its cells begin with a number.
_SCRIPT = """
document.querySelectorAll("table.sorts").forEach(table => {
  table.querySelectorAll("th").forEach((head, place) => {
    head.querySelector("button").addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      const rows = [...table.tBodies[0].rows];
      const text = row => row.cells[place].textContent.trim();
      const number = row => parseFloat(text(row));
      const numeric = rows.every(row => !Number.isNaN(number(row)));
      rows.sort((a, b) => numeric ? number(a) - number(b) : text(a).localeCompare(text(b)));
      table.querySelectorAll("th").forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      table.tBodies[0].append(...(up ? rows : rows.reverse()));
    });
  });
});
"""


class Document:
    """A page that grows from top to bottom; whatever is put in is shown as text, not as HTML.

    Parameters
    ----------
    title : str
    """

    def __init__(self, title: str) -> None:
        self._title = html.escape(title)
        self._parts = [f"<h1>{self._title}</h1>"]

    def heading(self, text: str) -> None:
        """Begin a section."""
        self._parts.append(f"<h2>{html.escape(text)}</h2>")

    def text(self, text: str, note: bool = False) -> None:
        """Add a paragraph, `code` between backticks; a note stands out."""
        self._parts.append(f"<p{' class=note' if note else ''}>{_marked(text)}</p>")

    def points(self, texts: Iterable[str]) -> None:
        """Add a list of short paragraphs."""
        items = "".join(f"<li>{_marked(text)}</li>" for text in texts)
        self._parts.append(f"<ul>{items}</ul>")

    def code(self, text: str) -> None:
        """Add commands or settings."""
        self._parts.append(f"<pre><code>{html.escape(text)}</code></pre>")

    def table(self, head: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
        """Add a table; a click on a name sorts by its column."""
        names = "".join(
            f'<th><button type="button">{html.escape(str(name))}</button></th>' for name in head
        )
        rows = "".join(
            f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in line)}</tr>"
            for line in lines
        )
        self._parts.append(
            f'<div class="wide"><table class="sorts"><thead><tr>{names}</tr></thead>'
            f"<tbody>{rows}</tbody></table></div>"
        )

    def picture(self, png: bytes, caption: str) -> None:
        """Add a picture."""
        words, data = html.escape(caption), base64.b64encode(png).decode()
        self._parts.append(
            f'<figure><img alt="{words}" src="data:image/png;base64,{data}">'
            f"<figcaption>{words}</figcaption></figure>"
        )

    def figure(self, figure, caption: str) -> None:
        """Add a matplotlib figure."""
        data = io.BytesIO()
        figure.savefig(data, format="png", dpi=130, bbox_inches="tight", facecolor="white")
        self.picture(data.getvalue(), caption)

    def __str__(self) -> str:
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f"<title>{self._title}</title>"
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<link rel="icon" href="data:,"><style>{_STYLE}</style></head>\n<body>'
            f"{''.join(self._parts)}<script>{_SCRIPT}</script></body></html>\n"
        )


def _marked(text: str) -> str:
    return re.sub("`([^`]*)`", r"<code>\1</code>", html.escape(text))
