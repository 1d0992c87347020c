"""The stores under one contract: how each is opened, opened again, and opened from its backup."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from abreast.store.memory import MemoryStore
from abreast.store.postgres.store import PostgresStore
from abreast.store.sqlite.store import SqliteStore
from tests.store.rows import (
    ANN,
    BOB,
    begin,
    event,
    fill,
    forget_checksums,
    settled,
    sqlite_error,
)

__all__ = [
    "ADAPTERS",
    "ANN",
    "BOB",
    "begin",
    "event",
    "fill",
    "forget_checksums",
    "settled",
    "sqlite_error",
]


class OpenedPostgres(PostgresStore):
    """It keeps its address, with the password, so that it can be opened again."""

    def __init__(self, address):
        self.address = address
        super().__init__(address)


@dataclass(frozen=True)
class Adapter:
    """`again` gives a second handle on what the first one holds, as another process would have."""

    name: str
    open: Callable[[Path | str], object]
    again: Callable[[object], object]
    open_backup: Callable[[Path], object]
    url: str | None = None  # the fixture with the address to open, in place of a folder


ADAPTERS = [
    Adapter(
        "memory",
        open=lambda _folder: MemoryStore(),
        again=lambda store: store,
        open_backup=lambda path: MemoryStore.load(str(path)),
    ),
    Adapter(
        "sqlite",
        open=lambda folder: SqliteStore(folder / "runs.db"),
        again=lambda store: SqliteStore(store.path),
        open_backup=SqliteStore,
    ),
    *(
        Adapter(
            name,
            open=OpenedPostgres,
            again=lambda store: OpenedPostgres(store.address),
            open_backup=SqliteStore,
            url=f"{name}_url",
        )
        for name in ("postgres", "bouncer")
    ),
]
