"""Runs the subplans of a plan in parallel, and returns their results in the order of the plan.

A subplan is a leaf. It is an item of one map, so width, retries, timeouts, halts and resume are
those of every map; its work is passed in. With dependencies, a subplan starts when those it needs
are done, the longest chain first; one that needs a failed subplan is blocked, and names it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from typing import Any, Final, Literal, TypeAlias

from abreast.core.item import Item, escape
from abreast.core.outcome import Cancelled, Done, Outcome
from abreast.jobs.plan.errors import PlanInvalid
from abreast.jobs.plan.spec import Plan, PlanNode, round_name
from abreast.jobs.plan.work.assignment import PartRequest
from abreast.run.current import current_item
from abreast.run.outcome_record import restore
from abreast.run.run import Run
from abreast.store.codec import codec
from abreast.store.port import Recorded

MAX_PARALLEL: Final = 5
PLAN_DIVIDED: Final = "plan-divided"
"""The event that records the tree of a plan as its newest driver divided it."""

State: TypeAlias = Literal["done", "failed", "cancelled", "blocked"]
Work: TypeAlias = Callable[[PlanNode], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Subplan:
    """The result of a leaf; `value` is what its work returned."""

    leaf: str
    state: State
    value: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    attempts: int = 1
    round: int = 1
    """Its newest round; it has more than one if other subplans asked for changes of its files."""


@dataclass(frozen=True, slots=True)
class PlanResult:
    """All subplans in the order of the plan, and how many ran at once at most."""

    subplans: tuple[Subplan, ...]
    peak: int

    @property
    def ok(self) -> bool:
        """Whether all are done."""
        return all(one.state == "done" for one in self.subplans)

    @property
    def errors(self) -> tuple[Subplan, ...]:
        """The subplans that failed."""
        return tuple(one for one in self.subplans if one.state == "failed")

    def with_round(self, newer: "PlanResult") -> "PlanResult":
        """The result after another round of some of the subplans."""
        again = {one.leaf: one for one in newer.subplans}
        return PlanResult(
            tuple(again.get(one.leaf, one) for one in self.subplans), max(self.peak, newer.peak)
        )


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How subplans are run."""

    width: int = MAX_PARALLEL
    fail_fast: bool = False
    max_retries: int = 0
    timeout: float | None = None
    hold: str | None = None
    needs: Mapping[str, Sequence[str]] | None = None
    """The leaves that each leaf needs; None if there are no dependencies."""
    lane: str | None = None
    """The lane of what works on them: a subplan waits for it before it starts."""


@dataclass(frozen=True, slots=True)
class PlanRound:
    """A round of a plan.

    The first has all subplans, a later one those that others ask for changes of their files.
    """

    number: int = 1
    requests: Mapping[str, Sequence[PartRequest]] = field(default_factory=dict)

    @property
    def map_name(self) -> str:
        """The name of its map in the run."""
        return round_name(self.number)


FIRST_ROUND: Final = PlanRound()


async def run_plan(
    run: Run,
    plan: Plan,
    work: Work,
    how: PlanOptions,
    around: str = "",
    *,
    done: dict[str, dict[str, Any]] | None = None,
    which: PlanRound = FIRST_ROUND,
) -> PlanResult:
    """Run the leaves of `plan` within `run`; `around` names everything else that work depends on.

    A subplan that is recorded as done is not run again, unless its files, `around` or what others
    ask of it have changed. The value of each is put into `done`, where work finds the values that
    its leaf needs.
    """
    if which.number == 1:
        _record_division(run, plan, how)
    values = {} if done is None else done
    leaves = {
        leaf.id: leaf for leaf in plan.leaves if which.number == 1 or leaf.id in which.requests
    }
    made_of = {
        name: _item_value(leaf, around, which.requests.get(name, ()))
        for name, leaf in leaves.items()
    }
    order = _LeafOrder(leaves, _among(leaves, how.needs or {}))
    found: dict[str, Subplan] = {}

    async def do(value: Mapping[str, Any]) -> dict[str, Any]:
        del value  # only its digest is used, to find out whether a recorded outcome still holds
        item = current_item()
        if item is None:
            raise RuntimeError("a subplan runs inside an item of a map")
        result = values[item.key] = await work(leaves[item.key])
        # Before its place is free, so that a subplan that needs it can take the place.
        order.ended(item.key, ok=True)
        return result

    mapped = run.map(
        do,
        order.ready(made_of),
        width=how.width,
        name=which.map_name,
        order="completion" if how.needs else "item",
        on_error="halt" if how.fail_fast else "collect",
        retry=how.max_retries or None,
        timeout=how.timeout,
        lane=how.lane,
        hold=how.hold,
        on_change="rerun",
    )
    async with mapped:
        async for outcome in mapped:
            found[outcome.key] = _subplan(outcome, which.number)
            if isinstance(outcome, Done):
                values[outcome.key] = outcome.value
            order.ended(outcome.key, ok=isinstance(outcome, Done))
    found |= {one.key: _subplan(one, which.number) for one in mapped.losers}
    missing = {name: value for name, value in made_of.items() if name not in found}
    found |= await _recorded_done(run, missing, values, which)
    return PlanResult(
        tuple(found.get(name) or order.unfinished(name) for name in leaves), mapped.peak
    )


def _among(
    leaves: Mapping[str, PlanNode], needs: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    """Which of these leaves each of them needs, also through others that are not among them."""
    found: dict[str, set[str]] = {}
    if needs and not set(needs) <= set(leaves):
        for name in TopologicalSorter(needs).static_order():
            direct = needs.get(name, ())
            found[name] = {one for one in direct if one in leaves}.union(
                *(found[one] for one in direct if one not in leaves)
            )
        return {name: tuple(sorted(found.get(name, ()))) for name in leaves}
    return {name: tuple(needs.get(name, ())) for name in leaves}


async def _recorded_done(
    run: Run,
    made_of: Mapping[str, Mapping[str, Any]],
    done: Mapping[str, dict[str, Any]],
    which: PlanRound,
) -> dict[str, Subplan]:
    """The subplans among these that are recorded as done.

    A halt leaves them out of the outcomes, although they are done.
    """
    context = run.context
    store, row, writer = context.store, context.row, context.writer
    if store is None or row is None or writer is None:
        return {
            name: Subplan(name, "done", done[name], round=which.number)
            for name in made_of
            if name in done and done[name].get("round", 1) == which.number
        }
    if not made_of:
        return {}
    paths = {f"{run.path}/{which.map_name}/{escape(name)}": name for name in made_of}
    recorded: Mapping[str, Recorded] = await writer.read(
        lambda: store.recorded(row.id, list(paths))
    )
    found: dict[str, Subplan] = {}
    for path, one in recorded.items():
        name, outcome = paths[path], restore(one)
        if isinstance(outcome, Done) and one.data.get("digest") == codec.digest(made_of[name]):
            found[name] = replace(_subplan(outcome, which.number), leaf=name)
    return found


def _record_division(run: Run, plan: Plan, how: PlanOptions) -> None:
    """Record the tree in the journal, since outcomes exist only for leaves that have ended."""
    run.note(
        PLAN_DIVIDED,
        value=[
            {
                "id": node.id,
                "parent": node.parent,
                "scope": node.scope,
                "kind": str(node.kind),
                "reason": str(node.reason),
                "files": len(node.files),
                "tokens": node.tokens,
                "over_budget": node.over_budget,
                "needs": list((how.needs or {}).get(node.id, ())),
            }
            for node in plan.walk()
        ],
    )


def all_needs(plan: Plan, needs: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """All leaves that each leaf needs, directly or through others, in the order of the plan.

    The needs must have no cycle.
    """
    found: dict[str, set[str]] = {}
    for name in TopologicalSorter(needs).static_order():
        direct = needs.get(name, ())
        found[name] = set(direct).union(*(found[one] for one in direct))
    return {
        leaf.id: tuple(one.id for one in plan.leaves if one.id in found.get(leaf.id, ()))
        for leaf in plan.leaves
    }


def _item_value(
    leaf: PlanNode, around: str, requests: Sequence[PartRequest] = ()
) -> dict[str, Any]:
    value: dict[str, Any] = {"files": list(leaf.files), "around": around}
    value |= {"instructions": leaf.instructions} if leaf.instructions else {}
    return value | ({"requests": [asdict(each) for each in requests]} if requests else {})


def _subplan(outcome: Outcome[Any], number: int) -> Subplan:
    attempts = max(1, len(outcome.times) - 3)
    if isinstance(outcome, Done):
        return Subplan(outcome.key, "done", outcome.value, None, attempts, number)
    if isinstance(outcome, Cancelled):
        return Subplan(
            outcome.key, "cancelled", error=outcome.reason, attempts=attempts, round=number
        )
    return Subplan(
        outcome.key,
        "failed",
        error=str(outcome.error) or type(outcome.error).__name__,
        attempts=attempts,
        round=number,
    )


class _LeafOrder:
    """The order of leaves: that of the plan, or by dependency with the longest chain first."""

    def __init__(self, leaves: Mapping[str, PlanNode], needs: Mapping[str, Sequence[str]]) -> None:
        self._leaves = leaves
        self._needs = {name: tuple(needs.get(name, ())) for name in leaves}
        self._failed: dict[str, str] = {}
        self._ended: set[str] = set()
        self._changed = asyncio.Event()
        self._sorter: TopologicalSorter[str] = TopologicalSorter(self._needs)
        try:
            self._sorter.prepare()
        except CycleError as error:
            raise PlanInvalid(
                f"subplans need each other in a circle: {' -> '.join(error.args[1])}"
            ) from None
        self._chain = self._chains()

    def _chains(self) -> dict[str, int]:
        """For each subplan, the tokens of the longest chain that begins with it."""
        chain = dict.fromkeys(self._needs, 0)  # of the longest after it, until it comes itself
        for name in reversed(list(TopologicalSorter(self._needs).static_order())):
            chain[name] += 1 + self._leaves[name].tokens
            for need in self._needs[name]:
                chain[need] = max(chain[need], chain[name])
        return chain

    async def ready(self, made_of: Mapping[str, Any]) -> AsyncIterator[Any]:
        """Yield each leaf as soon as those that it needs are done."""
        place = {name: number for number, name in enumerate(self._leaves)}
        chained = any(self._needs.values())
        waiting: list[tuple[int, int, str]] = []
        while self._sorter.is_active():
            for name in self._sorter.get_ready():
                heappush(waiting, (-self._chain[name] if chained else 0, place[name], name))
            if waiting:
                name = heappop(waiting)[2]
                if self._blocker(name) is None:
                    yield Item(name, made_of[name])
                else:
                    self._sorter.done(name)
            else:
                self._changed.clear()
                await self._changed.wait()

    def ended(self, name: str, *, ok: bool) -> None:
        """Record the end of a leaf: those that need it may start now, or are blocked."""
        if name in self._ended:
            return
        self._ended.add(name)
        if not ok:
            self._failed[name] = name
        self._sorter.done(name)
        self._changed.set()

    def _blocker(self, name: str) -> str | None:
        found = next(
            (self._failed[need] for need in self._needs[name] if need in self._failed), None
        )
        if found is not None:
            self._failed[name] = found
        return found

    def unfinished(self, name: str) -> Subplan:
        """The result of a leaf without an outcome: blocked or cancelled."""
        blocker = self._failed.get(name)
        return (
            Subplan(name, "cancelled", error="stopped")
            if blocker is None
            else Subplan(name, "blocked", error=f"it needs {blocker}, which failed")
        )
