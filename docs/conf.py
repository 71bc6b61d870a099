"""Settings of the site: ``make docs`` builds it from the Markdown of this directory."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "deepccg"
author = copyright = "The deepccg developers"  # noqa: A001  (Sphinx's name)

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "generated_pages",
    "mathml",
    "notebooks",
]
exclude_patterns = ["_ext"]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 4  # the anchors that GitHub gives the same headings

highlight_language = "text"  # what names no language is a shell command or output
smartquotes = False  # a flag keeps its two dashes
default_role = "code"  # `name` in a docstring is code, as in Markdown
napoleon_use_ivar = True  # attributes are listed, and not described twice
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 80
add_module_names = False
toc_object_entries = False  # the pages of the API would fill the sidebar

html_theme = "furo"
html_title = "deepccg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_math_renderer = "mathml"
# Excerpts are fetched from the pages found, which browsers refuse to pages opened from a folder.
html_show_search_summary = False
