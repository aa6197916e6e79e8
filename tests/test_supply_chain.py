"""What is installed with the package: pinned, and under licences that are listed."""

import re
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
FREE = ("BSD", "MIT", "Apache", "PSF", "ISC", "MPL", "0BSD", "Zlib", "CC0", "BSL", "matplotlib")


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_with(name, extras):
    """Return the names of all that an installation brings along, the package itself left out."""
    found, todo = {}, [(name, frozenset(extras))]
    while todo:
        name, extras = todo.pop()
        if canonical(name) in found and extras <= found[canonical(name)]:
            continue
        found[canonical(name)] = found.get(canonical(name), frozenset()) | extras
        for text in metadata.requires(name) or []:
            wanted = Requirement(text)
            asked = [{"extra": extra} for extra in (extras or {""})]
            if wanted.marker is None or any(map(wanted.marker.evaluate, asked)):
                todo.append((wanted.name, frozenset(wanted.extras)))
    return sorted(set(found) - {"halfseen"})


def pinned():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonical(name): version for name, version in pairs}


def listed():
    """Return the licence of each package in the table of docs/dependencies.md."""
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    table = text.split("## Licences")[1]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)[1:]
    return {name.strip(): licence.strip() for names, licence in rows for name in names.split(",")}


def licence_of(name):
    """Return what a package says of its licence; many say it only to machines."""
    told = metadata.metadata(name)
    classifiers = told.get_all("Classifier") or []
    kinds = [line.split("::")[-1].strip() for line in classifiers if line.startswith("License")]
    first_line = (told.get("License") or "").strip().split("\n")[0]
    return " ".join([told.get("License-Expression") or first_line, *kinds])


def test_all_that_is_installed_is_pinned_and_is_what_is_tested(tried):
    pins = pinned()
    for name in installed_with("halfseen", ("plots", "docs", "dev")):
        assert name in pins, f"{name} is not in constraints.txt"
        assert metadata.version(name).split("+")[0] == pins[name]
        tried("pinned packages compared with the installed ones")


def test_the_licences_of_all_that_users_install_are_listed(tried):
    licences, needed = listed(), installed_with("halfseen", ("plots",))
    assert sorted(licences) == needed
    for name in needed:
        families = {kind for kind in FREE if kind.lower() in licences[name].lower()}
        own = licence_of(name)
        assert families, f"{name}: {licences[name]}"
        assert any(kind.lower() in own.lower() for kind in families), f"{name} says {own}"
        tried("licences of dependencies compared with the list")
