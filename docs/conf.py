"""How Sphinx builds these pages; `make docs` runs it with warnings as errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import version as version_of
from itertools import groupby
from textwrap import dedent, indent
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

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

_CODE = re.compile(r"(?<!`)`(?P<code>[^`\n]+)`(?!`)(?P<next>\w?)")
_SECTION = re.compile(
    r"\s*(- .*|[A-Z][\w ()]*:)"
)  # a list, or `Args:` and its like: what is indented there is text


def setup(app: Sphinx) -> None:
    """Docstrings are written to be read in `help()`.

    Before napoleon sees them they become reStructuredText.
    """
    app.connect("autodoc-process-docstring", _rewrite, priority=100)


def _rewrite(
    _app: Sphinx, _what: str, _name: str, _thing: object, _options: object, lines: list[str]
) -> None:
    lines[:] = _restructured(lines)


def _restructured(lines: list[str]) -> Iterator[str]:
    """Make `code` literal, and turn indented and partly indented paragraphs into literal blocks."""
    around = 0  # the indentation of the text
    for filled, group in groupby(lines, key=bool):
        paragraph = list(group)
        depth = _depth(paragraph[0])
        ragged = any(_depth(line) > depth for line in paragraph) and not _SECTION.fullmatch(
            paragraph[0]
        )
        if filled and (depth > around or ragged):
            yield from (f"{' ' * around}::", "")
            yield from indent(dedent("\n".join(paragraph)), " " * (around + 4)).splitlines()
        else:
            around = _depth(paragraph[-1]) if filled else around
            yield from (_CODE.sub(_literal, line) for line in paragraph)


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _literal(found: re.Match[str]) -> str:
    more = found["next"]
    return f"``{found['code']}``" + (rf"\ {more}" if more else "")
