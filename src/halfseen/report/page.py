"""One HTML page of all results, pictures inside, nothing loaded from elsewhere."""

from __future__ import annotations

import base64
import html
import re
from pathlib import Path

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 13px; }
th, td { border-bottom: 1px solid #ddd; padding: .25rem .6rem; text-align: left; }
td { white-space: nowrap; }
img { max-width: 100%; } h2 { margin-top: 2.5rem; }
@media (prefers-color-scheme: dark) {
  body { background: #16181c; color: #e6e6e6; } th, td { border-color: #444; }
  img { background: white; }
}
"""


def results_page(text: str, figures: dict[str, Path]) -> str:
    """Return the page.

    Parameters
    ----------
    text : str
        That of RESULTS.md.
    figures : dict of str to Path
        Pictures by their titles.
    """
    blocks = text.strip().split("\n\n")
    body = [_block(block) for block in blocks if not block.startswith("![")]
    for title, path in figures.items():
        data = base64.b64encode(path.read_bytes()).decode()
        name = html.escape(title)
        body.append(f'<h2>{name}</h2><img alt="{name}" src="data:image/png;base64,{data}">')
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        "<title>halfseen: results</title>"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _block(block: str) -> str:
    """Return a heading, a table or a paragraph of the few kinds that RESULTS.md has."""
    if block.startswith("#"):
        marks, words = block.split(" ", 1)
        return f"<h{len(marks)}>{html.escape(words)}</h{len(marks)}>"
    if not block.startswith("|"):
        words = re.sub("`([^`]*)`", r"<code>\1</code>", html.escape(block))
        return f"<p>{words}</p>"
    head, _, *lines = [
        [html.escape(cell.strip()) for cell in line.strip("|").split("|")]
        for line in block.split("\n")
    ]
    rows = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in line)}</tr>" for line in lines)
    names = "".join(f"<th>{cell}</th>" for cell in head)
    return f'<div class="wide"><table><tr>{names}</tr>{rows}</table></div>'
