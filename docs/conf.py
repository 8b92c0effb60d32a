"""The documentation site: `make docs` builds it, and every warning is an error.

The pages ask nothing of a network: fonts are those of the reader, and formulas become MathML, which
browsers draw by themselves.
"""

from latex2mathml.converter import convert

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
    raise _skip()


def _block_math(translator, node):
    formula = convert(node.astext(), display="block")
    translator.body.append(f'<div class="math">{formula}</div>')
    raise _skip()


def _skip():
    from docutils.nodes import SkipNode

    return SkipNode()


def setup(app):
    """Draw formulas as MathML."""
    app.add_html_math_renderer("mathml", (_inline_math, None), (_block_math, None))
