"""Driver locks: `flock` on a file per run, which the system releases when the process ends."""

import fcntl
import os
import threading
import weakref
from pathlib import Path
from typing import Final

MAX_RUN_DIGITS: Final = 7  # files whose number has more digits are ignored


class DriverLocks:
    """The driver locks that one store holds: one file per run, in a directory beside the database.

    `flock` belongs to the open file, so a second driver in the same process is refused like one in
    another process.
    """

    def __init__(self, directory: str) -> None:
        """Create nothing yet: a store that only reads leaves no directory behind."""
        self._directory = Path(directory)
        self._guard = threading.Lock()
        self._held: dict[int, int] = {}  # the run's number -> the open file with its lock
        _ALL_LOCKS.add(self)

    def take(self, number: int) -> bool:
        """Take the lock of a run; False at once if another driver has it."""
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
            # The last holder removed the file between our open and our lock: lock the new one.
            os.close(opened)

    def is_taken(self, number: int) -> bool:
        """Whether a driver has the lock; to find out, a free lock is taken for a moment."""
        if number in self._held:
            return True
        is_free = not self.path(number).exists() or self.take(number)
        if is_free:
            self.free(number)
        return not is_free

    def free(self, number: int, *, for_good: bool = False) -> None:
        """Release a run's lock, if it is held.

        The file is removed if it is empty or with `for_good`.
        """
        with self._guard:
            opened = self._held.pop(number, None)
        if opened is None:
            return
        try:
            # While it is still locked, so that no other driver locks a file about to be removed.
            if (for_good or not os.fstat(opened).st_size) and _is_at(opened, self.path(number)):
                self.path(number).unlink()
        except OSError:  # it may not be removed by us, and does no harm there
            pass
        finally:
            os.close(opened)

    def empty(self, number: int) -> None:
        """Empty the file of a lock that is held."""
        os.ftruncate(self._held[number], 0)

    def path(self, number: int) -> Path:
        """The path of a run's lock file, whether it exists or not."""
        return self._directory / f"{number}.lock"

    def written_in(self) -> list[int]:
        """Numbers of runs whose file is not empty: their driver is one of an earlier version."""
        try:
            stems = [file.stem for file in self._directory.iterdir() if file.suffix == ".lock"]
        except OSError:  # no directory, or it may not be read
            return []
        numbers = sorted(
            int(stem) for stem in stems if stem.isdecimal() and len(stem) <= MAX_RUN_DIGITS
        )
        return [number for number in numbers if _file_size(self.path(number))]

    def close(self) -> None:
        """Release all locks."""
        for number in list(self._held):
            self.free(number)

    def forget(self) -> None:
        """In a forked child: close the files, so that the parent's locks end with the parent."""
        for opened in self._held.values():
            os.close(opened)
        self._held.clear()


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # the run has ended meanwhile
        return 0


def _is_at(opened: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(opened), path.stat())
    except FileNotFoundError:
        return False


def _forget_all() -> None:
    for locks in tuple(_ALL_LOCKS):
        locks.forget()


# A registry of the whole process is needed here: a fork copies every open file of every store, and
# with it every lock.
_ALL_LOCKS: Final[weakref.WeakSet[DriverLocks]] = weakref.WeakSet()
os.register_at_fork(after_in_child=_forget_all)
