"""What is in a directory, as data: names, modes, and the digests of files.

A node makes a copy of a directory from it, with the files that it has from before; it asks the
driver only for files whose digest is new to it.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import stat
import zlib
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from abreast.worktrees.background import StopRequest
from abreast.worktrees.staging import FileState, remove_tree

_WRITABLE = 0o700  # of a directory while it is filled


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, link or directory."""

    kind: int  # `stat.S_IFREG`, `S_IFLNK` or `S_IFDIR`
    mode: int
    mtime_ns: int
    content: str = ""  # of a file the SHA-256 of its bytes, of a link its target
    size: int = 0  # bytes of a file

    def same_as(self, other: Entry | None) -> bool:
        """Whether both are the same but for their times."""
        return other is not None and (self.kind, self.mode, self.content) == (
            other.kind,
            other.mode,
            other.content,
        )


Content: TypeAlias = dict[str, Entry]
"""All that is beneath a directory, by name from its top, parents first. "" is the top itself."""


class ContentLister:
    """Lists directories; a file that has not changed since the last time is not read again."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[FileState, str]] = {}

    def list(self, top: Path, stop: StopRequest, without: Container[str] = ()) -> Content:
        """The content of a directory, but for some names; sockets and devices are left out."""
        found: Content = {}
        for name, path in _walk(top, without):
            stop.check()
            try:
                state = FileState.at(path)
                kind = stat.S_IFMT(state.mode)
                if kind == stat.S_IFREG:
                    content, size = self._digest(path, state), state.size
                else:
                    content, size = (os.readlink(path) if kind == stat.S_IFLNK else ""), 0  # noqa: PTH115 - a Path would forget "./"
            except FileNotFoundError:  # removed meanwhile
                continue
            if kind in {stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR}:
                found[name] = Entry(kind, stat.S_IMODE(state.mode), state.mtime_ns, content, size)
        return found

    def _digest(self, path: Path, state: FileState) -> str:
        known = self._known.get(str(path))
        if known is not None and known[0].proves_unchanged(state):
            return known[1]
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self._known[str(path)] = (state, digest)
        return digest


def _walk(top: Path, without: Container[str]) -> Iterator[tuple[str, Path]]:
    yield "", top
    waiting = [""]
    while waiting:
        above = waiting.pop()
        for entry in sorted(os.scandir(top / above), key=lambda one: one.name):
            name = f"{above}{entry.name}"
            if name not in without:
                yield name, Path(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{name}/")


def pack(content: Content) -> bytes:
    """The content as bytes to be sent."""
    return zlib.compress(pickle.dumps(content, pickle.HIGHEST_PROTOCOL), 1)


def unpack(data: bytes) -> Content:
    """The content that was packed."""
    content: Content = pickle.loads(zlib.decompress(data))  # noqa: S301 - from our driver
    return content


@dataclass(frozen=True, slots=True)
class Patch:
    """What has changed in a directory: entries with the bytes of files, and names that are gone."""

    written: tuple[tuple[str, Entry, bytes], ...] = ()
    removed: tuple[str, ...] = ()

    @classmethod
    def between(cls, before: Content, after: Content, top: Path) -> Patch:
        """What has changed since `before`; the files are read from `top`."""
        written = [
            (name, entry, (top / name).read_bytes() if entry.kind == stat.S_IFREG else b"")
            for name, entry in after.items()
            if not entry.same_as(before.get(name))
        ]
        return cls(tuple(written), tuple(before.keys() - after.keys()))

    def apply(self, top: Path) -> None:
        """Change the directory `top`, which is as it was before the patch.

        Raises ValueError if a name leads out of it; directories outside keep their modes.
        """
        named = [*(name for name, _, _ in self.written), *self.removed]
        above = {str(Path(name).parent) for name in named if _leads_inside(top, name)}
        with _made_writable(top, above):
            for name in sorted(self.removed, reverse=True):
                remove_tree(_inside(top, name))
            for name, entry, data in sorted(self.written, key=_name):
                make_entry(_inside(top, name), entry, data)
        for name, entry, _ in sorted(self.written, key=_name, reverse=True):
            place = _inside(top, name)
            if entry.kind == stat.S_IFDIR and not place.is_symlink():
                place.chmod(entry.mode)


@contextmanager
def _made_writable(top: Path, names: set[str]) -> Iterator[None]:
    """Within this context some directories are writable, if they exist."""
    modes = {
        place: stat.S_IMODE(place.stat().st_mode)
        for place in (top / name for name in sorted(names))
        if place.is_dir() and not place.is_symlink()
    }
    for place, mode in modes.items():
        place.chmod(mode | _WRITABLE)
    try:
        yield
    finally:
        for place, mode in modes.items():
            if place.is_dir() and not place.is_symlink():
                place.chmod(mode)


def _name(written: tuple[str, Entry, bytes]) -> str:
    return written[0]


def _inside(top: Path, name: str) -> Path:
    """The path of a name that another machine sent; ValueError if it leads out of `top`."""
    parts = Path(name).parts
    if Path(name).is_absolute() or ".." in parts or ".git" in parts[:1]:
        raise ValueError(f"{name!r} is not in the worktree")
    if not _leads_inside(top, name):
        raise ValueError(f"{name!r} leads out of the worktree, by a symbolic link")
    return top / name


def _leads_inside(top: Path, name: str) -> bool:
    try:
        return (top / name).parent.resolve().is_relative_to(top.resolve())
    except (RuntimeError, OSError):  # links in a circle
        return False


def make_entry(path: Path, entry: Entry, data: bytes) -> None:
    """Make a file, link or directory in the place of what is there; a directory is writable."""
    is_directory = path.is_dir() and not path.is_symlink()
    if not is_directory or entry.kind != stat.S_IFDIR:
        remove_tree(path)
    if entry.kind == stat.S_IFDIR:
        path.mkdir(mode=_WRITABLE, exist_ok=True)
    elif entry.kind == stat.S_IFLNK:
        path.symlink_to(entry.content)
    else:
        path.write_bytes(data)
        path.chmod(entry.mode)
        os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns))
