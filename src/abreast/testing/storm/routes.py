"""Which path speaks which provider's language."""

from __future__ import annotations

from abreast.testing.storm.openai import OpenAI
from abreast.testing.storm.shape import Shape

_OPENAI: Shape = OpenAI()


def route(path: str) -> tuple[Shape, str, bool] | None:
    """The shape of requests to a path, with the model and whether it streams, where the path says so."""
    if path == "/v1/chat/completions":
        return _OPENAI, "", False
    return None
