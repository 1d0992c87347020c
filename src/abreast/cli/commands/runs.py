"""`abreast runs`: lists the runs of the store, newest first."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar, get_args

import click

from abreast.cli import options
from abreast.cli.commands.show import facts_of_run
from abreast.cli.config import Config
from abreast.cli.errors import DONE, USAGE, UsageError, explain, refusing, tell
from abreast.cli.stores import StoreChoice, state_of
from abreast.cli.terminal.tables import duration_text, local_time, say_json, say_table
from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import StoreDamaged
from abreast.jobs.files import units
from abreast.store.port import OnDamage, RunRow, RunState, Store

T = TypeVar("T")

MAX_COUNTED_ITEMS: Final = 10_000
"""The most items of one run that are counted, so that the list is quick; `show` counts all."""


@click.command("runs")
@click.option("--name", metavar="TEXT", help="Only runs of this name.")
@click.option(
    "--state",
    metavar="WORD",
    help="Only runs in this state: done, running, crashed, interrupted, failed...",
)
@click.option("--tag", metavar="WORD", help="Only runs with this tag.")
@click.option("--limit", metavar="N", default="50", help="At most so many, the newest.  [50]")
@options.common
def command(
    *,
    name: str | None,
    state: str | None,
    tag: str | None,
    limit: str,
    store: str | None,
    as_json: bool,
) -> int:
    """List the runs, newest first.

    A run that is damaged is named on stderr, the others are listed, and the exit code is 2.
    """
    with refusing("--limit"):
        most = units.number(limit, least=1)
    states = (*get_args(RunState), "crashed")
    if state is not None and state not in states:
        raise UsageError(f"--state: there is no state {state!r}; there are {', '.join(states)}")
    choice = StoreChoice(Config.load(), store)
    with choice.look(reads=True) as opened:
        if opened is None:
            tell(f"no runs yet: there is no store at {choice.place}")
            return DONE
        damage: list[StoreDamaged] = []
        rows = _rows(opened, name, state, tag, most=most, on_damage=damage.append)
        if as_json:
            listed = _each(
                rows, lambda row: facts_of_run(opened, row) | _counts(opened, row), damage.append
            )
            for facts in listed:
                say_json(facts)
        else:
            cells = list(_each(rows, lambda row: _cells(opened, row), damage.append))
            if cells:
                say_table(("RUN", "STATE", "ITEMS", "STARTED", "TOOK", "TAGS", "REASON"), cells)
            elif not damage:
                tell("no such runs")
    for error in damage:
        tell(explain(error)[0])
    return USAGE if damage else DONE


def _rows(
    store: Store,
    name: str | None,
    state: str | None,
    tag: str | None,
    *,
    most: int,
    on_damage: OnDamage,
) -> list[RunRow]:
    if state not in ("running", "crashed"):
        return store.runs(name=name, state=state, tag=tag, limit=most, on_damage=on_damage)
    running = store.runs(name=name, state="running", tag=tag, limit=1_000_000, on_damage=on_damage)
    return [row for row in running if state_of(store, row) == state][:most]


def _each(
    rows: Iterable[RunRow], describe: Callable[[RunRow], T], on_damage: OnDamage
) -> Iterator[T]:
    """What is said of each run; those whose events are damaged are left out."""
    for row in rows:
        try:
            found = describe(row)
        except StoreDamaged as error:
            on_damage(error)
        else:
            yield found


def _counts(store: Store, row: RunRow) -> dict[str, object]:
    """Items by state; `items_more` says that there are more than were counted."""
    found = store.count_states(row.id, MAX_COUNTED_ITEMS)
    items = {state: found.get(state, 0) for state in ("done", "failed", "cancelled")}
    return {"items": items, "items_more": sum(found.values()) >= MAX_COUNTED_ITEMS}


def _items(store: Store, row: RunRow) -> str:
    found = store.count_states(row.id, MAX_COUNTED_ITEMS)
    text = ", ".join(
        f"{found[state]:,} {state}" for state in ("done", "failed", "cancelled") if found.get(state)
    )
    return f"more than {MAX_COUNTED_ITEMS:,}" if sum(found.values()) >= MAX_COUNTED_ITEMS else text


def _cells(store: Store, row: RunRow) -> tuple[object, ...]:
    state = state_of(store, row)
    until = row.ended if row.ended is not None else SYSTEM_CLOCK.wall()
    took = "" if state == "crashed" else duration_text(max(0.0, until - row.created))
    return (
        row.id,
        state,
        _items(store, row),
        local_time(row.created),
        took,
        " ".join(row.tags),
        row.reason,
    )
