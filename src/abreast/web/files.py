"""Static files of the page, the path of plotly's script, and JSON without secrets."""

import json
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import Final

STATIC: Final = Path(__file__).parent / "static"


def plotly_path() -> Path | None:
    """The path of the script in plotly's package, or None if plotly is not installed."""
    spec = find_spec("plotly")
    return (
        None
        if spec is None or spec.origin is None
        else Path(spec.origin).parent / "package_data" / "plotly.min.js"
    )


def json_text(content: object, secrets: Collection[str] = ()) -> str:
    """Encode as JSON, with secrets replaced by `***`.

    The journal holds no secrets; this is a second safeguard.
    """
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    for secret in secrets:
        # JSON escapes quotes in a secret, and does so twice in a text that is JSON itself.
        for form in {secret, once := _escaped(secret), _escaped(once)}:
            text = text.replace(form, "***")
    return text


def _escaped(text: str) -> str:
    """The text as it is written within a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
