"""Which path speaks which provider's language."""

from __future__ import annotations

import re

from abreast.testing.storm.anthropic import Anthropic
from abreast.testing.storm.gemini import Gemini
from abreast.testing.storm.openai import OpenAI
from abreast.testing.storm.shape import Shape

_PATHS: dict[str, Shape] = {"/v1/chat/completions": OpenAI(), "/v1/messages": Anthropic()}
_GEMINI: Shape = Gemini()
_GENERATE = re.compile(r"/v1(?:beta)?/models/(?P<model>[^:]+):(?P<stream>generateContent|streamGenerateContent)")


def route(path: str) -> tuple[Shape, str, bool] | None:
    """The shape of requests to a path, with the model and whether it streams, where the path says so."""
    if (shape := _PATHS.get(path)) is not None:
        return shape, "", False
    if (found := _GENERATE.fullmatch(path)) is not None:
        return _GEMINI, found["model"], found["stream"] == "streamGenerateContent"
    return None
