"""The calls of `abreast serve`, summed by client, model and tag."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final

from abreast.core.errors import StoreError
from abreast.core.events import ITEM_SETTLED, Event
from abreast.core.outcome import NO_USAGE, Usage, tokens_in_words
from abreast.run.outcome_record import usage_facts, usage_of
from abreast.store.codec import codec
from abreast.store.port import Recorded, RunRow
from abreast.views.job_view import many, short

KIND: Final = "serve"
"""The kind of a server's run."""
PARTS: Final = ("client", "model", "tag")
_MAX_SHOWN: Final = 50  # names of one part on the page
_NAME_CHARACTERS: Final = 100

Totals = dict[str, tuple[int, Usage]]
"""The number of calls and their usage, by name."""


class ServedSums:
    """Sums the calls of a server as its outcomes are added, each item once."""

    def __init__(self, outcomes: Iterable[Recorded | Event] = ()) -> None:
        self._sums: dict[str, Totals] = {part: {} for part in PARTS}
        # A resumed server answers a failed call again; its newest outcome counts.
        self._failed: dict[str, tuple[list[tuple[str, str]], Usage]] = {}
        for outcome in outcomes:
            self.add(outcome)

    def add(self, outcome: Recorded | Event) -> None:
        """Add an outcome; one without an answer is not counted."""
        self._failed.pop(outcome.path, None)
        facts = call_facts(outcome) or {}
        names = [(part, str(facts[part])) for part in PARTS if facts.get(part)]
        used = usage_of(outcome.data)
        if outcome.data.get("state") == "failed":
            self._failed[outcome.path] = names, used
        else:
            _count(self._sums, names, used)

    def totals(self) -> dict[str, Totals]:
        """The sums of each of `PARTS`, by name."""
        found = {part: dict(self._sums[part]) for part in PARTS}
        for names, used in self._failed.values():
            _count(found, names, used)
        return {part: dict(sorted(found[part].items())) for part in PARTS}

    def plain(self) -> dict[str, dict[str, dict[str, Any]]]:
        """As JSON values."""
        return {
            part: {
                name: {"calls": count, **usage_facts(used)} for name, (count, used) in found.items()
            }
            for part, found in self.totals().items()
        }

    def texts(self, most: int | None = None) -> dict[str, str]:
        """For people, by part: `a: 2 calls, 9 + 5 tokens, 0.1 usd; b: ...`.

        Of more than `most` names, those with the most calls are in it.
        """
        found = {}
        for part, totals in self.totals().items():
            names = list(totals)
            if most is not None and len(names) > most:
                names = sorted(names, key=lambda name: -totals[name][0])[:most]
            texts = [_text(name, *totals[name]) for name in names]
            if left := len(totals) - len(names):
                texts.append(f"and {left} more")
            found[part] = "; ".join(texts)
        return found


class ServedView:
    """The view of a server's run: a table for clients, models and tags."""

    KINDS: ClassVar = frozenset({ITEM_SETTLED})

    def __init__(self) -> None:
        self._sums = ServedSums()

    def add(self, event: Event) -> None:
        """Add the next event."""
        self._sums.add(event)

    def plain(self, run: RunRow, state: str) -> dict[str, object]:
        """Return the sums; of many names those that cost most, then those with most calls."""
        del run
        return {
            "state": state,
            "parts": [
                _table(part, totals) for part, totals in self._sums.totals().items() if totals
            ],
        }


def call_facts(outcome: Recorded | Event) -> Mapping[str, Any] | None:
    """The facts of a recorded call; None if it was cancelled, and so has no answer."""
    try:
        if outcome.data["state"] == "failed":
            facts: Any = codec.decode_error(outcome.body or "{}").details
        else:
            facts = codec.decode_plain(outcome.body or "null")
    except StoreError:
        return None
    return facts if isinstance(facts, Mapping) and "type" in facts else None


def _count(sums: dict[str, Totals], names: Iterable[tuple[str, str]], used: Usage) -> None:
    for part, name in names:
        count, before = sums[part].get(name, (0, NO_USAGE))
        sums[part][name] = count + 1, before + used


def _table(part: str, totals: Totals) -> dict[str, object]:
    order = sorted(totals, key=lambda name: (-(totals[name][1].usd or 0.0), -totals[name][0]))
    left = len(order) - _MAX_SHOWN
    return {
        "part": part,
        "rows": list(_rows(totals, order[:_MAX_SHOWN])),
        "cut": f"and {many(left, part)} more" if left > 0 else None,
    }


def _rows(totals: Totals, names: Iterable[str]) -> Iterator[dict[str, object]]:
    for name in names:
        count, used = totals[name]
        yield {
            "name": short(name, _NAME_CHARACTERS),
            "calls": count,
            "input": used.input_tokens,
            "output": used.output_tokens,
            "usd": used.usd,
        }


def _text(name: str, count: int, used: Usage) -> str:
    cost = ", unknown cost" if used.usd is None else f", {used.usd:.4g} usd" if used.usd else ""
    return f"{name}: {many(count, 'call')}, {tokens_in_words(used)}{cost}"
