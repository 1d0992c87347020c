"""The replies of a storm: the same for the same request, with exactly the stated tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, TypeAlias

from abreast.testing.storm.dialects.dialect import BadRequest, StormDraft, StormRequest
from abreast.testing.storm.world import StormVerdict

Script: TypeAlias = Mapping[str, str] | Callable[[str], str | None]
"""A text for each prompt; None, or a missing prompt, for a generated reply."""

# Three letters and a space are one token, as tokens are counted in a storm.
_VOCABULARY = (
    "air arc bay bow cup day dew ebb elm fog gem hay ice ink jar jet key kit lap log map mud net "
    "nut oak oar pen pin ray rib sea sky tar tea urn van web wax yak yew zip zoo ash bud cap den "
    "eel fin gap hut ivy jam keg lid nib orb pot rye sap tin"
)
_WORDS = [f"{word} " for word in _VOCABULARY.split() * 5][:256]  # one for each byte
_CYCLE_WORDS = 16  # words until they repeat
HUGE = 10_000_000  # bytes


def fixed_text(ask: StormRequest, reply: str, script: Script | None) -> str | None:
    """The text of a reply that doesn't depend on its length; None if it is to be generated."""
    if ask.tool is not None:
        return _fill_schema(ask.tool[1])
    if script is not None:
        answer = script(ask.prompt) if callable(script) else script.get(ask.prompt)
        if answer is not None:
            return answer
    if ask.schema is not None:
        return _fill_schema(ask.schema)
    return ask.prompt if reply == "echo" else None


def _fill_schema(schema: Mapping[str, Any]) -> str:
    try:
        return json.dumps(instance(schema))
    except (AttributeError, KeyError, IndexError, RecursionError, TypeError) as error:
        raise BadRequest(f"a storm follows simple schemas only: {error!r}") from None


def make_draft(ask: StormRequest, verdict: StormVerdict, text: str | None) -> StormDraft:
    """The reply that a verdict allows: the text, cut to its tokens, or generated words."""
    answer = words(ask.key, verdict.output_tokens) if text is None else text
    if verdict.cut and text is not None:
        answer = text[: 4 * verdict.output_tokens]
    if verdict.fault is not None and verdict.fault.name == "refusal":
        return StormDraft(
            verdict.id, answer, "refusal", verdict.input_tokens, verdict.output_tokens
        )
    tool = ask.tool[0] if ask.tool is not None else ""
    finish = "length" if verdict.cut else "tool" if tool else "stop"
    return StormDraft(verdict.id, answer, finish, verdict.input_tokens, verdict.output_tokens, tool)


def words(key: str, tokens: int) -> str:
    """So many words, chosen by a digest of the key.

    >>> len(words("a", 100).split())
    100
    """
    drawn = blake2b(key.encode(), digest_size=_CYCLE_WORDS).digest()
    text = "".join([_WORDS[byte] for byte in drawn])
    return (text * (tokens // _CYCLE_WORDS + 1))[: max(0, 4 * tokens - 1)]


def split_text(text: str, most: int) -> list[str]:
    """Split a text into at most so many pieces of about the same length, none of them empty."""
    size = max(4, -(-len(text) // most))
    return [text[at : at + size] for at in range(0, len(text), size)]


def instance(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> Any:
    """A minimal value for a simple JSON schema: every property, the first of each choice.

    >>> instance({"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}})
    {'n': 3}
    """
    root = schema if root is None else root
    if isinstance(ref := schema.get("$ref"), str):
        return instance(_resolve(root, ref), root)
    for name in ("anyOf", "oneOf", "allOf"):
        if schema.get(name):
            return instance(schema[name][0], root)
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    if schema.get("enum"):
        return schema["enum"][0]
    return _instance_of_type(schema, root)


def _instance_of_type(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    kind = schema.get("type", "object")
    kind = str(kind[0] if isinstance(kind, list) else kind).lower()
    if kind == "object":
        return {name: instance(inner, root) for name, inner in schema.get("properties", {}).items()}
    if kind == "array":
        return [instance(schema.get("items", {}), root) for _ in range(schema.get("minItems", 0))]
    if kind == "string":
        return "word".ljust(schema.get("minLength", 0), "s")[: schema.get("maxLength")]
    number = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
    return {"integer": number, "number": number, "boolean": True}.get(kind)


def _resolve(root: Mapping[str, Any], ref: str) -> Mapping[str, Any]:
    found: Any = root
    for part in ref.removeprefix("#/").split("/"):
        found = found[part]
    return dict(found)
