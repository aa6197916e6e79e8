"""Settings of the documentation site.

sphinx-build -W -n --keep-going -b html docs docs/_build/html
"""

import re

import halfseen

project = "halfseen"
author = "the halfseen developers"
version = release = halfseen.__version__
copyright = author

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

# Docstrings say types in words, which are no links; so they are set as text.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "params_style")]
default_role = "py:obj"  # `name` in a docstring is a link where it can be one

html_theme = "furo"
html_title = "halfseen"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False


# Files outside this folder that have a page here; links to them work in the repository, too.
PAGES = {
    "../benchmarks/README.md": "benchmarks.md",
    "../results/RESULTS.md": "results.md",
    "../CONTRIBUTING.md": "contributing.md",
}


def link_pages(app, docname, source):
    """Let links to files that have a page here lead to that page."""
    for path, page in PAGES.items():
        source[0] = source[0].replace(f"]({path}", f"]({page}")


def escape_stars(app, what, name, obj, options, lines):
    """Keep shapes such as (n, *sample_shape) in docstrings from being read as emphasis."""
    lines[:] = [re.sub(r"(?<![*\w`])\*(?=[a-z_]+[),])", r"\\*", line) for line in lines]


def find_or_leave(app, env, node, contnode):
    """Link words between single backticks in docstrings to public names, or leave them as text."""
    page = node["refdoc"]
    if not page.startswith("api/") or node["reftype"] != "obj":
        return None
    name = f"halfseen.{node['reftarget']}"
    link = env.domains["py"].resolve_xref(env, page, app.builder, "obj", name, node, contnode)
    return link or contnode


def setup(app):
    """Tell Sphinx about the functions above."""
    app.connect("source-read", link_pages)
    app.connect("autodoc-process-docstring", escape_stars, priority=400)  # before napoleon
    app.connect("missing-reference", find_or_leave)
