"""Writes a merge into the source tree: all of it, or nothing.

    1 every new content is written beside the tree, in `.abreast/apply-*`, and a journal of what is to happen
    2 each old file is moved there, and looked at once more: an editor may have been quicker
    3 each new file is moved to its place
    4 the journal is renamed: now it is done
    5 with a `record`, the old files stay in `.abreast/applied-*`, for `undo`

Whatever fails before 4, a full disk or a Ctrl-C, is taken back by the journal at once. After a
kill, `recover` does it; after a kill between 4 and 5 it completes the rest.
"""

from __future__ import annotations

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
    modes_of,
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
KEPT: Final = 10
"""How many applies of a directory can be undone: what was before them is kept for so many."""
_STAGE: Final = "apply-"
_JOURNAL: Final = "journal.json"
_NEVER: Final = frozenset({"", ".", "..", ".git", HOME})  # parts of paths that no merge has


def apply(
    merged: Merged,
    snapshots: Snapshots,
    root: Path,
    *,
    leave_requests: bool = False,
    record: Mapping[str, Any] | None = None,
    disk: Disk | None = None,
) -> tuple[str, ...]:
    """Write what was merged into `root`; the paths that were written, created or deleted.

    With `leave_requests` a merge that has only requests left is applied without them. With a `record` (plain data) it
    can be undone, and the record is kept with it. Raises `MergeBlocked`, `SourceChanged`, `ApplyInterrupted`,
    `ApplyRunning`, or the `OSError` that stopped it; the tree is then as it was. The git index is not touched.
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
    """Make a directory of ours, such as a worktree, have a tree in it."""
    apply(Merged(snapshots.take(root), tree, MergeStrategy.THREE_WAY, ()), snapshots, root)


def recover(root: Path) -> int:
    """Take back every apply and undo that was killed in the middle, and complete those that were done; how many.

    Raises `ApplyRunning` if one is under way, `ApplyInterrupted` or `OSError` if it can't be taken
    back.
    """
    if not stages(root):
        return 0
    with _locked(root):
        found = stages(root)
        for stage in found:
            if (stage / _JOURNAL).exists():
                _take_back(root, stage, read_journal(stage / _JOURNAL))
            elif (stage / DONE).exists():
                _complete(root, stage, read_journal(stage / DONE))
            _clear(root, stage)
    return len(found)


def stages(root: Path) -> list[Path]:
    """What applies that are under way, or were killed, have beside a tree."""
    return sorted((root / HOME).glob(f"{_STAGE}*"))


@contextlib.contextmanager
def writing(root: Path) -> Iterator[None]:
    """Hold the lock of a tree, in which no apply is under way or was cut off, to write to it."""
    with _locked(root):
        if left := stages(root):
            raise ApplyInterrupted(
                f"an apply was interrupted, and is not taken back yet: {left[0]}"
            )
        yield


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Hold the lock on a directory, which ends with the process.

    `ApplyRunning` if another has it.
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
    """What is to happen, or has.

    `ApplyInterrupted` if it is none of ours: it may have come with a repository.
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
        odd = [path for path in paths if not _NEVER.isdisjoint(path.split("/"))]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ApplyInterrupted(f"{file} can't be read: {error}") from error
    if odd:
        raise ApplyInterrupted(
            f"{file} is none that abreast wrote: no merge has a path such as {odd[0]}"
        )
    return journal


class ApplyStage:
    """The directory beside the tree, for as long as an apply or an undo takes."""

    def __init__(self, root: Path, disk: Disk) -> None:
        """Of a tree; nothing is made before it is entered."""
        self._root, self._disk = root, disk
        self._journal: dict[str, Any] | None = None

    def __enter__(self) -> Self:
        """Make it."""
        home = self._root / HOME
        home.mkdir(exist_ok=True)
        self.place = Path(tempfile.mkdtemp(prefix=_STAGE, dir=home))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Complete what is done, and take back what is not."""
        if self._journal is not None and (self.place / DONE).exists():
            _complete(self._root, self.place, self._journal)
        elif kind is not None and self._journal is not None:
            try:
                _take_back(self._root, self.place, self._journal)
            except OSError as error:
                raise ApplyInterrupted(
                    f"it failed, and could not be taken back; all is in {self.place}"
                ) from error
        _clear(self._root, self.place)

    def write_new(self, changed: Sequence[Changed], contents: Mapping[str, bytes]) -> None:
        """Write what is to be put into the tree."""
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
        """Have files that are there already put into the tree."""
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
            changed: what is to happen to files; the new ones are in the stage already.
            emptied: directories that go afterwards if they are empty, lower ones first.
            record: what to keep, so that it can be undone.
            folders: directories that are to be there, and their permissions.
            forget: the directory beside the tree that is not needed any more afterwards.
        """
        removed = replaced_folders(self._root, changed)
        present = [folder for folder in (*emptied, *removed) if (self._root / folder).is_dir()]
        journal = {
            "files": [self._file(number, each) for number, each in enumerate(changed)],
            "made": missing_folders(self._root, changed, folders or ()),
            "removed": removed,
            "emptied": list(emptied),
            "modes": {**modes_of(self._root, present), **(folders or {})},
            "record": None if record is None else dict(record),
            "forget": forget,
        }
        # ASCII, with escapes for bytes that are no text, which read back as they were.
        self._disk.write(self.place / "journal.part", json.dumps(journal).encode())
        self._journal = journal
        self._disk.move(self.place / "journal.part", self.place / _JOURNAL)

    def _file(self, number: int, each: Changed) -> dict[str, Any]:
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

        `SourceChanged` if another was quicker.
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
        """It is done."""
        self._disk.move(self.place / _JOURNAL, self.place / DONE)


def _take_back(root: Path, stage: Path, journal: dict[str, Any]) -> None:
    """Undo what has happened so far, whatever that is: every move can be seen from where its file is now."""
    for number, file in enumerate(journal["files"]):
        new, place = stage / f"new-{number}", root / file["path"]
        with contextlib.suppress(
            FileNotFoundError, NotADirectoryError
        ):  # not there yet, or not any more
            if file["new"] and not os.path.lexists(new):
                place.rename(new)
            elif file["new"] and os.path.samestat(new.lstat(), place.lstat()):
                place.unlink()  # it was about to be removed from the stage
    for folder in reversed(journal["made"]):
        with contextlib.suppress(
            OSError
        ):  # not made yet; or it has a file by now that is not ours, and stays
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
    """What comes after all is written; once more does no harm."""
    for folder in journal.get("emptied", ()):
        with contextlib.suppress(OSError):  # not empty, or gone already
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


def _clear(root: Path, stage: Path) -> None:
    # It is done or taken back by now; what can't be removed here is removed by the next `recover`.
    shutil.rmtree(stage, ignore_errors=True)
    with contextlib.suppress(OSError):  # others keep things there
        (root / HOME).rmdir()
