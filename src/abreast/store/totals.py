"""The counts of a run, kept in its own row: a list of runs reads no journal for them.

They are in the row's `spent`, beside the budget's amounts: every commit writes that anyway, so the
counts are those of the events up to `counted`, also if the driver is killed. A row whose newest
event is another one (a driver of an older version wrote on) has no counts, and is counted by its
journal.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from abreast.core.events import CALL_SETTLED, ITEM_SETTLED, ITEMS_COMPLETE, PARKED, Event
from abreast.store.port import RunRow

_STATES: Final = ("done", "failed", "cancelled")
_COUNTED: Final = "counted"  # the number of the newest event that is in the counts
_ITEMS: Final = "items."
_CALLS: Final = "calls."
_MAX_REPLACED: Final = 262_144  # outcomes remembered, in case their items are run again


class RunTotals:
    """Counts the outcomes of a run and what its calls used, as its driver commits them."""

    def __init__(self, row: RunRow) -> None:
        """Start with the counts of the row; without any, nothing is counted for the row."""
        known = totals_of(row)
        self._sums: dict[str, float] | None = (
            dict(known) if known is not None else None if row.last_seq else {}
        )
        self._replaced: dict[int, str] = {}

    def replace(self, path: str, state: str) -> None:
        """An item whose recorded outcome is in `state` is run again: its next outcome replaces it.

        Call it before the item is run.
        """
        if len(self._replaced) >= _MAX_REPLACED:
            self._sums = None
        else:
            self._replaced[hash(path)] = state

    def facts(self, events: Sequence[Event]) -> Mapping[str, float]:
        """Count the events of the next commit; return what the row is to say, if it is known."""
        sums = self._sums
        if sums is None:
            return {}
        for event in events:
            if event.kind == ITEM_SETTLED:
                self._settle(sums, event)
            elif event.kind == CALL_SETTLED:
                _add_call(sums, event.data)
            elif event.kind == ITEMS_COMPLETE:
                _add(sums, f"{_ITEMS}total", event.data.get("items"))
        if events:
            sums[_COUNTED] = events[-1].seq
        return sums.copy()

    def _settle(self, sums: dict[str, float], event: Event) -> None:
        state = str(event.data.get("state"))
        if self._replaced:
            before = self._replaced.pop(hash(event.path), None)
            if before is not None:
                _add(sums, f"{_ITEMS}{before}", -1)
        _add(sums, f"{_ITEMS}{state}", 1)
        if state != "done":
            self.replace(event.path, state)


def _add_call(sums: dict[str, float], data: Mapping[str, object]) -> None:
    """Add what a call used; nothing is known of one that was cancelled."""
    if data.get("state") == "cancelled" and not data.get(PARKED):
        return
    _add(sums, f"{_CALLS}usd", data.get("usd"))
    _add(sums, f"{_CALLS}unpriced", data.get("usd", 0) is None)
    for name in ("input_tokens", "output_tokens"):
        _add(sums, f"{_CALLS}tokens", data.get(name))


def _add(sums: dict[str, float], name: str, amount: object) -> None:
    if amount and isinstance(amount, (int, float)):
        sums[name] = sums.get(name, 0) + amount


def totals_of(row: RunRow) -> Mapping[str, float] | None:
    """The counts that the row has, as they are stored; None if they are not up to its last event.

    A run without an event has none yet, which is known as well.
    """
    if not row.last_seq:
        return {}
    if row.spent.get(_COUNTED) != row.last_seq:
        return None
    return {
        name: amount
        for name, amount in row.spent.items()
        if name == _COUNTED or name.startswith((_ITEMS, _CALLS))
    }


def counts_of(row: RunRow) -> dict[str, float | None] | None:
    """The counts of the row by plain names: `done`, `failed`, `cancelled`, `total`, `usd`...

    `total` is None if it is not known how many items there are; the answer is None if the journal
    has to be counted.
    """
    found = totals_of(row)
    if found is None:
        return None
    return {
        **{state: found.get(f"{_ITEMS}{state}", 0) for state in _STATES},
        "total": found.get(f"{_ITEMS}total"),
        **{name: found.get(f"{_CALLS}{name}", 0) for name in ("usd", "unpriced", "tokens")},
    }


def without_totals(spent: Mapping[str, float]) -> dict[str, float]:
    """What the budget has spent, alone: the counts of a run that lost events are not its own."""
    return {
        name: amount
        for name, amount in spent.items()
        if name != _COUNTED and not name.startswith((_ITEMS, _CALLS))
    }
