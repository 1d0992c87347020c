"""The shares that a run has of lanes which other processes use too, kept in its store."""

import asyncio

from abreast.core.clock import Clock
from abreast.limits.shared.exchanger import LaneExchanger, Ledgers
from abreast.limits.shared.ledger import Terms
from abreast.limits.shared.share import LaneShare


class SharedLanes:
    """A run's shares of lanes, by name; `close` gives them back."""

    __slots__ = ("_clock", "_exchangers", "_ledgers")

    def __init__(self, ledgers: Ledgers, clock: Clock) -> None:
        """The ledgers are in the run's store."""
        self._ledgers = ledgers
        self._clock = clock
        self._exchangers: dict[str, LaneExchanger] = {}

    def share(self, name: str, terms: Terms) -> LaneShare:
        """The run's share of a lane."""
        found = self._exchangers.get(name)
        if found is None:
            found = LaneExchanger(LaneShare(name, terms), self._ledgers, self._clock)
            self._exchangers[name] = found
        return found.share

    async def close(self) -> None:
        """Give back what is held of all lanes."""
        for exchanger in self._exchangers.values():
            await asyncio.to_thread(exchanger.close)
