"""The three-way merge of one file that was changed on two sides.

The text of a file is merged by `git merge-file`, as `git merge` does for each file. All else is
decided here and not by `git merge-tree`, which takes only a base that it finds in a history (before
git 2.40), reports conflicts in prose, and follows a rename into a file that another leaf may own.
"""

import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from abreast.worktrees.git import OURS, run_git
from abreast.worktrees.merge.listing import is_binary
from abreast.worktrees.merge.snapshots import Changed, Snapshots, TreeEntry


class ConflictKind(StrEnum):
    """The ways in which two changes conflict."""

    CONTENT = "content"  # both changed the same lines
    DELETE_MODIFY = "delete/modify"  # one deleted it, the other changed it
    CREATE_CREATE = "create/create"  # both created it, with different content
    # One renamed what the other renamed, changed or deleted, or both renamed to one name.
    RENAME = "rename"
    BINARY = "binary"  # both changed it, and it is no text
    MODE = "mode"  # both created it alike, but only one made it executable
    SYMLINK = "symlink"  # both changed it, and it is or was a symbolic link
    CRLF = "crlf"  # both changed it, and the conflict is only in the ends of lines
    DIRECTORY = "directory/file"  # one made a directory where the other has a file


@dataclass(frozen=True, slots=True)
class Clash:
    """A conflict in one file.

    `marked` is the blob with conflict markers, if the file is text.
    """

    kind: ConflictKind
    marked: str | None = None


def merge_entry(
    snapshots: Snapshots, base: TreeEntry | None, ours: TreeEntry | None, theirs: TreeEntry | None
) -> TreeEntry | Clash | None:
    """The entry that has both changes (None if it is deleted), or the conflict between them."""
    if theirs in {ours, base}:
        return ours
    if ours == base:
        return theirs
    if ours is None or theirs is None:
        return Clash(ConflictKind.DELETE_MODIFY)
    return _merge_both(snapshots, base, ours, theirs)


def has_change(snapshots: Snapshots, mine: Changed | None, asked: Changed) -> bool:
    """Whether one change of a file has all that another one would do to it."""
    if mine is None:
        return False
    return merge_entry(snapshots, asked.before, mine.after, asked.after) == mine.after


def _merge_both(
    snapshots: Snapshots, base: TreeEntry | None, ours: TreeEntry, theirs: TreeEntry
) -> TreeEntry | Clash:
    if ours.link or theirs.link or (base is not None and base.link):
        return Clash(ConflictKind.SYMLINK)
    if base is None:
        return Clash(ConflictKind.MODE if ours.blob == theirs.blob else ConflictKind.CREATE_CREATE)
    mode = theirs.mode if ours.mode == base.mode else ours.mode
    if theirs.blob in {base.blob, ours.blob}:
        return TreeEntry(mode, ours.blob)
    if ours.blob == base.blob:
        return TreeEntry(mode, theirs.blob)
    merged = _merge_text(snapshots, base.blob, ours.blob, theirs.blob)
    return TreeEntry(mode, merged) if isinstance(merged, str) else merged


def _merge_text(snapshots: Snapshots, base: str, ours: str, theirs: str) -> str | Clash:
    contents = snapshots.read_many((base, ours, theirs))
    sides = [contents[ours], contents[base], contents[theirs]]
    if any(map(is_binary, sides)):
        return Clash(ConflictKind.BINARY)
    clean, text = _merge_file(sides)
    if clean:
        return snapshots.write(text)
    normalized = [side.replace(b"\r\n", b"\n") for side in sides]
    only_ends = normalized != sides and _merge_file(normalized)[0]
    return Clash(ConflictKind.CRLF if only_ends else ConflictKind.CONTENT, snapshots.write(text))


def mark_conflict(
    snapshots: Snapshots, base: str | None, ours: str, theirs: str, labels: tuple[str, str]
) -> bytes | None:
    """Two blobs in one text, with markers where they differ from each other and from `base`.

    `labels` name the two in the markers. None if one of them is no text.
    """
    contents = snapshots.read_many(one for one in (base, ours, theirs) if one is not None)
    sides = [contents[ours], b"" if base is None else contents[base], contents[theirs]]
    if any(map(is_binary, sides)):
        return None
    return _merge_file(sides, (labels[0], "base", labels[1]))[1]


def _merge_file(
    sides: list[bytes], names: tuple[str, str, str] = ("ours", "base", "theirs")
) -> tuple[bool, bytes]:
    """Whether ours, base and theirs merge without conflict; and the text, else with markers."""
    with tempfile.TemporaryDirectory(prefix="abreast-merge-") as place:
        files = [Path(place, name) for name in ("ours", "base", "theirs")]
        for file, side in zip(files, sides, strict=True):
            file.write_bytes(side)
        labels = [word for name in names for word in ("-L", name)]
        done = run_git(
            "merge-file",
            "-p",
            "-q",
            "--diff3",
            *labels,
            *files,
            cwd=Path(place),
            extra=OURS,
            accept=range(128),
        )
    return done.returncode == 0, done.stdout
