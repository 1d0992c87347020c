"""A model whose calls are admitted by its lane, retried, charged to budgets, and recorded: itself a model.

Caller.complete -> recorded already? -> cached? -> admit (hold, slots, rates, budgets) -> one attempt -> settle
                        429: the lane is held, the call goes back to the head of its line; it was no attempt
                        5xx, reset, timeout: the slot is given back, and after a backoff it is tried again
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, Self

from abreast.core.clock import SYSTEM_CLOCK, Clock, sleep_until
from abreast.core.errors import BudgetSpent, CallFailed, PriceUnknown, QuotaSpent, Throttled
from abreast.core.events import LIMIT_CHANGED, Plain
from abreast.core.outcome import NO_USAGE, Usage
from abreast.limits.budget import Budget
from abreast.limits.gate import Gate
from abreast.limits.limit import Limit, Need
from abreast.limits.line import Hold, Ticket
from abreast.models.estimate import Estimate, Estimates
from abreast.models.port import Hear, Json, Message, Model, Reply, Request
from abreast.models.price import Price, priced
from abreast.run.callbook import CallBook, Calls, digest_of, recorded_calls_of, restore
from abreast.run.current import Current, current_item
from abreast.run.lane import Lane
from abreast.run.lending import Borrowed, borrow, credited, lend, lends, reclaim
from abreast.run.retry import Retry

CALL_RETRY: Final = Retry(retries=4, base=0.5, cap=30.0)
"""Further attempts after a 5xx, a lost connection or a timeout. A 429 is none."""

_ONE: Final = Usage(requests=1)
_SEEDS: Final = (1 << 31) - 1  # what every provider takes


class Cache(Protocol):
    """Replies kept by the content of their requests."""

    async def find(self, model: str, request: Request) -> Reply | None:
        """The reply to an equal request, if there was one."""

    async def keep(self, model: str, request: Request, reply: Reply) -> None:
        """Keep a reply."""


class Caller:
    """A model with all that a call needs around it. Made by `abreast.open_model`; safe to share among items.

        async with abreast.open_model("local/smollm2") as model:
            reply = await model.ask("Name a colour.", max_tokens=5)
            print(reply.text, reply.usage)

    Inside an item of a run, a call is recorded under the item's path and is not made again when the run is resumed.
    """

    def __init__(
        self,
        model: Model,
        lane: Lane,
        *,
        price: Price | None = None,
        retry: Retry | None = CALL_RETRY,
        paid: bool = True,
        cache: Cache | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`paid` calls are noted on disk before they are sent, with what is reserved for them."""
        self.model = model
        self.lane = lane
        self.price = price
        self._retry = retry or Retry(0)
        self._paid = paid
        self._cache = cache
        self._clock = clock
        self._gate = Gate(clock)
        self.estimates = Estimates()
        self._recorded_name: str = getattr(model, "recorded_name", None) or model.name
        self._takes_seed: bool = getattr(model, "takes_seed", True)

    def __repr__(self) -> str:
        """Which model, on which lane."""
        return f"<{self.name} on {self.lane!r}>"

    @property
    def name(self) -> str:
        """`provider/model`, as it was asked for."""
        return self.model.name

    @property
    def greedy(self) -> bool:
        """Whether it always says the likeliest unless told otherwise, so that draws would all be alike."""
        return bool(getattr(self.model, "greedy", False))

    async def __aenter__(self) -> Self:
        """Nothing is opened before the first call."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the model's connections."""
        await self.close()

    async def close(self) -> None:
        """Let go of connections and memory; harmless the second time."""
        await self.model.close()

    async def ask(
        self,
        prompt: str,
        *,
        system: str | None = None,
        schema: Mapping[str, Json] | type | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        stop: tuple[str, ...] = (),
        max_tokens: int | None = None,
        hear: Hear | None = None,
    ) -> Reply:
        """Ask one question; the reply, or one of the errors beneath `CallFailed`.

        Args:
            prompt: the user's turn.
            system: what stands before it.
            schema: a JSON schema, or a pydantic model; the reply's `value` then obeys it.
            temperature: how freely to choose; the provider's default if None.
            seed: for providers that take one; by default the item's own, so that a repeated run asks alike.
            stop: texts at which to end.
            max_tokens: the longest reply.
            hear: called with each piece of text as it comes.
        """
        shape = None
        if schema is not None:
            from abreast.models.schema import schema_of

            shape = schema_of(schema)
        request = Request(
            (Message("user", prompt),), system=system, temperature=temperature, seed=seed, stop=stop,
            max_tokens=max_tokens, schema=shape,
        )  # fmt: skip
        return await self.complete(request, hear)

    async def complete(self, request: Request, hear: Hear | None = None) -> Reply:
        """Answer a request, once it is this call's turn; without a seed it gets that of its item."""
        item = current_item()
        book: CallBook | None = None
        if item is not None and item.drive.setting.journal is not None:
            calls = item.calls
            if calls is None:
                resumed = item.drive.setting.resumed
                calls = item.calls = await recorded_calls_of(item) if resumed else Calls({})
            path = calls.path_of(item, digest_of(self._recorded_name, request))
            known = calls.known.get(path)
            if known is not None:
                reply = restore(known, request)
                _add_usage(item, reply.usage)
                return reply
            book = CallBook(item, item.drive.setting.journal, path=path, model=self.name, lane=self.lane.name)
        if self._cache is not None and (found := await self._cache.find(self.name, request)) is not None:
            found = replace(found, usage=Usage(requests=0), seconds=0.0, first_token=None)
            return book.replied(found, request, (0.0, 0.0)) if book is not None else found
        if item is not None and (task := asyncio.current_task()) is not item.task and task is not None:
            return await self._astray(item, task, request, hear, book)
        return await self._asked(item, request, hear, book)

    async def _astray(
        self, item: Current, task: asyncio.Task[Any], request: Request, hear: Hear | None, book: CallBook | None
    ) -> Reply:
        """A call from a task that the item has started itself: it must not outlive the item."""
        strays = item.strays = item.strays or set()
        strays.add(task)
        try:
            return await self._asked(item, request, hear, book)
        finally:
            strays.discard(task)

    async def _asked(self, item: Current | None, request: Request, hear: Hear | None, book: CallBook | None) -> Reply:
        sent = _seeded(request, item) if self._takes_seed else request
        reply = await _Call(self, sent, item, book).answer(hear)
        if self._cache is not None:
            await self._cache.keep(self.name, request, reply)
        return reply

    def clock_for(self, item: Current | None) -> Clock:
        """The run's clock inside an item, else its own."""
        return item.drive.setting.clock if item is not None else self._clock

    def gate_for(self, item: Current | None) -> Gate:
        """The run's gate inside an item, else its own."""
        return item.drive.setting.gate if item is not None else self._gate

    def limits_for(self, item: Current | None) -> tuple[Limit, ...]:
        """The lane's limits: the run's, if it declares a lane of that name."""
        declared = item.drive.run.lanes.declared(self.lane.name) if item is not None else None
        return self.lane.limits if declared is None else declared

    def reserve(self, request: Request, budgets: tuple[Budget, ...]) -> tuple[Need, Estimate]:
        """What to set aside before a call; `PriceUnknown` if a cap on money can't be kept."""
        estimate = self.estimates.of(request)
        usd = 0.0
        if self.price is not None:
            usd = self.price.of(*estimate)
        elif any("usd" in budget.caps for budget in budgets):
            raise PriceUnknown(f"the budget has a cap on money, and the price of {self.name} is not known: give it as "
                               f"price = {{input = ..., output = ...}} under [lanes.{self.lane.name}] in abreast.toml, "
                               "or install 'abreast[prices]'")  # fmt: skip
        return Need(1, 1, estimate.input_tokens + estimate.output_tokens, usd), estimate

    @property
    def retry(self) -> Retry:
        """How failed attempts are tried again."""
        return self._retry

    @property
    def paid(self) -> bool:
        """Whether calls cost money, as far as is known."""
        return self._paid


class _Grant:
    """What one attempt of a call holds."""

    __slots__ = ("borrowed", "credit", "holds", "lent")

    def __init__(self) -> None:
        self.holds: tuple[Hold, ...] = ()
        self.borrowed: Borrowed | None = None  # slots of the item
        self.credit: set[Limit] | None = None  # limits that the item was charged at for this request
        self.lent = False


class _Call:
    """One call on its way: admitted, attempted, settled, perhaps several times."""

    __slots__ = (
        "_backoff", "_began", "_book", "_budgets", "_caller", "_clock", "_estimate", "_gate", "_heard", "_item",
        "_need", "_order", "_request", "_service", "_used",
    )  # fmt: skip

    def __init__(self, caller: Caller, request: Request, item: Current | None, book: CallBook | None) -> None:
        self._caller = caller
        self._request = request
        self._item = item
        self._book = book
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
        granted = self._expect(ticket)
        try:
            await granted
        except BaseException:
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                self._gate.give(ticket.holds, Usage())
            self._gate.withdraw(ticket)
            self._forgo(grant)
            raise
        grant.holds = ticket.holds
        return grant

    def _ticket(self, grant: _Grant) -> Ticket:
        ticket = Ticket(self._needs(grant), _nobody, _nobody)
        if self._order is not None:
            ticket.order = self._order
        self._order = ticket.order
        return ticket

    def _expect(self, ticket: Ticket) -> asyncio.Future[None]:
        """Done when the ticket is granted. Made only now: most calls are admitted at once."""
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def grants() -> None:
            if granted.done():  # cancelled in this very turn of the loop
                self._gate.give(ticket.holds, Usage())
            else:
                granted.set_result(None)

        def fails(error: BudgetSpent) -> None:
            if not granted.done():
                granted.set_exception(error)

        ticket.granted, ticket.failed = grants, fails
        return granted

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
                asked = Need(need.weight, 0, need.tokens, need.usd)
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
            first = [hold for hold in rest if hold.limit in grant.credit]  # its request is paid for already
            rest = [hold for hold in rest if hold.limit not in grant.credit]
            self._gate.give(first, Usage(0, used.input_tokens, used.output_tokens, used.usd, used.estimate))
        self._gate.give(rest, used)
        if grant.borrowed is not None:
            grant.borrowed.give_back()

    # --- one attempt ----------------------------------------------------------------------------------------------

    async def _attempt(self, grant: _Grant, hear: Hear | None) -> tuple[Reply | None, CallFailed | None]:
        """A reply; or an error to back off from; or neither, after a 429."""
        caller, clock = self._caller, self._clock
        episode, sent = caller.lane.episode, 0.0
        try:
            if self._book is not None:
                kept = self._book.started(self._need, wait=caller.paid)
                if kept is not None:
                    await kept
            sent = clock.now()
            reply = await caller.model.complete(self._request, hear)
        except Throttled as error:
            self._settle(grant, Usage())
            self._give_back(grant)
            self._backoff += clock.now() - sent
            self._hold_lane(error, episode)
            return None, None
        except QuotaSpent as error:
            self._settle(grant, Usage())
            raise caller.lane.park(error) from error
        except CallFailed as error:
            used = priced(getattr(error, "usage", _ONE), caller.price)  # a refusal, say, was paid for
            self._settle(grant, used)
            self._service.append(clock.now() - sent)
            self._used += used
            if self._retries(error):
                return None, error
            self._fail(error)
            raise
        except BaseException as error:
            # Nobody will say what it cost: it is taken for what was reserved, if it was sent at all.
            used = priced(Usage(1, *self._estimate, estimate=True), caller.price) if sent else Usage()
            self._settle(grant, used)
            self._service.append(clock.now() - sent if sent else 0.0)
            self._used += used
            self._fail(error)
            raise
        return self._succeed(grant, reply), None

    def _succeed(self, grant: _Grant, reply: Reply) -> Reply:
        caller = self._caller
        used = priced(reply.usage, caller.price)
        self._settle(grant, used)
        caller.lane.got_through()
        caller.estimates.learn(self._request, reply)
        self._service.append(reply.seconds)
        total = used if self._used is NO_USAGE else self._used + used
        # Made anew rather than by dataclasses.replace, which takes four times as long.
        reply = Reply(
            reply.text, reply.value, reply.tool_calls, total, reply.finish, reply.model, reply.id, reply.seconds,
            reply.first_token,
        )  # fmt: skip
        if self._item is not None:
            _add_usage(self._item, total)
        return reply if self._book is None else self._book.replied(reply, self._request, self._times())

    def _hold_lane(self, error: Throttled, episode: int) -> None:
        lane, item = self._caller.lane, self._item
        seconds = lane.throttled(error, episode, self._clock.now())
        journal = item.drive.setting.journal if item is not None else None
        if journal is not None and item is not None and lane.episode != episode:
            facts: dict[str, Plain | list[float]] = {
                "limit": error.limit or "requests",
                "cause": "429",
                "held": seconds,
            }
            journal.emit(LIMIT_CHANGED, item.path, lane=lane.name, data=facts)

    def _retries(self, error: CallFailed) -> bool:
        return error.retryable and not self._heard and self._delay(error) is not None

    def _delay(self, error: CallFailed) -> float | None:
        seed = self._item.drive.run.seed if self._item is not None else 0
        path = self._book.path if self._book is not None else self._caller.name
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
            _add_usage(self._item, self._used)
        if self._book is not None:
            self._book.failed(error, self._used, self._times())

    def _times(self) -> tuple[float, ...]:
        """Waited, backoff, then the service time of each attempt."""
        wall = self._clock.now() - self._began
        return (max(0.0, wall - self._backoff - sum(self._service)), self._backoff, *self._service)


def _nobody(_error: BudgetSpent | None = None) -> None:
    """Nobody waits for this ticket yet."""


def _seeded(request: Request, item: Current | None) -> Request:
    """The request as it is sent. Its name in the journal is that of the question, whatever the run's seed is."""
    if item is None or request.seed is not None:
        return request
    return Request(
        request.messages, request.system, request.temperature, item.seed & _SEEDS, request.stop, request.max_tokens,
        request.schema, request.tools, request.extra,
    )  # fmt: skip


def _add_usage(item: Current, used: Usage) -> None:
    """Count what a call used for its item, and for those it is beneath."""
    above: Any = item
    while above is not None:
        above.usage = used if above.usage is None else above.usage + used
        above = above.drive.parent
