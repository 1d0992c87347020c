"""What calls cost, by client, by model and by tag."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from abreast.core.outcome import NO_USAGE, Usage
from abreast.run.outcome_record import usage_of
from abreast.serve.recording import facts_of
from abreast.store.port import Recorded

PARTS: Final = ("client", "model", "tag")


class ServedTotals:
    """Counts the calls of a server while it runs."""

    def __init__(self) -> None:
        self.calls = 0
        self.failed = 0
        self.usage = NO_USAGE

    def add(self, used: Usage | None, *, failed: bool) -> None:
        """Count a call that has ended."""
        self.calls += 1
        self.failed += failed
        if used is not None:
            self.usage += used


def totals_by(outcomes: Iterable[Recorded]) -> dict[str, dict[str, tuple[int, Usage]]]:
    """For each of `PARTS`: the number of calls and their usage, by name."""
    found: dict[str, dict[str, tuple[int, Usage]]] = {part: {} for part in PARTS}
    for outcome in outcomes:
        facts: Mapping[str, Any] = facts_of(outcome) or {}
        used = usage_of(outcome.data)
        for part in PARTS:
            if name := facts.get(part):
                count, before = found[part].get(str(name), (0, NO_USAGE))
                found[part][str(name)] = count + 1, before + used
    return found
