"""Takes what is whole out of a damaged store into a new one."""

import json
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from abreast.core.events import ITEM_READ, ITEM_SETTLED, ITEMS_COMPLETE, RUN_ENDED
from abreast.core.frozen import record
from abreast.store.check import RunCheck, RunSieve
from abreast.store.checksums import (
    StoredEvent,
    StoredRun,
    event_sum,
    fixed_sum,
    named,
    run_key,
    run_sum,
)
from abreast.store.port import Store
from abreast.store.rows import facts_of, facts_text
from abreast.store.totals import without_totals

RUN_RECOVERED: Final = "run-recovered"
RECOVERED: Final = "recovered from a damaged store"
_ITEM_DEPTH: Final = 2  # the path of an item is run, map, key


@record(frozen=True, slots=True)
class RecoveredRun:
    """What was kept of a run, and what was found wrong with it."""

    run_id: str
    kept: int
    check: RunCheck


def recover_store(
    damaged: Store, target: Store, at: float, parts: Mapping[str, str] = MappingProxyType({})
) -> list[RecoveredRun]:
    """Take all runs of a damaged store into a new one; returns what was kept of each.

    A run without damage is copied byte for byte. Of a damaged one the whole events are kept, and
    numbered anew. It is `interrupted` at the time `at`, so that a resume runs what is missing.
    Ledgers of shared lanes are taken along: what is spent stays spent. `parts` says by kind of run
    which record beneath an item belongs to its result: without it, the result is not kept.
    """
    for name, text in damaged.ledgers().items():
        target.change_ledger(name, lambda _, __, text=text: text)  # type: ignore[misc]
    return [
        _recover_run(damaged, run, target, at, parts.get(run.kind)) for run in damaged.stored_runs()
    ]


def _recover_run(
    damaged: Store, run: StoredRun, target: Store, at: float, part: str | None
) -> RecoveredRun:
    sieve = RunSieve(run)
    events = list(sieve.whole(damaged.stored_events(run.id)))
    check = sieve.result()
    if check.faults:
        events = list(_without_broken_input(events))
        if part:
            events = _without_incomplete(events, part)
        marked = _recovered_event(run, check, at)
        run, events = _numbered_anew(_mended(run, check, at), [*events, marked])
    target.add_copy(run, events)
    return RecoveredRun(str(run.id), len(events), check)


def _recovered_event(run: StoredRun, check: RunCheck, at: float) -> StoredEvent:
    facts = {"faults": named(check.faults), "lost": len(check.lost)}
    return StoredEvent(0, RUN_RECOVERED, run.name, None, 0.0, at, facts_text(facts), None)


def _mended(run: StoredRun, check: RunCheck, at: float) -> StoredRun:
    """The run's row as that of an interrupted run; what is no JSON in it is emptied."""
    reason = f"{RECOVERED}: {named(check.faults)}"
    run = run._replace(state="interrupted", reason=reason, ended=at, beat=at, driver=None)
    return run._replace(
        tags=_json_or(run.tags, "[]"),
        manifest=_json_or(run.manifest, "{}"),
        spent=facts_text(without_totals(facts_of(_json_or(run.spent, "{}")))),
    )


def _json_or(text: str, empty: str) -> str:
    try:
        json.loads(text)
    except (TypeError, ValueError):
        return empty
    return text


def _without_incomplete(events: list[StoredEvent], part: str) -> list[StoredEvent]:
    """Leave out results of items whose record of that `part` is lost: a resume makes them again.

    Such an item would seem to be done, and a part of its answer would be empty.
    """
    settled = {event.path for event in events if event.kind == ITEM_SETTLED}

    def is_incomplete(event: StoredEvent) -> bool:
        return (
            event.kind == ITEM_SETTLED
            and event.path.count("/") == _ITEM_DEPTH
            and facts_of(event.data).get("state") == "done"
            and f"{event.path}/{part}" not in settled
        )

    return [event for event in events if not is_incomplete(event)]


def _without_broken_input(events: list[StoredEvent]) -> Iterator[StoredEvent]:
    """Leave out input after a gap, and that it was complete: a resume asks for it again.

    Also leave out that the run ended.
    """
    read: dict[str, int] = {}  # how many items of each input are whole, from the first on
    broken: set[str] = set()
    for event in events:
        facts = facts_of(event.data)
        source = event.path.rpartition("/")[0] if event.kind == ITEM_READ else event.path
        if event.kind == ITEM_READ:
            if facts.get("index", 0) != read.get(source, 0):
                broken.add(source)
            read[source] = read.get(source, 0) + facts.get("count", 1)
        elif event.kind == ITEMS_COMPLETE and facts.get("items") != read.get(source, 0):
            broken.add(source)
        is_input = event.kind in (ITEM_READ, ITEMS_COMPLETE)
        if event.kind != RUN_ENDED and not (is_input and source in broken):
            yield event


def _numbered_anew(
    run: StoredRun, events: Iterable[StoredEvent]
) -> tuple[StoredRun, list[StoredEvent]]:
    """The events without gaps, with new checksums unless they had none."""
    key, tail, epoch = run_key(run.id), None, max(int(run.epoch), 1)
    checked_from: int | None = None
    numbered: list[StoredEvent] = []
    for seq, event in enumerate(events, 1):
        changed = event._replace(seq=seq)
        if event.sum is not None or event.kind == RUN_RECOVERED:
            checked_from = checked_from or seq
            changed = changed._replace(epoch=event.epoch or epoch)
            tail = event_sum(key, tail, changed)
            changed = changed._replace(sum=tail)
        numbered.append(changed)
    settled = [event.kind for event in numbered].count(ITEM_SETTLED)
    run = run._replace(
        last_seq=len(numbered), checked_from=checked_from, tail=tail, settled=settled
    )
    run = run._replace(fixed=fixed_sum(run))
    return run._replace(sum=run_sum(run)), numbered
