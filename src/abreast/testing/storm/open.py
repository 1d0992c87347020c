"""`open_storm`: runs a storm in the test's own event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Unpack

from abreast.core.clock import SYSTEM_CLOCK
from abreast.testing.storm.dialects.replies import Script
from abreast.testing.storm.log import (
    BilledTokens,
    LogEntry,
    Stats,
    billed_of,
    refusals_of,
)
from abreast.testing.storm.settings import Settings, StormSettings, make_settings
from abreast.testing.storm.world import World

if TYPE_CHECKING:
    from abreast.testing.storm.server import StormServer


class Storm:
    """A storm that is listening: its address, its log, and a way to change its limits."""

    def __init__(self, server: StormServer) -> None:
        self._server = server
        self.world = server.world
        self.url = f"http://127.0.0.1:{server.port}"

    def __repr__(self) -> str:
        return f"<Storm {self.url} {self.world!r}>"

    @property
    def settings(self) -> Settings:
        """The current settings."""
        return self.world.settings

    @property
    def log(self) -> list[LogEntry]:
        """One entry for each request, in the order of arrival."""
        return self.world.ledger.entries

    def stats(self) -> Stats:
        """The counts up to now."""
        return self._server.stats()

    def refusals(self) -> Counter[tuple[str, str, str]]:
        """How often each (lane, model, parameter) was refused by the strict profile."""
        return refusals_of(self.log)

    def billed(self) -> dict[str, BilledTokens]:
        """The tokens that are billed to each model."""
        return billed_of(self.log)

    def batches(self) -> list[Mapping[str, Any]]:
        """A row for each request of each batch: `outcome`, `billed`, `custom_id`, `key`, ..."""
        routes = self._server.batches
        routes.batches.advance(SYSTEM_CLOCK.now())
        return routes.batches.log()

    def end_batches(self) -> None:
        """Have all batches end now that are still waiting."""
        self._server.batches.batches.end(SYSTEM_CLOCK.now())

    def change(self, **changes: Unpack[StormSettings]) -> None:
        """Change limits, speed or faults from now on: `storm.change(rpm=150)`.

        Raises ValueError for invalid values.
        """
        self.world.change(SYSTEM_CLOCK.now(), **changes)

    async def until(self, holds: Callable[[Stats], bool], timeout: float = 10.0) -> None:
        """Wait until the counts satisfy `holds`: `storm.until(lambda s: s.in_flight == 3)`.

        Raises TimeoutError after `timeout` seconds.
        """
        async with asyncio.timeout(timeout):
            await self._server.until(holds)


@asynccontextmanager
async def open_storm(
    *,
    script: Script | None = None,
    seed: int = 0,
    port: int = 0,
    **settings: Unpack[StormSettings],
) -> AsyncIterator[Storm]:
    """A provider of models on this machine, in this event loop, until the end of the block.

        async with open_storm(rpm=600, concurrency=8, faults={"500": 0.01}) as storm:
            ...                                    # calls to storm.url + "/v1/chat/completions"
            assert storm.stats().disconnects == 0

    Args:
        script: its replies: a mapping from prompt to text, or a function; by default made-up words.
        seed: decides on what is drawn: sizes, noise, faults.
        port: where it listens; 0 for any free one.
        **settings: limits, speed, headers and faults: the fields of `Settings`.

    Raises ValueError for an invalid setting.
    """
    checked = make_settings(settings)
    from abreast.testing.storm.server import StormServer

    world = World(checked, seed, start=SYSTEM_CLOCK.now(), wall=SYSTEM_CLOCK.wall())
    server = StormServer(world, script)
    try:
        await server.open(port)
        yield Storm(server)
    finally:
        await server.close()
