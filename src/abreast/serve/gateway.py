"""The gateway: each request is an item of one map, from its place in line to its answer.

submit -> FairQueue -> run.map -> route -> lane and budgets (`run/calls`) -> answer -> journal
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

from abreast.core.errors import AbreastError, BudgetSpent, Halted, LaneParked, NotRecorded
from abreast.core.outcome import Cancelled, Done, Outcome
from abreast.models.http.client import HttpAnswer
from abreast.run.calls.model import Caller
from abreast.run.current import current
from abreast.run.map.outcomes import Map
from abreast.run.run import Run
from abreast.serve.answer_cache import AnswerCache
from abreast.serve.answers.answer import answer
from abreast.serve.answers.call import ServedCall
from abreast.serve.clients import FairQueue, client_lane
from abreast.serve.costs import ServedTotals
from abreast.serve.dialects.dialect import Unsupported, encode
from abreast.serve.faults import ApiFault, fault_of
from abreast.serve.recording import (
    CALLS,
    AnswerFailed,
    CallFacts,
    Recording,
    answer_facts,
    digest_of,
    facts_of_error,
    send_recorded,
)
from abreast.serve.routes import Route, Routes

WIDTH: Final = 1024
"""Calls under way at once, those that wait at a lane included."""
COMMIT_GATHER: Final = 0.05
"""Seconds for which records of calls wait for others to be committed with, as no client waits for
them. What a call itself waits for, its reservation under a budget, is committed at once."""
PARKED_SECONDS: Final = 60.0
"""After so long a parked lane is tried again, if its provider did not say when."""
MAX_CLIENTS: Final = 200  # with a lane of their own; further ones share one
OTHERS: Final = "others"
GONE: Final = "the client went away"


class Gateway:
    """Answers requests through a run's lanes and budgets, and records them in it."""

    def __init__(
        self,
        run: Run,
        routes: Routes,
        *,
        cache: AnswerCache | None = None,
        recording: Recording | None = None,
        ahead: int | None = None,
    ) -> None:
        """With a `recording`, all answers come from it, and nothing is recorded.

        The `cache` is for routes that are cached.
        """
        self._run = run
        self._routes = routes
        self._cache = cache
        self._recording = recording
        self._queue = FairQueue() if ahead is None else FairQueue(ahead)
        self._open: dict[str, ServedCall] = {}
        self._counts: dict[str, int] = {}
        self._clients: set[str] = set()
        self._map: Map[str, dict[str, object]] | None = None
        self._stopped: BaseException | None = None
        self.calls = 0
        self.totals = ServedTotals()

    @property
    def models(self) -> list[str]:
        """The models that are known by name."""
        return self._routes.names

    @property
    def waiting(self) -> int:
        """How many requests wait before their lane."""
        return self._queue.waiting

    # --- the connections' side

    async def count_tokens(self, call: ServedCall) -> HttpAnswer | None:
        """The provider's count of a request's tokens; None if the model has no such API."""
        if self._recording is not None:
            return None
        try:
            route = self._routes.find(call.dialect, call.model)
            if route.relay is None:
                return None
            changes = {} if call.model == route.model else {"model": route.model}
            body = encode({**call.body, **changes}).encode("utf-8", "surrogatepass")
            exchange = await route.relay.send_raw(
                body, call.headers, stream=False, beneath="count_tokens"
            )
            try:
                counted = await exchange.answer()
            finally:
                exchange.close()
        except AbreastError:
            return None
        return counted if counted.status == HTTPStatus.OK else None

    def submit(self, call: ServedCall) -> None:
        """Put a request in line; its answer comes to its outlet, whatever happens."""
        self.calls += 1
        if self._stopped is not None:
            call.refuse(fault_of(self._stopped))
        elif self._recording is not None:
            self._replay(call, self._recording)
        else:
            self._find_route(call)
            self._enqueue(call)

    @staticmethod
    def _replay(call: ServedCall, recording: Recording) -> None:
        try:
            send_recorded(recording.answer(call.dialect.name, call.body), call.outlet)
        except NotRecorded as error:
            call.refuse(ApiFault(400, "invalid", str(error)))

    def _find_route(self, call: ServedCall) -> None:
        try:
            call.route = self._routes.find(call.dialect, call.model)
            if call.route.relay is None:
                call.dialect.read(call.body)  # what can't be asked is refused at once
        except Unsupported as error:
            call.fault = ApiFault(400, "invalid", str(error), error.parameter)
        except AbreastError as error:
            call.fault = fault_of(error)

    def _enqueue(self, call: ServedCall) -> None:
        digest = digest_of(call.dialect.name, call.body)
        number = self._counts.get(digest, 0)
        self._counts[digest] = number + 1
        call.key = f"{digest}-{number}"
        self._open[call.key] = call
        self._declare(call)
        if call.max_wait is not None:
            call.deadline = self._run.context.clock.now() + call.max_wait
            self._watch_deadline(call)
        if call.over:
            self._forget(call)
            return
        self._queue.add(call.lane, call.client, call.key)

    def _declare(self, call: ServedCall) -> None:
        """Give a client a lane of its own, in which its calls are drawn and counted."""
        if call.client not in self._clients and len(self._clients) >= MAX_CLIENTS:
            call.client = OTHERS
        if call.client not in self._clients:
            self._clients.add(call.client)
            self._run.declare(client_lane(call.client), ())

    def leave(self, call: ServedCall) -> None:
        """The client has gone: give its place to another, and close the call at the provider."""
        if not call.over:
            self._cancel(call, GONE)

    def _watch_deadline(self, call: ServedCall) -> None:
        """Give a call up at its deadline; at once if its lane is closed for longer than that."""
        if call.deadline is None or call.working or call.over:
            return
        clock = self._run.context.clock
        closed = 0.0 if call.route is None else call.route.caller.lane.closed_until - clock.now()
        if call.timer is not None:
            call.timer.cancel()
        if closed > max(0.0, call.deadline - clock.now()):
            self._give_up(call, closed)
        else:
            call.timer = clock.call_at(call.deadline, lambda: self._give_up(call))

    def _give_up(self, call: ServedCall, closed: float | None = None) -> None:
        """The client does not wait as long as the lane needs: an honest 429."""
        if call.over or call.working:
            return
        waited = call.max_wait or 0.0
        why = (
            f"had no room within {waited:g} s, the longest wait that was allowed; "
            f"{self._queue.waiting} requests wait"
            if closed is None
            else f"takes no requests for {closed:.1f} s, and the longest wait that was allowed is "
            f"{waited:g} s"
        )
        message = f"the lane {call.lane} {why}"
        call.refuse(ApiFault(429, "wait", message, retry_after=closed or waited))
        self._cancel(call, f"no room within {waited:g} s")

    def _cancel(self, call: ServedCall, reason: str) -> None:
        call.over = True
        if self._queue.remove(call.lane, call.client, call.key):
            self._forget(call)
        elif call.number is not None and self._map is not None:
            self._map.cancel(call.number, reason)

    def _forget(self, call: ServedCall) -> None:
        if call.timer is not None:
            call.timer.cancel()
        self._open.pop(call.key, None)

    def _passed(self, call: ServedCall) -> None:
        """The lane has admitted a call, or it ended before: another may wait there."""
        if not call.sent:
            call.sent = True
            self._queue.passed(call.lane)
            if call.timer is not None:
                call.timer.cancel()

    # --- where a call is

    def entered(self, call: ServedCall) -> None:
        """The lane has admitted a call."""
        call.working = True
        self._passed(call)

    def refused(self, call: ServedCall) -> None:
        """The provider has turned a call away: all that wait for its lane may have to give up."""
        call.working = False
        self._run.context.loop.call_soon(self._watch_lane, call.lane)  # once the lane is held

    def parked(self, caller: Caller) -> float:
        """Have a parked lane tried again by itself; returns the seconds until then."""
        server, now = caller.lane.server, self._run.context.clock.now()
        if server.parked is not None and server.reopens_at is None:
            server.park(server.parked, now + PARKED_SECONDS)
        return max(0.0, (server.reopens_at or now) - now)

    def _watch_lane(self, lane: str) -> None:
        for call in [one for one in self._open.values() if one.deadline is not None]:
            if call.lane == lane:
                self._watch_deadline(call)

    # --- the run's side

    def close(self) -> None:
        """Take no more requests; `serve` returns when those under way have ended."""
        self._stopped = self._stopped or Halted("abreast serve is being stopped")
        for call in list(self._open.values()):
            if self._queue.remove(call.lane, call.client, call.key):
                call.refuse(fault_of(self._stopped))
                call.over = True
                self._forget(call)
        self._queue.close()

    async def serve(self) -> None:
        """Answer requests until `close` is called, or the run is stopped.

        A spent budget does not end it: requests are answered with that error from then on.
        """
        context = self._run.context
        if context.writer is not None:
            context.writer.gather = COMMIT_GATHER
        try:
            async with self._run.map(
                self._handle, self._queue, name=CALLS, width=WIDTH, order="completion"
            ) as outcomes:
                self._map = outcomes
                async for outcome in outcomes:
                    self._settle(outcome)
        except BudgetSpent as error:
            self._stop(error)
            await self._queue.closed()
        except BaseException as error:
            self._stop(error)
            raise

    def _stop(self, error: BaseException) -> None:
        self._stopped = error
        for call in list(self._open.values()):
            call.refuse(fault_of(error))
            self._forget(call)

    def _settle(self, outcome: Outcome[dict[str, object]]) -> None:
        """Answer with what an earlier driver of the run recorded."""
        call = self._open.pop(outcome.key, None)
        if call is None:
            return
        self._passed(call)
        if call.outlet.ended or call.over:
            return
        facts: Mapping[str, Any] | None = None
        if isinstance(outcome, Done):
            facts = outcome.value
        elif not isinstance(outcome, Cancelled):
            facts = facts_of_error(outcome.error)
        if facts is not None:
            send_recorded(facts, call.outlet)
        else:
            call.refuse(fault_of(outcome.error or AbreastError("there is no answer")))

    async def _handle(self, key: str) -> dict[str, object]:
        """One item: answer a request, and return what is recorded of it."""
        call, item = self._open[key], current()
        call.number = item.index
        failed = False
        try:
            if call.over:  # its client has gone meanwhile
                if self._map is not None:
                    self._map.cancel(item.index, GONE)
                await asyncio.sleep(0)
                return {}
            return await self._record(call)
        except AnswerFailed:
            failed = True
            raise
        finally:
            self.totals.add(item.usage, failed=failed)
            call.over = True
            self._passed(call)
            self._forget(call)

    async def _record(self, call: ServedCall) -> dict[str, object]:
        name = call.model if call.route is None else call.route.name
        asked = CallFacts(call.dialect.name, name, call.client, call.tag, call.body, call.raw)
        facts = asked.plain()
        relay = None if call.route is None else call.route.relay
        clean = None if relay is None else relay.clean
        if call.fault is not None or call.route is None:
            fault = call.fault or ApiFault(500, "server", "there is no model")
            call.refuse(fault)
            raise AnswerFailed(fault.message, facts | answer_facts(call.outlet))
        try:
            if self._cache is None or not call.route.cached:
                await answer(call, call.route, self)
            else:
                await self._answer_from_cache(self._cache, call, call.route)
        except asyncio.CancelledError:
            if not call.over:  # not by its client: the run ends
                call.refuse(ApiFault(503, "overloaded", "abreast serve was stopped"))
            raise
        except Exception as error:
            fault = fault_of(error)
            if isinstance(error, LaneParked):
                fault = replace(fault, retry_after=self.parked(call.route.callers[-1]))
            call.refuse(fault)
            raise AnswerFailed(fault.message, facts | answer_facts(call.outlet, clean)) from error
        return facts | answer_facts(call.outlet, clean)

    async def _answer_from_cache(self, cache: AnswerCache, call: ServedCall, route: Route) -> None:
        kept = cache.find(call.key, route)
        if kept is not None:
            send_recorded(kept, call.outlet)
            return
        await answer(call, route, self)
        clean = None if route.relay is None else route.relay.clean
        await cache.keep(call.key, route, answer_facts(call.outlet, clean))
