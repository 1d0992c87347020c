"""A machine-wide lock, by which only one abreast process measures times at once.

There are two lock files. The usage lock is shared by processes that check behaviour, and held
exclusively by one that measures. Every process takes the entry lock first; one that measures holds
it until the usage lock is free, so that a stream of checks can't starve it.

The files are in a directory with one literal path, not in `TMPDIR`, which differs between sessions,
jobs and users. It is `flock` rather than an abstract Unix socket: a `flock` can be shared or
exclusive, ends with its process, and works on a file that is only readable. So the first user
creates the files, and others lock them without writing to them. `/run/lock` is meant for this and
is not cleaned by age; where it is not writable for all users, `/tmp` is used.
"""

import fcntl
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from abreast.worktrees.background import StopRequest, run_in_thread

# Another directory for the lock files: one that several containers of a machine share.
LOCKS_VARIABLE: Final = "ABREAST_LOCKS"
_LOCK_DIRECTORIES: Final = (Path("/run/lock"), Path("/tmp"))  # noqa: S108 - the same for all users
_STICKY_AND_OPEN: Final = stat.S_ISVTX | stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO
_ENTRY_LOCK, _USAGE_LOCK = "abreast-door.lock", "abreast-room.lock"
_RETRY_INTERVAL: Final = 0.02  # seconds between two attempts to lock a file


def machine_directories() -> list[Path]:
    """Directories for the lock files, best first; the same for every process of this machine."""
    if chosen := os.environ.get(LOCKS_VARIABLE):
        return [Path(chosen)]
    return [place for place in _LOCK_DIRECTORIES if _is_open_to_all(place)]


def _is_open_to_all(place: Path) -> bool:
    try:
        return stat.S_IMODE(place.stat().st_mode) & _STICKY_AND_OPEN == _STICKY_AND_OPEN
    except OSError:
        return False


@asynccontextmanager
async def machine(*, alone: bool) -> AsyncIterator[None]:
    """Hold the machine's lock, exclusively if `alone`, else shared.

    Waits for it; when it is cancelled, it stops waiting at once. Where no lock file can be used
    (no directory is writable), it holds nothing and does not wait.
    """
    held = await run_in_thread(lambda stop: _acquire(stop, alone=alone))
    try:
        yield
    finally:
        if held is not None:
            os.close(held)


def _acquire(stop: StopRequest, *, alone: bool) -> int | None:
    for directory in machine_directories():
        try:
            entry = _lock(directory / _ENTRY_LOCK, fcntl.LOCK_EX, stop)
            try:
                operation = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
                return _lock(directory / _USAGE_LOCK, operation, stop)
            finally:
                os.close(entry)
        except (
            OSError
        ):  # it can't be created, or its name belongs to something that is no lock file
            continue
    return None


def _lock(path: Path, operation: int, stop: StopRequest) -> int:
    while True:
        opened = _open(path)
        try:
            while not _try_lock(opened, operation):
                stop.pause(_RETRY_INTERVAL)
            with suppress(FileNotFoundError):
                if os.path.samestat(path.lstat(), os.fstat(opened)):
                    return opened
        except BaseException:
            os.close(opened)
            raise
        # A cleaner has removed it while we waited: a file without a name can't exclude others.
        os.close(opened)


def _open(path: Path) -> int:
    """Open the lock file; it is created if it does not exist.

    Raises OSError for a link, a device or a directory, or if it can't be created.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        try:
            # First without O_CREAT, which Linux refuses for another user's file in a directory
            # like /tmp.
            opened = os.open(path, flags)
        except FileNotFoundError:
            try:
                opened = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
                os.fchmod(opened, 0o644)  # readable for others, whatever the umask
            except FileExistsError:
                continue
        if stat.S_ISREG(os.fstat(opened).st_mode):
            return opened
        os.close(opened)
        raise OSError(f"{path} is no lock file")


def _try_lock(opened: int, operation: int) -> bool:
    try:
        fcntl.flock(opened, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
