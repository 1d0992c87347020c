"""Writes a merge into the source tree: all of it, or nothing.

    1 every new content is written beside the tree, in `.abreast/apply-*`, and a journal of what is to happen
    2 each old file is moved there, and looked at once more: an editor may have been quicker
    3 each new file is moved to its place
    4 the journal is renamed: now it is done

Whatever fails before 4, a full disk or a Ctrl-C, is taken back by the journal at once. After a kill, `recover` does it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

from abreast.jobs.plan.errors import ApplyInterrupted, MergeBlocked, SourceChanged
from abreast.jobs.plan.merge import Merged, Strategy
from abreast.jobs.plan.snapshots import EXECUTABLE, LINK, REGULAR, Changed, Entry, Snapshots

_STAGE: Final = "apply-"
_JOURNAL: Final = "journal.json"
_DONE: Final = "done.json"
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK})  # a file system without hard links
_READ: Final = 0o444
_ALL_EXECUTE: Final = 0o111


class Disk:
    """All that apply does to the tree before it is done: a test can let any of it fail."""

    def make_folder(self, place: Path) -> None:
        """A new directory."""
        place.mkdir()

    def write(self, place: Path, content: bytes) -> None:
        """A new file that survives a power cut."""
        with place.open("xb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())

    def link(self, place: Path, to: bytes) -> None:
        """A new symbolic link."""
        place.symlink_to(os.fsdecode(to))

    def set_mode(self, place: Path, mode: int) -> None:
        """The permissions of a file."""
        place.chmod(mode)

    def move(self, place: Path, to: Path) -> None:
        """Rename: it is at one of the two, at any moment."""
        place.rename(to)

    def place(self, new: Path, to: Path) -> None:
        """Put a file where none is; `FileExistsError` if one has just appeared, which renaming would replace."""
        try:
            os.link(new, to, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if os.path.lexists(to):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(to)) from None
            new.rename(to)
        else:
            new.unlink()

    def remove_folder(self, place: Path) -> None:
        """An empty directory."""
        place.rmdir()


def apply(
    merged: Merged, snapshots: Snapshots, root: Path, *, leave_requests: bool = False, disk: Disk | None = None
) -> tuple[str, ...]:
    """Write what was merged into `root`; the paths that were written, created or deleted.

    With `leave_requests` a merge that has only requests left is applied without them. Raises `MergeBlocked`,
    `SourceChanged`, `ApplyInterrupted`, or the `OSError` that stopped it; the tree is then as it was. The git index is
    not touched.
    """
    requests = set(map(str, merged.requests)) if leave_requests else set()
    if blocked := [line for line in merged.blocked if line not in requests]:
        raise MergeBlocked("\n".join(blocked))
    if left := _stages(root):
        raise ApplyInterrupted(f"an apply was interrupted, and is not taken back yet: {left[0]}")
    changed = snapshots.changes(merged.source, merged.tree).changed
    for each in changed:
        _check(root, each)
    if not changed:
        return ()
    contents = snapshots.read_many(each.after.blob for each in changed if each.after is not None)
    with _Stage(root, disk or Disk()) as stage:
        stage.prepare(changed, contents)
        stage.swap(changed)
        stage.finish()
    _remove_emptied(root, changed)
    return tuple(each.path for each in changed)


def put(snapshots: Snapshots, root: Path, tree: str) -> None:
    """Make a directory of ours, such as a worktree, have a tree in it."""
    apply(Merged(snapshots.take(root), tree, Strategy.THREE_WAY, ()), snapshots, root)


def recover(root: Path) -> int:
    """Take back every apply that was killed in the middle, and clear up after those that were done; how many."""
    stages = _stages(root)
    for stage in stages:
        if (stage / _JOURNAL).exists():
            _take_back(root, stage, json.loads((stage / _JOURNAL).read_text()))
        _clear(root, stage)
    return len(stages)


class _Stage:
    """The directory beside the tree, for as long as an apply takes."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self._root, self._disk = root, disk
        self._journal: dict[str, Any] | None = None

    def __enter__(self) -> Self:
        home = self._root / ".abreast"
        home.mkdir(exist_ok=True)
        self.place = Path(tempfile.mkdtemp(prefix=_STAGE, dir=home))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._journal is not None:
            try:
                _take_back(self._root, self.place, self._journal)
            except OSError as error:
                raise ApplyInterrupted(f"it failed, and could not be taken back; all is in {self.place}") from error
        _clear(self._root, self.place)

    def prepare(self, changed: Sequence[Changed], contents: dict[str, bytes]) -> None:
        for number, each in enumerate(changed):
            if each.after is None:
                continue
            new = self.place / f"new-{number}"
            if each.after.link:
                self._disk.link(new, contents[each.after.blob])
                continue
            self._disk.write(new, contents[each.after.blob])
            self._disk.set_mode(new, _permissions(self._root / each.path, new, each.after))
        journal = {
            "files": [
                {"path": each.path, "old": each.before is not None, "new": each.after is not None} for each in changed
            ],
            "made": _missing_folders(self._root, changed),
            "removed": _replaced_folders(self._root, changed),
        }
        # ASCII, with escapes for bytes that are no text, which read back as they were.
        self._disk.write(self.place / "journal.part", json.dumps(journal).encode())
        self._journal = journal
        self._disk.move(self.place / "journal.part", self.place / _JOURNAL)

    def swap(self, changed: Sequence[Changed]) -> None:
        for number, each in enumerate(changed):
            if each.before is not None:
                old = self.place / f"old-{number}"
                self._disk.move(self._root / each.path, old)
                if state(old) != each.before:
                    raise SourceChanged(f"{each.path} changed while the merge was applied")
        journal = self._journal or {}
        for folder in journal["removed"]:
            self._disk.remove_folder(self._root / folder)
        for folder in journal["made"]:
            self._disk.make_folder(self._root / folder)
        for number, each in enumerate(changed):
            if each.after is not None:
                try:
                    self._disk.place(self.place / f"new-{number}", self._root / each.path)
                except FileExistsError as error:
                    raise SourceChanged(f"{each.path} appeared while the merge was applied") from error

    def finish(self) -> None:
        self._disk.move(self.place / _JOURNAL, self.place / _DONE)


def _take_back(root: Path, stage: Path, journal: dict[str, Any]) -> None:
    """Undo what has happened so far, whatever that is: every move can be seen from where its file is now."""
    for number, file in enumerate(journal["files"]):
        new, place = stage / f"new-{number}", root / file["path"]
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # not there yet, or not any more
            if file["new"] and not os.path.lexists(new):
                place.rename(new)
            elif file["new"] and os.path.samestat(new.lstat(), place.lstat()):
                place.unlink()  # it was about to be removed from the stage
    for folder in reversed(journal["made"]):
        with contextlib.suppress(OSError):  # not made yet; or somebody has put a file there, and keeps the directory
            (root / folder).rmdir()
    for folder in reversed(journal["removed"]):
        (root / folder).mkdir(exist_ok=True)
    for number, file in enumerate(journal["files"]):
        old = stage / f"old-{number}"
        if file["old"] and os.path.lexists(old):
            old.rename(root / file["path"])


def _clear(root: Path, stage: Path) -> None:
    # It is done or taken back by now; what can't be removed here is removed by the next `recover`.
    shutil.rmtree(stage, ignore_errors=True)
    with contextlib.suppress(OSError):  # others keep things there
        (root / ".abreast").rmdir()


def _stages(root: Path) -> list[Path]:
    return sorted((root / ".abreast").glob(f"{_STAGE}*"))


def _check(root: Path, each: Changed) -> None:
    """The path is as it was merged, and no link leads out of the tree to it."""
    for folder in reversed(Path(each.path).parents):
        if (root / folder).is_symlink() and folder != Path():
            raise SourceChanged(f"{folder.as_posix()} is a link by now, and {each.path} was beneath it")
    if state(root / each.path) != each.before:
        raise SourceChanged(f"{each.path} is not what was merged with")


def state(place: Path) -> Entry | None:
    """What is at a place, as a snapshot would have it; none if there is no file or link."""
    try:
        found = place.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(found.st_mode):
        return Entry(LINK, _blob(os.fsencode(place.readlink())))
    if not stat.S_ISREG(found.st_mode):
        return None
    return Entry(EXECUTABLE if found.st_mode & stat.S_IXUSR else REGULAR, _blob(place.read_bytes()))


def _blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _permissions(place: Path, new: Path, entry: Entry) -> int:
    """Those of the file it replaces, or of any new one, and executable or not as merged."""
    replaced = place.is_file() and not place.is_symlink()
    mode = stat.S_IMODE((place if replaced else new).stat().st_mode)
    plain = mode & ~_ALL_EXECUTE
    if entry.mode != EXECUTABLE:
        return plain
    return mode if mode & stat.S_IXUSR else plain | (plain & _READ) >> 2


def _missing_folders(root: Path, changed: Sequence[Changed]) -> list[str]:
    """Directories that are to be made, upper ones first."""
    wanted = {folder for each in changed if each.after is not None for folder in Path(each.path).parents}
    missing = [folder for folder in wanted if not (root / folder).is_dir()]
    return sorted(folder.as_posix() for folder in missing)


def _replaced_folders(root: Path, changed: Sequence[Changed]) -> list[str]:
    """Directories in whose place a file is to be: they and those beneath them, lower ones first."""
    tops = [root / each.path for each in changed if each.after is not None and each.before is None]
    found: list[str] = []
    for top in tops:
        if top.is_dir() and not top.is_symlink():
            found += [Path(place).relative_to(root).as_posix() for place, _, _ in os.walk(top, topdown=False)]
    return found


def _remove_emptied(root: Path, changed: Sequence[Changed]) -> None:
    """As git does: a directory goes with its last file."""
    for each in changed:
        if each.after is None:
            for folder in Path(each.path).parents:
                with contextlib.suppress(OSError):  # not empty, or gone already
                    if folder != Path():
                        (root / folder).rmdir()
