"""The strict profiles by name: the paths that each answers, and how."""

from collections.abc import Mapping

from abreast.testing.storm.dialects.dialect import Dialect
from abreast.testing.storm.strict.anthropic import AnthropicClassic, AnthropicNew
from abreast.testing.storm.strict.compatible import (
    DeepSeek,
    Groq,
    Mistral,
    OldVllm,
    OpenRouter,
    Xai,
)
from abreast.testing.storm.strict.gemini import StrictGemini
from abreast.testing.storm.strict.openai import OpenAIReasoning
from abreast.testing.storm.strict.responses import Responses

_CHAT = "/v1/chat/completions"
_MESSAGES = "/v1/messages"
PROFILES: Mapping[str, tuple[str, type[Dialect]]] = {
    "openai-reasoning": (_CHAT, OpenAIReasoning),
    "openai-responses": ("/v1/responses", Responses),
    "anthropic-new": (_MESSAGES, AnthropicNew),
    "anthropic-classic": (_MESSAGES, AnthropicClassic),
    "gemini": ("/v1beta/models", StrictGemini),
    "deepseek": (_CHAT, DeepSeek),
    "mistral": (_CHAT, Mistral),
    "groq": (_CHAT, Groq),
    "xai": (_CHAT, Xai),
    "openrouter": (_CHAT, OpenRouter),
    "vllm-old": (_CHAT, OldVllm),
}


def make_profile(name: str) -> Mapping[str, Dialect] | None:
    """A new dialect for each path of a profile; None for `none`."""
    if name not in PROFILES:
        return None
    path, dialect = PROFILES[name]
    return {path: dialect()}
