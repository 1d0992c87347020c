"""OpenAI's chat completions, from the side of the server."""

from collections.abc import Mapping
from typing import Any, Final

from abreast.core.outcome import Usage
from abreast.models.lanes import Kind
from abreast.models.media import MediaFile
from abreast.models.port import (
    ANY_TOOL,
    EFFORTS,
    Effort,
    Finish,
    Message,
    Reply,
    Request,
    Role,
    ToolCall,
)
from abreast.serve.dialects.dialect import (
    NO_TOOL,
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
    unsupported_choice,
    whole_in,
    with_tools,
)
from abreast.serve.faults import ApiFault, FaultKind

FINISH: Final[Mapping[Finish, str]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "refused": "content_filter",
    "other": "stop",
}
_ROLES: Final[Mapping[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_READ: Final = (
    *("model", "messages", "stream", "stream_options", "temperature", "seed", "stop", "tools"),
    *("max_tokens", "max_completion_tokens", "response_format", "reasoning_effort", "tool_choice"),
)
# What the reply does not depend on.
_IGNORED: Final = (
    *("user", "metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier"),
    *("prompt_cache_retention", "prediction", "parallel_tool_calls", "verbosity"),
)
_DEFAULTS: Final = {
    "n": 1,
    "top_p": 1,
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "logprobs": False,
    "modalities": ["text"],
}


class Chat:
    """Requests and replies as `/v1/chat/completions` has them."""

    name = "chat"
    path = "/chat/completions"
    provider = "openai"
    kinds: tuple[Kind, ...] = ("openai",)
    ping = b": waiting\n\n"

    def read(self, body: Document) -> Request:
        """Read a request."""
        refuse_others(body, (*_READ, *_IGNORED), _DEFAULTS)
        turns = [_message(one, f"messages[{at}]") for at, one in enumerate(_messages(body))]
        tools = [_tool(one, f"tools[{at}].") for at, one in enumerate(objects_in(body, "tools"))]
        seed = body.get("seed")
        request = Request(
            check_turns(turns, "messages"),
            temperature=number_in(body, "temperature"),
            seed=seed if isinstance(seed, int) else None,
            stop=_stop(body.get("stop")),
            max_tokens=count_in(body, "max_completion_tokens", "max_tokens"),
            schema=_schema(body.get("response_format")),
            reasoning=read_effort(body.get("reasoning_effort"), "reasoning_effort"),
        )
        return with_tools(request, tools, _tool_choice(body.get("tool_choice")))

    def write(self, reply: Reply, asked: Asked) -> Document:
        """A chat completion."""
        calls = [_call(call) for call in reply.tool_calls]
        message = {
            "role": "assistant",
            "content": None if calls and not reply.text else reply.text,
            "refusal": None,
            **({"tool_calls": calls} if calls else {}),
        }
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": FINISH[reply.finish],
        }
        return {
            **_frame(asked, "chat.completion", [choice]),
            "usage": _usage(reply.usage),
        }

    def stream(self, asked: Asked) -> "_Chunks":
        """A writer of chunks."""
        return _Chunks(asked)

    def fault(self, fault: ApiFault) -> Document:
        """The body of an error."""
        kind, code = _ERRORS[fault.kind]
        return {
            "error": {
                "message": fault.message,
                "type": kind,
                "param": fault.parameter,
                "code": code,
            }
        }

    def fault_event(self, fault: ApiFault) -> bytes:
        """An error as the last event of a stream."""
        return sse(self.fault(fault))

    def bound(self, body: Document) -> int | None:
        """The bound in a body."""
        return whole_in(body, "max_completion_tokens", "max_tokens")

    def cap(self, max_tokens: int) -> Document:
        """The field of a bound."""
        return {"max_completion_tokens": max_tokens}


_ERRORS: Final[Mapping[FaultKind, tuple[str, str | None]]] = {
    "invalid": ("invalid_request_error", None),
    "key": ("authentication_error", "invalid_api_key"),
    "missing": ("invalid_request_error", "model_not_found"),
    "large": ("invalid_request_error", "context_length_exceeded"),
    "refused": ("invalid_request_error", "content_filter"),
    "wait": ("requests", "rate_limit_exceeded"),
    "quota": ("insufficient_quota", "insufficient_quota"),
    "server": ("server_error", None),
    "overloaded": ("server_error", "server_is_overloaded"),
}


class _Chunks:
    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._begun = False
        options = asked.body.get("stream_options")
        self._shows_usage = isinstance(options, dict) and bool(options.get("include_usage"))

    def text(self, piece: str) -> bytes:
        """The chunk of a piece."""
        return self._begin() + self._delta({"content": piece})

    def end(self, reply: Reply) -> bytes:
        """Tool calls, the reason of the end, and the usage if it was asked for."""
        events = [self._begin()]
        events += [
            self._delta({"tool_calls": [{"index": at, **_call(call)}]})
            for at, call in enumerate(reply.tool_calls)
        ]
        events.append(self._delta({}, FINISH[reply.finish]))
        if self._shows_usage:
            frame = _frame(self._asked, "chat.completion.chunk", [])
            events.append(sse({**frame, "usage": _usage(reply.usage)}))
        return b"".join([*events, b"data: [DONE]\n\n"])

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        return self._delta({"role": "assistant", "content": "", "refusal": None})

    def _delta(self, delta: Document, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        more = {"usage": None} if self._shows_usage else {}
        return sse({**_frame(self._asked, "chat.completion.chunk", [choice]), **more})


def _frame(asked: Asked, kind: str, choices: list[Any]) -> Document:
    return {
        "id": f"chatcmpl-{asked.id}",
        "object": kind,
        "created": asked.created,
        "model": asked.model,
        "choices": choices,
    }


def _call(call: ToolCall) -> Document:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _usage(used: Usage) -> Document:
    return {
        "prompt_tokens": used.input_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": used.input_tokens + used.output_tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_input_tokens},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
    }


# --- reading


def _messages(body: Document) -> list[Document]:
    found = objects_in(body, "messages")
    if not found:
        raise Unsupported("messages", "messages must be a list of objects, and not empty")
    return found


def _message(given: Document, where: str) -> Message:
    role = _ROLES.get(str(given.get("role")))
    if role is None:
        raise Unsupported(f"{where}.role", f"{where}.role must be one of {', '.join(_ROLES)}")
    text, files = _content(given.get("content"), f"{where}.content")
    calls = [
        _tool_call(one, f"{where}.tool_calls[{at}].")
        for at, one in enumerate(objects_in(given, "tool_calls", f"{where}."))
    ]
    answers = text_in(given, "tool_call_id", f"{where}.") if role == "tool" else None
    return Message(role, text, tuple(calls), answers, files=tuple(files))


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
            case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
                texts.append(text)
            case {"type": "image_url", "image_url": {"url": url}}:
                files.append(file_of_url(url, where=place))
            case {"type": "file", "file": {"file_data": data, **more}}:
                files.append(file_of_url(data, str(more.get("filename") or ""), place))
            case _:
                kind = part.get("type") if isinstance(part, dict) else None
                raise Unsupported(place, f"{place}: a part of type {kind!r} can't be passed on")
    return "\n".join(texts), files


def _tool_call(given: Document, where: str) -> ToolCall:
    function = given.get("function")
    if not isinstance(function, dict):
        raise Unsupported(f"{where}function", f"{where}function must be an object")
    name, arguments = (
        text_in(function, word, f"{where}function.") for word in ("name", "arguments")
    )
    return ToolCall(text_in(given, "id", where), name, arguments)


def _tool(given: Document, where: str) -> Document:
    function = given.get("function")
    if given.get("type") != "function" or not isinstance(function, dict):
        kind = given.get("type")
        raise Unsupported(
            f"{where}type", f"{where}type: a tool of type {kind!r} can't be passed on"
        )
    return plain_tool(function, f"{where}function.")


def plain_tool(given: Document, where: str) -> Document:
    """A function's name, description and parameters."""
    found: Document = {"name": text_in(given, "name", where)}
    if given.get("description"):
        found["description"] = text_in(given, "description", where)
    parameters = given.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise Unsupported(f"{where}parameters", f"{where}parameters must be an object")
    return {**found, "parameters": parameters or {"type": "object", "properties": {}}}


def _tool_choice(given: object) -> str | None:
    match given:
        case {"type": "function", "function": {"name": str(name)}}:
            return name
    return plain_choice(given)


def plain_choice(given: object) -> str | None:
    """A choice in one word: a tool is called if the model wants so, in any case, or never."""
    if given is None or given == "auto":
        return None
    if given == "required":
        return ANY_TOOL
    if given == "none":
        return NO_TOOL
    raise unsupported_choice(given.get("type") if isinstance(given, dict) else given)


def read_effort(given: object, where: str) -> Effort | None:
    """How much to think."""
    for effort in EFFORTS:
        if given == effort:
            return effort
    if given is None:
        return None
    raise Unsupported(where, f"{where} must be one of {', '.join(EFFORTS)}")


def _stop(given: object) -> tuple[str, ...]:
    if given is None:
        return ()
    texts = given if isinstance(given, list) else [given]
    if not all(isinstance(one, str) for one in texts):
        raise Unsupported("stop", "stop must be a text or a list of texts")
    return tuple(texts)


def _schema(given: object) -> Document | None:
    match given:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return {"type": "object"}
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return schema
    raise Unsupported("response_format", "response_format must be text, json_object or json_schema")
