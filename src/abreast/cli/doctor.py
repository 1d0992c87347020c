"""`abreast doctor`: what is here, what is missing, and where each setting comes from."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, TypeAlias

import click

from abreast.cli import options
from abreast.cli.config import SETTINGS, STORE, Config
from abreast.cli.errors import FAILED, Sorry, explain
from abreast.cli.stores import StoreChoice, state_of
from abreast.cli.tables import say, say_json, say_table
from abreast.core.errors import StoreError
from abreast.core.version import VERSION

Verdict: TypeAlias = Literal["ok", "missing", "wrong"]

_ROOM: Final = 100 << 20  # bytes of free disk below which runs are in danger
_EXTRAS: Final = (("pyarrow", "export to Parquet", "pip install 'abreast[parquet]'"),)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was looked at: only what is wrong makes the doctor's exit code 1, an extra may be missing."""

    what: str
    verdict: Verdict
    detail: str


@click.command("doctor")
@click.option("--config", "show_config", is_flag=True, help="Show each setting, and where its value came from.")
@options.common
def command(*, show_config: bool, store: str | None, as_json: bool) -> int:
    """Say what is here, what is missing, and where each setting comes from."""
    config = Config.load()
    if show_config:
        _show_config(config, store, as_json=as_json)
        return 0
    findings = list(_look(StoreChoice(config, store)))
    for finding in findings:
        if as_json:
            say_json({"what": finding.what, "verdict": finding.verdict, "detail": finding.detail})
        else:
            say(f"{finding.verdict:8} {finding.what}: {finding.detail}")
    return FAILED if any(finding.verdict == "wrong" for finding in findings) else 0


def _show_config(config: Config, store: str | None, *, as_json: bool) -> None:
    rows: list[tuple[str, object, str]] = []
    for setting in SETTINGS:
        found = config.find(setting, store if setting is STORE else None)
        value = StoreChoice(config, store).place if setting is STORE else found.value
        rows.append((setting.name, value, found.source))
    if as_json:
        say_json({name: {"value": value, "source": source} for name, value, source in rows})
    else:
        shown = [(name, "none" if value is None else value, source) for name, value, source in rows]
        say_table(("SETTING", "VALUE", "FROM"), shown)


def _look(choice: StoreChoice) -> Iterator[Finding]:
    yield Finding("abreast", "ok", f"{VERSION}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}")
    yield _store(choice)
    yield _disk(choice)
    if Path("/proc/self/stat").exists():
        yield Finding("processes", "ok", "what a crashed driver leaves behind is found and ended at resume")
    else:
        yield Finding(
            "processes", "missing", "no /proc here: what a crashed driver leaves behind is not found at resume"
        )
    yield Finding("terminal", "ok", "live progress" if os.isatty(2) else "stderr is no terminal: no live progress")
    for module, purpose, install in _EXTRAS:
        if find_spec(module) is None:
            yield Finding(module, "missing", f"only for {purpose}: {install}")
        else:
            yield Finding(module, "ok", purpose)


def _store(choice: StoreChoice) -> Finding:
    try:
        with choice.look() as store:
            if store is None:
                return Finding("store", "ok", f"{choice.place}, which the first run will make")
            rows = store.runs(limit=1000)
            crashed = [row.id for row in rows if state_of(store, row) == "crashed"]
    except StoreError as error:
        return Finding("store", "wrong", explain(error)[0])
    except Sorry as error:
        return Finding("store", "wrong", str(error))
    waiting = f"; {', '.join(crashed)} crashed: abreast resume {crashed[0]}" if crashed else ""
    return Finding("store", "ok", f"{choice.place}, {len(rows)} run(s){waiting}")


def _disk(choice: StoreChoice) -> Finding:
    place = choice.path
    while place is not None and not place.exists() and place != place.parent:
        place = place.parent
    if place is None:
        return Finding("disk", "ok", "the store is not a file here")
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        return Finding("disk", "wrong", f"{place}: {error.strerror}")
    return Finding("disk", "ok" if free >= _ROOM else "wrong", f"{free >> 20} MiB free at {place}")
