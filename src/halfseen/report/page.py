"""One HTML page of all results of the experiments."""

from __future__ import annotations

from pathlib import Path

from halfseen.report.document import Document


def results_page(text: str, figures: dict[str, Path]) -> str:
    """Return the page.

    Parameters
    ----------
    text : str
        That of RESULTS.md.
    figures : dict of str to Path
        Pictures by their titles.
    """
    page = Document("halfseen: results")
    for block in text.strip().split("\n\n"):
        if block.startswith("## "):
            page.heading(block.removeprefix("## "))
        elif block.startswith("|"):
            head, _, *lines = [
                [cell.strip() for cell in line.strip("|").split("|")] for line in block.split("\n")
            ]
            page.table(head, lines)
        elif block.startswith("- "):
            page.points(block.removeprefix("- ").split("\n- "))
        elif not block.startswith(("# ", "![")):  # the page has its own title and pictures
            page.text(block)
    for title, path in figures.items():
        page.heading(title)
        page.picture(path.read_bytes(), title)
    return str(page)
