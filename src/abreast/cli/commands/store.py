"""`abreast store`: checks stores for damage, recovers, backs up and copies what they hold."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click

from abreast.assembly.names import find_damaged_store, find_store
from abreast.cli import options
from abreast.cli.config import Config
from abreast.cli.errors import DONE, FAILED, UsageError, explain, refusing, tell
from abreast.cli.jobs.table import JOBS
from abreast.cli.stores import StoreChoice, find_run
from abreast.cli.terminal.tables import say, say_json, say_table
from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import RunExists, StoreCorrupt
from abreast.limits.shared.exchange import LEASE
from abreast.limits.shared.ledger import read_ledger
from abreast.store.check import RunCheck, StoreCheck, check_store, copy_run
from abreast.store.checksums import named
from abreast.store.port import Store
from abreast.store.recovery import RecoveredRun, recover_store

_place = click.argument("place", metavar="[STORE]", required=False)
_output = click.option("--output", "-o", metavar="FILE", required=True, help="Write to this file.")


@click.group("store")
def command() -> None:
    """Check a store for damage, recover, back up and copy what it holds."""


@command.command("check")
@_place
@click.option("--run", "run_id", metavar="RUN", help="Only this run.")
@options.as_json
def check(*, place: str | None, run_id: str | None, as_json: bool) -> int:
    """Say whether every row of STORE is as it was written.

    Each run is ok, damaged, or unchecked: it has rows of a version that wrote no checksums. The
    exit code is 1 if there is damage.
    """
    choice = StoreChoice(Config.load(), place)
    try:
        with choice.existing(reads=True) as opened:
            found = check_store(opened, find_id(opened, run_id))
    except StoreCorrupt as error:
        found = StoreCheck((explain(error)[0],), ())
    _say_check(found, as_json=as_json)
    return DONE if found.is_whole else FAILED


@command.command("recover")
@_place
@_output
@options.as_json
def recover(*, place: str | None, output: str, as_json: bool) -> int:
    """Take everything that is whole in STORE into a new store; STORE itself is only read.

    A run that has lost something is interrupted in the new store: `abreast resume` runs what is
    missing again. The exit code is 1 if there is damage.
    """
    choice = StoreChoice(Config.load(), place)
    if choice.path is not None and not choice.path.exists():
        raise UsageError(f"there is no store at {choice.place}")
    with (
        refusing("STORE"),
        closing(find_damaged_store(choice.place)) as damaged,
        _new_store(output) as target,
    ):
        parts = {name: job.part for name, job in JOBS.items() if job.part}
        kept = recover_store(damaged, target, SYSTEM_CLOCK.wall(), parts)
    for one in kept:
        if as_json:
            say_json({**_facts(one.check), "kept": one.kept})
        else:
            _say_recovered(one)
    return FAILED if any(one.check.faults for one in kept) else DONE


@command.command("backup")
@_place
@_output
@options.as_json
def backup(*, place: str | None, output: str, as_json: bool) -> int:
    """Write a consistent copy of STORE, also while runs write to it, and check the copy.

    The exit code is 1 if there is damage in it.
    """
    with StoreChoice(Config.load(), place).existing(reads=True) as opened:
        opened.backup(output)
    with refusing("--output"), closing(find_store(output, reads=True)) as copy:
        found = check_store(copy)
    if as_json:
        _say_check(found, as_json=True)
    elif found.is_whole:
        tell(f"{len(found.runs)} run(s) are in {output}, and checked")
    else:
        _say_check(found, as_json=False)
    return DONE if found.is_whole else FAILED


@command.command("copy")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--to", "target", metavar="STORE", required=True, help="The store to copy to.")
@options.common
def copy(*, runs: tuple[str, ...], target: str, store: str | None, as_json: bool) -> None:
    """Copy each RUN to another store, byte for byte, and check it there.

    A run that exists there is not overwritten. A run that is being driven, or is damaged, is not
    copied.
    """
    config = Config.load()
    other = StoreChoice(config, target)
    with (
        StoreChoice(config, store).existing(reads=True) as source,
        other.open() as opened,
    ):
        for run in runs:
            row = find_run(source, run)
            try:
                copied = copy_run(source, row.id, opened)
            except RunExists:
                raise UsageError(
                    f"{other.place} has a run {row.id} already; it is not overwritten"
                ) from None
            if as_json:
                say_json({"run": row.id, "rows": copied.events, "state": copied.verdict})
            else:
                tell(f"copied {row.id}: {copied.events} rows, {copied.verdict}")


@command.command("lanes")
@click.option("--forget", metavar="LANE", help="Forget what is held and spent of this lane.")
@options.common
def lanes(*, forget: str | None, store: str | None, as_json: bool) -> None:
    """Show what drivers hold of shared lanes, and what is spent of their budgets.

    --forget begins anew: the budget of the lane is whole again, and permits are not counted that
    drivers hold just now.
    """
    with StoreChoice(Config.load(), store).existing() as opened:
        if forget is not None:
            if not opened.remove_ledger(forget):
                known = ", ".join(opened.ledgers()) or "there are none"
                raise UsageError(f"there is no shared lane {forget!r} here; lanes: {known}")
            tell(f"lane {forget} begins anew")
            return
        rows = [_lane_facts(name, text) for name, text in opened.ledgers().items()]
    if as_json:
        for row in rows:
            say_json(row)
    elif rows:
        say_table(
            ["LANE", "DRIVERS", "SLOTS HELD", "SPENT", "PERIOD"], [_lane_cells(row) for row in rows]
        )
    else:
        tell("no lane is shared here; `shared = true` in [lanes.NAME] of abreast.toml makes it so")


def _lane_facts(name: str, text: str) -> dict[str, Any]:
    try:
        ledger = read_ledger(text)
    except (TypeError, ValueError, LookupError):
        raise UsageError(f"the ledger of lane {name} can't be read; --forget {name}") from None
    alive = [each for each in ledger.holders.values() if SYSTEM_CLOCK.wall() - each.seen <= LEASE]
    return {
        "lane": name,
        "drivers": len(alive),
        "slots": sum(each.slots for each in alive),
        "spent": dict(ledger.spent),
        "period": ledger.period or None,
    }


def _lane_cells(row: dict[str, Any]) -> list[str]:
    spent = ", ".join(f"{amount:g} {name}" for name, amount in row["spent"].items() if amount)
    numbers = [str(row["drivers"]), str(row["slots"])]
    return [row["lane"], *numbers, spent or "-", row["period"] or "-"]


def find_id(store: Store, wanted: str | None) -> str | None:
    """The id of a run that is named by id, name or `last`; also if its row is damaged."""
    if wanted is None or any(run.id == wanted for run in store.stored_runs()):
        return wanted
    return find_run(store, wanted).id


@contextmanager
def _new_store(output: str) -> Iterator[Store]:
    if Path(output).exists():
        raise UsageError(f"--output: {output} exists already; name a new file")
    with refusing("--output"), closing(find_store(output)) as target:
        yield target


def _say_check(found: StoreCheck, *, as_json: bool) -> None:
    if as_json:
        for fault in found.faults:
            say_json({"store": "damaged", "fault": fault})
        for run in found.runs:
            say_json(_facts(run))
        return
    for fault in found.faults:
        tell(fault)
    if found.runs:
        say_table(
            ("RUN", "STATE", "ROWS", "CHECKED", "DAMAGE"),
            [
                (run.run_id, run.verdict, run.events, run.checked, named(run.faults))
                for run in found.runs
            ],
        )


def _facts(run: RunCheck) -> dict[str, object]:
    return {
        "run": run.run_id,
        "state": run.verdict,
        "rows": run.events,
        "checked": run.checked,
        "faults": [
            {"first": fault.first, "last": fault.last, "what": fault.what} for fault in run.faults
        ],
        "lost": list(run.lost),
    }


def _say_recovered(one: RecoveredRun) -> None:
    if not one.check.faults:
        say(f"{one.run_id}: whole, {one.kept} rows")
        return
    say(f"{one.run_id}: kept {one.kept} rows; {named(one.check.faults)}")
    for item in one.check.lost:
        say(f"  lost: {item}")
