"""The documentation site: `make docs` builds it, and every warning is an error.

The pages ask nothing of a network: fonts are those of the reader, and formulas become MathML, which
browsers draw by themselves.
"""

import re
from pathlib import Path

from docutils.nodes import SkipNode
from latex2mathml.converter import convert
from sphinx.errors import ExtensionError

import offmap

project = "offmap"
author = "offmap contributors"
copyright = "offmap contributors, MIT licence"
version = release = offmap.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["results", "_templates"]

autodoc_typehints = "none"  # shapes in signatures are long; the arguments say what they take
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
default_role = "code"
smartquotes = False  # the prime of x' is no quotation mark

html_theme = "furo"
html_title = "offmap"
html_static_path = ["_static"]
html_css_files = ["offmap.css"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_math_renderer = "mathml"
html_theme_options = {"navigation_with_keys": True}


def _inline_math(translator, node):
    translator.body.append(convert(node.astext()))
    raise SkipNode


def _block_math(translator, node):
    formula = convert(node.astext(), display="block")
    translator.body.append(f'<div class="math">{formula}</div>')
    raise SkipNode


def _ask_nothing(app, exception):
    """Refuse pages that load anything from elsewhere."""
    loads = re.compile(r'<(?:script|link|img|iframe)\b[^>]*(?:src|href)="(?:https?:)?//[^"]*"')
    for page in Path(app.outdir).glob("*.html"):
        found = loads.search(page.read_text("utf-8"))
        if found:
            raise ExtensionError(f"{page.name} asks something of a network: {found[0]}")


def setup(app):
    """Draw formulas as MathML, and keep the pages offline."""
    app.add_html_math_renderer("mathml", (_inline_math, None), (_block_math, None))
    app.connect("build-finished", _ask_nothing)
