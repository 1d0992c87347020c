"""Undoes an apply: restores every file byte for byte, or changes nothing.

    latest = applies(root)[-1]
    changed_since(root, latest)           # the paths that prevent it
    undo(root, latest)

The old files themselves were kept, so permissions, times and links are restored too, and so are
directories that were removed with their last file. It is written like an apply: after a kill at any
moment, `recover` rolls it back or completes it.
"""

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from abreast.worktrees.merge.apply import APPLIED, DONE, HOME, ApplyStage, read_journal, writing
from abreast.worktrees.merge.disk import Disk, check, state
from abreast.worktrees.merge.errors import SourceChanged
from abreast.worktrees.merge.snapshots import Changed, TreeEntry


@dataclass(frozen=True, slots=True)
class Applied:
    """An apply that can be undone: the directory of its old files, and its journal."""

    place: Path
    journal: dict[str, Any]

    @property
    def record(self) -> dict[str, Any]:
        """The record that was given to `apply`."""
        record: dict[str, Any] = self.journal["record"]
        return record

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that it wrote, created or deleted."""
        return tuple(file["path"] for file in self.journal["files"])


def applies(root: Path) -> list[Applied]:
    """The applies to a directory that can be undone, the newest last."""
    found = sorted((root / HOME).glob(f"{APPLIED}*"))
    return [
        Applied(place, read_journal(place / DONE)) for place in found if (place / DONE).exists()
    ]


def changed_since(root: Path, applied: Applied) -> list[str]:
    """The paths changed since the apply, and those whose old content is no longer kept."""
    found = []
    for file, each, old in _inverse_changes(applied):
        try:
            check(root, each)
            same = (
                each.before is None
                or each.before.link
                or stat.S_IMODE((root / each.path).lstat().st_mode) == file["permissions"]
            )
        except SourceChanged:
            same = False
        if not same or (old is not None and state(old) != each.after):
            found.append(each.path)
    return found


def undo(root: Path, applied: Applied, *, disk: Disk | None = None) -> tuple[str, ...]:
    """Restore all files to their state before an apply; returns their paths.

    Raises `SourceChanged` if some were changed since, with one line each, `ApplyInterrupted`,
    `ApplyRunning`, or the `OSError` that stopped it; the tree is then unchanged.
    """
    with writing(root):
        if changed := changed_since(root, applied):
            raise SourceChanged(
                "\n".join(f"{path}: changed since it was applied" for path in changed)
            )
        steps = [each for _, each, _ in _inverse_changes(applied)]
        journal = applied.journal
        gone = {
            folder: journal["modes"][folder]
            for folder in (*journal["emptied"], *journal["removed"])
        }
        with ApplyStage(root, disk or Disk()) as stage:
            stage.bring_new([old for _, _, old in _inverse_changes(applied)])
            stage.begin(
                steps, emptied=journal["made"][::-1], folders=gone, forget=applied.place.name
            )
            stage.swap(steps)
            stage.finish()
    return applied.paths


def _inverse_changes(applied: Applied) -> Iterator[tuple[dict[str, Any], Changed, Path | None]]:
    """Each file of the journal, the change that undoes it, and the path of its old content."""
    for number, file in enumerate(applied.journal["files"]):
        before, after = (
            None if file[side] is None else TreeEntry(*file[side]) for side in ("before", "after")
        )
        yield (
            file,
            Changed(file["path"], after, before),
            applied.place / f"old-{number}" if before else None,
        )
