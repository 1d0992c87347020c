"""OpenAI's Responses API, from the side of the server."""

from collections.abc import Mapping
from typing import Any, Final

from abreast.core.outcome import Usage
from abreast.models.lanes import Kind
from abreast.models.media import MediaFile
from abreast.models.port import Message, Reply, Request, Role, ToolCall
from abreast.serve.dialects.chat import Chat, plain_choice, plain_tool, read_effort
from abreast.serve.dialects.dialect import (
    Asked,
    Document,
    Unsupported,
    check_turns,
    count_in,
    file_of_url,
    number_in,
    objects_in,
    refuse_others,
    sse,
    text_in,
    whole_in,
    with_tools,
)
from abreast.serve.faults import ApiFault

_ROLES: Final[Mapping[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_READ: Final = (
    *("model", "input", "instructions", "stream", "temperature", "max_output_tokens", "text"),
    *("tools", "tool_choice", "reasoning"),
)
# What the reply does not depend on.
_IGNORED: Final = (
    *("user", "metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier"),
    *("include", "parallel_tool_calls", "stream_options", "client_metadata"),
    *("prompt_cache_retention",),
)
_DEFAULTS: Final = {"top_p": 1, "truncation": "disabled", "background": False, "top_logprobs": 0}
_COPIED: Final = ("instructions", "temperature", "tools", "metadata", "text", "reasoning")


class ResponsesApi:
    """Requests and replies as `/v1/responses` has them.

    Nothing is stored for later requests: each has the whole conversation.
    """

    name = "responses"
    path = "/responses"
    provider = "openai"
    kinds: tuple[Kind, ...] = ("openai-responses",)
    ping = b": waiting\n\n"

    def read(self, body: Document) -> Request:
        """Read a request."""
        refuse_others(body, (*_READ, *_IGNORED), _DEFAULTS)
        given = body.get("input")
        turns = [Message("user", given)] if isinstance(given, str) else _turns(body)
        tools = [_tool(one, f"tools[{at}].") for at, one in enumerate(objects_in(body, "tools"))]
        reasoning = body.get("reasoning")
        effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
        system = body.get("instructions")
        request = Request(
            check_turns(turns, "input"),
            system=text_in(body, "instructions") if system is not None else None,
            temperature=number_in(body, "temperature"),
            max_tokens=count_in(body, "max_output_tokens"),
            schema=_schema(body.get("text")),
            reasoning=read_effort(effort, "reasoning.effort"),
        )
        return with_tools(request, tools, _tool_choice(body.get("tool_choice")))

    def write(self, reply: Reply, asked: Asked) -> Document:
        """A response with its items."""
        cut = reply.finish == "length"
        return {
            **_frame(asked),
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": _output(reply, asked),
            "usage": _usage(reply.usage),
        }

    def stream(self, asked: Asked) -> "_ResponseEvents":
        """A writer of events."""
        return _ResponseEvents(self, asked)

    def fault(self, fault: ApiFault) -> Document:
        """The body of an error, as chat completions have it."""
        return Chat().fault(fault)

    def fault_event(self, fault: ApiFault) -> bytes:
        """An error as the last event of a stream."""
        error = self.fault(fault)["error"]
        return sse({"type": "error", **error, "sequence_number": 0}, "error")

    def bound(self, body: Document) -> int | None:
        """The bound in a body."""
        return whole_in(body, "max_output_tokens")

    def cap(self, max_tokens: int) -> Document:
        """The field of a bound."""
        return {"max_output_tokens": max_tokens}


class _ResponseEvents:
    def __init__(self, api: ResponsesApi, asked: Asked) -> None:
        self._api = api
        self._asked = asked
        self._count = 0
        self._begun = False
        self._writes_text = False
        self._place = {"item_id": f"msg_{asked.id}", "output_index": 0, "content_index": 0}

    def text(self, piece: str) -> bytes:
        """A delta of the message's text."""
        events = [self._begin()]
        if not self._writes_text:
            self._writes_text = True
            message = {**_message("", self._asked), "status": "in_progress", "content": []}
            events += [
                self._event("response.output_item.added", output_index=0, item=message),
                self._event("response.content_part.added", **self._place, part=_part("")),
            ]
        events.append(
            self._event("response.output_text.delta", **self._place, delta=piece, logprobs=[])
        )
        return b"".join(events)

    def end(self, reply: Reply) -> bytes:
        """The end of the text, the tool calls, and the whole response."""
        events = [self._begin()]
        whole = self._api.write(reply, self._asked)
        for index, item in enumerate(whole["output"]):
            if item["type"] == "message":
                if not self._writes_text:
                    events.append(self.text(reply.text))
                part = item["content"][0]
                text = part["text"]
                events += [
                    self._event("response.output_text.done", **self._place, text=text, logprobs=[]),
                    self._event("response.content_part.done", **self._place, part=part),
                ]
            else:
                events += self._call_events(index, item)
            events.append(self._event("response.output_item.done", output_index=index, item=item))
        events.append(self._event(f"response.{whole['status']}", response=whole))
        return b"".join(events)

    def _call_events(self, index: int, item: Document) -> list[bytes]:
        begun = {**item, "arguments": "", "status": "in_progress"}
        place = {"item_id": item["id"], "output_index": index}
        kind = "response.function_call_arguments"
        return [
            self._event("response.output_item.added", output_index=index, item=begun),
            self._event(f"{kind}.delta", **place, delta=item["arguments"]),
            self._event(f"{kind}.done", **place, arguments=item["arguments"], name=item["name"]),
        ]

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        started = {**_frame(self._asked), "status": "in_progress"}
        return self._event("response.created", response=started) + self._event(
            "response.in_progress", response=started
        )

    def _event(self, kind: str, **fields: object) -> bytes:
        number, self._count = self._count, self._count + 1
        return sse({"type": kind, **fields, "sequence_number": number}, kind)


def _frame(asked: Asked) -> Document:
    copied = {name: asked.body[name] for name in _COPIED if name in asked.body}
    return {
        "id": f"resp_{asked.id}",
        "object": "response",
        "created_at": asked.created,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": asked.body.get("max_output_tokens"),
        "metadata": {},
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": False,
        "temperature": None,
        "text": {"format": {"type": "text"}},
        "tools": [],
        "top_p": None,
        "truncation": "disabled",
        "usage": None,
        **copied,
        "model": asked.model,
        "tool_choice": asked.body.get("tool_choice") or "auto",
    }


def _output(reply: Reply, asked: Asked) -> list[Document]:
    calls = [
        {
            "id": f"fc_{asked.id}-{at}",
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
            "status": "completed",
        }
        for at, call in enumerate(reply.tool_calls)
    ]
    return [*([_message(reply.text, asked)] if reply.text or not calls else []), *calls]


def _message(text: str, asked: Asked) -> Document:
    return {
        "id": f"msg_{asked.id}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [_part(text)],
    }


def _part(text: str) -> Document:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(used: Usage) -> Document:
    return {
        "input_tokens": used.input_tokens,
        "input_tokens_details": {"cached_tokens": used.cached_input_tokens},
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        "total_tokens": used.input_tokens + used.output_tokens,
    }


# --- reading


def _turns(body: Document) -> list[Message]:
    """The turns of the input; successive calls of tools are one turn."""
    turns: list[Message] = []
    for at, item in enumerate(objects_in(body, "input")):
        where = f"input[{at}]"
        match item:
            case {"type": "function_call", "call_id": str(name)}:
                call = ToolCall(
                    name, text_in(item, "name", f"{where}."), item.get("arguments") or ""
                )
                last = turns[-1] if turns else None
                if last is not None and last.role == "assistant":
                    turns[-1] = Message("assistant", last.content, (*last.tool_calls, call))
                else:
                    turns.append(Message("assistant", "", (call,)))
            case {"type": "function_call_output", "call_id": str(name)}:
                text, _ = _content(item.get("output"), f"{where}.output")
                turns.append(Message("tool", text, tool_call_id=name))
            case {"type": "reasoning"}:
                continue  # sealed by a provider, and of use to it alone
            case {"role": str(role)} if item.get("type", "message") == "message":
                turns.append(_turn(role, item, where))
            case _:
                kind = item.get("type")
                raise Unsupported(where, f"{where}: an item of type {kind!r} can't be passed on")
    return turns


def _turn(role: str, item: Document, where: str) -> Message:
    if role not in _ROLES:
        raise Unsupported(f"{where}.role", f"{where}.role must be one of {', '.join(_ROLES)}")
    text, files = _content(item.get("content"), f"{where}.content")
    return Message(_ROLES[role], text, files=tuple(files))


def _content(given: object, where: str) -> tuple[str, list[MediaFile]]:
    if given is None or isinstance(given, str):
        return given or "", []
    if not isinstance(given, list):
        raise Unsupported(where, f"{where} must be a text or a list of parts")
    texts: list[str] = []
    files: list[MediaFile] = []
    for at, part in enumerate(given):
        place = f"{where}[{at}]"
        match part:
            case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
                texts.append(text)
            case {"type": "refusal", "refusal": str(text)}:
                texts.append(text)
            case {"type": "input_image", "image_url": url}:
                files.append(file_of_url(url, where=place))
            case {"type": "input_file", "file_data": data}:
                files.append(file_of_url(data, str(part.get("filename") or ""), place))
            case _:
                kind = part.get("type") if isinstance(part, dict) else None
                raise Unsupported(place, f"{place}: a part of type {kind!r} can't be passed on")
    return "\n".join(texts), files


def _tool_choice(given: object) -> str | None:
    match given:
        case {"type": "function", "name": str(name)}:
            return name
    return plain_choice(given)


def _tool(given: Document, where: str) -> Document:
    if given.get("type") != "function":
        kind = given.get("type")
        raise Unsupported(
            f"{where}type", f"{where}type: a tool of type {kind!r} can't be passed on"
        )
    return plain_tool(given, where)


def _schema(given: object) -> Document | None:
    form: Any = given.get("format") if isinstance(given, dict) else None
    match form:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return {"type": "object"}
        case {"type": "json_schema", "schema": dict(schema)}:
            return schema
    raise Unsupported("text.format", "text.format must be text, json_object or json_schema")
