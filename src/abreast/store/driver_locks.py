"""Who drives a run, held by the operating system: a lock that ends with its process, however that ends."""

from __future__ import annotations

import fcntl
import os
import threading
import weakref
from pathlib import Path
from typing import Final

_DIGITS: Final = 7  # of the number of a run, at most, whose file is looked into


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
            os.close(
                opened
                # its last holder unlinked the file between our open and our lock: lock the one there
                # now
            )

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
        """Let go of a run's lock, harmless when it isn't held.

        An empty file goes too, any with `for_good`.
        """
        with self._guard:
            opened = self._held.pop(number, None)
        if opened is None:
            return
        try:
            # While it is still locked, so that nobody else can lock a file that is going.
            if (for_good or not os.fstat(opened).st_size) and _is_at(opened, self.path(number)):
                self.path(number).unlink()
        except OSError:  # not ours to remove: it does no harm there
            pass
        finally:
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
            stems = [file.stem for file in self._directory.iterdir() if file.suffix == ".lock"]
        except OSError:  # no directory, or not ours to look into
            return []
        numbers = sorted(int(stem) for stem in stems if stem.isdecimal() and len(stem) <= _DIGITS)
        return [number for number in numbers if _size(self.path(number))]

    def close(self) -> None:
        """Let go of all of them."""
        for number in list(self._held):
            self.free(number)

    def forget(self) -> None:
        """In a forked child: the locks are the parent's, and must not outlive it because a child does."""
        for opened in self._held.values():
            os.close(opened)
        self._held.clear()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # its run has ended meanwhile
        return 0


def _is_at(opened: int, path: Path) -> bool:
    """Whether the open file is the one that `path` names."""
    try:
        return os.path.samestat(os.fstat(opened), path.stat())
    except FileNotFoundError:
        return False


def _forget_all() -> None:
    for locks in tuple(_EVERY):
        locks.forget()


# The one registry there has to be: a fork copies every open file, and with it every lock, wherever
# it is kept.
_EVERY: Final[weakref.WeakSet[DriverLocks]] = weakref.WeakSet()
os.register_at_fork(after_in_child=_forget_all)
