"""The plain loop that every map must agree with, and worlds to try it in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import strategies as st

import abreast
from abreast.core.halting import Halting
from abreast.core.outcome import Usage
from tests.laws.world import Refused, World


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
