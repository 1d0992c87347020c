"""How far runs have come: items done and failed, batches, and what they cost.

An item that is run again counts once.
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.events import (
    AGENT_STEP,
    ATTEMPT_FAILED,
    BATCH_ENDED,
    BATCH_GATHERED,
    BATCH_SUBMITTED,
    CALL_SETTLED,
    ITEM_READ,
    ITEM_SETTLED,
    ITEM_STARTED,
    ITEMS_COMPLETE,
    LIMIT_CHANGED,
    PARKED,
    Event,
    count_read,
)
from abreast.core.item import unescape
from abreast.core.outcome import NO_USAGE
from abreast.run.outcome_record import usage_of
from abreast.store.port import RunRow, Store
from abreast.store.totals import counts_of, totals_of
from abreast.views.job_view import many, number, short, whole
from abreast.views.lane_rows import CANCELLED, DONE, FAILED
from abreast.views.run_reader import Follower

_KINDS: Final = frozenset({ITEM_SETTLED, CALL_SETTLED, ITEMS_COMPLETE})
_COUNT_SECONDS: Final = 0.25  # of counting for one answer; the next one counts on
_STEP_CHARACTERS: Final = 200  # of an agent's step
_LIVE_CHARACTERS: Final = 40  # of each step in the live line
_MAX_LIVE: Final = 8  # agents in the live line
_MAX_RUNS: Final = 1000  # whose counts are kept
_MAX_UNSETTLED: Final = 65_536  # failed or cancelled items remembered, in case they are run again


class OutcomeCounts:
    """Counts outcomes, each in the place of an earlier one of the same item."""

    def __init__(self) -> None:
        self._unsettled: dict[int, tuple[Counter[str], str]] = {}

    def settle(self, path: str, state: str, counts: Counter[str]) -> None:
        """Count the outcome of an item in `counts`."""
        mark = hash(path)
        if (before := self._unsettled.pop(mark, None)) is not None:
            before[0][before[1]] -= 1
        counts[state] += 1
        if state in (FAILED, CANCELLED) and len(self._unsettled) < _MAX_UNSETTLED:
            self._unsettled[mark] = (counts, state)


class RunProgress:
    """The counts of one run so far, from all its events or from those of some kinds."""

    def __init__(
        self, *, read: int = 0, complete: bool = False, done: int = 0, failed: int = 0
    ) -> None:
        """Start from the counts of earlier drivers."""
        self.read = read
        self.total: int | None = 0 if complete else None
        self.running = self.rejections = 0
        self.ended = Counter({DONE: done, FAILED: failed})
        self.costs = Costs()
        self.batches = BatchCounts()
        self.agents = LastSteps()
        self._outcomes = OutcomeCounts()

    @property
    def over(self) -> int:
        """How many items are done or have failed."""
        return self.ended[DONE] + self.ended[FAILED]

    def add(self, event: Event) -> None:
        """Add the next event."""
        if event.kind == ITEM_READ:
            self.read += count_read(event)
        elif event.kind == ITEMS_COMPLETE:
            self.total = (self.total or 0) + (whole(event.data.get("items")) or 0)
        elif event.kind == ITEM_STARTED:
            self.running += 1
        elif event.kind == AGENT_STEP:
            self.agents.add(event)
        elif event.kind == ATTEMPT_FAILED:
            self.running -= 1
            self.agents.end(event.path)
        elif event.kind in BatchCounts.KINDS:
            self.batches.add(event)
            if event.kind == CALL_SETTLED:
                self.costs.add(event.data)
        elif event.kind == LIMIT_CHANGED:
            self.rejections += event.data.get("cause") == "429"
        elif event.kind == ITEM_SETTLED:
            self.running -= 1
            self.agents.end(event.path)
            self._outcomes.settle(event.path, str(event.data.get("state")), self.ended)


class Tallies:
    """The counts of the runs that are listed.

    Those of most runs are in their rows. The journals of the others are counted, the shortest
    first, so that a long one delays no other run; each look counts only new events.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._tallies: OrderedDict[tuple[str, float], tuple[RunProgress, Follower]] = OrderedDict()

    def update(self, rows: Sequence[RunRow]) -> None:
        """Count the new events of these runs, for at most a quarter of a second."""
        until = SYSTEM_CLOCK.now() + _COUNT_SECONDS
        with self._lock:
            uncounted = [
                (row, *self._tallies.setdefault((row.id, row.created), (RunProgress(), Follower())))
                for row in rows
                if totals_of(row) is None
            ]
            uncounted.sort(key=lambda one: one[0].last_seq - one[2].after)
            for row, tally, reader in uncounted:
                if SYSTEM_CLOCK.now() >= until:
                    break
                reader.read(self._store, row, tally.add, _KINDS, until)
            while len(self._tallies) > _MAX_RUNS:
                self._tallies.popitem(last=False)

    def of(self, row: RunRow) -> dict[str, object]:
        """The counts of a run so far; `counted` says whether they are complete."""
        if (known := counts_of(row)) is not None:
            return {**known, "counted": True}
        tally, reader = self._tallies.get((row.id, row.created), (RunProgress(), Follower()))
        used = tally.costs.total
        return {
            **{state: tally.ended[state] for state in (DONE, FAILED, CANCELLED)},
            "total": tally.total,
            "usd": used["usd"],
            "unpriced": tally.costs.unpriced,
            "tokens": int(used["input"] + used["output"]),
            "counted": reader.after >= row.last_seq,
        }


class BatchCounts:
    """Counts batches by their events, and the savings by the calls that they answered."""

    KINDS: ClassVar = frozenset({BATCH_GATHERED, BATCH_SUBMITTED, BATCH_ENDED, CALL_SETTLED})

    def __init__(self) -> None:
        self._waiting: dict[str, int] = {}  # the calls of each batch that has not ended
        self.submitted = self.done = 0
        self.answered = 0  # calls
        self.saved = 0.0

    def __bool__(self) -> bool:
        return bool(self._waiting or self.done)

    @property
    def waiting(self) -> int:
        """How many batches are gathered and have not ended."""
        return len(self._waiting)

    @property
    def calls_waiting(self) -> int:
        """How many calls are in these."""
        return sum(self._waiting.values())

    def add(self, event: Event) -> None:
        """Add the next event."""
        if event.kind == BATCH_GATHERED:
            self._waiting[event.path] = whole(event.data.get("requests")) or 0
        elif event.kind == BATCH_SUBMITTED:
            self.submitted += 1
        elif event.kind == BATCH_ENDED:
            self.done += self._waiting.pop(event.path, None) is not None
        elif event.kind == CALL_SETTLED and event.data.get("batch"):
            self.answered += 1
            self.saved += number(event.data.get("saved")) or 0.0

    def text(self) -> str:
        """For people: `2 batches wait with 150 calls, 3 done, 0.12 usd saved`; empty if none."""
        if not self:
            return ""
        parts = []
        if self.waiting:
            verb = "waits" if self.waiting == 1 else "wait"
            noun = "batch" if self.waiting == 1 else "batches"
            parts.append(f"{self.waiting} {noun} {verb} with {many(self.calls_waiting, 'call')}")
        if self.done:
            noun = "" if self.waiting else " batch" if self.done == 1 else " batches"
            parts.append(f"{self.done}{noun} done")
        if self.saved:
            parts.append(f"{self.saved:.4g} usd saved")
        return ", ".join(parts)

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "submitted": self.submitted,
            "waiting": self.waiting,
            "calls_waiting": self.calls_waiting,
            "done": self.done,
            "calls_answered": self.answered,
            "saved_usd": self.saved,
        }


class LastSteps:
    """The last step of each agent that runs, by the path of its item."""

    def __init__(self) -> None:
        self._steps: dict[str, str] = {}

    def add(self, event: Event) -> None:
        """Take the step of an agent."""
        text = " ".join(str(event.data.get("text") or "").split())
        self._steps[event.path] = short(text, _STEP_CHARACTERS)

    def end(self, path: str) -> None:
        """Forget the agent of an item that has ended."""
        self._steps.pop(path, None)

    def clear(self) -> None:
        """Forget all: their driver is gone."""
        self._steps.clear()

    def by_path(self) -> dict[str, str]:
        """The last step of each item whose agent runs, by its path."""
        return self._steps.copy()

    def items(self) -> list[tuple[str, str]]:
        """The key and the last step of each item whose agent runs, in the order of their paths."""
        # Copied first: the live line is drawn by another thread than the one that adds events.
        found = sorted(self._steps.copy().items())
        return [(unescape(path.rpartition("/")[2]), step) for path, step in found]

    def text(self) -> str:
        """All of them in one line: `a: ran make | b: wrote x.py`."""
        shown = self.items()[:_MAX_LIVE]
        return " | ".join(f"{key}: {short(step, _LIVE_CHARACTERS)}" for key, step in shown)


class Costs:
    """The sums so far.

    Usage is summed by calls, not by items: that of a nested item is also in the item around it.
    """

    def __init__(self) -> None:
        self.usage = NO_USAGE
        self.models: dict[str, dict[str, float]] = {}
        self.unpriced = 0

    def add(self, data: Mapping[str, Any]) -> dict[str, float]:
        """Add a call that settled, and return what it used.

        Nothing is counted of a cancelled call: it holds a reservation, not a known usage.
        """
        if data.get("state") == "cancelled" and not data.get(PARKED):
            return {}
        self.usage += usage_of(data)
        self.unpriced += data.get("usd", 0) is None
        fields = {
            "requests": "requests",
            "usd": "usd",
            "input": "input_tokens",
            "output": "output_tokens",
        }
        used = {name: float(number(data.get(field)) or 0) for name, field in fields.items()}
        total = self.models.setdefault(str(data.get("model", "")), dict.fromkeys(used, 0.0))
        for name, value in used.items():
            total[name] += value
        return used

    @property
    def total(self) -> dict[str, float]:
        """The sums over all models; `usd` is what is known of it."""
        return {
            name: sum(model[name] for model in self.models.values())
            for name in ("requests", "usd", "input", "output")
        }
