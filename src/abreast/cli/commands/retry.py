"""`abreast retry`: runs the failed items of a run again."""

from typing import Any

import click

from abreast.cli import options
from abreast.cli.commands.resume import changes_of, resume_request
from abreast.cli.commands.show import find_item
from abreast.cli.config import Config
from abreast.cli.errors import UsageError, tell
from abreast.cli.jobs.driver import drive
from abreast.cli.jobs.map.driver import MapDriver
from abreast.cli.jobs.map.job import KIND, MapJob
from abreast.cli.jobs.map.recorded import tally
from abreast.cli.jobs.table import JOBS
from abreast.cli.stores import StoreChoice, find_run
from abreast.core.item import unescape
from abreast.store.port import RunRow, Store


@click.command("retry")
@options.run
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@options.width
@options.retries
@options.timeout
@options.quiet
@options.common
def command(*, run: str, keys: tuple[str, ...], store: str | None, **given: Any) -> int:
    """Run the failed items of RUN again: those named by KEY, or all of them.

    Then go on with what is left of it.
    """
    config = Config.load()
    choice = StoreChoice(config, store)
    with choice.existing() as opened:
        row = find_run(opened, run)
        if row.kind in JOBS and row.kind != KIND:
            raise UsageError(_other_command(row, choice))
        job = MapJob.of_run(row).with_changes(**changes_of(config, given))
        named = tuple(_failed_key(opened, row, key) for key in keys)
        if row.state == "done" and not tally(opened, row.id)["failed"]:
            tell(f"nothing to retry: no item of {row.id} failed")
            return 0
        request = resume_request(
            row, given, choice=choice, store=opened, resume="retry", retry_keys=named
        )
        return drive(MapDriver(job, request, row), request)


def _other_command(row: RunRow, choice: StoreChoice) -> str:
    """What to type for a run that has no items to retry one by one."""
    again = JOBS[row.kind].retried_by
    hint = f"; use: abreast {again.format(run=row.id)}{choice.flag}" if again else ""
    return f"retry is for the items of a map, and {row.id} is a {row.kind}{hint}"


def _failed_key(store: Store, row: RunRow, key: str) -> str:
    recorded = find_item(store, row, key)
    if recorded.data["state"] != "failed":
        raise UsageError(
            f"item {key!r} of {row.id} is {recorded.data['state']}, not failed; "
            "only failed items are retried"
        )
    return unescape(recorded.path.rpartition("/")[2])
