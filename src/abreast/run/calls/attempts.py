"""One call on its way: admitted by its lane and the budgets, attempted, settled, perhaps several times.

admit (hold, slots, rates, budgets) -> one attempt -> settle
    429: the lane is held, the call goes back to the head of its line; it was no attempt
    5xx, reset, timeout: the slot is given back, and after a backoff it is tried again
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from abreast.core.clock import sleep_until
from abreast.core.errors import CallFailed, QuotaSpent, Throttled
from abreast.core.events import LIMIT_CHANGED
from abreast.core.outcome import NO_USAGE, Usage
from abreast.limits.governor.governor import CallPermit
from abreast.limits.limit import Limit, Need
from abreast.limits.queue import Hold, Ticket
from abreast.models.port import Hear, Reply, Request
from abreast.models.price import priced
from abreast.run.calls.journal import CallJournal
from abreast.run.calls.lane import Facts
from abreast.run.current import CurrentItem
from abreast.run.slot_lending import Borrowed, borrow, credited, lend, lends, reclaim, wait_granted

if TYPE_CHECKING:
    from abreast.run.calls.model import Caller

_ONE: Final = Usage(requests=1)


class _Grant:
    """What one attempt of a call holds."""

    __slots__ = ("borrowed", "credit", "holds", "lent")

    def __init__(self) -> None:
        self.holds: tuple[Hold, ...] = ()
        self.borrowed: Borrowed | None = None  # slots of the item
        self.credit: set[Limit] | None = (
            None  # limits that the item was charged at for this request
        )
        self.lent = False


class CallAttempts:
    """One call on its way: admitted, attempted, settled, perhaps several times."""

    __slots__ = (
        "_backoff",
        "_began",
        "_call_journal",
        "_budgets",
        "_caller",
        "_clock",
        "_estimate",
        "_gate",
        "_heard",
        "_item",
        "_need",
        "_order",
        "_request",
        "_service",
        "_used",
    )

    def __init__(
        self,
        caller: Caller,
        request: Request,
        item: CurrentItem | None,
        call_journal: CallJournal | None,
    ) -> None:
        self._caller = caller
        self._request = request
        self._item = item
        self._call_journal = call_journal
        self._clock = caller.clock_for(item)
        self._gate = caller.gate_for(item)
        self._budgets = item.drive.run.lanes.budgets if item is not None else ()
        self._need, self._estimate = caller.reserve(request, self._budgets)
        self._order: int | None = None
        self._began = self._clock.now()
        self._backoff = 0.0
        self._service: list[float] = []
        self._used = NO_USAGE  # by attempts that failed
        self._heard = False

    async def answer(self, hear: Hear | None) -> Reply:
        """Try until there is a reply, or an error that trying again won't help."""
        listen = None if hear is None else self._listening(hear)
        while True:
            grant = await self._admit()
            try:
                reply, error = await self._attempt(grant, listen)
            except asyncio.CancelledError:
                self._forgo(grant)
                raise
            except BaseException:
                await self._take_back(grant)
                raise
            if grant.lent:
                await self._take_back(grant)
            if reply is not None:
                return reply
            if error is not None:
                await self._back_off(error)

    def _listening(self, hear: Hear) -> Hear:
        def listen(text: str) -> None:
            self._heard = True
            hear(text)

        return listen

    # --- admission ------------------------------------------------------------------------------------------------

    async def _admit(self) -> _Grant:
        """Wait for the lane and the budgets; the item's own slots are free for others meanwhile."""
        item, grant = self._item, _Grant()
        ticket = self._ticket(grant)
        if self._gate.ask(ticket):
            grant.holds = ticket.holds
            if item is not None and item.holds:
                grant.borrowed = borrow(item, self._caller.limits_for(item))
            return grant
        if item is not None and lends(item):
            self._gate.withdraw(ticket)
            self._give_back(grant)
            grant.lent = lend(item, item.drive.setting)
            ticket = self._ticket(grant)
            if self._gate.ask(ticket):
                grant.holds = ticket.holds
                return grant
        try:
            await wait_granted(self._gate, ticket)
        except BaseException:
            self._forgo(grant)
            raise
        grant.holds = ticket.holds
        return grant

    def _ticket(self, grant: _Grant) -> Ticket:
        ticket = Ticket(self._needs(grant))
        if self._order is not None:
            ticket.order = self._order
        self._order = ticket.order
        return ticket

    async def _take_back(self, grant: _Grant) -> None:
        """The item goes on: it needs its slots again."""
        if grant.lent and self._item is not None:
            await reclaim(self._item, self._item.drive.setting)

    def _forgo(self, grant: _Grant) -> None:
        """The item ends: it needs its slots no more."""
        if grant.lent and self._item is not None:
            self._item.lenders -= 1

    def _needs(self, grant: _Grant) -> list[tuple[str, Limit, Need]]:
        """What is still to be asked for: not the slots that the item holds, nor the request it was charged for."""
        caller, item, need = self._caller, self._item, self._need
        name = caller.lane.name
        needs: list[tuple[str, Limit, Need]] = [(name, caller.lane.server, need)]
        held = [hold.limit for hold in item.holds] if item is not None else ()
        for limit in (*caller.limits_for(item), *self._budgets):
            if limit in held:
                continue
            asked = need
            if limit.charged and item is not None and credited(item, limit):
                grant.credit = {limit, *(grant.credit or ())}
                asked = Need(need.weight, 0, need.tokens, need.usd, need.output)
            needs.append((name, limit, asked))
        return needs

    def _give_back(self, grant: _Grant) -> None:
        """The request that the item was charged for was not made after all."""
        if grant.credit and self._item is not None:
            self._item.credits = (self._item.credits or set()) | grant.credit
            grant.credit = None

    def _settle(self, grant: _Grant, used: Usage) -> None:
        """Give back what was held; budgets and rates keep what was really used."""
        rest: Sequence[Hold] = grant.holds
        if grant.credit:
            first = [
                hold for hold in rest if hold.limit in grant.credit
            ]  # its request is paid for already
            rest = [hold for hold in rest if hold.limit not in grant.credit]
            self._gate.give(
                first, Usage(0, used.input_tokens, used.output_tokens, used.usd, used.estimate)
            )
        self._gate.give(rest, used)
        if grant.borrowed is not None:
            grant.borrowed.give_back()

    # --- one attempt ----------------------------------------------------------------------------------------------

    async def _attempt(
        self, grant: _Grant, hear: Hear | None
    ) -> tuple[Reply | None, CallFailed | None]:
        """A reply; or an error to back off from; or neither, after a 429."""
        caller, clock = self._caller, self._clock
        lane, sent = caller.lane, 0.0
        episode, permit = lane.episode, lane.permit_in(grant.holds)
        try:
            if self._call_journal is not None:
                kept = self._call_journal.started(self._need, self._request, wait=caller.paid)
                if kept is not None:
                    await kept
            sent = clock.now()
            reply = await caller.model.complete(self._request, hear)
        except Throttled as error:
            now = clock.now()
            try:  # before it is given back, or who waits behind it would go
                decided = (
                    lane.throttled(error, episode, now)
                    if permit is None
                    else lane.rejected(permit, error, now)
                )
            finally:
                self._settle(grant, Usage())
                self._give_back(grant)
            self._backoff += now - sent
            self._tell(decided)
            return None, None
        except QuotaSpent as error:
            after = getattr(error, "retry_after", None)
            parked = lane.park(error, after, clock.now())
            self._settle(grant, Usage())
            self._tell(
                [{"dimension": "quota", "old": None, "new": 0, "cause": "quota", "held": after}]
            )
            raise parked from error
        except CallFailed as error:
            used = priced(
                getattr(error, "usage", _ONE), caller.price
            )  # a refusal, say, was paid for
            self._settle(grant, used)
            self._service.append(clock.now() - sent)
            self._used += used
            if self._retries(error):
                return None, error
            self._fail(error)
            raise
        except BaseException as error:
            # Nobody will say what it cost: it is taken for what was reserved, if it was sent at
            # all.
            used = (
                priced(Usage(1, *self._estimate, estimate=True), caller.price) if sent else Usage()
            )
            self._settle(grant, used)
            self._service.append(clock.now() - sent if sent else 0.0)
            self._used += used
            self._fail(error)
            raise
        return self._succeed(grant, reply, permit), None

    def _succeed(self, grant: _Grant, reply: Reply, permit: CallPermit | None) -> Reply:
        caller = self._caller
        told = (
            _ONE if reply.usage is NO_USAGE else reply.usage
        )  # a model of your own may tell nothing
        used = priced(told, caller.price)
        if permit is not None and (
            decided := caller.lane.answered(permit, used, reply.headers, self._clock.now())
        ):
            self._tell(decided)
        self._settle(grant, used)
        caller.lane.got_through()
        caller.estimates.learn(self._request, reply)
        self._service.append(reply.seconds)
        total = used if self._used is NO_USAGE else self._used + used
        # Made anew rather than by dataclasses.replace, which takes four times as long.
        reply = Reply(
            reply.text,
            reply.value,
            reply.tool_calls,
            total,
            reply.finish,
            reply.model,
            reply.id,
            reply.seconds,
            reply.first_token,
        )
        if self._item is not None:
            self._item.add_usage(total)
        return (
            reply
            if self._call_journal is None
            else self._call_journal.replied(reply, self._request, self._times())
        )

    def _tell(self, decided: Sequence[Facts]) -> None:
        """What the lane has decided, in the journal of the run whose call it decided it on."""
        item = self._item
        journal = item.drive.setting.journal if item is not None else None
        if journal is not None and item is not None:
            for facts in decided:
                journal.emit(LIMIT_CHANGED, item.path, lane=self._caller.lane.name, data=facts)

    def _retries(self, error: CallFailed) -> bool:
        return error.retryable and not self._heard and self._delay(error) is not None

    def _delay(self, error: CallFailed) -> float | None:
        seed, path = 0, self._caller.name
        if self._item is not None:
            context = self._item.drive.setting
            seed = context.seed
            path = (
                path if self._call_journal is None else context.seeded_part(self._call_journal.path)
            )
        return self._caller.retry.delay(error, len(self._service), seed, path)

    async def _back_off(self, error: CallFailed) -> None:
        item, now, pause = self._item, self._clock.now(), _Grant()
        pause.lent = item is not None and lend(item, item.drive.setting)
        try:
            await sleep_until(self._clock, now + (self._delay(error) or 0.0))
        except BaseException as stopped:
            self._forgo(pause)
            self._fail(stopped)
            raise
        self._backoff += self._clock.now() - now
        await self._take_back(pause)

    def _fail(self, error: BaseException) -> None:
        if self._item is not None:
            self._item.add_usage(self._used)
        if self._call_journal is not None:
            self._call_journal.failed(error, self._used, self._times())

    def _times(self) -> tuple[float, ...]:
        """Waited, backoff, then the service time of each attempt."""
        wall = self._clock.now() - self._began
        return (max(0.0, wall - self._backoff - sum(self._service)), self._backoff, *self._service)
