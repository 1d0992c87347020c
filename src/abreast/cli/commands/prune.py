"""`abreast prune`: removes old runs."""

from typing import cast, get_args

import click

from abreast.cli import options
from abreast.cli.config import Config
from abreast.cli.errors import UsageError, refusing, tell
from abreast.cli.stores import StoreChoice
from abreast.cli.terminal.tables import say_json
from abreast.core.clock import SYSTEM_CLOCK
from abreast.jobs.files import units
from abreast.store.port import PRUNED, RunState, Store


@click.command("prune")
@click.option(
    "--older-than",
    metavar="TIME",
    required=True,
    help="Runs that ended longer ago than this: 30d, 12h.",
)
@click.option(
    "--state",
    "states",
    metavar="WORD",
    multiple=True,
    help=f"Only runs in this state; may be repeated.  [{', '.join(PRUNED)}]",
)
@options.dry_run
@options.quiet
@options.common
def command(
    *,
    older_than: str,
    states: tuple[str, ...],
    dry_run: bool,
    quiet: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Remove runs that ended long ago, and give their room back to the disk.

    Interrupted and paused runs wait to be resumed, and stay unless --state names them.
    """
    with refusing("--older-than"):
        before = SYSTEM_CLOCK.wall() - units.duration(older_than)
    for state in states:
        if state not in get_args(RunState):
            raise UsageError(
                f"--state: there is no state {state!r}; there are {', '.join(get_args(RunState))}"
            )
    chosen = cast("tuple[RunState, ...]", states) or PRUNED
    with StoreChoice(Config.load(), store).look() as opened:
        removed = (
            []
            if opened is None
            else _old(opened, before, chosen)
            if dry_run
            else opened.prune(before, chosen)
        )
        if removed and opened is not None and not dry_run:
            opened.vacuum()
    if as_json:
        say_json(
            {"removed": [] if dry_run else removed, "would_remove": removed if dry_run else []}
        )
    elif not quiet:
        names = f": {', '.join(removed)}" if removed else ""
        tell(f"{'would remove' if dry_run else 'removed'} {len(removed)} run(s){names}")


def _old(store: Store, before: float, states: tuple[RunState, ...]) -> list[str]:
    return [
        row.id
        for row in reversed(store.runs(limit=1_000_000))
        if row.state in states and (row.ended or row.created) < before
    ]
