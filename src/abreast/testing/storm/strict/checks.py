"""What the strict profiles share: signatures, prefix caches, reasoning, schemas in prompts."""

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from abreast.testing.storm.dialects.dialect import Json, StormRequest
from abreast.testing.storm.dialects.replies import words

# Tokens of reasoning by effort. The default is more than a small `max_tokens` of 1024 leaves room
# for: GPT-5 was seen to reason for 1,400 tokens before a reply of 120.
REASONING_TOKENS: Mapping[str, int] = {
    "none": 0,
    "minimal": 0,
    "low": 128,
    "medium": 1200,
    "high": 4000,
    "xhigh": 8000,
    "max": 16000,
}
DEFAULT_EFFORT = "medium"
_SHOWN_REASONING = 16  # words, whatever was reasoned
_SCHEMA_WORDS = frozenset({"type", "properties", "anyOf", "oneOf", "allOf", "enum", "$ref"})


def names(text: str) -> frozenset[str]:
    """The names in a text, such as the fields of a body."""
    return frozenset(text.split())


def sign(*signed: object) -> str:
    """The signature of reasoning: a digest of what it signs, so that no change goes unnoticed."""
    whole = json.dumps(signed, sort_keys=True).encode()
    return b64encode(blake2b(b"storm" + whole, digest_size=24).digest()).decode()


def reasoning_text(ask: StormRequest) -> str:
    """The text of the reasoning before a reply, the same for the same request."""
    return words(f"reasoning {ask.key}", min(ask.reasoning_tokens, _SHOWN_REASONING))


class PrefixCache:
    """Counts the tokens at the start of a prompt that earlier prompts of the model began with.

    Prefixes are counted in steps of `unit` tokens, from `minimum` tokens on.
    """

    def __init__(self, minimum: int = 1024, unit: int = 128) -> None:
        self._minimum = minimum
        self._unit = unit
        self._seen: set[bytes] = set()

    def cached_tokens(self, model: str, texts: Sequence[str]) -> int:
        """The tokens of a prompt that are cached; all of it is cached from now on."""
        whole = "".join(texts)
        digest = blake2b(model.encode(), digest_size=16)
        done = cached = 0
        for tokens in range(self._minimum, len(whole) // 4 + 1, self._unit):
            digest.update(whole[done : 4 * tokens].encode("utf-8", "surrogatepass"))
            done = 4 * tokens
            prefix = digest.digest()
            if prefix in self._seen:
                cached = tokens
            self._seen.add(prefix)
        return cached


def schema_in(texts: Sequence[str]) -> Json | None:
    """The JSON schema that a prompt asks for in words, as a model would find it; None for none."""
    decoder = json.JSONDecoder()
    for text in reversed(texts):
        at = text.find("{") if "json" in text.lower() else -1
        while at >= 0:
            try:
                found, end = decoder.raw_decode(text, at)
            except ValueError:
                found, end = None, at + 1
            if isinstance(found, dict) and found.keys() & _SCHEMA_WORDS:
                return found
            at = text.find("{", end)
    return None


def answer_tool(
    tools: Sequence[tuple[str, str, Json]], texts: Sequence[str]
) -> tuple[str, Json] | None:
    """The tool that a model would call unforced: a text says to, or it gives the final reply."""
    for name, description, schema in tools:
        told = any(f"call {name}" in text or f"call `{name}`" in text for text in texts)
        if told or "final reply" in description.lower():
            return name, schema
    return None


def says_json(texts: Sequence[str]) -> bool:
    """Whether the word json is somewhere in a prompt, as JSON modes require."""
    return any("json" in text.lower() for text in texts)


def subschemas(
    schema: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """A schema and all schemas in it, with the path to each."""
    yield path, schema
    for name in ("properties", "$defs", "definitions"):
        for key, inner in (schema.get(name) or {}).items():
            if isinstance(inner, Mapping):
                yield from subschemas(inner, (*path, name, key))
    for name in ("anyOf", "oneOf", "allOf"):
        for number, inner in enumerate(schema.get(name) or ()):
            yield from subschemas(inner, (*path, name, str(number)))
    if isinstance(inner := schema.get("items"), Mapping):
        yield from subschemas(inner, (*path, "items"))


def is_object(schema: Mapping[str, Any]) -> bool:
    """Whether a schema is for objects."""
    kind = schema.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind)
