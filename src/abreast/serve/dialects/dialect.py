"""The dialect port: reads a body into a `Request`; writes replies, streams and errors."""

import binascii
import json
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from abreast.core.frozen import record
from abreast.models.lanes import Kind
from abreast.models.media import MediaFile
from abreast.models.port import Message, Reply, Request, ToolCall, check_tool_choice
from abreast.serve.faults import ApiFault

Document = dict[str, Any]
NO_TOOL: Final = ""
"""The choice of a request that must call no tool."""
encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Unsupported(Exception):
    """A body that is wrong, or that asks for what a model of another dialect can't be asked.

    `parameter` is the field.
    """

    def __init__(self, parameter: str, message: str) -> None:
        super().__init__(message)
        self.parameter = parameter


@record(frozen=True, slots=True)
class Asked:
    """What a written reply repeats of its request."""

    model: str
    """As the client named it."""
    id: str
    """Unique among the replies; letters, digits and hyphens."""
    created: int
    """Seconds since 1970."""
    body: Mapping[str, Any]


class EventWriter(Protocol):
    """Writes one reply as server-sent events, while it arrives."""

    def text(self, piece: str) -> bytes:
        """The events of a piece of text; before the first one, those of the beginning."""

    def end(self, reply: Reply) -> bytes:
        """The events of everything else, to the end; `text` was called with all of the text."""


class ApiDialect(Protocol):
    """One API, from the side of its server."""

    name: str
    """What its calls are named in the journal: `chat`."""
    path: str
    """The path of its requests, below the version: `/chat/completions`."""
    provider: str
    """The lane of models that are named without one."""
    kinds: tuple[Kind, ...]
    """The kinds of lanes that speak it, to which bodies are passed on as they are."""
    ping: bytes
    """What keeps a stream open that has nothing to say yet."""

    def read(self, body: Document) -> Request:
        """Everything of a body; raises `Unsupported` for what a `Request` can't carry."""

    def write(self, reply: Reply, asked: Asked) -> Document:
        """A whole reply."""

    def stream(self, asked: Asked) -> EventWriter:
        """A writer for the same reply as a stream."""

    def fault(self, fault: ApiFault) -> Document:
        """The body of an error."""

    def fault_event(self, fault: ApiFault) -> bytes:
        """The same in a stream that has begun."""

    def bound(self, body: Document) -> int | None:
        """The bound on the reply's tokens in a body; None if it has none."""

    def cap(self, max_tokens: int) -> Document:
        """The field of a bound on the reply's tokens, for a body that lacks it."""


def sse(data: Document, name: str = "") -> bytes:
    r"""A server-sent event.

    >>> sse({"a": 1}, "ping")
    b'event: ping\ndata: {"a":1}\n\n'
    """
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {encode(data)}\n\n".encode("utf-8", "replace")


# --- checked reading


def text_in(body: Mapping[str, Any], name: str, where: str = "") -> str:
    """A text that must be there."""
    value = body.get(name)
    if not isinstance(value, str):
        raise Unsupported(where + name, f"{where}{name} must be a text")
    return value


def objects_in(body: Mapping[str, Any], name: str, where: str = "") -> list[Document]:
    """A list of objects; empty if it is not there."""
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise Unsupported(where + name, f"{where}{name} must be a list of objects")
    return value


def number_in(body: Mapping[str, Any], name: str) -> float | None:
    """A number, or None."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Unsupported(name, f"{name} must be a number")
    return value


def count_in(body: Mapping[str, Any], *names: str) -> int | None:
    """The first of these that is there: a whole number of at least 1, or None."""
    for name in names:
        value = body.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise Unsupported(name, f"{name} must be a whole number of at least 1")
        return value
    return None


def whole_in(body: Mapping[str, Any], *names: str) -> int | None:
    """The first of these that is a whole number; None if none is."""
    return next((one for name in names if type(one := body.get(name)) is int), None)


def refuse_others(
    body: Mapping[str, Any], read: Iterable[str], defaults: Mapping[str, Any]
) -> None:
    """Raise `Unsupported` for a field that is not read and would change the reply.

    Fields with one of their `defaults` are as good as not there.
    """
    known = set(read)
    for name, value in body.items():
        if name in known or value in (None, [], {}):
            continue
        if name in defaults and value == defaults[name]:
            continue
        raise Unsupported(
            name,
            f"{name} can't be passed to a model of another API than this one; leave it out, or "
            "name a model of this API's own provider",
        )


def file_of_url(url: object, name: str = "", where: str = "") -> MediaFile:
    """The file in a data URL."""
    head, comma, data = str(url).partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        raise Unsupported(
            where, f"{where}: a file can only be passed on if its content is in a data: URL"
        )
    return file_of_base64(data, name, where)


def file_of_base64(data: object, name: str = "", where: str = "") -> MediaFile:
    """The file of a content in base64."""
    try:
        return MediaFile.of(b64decode(str(data), validate=True), name)
    except (binascii.Error, ValueError) as error:
        raise Unsupported(where, f"{where}: {error}") from None


def check_turns(messages: Sequence[Message], where: str) -> tuple[Message, ...]:
    """The turns; raises `Unsupported` if there is none to answer."""
    if not any(turn.role != "system" for turn in messages):
        raise Unsupported(where, f"{where} must have a message to answer")
    return tuple(messages)


def with_tools(request: Request, tools: Iterable[Document], choice: str | None) -> Request:
    """The request with its tools, and the one that it must call.

    With the choice `NO_TOOL` it has none. Raises `Unsupported` for one that it does not have.
    """
    if choice == NO_TOOL:
        return request
    made = replace(request, tools=tuple(tools), tool_choice=choice)
    try:
        check_tool_choice(made)
    except ValueError as error:
        raise Unsupported("tool_choice", str(error)) from None
    return made


def unsupported_choice(kind: object) -> Unsupported:
    """The error for a `tool_choice` that no request can carry."""
    return Unsupported("tool_choice", f"tool_choice: a choice of type {kind!r} can't be passed on")


def lenient_request(body: Mapping[str, Any], max_tokens: int | None) -> Request:
    """A request that has all text of a body in one turn: enough to estimate its tokens."""
    texts: list[str] = []
    _gather_texts(body, texts)
    return Request((Message("user", "\n".join(texts)),), max_tokens=max_tokens)


def _gather_texts(value: object, texts: list[str]) -> None:
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, Mapping):
        for inner in value.values():
            _gather_texts(inner, texts)
    elif isinstance(value, list):
        for inner in value:
            _gather_texts(inner, texts)


def arguments_of(call: ToolCall) -> Document:
    """The arguments of a tool call as an object; empty if they are none."""
    try:
        found = json.loads(call.arguments or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
