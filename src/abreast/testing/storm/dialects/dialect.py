"""The dialect port: reads a StormRequest from a body and writes a StormDraft into one."""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from json import JSONEncoder
from typing import Any, NamedTuple, Protocol

Json = dict[str, Any]
# Made once: json.dumps would make an encoder for each call.
encode = JSONEncoder(separators=(",", ":")).encode
Event = tuple[str, Json]  # a piece of a stream: its event's name, empty for none, and its data


class BadRequest(Exception):
    """A body that the provider would not understand."""


class Refusal(BadRequest):
    """A request that a strict profile refuses, with the provider's own status and error.

    `parameter` is the field that was refused: `temperature`, or `output_config.format.schema`.
    """

    def __init__(self, parameter: str, body: Json, status: int = 400, model: str = "") -> None:
        super().__init__(parameter)
        self.parameter = parameter
        self.body = body
        self.status = status
        self.model = model


class StormRequest(NamedTuple):
    """A request, independent of the dialect.

    `tool` is the tool to be called, with the schema of its arguments. Strict profiles set the
    others: `reasoning_tokens` come before the text, in the same `max_tokens`; `cached_tokens` and
    `cache_write_tokens` are parts of `input_tokens`.
    """

    model: str
    prompt: str
    key: str
    input_tokens: int
    max_tokens: int | None = None
    stream: bool = False
    stream_usage: bool = False
    schema: Json | None = None
    tool: tuple[str, Json] | None = None
    reasoning_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    shows_reasoning: bool = False  # as text, or encrypted
    stores: bool = False  # whether later requests may refer to the reply


class StormDraft(NamedTuple):
    """The content of a reply. `finish` is stop, length, tool or refusal.

    `output_tokens` include `reasoning_tokens`.
    """

    number: int
    text: str
    finish: str
    input_tokens: int
    output_tokens: int
    tool: str = ""
    reasoning_tokens: int = 0


class Dialect(Protocol):
    """How one provider writes requests, replies, streams and errors."""

    lane: str
    done: str

    def ask(self, body: Json, model: str, *, stream: bool) -> StormRequest:
        """Read a request; raises BadRequest if the body is not one.

        `model` and `stream` come from the path, if it has them.
        """

    def reply(self, ask: StormRequest, draft: StormDraft) -> Json:
        """A complete reply."""

    def empty(self, ask: StormRequest, draft: StormDraft) -> Json:
        """A reply without content."""

    def events(self, ask: StormRequest, draft: StormDraft, pieces: Sequence[str]) -> list[Event]:
        """The same reply as a stream, its text in these pieces."""

    def error(self, status: int, kind: str, message: str, retry_after: str | None) -> Json:
        """The body of an error."""


def count_tokens(text: str) -> int:
    """How many tokens a text has here: one for every four characters, rounded up.

    >>> count_tokens(""), count_tokens("word"), count_tokens("words")
    (0, 1, 2)
    """
    return (len(text) + 3) // 4


def key_of(model: str, seed: object, texts: Sequence[str]) -> str:
    """A digest of a request: equal for requests that differ in nothing a reply depends on."""
    whole = "\0".join((model, str(seed), *texts)).encode("utf-8", "surrogatepass")
    return blake2b(whole, digest_size=16).hexdigest()


def text_of(content: object) -> str:
    """The text of a message's content: a string, or a list of parts some of which have text."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return ""


def required_list(body: Mapping[str, Any], name: str) -> list[Any]:
    """The non-empty list of objects that a body must have."""
    value = body.get(name)
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(each, dict) for each in value)
    ):
        raise BadRequest(f"{name} is a list of objects, and not empty")
    return value


def token_bound(value: object, name: str) -> int | None:
    """The bound on output tokens in a body, or None."""
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadRequest(f"{name} is a whole number of at least 1")
    return value


def choose_tool(
    tools: Iterable[tuple[str, Json]], prompt: str, forced: object
) -> tuple[str, Json] | None:
    """The tool to call: the one that is forced, or one that the prompt says to `call`."""
    for name, schema in tools:
        if forced in (True, name) or f"call {name}" in prompt:
            return name, schema
    return None


def sse_event(event: Event) -> bytes:
    """Encode an event as a server-sent event."""
    name, data = event
    text = encode(data)
    return (f"event: {name}\ndata: {text}\n\n" if name else f"data: {text}\n\n").encode()
