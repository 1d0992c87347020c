"""The ownership log: which worktrees belong to abreast, and to which process.

A line is written to the disk before a worktree is made, and another one when it is removed.

A repository has one log, in the user's cache directory, and one lock, which every git command on
worktrees holds. The lock is on the git directory itself: so processes with different caches respect
it too, and no lock file is left behind.

A slot is stale if its owner is dead: no process holds its pool's lock, and none has the owner's
pid and start time.
"""

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

_LOCK_POLL_INTERVAL: Final = 0.02  # seconds between two attempts to take the lock


@contextlib.contextmanager
def repository_lock(
    place: Path, stop: StopRequest, timeout: float, clock: Clock = SYSTEM_CLOCK
) -> Iterator[int]:
    """Hold the lock of the repository at `place`; yields the open file.

    Raises WorktreesUnavailable after `timeout` seconds.
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
                        f"another process has kept the worktrees of {place} "
                        f"locked for {timeout:g} s"
                    ) from None
                stop.pause(_LOCK_POLL_INTERVAL)
            else:
                break
        try:
            yield opened
        finally:
            # Unlock explicitly: closing is not enough while a child still has the file open.
            fcntl.flock(opened, fcntl.LOCK_UN)
    finally:
        os.close(opened)


@dataclass(frozen=True, slots=True)
class OwnershipEntry:
    """A slot that is about to be made, or has been."""

    name: str  # the unique name of its directory, which is also git's name for it
    path: str
    slot: int
    pool: int  # the number of its pool, and of the lock that the owner holds
    repository: str
    head: str | None  # the commit it was made at; None if it is not registered with git
    pid: int
    started: str  # the start time of the owner's process, as `process_start` returns it


@dataclass(frozen=True, slots=True)
class OwnershipLog:
    """The slots of one repository that may exist.

    Written only under the repository's lock. A reader without it may miss the newest line.
    """

    file: Path

    def entries(self) -> dict[str, OwnershipEntry]:
        """The slots that are not recorded as removed, by name.

        Lines that can't be read are left out.
        """
        entries: dict[str, OwnershipEntry] = {}
        for line in self.file.read_bytes().split(b"\n") if self.file.exists() else ():
            try:
                record = json.loads(line)
                if record.pop("event") == "gone":
                    entries.pop(record["name"], None)
                else:
                    entries[record["name"]] = OwnershipEntry(**record)
            except (ValueError, TypeError, KeyError, AttributeError):
                continue  # truncated by a crash, or not written by abreast
        return entries

    def add(self, entries: Iterable[OwnershipEntry]) -> None:
        """Record slots; the record is on the disk when this returns."""
        self._append([{"event": "made", **asdict(entry)} for entry in entries])

    def drop(self, names: Iterable[str]) -> None:
        """Record that slots are removed; a log without remaining slots is deleted."""
        gone = set(names)
        if self.entries().keys() - gone:
            self._append([{"event": "gone", "name": name} for name in sorted(gone)])
        else:
            self.file.unlink(missing_ok=True)

    def _append(self, records: list[dict[str, object]]) -> None:
        opened = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with open(opened, "r+b", buffering=0) as file:  # noqa: PTH123 - opens a descriptor
            truncated = file.seek(0, os.SEEK_END) and os.pread(opened, 1, file.tell() - 1) != b"\n"
            text = "".join(json.dumps(record) + "\n" for record in records)
            file.write(b"\n" * bool(truncated) + text.encode())
            os.fsync(opened)
        _sync_directory(self.file.parent)


def _sync_directory(place: Path) -> None:
    opened = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def process_start(pid: int) -> str | None:
    """Identifies a process among all that ever have its pid; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        if os.path.exists("/proc/self/stat"):  # noqa: PTH110 - replaced in a test
            return None
        listed = subprocess.run(
            ["ps", "-o", "lstart=", "-p", str(pid)],  # noqa: S607 - its directory differs by system
            capture_output=True,
            check=False,
        )
        return listed.stdout.decode().strip() or None
    # The start time is field 22. Field 2, the name in parentheses, may contain spaces.
    return f"{boot}:{stat.rpartition(b')')[2].split()[19].decode()}"


def owner_is_alive(entry: OwnershipEntry) -> bool:
    """Whether the process that made the slot still runs."""
    return process_start(entry.pid) == entry.started
