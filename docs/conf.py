"""How the documentation is built: `make docs`."""

from importlib.metadata import version as installed_version

project = "keepset"
author = "The keepset authors"
release = version = installed_version("keepset")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
default_role = "code"  # single backticks in docstrings are code

autodoc_typehints = "none"  # the signature's types are told in words below it
autodoc_member_order = "bysource"

html_theme = "furo"
html_title = f"keepset {release}"
