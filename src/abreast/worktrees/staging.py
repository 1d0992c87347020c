"""A snapshot of the working tree as it is now, from which slots are made and reset.

The files are copied once, with their bytes and modes, small ones into memory; slots are made from
that copy. Git only lists the files: tracked ones that exist, changed or not, staged or not;
untracked ones that are not ignored; and, on request, ignored ones
(`abreast.worktrees.ignored_files` chooses among those).
Nothing goes through git's filters or into its object database: a checkout would convert line ends
(`core.autocrlf`), fetch large files and lose what a commit does not record. The repository gains no
object, ref, stash or index entry.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple

from abreast.core.clock import SYSTEM_CLOCK
from abreast.worktrees.background import StopRequest
from abreast.worktrees.errors import WorktreesUnavailable
from abreast.worktrees.git import Git, Repository
from abreast.worktrees.ignored_files import is_code

_SUBMODULE: Final = b"160000"
_SYSTEM_PATH: Final = "/usr/bin:/bin"
_CHUNK_BYTES: Final = 1 << 20
# Nanoseconds. The clock of a file system may be as coarse: a change right after a file was examined
# can leave its times as they are.
_TIMESTAMP_GRANULARITY: Final = 50_000_000
_COPY_ATTEMPTS: Final = 3  # for a file that another process is writing
# Most files of a project are small, and to make, open and remove a file takes longer than to copy a
# few pages: so small ones are kept in memory instead of in files, up to so many bytes in all.
MEMORY_BYTES: Final = 48 << 20
_SMALL_BYTES: Final = 64 << 10


class FileState(NamedTuple):
    """The metadata of a file at some moment; any change to the file changes its `ctime`.

    A tuple, as every reset of a slot makes two for each of its files.
    """

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    mode: int
    # Whether its last change was older than a clock tick; if not, equal states prove nothing.
    settled: bool

    @classmethod
    def at(cls, path: Path) -> FileState:
        """The state of the file at `path` now."""
        return cls.of(path.lstat(), SYSTEM_CLOCK.wall())

    @classmethod
    def of(cls, facts: os.stat_result, wall: float) -> FileState:
        """The state by what `lstat` returned; nothing has changed the file until `wall`, seconds.

        A change after that has a later `ctime` if the last change was settled by then.
        """
        settled = wall * 1e9 - facts.st_ctime_ns > _TIMESTAMP_GRANULARITY
        return cls(
            facts.st_ino,
            facts.st_size,
            facts.st_mtime_ns,
            facts.st_ctime_ns,
            facts.st_mode,
            settled,
        )

    def proves_unchanged(self, now: FileState) -> bool:
        """Whether a file that has the state `now` is certainly unchanged."""
        return self.settled and self == now


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a working tree, by name from its top, and notes on those left out."""

    names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    # The entries of git's index, as `git update-index -z --index-info` takes them.
    index: bytes = b""
    ignored: tuple[str, ...] = ()  # ignored files that are taken as well


@dataclass(frozen=True, slots=True)
class Piece:
    """One file, link or directory of a snapshot."""

    kind: int  # `stat.S_IFREG`, `S_IFLNK` or `S_IFDIR`
    mode: int
    mtime_ns: int
    target: str = ""  # of a link: its target, as written in the link


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of a working tree; `pieces` by name from the top, parents first.

    Files are at `place`, except those whose bytes are in `contents`.
    """

    place: Path
    pieces: dict[str, Piece]
    notes: tuple[str, ...] = ()
    index: bytes = b""
    # The pieces that are ignored files, or directories that hold only such files.
    ignored: frozenset[str] = frozenset()
    contents: Mapping[str, bytes] = field(default_factory=dict)

    def has_content(self, name: str, path: Path) -> bool:
        """Whether the file at `path` has the bytes of the file `name`, and only one name.

        A file with a second name (a hard link) may change through it.
        """
        facts, kept = path.lstat(), self.contents.get(name)
        if facts.st_nlink != 1:
            return False
        if kept is not None:
            return facts.st_size == len(kept) and path.read_bytes() == kept
        other = self.place / name
        return facts.st_size == other.lstat().st_size and _same_bytes(path, other)

    def digest(self) -> str:
        """A digest of the content: names, types, modes and bytes, but not times.

        Ignored files are not included: logs and the like change all the time.
        """
        return self._digest_of(self.pieces.keys() - self.ignored)

    def ignored_digest(self) -> str:
        """A digest of the ignored files that may be imported, such as built extensions.

        Empty if there are none.
        """
        names = {name for name in self.ignored if is_code(name)}
        return self._digest_of(names) if names else ""

    def _digest_of(self, names: Iterable[str]) -> str:
        whole = hashlib.sha256()
        for name in sorted(names):
            piece = self.pieces[name]
            path, target = os.fsencode(name), os.fsencode(piece.target)
            whole.update(f"{len(path)}:{piece.kind:o}:{piece.mode:o}:{len(target)}:".encode())
            whole.update(path + target)
            if (kept := self.contents.get(name)) is not None:
                whole.update(hashlib.sha256(kept).digest())
            elif piece.kind == stat.S_IFREG:
                with open(f"{self.place}/{name}", "rb") as file:
                    whole.update(hashlib.file_digest(file, "sha256").digest())
        return whole.hexdigest()


def list_tree(repository: Repository, git: Git) -> Listing:
    """List what belongs to the working tree of a repository, or of a plain directory."""
    if repository.common is None:
        return Listing(*_walk(repository.top))
    index = git("ls-files", "-z", "--stage")
    names: set[bytes] = set()
    notes: list[str] = []
    for line in filter(None, index.split(b"\0")):
        facts, _, name = line.partition(b"\t")
        if facts.startswith(_SUBMODULE):
            notes.append(f"{os.fsdecode(name)}: a submodule, left empty in the slots")
        else:
            names.add(name)
    for name in filter(None, git("ls-files", "-z", "--others", "--exclude-standard").split(b"\0")):
        if name.endswith(b"/"):
            notes.append(f"{os.fsdecode(name)}: a repository of its own, left out of the slots")
        else:
            names.add(name)
    return Listing(tuple(sorted(map(os.fsdecode, names))), tuple(notes), index)


def _walk(top: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """All names beneath a plain directory, with empty directories, and what can't be copied."""
    names: list[str] = []
    notes: list[str] = []
    waiting = [""]
    while waiting:
        above = waiting.pop()
        for entry in os.scandir(top / above):
            name = f"{above}{entry.name}"
            if entry.name == ".git":
                notes.append(f"{name}: left out of the slots")
            elif entry.is_symlink() or entry.is_file() or entry.is_dir():
                names.append(name)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{name}/")
            else:
                notes.append(f"{name}: neither a file nor a link, left out of the slots")
    return tuple(sorted(names)), tuple(notes)


@dataclass(slots=True)
class _Memory:
    """The contents that are kept in memory, and how many bytes more may be."""

    room: int
    contents: dict[str, bytes] = field(default_factory=dict)

    def keep(self, name: str, source: str) -> bool:
        """Read a file; returns False if it is not small, or if there is no room."""
        self.forget(name)
        if self.room <= 0:
            return False
        reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            content = os.read(reading, _SMALL_BYTES + 1)
            if len(content) > min(_SMALL_BYTES, self.room) or os.read(reading, 1):
                return False
        finally:
            os.close(reading)
        self.contents[name] = content
        self.room -= len(content)
        return True

    def forget(self, name: str) -> None:
        self.room += len(self.contents.pop(name, b""))


def take_snapshot(
    repository: Repository, listing: Listing, place: Path, stop: StopRequest, memory: int = 0
) -> Snapshot:
    """Copy the listed files to `place`, a new directory, or keep up to `memory` bytes of them.

    A listed file that does not exist has been deleted, and is skipped.
    """
    place.mkdir(mode=0o700)
    kept = _Memory(memory)
    top, copy = str(repository.top), str(place)
    pieces: dict[str, Piece] = {"": _piece(top)}
    notes = list(listing.notes)
    for ignored, names in ((False, listing.names), (True, listing.ignored)):
        known = frozenset(pieces)
        for name in names:
            stop.check()
            try:
                if _has_parents(top, copy, name, pieces):
                    _copy_piece(f"{top}/{name}", f"{copy}/{name}", name, pieces, kept)
            except FileNotFoundError:
                continue
            except OSError as error:
                if not ignored:
                    raise WorktreesUnavailable(
                        f"{repository.top / name} can't be copied: {error.strerror}"
                    ) from error
                # The project itself does not need it.
                (place / name).unlink(missing_ok=True)
                kept.forget(name)
                notes.append(
                    f"{name}: an ignored file that can't be copied ({error.strerror}), "
                    "left out of the slots"
                )
    ignored_names = frozenset(pieces.keys() - known)
    return Snapshot(place, pieces, tuple(notes), listing.index, ignored_names, kept.contents)


def _has_parents(top: str, copy: str, name: str, pieces: dict[str, Piece]) -> bool:
    """Record and make the directories above `name`; returns whether all of them are directories.

    A link in the place of one would lead elsewhere.
    """
    above = name.rpartition("/")[0]
    known = pieces.get(above)
    if known is not None:
        return known.kind == stat.S_IFDIR
    if not _has_parents(top, copy, above, pieces):
        return False
    piece = _piece(f"{top}/{above}")
    if piece.kind != stat.S_IFDIR:
        return False
    _make_directory(f"{copy}/{above}")
    pieces[above] = piece
    return True


def _piece(path: str) -> Piece:
    facts = os.lstat(path)
    kind = stat.S_IFMT(facts.st_mode)
    target = os.readlink(path) if kind == stat.S_IFLNK else ""
    return Piece(kind, stat.S_IMODE(facts.st_mode), facts.st_mtime_ns, target)


def _copy_piece(
    source: str, target: str, name: str, pieces: dict[str, Piece], memory: _Memory
) -> None:
    piece = _piece(source)
    if piece.kind == stat.S_IFREG:
        for _ in range(_COPY_ATTEMPTS + 1):  # the last copy is as good as any other
            with contextlib.suppress(FileNotFoundError):
                os.unlink(target)
            if not memory.keep(name, source):
                copy_bytes(source, target)
            before, piece = piece, _piece(source)
            if before == piece:
                break
    elif piece.kind == stat.S_IFDIR and name not in pieces:
        _make_directory(target)
    if piece.kind in {stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR}:
        pieces.setdefault(name, piece)


def _make_directory(path: str) -> None:
    # Where two names differ by case alone, the file system may take them for one.
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)


def copy_bytes(
    source: str | Path, target: str | Path, *, mode: int = 0o600, mtime_ns: int | None = None
) -> os.stat_result:
    """Copy a file's content into a new file; returns what `lstat` returns for that.

    Where the file system can share the blocks, it does.
    """
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _make_file(target, lambda writing: _copy_content(reading, writing), mode, mtime_ns)
    finally:
        os.close(reading)


def _make_file(
    path: str | Path, fill: Callable[[int], None], mode: int, mtime_ns: int | None
) -> os.stat_result:
    """Make a new file and have it filled; returns what `lstat` returns for it."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    writing = os.open(path, flags, mode & 0o777)
    try:
        fill(writing)
        if mtime_ns is not None:
            os.utime(writing, ns=(mtime_ns, mtime_ns))
        facts = os.fstat(writing)
        if stat.S_IMODE(facts.st_mode) != mode:  # the umask took some of it
            os.fchmod(writing, mode)
            facts = os.fstat(writing)
        return facts
    finally:
        os.close(writing)


def _write_all(writing: int, content: bytes) -> None:
    while content:
        content = content[os.write(writing, content) :]


def _copy_content(reading: int, writing: int) -> None:
    try:
        while os.copy_file_range(reading, writing, 1 << 30):
            pass
    except (AttributeError, OSError):  # another file system or operating system
        with open(reading, "rb", closefd=False) as source, open(writing, "wb", closefd=False) as to:
            shutil.copyfileobj(source, to, _CHUNK_BYTES)


def make_piece(snapshot: Snapshot, name: str, path: str) -> os.stat_result:
    """Make a file, link or directory of the snapshot at `path`, where nothing exists.

    Returns what `lstat` returns for it. A directory is made writable, so that it can be filled; see
    `finish_directories`.
    """
    piece = snapshot.pieces[name]
    if piece.kind == stat.S_IFREG:
        kept = snapshot.contents.get(name)
        if kept is not None:
            return _make_file(path, lambda to: _write_all(to, kept), piece.mode, piece.mtime_ns)
        source = f"{snapshot.place}/{name}"
        return copy_bytes(source, path, mode=piece.mode, mtime_ns=piece.mtime_ns)
    if piece.kind == stat.S_IFDIR:
        os.mkdir(path, 0o700)
    else:
        os.symlink(piece.target, path)
        os.utime(path, ns=(piece.mtime_ns, piece.mtime_ns), follow_symlinks=False)
    return os.lstat(path)


def _same_bytes(one: Path, other: Path, chunk: int = _CHUNK_BYTES) -> bool:
    with one.open("rb") as first, other.open("rb") as second:
        while block := first.read(chunk):
            if block != second.read(chunk):
                return False
        return not second.read(1)


def finish_directories(snapshot: Snapshot, top: str) -> None:
    """Give directories their modes and times, the deepest first.

    This is the last step, as a read-only directory can't be filled.
    """
    for name, piece in sorted(snapshot.pieces.items(), key=itemgetter(0), reverse=True):
        if piece.kind == stat.S_IFDIR:
            path = f"{top}/{name}"
            facts = os.lstat(path)
            if (stat.S_IMODE(facts.st_mode), facts.st_mtime_ns) != (piece.mode, piece.mtime_ns):
                os.chmod(path, piece.mode)
                os.utime(path, ns=(piece.mtime_ns, piece.mtime_ns))


def remove_tree(path: Path) -> None:
    """Remove a directory and all in it, also read-only directories.

    Does nothing if it does not exist. Follows no link.
    """
    try:
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
        else:
            shutil.rmtree(path)
    except (OSError, RecursionError):
        _force_remove(path)


def _force_remove(path: Path) -> None:
    """Remove a tree by `find` and `rm`, where Python fails.

    It fails for directories without permission to enter and for those nested thousands deep. Only
    directories are made writable: a file need not be writable to be removed, and may have another
    name (a hard link) in the main tree.
    """
    name = str(path)
    closed = ["-type", "d", "!", "-perm", "-u+rwx"]
    for words in (
        ["find", name, *closed, "-execdir", "chmod", "u+rwx", "{}", ";"],
        ["rm", "-rf", "--", name],
    ):
        # PATH is fixed, as `-execdir` refuses to work with a relative directory in it.
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            env={"PATH": _SYSTEM_PATH},
        )
    if os.path.lexists(path):
        reason = done.stderr.decode(errors="replace").strip().splitlines() or ["it is still there"]
        raise OSError(f"{path} can't be removed: {reason[0]}")
