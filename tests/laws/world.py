"""The worlds of `tests.laws.plain`, without Hypothesis, which worker processes would import."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import abreast
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


class Logged:
    """The work of a world, which notes each item that it begins."""

    def __init__(self, world: World, log: str) -> None:
        self._world, self._log = world, log

    async def __call__(self, item: int) -> int:
        _note(self._log, item)
        return await self._world.work(item)


def _note(log: str, item: int) -> None:
    with Path(log).open("a") as file:
        file.write(f"{item}\n")
