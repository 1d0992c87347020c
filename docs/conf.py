"""How Sphinx builds these pages; `make docs` runs it with warnings as errors."""

from importlib.metadata import version as version_of

project = "abreast"
release = version = version_of("abreast")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["Thumbs.db", ".DS_Store"]

html_theme = "furo"
html_title = f"abreast {release}"

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
# A dataclass's fields are documented once, where the class describes them.
napoleon_use_ivar = True

myst_heading_anchors = 3
