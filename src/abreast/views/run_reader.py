"""Read access to the journal of one run.

A reader neither waits for the run's driver nor holds it up: each call is one read of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import RecordedError
from abreast.core.events import Event
from abreast.store.codec import codec
from abreast.store.port import ControlRequest, Recorded, RunRow, Store

_PAGE_EVENTS: Final = 2000  # read at once
_CLOCK_INTERVAL: Final = 64  # events between two checks of the time limit


class Follower:
    """Reads the journal of a run into a fold: each time only the events that are new."""

    def __init__(self, store: Store) -> None:
        """Read nothing yet."""
        self.after = 0
        self._store = store

    def read(
        self,
        row: RunRow,
        add: Callable[[Event], None],
        kinds: Collection[str],
        until: float = math.inf,
    ) -> bool:
        """Add the new events of these kinds, until a time of the system clock at most.

        Returns whether there were any. `row` is read before the events: those that are written in
        between are left for the next time.
        """
        news = False
        while self.after < row.last_seq and SYSTEM_CLOCK.now() < until:
            page = self._store.events(row.id, after=self.after, limit=_PAGE_EVENTS, kinds=kinds)
            for event in page:
                add(event)
                self.after = event.seq
                if event.seq % _CLOCK_INTERVAL == 0 and SYSTEM_CLOCK.now() > until:
                    return True
            news = news or bool(page)
            if len(page) < _PAGE_EVENTS:
                self.after = max(row.last_seq, self.after)
        return news


@dataclass(frozen=True, slots=True)
class RunReader:
    """The journal of one run: its events, its outcomes, and the requests to its driver."""

    store: Store
    run_id: str

    def run(self) -> RunRow:
        """The run as it is now; raises `NoSuchRun` if it was removed."""
        return self.store.get(self.run_id)

    def state(self, row: RunRow) -> str:
        """The run's state as users see it: `crashed` if it is running without a driver."""
        return "crashed" if row.state == "running" and not self.store.driven(row.id) else row.state

    def events(
        self,
        kinds: Collection[str] = (),
        *,
        prefix: str = "",
        after: int = 0,
        most: int = 1_000_000,
        page: int = 2000,
    ) -> Iterator[Event]:
        """Events in order, of some kinds or all, beneath `prefix`; at most `most`."""
        while most > 0 and (
            batch := self.store.events(
                self.run_id, after=after, limit=min(page, most), kinds=kinds, prefix=prefix
            )
        ):
            yield from batch
            after = batch[-1].seq
            most -= len(batch)

    def outcomes(
        self, *, prefix: str = "", most: int = 1_000_000, page: int = 1000
    ) -> Iterator[Recorded]:
        """The newest outcome of each path beneath `prefix`, in the order of writing."""
        after = 0
        while most > 0 and (
            batch := self.store.outcomes(
                self.run_id, prefix=prefix, after=after, limit=min(page, most)
            )
        ):
            yield from batch
            after = batch[-1].seq
            most -= len(batch)

    def recorded(self, paths: Collection[str]) -> dict[str, Recorded]:
        """The outcomes recorded under exactly these paths."""
        return self.store.recorded(self.run_id, paths)

    def asked(self) -> list[ControlRequest]:
        """The requests to the run's driver that it has not carried out yet."""
        return self.store.asked(self.run_id)


def value_of(recorded: Recorded | Event) -> object:
    """The value of a done outcome, in JSON's own types; it needs none of the user's code."""
    return codec.decode_plain(recorded.body or "null")


def error_of(recorded: Recorded | Event) -> RecordedError:
    """The error of a failed outcome: its `kind`, `message`, `trace` and `details`."""
    return codec.decode_error(recorded.body) if recorded.body else RecordedError("unknown", "")
