"""Thinking of models: how much of it to ask for, and what the next request repeats of it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from abreast.models.port import Effort, Json, Message, Request, ToolCall

# The tokens to think with by effort, where a model takes a number only. They are those that Google
# names for its models, and fit into the replies of the other ones.
EFFORT_TOKENS: Final[Mapping[Effort, int]] = {
    "none": 0,
    "minimal": 1024,
    "low": 1024,
    "medium": 8192,
    "high": 24_576,
    "xhigh": 24_576,
    "max": 24_576,
}


def output_bound(request: Request) -> int | None:
    """The bound on the output where that includes the thinking; None if there is none."""
    if request.max_tokens is None:
        return None
    return request.max_tokens + (request.thinking_tokens or 0)


def unbounded_thinking(request: Request) -> tuple[str, ...]:
    """What was not sent where thinking is only bounded by `output_bound`, and that is None."""
    unsent = request.thinking_tokens is not None and request.max_tokens is None
    return ("without thinking_tokens",) if unsent else ()


# --- what a turn keeps

Kept = tuple[Mapping[str, Json], ...]


def kept_of(provider: str, parts: Sequence[Mapping[str, Any]]) -> Kept:
    """What a turn keeps, from its parts in the order in which they came.

    `{"text": 12}` stands for so many characters of the text, `{"call": 0}` for that tool call, both
    perhaps with fields to repeat beside them: `"with"`. `{"item": ...}` is to be repeated as it is.
    Nothing is kept of a turn that has only texts and calls.
    """
    if not any("item" in part or part.get("with") for part in parts):
        return ()
    kept: list[Mapping[str, Any]] = []
    for part in parts:
        if kept and part.keys() == kept[-1].keys() - {"provider"} == {"text"}:
            kept[-1] = {**kept[-1], "text": kept[-1]["text"] + part["text"]}
        else:
            kept.append({"provider": provider, **part})
    return tuple(kept)


def turn_parts(
    message: Message, provider: str
) -> list[tuple[str | ToolCall | None, Mapping[str, Any]]]:
    """The parts of a turn, each with its fields to repeat; None is an item that has only these.

    They have the order in which they came. If the text or the calls have been changed since, the
    items come first. What another provider gave is left out.
    """
    kept: list[Mapping[str, Any]] = [
        each for each in message.kept if each.get("provider") == provider
    ]
    calls = {each["call"]: each.get("with") or {} for each in kept if "call" in each}
    whole = kept and sum(each.get("text", 0) for each in kept) == len(message.content)
    if whole and sorted(calls) == list(range(len(message.tool_calls))):
        return _parts_in_order(message, kept)
    parts: list[tuple[str | ToolCall | None, Mapping[str, Any]]] = [
        (None, each["item"]) for each in kept if "item" in each
    ]
    if message.content or not (parts or message.tool_calls):
        parts.append((message.content, {}))
    return parts + [(call, calls.get(number, {})) for number, call in enumerate(message.tool_calls)]


def _parts_in_order(
    message: Message, kept: Sequence[Mapping[str, Any]]
) -> list[tuple[str | ToolCall | None, Mapping[str, Any]]]:
    parts: list[tuple[str | ToolCall | None, Mapping[str, Any]]] = []
    start = 0
    for each in kept:
        fields = each.get("with") or {}
        if "item" in each:
            parts.append((None, each["item"]))
        elif "call" in each:
            parts.append((message.tool_calls[each["call"]], fields))
        elif (length := each.get("text", 0)) or fields:
            parts.append((message.content[start : start + length], fields))
            start += length
    return parts
