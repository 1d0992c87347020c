"""The report of a matrix, as one page that works offline and as Markdown."""

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from abreast.core.version import VERSION
from abreast.jobs.matrix.report import wording
from abreast.jobs.matrix.report.drilldown import compressed, packed, script_json
from abreast.jobs.matrix.report.figures import figures, plotly_js
from abreast.jobs.matrix.report.findings import METHODS, findings
from abreast.jobs.matrix.report.markdown import MOST_PAIRS, written
from abreast.jobs.matrix.rows import Row

LARGEST: Final = 9_500_000
"""Bytes of a page at most; the texts of cells are shortened to stay below."""

_PAGE: Final = Path(__file__).parent / "page"
_MIN_CELL_BYTES: Final = 500_000  # reserved for the cells, whatever the rest takes


def write_html(rows: Sequence[Row], facts: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write the report as one page that fetches nothing, replacing an existing file atomically.

    Raises `NeedsReport` if the extra `report` is not installed.

        write_html(rows, {"study": "Extraction", "run": "study-1", "seed": 7}, "report.html")
    """
    target = Path(path)
    # In the folder of the target, since a rename needs both files on one file system. The process
    # id keeps it apart from other processes' files.
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        temporary.write_text(html(rows, facts), encoding="utf-8", errors="replace", newline="\n")
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def markdown(rows: Sequence[Row], facts: Mapping[str, Any]) -> str:
    """The report as Markdown: everything but the plots and the cells.

    `facts` describe the run: `study`, `run`, `seed`, `versions`, `commit`, `dirty`, `prices`,
    `created`, `parameters`, `warnings` and others. They are shown in their order.
    """
    return written(findings(rows, facts))


def html(rows: Sequence[Row], facts: Mapping[str, Any]) -> str:
    """The page as text; `facts` as `markdown` takes them."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    found = findings(rows, facts)
    drawn = figures(found, rows)
    scripts = {"plotly": plotly_js(), "own": _page_file("report.js")}
    environment = Environment(
        loader=FileSystemLoader(_PAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update({name: getattr(wording, name) for name in _FILTERS})
    shown: dict[str, Any] = {
        "found": found,
        "drawn": drawn,
        "methods": METHODS,
        "most_pairs": MOST_PAIRS,
        "version": VERSION,
        # For the page's policy: no other script runs, whatever a reply holds.
        "hashes": [
            f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"
            for text in scripts.values()
        ],
        "style": _page_file("report.css"),
        "script": scripts["own"],
        "plotly": compressed(scripts["plotly"]) if drawn else "",
        "figures": script_json(drawn),
        "cells": packed((), 0),
    }
    template = environment.get_template("report.html")
    rest = len(template.render(shown).encode("utf-8", "replace"))
    return template.render(
        {**shown, "cells": packed(_ordered(rows), max(_MIN_CELL_BYTES, LARGEST - rest))}
    )


_FILTERS: Final = ("number", "signed", "p_value", "usd", "seconds", "share", "interval", "quantile")


def _ordered(rows: Sequence[Row]) -> list[Row]:
    return sorted(
        rows,
        key=lambda row: (row.control, row.model, row.strategy, row.input, row.repeat, row.cell),
    )


def _page_file(name: str) -> str:
    return (_PAGE / name).read_text(encoding="utf-8")
