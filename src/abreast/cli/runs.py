"""`abreast runs`: the runs of the store, newest first."""

from __future__ import annotations

from typing import get_args

import click

from abreast.cli import options, units
from abreast.cli.config import Config
from abreast.cli.errors import Sorry, tell
from abreast.cli.show import facts_of_run
from abreast.cli.stores import StoreChoice, state_of
from abreast.cli.tables import local_moment, say_json, say_table, span
from abreast.core.clock import SYSTEM_CLOCK
from abreast.store.port import RunRow, RunState, Store


@click.command("runs")
@click.option("--name", metavar="TEXT", help="Only runs of this name.")
@click.option("--state", metavar="WORD", help="Only runs in this state: done, running, crashed, interrupted, failed...")
@click.option("--tag", metavar="WORD", help="Only runs with this tag.")
@click.option("--limit", metavar="N", default="50", help="At most so many, the newest.  [50]")
@options.common
def command(
    *, name: str | None, state: str | None, tag: str | None, limit: str, store: str | None, as_json: bool
) -> int:
    """List the runs, newest first."""
    try:
        most = units.number(limit, least=1)
    except ValueError as error:
        raise Sorry(f"--limit: {error}") from None
    states = (*get_args(RunState), "crashed")
    if state is not None and state not in states:
        raise Sorry(f"--state: there is no state {state!r}; there are {', '.join(states)}")
    choice = StoreChoice(Config.load(), store)
    with choice.look(reads=True) as opened:
        if opened is None:
            tell(f"no runs yet: there is no store at {choice.place}")
            return 0
        rows = _rows(opened, name, state, tag, most)
        if as_json:
            for row in rows:
                say_json(facts_of_run(opened, row))
        elif rows:
            say_table(("RUN", "STATE", "STARTED", "TOOK", "TAGS", "REASON"), [_cells(opened, row) for row in rows])
        else:
            tell("no such runs")
    return 0


def _rows(store: Store, name: str | None, state: str | None, tag: str | None, most: int) -> list[RunRow]:
    if state not in ("running", "crashed"):
        return store.runs(name=name, state=state, tag=tag, limit=most)
    running = store.runs(name=name, state="running", tag=tag, limit=1_000_000)
    return [row for row in running if state_of(store, row) == state][:most]


def _cells(store: Store, row: RunRow) -> tuple[object, ...]:
    state = state_of(store, row)
    until = row.ended if row.ended is not None else SYSTEM_CLOCK.wall()
    took = "" if state == "crashed" else span(max(0.0, until - row.created))
    return row.id, state, local_moment(row.created), took, " ".join(row.tags), row.reason
