"""Answers one call: through `Request` and `Reply`, or passed on to a provider of the same API."""

from http import HTTPStatus
from typing import Final, Protocol

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import AbreastError, CallFailed, LaneParked
from abreast.models.http.client import HttpAnswer
from abreast.models.port import Message, Model, OnText, Reply, Request
from abreast.models.providers.provider import Provider
from abreast.run.calls.model import Caller
from abreast.run.calls.priced_model import limits_spending
from abreast.run.item_state import current_state
from abreast.serve.answers.call import ServedCall
from abreast.serve.answers.outlet import EVENTS, JSON, Outlet
from abreast.serve.answers.passthrough import RelayedModel
from abreast.serve.answers.stream_usage import shows_usage, with_usage
from abreast.serve.dialects.dialect import Asked, Document, Unsupported, encode, lenient_request
from abreast.serve.routes import Route

_MAX_PLAIN_BYTES: Final = 16 << 10  # of a body whose tokens are estimated by its length


class CallWatcher(Protocol):
    """Is told where a call is."""

    def entered(self, call: ServedCall) -> None:
        """The lane has admitted it."""

    def refused(self, call: ServedCall) -> None:
        """The provider has turned it away, or failed: it may wait for the lane again."""

    def parked(self, caller: Caller) -> float:
        """The lane takes no calls for now; returns the seconds until it is tried again."""


async def answer(call: ServedCall, route: Route, watcher: CallWatcher) -> None:
    """Answer a request; raises what the call raised, before or within its answer."""
    if route.relay is None:
        await _translate(call, route, watcher)
    else:
        await _relay(call, route, route.relay, watcher)
    call.outlet.end()


async def _translate(call: ServedCall, route: Route, watcher: CallWatcher) -> None:
    """Ask models of any kind, and write the reply in the client's dialect."""
    outlet, dialect = call.outlet, call.dialect
    asked = _asked(call)
    writer = dialect.stream(asked) if call.streams else None

    def hear(piece: str) -> None:
        if writer is not None:
            if outlet.head is None:
                outlet.begin(200, EVENTS)
            outlet.send(writer.text(piece))

    reply = await _ask_in_turn(call, route, watcher, None if writer is None else hear)
    if writer is None:
        _write_reply(call, reply)
        return
    if outlet.head is None and reply.text:
        hear(reply.text)
    if outlet.head is None:
        outlet.begin(200, EVENTS)
    outlet.send(writer.end(reply))


async def _ask_in_turn(
    call: ServedCall, route: Route, watcher: CallWatcher, hear: OnText | None
) -> Reply:
    """The first usable reply of a route's models; raises what the last one raises.

    Only the last model may stream: text that was sent can't be taken back. If there are several,
    each call is recorded whole beneath the item, so that a resumed run repeats none.
    """
    request = call.dialect.read(call.body)
    *others, last = route.callers
    for caller in others:
        try:
            admitted = AdmittedModel(caller.model, call, watcher)
            reply = await caller.with_model(admitted).complete(request)
        except LaneParked:
            watcher.parked(caller)
        except CallFailed:
            continue
        else:
            if reply.text.strip() or reply.tool_calls:
                return reply
    admitted = AdmittedModel(last.model, call, watcher)
    final = last.with_model(admitted) if others else last.for_item(admitted)
    return await final.complete(request, hear)


async def _relay(call: ServedCall, route: Route, relay: Provider, watcher: CallWatcher) -> None:
    """Pass a request on as it is."""
    request = _estimated_request(call, route)

    def body(max_tokens: int | None, *, usage: bool) -> bytes:
        changes: Document = with_usage(call.body) if usage else {}
        if call.model != route.model:
            changes["model"] = route.model
        if request.max_tokens is None and max_tokens is not None:
            changes |= call.dialect.cap(max_tokens)
        if not changes:
            return call.raw
        return encode({**call.body, **changes}).encode("utf-8", "surrogatepass")

    is_chat_stream = call.dialect.name == "chat" and call.streams
    usage = route.stream_usage if is_chat_stream and not shows_usage(call.body) else None
    model = RelayedModel(relay, body, call.headers, call.outlet, stream=call.streams, usage=usage)
    watched = AdmittedModel(model, call, watcher)
    hear: OnText | None = _ignore if call.streams else None
    try:
        await route.caller.for_item(watched, seeded=False).complete(request, hear)
    except AbreastError:
        _pass_refusal(call.outlet, model.refusal)
        raise


def _estimated_request(call: ServedCall, route: Route) -> Request:
    """A request that is passed on as it is, as far as its tokens are estimated from it.

    A budget reserves the most that it can take, so all of it is read then; and so is a long one,
    which may have images in it.
    """
    is_capped = limits_spending(route.caller.budgets_for(current_state()))
    if not is_capped and len(call.raw) <= _MAX_PLAIN_BYTES:
        text = call.raw.decode("utf-8", "replace")
        return Request((Message("user", text),), max_tokens=call.dialect.bound(call.body))
    try:
        return call.dialect.read(call.body)
    except Unsupported:
        return lenient_request(call.body, call.dialect.bound(call.body))


def _pass_refusal(outlet: Outlet, refusal: HttpAnswer | None) -> None:
    """Pass the provider's own error on; a 429 is waited out, and never its last word."""
    is_open = outlet.head is None and not outlet.early
    if refusal is not None and is_open and refusal.status != HTTPStatus.TOO_MANY_REQUESTS:
        outlet.begin(refusal.status, refusal.headers.get("content-type", JSON))
        outlet.send(refusal.body)
        outlet.end()


def _write_reply(call: ServedCall, reply: Reply) -> None:
    asked, outlet = _asked(call), call.outlet
    if call.streams:
        writer = call.dialect.stream(asked)
        outlet.begin(200, EVENTS)
        outlet.send((writer.text(reply.text) if reply.text else b"") + writer.end(reply))
    else:
        outlet.begin(200, JSON)
        outlet.send(encode(call.dialect.write(reply, asked)).encode("utf-8", "replace"))


def _asked(call: ServedCall) -> Asked:
    created = int(SYSTEM_CLOCK.wall())
    return Asked(call.model, call.key.partition("-")[2], created, call.body)


class AdmittedModel:
    """A model that says when a call comes to it, which is when its lane has admitted it."""

    def __init__(self, model: Model, call: ServedCall, watcher: CallWatcher) -> None:
        self.name = model.name
        self._model = model
        self._call = call
        self._watcher = watcher

    async def complete(self, request: Request, hear: OnText | None = None) -> Reply:
        """Answer once."""
        self._watcher.entered(self._call)
        try:
            return await self._model.complete(request, hear)
        except CallFailed:
            self._watcher.refused(self._call)
            raise

    async def close(self) -> None:
        """Does nothing: the model is not its own."""


def _ignore(_: str) -> None:
    pass
