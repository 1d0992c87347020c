"""Maps request paths to the dialects of providers."""

import re

from abreast.testing.storm.dialects.anthropic import AnthropicDialect
from abreast.testing.storm.dialects.dialect import Dialect
from abreast.testing.storm.dialects.gemini import GeminiDialect
from abreast.testing.storm.dialects.openai import OpenAIDialect

_PATHS: dict[str, Dialect] = {
    "/v1/chat/completions": OpenAIDialect(),
    "/v1/messages": AnthropicDialect(),
}
_GEMINI: Dialect = GeminiDialect()
_GENERATE = re.compile(
    r"/v1(?:beta)?/models/(?P<model>[^:]+):(?P<stream>generateContent|streamGenerateContent)"
)


def route(path: str) -> tuple[Dialect, str, bool] | None:
    """The dialect of a path, with the model and whether it streams, if the path says so."""
    if (dialect := _PATHS.get(path)) is not None:
        return dialect, "", False
    if (found := _GENERATE.fullmatch(path)) is not None:
        return _GEMINI, found["model"], found["stream"] == "streamGenerateContent"
    return None
