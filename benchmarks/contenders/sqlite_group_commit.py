"""The floor of C: one sqlite3 writer thread that commits whatever has gathered.

Each item waits for its own commit.

WAL with synchronous=FULL: one fsync per commit. The window around it is the reference of A. No
keys, no events, no resume, no codec beyond json.dumps: what is left is the price of being on disk.
"""

import asyncio
import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue

from benchmarks.contenders.meter import ITEMS, Lap, Load, on_loop, run
from benchmarks.contenders.taskgroup_window import window

Entry = tuple[int, str, "asyncio.Future[None]"]


class Journal:
    """Rows on their way to one table, and the thread that commits them."""

    def __init__(self, path: Path) -> None:
        """Open the file; make it inside a running loop."""
        self._loop = asyncio.get_running_loop()
        self._entries: SimpleQueue[Entry | None] = SimpleQueue()
        self._db = sqlite3.connect(path, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("CREATE TABLE outcomes (place INTEGER PRIMARY KEY, value TEXT NOT NULL)")
        self._db.commit()
        self._thread = threading.Thread(target=self._commit_for_ever)
        self._thread.start()

    def write(self, place: int, value: str) -> "asyncio.Future[None]":
        """Hand a row over; the future is done when it is on disk."""
        committed = self._loop.create_future()
        self._entries.put((place, value, committed))
        return committed

    def close(self) -> None:
        """Wait for the writer to end, then close the file."""
        self._entries.put(None)
        self._thread.join()
        self._db.close()

    def _commit_for_ever(self) -> None:
        while (first := self._entries.get()) is not None:
            batch = [first, *self._gathered()]
            self._db.executemany(
                "INSERT INTO outcomes VALUES (?, ?)", [(place, value) for place, value, _ in batch]
            )
            self._db.commit()
            self._loop.call_soon_threadsafe(self._settle, batch)

    def _gathered(self) -> Iterator[Entry]:
        try:
            while (entry := self._entries.get_nowait()) is not None:
                yield entry
        except Empty:
            return
        self._entries.put(None)

    @staticmethod
    def _settle(batch: list[Entry]) -> None:
        for _, _, committed in batch:
            committed.set_result(None)


@contextmanager
def open_journal(path: Path) -> Iterator[Journal]:
    """Open a journal and close it again."""
    journal = Journal(path)
    try:
        yield journal
    finally:
        journal.close()


async def play(load: Load, lap: Lap) -> list[object]:
    """Play C."""
    function = ITEMS[load.work]
    with open_journal(load.scratch / "outcomes.db") as journal:

        async def durable(item: int) -> object:
            result = await function(item)
            await journal.write(item, json.dumps(result))
            return result

        with lap:
            return await window(durable, range(load.n), load.width)


if __name__ == "__main__":
    run({"C": on_loop(play)})
