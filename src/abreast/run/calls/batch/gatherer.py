"""The gatherer: calls of one lane and model become batches, and batches become answers.

add -> queue -> (full, or old enough) -> recorded -> submitted -> asked for -> downloaded -> answers

A submission without an answer is looked up by its name until it must have turned up, and only then
made again. Calls that an earlier driver put into a batch wait for that one.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from abreast.core.clock import Timer, sleep_until
from abreast.core.errors import (
    CallFailed,
    KeyRefused,
    LaneParked,
    NoSuchModel,
    QuotaSpent,
    RequestRefused,
    Throttled,
)
from abreast.core.seeds import draw_seed
from abreast.models.batch.service import (
    MISSED,
    UNDECIDED,
    BatchAnswer,
    BatchService,
    BatchStatus,
    SentBatch,
)
from abreast.models.batch.terms import BatchTerms
from abreast.models.providers.provider import Document
from abreast.run.calls.batch.record import NOT_SUBMITTED, BatchRecord

if TYPE_CHECKING:
    from abreast.core.clock import Clock
    from abreast.run.calls.batch.quota import EnqueuedTokens

POLL_GROWTH: Final = 1.5
ENTRY_BYTES: Final = 200  # of a request in a batch, beside its body
SUBMISSION_GRACE: Final = 10.0  # seconds for the answer to a submission whose run is cancelled
MISSING: Final = BatchAnswer(0, MISSED, {}, "missing")
CLIENT_ERRORS: Final = range(400, 500)
REFUSALS: Final = (RequestRefused, KeyRefused, NoSuchModel, QuotaSpent)
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class QueuedCall:
    """A call that waits: its id in the run, its body, and the future of its answer."""

    id: str
    body: Document
    bytes: int
    tokens: int
    answer: asyncio.Future[BatchAnswer]


@dataclass(slots=True, eq=False)
class OpenBatch:
    """A batch from its gathering until its answers are handed out.

    `bodies` is None for one of an earlier driver, whose requests are not known here.
    """

    name: str
    calls: tuple[str, ...]
    wall: float
    tokens: int = 0
    bodies: list[Document] | None = None
    upstream: str | None = None
    task: asyncio.Task[None] | None = None
    waiting: dict[int, QueuedCall] = field(default_factory=dict)
    answers: dict[int, BatchAnswer] | None = None
    failure: BaseException | None = None
    held: int = 0  # tokens that it holds of the lane's quota
    submission: asyncio.Future[None] | None = None  # done when its request has an answer


class Gatherer:
    """Gathers the calls of one lane and model in one run; made and closed by `RunBatches`."""

    def __init__(
        self,
        service: BatchService,
        terms: BatchTerms,
        record: BatchRecord,
        clock: Clock,
        quota: EnqueuedTokens,
    ) -> None:
        self.terms = terms
        self.size = min(terms.size, service.bounds.requests)
        self.service = service
        self._record = record
        self._clock = clock
        self._quota = quota
        self._loop = asyncio.get_running_loop()
        self._queue: dict[str, QueuedCall] = {}
        self._timer: Timer | None = None
        self._open: dict[str, OpenBatch] = {}
        self._places: dict[str, tuple[OpenBatch, int]] = {}
        self._upstream: set[str] = set()
        self._not_before = 0.0
        self._parks_at = None if terms.wait is None else clock.now() + terms.wait
        if self._parks_at is not None:
            clock.call_at(self._parks_at, self._park_if_idle)

    def __repr__(self) -> str:
        waiting = sum(len(batch.waiting) for batch in self._open.values())
        return f"<Gatherer of {self.service.name}: {len(self._queue)} queued, {waiting} submitted>"

    async def load(self) -> None:
        """Find the batches of earlier drivers; once, before the first call is added."""
        for batch in await self._record.read():
            known = OpenBatch(batch.name, batch.calls, batch.wall, upstream=batch.upstream)
            self._open[batch.name] = known
            self._places.update((call, (known, at)) for at, call in enumerate(batch.calls))
            if batch.upstream is not None:
                self._upstream.add(batch.upstream)

    async def answer(
        self, call: str, body: Document, size: tuple[int, int], *, anew: bool = False
    ) -> BatchAnswer:
        """Wait for the answer to a call; `size` is its bytes and tokens.

        With `anew`, batches of earlier drivers are not asked. Raises subclasses of CallFailed if
        its batch can't be submitted or read, and `LaneParked` if it has waited for too long.
        """
        waits = QueuedCall(call, body, *size, self._loop.create_future())
        found = None if anew else self._places.get(call)
        if found is None:
            self._enqueue(waits)
        else:
            self._join(*found, waits)
        try:
            return await waits.answer
        finally:
            self._queue.pop(call, None)

    async def close(self, *, cancel: bool) -> None:
        """End all tasks; with `cancel`, cancel the batches at the provider.

        For that, one that is just being submitted is waited for: only the answer says which it is.
        """
        if self._timer is not None:
            self._timer.cancel()
        sent = [batch.submission for batch in self._open.values() if batch.submission is not None]
        if cancel and sent:
            await asyncio.wait(sent, timeout=SUBMISSION_GRACE)
        tasks = [batch.task for batch in self._open.values() if batch.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if cancel:
            for batch in self._open.values():
                await self._cancel(batch)

    async def _cancel(self, batch: OpenBatch) -> None:
        if batch.upstream is None or batch.answers is not None or batch.failure is not None:
            return
        try:
            await self.service.cancel(batch.upstream)
        except CallFailed as error:
            self._record.ended(batch.name, f"not cancelled: {error}")
        else:
            self._record.ended(batch.name, "cancelled", requests=len(batch.calls))

    # --- gathering

    def _enqueue(self, call: QueuedCall) -> None:
        self._queue[call.id] = call
        if len(self._queue) >= self.size:
            self._flush()
        elif self._timer is None:
            when = max(self._clock.now() + self.terms.age, self._not_before)
            self._timer = self._clock.call_at(when, self._flush)

    def _join(self, batch: OpenBatch, place: int, call: QueuedCall) -> None:
        """Have a call wait for a batch of an earlier driver."""
        if batch.failure is not None:
            call.answer.set_exception(batch.failure)
        elif batch.answers is not None:
            call.answer.set_result(batch.answers.pop(place, MISSING))
        else:
            batch.waiting[place] = call
            if batch.task is None:
                self._start(batch)

    def _flush(self) -> None:
        """Make batches of all queued calls, each within all bounds."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        left = [call for call in self._queue.values() if not call.answer.done()]
        self._queue.clear()
        while left:
            count = self._fitting(left)
            calls, left = left[:count], left[count:]
            name = f"ab{draw_seed():016x}"
            batch = OpenBatch(
                name,
                tuple(call.id for call in calls),
                self._clock.wall(),
                sum(call.tokens for call in calls),
                [call.body for call in calls],
                waiting=dict(enumerate(calls)),
            )
            self._open[name] = batch
            self._places.update((call, (batch, at)) for at, call in enumerate(batch.calls))
            self._start(batch)

    def _fitting(self, calls: Sequence[QueuedCall]) -> int:
        """How many of the first calls make one batch: at least one."""
        bounds, most = self.service.bounds, self._quota.most
        size = tokens = 0
        for count, call in enumerate(calls):
            size += call.bytes + ENTRY_BYTES
            tokens += call.tokens
            if count and (
                count >= self.size or size > bounds.bytes or (most is not None and tokens > most)
            ):
                return count
        return len(calls)

    # --- the way of a batch

    def _start(self, batch: OpenBatch) -> None:
        # In a context of its own: it works for no item.
        batch.task = asyncio.Task(
            self._carry(batch), loop=self._loop, context=contextvars.Context()
        )

    async def _carry(self, batch: OpenBatch) -> None:
        """Bring a batch to its end, and hand out its answers, or the error that ended it."""
        try:
            if batch.upstream is None and not await self._submit(batch):
                return
            status = await self._wait_ended(batch)
            if status.progress == "failed":
                self._fail(batch, status)
            else:
                self._hand_out(batch, await self._download(batch, status))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - raised where its calls wait
            batch.failure = error
            self._record.ended(batch.name, f"failed: {error}", requests=len(batch.calls))
            for call in batch.waiting.values():
                if not call.answer.done():
                    call.answer.set_exception(error)
        finally:
            if batch.answers is not None or batch.failure is not None:
                batch.waiting = {}
            batch.bodies = None
            self._quota.give(batch.held)
            batch.held = 0

    async def _submit(self, batch: OpenBatch) -> bool:
        """Submit a batch once; False if it is one of an earlier driver that was not submitted."""
        if batch.bodies is None:
            batch.upstream = await self._look_up(batch, batch.wall)
            if batch.upstream is None:
                self._give_up(batch)
                return False
        else:
            await self._quota.take(batch.tokens)
            batch.held = batch.tokens
            await self._record.gathered(batch.name, batch.calls, batch.tokens)
            batch.upstream = await self._create(batch, batch.bodies)
        self._upstream.add(batch.upstream)
        await self._record.submitted(batch.name, batch.upstream)
        self._park_if_idle()
        return True

    async def _create(self, batch: OpenBatch, bodies: Sequence[Document]) -> str:
        """Submit a new batch; once more only if it is certain that the provider has it not."""
        prepared = await self._patiently(lambda: self.service.prepare(batch.name, bodies))
        pause = self.terms.poll
        while True:
            sent_at = self._clock.wall()
            try:
                return await self._send(batch, prepared)
            except CallFailed as error:
                not_sent = error.unsent or isinstance(error, Throttled)
                if isinstance(error, REFUSALS) or (error.status in CLIENT_ERRORS and not not_sent):
                    raise
                await self._pause(max(pause, error.retry_after or 0.0))
            pause = min(pause * POLL_GROWTH, self.terms.longest_poll)
            if not not_sent and (found := await self._look_up(batch, sent_at)):
                return found

    async def _send(self, batch: OpenBatch, prepared: str | Document) -> str:
        batch.submission = self._loop.create_future()
        try:
            return await self.service.create(batch.name, prepared)
        finally:
            batch.submission.set_result(None)

    async def _look_up(self, batch: OpenBatch, sent_at: float) -> str | None:
        """The id of a batch that may have been submitted; None once it is certain that it was not.

        What is not in the list may still turn up there for a while.
        """
        sent, pause = SentBatch(batch.name, len(batch.calls), batch.wall), self.terms.poll
        while True:
            settled = self._clock.wall() >= sent_at + self.terms.settle
            found = await self._patiently(
                lambda: self.service.find(sent, frozenset(self._upstream))
            )
            if found:
                return found
            if settled and found != UNDECIDED:
                return None
            await self._pause(pause)
            pause = min(pause * POLL_GROWTH, self.terms.longest_poll)

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask the provider until it answers; an error that waiting can't help is raised."""
        pause = self.terms.poll
        while True:
            try:
                return await ask()
            except CallFailed as error:
                if not error.retryable:
                    raise
                await self._pause(max(pause, error.retry_after or 0.0))
            pause = min(pause * POLL_GROWTH, self.terms.longest_poll)

    def _give_up(self, batch: OpenBatch) -> None:
        """Queue the calls of a batch that was never submitted."""
        self._record.ended(batch.name, NOT_SUBMITTED, requests=len(batch.calls))
        for call in batch.calls:
            self._places.pop(call, None)
        del self._open[batch.name]
        for queued in batch.waiting.values():
            if not queued.answer.done():
                self._enqueue(queued)

    async def _wait_ended(self, batch: OpenBatch) -> BatchStatus:
        """Ask for the state until it is final, at growing intervals."""
        pause = self.terms.poll
        if batch.bodies is not None:  # new, so not done yet
            await self._pause(pause)
        while True:
            status = await self._patiently(lambda: self.service.status(batch.upstream or ""))
            if status.progress != "working":
                return status
            self._park_if_idle()
            await self._pause(pause)
            pause = min(pause * POLL_GROWTH, self.terms.longest_poll)

    async def _download(self, batch: OpenBatch, status: BatchStatus) -> dict[int, BatchAnswer]:
        """The answers by place; of several for one place, the first."""
        found = await self._patiently(lambda: self.service.answers(batch.upstream or "", status))
        answers: dict[int, BatchAnswer] = {}
        for answer in found:
            answers.setdefault(answer.place, answer)
        return answers

    def _hand_out(self, batch: OpenBatch, answers: dict[int, BatchAnswer]) -> None:
        answered = sum(answer.status != MISSED for answer in answers.values())
        state = "done" if answered == len(batch.calls) else "partly done"
        self._record.ended(batch.name, state, requests=len(batch.calls), answered=answered)
        batch.answers = answers
        for place, call in sorted(batch.waiting.items()):
            answer = answers.pop(place, MISSING)
            if not call.answer.done():
                call.answer.set_result(answer)

    def _fail(self, batch: OpenBatch, status: BatchStatus) -> None:
        """Hand out that a batch was refused as a whole: nothing of it was paid for."""
        self._record.ended(batch.name, f"refused: {status.reason}", requests=len(batch.calls))
        if status.waits:  # too many tokens are enqueued: the calls are gathered again, later
            self._not_before = self._clock.now() + self.terms.longest_poll
        why = TOO_MUCH_ENQUEUED if status.waits else status.reason
        batch.answers = {}
        for call in batch.waiting.values():
            if not call.answer.done():
                call.answer.set_result(BatchAnswer(0, MISSED, {}, why))

    async def _pause(self, seconds: float) -> None:
        await sleep_until(self._clock, self._clock.now() + seconds)

    # --- parking

    def _park_if_idle(self) -> None:
        """Park the lane if all that can be submitted is, and calls have waited long enough."""
        if self._parks_at is None or self._clock.now() < self._parks_at:
            return
        if self._queue:
            self._flush()
        waiting = [batch for batch in self._open.values() if batch.waiting and not batch.answers]
        if not waiting or any(batch.upstream is None for batch in waiting):
            return
        count = sum(len(batch.waiting) for batch in waiting)
        noun = "batch" if len(waiting) == 1 else "batches"
        parked = LaneParked(
            f"{count:,} calls of {self.service.name} wait in {len(waiting)} {noun} at the provider"
        )
        for batch in waiting:
            for call in batch.waiting.values():
                if not call.answer.done():
                    call.answer.set_exception(parked)


TOO_MUCH_ENQUEUED: Final = "too much enqueued"
"""Why a call was not answered that may be gathered again as often as need be."""
