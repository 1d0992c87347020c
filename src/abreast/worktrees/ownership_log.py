"""What proves that a worktree is ours: a line on the disk before it is made, and one when it is gone.

A repository has one ledger, in the user's cache directory, and one lock, which every git command on
worktrees is under. The lock is on the git directory itself: processes with different caches respect
it too, and no file is left for it.

A slot is stale if its owner is dead: nobody holds its pool's lock, and no process has the owner's
number and start.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from abreast.core.clock import SYSTEM_CLOCK, Clock
from abreast.worktrees.background import StopRequest
from abreast.worktrees.errors import WorktreesUnavailable

_LOOK: Final = 0.02  # s; between two looks at a lock that another process holds


@contextlib.contextmanager
def repository_lock(
    place: Path, stop: StopRequest, timeout: float, clock: Clock = SYSTEM_CLOCK
) -> Iterator[int]:
    """Hold the lock of the repository at `place`.

    Gives the open file. WorktreesUnavailable after `timeout` seconds.
    """
    opened = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        due = clock.now() + timeout
        while True:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if clock.now() >= due:
                    raise WorktreesUnavailable(
                        f"another process has kept the worktrees of {place} locked for {timeout:g} s"
                    ) from None
                stop.pause(_LOOK)
            else:
                break
        try:
            yield opened
        finally:
            # In words, not by closing: a child that still has the file open would keep it locked.
            fcntl.flock(opened, fcntl.LOCK_UN)
    finally:
        os.close(opened)


@dataclass(frozen=True, slots=True)
class OwnershipEntry:
    """A slot that is about to be made, or has been."""

    name: str
    """Unique; its directory's name, and git's name for it."""
    path: str
    slot: int
    pool: int
    """The number of its pool, and of the lock that the owner holds."""
    repository: str
    head: str | None
    """The commit it was made at; None if git doesn't know of it."""
    pid: int
    started: str
    """When the owner's process began, as the system tells it."""


class OwnershipLog:
    """The slots of one repository that may exist.

    Read and written only under the repository's lock.
    """

    def __init__(self, file: Path) -> None:
        """Reads and makes nothing yet."""
        self._file = file

    def entries(self) -> dict[str, OwnershipEntry]:
        """The slots that are not known to be gone, by name.

        What can't be read proves nothing, and is left out.
        """
        entries: dict[str, OwnershipEntry] = {}
        for line in self._lines():
            try:
                record = json.loads(line)
                if record.pop("event") == "gone":
                    entries.pop(record["name"], None)
                else:
                    entries[record["name"]] = OwnershipEntry(**record)
            except (
                ValueError,
                TypeError,
                KeyError,
                AttributeError,
            ):  # torn by a crash, or not ours
                continue
        return entries

    def add(self, entries: Iterable[OwnershipEntry]) -> None:
        """Record slots; they are on the disk when this returns."""
        self._append([{"event": "made", **asdict(entry)} for entry in entries])

    def drop(self, names: Iterable[str]) -> None:
        """Record that slots are gone; a ledger with nothing in it is removed."""
        gone = set(names)
        if self.entries().keys() - gone:
            self._append([{"event": "gone", "name": name} for name in sorted(gone)])
        else:
            self._file.unlink(missing_ok=True)

    def _lines(self) -> list[bytes]:
        try:
            return self._file.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []

    def _append(self, records: list[dict[str, object]]) -> None:
        opened = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with open(opened, "r+b", buffering=0) as file:  # noqa: PTH123 - it is open already
            torn = file.seek(0, os.SEEK_END) and os.pread(opened, 1, file.tell() - 1) != b"\n"
            text = "".join(json.dumps(record) + "\n" for record in records)
            file.write(b"\n" * bool(torn) + text.encode())
            os.fsync(opened)
        _sync_directory(self._file.parent)


def _sync_directory(place: Path) -> None:
    opened = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def start_of(pid: int) -> str | None:
    """What tells a process from a later one with its number; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None if os.path.exists("/proc/self/stat") else _start_by_ps(pid)  # noqa: PTH110
    # the name before it may have spaces
    return f"{boot}:{stat.rpartition(b')')[2].split()[19].decode()}"


def _start_by_ps(pid: int) -> str | None:
    """The same where there is no /proc."""
    asked = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, check=False
    )
    return asked.stdout.decode().strip() or None


def owner_is_alive(entry: OwnershipEntry) -> bool:
    """Whether the process that made the slot still goes on."""
    return start_of(entry.pid) == entry.started
