"""The machine's lock: a process that measures is alone among all abreast processes on this machine.

Two locked files. The room is shared by processes that check behaviour, and held exclusively by one
that measures. Every process passes the door on its way in, and one that measures keeps it until the
room is empty: so a stream of checks can't starve it.

The files are in a directory with one literal path, not in `TMPDIR`: that differs between sessions, jobs and users.
It is `flock` rather than an abstract Unix socket: that can be shared or exclusive, ends with its process, and works on
a file that is only readable. So the first user creates the files, and others lock them without writing to them.
`/run/lock` is meant for this and is not cleaned by age; where it is not open to all users, `/tmp` is used.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from abreast.worktrees.background import StopRequest, aside

LOCKS_VARIABLE: Final = "ABREAST_LOCKS"
"""Another directory for the lock files: one that several containers of a machine share."""
_SHARED: Final = (Path("/run/lock"), Path("/tmp"))  # noqa: S108 - the same for all users, whatever their TMPDIR
_EVERYONE: Final = stat.S_ISVTX | stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO
_DOOR, _ROOM = "abreast-door.lock", "abreast-room.lock"
_RETRY_INTERVAL: Final = 0.02  # seconds between two attempts to lock a file


def machine_directories() -> list[Path]:
    """Where the lock files may be, the best place first: the same list for every process of this machine."""
    if chosen := os.environ.get(LOCKS_VARIABLE):
        return [Path(chosen)]
    return [place for place in _SHARED if _open_to_all(place)]


def _open_to_all(place: Path) -> bool:
    try:
        return stat.S_IMODE(place.stat().st_mode) & _EVERYONE == _EVERYONE
    except OSError:
        return False


@asynccontextmanager
async def machine(*, alone: bool) -> AsyncIterator[None]:
    """Hold the machine, shared or exclusively.

    Waits; when it is cancelled, it stops waiting at once.

    Where no lock file can be used at all (no directory can be written), it holds nothing and does
    not wait.
    """
    held = await aside(lambda stop: _enter(stop, alone=alone))
    try:
        yield
    finally:
        if held is not None:
            os.close(held)


def _enter(stop: StopRequest, *, alone: bool) -> int | None:
    for directory in machine_directories():
        try:
            door = _lock(directory / _DOOR, fcntl.LOCK_EX, stop)
            try:
                return _lock(directory / _ROOM, fcntl.LOCK_EX if alone else fcntl.LOCK_SH, stop)
            finally:
                os.close(door)
        except OSError:  # it can't be written, or something that is no lock file has its name
            continue
    return None


def _lock(path: Path, how: int, stop: StopRequest) -> int:
    while True:
        opened = _open(path)
        try:
            while not _try_lock(opened, how):
                stop.pause(_RETRY_INTERVAL)
            if _is_still(path, opened):
                return opened
        except BaseException:
            os.close(opened)
            raise
        os.close(
            opened
            # removed while we waited, by a cleaner: the lock of a file without a name excludes nobody
        )


def _open(path: Path) -> int:
    """The lock file, made if need be.

    OSError for a link, a device, a directory, or where it can't be made.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        try:
            # Without O_CREAT first: Linux refuses it for another user's file in a directory like
            # /tmp.
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


def _try_lock(opened: int, how: int) -> bool:
    try:
        fcntl.flock(opened, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_still(path: Path, opened: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(opened))
    except FileNotFoundError:
        return False
