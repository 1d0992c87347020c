"""Progress and cost of each run, for the list of runs; each look counts only new events."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.events import CALL_SETTLED, ITEM_SETTLED, ITEMS_COMPLETE, Event
from abreast.store.port import RunRow, Store

_KINDS: Final = frozenset({ITEM_SETTLED, CALL_SETTLED, ITEMS_COMPLETE})
_PAGE_EVENTS: Final = 1000  # read at once
_COUNT_SECONDS: Final = 0.25  # of counting for one answer; the next one counts on
_MAX_RUNS: Final = 1000  # whose counts are kept
_MAX_UNSETTLED: Final = 10_000  # failed or cancelled items remembered, in case they are run again


@dataclass(slots=True)
class _Tally:
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    total: int | None = None
    usd: float = 0.0
    unpriced: int = 0
    tokens: int = 0
    after: int = 0
    unsettled: dict[str, str] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        data = event.data
        if event.kind == ITEMS_COMPLETE:
            count = data.get("items")
            self.total = (self.total or 0) + (count if isinstance(count, int) else 0)
        elif event.kind == CALL_SETTLED:
            if data.get("state") == "cancelled":  # it holds a reservation, not a known usage
                return
            usd = data.get("usd")
            self.unpriced += usd is None
            self.usd += usd if isinstance(usd, (int, float)) else 0.0
            for name in ("input_tokens", "output_tokens"):
                count = data.get(name)
                self.tokens += count if isinstance(count, int) else 0
        else:
            self._settle(event.path, str(data.get("state")))

    def _settle(self, path: str, state: str) -> None:
        before = self.unsettled.pop(path, None)
        if before is not None:
            setattr(self, before, getattr(self, before) - 1)
        if state in ("done", "failed", "cancelled"):
            setattr(self, state, getattr(self, state) + 1)
            if state != "done" and len(self.unsettled) < _MAX_UNSETTLED:
                self.unsettled[path] = state


class Tallies:
    """The counts of the runs that were listed."""

    def __init__(self, store: Store) -> None:
        """Count nothing yet."""
        self._store = store
        self._lock = threading.Lock()
        self._tallies: OrderedDict[tuple[str, float], _Tally] = OrderedDict()

    def update(self, rows: Sequence[RunRow]) -> None:
        """Count the new events of these runs, for at most a quarter of a second."""
        until = SYSTEM_CLOCK.now() + _COUNT_SECONDS
        with self._lock:
            for row in rows:
                tally = self._tallies.setdefault((row.id, row.created), _Tally())
                while tally.after < row.last_seq and SYSTEM_CLOCK.now() < until:
                    page = self._store.events(
                        row.id, after=tally.after, limit=_PAGE_EVENTS, kinds=_KINDS
                    )
                    for event in page:
                        tally.add(event)
                    tally.after = (
                        page[-1].seq
                        if len(page) == _PAGE_EVENTS
                        else max(row.last_seq, tally.after)
                    )
            while len(self._tallies) > _MAX_RUNS:
                self._tallies.popitem(last=False)

    def of(self, row: RunRow) -> dict[str, object]:
        """The counts of a run so far; `counted` says whether they are complete."""
        tally = self._tallies.get((row.id, row.created)) or _Tally()
        return {
            "done": tally.done,
            "failed": tally.failed,
            "cancelled": tally.cancelled,
            "total": tally.total,
            "usd": tally.usd,
            "unpriced": tally.unpriced,
            "tokens": tally.tokens,
            "counted": tally.after >= row.last_seq,
        }
