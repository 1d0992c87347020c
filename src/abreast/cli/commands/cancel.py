"""`abreast cancel`: asks the driver of a run, in any process, to stop."""

import asyncio
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from abreast.cli import options
from abreast.cli.commands.show import facts_of_run
from abreast.cli.config import Config
from abreast.cli.errors import UsageError, tell
from abreast.cli.jobs.model_options import configured_lanes, open_named
from abreast.cli.stores import StoreChoice, find_run
from abreast.cli.terminal.tables import say_json
from abreast.core.clock import SYSTEM_CLOCK, pause
from abreast.core.errors import AbreastError, RunBusy
from abreast.run.calls.batch.caller import BatchCaller
from abreast.run.calls.batch.record import SubmittedBatch, batches_under_way
from abreast.store.port import Driver, RunRow, Store

_POLL_INTERVAL: Final = 0.05  # seconds between two checks whether it has ended


@click.command("cancel")
@options.run
@click.option(
    "--reason", metavar="TEXT", default="cancelled by request", help="What the run shall say of it."
)
@click.option("--wait", is_flag=True, help="Wait until the driver has ended.")
@options.quiet
@options.common
def command(
    *, run: str, reason: str, wait: bool, quiet: bool, store: str | None, as_json: bool
) -> None:
    """Ask the driver of RUN to stop.

    It does within a second. What is recorded stays, and the run can be resumed. Batches that it
    waits for are cancelled at their provider, also those of a run without a driver.
    """
    with StoreChoice(Config.load(), store).existing() as opened:
        row = find_run(opened, run)
        if opened.driven(row.id):
            opened.ask(row.id, "cancel", {"reason": reason}, SYSTEM_CLOCK.wall())
            message = f"asked {row.driver or 'its driver'} to stop {row.id}"
            while wait and opened.driven(row.id):
                pause(_POLL_INTERVAL)
            if wait:
                message = f"{row.id} is {opened.get(row.id).state}"
        else:
            message = _cancel_undriven(opened, row, reason)
        if as_json:
            say_json(facts_of_run(opened, opened.get(row.id)))
        elif not quiet:
            tell(message)


def _cancel_undriven(store: Store, row: RunRow, reason: str) -> str:
    """Cancel a run without a driver: one that crashed or waits to be resumed."""
    if row.state in ("done", "cancelled"):
        return f"{row.id} is over already ({row.state})"
    try:
        taken = store.take_over(
            row.id, Driver(os.getpid(), socket.gethostname(), SYSTEM_CLOCK.wall(), "abreast cancel")
        )
    except RunBusy:
        store.ask(row.id, "cancel", {"reason": reason}, SYSTEM_CLOCK.wall())
        return f"asked the driver of {row.id} to stop"
    store.end(row.id, taken.epoch, "cancelled", reason, SYSTEM_CLOCK.wall())
    batches = batches_under_way(store, row.id)
    ended = asyncio.run(_cancel_batches(row, batches)) if batches else ""
    return f"{row.id} is cancelled; it had no driver{ended}"


async def _cancel_batches(row: RunRow, batches: Sequence[SubmittedBatch]) -> str:
    """Cancel the batches of a run at their providers; returns what to say of it."""
    lanes = configured_lanes(Config.load(Path(str(row.manifest.get("cwd") or "."))))
    failures: list[str] = []
    for batch in batches:
        try:
            async with open_named(batch.model, lanes, mode="batch") as caller:
                if isinstance(caller, BatchCaller):
                    await caller.service.cancel(batch.upstream)
        except (AbreastError, UsageError) as error:
            failures.append(f"{batch.upstream} of {batch.model}: {error}")
    done = len(batches) - len(failures)
    noun = "batch" if done == 1 else "batches"
    said = f"; cancelled {done} {noun} at the provider"
    return said + "".join(f"; not cancelled: {failure}" for failure in failures)
