"""The changes of a plan's parts as unified diffs, and conflicts as text with markers."""

from dataclasses import dataclass
from typing import Any

from abreast.worktrees.merge.merge import Change, Conflict
from abreast.worktrees.merge.snapshots import Snapshots
from abreast.worktrees.merge.three_way import mark_conflict


@dataclass(frozen=True, slots=True)
class FileCount:
    """The lines that a change adds to a file and removes from it; None if it is no text."""

    path: str
    added: int | None
    removed: int | None


def file_counts(snapshots: Snapshots, change: Change) -> list[FileCount]:
    """What a part changed, file by file."""
    fields = iter(snapshots.patch(change.base, change.result, (), "--numstat", "-z").split("\0"))
    found: list[FileCount] = []
    for line in fields:
        if not line:
            break
        added, removed, path = line.split("\t")
        if not path:  # a rename: the old name and the new one follow
            path = f"{next(fields)} -> {next(fields)}"
        found.append(FileCount(path, _number(added), _number(removed)))
    return found


def diff_of(snapshots: Snapshots, change: Change, folder: str = "") -> str:
    """What a part changed, as a unified diff that `git apply` takes.

    `folder` is the path of the plan's directory in its repository.
    """
    base, result = (snapshots.within(tree, folder) for tree in (change.base, change.result))
    return snapshots.patch(base, result, (), "-p", "--full-index", "--binary")


def _number(text: str) -> int | None:
    return None if text == "-" else int(text)


def marked_text(snapshots: Snapshots, conflict: Conflict) -> bytes | None:
    """Both sides of a conflict in one text, with markers; None if it can't be shown so."""
    if conflict.ours is None or conflict.theirs is None:
        return None
    if conflict.ours.link or conflict.theirs.link:
        return None
    base = None if conflict.base is None else conflict.base.blob
    labels = (conflict.other, conflict.leaf)
    return mark_conflict(snapshots, base, conflict.ours.blob, conflict.theirs.blob, labels)


def conflict_facts(conflict: Conflict) -> dict[str, Any]:
    """A conflict as plain data."""
    return {
        "file": conflict.path,
        "kind": str(conflict.kind),
        "parts": [conflict.other, conflict.leaf],
        "detail": conflict.detail,
    }
