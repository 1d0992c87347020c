"""Finds and opens the store that a command works on, and finds runs in it by id or name."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from abreast.assembly.names import find_store
from abreast.cli.config import PATIENCE, STORE, Config
from abreast.cli.errors import UsageError, os_error_text, refusing
from abreast.core.errors import NoSuchRun
from abreast.store.port import RunRow, Store
from abreast.store.postgres.address import without_password
from abreast.system.paths import make_ignored_folder

FOLDER: Final = ".abreast"
FILE: Final = "abreast.db"
LAST: Final = "last"
"""Means the newest run, wherever a run is named."""


class StoreChoice:
    """Which store to use, and whether `--store` chose it.

    If `--store` chose it, commands that are printed for the user name the store too.
    """

    def __init__(self, config: Config, flag: str | None) -> None:
        """Take the store of the flag, or else the configured one."""
        found = config.find(STORE, flag)
        self.by_hand = flag is not None
        self.by_default = found.value is None
        self.patience = config.get(PATIENCE)
        self.address = found.value or str(config.project / FOLDER / FILE)
        """What it is opened by. It may have a password in it: `place` is the text to show."""
        if "://" not in self.address:  # a path in a configuration file is relative to its folder
            self.address = str(Path(found.folder or Path.cwd(), Path(self.address).expanduser()))
        self.place = without_password(self.address)

    @property
    def path(self) -> Path | None:
        """The store's file; None for a store that is not a file."""
        scheme, mark, rest = self.place.partition("://")
        if not mark:
            return Path(self.place)
        return Path(rest) if scheme in ("sqlite", "file") else None

    @property
    def passwords(self) -> list[str]:
        """The password in the store's address, as it is written there and as it is meant."""
        secret = urlsplit(self.address).password if self.address != self.place else None
        return sorted({secret, unquote(secret)}) if secret else []

    @property
    def flag(self) -> str:
        """What to add to a printed command so that it finds this store; empty if it does anyway."""
        return f" --store {shlex.quote(self.place)}" if self.by_hand else ""

    @contextmanager
    def open(self, *, reads: bool = False) -> Iterator[Store]:
        """Open the store, and create it if it doesn't exist; `reads` as in `look`."""
        path = self.path
        if path is not None:
            if self.by_default and not (reads and path.exists()):
                _make_folder(path.parent)
            if path.exists() and not path.is_file() and not path.is_dir():
                raise UsageError(
                    f"{path} is not a file, so it can't be a store; use another with --store FILE"
                )
        with refusing("--store"):
            store = find_store(self.address, busy_timeout=self.patience, reads=reads)
        try:
            yield store
        finally:
            store.close()

    @contextmanager
    def look(self, *, reads: bool = False) -> Iterator[Store | None]:
        """Open the store if it exists; None, and nothing is created, if it doesn't.

        `reads` is for a command that writes nothing: a store that is read-only is opened too.
        """
        if self.path is not None and not self.path.exists():
            yield None
        else:
            with self.open(reads=reads) as store:
                yield store

    @contextmanager
    def existing(self, *, reads: bool = False) -> Iterator[Store]:
        """Open a store that must exist, as the command works on one of its runs."""
        with self.look(reads=reads) as store:
            if store is None:
                raise UsageError(
                    f"there is no store at {self.place}, so no run; "
                    "name the right one with --store FILE"
                )
            yield store


def find_run(store: Store, wanted: str) -> RunRow:
    """The run of that id, the newest of that name, or with `last` the newest of all.

    Raises `UsageError` or `NoSuchRun` if there is none.
    """
    if wanted == LAST:
        newest = store.runs(limit=1)
        if not newest:
            raise UsageError("there is no last run: the store holds no runs yet")
        return newest[0]
    try:
        return store.get(wanted)
    except NoSuchRun:
        named = store.newest(wanted)
        if named is None:
            raise
        return named


def state_of(store: Store, row: RunRow) -> str:
    """The state that is shown: a running run without a driver has crashed."""
    return "crashed" if row.state == "running" and not store.driven(row.id) else row.state


def _make_folder(folder: Path) -> None:
    """Create the project's folder for runs, with a .gitignore that makes git ignore it."""
    try:
        make_ignored_folder(folder)
    except OSError as error:
        raise UsageError(
            f"{folder} can't be made ({os_error_text(error)}); "
            "name a place for the store with --store FILE",
            1,
        ) from None
