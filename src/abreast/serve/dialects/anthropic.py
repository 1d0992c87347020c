"""Anthropic's messages, from the side of the server."""

from collections.abc import Mapping
from typing import Any, Final

from abreast.core.outcome import Usage
from abreast.models.lanes import Kind
from abreast.models.media import MediaFile
from abreast.models.port import ANY_TOOL, Finish, Message, Reply, Request, ToolCall
from abreast.serve.dialects.chat import read_effort
from abreast.serve.dialects.dialect import (
    NO_TOOL,
    Asked,
    Document,
    Unsupported,
    arguments_of,
    check_turns,
    count_in,
    encode,
    file_of_base64,
    number_in,
    objects_in,
    refuse_others,
    sse,
    text_in,
    unsupported_choice,
    whole_in,
    with_tools,
)
from abreast.serve.faults import ApiFault, FaultKind

_STOP: Final[Mapping[Finish, str]] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "refused": "refusal",
    "other": "end_turn",
}
_READ: Final = (
    *("model", "messages", "max_tokens", "system", "temperature", "stop_sequences", "stream"),
    *("tools", "tool_choice", "thinking", "output_config"),
)
# What the reply does not depend on, or only at its provider.
_IGNORED: Final = ("metadata", "service_tier", "cache_control", "context_management", "betas")
_DEFAULTS: Final = {"top_p": 1}
_ERRORS: Final[Mapping[FaultKind, str]] = {
    "invalid": "invalid_request_error",
    "key": "authentication_error",
    "missing": "not_found_error",
    "large": "invalid_request_error",
    "refused": "invalid_request_error",
    "wait": "rate_limit_error",
    "quota": "billing_error",
    "server": "api_error",
    "overloaded": "overloaded_error",
}


class Messages:
    """Requests and replies as `/v1/messages` has them."""

    name = "messages"
    path = "/messages"
    provider = "anthropic"
    kinds: tuple[Kind, ...] = ("anthropic",)
    ping = sse({"type": "ping"}, "ping")

    def read(self, body: Document) -> Request:
        """Read a request."""
        refuse_others(body, (*_READ, *_IGNORED), _DEFAULTS)
        turns: list[Message] = []
        for at, one in enumerate(objects_in(body, "messages")):
            turns += _turns(one, f"messages[{at}]")
        tools = [_tool(one, f"tools[{at}].") for at, one in enumerate(objects_in(body, "tools"))]
        config = body.get("output_config")
        config = config if isinstance(config, dict) else {}
        request = Request(
            check_turns(turns, "messages"),
            system=_text(body.get("system"), "system") or None,
            temperature=number_in(body, "temperature"),
            stop=_texts(body, "stop_sequences"),
            max_tokens=count_in(body, "max_tokens"),
            schema=_schema(config.get("format")),
            reasoning=read_effort(config.get("effort"), "output_config.effort"),
            thinking_tokens=_thinking(body.get("thinking")),
        )
        return with_tools(request, tools, _tool_choice(body.get("tool_choice")))

    def write(self, reply: Reply, asked: Asked) -> Document:
        """A message."""
        text = [{"type": "text", "text": reply.text}] if reply.text else []
        return {
            **_frame(asked),
            "content": [*text, *map(_use, reply.tool_calls)],
            "stop_reason": _STOP[reply.finish],
            "usage": _usage(reply.usage),
        }

    def stream(self, asked: Asked) -> "_MessageEvents":
        """A writer of events."""
        return _MessageEvents(asked)

    def fault(self, fault: ApiFault) -> Document:
        """The body of an error."""
        return {
            "type": "error",
            "error": {"type": _ERRORS[fault.kind], "message": fault.message},
        }

    def fault_event(self, fault: ApiFault) -> bytes:
        """An error as the last event of a stream."""
        return sse(self.fault(fault), "error")

    def bound(self, body: Document) -> int | None:
        """The bound in a body."""
        return whole_in(body, "max_tokens")

    def cap(self, max_tokens: int) -> Document:
        """The field of a bound."""
        return {"max_tokens": max_tokens}


class _MessageEvents:
    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._begun = False
        self._writes_text = False

    def text(self, piece: str) -> bytes:
        """A delta of the text's block."""
        events = [self._begin()]
        if not self._writes_text:
            self._writes_text = True
            events.append(_event("content_block_start", index=0, content_block=_TEXT))
        delta = {"type": "text_delta", "text": piece}
        events.append(_event("content_block_delta", index=0, delta=delta))
        return b"".join(events)

    def end(self, reply: Reply) -> bytes:
        """The blocks of tool calls, why it ended and what it used."""
        events = [self._begin()]
        if self._writes_text:
            events.append(_event("content_block_stop", index=0))
        for index, call in enumerate(reply.tool_calls, int(self._writes_text)):
            delta = {"type": "input_json_delta", "partial_json": call.arguments or "{}"}
            events += [
                _event(
                    "content_block_start", index=index, content_block={**_use(call), "input": {}}
                ),
                _event("content_block_delta", index=index, delta=delta),
                _event("content_block_stop", index=index),
            ]
        ended = {"stop_reason": _STOP[reply.finish], "stop_sequence": None}
        events += [
            _event("message_delta", delta=ended, usage=_usage(reply.usage)),
            _event("message_stop"),
        ]
        return b"".join(events)

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        # What it used is known at the end; the last event tells it.
        message = {**_frame(self._asked), "content": [], "usage": _usage(Usage())}
        return _event("message_start", message=message)


_TEXT: Final = {"type": "text", "text": ""}


def _event(kind: str, **fields: object) -> bytes:
    return sse({"type": kind, **fields}, kind)


def _frame(asked: Asked) -> Document:
    return {
        "id": f"msg_{asked.id}",
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _use(call: ToolCall) -> Document:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments_of(call)}


def _usage(used: Usage) -> Document:
    cached, written = used.cached_input_tokens, used.cache_write_tokens
    return {
        "input_tokens": used.input_tokens - cached - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "output_tokens": used.output_tokens,
    }


# --- reading


def _turns(given: Document, where: str) -> list[Message]:
    """The turns of one message: results of tools are turns of their own."""
    role, content = given.get("role"), given.get("content")
    if role not in ("user", "assistant"):
        raise Unsupported(f"{where}.role", f"{where}.role must be user or assistant")
    if isinstance(content, str):
        return [Message("assistant" if role == "assistant" else "user", content)]
    texts: list[str] = []
    files: list[MediaFile] = []
    calls: list[ToolCall] = []
    results: list[Message] = []
    for at, block in enumerate(objects_in(given, "content", f"{where}.")):
        place = f"{where}.content[{at}]"
        match block:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "tool_use", "id": str(name), "name": str(tool), "input": dict(values)}:
                calls.append(ToolCall(name, tool, encode(values)))
            case {"type": "tool_result", "tool_use_id": str(name)}:
                answer = _text(block.get("content"), f"{place}.content")
                results.append(Message("tool", answer, tool_call_id=name))
            case {"type": "image" | "document", "source": {"type": "base64", "data": data}}:
                files.append(file_of_base64(data, str(block.get("title") or ""), place))
            case {"type": "thinking" | "redacted_thinking"}:
                continue  # signed by a provider, and of use to it alone
            case _:
                kind = block.get("type")
                raise Unsupported(place, f"{place}: a block of type {kind!r} can't be passed on")
    own = Message(
        "assistant" if role == "assistant" else "user",
        "\n".join(texts),
        tuple(calls),
        files=tuple(files),
    )
    is_empty = not (own.content or own.tool_calls or own.files)
    return [*results, *([] if results and is_empty else [own])]


def _text(given: object, where: str) -> str:
    """A text, or the texts of blocks."""
    if given is None or isinstance(given, str):
        return given or ""
    if not isinstance(given, list):
        raise Unsupported(where, f"{where} must be a text or a list of blocks")
    texts: list[str] = []
    for at, block in enumerate(given):
        if not isinstance(block, dict) or block.get("type") != "text":
            place = f"{where}[{at}]"
            raise Unsupported(place, f"{place}: only text can be passed on here")
        texts.append(text_in(block, "text", f"{where}[{at}]."))
    return "\n".join(texts)


def _texts(body: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found = body.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise Unsupported(name, f"{name} must be a list of texts")
    return tuple(found)


def _tool(given: Document, where: str) -> Document:
    kind = given.get("type", "custom")
    if kind not in ("custom", None):
        raise Unsupported(
            f"{where}type", f"{where}type: a tool of type {kind!r} can't be passed on"
        )
    found: Document = {"name": text_in(given, "name", where)}
    if given.get("description"):
        found["description"] = text_in(given, "description", where)
    return {**found, "parameters": given.get("input_schema") or {"type": "object"}}


def _tool_choice(given: object) -> str | None:
    match given:
        case None | {"type": "auto"}:
            return None
        case {"type": "any"}:
            return ANY_TOOL
        case {"type": "none"}:
            return NO_TOOL
        case {"type": "tool", "name": str(name)}:
            return name
    raise unsupported_choice(given.get("type") if isinstance(given, dict) else given)


def _schema(given: object) -> Document | None:
    match given:
        case None:
            return None
        case {"type": "json_schema", "schema": dict(schema)}:
            return schema
    raise Unsupported("output_config.format", "output_config.format must be a json_schema")


def _thinking(given: object) -> int | None:
    match given:
        case {"type": "disabled"}:
            return 0
        case {"type": "enabled", "budget_tokens": int(tokens)}:
            return tokens
        case None | {"type": "adaptive"}:
            return None
    raise Unsupported("thinking", "thinking must be disabled, adaptive, or enabled with a budget")
