"""The call journal: writes model calls into the run's journal and reads recorded ones back."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, Final

from abreast.core import errors
from abreast.core.errors import CallFailed
from abreast.core.events import CALL_SETTLED, CALL_STARTED, Event, Plain
from abreast.core.outcome import Usage
from abreast.limits.limit import Need
from abreast.models.port import Json, Reply, Request, ToolCall
from abreast.run.item_state import Calls, ItemState
from abreast.run.journal import Journal
from abreast.run.outcome_record import usage_facts, usage_of
from abreast.store.codec import codec
from abreast.store.codec.json_text import json_writer
from abreast.system.quick_json import same_json

CALL: Final = "call"  # the part of a path beneath which an item's calls are
WHOLE_ITEM: Final = "item"  # in place of a digest, for the call that an item consists of

# In bytes. Equal digests within an item are numbered, so a collision loses no call.
REQUEST_DIGEST_BYTES: Final = 8


# The parameters of a request that are in its digest as they are, where they are given.
_DIGESTED: Final = (
    *("system", "temperature", "seed", "max_tokens", "schema"),
    *("reasoning", "thinking_tokens", "tool_choice"),
)


_digested_of: Final = attrgetter(*_DIGESTED)
_NONE_GIVEN: Final = (None,) * len(_DIGESTED)


def digest_of(model: str, request: Request, size: int = REQUEST_DIGEST_BYTES) -> str:
    """A short name for a request to a model: the same for equal requests, in every process."""
    content: dict[str, object] = {
        "model": model,
        "messages": [_turn(message) for message in request.messages],
    }
    given = _digested_of(request)
    if given != _NONE_GIVEN:
        content.update(
            (name, value) for name, value in zip(_DIGESTED, given, strict=True) if value is not None
        )
    if request.stop:
        content["stop"] = list(request.stop)
    if request.tools:
        content["tools"] = list(request.tools)
    if request.extra:
        content["extra"] = dict(request.extra)
    may_have_floats = (
        given != _NONE_GIVEN
        or request.tools
        or request.extra
        or any(turn.kept for turn in request.messages)
    )
    text = None if may_have_floats else same_json(content, sort_keys=True)
    if text is None:
        text = _canonical_json(content).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=size).hexdigest()


_canonical_json: Final = json_writer(sort_keys=True)
# In characters, for one turn of a request. Longer texts exist elsewhere too, such as in a file.
MAX_RECORDED_TURN: Final = 20_000


def _turn(message: Any) -> list[object]:
    turn: list[object] = [message.role, message.content]
    if message.tool_calls or message.tool_call_id:
        turn += [
            [[call.id, call.name, call.arguments] for call in message.tool_calls],
            message.tool_call_id,
        ]
    if message.kept:
        turn.append({"kept": list(message.kept)})
    if message.files:  # by content, wherever they are
        turn.append({"files": [[file.media_type, file.sha256] for file in message.files]})
    return turn


def call_path(item_path: str, digest: str, number: int, attempt: int) -> str:
    """The path of the item's call with this request and number, in this attempt of the item."""
    mark = f"@{attempt}" if attempt > 1 else ""
    return f"{item_path}/{CALL}/{digest}-{number}{mark}"


class CallJournal:
    """Writes one call into the journal of its run."""

    __slots__ = (
        "_has_recorded_request",
        "_item",
        "_journal",
        "_lane",
        "_model",
        "_records_texts",
        "more",
        "path",
    )

    def __init__(
        self,
        item: ItemState,
        journal: Journal,
        *,
        path: str,
        model: str,
        lane: str,
        texts: bool = True,
    ) -> None:
        """Without `texts`, request and reply are left out: the item records them itself."""
        self._item = item
        self._records_texts = texts
        self._journal = journal
        self._model = model
        self._lane = lane
        self._has_recorded_request = False
        self.more: dict[str, Plain] = {}  # further facts of its end
        self.path = path

    def started(self, need: Need, request: Request, *, wait: bool) -> asyncio.Future[None] | None:
        """Record the request and what is reserved for it.

        With `wait` (before a paid call) it returns a future that is done once the record survives
        a kill of this process. Without texts and without `wait`, a short call has no such event.
        """
        facts: dict[str, Plain | list[float]] = {"model": self._model, "tokens": need.tokens}
        if need.usd:
            facts["usd"] = need.usd
        if not self._records_texts and not wait:
            self._journal.begin(CALL_STARTED, self.path, self._lane, facts)
            return None
        body = None
        if self._records_texts and not self._has_recorded_request:
            body = request_text(request, self.path, self._item.context.redact)
        self._has_recorded_request = True
        written = self._item.context.loop.create_future() if wait else None
        self._journal.emit(
            CALL_STARTED,
            self.path,
            lane=self._lane,
            data=facts,
            body=body,
            written=None if written is None else partial(_set_done, written),
            urgent=wait,
        )
        return written

    def replied(self, reply: Reply, request: Request, times: Sequence[float]) -> Reply:
        """Record a reply, and return it as a resumed run would get it.

        Without texts it is committed with the item's outcome, which has them.

        It is not waited for: the journal keeps its order, so what is recorded later about the use
        of the reply comes after it, and so does the start of the next paid call, which is waited
        for.
        """
        redact = self._item.context.redact
        if redact is not None:
            # What is kept is signed, so it is whole or not there.
            kept = tuple(each for each in reply.kept if not _is_redacted(each, self.path, redact))
            reply = reply if kept == reply.kept else replace(reply, kept=kept)
            text = redact(self.path, reply.text)
            if text != reply.text:
                reply = replace(reply, text=str(text), value=_value(str(text), request))
        facts = self._facts("done", reply.usage, times)
        if reply.first_token is not None:
            facts["first_token"] = reply.first_token
        self._journal.over(self.path)
        self._journal.emit(
            CALL_SETTLED,
            self.path,
            lane=self._lane,
            data=facts,
            body=reply_text(reply, self.path) if self._records_texts else None,
            written=_write_soon if self._records_texts else None,
        )
        return reply

    def failed(self, error: BaseException, used: Usage, times: Sequence[float]) -> None:
        """Record a failure; it is written with the next commit and doesn't cause one."""
        state = "failed" if isinstance(error, CallFailed) else "cancelled"
        body = codec.encode_error(error) if state == "failed" else None
        self._journal.over(self.path)
        self._journal.emit(
            CALL_SETTLED,
            self.path,
            lane=self._lane,
            data=self._facts(state, used, times),
            body=body,
        )

    def _facts(
        self, state: str, used: Usage, times: Sequence[float]
    ) -> dict[str, Plain | list[float]]:
        waited, backoff, *service = times
        facts = usage_facts(used)
        facts["state"] = state
        facts["model"] = self._model
        facts["service"] = service
        if waited:
            facts["waited"] = waited
        if backoff:
            facts["backoff"] = backoff
        facts.update(self.more)
        return facts


async def recorded_calls_of(item: ItemState) -> Calls:
    """The item's calls, including those that earlier drivers of the run recorded.

    Cancelled ones, and those whose texts only the item would have, are not among them.
    """
    context = item.context
    known: dict[str, Event] = {}
    writer, store, row = context.writer, context.store, context.row
    if (
        not item.ignores_recorded_calls
        and writer is not None
        and store is not None
        and row is not None
    ):
        prefix = f"{item.path}/{CALL}/"
        found = await writer.read(
            lambda: store.events(row.id, kinds={CALL_SETTLED}, prefix=prefix, limit=1_000_000)
        )
        known = {event.path: event for event in found if event.body is not None}
    if item.calls is None:  # another call of the item may have been faster
        item.calls = Calls(known)
    return item.calls


def restore(event: Event, request: Request) -> Reply:
    """The recorded reply; a recorded failure is raised."""
    data: Mapping[str, Any] = event.data
    if data["state"] == "failed":
        raise _failure(event.body or "{}")
    service = data.get("service") or [0.0]
    reply = restored(event.body or "{}", request)
    return replace(
        reply, usage=usage_of(data), seconds=float(service[-1]), first_token=data.get("first_token")
    )


def restored(text: str, request: Request) -> Reply:
    """The reply that `reply_text` wrote as `text`."""
    fields: Any = codec.decode(text)
    return Reply(
        text=fields["text"],
        value=_value(fields["text"], request),
        tool_calls=tuple(ToolCall(*call) for call in fields.get("tool_calls", ())),
        finish=fields.get("finish", "stop"),
        model=fields.get("model", ""),
        id=fields.get("id", ""),
        changed=tuple(fields.get("changed", ())),
        kept=tuple(fields.get("kept", ())),
    )


def request_text(
    request: Request, where: str, redact: Callable[[str, object], object] | None = None
) -> str:
    """A request as it is recorded, for people to read; long turns are truncated.

    Files are named by type, size and digest.
    """
    turns = [("system", request.system)] if request.system is not None else []
    turns += [
        (turn.role, turn.content)
        if not turn.files
        else (turn.role, "\n".join([*(file.mark for file in turn.files), turn.content]))
        for turn in request.messages
    ]
    if redact is not None:
        turns = [(role, str(redact(where, text))) for role, text in turns]
    cut = [[role, text[:MAX_RECORDED_TURN], len(text)] for role, text in turns]
    written = same_json(cut)
    if written is not None:
        return written.decode()
    return f"[{','.join(codec.encode(turn, where) for turn in cut)}]"


def reply_text(reply: Reply, where: str) -> str:
    """A reply as it is recorded; its usage is in the event's data."""
    fields: dict[str, object] = {"text": reply.text}
    if reply.finish != "stop":
        fields["finish"] = reply.finish
    if reply.model:
        fields["model"] = reply.model
    if reply.id:
        fields["id"] = reply.id
    if reply.tool_calls:
        fields["tool_calls"] = [[call.id, call.name, call.arguments] for call in reply.tool_calls]
    if reply.changed:
        fields["changed"] = list(reply.changed)
    if reply.kept:
        fields["kept"] = list(reply.kept)
    return codec.encode(fields, where)


def _is_redacted(kept: Json, where: str, redact: Callable[[str, object], object]) -> bool:
    """Whether redaction changes any text of it."""
    if isinstance(kept, str):
        return redact(where, kept) != kept
    if isinstance(kept, Mapping):
        return any(_is_redacted(each, where, redact) for each in kept.values())
    if isinstance(kept, Sequence):
        return any(_is_redacted(each, where, redact) for each in kept)
    return False


def _value(text: str, request: Request) -> Json:
    """The value that a recorded text encodes; None if redaction made it invalid."""
    if request.schema is None:
        return None
    from abreast.models.schema import parse

    try:
        return parse(text, request.schema)
    except errors.ReplyInvalid:
        return None


def _failure(body: str) -> BaseException:
    recorded = codec.decode_error(body)
    kind = getattr(errors, recorded.kind.rpartition(".")[2], None)
    if not isinstance(kind, type) or not issubclass(kind, CallFailed):
        return recorded
    status, raw = recorded.details.get("status"), recorded.details.get("raw")
    return kind(
        recorded.message, status=status if isinstance(status, int) else None, raw=str(raw or "")
    )


def _write_soon() -> None:
    """A callback that does nothing: events with a `written` callback are written without delay."""


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
