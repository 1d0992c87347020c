"""Takes an apply back: every file is again what it was before, byte for byte, or nothing is changed.

    latest = applies(root)[-1]
    changed_since(root, latest)           # the paths that stand in the way
    undo(root, latest)

The old files themselves were kept, so permissions, times and links come back too, and so do
directories that went with their last file. It is written like an apply: killed at any moment,
`recover` takes it back or completes it.
"""

from __future__ import annotations

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
    """An apply that can be taken back: where its old files are, its journal, and the record that was given to it."""

    place: Path
    journal: dict[str, Any]

    @property
    def record(self) -> dict[str, Any]:
        """What was recorded of it."""
        record: dict[str, Any] = self.journal["record"]
        return record

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that it wrote, created or deleted."""
        return tuple(file["path"] for file in self.journal["files"])


def applies(root: Path) -> list[Applied]:
    """The applies to a directory that can be taken back, the newest last."""
    found = sorted((root / HOME).glob(f"{APPLIED}*"))
    return [
        Applied(place, read_journal(place / DONE)) for place in found if (place / DONE).exists()
    ]


def changed_since(root: Path, applied: Applied) -> list[str]:
    """The paths that are not as the apply left them, or whose old content is not kept any more."""
    found = []
    for file, each, old in _reversed(applied):
        try:
            check(root, each)
            same = (
                each.before is None
                or each.before.link
                or _permissions(root / each.path) == file["permissions"]
            )
        except SourceChanged:
            same = False
        if not same or (old is not None and state(old) != each.after):
            found.append(each.path)
    return found


def undo(root: Path, applied: Applied, *, disk: Disk | None = None) -> tuple[str, ...]:
    """Make all files what they were before an apply; their paths.

    Raises `SourceChanged` if some were changed since, one line each, `ApplyInterrupted`, `ApplyRunning`, or the
    `OSError` that stopped it; the tree is then as it was.
    """
    with writing(root):
        if changed := changed_since(root, applied):
            raise SourceChanged(
                "\n".join(f"{path}: changed since it was applied" for path in changed)
            )
        steps = [each for _, each, _ in _reversed(applied)]
        journal = applied.journal
        gone = {
            folder: journal["modes"][folder]
            for folder in (*journal["emptied"], *journal["removed"])
        }
        with ApplyStage(root, disk or Disk()) as stage:
            stage.bring_new([old for _, _, old in _reversed(applied)])
            stage.begin(
                steps, emptied=journal["made"][::-1], folders=gone, forget=applied.place.name
            )
            stage.swap(steps)
            stage.finish()
    return applied.paths


def _reversed(applied: Applied) -> Iterator[tuple[dict[str, Any], Changed, Path | None]]:
    """Each file as it was written, the change that takes it back, and where its old content is."""
    for number, file in enumerate(applied.journal["files"]):
        before, after = (
            None if file[side] is None else TreeEntry(*file[side]) for side in ("before", "after")
        )
        yield (
            file,
            Changed(file["path"], after, before),
            applied.place / f"old-{number}" if before else None,
        )


def _permissions(place: Path) -> int:
    return stat.S_IMODE(place.lstat().st_mode)
