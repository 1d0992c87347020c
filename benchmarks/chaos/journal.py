"""The journal of the newest run of a place, read from a copy so that nothing is disturbed."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from abreast.core.errors import StoreError
from abreast.core.events import Event
from abreast.store.port import Store, each_event
from abreast.store.postgres.store import PostgresStore
from abreast.store.sqlite.store import SqliteStore
from benchmarks.chaos.history import Recorded


@dataclass(frozen=True, slots=True)
class RunJournal:
    """A run and its events; no id if there is no run."""

    run: str = ""
    state: str = ""
    events: tuple[Recorded, ...] = ()


def read_journal(store: str) -> RunJournal:
    """Read it; an empty one if there is no store yet, or nothing can be read of it."""
    try:
        with _opened(store) as opened:
            for row in opened.runs(limit=1):
                events = tuple(_recorded(event) for event in each_event(opened, row.id))
                return RunJournal(row.id, row.state, events)
    except StoreError:
        pass
    return RunJournal()


@contextmanager
def _opened(store: str) -> Iterator[Store]:
    if store.startswith("postgresql:"):
        with closing(PostgresStore(store)) as server:
            yield server
        return
    path = Path(store)
    if not path.exists():
        raise StoreError("there is no store yet")
    with tempfile.TemporaryDirectory(prefix="abreast-chaos-") as folder:
        for name in (path.name, f"{path.name}-wal"):
            if path.with_name(name).exists():
                shutil.copy(path.with_name(name), folder)
        with closing(SqliteStore(Path(folder, path.name))) as copy:
            yield copy


def _recorded(event: Event) -> Recorded:
    facts = event.data
    tokens = (_count(facts.get("input_tokens")), _count(facts.get("output_tokens")))
    body = hashlib.sha256((event.body or "").encode("utf-8", "surrogatepass")).hexdigest()[:16]
    usd = facts.get("usd")
    return Recorded(
        event.kind,
        event.path,
        str(facts.get("state", "")),
        body if event.body else "",
        tokens,
        float(usd) if isinstance(usd, (int, float)) else 0.0,
        event.wall,
        bool(facts.get("estimate")),
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
