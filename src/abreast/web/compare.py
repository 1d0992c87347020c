"""Two runs side by side: their facts, how they were started, and their items by key."""

import json
import threading
from collections import OrderedDict
from typing import ClassVar, Final, NamedTuple

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.events import ITEM_SETTLED, Event
from abreast.store.port import RunRow, Store
from abreast.views.job_view import listed, number
from abreast.views.run_reader import Follower
from abreast.web.replies import lines_of

_MAX_ITEMS: Final = 200_000  # of one run that are compared
_MAX_KEPT: Final = 4  # runs whose outcomes are kept
_PAGE: Final = 50
_VALUE_CHARACTERS: Final = 400  # of a fact of the manifest
_READ_SECONDS: Final = 0.25


class _Outcome(NamedTuple):
    path: str
    state: str
    mark: int  # equal for equal values
    took: float
    usd: float


class RunOutcomes:
    """The newest outcome of each item of a run, by its path within the run."""

    KINDS: ClassVar = frozenset({ITEM_SETTLED})

    def __init__(self) -> None:
        self.by_key: dict[str, _Outcome] = {}
        self.cut = False
        self._follower = Follower()
        self._lock = threading.Lock()

    def add(self, event: Event) -> None:
        """Add the next outcome."""
        key = event.path.partition("/")[2]
        if len(self.by_key) >= _MAX_ITEMS and key not in self.by_key:
            self.cut = True
            return
        state = str(event.data.get("state"))
        self.by_key[key] = _Outcome(
            event.path,
            state,
            hash((state, event.body)),
            sum(number(one) or 0.0 for one in listed(event.data.get("service"))),
            number(event.data.get("usd")) or 0.0,
        )

    def read(self, store: Store, row: RunRow) -> float:
        """Read on for a moment; how much of the journal is read."""
        with self._lock:
            until = SYSTEM_CLOCK.now() + _READ_SECONDS
            self._follower.read(store, row, self.add, self.KINDS, until)
            after = self._follower.after
            return 1.0 if after >= row.last_seq else after / row.last_seq


class Comparisons:
    """The outcomes of the runs that were compared last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[tuple[str, float], RunOutcomes] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, row: RunRow) -> tuple[RunOutcomes, float]:
        """The outcomes of a run, and how much of its journal is read."""
        with self._lock:
            kept = self._kept.setdefault((row.id, row.created), RunOutcomes())
            self._kept.move_to_end((row.id, row.created))
            while len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return kept, kept.read(self._store, row)

    def page(
        self, first: RunRow, second: RunRow, *, only: str, words: str, at: int
    ) -> dict[str, object]:
        """A page of the items of both runs, by key.

        `only` is `different`, `same` or empty; `words` are looked for in the keys.
        """
        (one, read), (other, also_read) = self.read(first), self.read(second)
        keys = sorted(one.by_key.keys() | other.by_key.keys(), key=_in_order)
        counts = {"same": 0, "different": 0, "first": 0, "second": 0}
        found: list[str] = []
        above = ""
        for key in keys:
            if above and key.startswith(above):
                continue  # a step within an item
            above = f"{key}/"
            kind = _difference(one.by_key.get(key), other.by_key.get(key))
            counts[kind] += 1
            if (not only or (kind == "same") == (only == "same")) and words in key.lower():
                found.append(key)
        shown = found[at : at + _PAGE]
        return {
            "read": min(read, also_read),
            "counts": counts,
            "count": len(found),
            "at": at,
            "page": _PAGE,
            "cut": one.cut or other.cut,
            "items": self._rows(shown, (first, one), (second, other)),
        }

    def _rows(self, keys: list[str], *sides: tuple[RunRow, RunOutcomes]) -> list[dict[str, object]]:
        cells: list[dict[str, object]] = []
        for row, outcomes in sides:
            known = {key: outcomes.by_key[key] for key in keys if key in outcomes.by_key}
            lines = lines_of(self._store, row, [one.path for one in known.values()])
            cells.append(
                {
                    key: {**_facts(one), "value": lines.get(one.path, "")}
                    for key, one in known.items()
                }
            )
        first, second = (side[1].by_key for side in sides)
        return [
            {
                "key": key,
                "kind": _difference(first.get(key), second.get(key)),
                "first": cells[0].get(key),
                "second": cells[1].get(key),
            }
            for key in keys
        ]


def _in_order(key: str) -> list[str]:
    """Sorts a key directly before those beneath it."""
    return key.split("/")


def _facts(one: _Outcome) -> dict[str, object]:
    return {"path": one.path, "state": one.state, "took": one.took, "usd": one.usd}


def _difference(one: _Outcome | None, other: _Outcome | None) -> str:
    if one is None or other is None:
        return "second" if one is None else "first"
    return "same" if one.mark == other.mark else "different"


def settings(first: RunRow, second: RunRow) -> list[dict[str, object]]:
    """What the runs were started with, where they differ, as text."""
    sides = [{"seed": str(row.seed), **row.manifest} for row in (first, second)]
    names = [*sides[0], *(name for name in sides[1] if name not in sides[0])]
    return [
        {"name": name, "first": _text(sides[0].get(name)), "second": _text(sides[1].get(name))}
        for name in names
        if sides[0].get(name) != sides[1].get(name)
    ]


def _text(value: object) -> str:
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, indent=1)
    return text[:_VALUE_CHARACTERS]
