"""Read access to the journal of one run.

A reader neither waits for the run's driver nor holds it up: each call is one read of its own.
"""

import math
from collections.abc import Callable, Collection
from typing import Final

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import RecordedError
from abreast.core.events import Event
from abreast.store.codec import codec
from abreast.store.port import Recorded, RunRow, Store

_PAGE_EVENTS: Final = 2000  # read at once
_CLOCK_INTERVAL: Final = 64  # events between two checks of the time limit


class Follower:
    """Reads the journal of a run into a fold: each time only the events that are new."""

    def __init__(self) -> None:
        self.after = 0

    def read(
        self,
        store: Store,
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
        while self.after < row.last_seq:
            page = store.events(row.id, after=self.after, limit=_PAGE_EVENTS, kinds=kinds)
            for event in page:
                add(event)
                self.after = event.seq
                if event.seq % _CLOCK_INTERVAL == 0 and SYSTEM_CLOCK.now() > until:
                    return True
            news = news or bool(page)
            if len(page) < _PAGE_EVENTS:
                self.after = max(row.last_seq, self.after)
            if SYSTEM_CLOCK.now() > until:
                break
        return news


def shown_state(store: Store, row: RunRow) -> str:
    """The run's state as users see it: `crashed` if it is running without a driver."""
    return "crashed" if row.state == "running" and not store.driven(row.id) else row.state


def value_of(recorded: Recorded | Event) -> object:
    """The value of a done outcome, in JSON's own types; it needs none of the user's code."""
    return codec.decode_plain(recorded.body or "null")


def error_of(recorded: Recorded | Event) -> RecordedError:
    """The error of a failed outcome: its `kind`, `message`, `trace` and `details`."""
    return codec.decode_error(recorded.body) if recorded.body else RecordedError("unknown", "")
