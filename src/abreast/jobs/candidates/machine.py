"""The machine to itself: who measures is alone among all processes of abreast that this user runs here.

Two locked files. The room is shared by those who check behaviour, and taken whole by who measures. The door is passed
by everybody on the way in, and kept by who measures until the room is empty: so a stream of checks can't starve it.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from abreast.worktrees.aside import Stop, aside

_EVERY: Final = 0.02  # s; between two tries, while another measures


def machine_directory() -> Path:
    """Where the locks of this user are on this machine."""
    return Path(tempfile.gettempdir()) / f"abreast-{os.getuid()}"


@asynccontextmanager
async def machine(*, alone: bool) -> AsyncIterator[None]:
    """Be in the room: with others, or alone. Waits; cancelled, at once it doesn't."""
    held = await aside(lambda stop: _enter(stop, alone=alone))
    try:
        yield
    finally:
        os.close(held)


def _enter(stop: Stop, *, alone: bool) -> int:
    directory = machine_directory()
    directory.mkdir(mode=0o700, exist_ok=True)
    if directory.lstat().st_uid != os.getuid() or directory.is_symlink():
        raise PermissionError(f"{directory} is not ours")
    door = _locked(directory / "door.lock", fcntl.LOCK_EX, stop)
    try:
        return _locked(directory / "room.lock", fcntl.LOCK_EX if alone else fcntl.LOCK_SH, stop)
    finally:
        os.close(door)


def _locked(path: Path, how: int, stop: Stop) -> int:
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        while True:
            try:
                fcntl.flock(opened, how | fcntl.LOCK_NB)
            except BlockingIOError:
                stop.pause(_EVERY)
            else:
                return opened
    except BaseException:
        os.close(opened)
        raise
