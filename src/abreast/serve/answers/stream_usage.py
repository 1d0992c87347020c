"""The usage of streamed chat completions: asked for upstream, and kept from clients who did not."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_BLANK_LINE: Final = re.compile(rb"\r?\n\r?\n")


@dataclass(slots=True)
class StreamUsage:
    """Whether a provider sends the usage of streams; it does until it has refused to."""

    refused: bool = False


def shows_usage(body: Mapping[str, Any]) -> bool:
    """Whether a client asks for the usage in its stream."""
    options = body.get("stream_options")
    return isinstance(options, Mapping) and bool(options.get("include_usage"))


def with_usage(body: Mapping[str, Any]) -> dict[str, Any]:
    """The field that asks for it, beside the client's other options."""
    options = body.get("stream_options")
    own = dict(options) if isinstance(options, Mapping) else {}
    return {"stream_options": {**own, "include_usage": True}}


class UsageFilter:
    """Leaves out the event of a stream that has nothing but the usage; all others stay as they are.

    It passes on whole events, so a part of one waits for its rest.
    """

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, part: bytes) -> bytes:
        """What a client gets of a stream after its next part."""
        text = self._rest + part
        passed, at = [], 0
        for blank in _BLANK_LINE.finditer(text):
            event = text[at : blank.end()]
            at = blank.end()
            if not _has_only_usage(event):
                passed.append(event)
        self._rest = text[at:]
        return b"".join(passed)

    def end(self) -> bytes:
        """What is left at the end."""
        rest, self._rest = self._rest, b""
        return b"" if _has_only_usage(rest) else rest


def _has_only_usage(event: bytes) -> bool:
    if b'"usage"' not in event:
        return False
    try:
        document = json.loads(event.strip().removeprefix(b"data:"))
    except ValueError:
        return False
    return (
        isinstance(document, dict)
        and document.get("choices") == []
        and isinstance(document.get("usage"), dict)
    )
