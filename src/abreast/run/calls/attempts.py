"""The attempts of one model call: each is admitted by the lane and the budgets, made, settled.

admit (hold, slots, rates, budgets) -> one attempt -> settle
    429: the lane is held and the call goes back to the head of its queue; it counts as no attempt
    503, 529: the same, as `abreast.run.calls.outage` says; another call is the first to try it
    other 5xx, reset, timeout: the slot is given back, and after a backoff it is tried again
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Final

from abreast.core.clock import sleep_until
from abreast.core.errors import AbreastError, CallFailed, QuotaSpent, Throttled
from abreast.core.events import LIMIT_CHANGED, PARKED
from abreast.core.outcome import NO_USAGE, Usage
from abreast.limits.governor.governor import CallPermit
from abreast.limits.limit import Hold, Limit, Need, Ticket
from abreast.models.estimate import TokenEstimate, bytes_of
from abreast.models.port import CallTurn, OnText, Reply, Request, first_turn
from abreast.run.calls.journal import CallJournal
from abreast.run.calls.outage import CallOutage, Facts
from abreast.run.calls.priced_model import PricedModel, limits_spending
from abreast.run.item_state import ItemState
from abreast.run.slot_lending import Borrowed, borrow, credited, lend, lends, reclaim, wait_granted

MORE_ROOM: Final = 4096
"""Tokens more, beside four times as many, for a call whose thinking used up `max_tokens`."""
_ONE_REQUEST: Final = Usage(requests=1)
_END_TOKENS: Final = 16  # of a reply: those that are no text, such as its end
_NO_TOKENS: Final = TokenEstimate(0, 0)


class _Grant:
    __slots__ = ("borrowed", "credit", "holds", "lent")

    def __init__(self) -> None:
        self.holds: tuple[Hold, ...] = ()
        self.borrowed: Borrowed | None = None  # slots of the item
        self.credit: set[Limit] | None = None  # limits that charged the item for this request
        self.lent = False  # the item's slots are lent while the call waits


class CallAttempts:
    """Makes one call: admits it, attempts it and settles it, as often as retries allow."""

    __slots__ = (
        "_backoff",
        "_began",
        "_budgets",
        "_call_journal",
        "_caller",
        "_clock",
        "_estimate",
        "_gate",
        "_has_more_room",
        "_has_streamed",
        "_heard",
        "_is_capped",
        "_item",
        "_most",
        "_need",
        "_order",
        "_outage",
        "_request",
        "_reserved",
        "_service",
        "_used",
    )

    def __init__(
        self,
        caller: PricedModel,
        request: Request,
        item: ItemState | None,
        call_journal: CallJournal | None,
    ) -> None:
        self._caller = caller
        self._item = item
        self._call_journal = call_journal
        self._clock = caller.clock_for(item)
        self._gate = caller.gate_for(item)
        self._budgets = caller.budgets_for(item)
        self._is_capped = limits_spending(self._budgets)
        self._most = _NO_TOKENS
        self._request = caller.capped(request) if self._is_capped else request
        self._reserve()
        self._order: int | None = None
        self._began = self._clock.now()
        self._backoff = 0.0
        self._service: tuple[float, ...] = ()
        self._used = NO_USAGE  # by failed attempts
        self._outage: CallOutage | None = None
        self._has_more_room = False
        self._has_streamed = False  # text was passed on, so a retry would repeat it
        self._heard = 0  # bytes of text in this attempt

    async def answer(self, hear: OnText | None) -> Reply:
        """Try until there is a reply, or an error that is not retried."""
        listen = None if hear is None else self._track_streaming(hear)
        while True:
            turn = first_turn(self._caller.model, self._request, stream=hear is not None)
            if turn is None:
                reply, pause = await self._try(listen)
            else:
                async with self._lending(turn):
                    reply, pause = await self._try(listen)
            if reply is not None:
                return reply
            if pause is not None:
                await self._back_off(pause)

    def _try(self, listen: OnText | None) -> Awaitable[tuple[Reply | None, float | None]]:
        """Wait for admission and make one attempt; returns as `_attempt` does.

        No coroutine of its own and no ticket, which the search for garbage cycles would visit in
        every call in flight, unless the call has to wait.
        """
        grant = _Grant()
        try:
            ticket = self._ticket(grant)
            if not self._gate.ask(ticket):
                return self._try_waiting(grant, ticket, listen)
            grant.holds, item = ticket.holds, self._item
            if item is not None and item.holds:
                grant.borrowed = borrow(item, self._caller.limits_for(item))
        except BaseException as stopped:
            self._fail_earlier(stopped)
            raise
        return self._attempt(grant, listen)

    async def _try_waiting(
        self, grant: _Grant, ticket: Ticket, listen: OnText | None
    ) -> tuple[Reply | None, float | None]:
        """The same for a call that is not admitted at once; its item may lend slots meanwhile."""
        try:
            await self._wait_admitted(grant, ticket)
        except BaseException as stopped:
            self._fail_earlier(stopped)
            raise
        try:
            reply, pause = await self._attempt(grant, listen)
        except asyncio.CancelledError:
            self._abandon_lent(grant)
            raise
        except BaseException:
            await self._reclaim_lent(grant)
            raise
        await self._reclaim_lent(grant)
        return reply, pause

    def _fail_earlier(self, stopped: BaseException) -> None:
        """Record the failure of a call that is not admitted, if earlier attempts used something."""
        if self._service:
            self._fail(stopped)

    @asynccontextmanager
    async def _lending(self, turn: CallTurn) -> AsyncIterator[None]:
        """Wait for a turn, while the item's slots are lent: the call ahead may need them."""
        item, waiting = self._item, _Grant()
        waiting.lent = turn.waits and item is not None and lend(item)
        async with AsyncExitStack() as entered:
            try:
                await entered.enter_async_context(turn)
            except BaseException as stopped:
                self._abandon_lent(waiting)
                self._fail_earlier(stopped)
                raise
            await self._reclaim_lent(waiting)
            yield

    def _track_streaming(self, hear: OnText) -> OnText:
        def listen(text: str) -> None:
            self._has_streamed = True
            self._heard += bytes_of(text)
            hear(text)

        return listen

    def _reserve(self) -> None:
        """Rates take what is expected of the call, budgets the most that it can take."""
        caller = self._caller
        self._need, self._estimate = caller.reserve(self._request, self._budgets)
        self._reserved = self._need
        if self._is_capped:
            self._reserved, self._most = caller.reserve_most(self._request)

    # --- admission ---

    async def _wait_admitted(self, grant: _Grant, ticket: Ticket) -> None:
        """Wait for the lane and the budgets; meanwhile the item's own slots are lent."""
        item = self._item
        if item is not None and lends(item):
            self._gate.withdraw(ticket)
            self._restore_credit(grant)
            grant.lent = lend(item)
            ticket = self._ticket(grant)
            if self._gate.ask(ticket):
                grant.holds = ticket.holds
                return
        try:
            await wait_granted(self._gate, ticket)
        except BaseException:
            self._abandon_lent(grant)
            raise
        grant.holds = ticket.holds

    def _ticket(self, grant: _Grant) -> Ticket:
        ticket = Ticket(self._needs(grant), order=self._order)
        self._order = ticket.order
        return ticket

    async def _reclaim_lent(self, grant: _Grant) -> None:
        """Take the lent slots back: the item goes on."""
        if grant.lent and self._item is not None:
            await reclaim(self._item)

    def _abandon_lent(self, grant: _Grant) -> None:
        """Leave the lent slots to others: the item ends."""
        if grant.lent and self._item is not None:
            self._item.lenders -= 1

    def _needs(self, grant: _Grant) -> list[tuple[str, Limit, Need]]:
        """What to ask for: all but the slots that the item holds and a request already charged."""
        caller, item, need = self._caller, self._item, self._need
        name = caller.lane.name
        needs: list[tuple[str, Limit, Need]] = [(name, caller.lane.server, need)]
        held = [hold.limit for hold in item.holds] if item is not None else ()
        for limit in (*caller.limits_for(item), *self._budgets):
            if limit in held:
                continue
            missing = self._reserved if limit in self._budgets else need
            if limit.charged and item is not None and credited(item, limit):
                grant.credit = {limit, *(grant.credit or ())}
                missing = Need(missing.weight, 0, missing.tokens, missing.usd, missing.output)
            needs.append((name, limit, missing))
        return needs

    def _restore_credit(self, grant: _Grant) -> None:
        """Give the item back the request it was charged for: it was not made after all."""
        if grant.credit and self._item is not None:
            self._item.credits = (self._item.credits or set()) | grant.credit
            grant.credit = None

    def _settle(self, grant: _Grant, used: Usage) -> None:
        """Give back what was held; budgets and rates keep what was actually used."""
        holds: Sequence[Hold] = grant.holds
        if grant.credit:
            # The item was charged for the first request at these limits already; a call of an
            # agent has one for each turn.
            prepaid = [hold for hold in holds if hold.limit in grant.credit]
            holds = [hold for hold in holds if hold.limit not in grant.credit]
            self._gate.give(prepaid, replace(used, requests=max(0, used.requests - 1)))
        self._gate.give(holds, used)
        if grant.borrowed is not None:
            grant.borrowed.give_back()

    # --- one attempt ---

    async def _attempt(
        self, grant: _Grant, hear: OnText | None
    ) -> tuple[Reply | None, float | None]:
        """Make one attempt: a reply, or the seconds of backoff; None if the lane is held."""
        caller, clock = self._caller, self._clock
        lane, sent = caller.lane, 0.0
        episode, permit = lane.episode, lane.permit_in(grant.holds)
        self._heard = 0
        sent_in = lane.outage.episode
        try:
            if self._call_journal is not None:
                # Where the call is the whole item, only a budget needs to know of it after a kill.
                wait = caller.paid and (self._is_capped or not caller.is_item)
                written = self._call_journal.started(self._reserved, self._request, wait=wait)
                if written is not None:
                    await written
            sent = clock.now()
            reply = await caller.model.complete(self._request, hear)
        except Throttled as error:
            now = clock.now()
            lane.outage.got_through(sent_in, now)
            try:  # before the slot is given back, or the next waiting call would be sent
                changes = (
                    self._throttled(error, episode, now)
                    if permit is None
                    else lane.rejected(permit, error, now)
                )
            finally:
                self._give_back(grant, error, now - sent)
            self._record_changes(changes)
            return None, None
        except QuotaSpent as error:
            self._wait_for_quota(grant, error, sent)
            return None, None
        except CallFailed as error:
            if lane.outage.includes(error) and not self._has_streamed:
                return None, self._wait_out(grant, error, sent_in, sent)
            return None, self._retry(grant, error, sent_in, sent)
        except BaseException as error:
            used = self._guess() if sent and caller.pays_when_left else Usage()
            if isinstance(known := getattr(error, "usage", None), Usage):
                used = caller.priced(known)
            self._settle(grant, used)
            self._service += (clock.now() - sent if sent else 0.0,)
            self._used += used
            self._fail(error)
            raise
        lane.outage.got_through(sent_in, clock.now())
        return self._succeed(grant, reply, permit), None

    def _wait_for_quota(self, grant: _Grant, error: QuotaSpent, sent: float) -> None:
        """Give back what is held, and hold the lane until a limit has ended: it is no attempt.

        Raises `LaneParked` if that is not known, or not to be waited for.
        """
        now, after, lane = self._clock.now(), error.retry_after, self._caller.lane
        if after is not None and lane.tell_wait is not None:
            changes = lane.wait_out(error, after, now)
            self._give_back(grant, error, now - sent)
            self._record_changes(changes)
            return
        parked = lane.park(error, after, now)
        self._give_back(grant, error, now - sent)
        self._record_changes(
            [{"dimension": "quota", "old": None, "new": 0, "cause": "quota", "held": after}]
        )
        if self._service:  # this attempt, or an earlier one, has used something
            if self._call_journal is not None:
                self._call_journal.more[PARKED] = True
            self._fail(parked)
        raise parked from error

    def _give_back(self, grant: _Grant, error: CallFailed, seconds: float) -> None:
        """Give back what a rejected attempt held, but for what it is known to have used.

        A provider's rejection is free; an agent may have worked for an hour before it.
        """
        if error.usage is None:
            self._settle(grant, Usage())
            self._restore_credit(grant)
            self._backoff += seconds
            return
        used = self._caller.priced(error.usage)
        self._settle(grant, used)
        self._service += (seconds,)
        self._used += used

    def _throttled(self, error: Throttled, sent_in: int, now: float) -> list[Facts]:
        """Hold a lane without a governor, for all that share it."""
        lane = self._caller.lane
        changes = lane.throttled(error, sent_in, now)
        share = self._caller.share_for(self._item)
        if share is not None:
            share.hold(lane.server.until - now, now)
        return changes

    def _retry(self, grant: _Grant, error: CallFailed, sent_in: int, sent: float) -> float | None:
        """Settle a failed attempt; returns the seconds of backoff, or raises the error."""
        now = self._clock.now()
        if error.lost_bound:
            self._reserve_unbounded(grant)
            return None
        if not error.unsent:
            self._caller.lane.outage.reached()
        if error.status is not None and error.status < 500:  # noqa: PLR2004 - its server is up
            self._caller.lane.outage.got_through(sent_in, now)
        used = self._used_by(error)
        self._settle(grant, used)
        self._service += (now - sent,)
        self._used += used
        if error.wants_room and not self._has_more_room and self._request.max_tokens:
            self._give_more_room(self._request.max_tokens)
            return None
        delay = self._delay(error) if error.retryable and not self._has_streamed else None
        if delay is None:
            self._fail(error)
            raise error
        return delay

    def _reserve_unbounded(self, grant: _Grant) -> None:
        """Ask for more of the budgets: the model takes no bound, so its reply may be long."""
        self._settle(grant, Usage())
        self._restore_credit(grant)
        self._request = replace(self._request, keeps_bound=False)
        self._reserve()

    def _used_by(self, error: CallFailed) -> Usage:
        """What a failed attempt used: it may have been paid for, as a refusal is."""
        known, status = error.usage, error.status
        if known is not None and not self._is_doubted(known):
            return self._caller.priced(known)
        # A connection that was lost, or a reply that can't be read: errors themselves are free.
        may_cost = status is None or 200 <= status < 300  # noqa: PLR2004 - success
        if self._heard or (may_cost and self._is_capped and not error.unsent):
            return self._guess()
        return self._caller.priced(_ONE_REQUEST)

    def _is_doubted(self, used: Usage) -> bool:
        """Whether a usage is an estimate where a budget needs the most that it can be."""
        return self._is_capped and used.estimate and not self._caller.trusts_estimates

    def _guess(self, text: str | None = None) -> Usage:
        """What an attempt may have used whose usage is unknown; marked as an estimate.

        The output is that of the text, or of what had streamed, unless there may be thinking that
        no text shows. Under a budget all of it is the most that it can be.
        """
        caller, request = self._caller, self._request
        most, output = self._most if self._is_capped else self._estimate
        heard = self._heard if text is None else bytes_of(text)
        if heard and not self._may_reason():
            said = heard + _END_TOKENS if self._is_capped else (heard + 3) // 4
            output = min(output, said) if request.max_tokens else said
        used = Usage(1, most, output, estimate=True)
        if caller.price is None:
            return caller.priced(replace(used, usd=None))
        return replace(used, usd=caller.price.most(most, output))

    def _may_reason(self) -> bool:
        request = self._request
        return (
            request.reasoning not in {None, "none"}
            or request.thinking_tokens is not None
            or self._caller.estimates.has_reasoned
        )

    def _give_more_room(self, max_tokens: int) -> None:
        """Ask again with more tokens, once: thinking used them up before any text."""
        self._has_more_room = True
        self._request = replace(self._request, max_tokens=max_tokens * 4 + MORE_ROOM)
        self._reserve()

    def _succeed(self, grant: _Grant, reply: Reply, permit: CallPermit | None) -> Reply:
        caller = self._caller
        if self._is_capped and (reply.usage is NO_USAGE or self._is_doubted(reply.usage)):
            used = self._guess(reply.text + "".join(call.arguments for call in reply.tool_calls))
        else:
            # A user's own model may report no usage.
            used = caller.priced(_ONE_REQUEST if reply.usage is NO_USAGE else reply.usage)
        if permit is not None and (
            changes := caller.lane.answered(permit, used, reply.headers, self._clock.now())
        ):
            self._record_changes(changes)
        self._settle(grant, used)
        caller.lane.got_through()
        caller.estimates.learn(self._request, reply)
        self._service += (reply.seconds,)
        total = used if self._used is NO_USAGE else self._used + used
        # Constructed directly: dataclasses.replace takes four times as long.
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
            changed=reply.changed,
            kept=reply.kept,
        )
        if self._item is not None:
            self._item.add_usage(total)
        return (
            reply
            if self._call_journal is None
            else self._call_journal.replied(reply, self._request, self._times())
        )

    def _record_changes(self, changes: Sequence[Facts]) -> None:
        item = self._item
        journal = item.context.journal if item is not None else None
        if journal is not None and item is not None:
            for facts in changes:
                journal.emit(LIMIT_CHANGED, item.path, lane=self._caller.lane.name, data=facts)

    def _delay(self, error: CallFailed) -> float | None:
        seed, path = 0, self._caller.name
        if self._item is not None:
            context = self._item.context
            seed = context.seed
            path = (
                path if self._call_journal is None else context.seeded_part(self._call_journal.path)
            )
        return self._caller.retry.delay(error, len(self._service), seed, path)

    def _wait_out(
        self, grant: _Grant, error: CallFailed, sent_in: int, sent: float
    ) -> float | None:
        """Give back what is held; returns the seconds to wait, None if the lane is held."""
        now = self._clock.now()
        self._backoff += now - sent
        self._outage = self._outage or CallOutage()
        try:  # before the slot is given back, or the next waiting call would be sent
            waiting = self._caller.lane.outage.begun(self._outage, error, sent_in, now)
        except AbreastError as ended:
            self._fail(ended)
            raise
        finally:
            self._settle(grant, Usage())
            self._restore_credit(grant)
        self._record_changes(waiting.changes)
        self._order = None  # others try it first: it may be this request that it can't answer
        return waiting.seconds or None

    async def _back_off(self, seconds: float) -> None:
        item, now, pause = self._item, self._clock.now(), _Grant()
        pause.lent = item is not None and lend(item)
        try:
            await sleep_until(self._clock, now + seconds)
        except BaseException as stopped:
            self._abandon_lent(pause)
            self._fail(stopped)
            raise
        self._backoff += self._clock.now() - now
        await self._reclaim_lent(pause)

    def _fail(self, error: BaseException) -> None:
        if self._item is not None:
            self._item.add_usage(self._used)
        if self._call_journal is not None:
            self._call_journal.failed(error, self._used, self._times())

    def _times(self) -> tuple[float, ...]:
        """Seconds waited, seconds of backoff, then the service time of each attempt."""
        wall = self._clock.now() - self._began
        return (max(0.0, wall - self._backoff - sum(self._service)), self._backoff, *self._service)
