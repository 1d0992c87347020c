"""What a node keeps of the files it was sent, and the directories that it works in.

CACHE/nodes/files/ab/cdef...    files by the SHA-256 of their bytes, read-only
CACHE/nodes/objects/DIGEST/     git's object directories, of hard links to those files
CACHE/nodes/work/NAME/          the copy of a slot, while work is done in it
CACHE/nodes/work/NAME.lock      held by the process that works there
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from abreast.core.clock import SYSTEM_CLOCK
from abreast.worktrees.background import StopRequest
from abreast.worktrees.nodes.content import Content, make_entry
from abreast.worktrees.staging import copy_bytes, remove_tree

KEEP_SECONDS = 7 * 86_400.0  # what was not used for so long is removed
_TOUCH_SECONDS = 86_400.0  # a use is noted that long after the last note


class NodeCache:
    """The cache of one machine; several processes may use it at once."""

    def __init__(self, place: Path) -> None:
        """`place` is made when it is needed."""
        self.place = place
        self._files = place / "files"

    def file(self, digest: str) -> Path:
        """Where the file with that digest is, or would be."""
        return self._files / digest[:2] / digest[2:]

    def has(self, digest: str) -> bool:
        """Whether it has a file; notes that it is used."""
        path = self.file(digest)
        try:
            age = SYSTEM_CLOCK.wall() - path.stat().st_mtime
            if age > _TOUCH_SECONDS:
                os.utime(path)
        except FileNotFoundError:
            return False
        return True

    @contextmanager
    def adding(self, digest: str) -> Iterator[BinaryIO]:
        """A file to be written within this context; ValueError if it has other bytes then."""
        path = self.file(digest)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
        writing = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
        try:
            with open(writing, "w+b") as file:  # noqa: PTH123 - a descriptor
                yield file
                file.seek(0)
                if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                    raise ValueError("a file of the driver has changed while it was sent")
            part.rename(path)
        finally:
            part.unlink(missing_ok=True)

    def fill(self, content: Content, top: Path, stop: StopRequest) -> None:
        """Make a copy of a directory at `top`, which does not exist; it must have all files."""
        for name, entry in content.items():
            stop.check()
            path = top / name
            if entry.kind == stat.S_IFREG:
                copy_bytes(self.file(entry.content), path, mode=entry.mode)
            else:
                make_entry(path, entry, b"")
            if entry.kind != stat.S_IFDIR:
                times = (entry.mtime_ns, entry.mtime_ns)
                os.utime(path, ns=times, follow_symlinks=False)
        for name, entry in reversed(content.items()):
            if entry.kind == stat.S_IFDIR:
                (top / name).chmod(entry.mode)
                os.utime(top / name, ns=(entry.mtime_ns, entry.mtime_ns))

    def objects(self, content: Content, stop: StopRequest) -> Path:
        """A directory of git's objects, which nothing writes to; it must have all files."""
        digest = hashlib.sha256(repr(sorted(content.items())).encode()).hexdigest()
        place = self.place / "objects" / digest
        if place.is_dir():
            os.utime(place)
            return place
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = place.with_name(f"{digest}.{secrets.token_hex(4)}.part")
        try:
            for name, entry in content.items():
                stop.check()
                if entry.kind == stat.S_IFDIR:
                    (part / name).mkdir(mode=0o700)
                elif entry.kind == stat.S_IFREG:
                    (part / name).hardlink_to(self.file(entry.content))
            with suppress(OSError):  # another process has made it
                part.rename(place)
        finally:
            remove_tree(part)
        return place

    @contextmanager
    def workplace(self) -> Iterator[Path]:
        """A new directory, removed with this context; what dead processes left is removed now."""
        home = self.place / "work"
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._remove_leftovers(home)
        place = home / f"{os.getpid()}-{secrets.token_hex(4)}"
        with _locked(place.with_suffix(".lock")):
            place.mkdir(mode=0o700)
            try:
                yield place
            finally:
                remove_tree(place)

    def _remove_leftovers(self, home: Path) -> None:
        for lock in home.glob("*.lock"):
            with suppress(BlockingIOError, FileNotFoundError), _locked(lock, create=False):
                remove_tree(lock.with_suffix(""))
        oldest = SYSTEM_CLOCK.wall() - KEEP_SECONDS
        for place in (self.place / "objects").glob("*"):
            with suppress(OSError):
                if place.stat().st_mtime < oldest:
                    shutil.rmtree(place)
        swept = self.place / "swept"
        with suppress(FileNotFoundError):
            if swept.stat().st_mtime > SYSTEM_CLOCK.wall() - _TOUCH_SECONDS:
                return
        swept.touch()
        for path in self._files.glob("*/*"):
            with suppress(OSError):
                facts = path.stat()
                if facts.st_mtime < oldest and facts.st_nlink == 1:
                    path.unlink()


@contextmanager
def _locked(path: Path, *, create: bool = True) -> Iterator[None]:
    """Hold a lock file, and remove it. Raises BlockingIOError if another process holds it."""
    while True:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        file = os.open(path, flags, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have removed it between the two lines above.
            if path.exists() and os.fstat(file).st_ino == path.stat().st_ino:
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return
        finally:
            os.close(file)
