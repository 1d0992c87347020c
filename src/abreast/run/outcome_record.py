"""Outcomes as `item-settled` events of the journal, and back."""

from collections.abc import Mapping
from typing import Any

from abreast.core.events import Plain
from abreast.core.item import unescape
from abreast.core.outcome import (
    NO_USAGE,
    TOKEN_PARTS,
    Cancelled,
    Done,
    Failed,
    Outcome,
    Times,
    Usage,
)
from abreast.store.codec import codec
from abreast.store.port import JsonValue, Recorded


def facts_of(
    outcome: Outcome[Any], attempts: int, digest: str | None
) -> dict[str, Plain | list[float]]:
    """The plain facts of an outcome, without its value."""
    queued, waited, backoff, *service = outcome.times
    facts: dict[str, Plain | list[float]] = {
        "index": outcome.index,
        "state": outcome.state,
        "waited": waited,
        "service": service,
    }
    if queued:
        facts["queued"] = queued
    if backoff:
        facts["backoff"] = backoff
    if digest is not None:
        facts["digest"] = digest
    if attempts > 1:
        facts["attempts"] = attempts
    if isinstance(outcome, Cancelled):
        facts["reason"] = outcome.reason
    usage = outcome.usage
    return facts if usage is NO_USAGE else facts | usage_facts(usage)


def usage_facts(used: Usage) -> dict[str, Plain | list[float]]:
    """Usage as plain facts; the parts of tokens only if there are any."""
    facts: dict[str, Plain | list[float]] = {
        "requests": used.requests,
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "usd": used.usd,
        "estimate": used.estimate,
    }
    if used.cached_input_tokens or used.cache_write_tokens or used.reasoning_tokens:
        parts = {name: getattr(used, name) for name in TOKEN_PARTS}
        facts |= {name: tokens for name, tokens in parts.items() if tokens}
    return facts


def usage_of(data: Mapping[str, Any]) -> Usage:
    """The usage that `usage_facts` recorded."""
    if "requests" not in data:
        return NO_USAGE
    return Usage(
        data["requests"],
        data["input_tokens"],
        data["output_tokens"],
        data["usd"],
        data["estimate"],
        *(data.get(name, 0) for name in TOKEN_PARTS),
    )


def restore(
    recorded: Recorded,
    types: Mapping[str, type] = codec.NO_TYPES,
    *,
    index: int | None = None,
    key: str | None = None,
) -> Outcome[Any]:
    """The recorded outcome: its value decoded, a failure as a `RecordedError`.

    `types` are the user's types for decoding, by `module:qualname`; `index` and `key` are those of
    the item now, where they may differ from those recorded.
    """
    data: Mapping[str, Any] = recorded.data
    if index is None:
        index = int(data["index"])
    if key is None:
        key = unescape(recorded.path.rpartition("/")[2])
    usage, times = usage_of(data), _times(data)
    if data["state"] == "done":
        value = codec.decode(recorded.body or "null", types)
        return Done(index, key, value, recorded.lane, usage, times)
    if data["state"] == "failed":
        error = codec.decode_error(recorded.body or "{}", lambda text: codec.decode(text, types))
        return Failed(index, key, error, recorded.lane, usage, times)
    return Cancelled(index, key, str(data.get("reason", "")), recorded.lane, usage, times)


def is_final(recorded: Recorded, *, retry_failed: bool) -> bool:
    """Whether a resumed run keeps the recorded outcome.

    A cancelled item always runs again, a failed one only with `retry_failed`.
    """
    state = recorded.data["state"]
    return state == "done" or (state == "failed" and not retry_failed)


def _times(data: Mapping[str, JsonValue]) -> Times:
    service = data.get("service")
    first = [data.get(name) for name in ("queued", "waited", "backoff")]
    parts = [*first, *(service if isinstance(service, list) else [])]
    return tuple(float(part) if isinstance(part, (int, float)) else 0.0 for part in parts)
