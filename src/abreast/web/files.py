"""The page's own files, the chart library's script as its package brings it, and JSON without secrets."""

from __future__ import annotations

import json
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import Final

STATIC: Final = Path(__file__).parent / "static"


def plotly_path() -> Path | None:
    """The script that comes with plotly's package; None where that is not installed."""
    spec = find_spec("plotly")
    return (
        None
        if spec is None or spec.origin is None
        else Path(spec.origin).parent / "package_data" / "plotly.min.js"
    )


def json_text(said: object, secrets: Collection[str] = ()) -> str:
    """What is said, as JSON, without secrets: they are not in the journal, and this is the net beneath that."""
    text = json.dumps(said, ensure_ascii=False, separators=(",", ":"))
    for secret in secrets:
        # In JSON a quote in it is written otherwise; and a text within a text may be JSON itself.
        for form in {secret, once := _inside(secret), _inside(once)}:
            text = text.replace(form, "***")
    return text


def _inside(text: str) -> str:
    """As it is written within a text of JSON."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
