"""The common part of HTTP adapters: a call from its request to a reply or a typed error."""

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from yarl import URL

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import (
    CallFailed,
    ConnectionLost,
    Refused,
    ReplyBroken,
    ReplyInvalid,
    RequestRefused,
)
from abreast.core.outcome import Usage
from abreast.models.estimate import media_tokens_in, tokens_of
from abreast.models.http.client import Exchange, HttpAnswer, HttpClient, endpoint
from abreast.models.lanes import LaneSettings, Structured
from abreast.models.port import (
    Json,
    OnText,
    Reply,
    Request,
    ToolCall,
    check_effort,
    check_tool_choice,
)
from abreast.models.providers.accepted_form import (
    BOUNDS,
    MAX_LESSONS,
    STRUCTURED_WAYS,
    AcceptedForm,
)
from abreast.models.providers.errors import fault_in, fault_of, one_line
from abreast.models.providers.first_calls import FirstTurn
from abreast.models.providers.reply_draft import (
    MALFORMED,
    ReplyDraft,
    checked,
    replace_surrogates,
)
from abreast.models.providers.thinking import Kept
from abreast.models.schema import boxed, check_schema, is_deeper, parse, unboxed
from abreast.system.quick_json import equal_json

Document = dict[str, Any]
DONE = b"[DONE]"
_REFUSALS = (400, 422)  # of a request that is wrong
_WAY_IN_WORDS: dict[Structured, str] = {
    "json_schema": "json_schema",
    "tool": "a tool",
    "json_object": "json mode and the prompt",
    "none": "the prompt",
}
_MOST_KEPT_DEPTH = 100  # of thinking that is sent back; half of what can be recorded
# Without the search for circles, which is a dict entry per object: one is a RecursionError.
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
_now = SYSTEM_CLOCK.now


class Events:
    """Parses server-sent events from a body that arrives in arbitrary parts."""

    __slots__ = ("_data", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, part: bytes) -> list[bytes]:
        """The data of the events that this part completes."""
        *lines, self._rest = (self._rest + part).split(b"\n")
        done = []
        for line in lines:
            text = line.rstrip(b"\r")
            if text.startswith(b"data:"):
                self._data.append(text[5:].removeprefix(b" "))
            elif not text and self._data:
                done.append(b"\n".join(self._data))
                self._data.clear()
        return done

    def end(self) -> list[bytes]:
        """The events at the end of the body.

        An event without its blank line was cut off, unless it is the end marker.
        """
        last = [*self._data, self._rest.strip().removeprefix(b"data:").strip()]
        return [DONE] if DONE in last else []


@dataclass(slots=True)
class EventFold(ABC):
    """A stream while it is read.

    `begun` is set by the first event of a reply, `ended` by the end marker.
    """

    draft: ReplyDraft = field(default_factory=ReplyDraft)
    pieces: list[str] = field(default_factory=list)
    begun: bool = False
    ended: bool = False
    # Whether its pieces are those of the reply's text; if not, `hear` gets the text at the end.
    streams_text: bool = True

    @abstractmethod
    def take(self, event: Document) -> str:
        """Add an event; returns its piece of text."""

    def finished(self) -> ReplyDraft:
        """The complete reply."""
        self.draft.text = "".join(self.pieces)
        if self.draft.tool_calls and self.draft.finish == "stop":
            self.draft.finish = "tool_calls"
        return self.draft


class Provider(ABC):
    """A model behind HTTP; subclasses write requests and read replies of one provider."""

    ends_by_marker = True  # whether the event that ends a stream is the last one

    def __init__(
        self,
        name: str,
        http: HttpClient,
        url: str,
        stream_url: str | None = None,
        *,
        ways: tuple[Structured, ...],
        form: AcceptedForm | None = None,
        lane: LaneSettings | None = None,
    ) -> None:
        """`ways` are those to get a value by a schema, the best first.

        `form` is what is known of the requests that the model accepts; of the lane's settings,
        `extra`, `drop` and `structured` are used here.
        """
        self.name = name
        self.form = AcceptedForm() if form is None else form
        self._lane = LaneSettings("") if lane is None else lane
        self.ways = ways
        if self._lane.structured is not None:
            self.ways = ways_from(self._lane.structured, ways)
        self.model = name.partition("/")[2] or name
        self._http = http
        self._url = endpoint(url)
        self._stream_url = endpoint(stream_url or url)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} at {self._url.host}>"

    @property
    def is_bounded(self) -> bool:
        """Whether `max_tokens` bounds its replies; False if the model refused it."""
        return BOUNDS.isdisjoint(self.form.dropped) and BOUNDS.isdisjoint(self._lane.drop)

    async def complete(self, request: Request, hear: OnText | None = None) -> Reply:
        """Answer once: no retries, no limits.

        Raises subclasses of CallFailed; errors of `hear` are passed on unchanged.
        """
        body, changed = self._write(request, stream=hear is not None)
        if self.form.knows(body):
            try:
                reply = await self._send(request, body, hear)
            except CallFailed as error:
                if not self._learn(error, body, request):
                    raise
            else:
                return replace(reply, changed=(*reply.changed, *changed)) if changed else reply
        return await self._complete_learning(request, hear)

    def first_turn(self, request: Request, *, stream: bool) -> FirstTurn | None:
        """What to wait for before a request is admitted whose parameters are new to the model.

        None if they are known.
        """
        shape = _shape(request, stream=stream)
        if shape in self.form.shapes:
            return None

        def write() -> Document:
            return self._write(request, stream=stream)[0]

        try:
            is_known = self.form.knows(write())
        except CallFailed:
            return None  # `complete` raises it
        if is_known:
            self.form.shapes.add(shape)
            return None
        return FirstTurn(self.form.first_calls, write)

    async def _complete_learning(self, request: Request, hear: OnText | None) -> Reply:
        """Answer a request whose form was refused, or is not known to be accepted."""
        form, alone = self.form, None
        changed: tuple[str, ...] = ()

        def write() -> Document:
            nonlocal changed
            body, changed = self._write(request, stream=hear is not None)
            return body

        body = write()
        try:
            for lessons_left in reversed(range(MAX_LESSONS)):
                if alone is None and not form.knows(body):
                    body, alone = await form.first_calls.wait(write)
                try:
                    reply = await self._send(request, body, hear)
                except CallFailed as error:
                    if not lessons_left or not self._learn(error, body, request):
                        raise
                    body = write()
                else:
                    if alone is not None:
                        form.accept(body)
                    return replace(reply, changed=(*reply.changed, *changed)) if changed else reply
        finally:
            if alone is not None:
                form.first_calls.end(alone)
        raise AssertionError("the last refusal was raised")  # pragma: no cover - for mypy

    async def _send(self, request: Request, document: Document, hear: OnText | None) -> Reply:
        body = self._encode(document)
        if hear is not None:
            return await self._complete_streaming(request, body, hear)
        start = _now()
        exchange = await self._http.open(self._url, body)
        try:
            answer = await exchange.answer()
        finally:
            exchange.close()
        seconds = _now() - start
        return self._reply(
            request, self._read(answer, request), answer.body, answer.headers, seconds=seconds
        )

    def send_raw(
        self, body: bytes, headers: Mapping[str, str], *, stream: bool, beneath: str = ""
    ) -> Awaitable[Exchange]:
        """Send a body as it is, with further headers; the caller must close the exchange.

        `beneath` is a path below the address of requests. Raises subclasses of CallFailed if there
        is no answer; one of any status is returned.
        """
        url = self._stream_url if stream else self._url
        return self._http.open(
            url / beneath if beneath else url, body, stream=stream, headers=headers
        )

    # --- for requests that are sent in batches

    @property
    def address(self) -> URL:
        """The address of requests."""
        return self._url

    def body_of(self, request: Request) -> tuple[Document, tuple[str, ...]]:
        """The body in the form that the model accepts, and what differs from the request."""
        return self._write(request, stream=False)

    def reply_of(
        self, request: Request, status: int, document: Document, changed: tuple[str, ...]
    ) -> Reply:
        """The reply in a document that came in another way than as an answer to its request.

        Raises subclasses of CallFailed, as `complete` does.
        """
        body = json.dumps(document).encode()
        draft = self._read(HttpAnswer(status, {}, body), request)
        reply = self._reply(request, draft, body, {}, seconds=0.0)
        return replace(reply, changed=(*reply.changed, *changed), headers=None)

    def learns(self, error: CallFailed, body: Document, request: Request) -> bool:
        """Whether a refusal taught how to send the request otherwise."""
        return self._learn(error, body, request)

    async def send_other(
        self,
        method: str,
        url: URL,
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        largest: int,
    ) -> HttpAnswer:
        """Send a request to another address of the provider; read an answer of any status."""
        exchange = await self._http.open(url, body or b"", headers=headers, method=method)
        exchange.largest = largest
        try:
            return await exchange.answer()
        finally:
            exchange.close()

    def broken_answer(self, what: str, body: bytes, status: int | None) -> ReplyBroken:
        """The error for an answer that can't be read."""
        return self._http.broken(what, body, status)

    def raw_fault(self, answer: HttpAnswer) -> CallFailed:
        """The error for an answer whose status is not a success."""
        return fault_of(
            self.name, answer.status, answer.headers, answer.body, clean=self._http.clean
        )

    def clean(self, text: str) -> str:
        """A text without the secrets of this provider, in case a server has sent them back."""
        return self._http.clean(text)

    async def close(self) -> None:
        """Close the connections, and keep what was learned of the model."""
        self.form.store()
        await self._http.close()

    # --- for subclasses

    @abstractmethod
    def write(self, request: Request, *, stream: bool) -> Document:
        """The body of a request."""

    @abstractmethod
    def read(self, document: Document, request: Request) -> ReplyDraft:
        """A whole reply. KeyError, TypeError and the like mean that it is malformed."""

    @abstractmethod
    def fold(self, request: Request) -> EventFold:
        """A reader for the events of a stream."""

    def unsent(self, request: Request) -> tuple[str, ...]:  # noqa: ARG002 - for subclasses
        """What the provider has no field for, as `Reply.changed` says it: "without stop"."""
        return ()

    # --- the steps of a call

    def way(self, request: Request) -> Structured | None:
        """How a value is asked for by the request's schema; None if it has none."""
        if request.schema is None:
            return None
        return self.form.first_way(self.ways, request.schema)

    def _write(self, request: Request, *, stream: bool) -> tuple[Document, tuple[str, ...]]:
        """The body in the form that the model accepts, and what differs from the request."""
        try:
            if request.schema is not None:
                check_schema(request.schema)
            check_effort(request.reasoning)
            check_tool_choice(request)
            lane = self._lane
            body = self.write(_without(request, lane.drop) if lane.drop else request, stream=stream)
            if lane.drop or lane.extra:
                body = _for_lane(body, lane)
        except (TypeError, ValueError, RecursionError) as error:
            raise self._unsendable(error) from None
        changed = self.form.apply(body)
        if request.keeps_bound and not self.is_bounded:
            unbounded = RequestRefused(f"{self.name} takes no max_tokens, which a budget counts on")
            unbounded.lost_bound = True
            raise unbounded
        if self.form.refused_ways and (way := self.way(request)) not in (None, self.ways[0]):
            changed = (*changed, f"schema by {_WAY_IN_WORDS[way]}")
        return body, changed

    def _encode(self, body: Document) -> bytes:
        text = equal_json(body)
        if text is not None:
            return text
        try:
            return _encode(body).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise self._unsendable(error) from None

    def _unsendable(self, error: Exception) -> RequestRefused:
        return RequestRefused(f"{self.name} can't be sent this request: {one_line(str(error))}")

    def _learn(self, error: CallFailed, body: Document, request: Request) -> bool:
        """Whether a refusal taught how to send the request otherwise."""
        return error.status in _REFUSALS and self.form.learn(
            error,
            body,
            self.way(request),
            request.schema,
            own_tool=not request.tools,
            forces_tool=request.tool_choice is not None,
        )

    def _read(self, answer: HttpAnswer, request: Request) -> ReplyDraft:
        if not 200 <= answer.status < 300:  # noqa: PLR2004 - success
            raise self.raw_fault(answer)
        kind = answer.headers.get("content-type", "json")
        if "json" not in kind:
            raise self._http.broken(
                f"it is {one_line(self._http.clean(kind))}, not JSON", answer.body, answer.status
            )
        document = self._document(answer.body, lambda: answer.body)
        try:
            return checked(self.read(document, request))
        except MALFORMED:
            raise self._malformed(answer.body) from None

    def _document(self, data: bytes, kept: Callable[[], bytes]) -> Document:
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            why = str(error) if isinstance(error, json.JSONDecodeError) else type(error).__name__
            raise self._http.broken(f"no JSON ({why})", kept(), 200) from None
        if not isinstance(document, dict):
            raise self._malformed(kept())
        if (
            "error" in document
            and (fault := fault_in(self.name, document, clean=self._http.clean)) is not None
        ):
            raise fault
        return document

    def _malformed(self, body: bytes) -> ReplyBroken:
        return self._http.broken("it is empty, or has not the shape of a reply", body, 200)

    async def _complete_streaming(self, request: Request, body: bytes, hear: OnText) -> Reply:
        start = _now()
        exchange = await self._http.open(self._stream_url, body, stream=True)
        try:
            if not _is_stream(exchange):
                answer = await exchange.answer()
                seconds, draft = _now() - start, self._read(answer, request)
                reply = self._reply(request, draft, answer.body, answer.headers, seconds=seconds)
                if reply.text:
                    hear(reply.text)
                return reply
            fold = self.fold(request)
            first = await self._read_stream(exchange, fold, hear, start)
            seconds = _now() - start
            self._check_complete(fold, exchange)
            reply = self._reply(
                request,
                self._finished(fold, exchange),
                exchange.kept(),
                exchange.headers,
                seconds=seconds,
                first=first,
            )
            if first is None and reply.text:
                hear(reply.text)
            await exchange.drain()
            return reply
        finally:
            exchange.close()

    async def _read_stream(
        self, exchange: Exchange, fold: EventFold, hear: OnText, start: float
    ) -> float | None:
        """Read a stream to its end marker, or its end.

        Returns the seconds until the first piece of text.
        """
        events = Events()
        first = None
        while True:
            part = await exchange.read()
            for data in events.feed(part) if part else events.end():
                piece = self._add_event(fold, data, exchange)
                if piece and fold.streams_text:
                    first = _now() - start if first is None else first
                    hear(piece)
                if fold.ended and self.ends_by_marker:
                    return first
            if not part:
                return first

    def _add_event(self, fold: EventFold, data: bytes, exchange: Exchange) -> str:
        if data == DONE:
            fold.ended = True
            return ""
        document = self._document(data, exchange.kept)
        try:
            piece = fold.take(document)
        except MALFORMED:
            raise self._malformed(exchange.kept()) from None
        if piece:
            fold.pieces.append(piece)
        return piece

    def _finished(self, fold: EventFold, exchange: Exchange) -> ReplyDraft:
        try:
            return checked(fold.finished())
        except MALFORMED:
            raise self._malformed(exchange.kept()) from None

    def _check_complete(self, fold: EventFold, exchange: Exchange) -> None:
        if not fold.begun and exchange.kept().strip():
            raise self._malformed(exchange.kept())
        if not fold.ended:
            what = f"{self.name}: the stream broke off before its end"
            raise ConnectionLost(what, status=exchange.status, raw=self._http.raw(exchange.kept()))

    def _reply(
        self,
        request: Request,
        draft: ReplyDraft,
        body: bytes,
        headers: Mapping[str, str],
        *,
        seconds: float,
        first: float | None = None,
    ) -> Reply:
        clean = self._http.clean  # a reply is recorded, and must not contain the key
        text, calls, finish = clean(draft.text), draft.tool_calls, draft.finish
        if calls:
            calls = tuple(
                ToolCall(clean(each.id), clean(each.name), clean(each.arguments)) for each in calls
            )
        usage = self.usage(request, draft)
        if draft.refusal:
            self._raise_error(
                Refused,
                f"refused to answer: {one_line(self._http.clean(draft.refusal))}",
                body,
                usage,
            )
        if not text and not calls and not (request.stop and finish == "stop"):
            cut = ": max_tokens were used up before any text" if finish == "length" else ""
            self._raise_error(
                ReplyBroken, f"sent an empty reply{cut}", body, usage, more_room=bool(cut)
            )
        value: Json = None
        if request.schema is not None and not (calls and not text):
            cut = ", cut off at max_tokens," if finish == "length" else ""
            who = f"the reply of {self.name}{cut}"
            try:
                value = parse(text, request.schema, who=who, clean=self._http.clean)
            except ReplyInvalid as error:
                error.usage = usage
                raise
        model, name = clean(draft.model), clean(draft.id)
        return Reply(
            text,
            value,
            calls,
            usage,
            finish,
            model,
            name,
            seconds,
            first,
            headers,
            self.unsent(request),
            self._kept(draft.kept) if draft.kept and request.tools else (),
        )

    def _kept(self, kept: Kept) -> Kept:
        """What can be recorded of it; the rest is dropped, as it may not be changed."""
        found = []
        for each in kept:
            if is_deeper(each, _MOST_KEPT_DEPTH):
                continue
            text = json.dumps(each, ensure_ascii=False)
            if self._http.clean(replace_surrogates(text)) == text:
                found.append(each)
        return tuple(found)

    def usage(self, request: Request, draft: ReplyDraft) -> Usage:
        """The usage of a reply; an estimate if the provider did not send it."""
        sent, received = draft.input_tokens, draft.output_tokens
        return Usage(
            1,
            tokens_in(request) if sent is None else sent,
            tokens_of(draft.text) if received is None else received,
            None,
            sent is None or received is None,
            draft.cached_input_tokens,
            draft.cache_write_tokens,
            draft.reasoning_tokens,
        )

    def _raise_error(
        self,
        kind: type[CallFailed],
        what: str,
        body: bytes,
        usage: Usage,
        *,
        more_room: bool = False,
    ) -> NoReturn:
        error = kind(f"{self.name} {what}", status=200, raw=self._http.raw(body))
        error.wants_room = more_room
        error.usage = usage  # the tokens are charged although there is no reply
        raise error


def _shape(request: Request, *, stream: bool) -> tuple[object, ...]:
    """Which parameters a request has, as far as they can be told without writing it."""
    return (
        stream,
        request.temperature is None,
        request.seed is None,
        request.max_tokens is None,
        request.schema is None,
        request.reasoning,
        request.thinking_tokens is None,
        request.shared_prefix is None,
        not request.stop,
        not request.tools,
        request.tool_choice is None,
        not request.system,
        *request.extra,
    )


def _without(request: Request, drop: Sequence[str]) -> Request:
    """The request without the parameters that its lane never sends."""
    dropped = {name: value for name, value in _DROPPED.items() if name in drop}
    return replace(request, **dropped) if dropped else request


_DROPPED: dict[str, Any] = {"temperature": None, "seed": None, "stop": (), "max_tokens": None}


def _for_lane(body: Document, lane: LaneSettings) -> Document:
    """The body without the fields that a lane drops, and with its extra ones."""
    for name in lane.drop:
        *above, last = name.split(".")
        inside: Any = body
        for part in above:
            inside = inside.get(part) if isinstance(inside, dict) else None
        if isinstance(inside, dict):
            inside.pop(last, None)
    return _merged(lane.extra, body) if lane.extra else body


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> Document:
    """Both, with tables merged; where both have a value, that of `over`."""
    result = {**under, **over}
    for name, value in under.items():
        if isinstance(value, Mapping) and isinstance(own := over.get(name), Mapping):
            result[name] = _merged(value, own)
    return result


def _is_stream(exchange: Exchange) -> bool:
    headers = exchange.headers
    return (
        exchange.status == 200  # noqa: PLR2004 - OK
        and "event-stream" in headers.get("content-type", "")
    )


def system_texts(request: Request) -> list[str]:
    """The system prompt, and the turns of that role."""
    turns = [each.content for each in request.messages if each.role == "system"]
    return [text for text in (request.system, *turns) if text]


# --- a value by a schema

ANSWER_TOOL = "final_reply"
"""The tool that a request with a schema may have to call: its input is the value."""


def ways_from(first: Structured, ways: tuple[Structured, ...]) -> tuple[Structured, ...]:
    """The ways of an adapter to get a value by a schema, from the one to begin with."""
    return tuple(way for way in ways if STRUCTURED_WAYS.index(way) >= STRUCTURED_WAYS.index(first))


def answer_tool(schema: Mapping[str, Any], parameters: str = "parameters") -> Document:
    """The tool by which a model gives the value; `parameters` is the API's name for its schema."""
    about = "Give the final reply by calling this."
    return {"name": ANSWER_TOOL, "description": about, parameters: boxed(schema).schema}


def schema_in_words(request: Request) -> str:
    """What the prompt says of a schema that is not sent in another way."""
    return f"Answer with JSON alone, by this schema: {json.dumps(request.schema)}"


def take_answer(draft: ReplyDraft, schema: Mapping[str, Any]) -> None:
    """Set the text of a draft to that of its value, in whichever way the model gave it."""
    for call in draft.tool_calls:
        if call.name == ANSWER_TOOL:
            draft.text, draft.tool_calls = call.arguments or "{}", ()
            draft.finish = "stop" if draft.finish == "tool_calls" else draft.finish
            break
    if draft.text:
        draft.text = unboxed(draft.text, schema)


# --- parts of replies and requests


def tokens_in(request: Request) -> int:
    """Estimates the tokens of a request."""
    extras = "".join(map(str, request.tools)) if request.tools else ""
    return (
        tokens_of(request.system or "")
        + tokens_of(extras)
        + sum(tokens_of(each.content) for each in request.messages)
        + media_tokens_in(request)
    )


def arguments_of(call: ToolCall) -> Document:
    """The arguments of a tool call as an object; raises ValueError if they are none."""
    arguments = json.loads(call.arguments or "{}")
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments of the tool call {call.id} are no object")
    return arguments
