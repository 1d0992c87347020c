"""Who drives a run, held by the operating system: a lock that ends with its process, however that ends."""

from __future__ import annotations

import fcntl
import os
import threading
import weakref
from pathlib import Path
from typing import Final


class DriverLocks:
    """The driver locks one store holds: one file per run, in a directory beside the database.

    `flock` belongs to the open file, so a second taker in the same process is refused like one in another.
    """

    def __init__(self, directory: str) -> None:
        """Make nothing yet: a store that only reads leaves no directory behind."""
        self._directory = Path(directory)
        self._guard = threading.Lock()
        self._held: dict[int, int] = {}  # the run's number -> the open file that holds its lock
        _EVERY.add(self)

    def take(self, number: int) -> bool:
        """Take the lock of a run; False, at once, while another has it."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        path = self.path(number)
        while True:
            opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                current = _is_at(opened, path)
            except BlockingIOError:
                os.close(opened)
                return False
            except BaseException:
                os.close(opened)
                raise
            if current:
                with self._guard:
                    self._held[number] = opened
                return True
            os.close(opened)  # its last holder unlinked the file between our open and our lock: lock the one there now

    def is_taken(self, number: int) -> bool:
        """Whether anyone has the lock; looking takes it for a moment only where nobody does."""
        if number in self._held:
            return True
        if not self.path(number).exists():
            return False
        if not self.take(number):
            return True
        self.free(number)
        return False

    def free(self, number: int, *, for_good: bool = False) -> None:
        """Let go of a run's lock, harmless when it isn't held; `for_good` removes its file too."""
        with self._guard:
            opened = self._held.pop(number, None)
        if opened is None:
            return
        if for_good:
            # While it is still locked, so that nobody else can lock a file that is going.
            self.path(number).unlink(missing_ok=True)
        os.close(opened)

    def file(self, number: int) -> int:
        """The open file that holds the lock of a run; what is in it is for its driver to say."""
        return self._held[number]

    def path(self, number: int) -> Path:
        """Where the lock of a run is, or would be."""
        return self._directory / f"{number}.lock"

    def written_in(self) -> list[int]:
        """Numbers of the runs in whose file something stands: they are driven, or their driver was killed."""
        try:
            with os.scandir(self._directory) as found:
                written = [Path(entry.name) for entry in found if entry.name.endswith(".lock") and entry.stat().st_size]
        except OSError:  # no directory, or not ours to look into
            return []
        return sorted(int(name.stem) for name in written if name.stem.isdecimal())

    def close(self) -> None:
        """Let go of all of them."""
        for number in list(self._held):
            self.free(number)

    def forget(self) -> None:
        """In a forked child: the locks are the parent's, and must not outlive it because a child does."""
        for opened in self._held.values():
            os.close(opened)
        self._held.clear()


def _is_at(opened: int, path: Path) -> bool:
    """Whether the open file is the one that `path` names."""
    try:
        return os.path.samestat(os.fstat(opened), path.stat())
    except FileNotFoundError:
        return False


def _forget_all() -> None:
    for locks in tuple(_EVERY):
        locks.forget()


# The one registry there has to be: a fork copies every open file, and with it every lock, wherever it is kept.
_EVERY: Final[weakref.WeakSet[DriverLocks]] = weakref.WeakSet()
os.register_at_fork(after_in_child=_forget_all)
