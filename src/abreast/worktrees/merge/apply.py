"""Writes a merge into the source tree, all of it or nothing.

    1 write every new content to `.abreast/apply-*`, and a journal of the steps that follow
    2 move each old file there, and compare it again: an editor may have changed it meanwhile
    3 move each new file to its place
    4 rename the journal, which commits the apply
    5 with a `record`, keep the old files in `.abreast/applied-*`, for `undo`

A failure before 4, such as a full disk or a Ctrl-C, is rolled back by the journal at once. After a
kill, `recover` rolls back; after a kill between 4 and 5 it completes the rest.
"""

import contextlib
import fcntl
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final, Self

from abreast.worktrees.merge.disk import (
    Disk,
    check,
    folders_of_deleted,
    missing_folders,
    permissions,
    replaced_folders,
    state,
)
from abreast.worktrees.merge.errors import (
    ApplyInterrupted,
    ApplyRunning,
    MergeBlocked,
    SourceChanged,
)
from abreast.worktrees.merge.merge import Merged, MergeStrategy
from abreast.worktrees.merge.snapshots import Changed, Snapshots

__all__ = ["ApplyStage", "Disk", "apply", "put", "recover", "state"]

HOME: Final = ".abreast"
APPLIED: Final = "applied-"
DONE: Final = "done.json"
# How many applies of a directory can be undone; the old files of earlier ones are removed.
KEPT: Final = 10
_STAGE: Final = "apply-"
_JOURNAL: Final = "journal.json"
# Parts that never occur in the path of a merged file.
_FORBIDDEN_PARTS: Final = frozenset({"", ".", "..", ".git", HOME})


def apply(
    merged: Merged,
    snapshots: Snapshots,
    root: Path,
    *,
    leave_requests: bool = False,
    record: Mapping[str, Any] | None = None,
    disk: Disk | None = None,
) -> tuple[str, ...]:
    """Write a merge into `root`; returns the paths that were written, created or deleted.

    With `leave_requests`, a merge that has only requests left is applied without them. With a
    `record` (plain data) it can be undone, and the record is kept with it. The git index is not
    changed.

    Raises `MergeBlocked`, `SourceChanged`, `ApplyInterrupted`, `ApplyRunning`, or the `OSError`
    that stopped it; the tree is then unchanged.
    """
    requests = set(map(str, merged.requests)) if leave_requests else set()
    if blocked := [line for line in merged.blocked if line not in requests]:
        raise MergeBlocked("\n".join(blocked))
    with writing(root):
        changed = snapshots.changes(merged.source, merged.tree).changed
        for each in changed:
            check(root, each)
        if not changed:
            return ()
        contents = snapshots.read_many(
            each.after.blob for each in changed if each.after is not None
        )
        with ApplyStage(root, disk or Disk()) as stage:
            stage.write_new(changed, contents)
            stage.begin(changed, emptied=folders_of_deleted(changed), record=record)
            stage.swap(changed)
            stage.finish()
    return tuple(each.path for each in changed)


def put(snapshots: Snapshots, root: Path, tree: str) -> None:
    """Make the files of a directory of ours, such as a worktree, equal to a tree."""
    apply(Merged(snapshots.take(root), tree, MergeStrategy.THREE_WAY, ()), snapshots, root)


def recover(root: Path) -> int:
    """Roll back every apply and undo that was killed, and complete those that were committed.

    Returns their number. Raises `ApplyRunning` if one is under way, `ApplyInterrupted` or `OSError`
    if it can't be rolled back.
    """
    if not stages(root):
        return 0
    with _lock_tree(root):
        found = stages(root)
        for stage in found:
            if (stage / _JOURNAL).exists():
                _roll_back(root, stage, read_journal(stage / _JOURNAL))
            elif (stage / DONE).exists():
                _complete(root, stage, read_journal(stage / DONE))
            _remove_stage(root, stage)
    return len(found)


def stages(root: Path) -> list[Path]:
    """The stage directories of applies that are under way or were killed."""
    return sorted((root / HOME).glob(f"{_STAGE}*"))


@contextlib.contextmanager
def writing(root: Path) -> Iterator[None]:
    """Hold the lock of a tree, to write to it.

    Raises `ApplyRunning` if an apply is under way, `ApplyInterrupted` if one was interrupted.
    """
    with _lock_tree(root):
        if left := stages(root):
            raise ApplyInterrupted(
                f"an apply was interrupted, and is not taken back yet: {left[0]}"
            )
        yield


@contextlib.contextmanager
def _lock_tree(root: Path) -> Iterator[None]:
    """Hold the lock on a directory, which the kernel frees when the process ends.

    Raises `ApplyRunning` if another process has it.
    """
    opened = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ApplyRunning(
                f"a merge is written into {root} at this moment; try again when it is done"
            ) from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(opened)


def read_journal(file: Path) -> dict[str, Any]:
    """Read and check a journal.

    Raises `ApplyInterrupted` if abreast did not write it: it may have come with a repository.
    """
    try:
        journal: dict[str, Any] = json.loads(file.read_text())
        paths = [one["path"] for one in journal["files"]]
        paths += [
            *journal["made"],
            *journal["removed"],
            *journal.get("emptied", ()),
            *journal.get("modes", {}),
        ]
        odd = [path for path in paths if not _FORBIDDEN_PARTS.isdisjoint(path.split("/"))]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ApplyInterrupted(f"{file} can't be read: {error}") from error
    if odd:
        raise ApplyInterrupted(
            f"{file} is none that abreast wrote: no merge has a path such as {odd[0]}"
        )
    return journal


class ApplyStage:
    """The directory that an apply or an undo uses while it is under way."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self._root, self._disk = root, disk
        self._journal: dict[str, Any] | None = None

    def __enter__(self) -> Self:
        home = self._root / HOME
        home.mkdir(exist_ok=True)
        self.place = Path(tempfile.mkdtemp(prefix=_STAGE, dir=home))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Complete a committed apply, and roll back any other; then remove the directory."""
        if self._journal is not None and (self.place / DONE).exists():
            _complete(self._root, self.place, self._journal)
        elif kind is not None and self._journal is not None:
            try:
                _roll_back(self._root, self.place, self._journal)
            except OSError as error:
                raise ApplyInterrupted(
                    f"it failed, and could not be taken back; all is in {self.place}"
                ) from error
        _remove_stage(self._root, self.place)

    def write_new(self, changed: Sequence[Changed], contents: Mapping[str, bytes]) -> None:
        """Write the new files to the stage."""
        for number, each in enumerate(changed):
            if each.after is None:
                continue
            new = self.place / f"new-{number}"
            if each.after.link:
                self._disk.link(new, contents[each.after.blob])
                continue
            self._disk.write(new, contents[each.after.blob])
            self._disk.set_mode(new, permissions(self._root / each.path, new, each.after))

    def bring_new(self, places: Sequence[Path | None]) -> None:
        """Link existing files into the stage as the new files."""
        for number, place in enumerate(places):
            if place is not None:
                self._disk.bring(place, self.place / f"new-{number}")

    def begin(
        self,
        changed: Sequence[Changed],
        *,
        emptied: Sequence[str],
        record: Mapping[str, Any] | None = None,
        folders: Mapping[str, int] | None = None,
        forget: str | None = None,
    ) -> None:
        """Write the journal.

        Args:
            changed: the changes of files; the new files are in the stage already.
            emptied: directories to remove afterwards if they are empty, lower ones first.
            record: plain data to keep, so that the apply can be undone.
            folders: directories to make, and their permissions.
            forget: the directory in `.abreast` to remove afterwards.
        """
        removed = replaced_folders(self._root, changed)
        modes = {
            folder: stat.S_IMODE((self._root / folder).stat().st_mode)
            for folder in (*emptied, *removed)
            if (self._root / folder).is_dir()
        }
        journal = {
            "files": [self._journal_entry(number, each) for number, each in enumerate(changed)],
            "made": missing_folders(self._root, changed, folders or ()),
            "removed": removed,
            "emptied": list(emptied),
            "modes": {**modes, **(folders or {})},
            "record": None if record is None else dict(record),
            "forget": forget,
        }
        # ASCII; bytes that are no text are escaped, and are read back unchanged.
        self._disk.write(self.place / "journal.part", json.dumps(journal).encode())
        self._journal = journal
        self._disk.move(self.place / "journal.part", self.place / _JOURNAL)

    def _journal_entry(self, number: int, each: Changed) -> dict[str, Any]:
        new = self.place / f"new-{number}"
        return {
            "path": each.path,
            "old": each.before is not None,
            "new": each.after is not None,
            "before": None if each.before is None else [each.before.mode, each.before.blob],
            "after": None if each.after is None else [each.after.mode, each.after.blob],
            "permissions": None if each.after is None else stat.S_IMODE(new.lstat().st_mode),
        }

    def swap(self, changed: Sequence[Changed]) -> None:
        """Move the old files away and the new ones to their places.

        Raises `SourceChanged` if another process has changed a file meanwhile.
        """
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
                    raise SourceChanged(
                        f"{each.path} appeared while the merge was applied"
                    ) from error

    def finish(self) -> None:
        """Commit: rename the journal."""
        self._disk.move(self.place / _JOURNAL, self.place / DONE)


def _roll_back(root: Path, stage: Path, journal: dict[str, Any]) -> None:
    """Undo the steps taken so far; the place of each file shows whether it was moved."""
    for number, file in enumerate(journal["files"]):
        new, place = stage / f"new-{number}", root / file["path"]
        # The file may not be in place yet, or no longer.
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if file["new"] and not os.path.lexists(new):
                place.rename(new)
            elif file["new"] and os.path.samestat(new.lstat(), place.lstat()):
                place.unlink()  # linked to its place, but not yet removed from the stage
    for folder in reversed(journal["made"]):
        # Not made yet; or it has a file by now that is not ours, and is kept.
        with contextlib.suppress(OSError):
            (root / folder).rmdir()
    for folder in reversed(journal["removed"]):
        if not (root / folder).is_dir():
            (root / folder).mkdir()
            _set_mode(root, folder, journal)
    for number, file in enumerate(journal["files"]):
        old = stage / f"old-{number}"
        if file["old"] and os.path.lexists(old):
            old.rename(root / file["path"])


def _set_mode(root: Path, folder: str, journal: dict[str, Any]) -> None:
    mode = journal.get("modes", {}).get(folder)
    if mode is not None:
        (root / folder).chmod(mode)


def _complete(root: Path, stage: Path, journal: dict[str, Any]) -> None:
    """The steps after the commit; they may be repeated."""
    for folder in journal.get("emptied", ()):
        with contextlib.suppress(OSError):  # not empty, or removed already
            (root / folder).rmdir()
    for folder in journal["made"]:
        with contextlib.suppress(OSError):
            _set_mode(root, folder, journal)
    if journal.get("forget"):
        shutil.rmtree(root / HOME / PurePosixPath(journal["forget"]).name, ignore_errors=True)
    if journal.get("record") is not None:
        applied = sorted((root / HOME).glob(f"{APPLIED}*"))
        last = int(applied[-1].name.removeprefix(APPLIED)) if applied else 0
        stage.rename(root / HOME / f"{APPLIED}{last + 1:06}")
        for old in applied[: max(0, len(applied) + 1 - KEPT)]:
            shutil.rmtree(old, ignore_errors=True)


def _remove_stage(root: Path, stage: Path) -> None:
    # The apply is complete or rolled back by now; the next `recover` removes what is left here.
    shutil.rmtree(stage, ignore_errors=True)
    with contextlib.suppress(OSError):  # it has other files
        (root / HOME).rmdir()
