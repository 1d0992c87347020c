"""What a storm replies: the same to the same request, with exactly as many tokens as it says."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, TypeAlias

from abreast.testing.storm.dialects.dialect import BadRequest, StormDraft, StormRequest
from abreast.testing.storm.world import StormVerdict

Script: TypeAlias = Mapping[str, str] | Callable[[str], str | None]
"""A text for each prompt; None, or a prompt that is missing, for a reply like any other."""

# Three letters and a space are one token, as tokens are counted here.
_LINE = (
    "air arc bay bow cup day dew ebb elm fog gem hay ice ink jar jet key kit lap log map mud net nut oak oar pen pin "
    "ray rib sea sky tar tea urn van web wax yak yew zip zoo ash bud cap den eel fin gap hut ivy jam keg lid nib orb "
    "pot rye sap tin"
)
_WORDS = [f"{word} " for word in _LINE.split() * 5][:256]  # one for each byte
_CYCLE = 16  # words until they come again
HUGE = 10_000_000


def fixed_text(ask: StormRequest, reply: str, script: Script | None) -> str | None:
    """The text of a reply that doesn't depend on how long it may be; None if it is to be drawn."""
    if ask.tool is not None:
        return _filled(ask.tool[1])
    if script is not None:
        said = script(ask.prompt) if callable(script) else script.get(ask.prompt)
        if said is not None:
            return said
    if ask.schema is not None:
        return _filled(ask.schema)
    return ask.prompt if reply == "echo" else None


def _filled(schema: Mapping[str, Any]) -> str:
    try:
        return json.dumps(instance(schema))
    except (AttributeError, KeyError, IndexError, RecursionError, TypeError) as error:
        raise BadRequest(f"a storm follows simple schemas only: {error!r}") from None


def drafted(ask: StormRequest, verdict: StormVerdict, text: str | None) -> StormDraft:
    """The reply that a verdict allows: the text, cut to its tokens, or drawn words."""
    said = words(ask.key, verdict.output_tokens) if text is None else text
    if verdict.cut and text is not None:
        said = text[: 4 * verdict.output_tokens]
    if verdict.fault is not None and verdict.fault.name == "refusal":
        return StormDraft(verdict.id, said, "refusal", verdict.input_tokens, verdict.output_tokens)
    tool = ask.tool[0] if ask.tool is not None else ""
    finish = "length" if verdict.cut else "tool" if tool else "stop"
    return StormDraft(verdict.id, said, finish, verdict.input_tokens, verdict.output_tokens, tool)


def words(key: str, tokens: int) -> str:
    """So many words, drawn from a digest of the key.

    >>> len(words("a", 100).split())
    100
    """
    drawn = blake2b(key.encode(), digest_size=_CYCLE).digest()
    text = "".join([_WORDS[byte] for byte in drawn])
    return (text * (tokens // _CYCLE + 1))[: max(0, 4 * tokens - 1)]


def pieces_of(text: str, most: int) -> list[str]:
    """A text in at most so many pieces of about the same length, and no empty one."""
    size = max(4, -(-len(text) // most))
    return [text[at : at + size] for at in range(0, len(text), size)]


def instance(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> Any:
    """The least that a simple JSON schema allows: every property, the first of each choice.

    >>> instance({"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}})
    {'n': 3}
    """
    root = schema if root is None else root
    if isinstance(ref := schema.get("$ref"), str):
        return instance(_referred(root, ref), root)
    for name in ("anyOf", "oneOf", "allOf"):
        if schema.get(name):
            return instance(schema[name][0], root)
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    if schema.get("enum"):
        return schema["enum"][0]
    return _of_type(schema, root)


def _of_type(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
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


def _referred(root: Mapping[str, Any], ref: str) -> Mapping[str, Any]:
    found: Any = root
    for part in ref.removeprefix("#/").split("/"):
        found = found[part]
    return dict(found)
