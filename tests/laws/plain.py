"""The plain loop that every map must agree with, and worlds to try it in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

import abreast
from abreast.core.halting import Halting
from abreast.core.outcome import NO_USAGE, Usage


class Refused(Exception):
    """What a failing item raises."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Refused) and self.args == other.args

    def __hash__(self) -> int:
        return hash(self.args)


@dataclass(frozen=True)
class World:
    """Items with their failures and durations in turns of the loop, and how to run them."""

    turns: tuple[int, ...]
    fails: frozenset[int]
    width: int
    extra_span: int
    until: int | None
    on_error: str
    slots: tuple[int, int] | None
    lanes: tuple[bool, ...] = field(default=())
    retries: int = 0

    @property
    def items(self) -> range:
        return range(len(self.turns))

    def reply(self, item: int) -> int:
        """What the item's work returns or raises, whatever the time."""
        if item in self.fails:
            raise Refused(item)
        return item * 10

    def used(self, item: int) -> Usage:
        """What the item uses, over all its attempts."""
        attempts = 1 + self.retries if item in self.fails else 1
        return sum((self._attempt(item) for _ in range(attempts)), NO_USAGE)

    def _attempt(self, item: int) -> Usage:
        return Usage(1, item + 1, self.turns[item], 0.1 * (item + 1))

    async def work(self, item: int) -> int:
        for _ in range(self.turns[item]):
            await asyncio.sleep(0)
        abreast.current().add_usage(self._attempt(item))
        return self.reply(item)

    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {
            "width": self.width,
            "span": self.width + self.extra_span,
            "until": self.until,
            "on_error": self.on_error,
        }
        if self.slots is not None:
            options["lane"] = lambda item: "a" if self.lanes[item % len(self.lanes)] else "b"
        if self.retries:
            options["retry"] = abreast.Retry(self.retries, base=0.0, cap=0.0)
        return options

    def lane_limits(self) -> dict[str, abreast.Slots] | None:
        return (
            None
            if self.slots is None
            else {"a": abreast.Slots(self.slots[0]), "b": abreast.Slots(self.slots[1])}
        )


@st.composite
def worlds(draw: st.DrawFn, most: int = 14) -> World:
    count = draw(st.integers(0, most))
    return World(
        turns=tuple(draw(st.lists(st.integers(0, 6), min_size=count, max_size=count))),
        fails=frozenset(draw(st.sets(st.integers(0, max(0, count - 1)), max_size=4))),
        width=draw(st.integers(1, 6)),
        extra_span=draw(st.integers(0, 8)),
        until=draw(st.none() | st.integers(1, 5)),
        on_error=draw(st.sampled_from(["collect", "halt", "raise"])),
        slots=draw(st.none() | st.tuples(st.integers(1, 3), st.integers(1, 3))),
        lanes=tuple(draw(st.lists(st.booleans(), min_size=1, max_size=4))),
        retries=draw(st.integers(0, 2)),
    )


def told(outcome: Any) -> tuple[Any, ...]:
    """What an outcome says, without its timing."""
    what = outcome.value if outcome.ok else getattr(outcome, "error", None)
    return (outcome.index, outcome.key, outcome.state, what, outcome.usage)


def plain_loop(
    items: Iterable[Any],
    reply: Callable[[Any], Any],
    used: Callable[[Any], Usage],
    until: Any,
    on_error: str,
) -> tuple[list[Any], Any]:
    """The outcomes of a plain `for` loop, and the error it ended with."""
    rule: Halting[Any] = Halting(until, on_error)  # type: ignore[arg-type]
    outcomes: list[Any] = []
    for index, item in enumerate(items):
        key = f"{index:04d}"
        try:
            outcome: Any = abreast.Done(index, key, reply(item), usage=used(item))
        except Exception as error:
            outcome = abreast.Failed(index, key, error, usage=used(item))
        if on_error == "raise" and not outcome.ok:
            return outcomes, outcome.error
        outcomes.append(told(outcome))
        if rule.stops_at(outcome):
            break
    return outcomes, None


async def side_by_side(world: World, **opening: Any) -> tuple[list[Any], Any, Any]:
    """The outcomes of a map, the error it ended with, and the map."""
    outcomes: list[Any] = []
    error = None
    async with abreast.open_run("law", lanes=world.lane_limits(), **opening) as run:
        mapped = run.map(world.work, world.items, **world.options())
        try:
            async for outcome in mapped:
                outcomes.append(told(outcome))
        except Refused as raised:
            error = raised
    return outcomes, error, mapped
