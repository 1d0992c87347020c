"""Merges one change into the tree that was merged so far, and lists the conflicts."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from abreast.worktrees.merge.names import folders_above
from abreast.worktrees.merge.snapshots import (
    Changed,
    ChangeStep,
    Snapshots,
    TreeDifference,
    TreeEntry,
)
from abreast.worktrees.merge.three_way import Clash, ConflictKind, merge_entry

# The other side of a conflict with a change in the source tree itself during the run.
SOURCE: Final = "source"


@dataclass(frozen=True, slots=True)
class Change:
    """The change of a subplan: the snapshots it started from and ended with."""

    leaf: str
    base: str
    result: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """A path with incompatible changes of `leaf` and `other` (a leaf, or `SOURCE`)."""

    kind: ConflictKind
    path: str
    leaf: str
    other: str
    detail: str
    base: TreeEntry | None = None
    ours: TreeEntry | None = None
    theirs: TreeEntry | None = None
    marked: str | None = None

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.kind} conflict between {self.other} and {self.leaf}: {self.detail}"
        )


class MergedSoFar:
    """The tree merged so far: its files, and the leaf that changed each."""

    def __init__(
        self, snapshots: Snapshots, source: str, differences: Mapping[Change, TreeDifference]
    ) -> None:
        """Start with the source tree; `differences` are those of all changes to be merged."""
        self.snapshots = snapshots
        self.entries = snapshots.entries(source)
        self.writers: dict[str, list[Change]] = {}  # those that changed a path, in their order
        # For each file that a leaf has renamed: its new name, and the leaf.
        self.renames: dict[str, tuple[str, str]] = {}
        self._source = source
        self._before = dict(self.entries)
        self._differences = differences
        self._renamed_in_source: dict[str, dict[str, tuple[str, str]]] = {}
        self._folders: Counter[str] = Counter()
        for path in self.entries:
            self._folders.update(folders_above(path))

    def put(self, path: str, entry: TreeEntry | None) -> None:
        """Set an entry, or remove it."""
        before = self.entries.pop(path, None)
        if entry is not None:
            self.entries[path] = entry
        step = (entry is not None) - (before is not None)
        for folder in folders_above(path) if step else ():
            self._folders[folder] += step

    def in_the_way(self, path: str) -> list[str]:
        """Files in the place of a path's parent directories, and files beneath the path."""
        found = [folder for folder in folders_above(path) if folder in self.entries]
        if self._folders[path] > 0:
            found += sorted(other for other in self.entries if other.startswith(f"{path}/"))
        return found

    def who(self, path: str) -> str:
        """The leaf that changed a path, in this merge or in an earlier apply, or `SOURCE`."""
        if path in self.writers:
            return self.writers[path][-1].leaf
        return self._in_source(path)

    def _in_source(self, path: str) -> str:
        return self._made_by(path, self._before.get(path)) or SOURCE

    def who_clashes(self, each: Changed) -> str:
        """The newest of those whose lines clash with a change: a leaf, or `SOURCE`.

        The last one that changed the path, if none of them clashes alone.
        """
        path = each.path
        sides: list[tuple[str, TreeEntry | None]] = []
        for change in reversed(self.writers.get(path, [])):
            made = self._differences[change].at(path)
            if made is not None and made.before == each.before:
                sides.append((change.leaf, made.after))
        sides.append((self._in_source(path), self._before.get(path)))
        for who, entry in sides:
            found = merge_entry(self.snapshots, each.before, entry, each.after)
            if isinstance(found, Clash) and found.kind is ConflictKind.CONTENT:
                return who
        return self.who(path)

    def renamed_by(self, base: str, path: str) -> tuple[str, str] | None:
        """For a renamed file: its new name, and the leaf that renamed it, or `SOURCE`."""
        if path in self.renames:
            return self.renames[path]
        if base not in self._renamed_in_source:
            self._renamed_in_source[base] = self._find_renames(base)
        return self._renamed_in_source[base].get(path)

    def _find_renames(self, base: str) -> dict[str, tuple[str, str]]:
        found: dict[str, tuple[str, str]] = {}
        for path, to in self.snapshots.changes(base, self._source).renames.items():
            leaf = self._made_by(to, self._before[to])
            # After an earlier apply, a deletion by one leaf and a creation by another are not a
            # rename, even if the files are alike.
            if leaf is None or any(
                each.leaf == leaf and self._differences[each].renames.get(path) == to
                for each in self._differences
            ):
                found[path] = (to, leaf or SOURCE)
        return found

    def on_source(self, each: Changed) -> TreeEntry | Clash | None:
        """The result of a change applied to the source tree alone.

        A clash if the source tree has an edit of its own at that path.
        """
        now = self._before.get(each.path)
        if self._made_by(each.path, now) or now in self._started_from(each.path, each.before):
            return each.after
        return merge_entry(self.snapshots, each.before, now, each.after)

    def is_users_own(self, path: str) -> bool:
        """Whether the source tree has a file there that no subplan made or started from."""
        now = self._before.get(path)
        known = {entry for each in self._changes_of(path) for entry in (each.before, each.after)}
        return now is not None and now not in known

    def _started_from(self, path: str, entry: TreeEntry | None) -> set[TreeEntry | None]:
        """An entry, and all that leaves made it from: a leaf may start from other results."""
        found, waiting = {entry}, [entry]
        while waiting:
            after = waiting.pop()
            older = {each.before for each in self._changes_of(path) if each.after == after} - found
            found |= older
            waiting += older
        return found

    def _made_by(self, path: str, entry: TreeEntry | None) -> str | None:
        """The leaf whose result the source tree has at a path, from an earlier apply.

        For a rename, both halves must be there.
        """
        for change, difference in self._differences.items():
            each, to = difference.at(path), difference.renames.get(path, "")
            moved = difference.at(to)
            if (
                each is not None
                and each.after == entry
                and (moved is None or self._before.get(to) == moved.after)
            ):
                return change.leaf
        return None

    def _changes_of(self, path: str) -> Iterator[Changed]:
        return (
            each
            for difference in self._differences.values()
            if (each := difference.at(path)) is not None
        )


class TreeDraft:
    """A change in the process of merging: it can be rolled back until it is kept."""

    def __init__(self, so_far: MergedSoFar, change: Change, steps: Iterable[ChangeStep]) -> None:
        """Merge these steps; those that conflict are in `conflicts`, and not in the tree."""
        self._so_far = so_far
        self._change = change
        self._undo: list[tuple[str, TreeEntry | None]] = []
        self._conflicts: dict[ChangeStep, list[Conflict]] = {}
        self._values: dict[str, TreeEntry | None] = {}
        self._accepted: list[ChangeStep] = [step for step in steps if self._is_mergeable(step)]
        while not self._insert_accepted():
            self.take_back()
            self._accepted = [step for step in self._accepted if step not in self._conflicts]

    @property
    def conflicts(self) -> list[Conflict]:
        """The conflicts that prevent its steps."""
        return [each for found in self._conflicts.values() for each in found]

    def _is_mergeable(self, step: ChangeStep) -> bool:
        """Whether a step merges with the tree so far.

        If not, its conflicts are listed, and neither half of it is merged.
        """
        entries = self._so_far.entries
        if all(
            entries.get(each.path) == each.after for each in step.changed
        ) and not self._renamed_and_deleted(step):
            self._values |= {each.path: each.after for each in step.changed}
            return True
        if step.rename is not None and self._origin_gone(step, *step.rename):
            return False
        for each in step.changed:
            found = merge_entry(
                self._so_far.snapshots, each.before, entries.get(each.path), each.after
            )
            if isinstance(found, Clash):
                self._list_clash(step, each, found)
            else:
                self._values[each.path] = found
        return step not in self._conflicts

    def _renamed_and_deleted(self, step: ChangeStep) -> bool:
        each = step.changed[0]
        gone = (
            None
            if step.rename or each.after
            else self._so_far.renamed_by(self._change.base, each.path)
        )
        if gone is None:
            return False
        detail = f"the first renamed it to {gone[0]}, the second deleted it"
        self._list_conflict(step, ConflictKind.RENAME, each, other=gone[1], detail=detail)
        return True

    def _origin_gone(self, step: ChangeStep, origin: str, to: str) -> bool:
        if origin in self._so_far.entries:
            return False
        gone, moved = step.changed
        other = self._so_far.renamed_by(self._change.base, origin)
        if other is None:
            detail = f"the first deleted it, the second renamed it to {to}"
            self._list_conflict(
                step, ConflictKind.RENAME, gone, other=self._so_far.who(origin), detail=detail
            )
        elif other[0] != to:
            detail = f"{origin} was renamed to {other[0]} and to {to}"
            self._list_conflict(step, ConflictKind.RENAME, moved, other=other[1], detail=detail)
        return step in self._conflicts

    def _list_clash(self, step: ChangeStep, each: Changed, clash: Clash) -> None:
        kind, other = clash.kind, self._so_far.who(each.path)
        ours = self._so_far.entries.get(each.path)
        detail = _DETAILS[kind]
        if kind is ConflictKind.CONTENT:
            other = self._so_far.who_clashes(each)
        elif kind is ConflictKind.DELETE_MODIFY:
            detail = (
                "the first deleted what the second changed"
                if ours is None
                else "the second deleted it"
            )
            gone = self._so_far.renamed_by(self._change.base, each.path) if ours is None else None
            if gone is not None:
                kind, other = ConflictKind.RENAME, gone[1]
                detail = f"the first renamed it to {gone[0]}, the second changed it"
            elif step.rename is not None:
                kind, detail = (
                    ConflictKind.RENAME,
                    f"the second renamed it to {step.rename[1]}, the first changed it",
                )
        elif kind is ConflictKind.CREATE_CREATE and step.rename is not None:
            kind, detail = ConflictKind.RENAME, f"the second renamed {step.rename[0]} to it"
        self._list_conflict(step, kind, each, other=other, detail=detail, marked=clash.marked)

    def _list_conflict(
        self,
        step: ChangeStep,
        kind: ConflictKind,
        each: Changed,
        *,
        other: str,
        detail: str,
        marked: str | None = None,
    ) -> None:
        ours = self._so_far.entries.get(each.path)
        found = Conflict(
            kind, each.path, self._change.leaf, other, detail, each.before, ours, each.after, marked
        )
        self._conflicts.setdefault(step, []).append(found)

    def _insert_accepted(self) -> bool:
        """Insert the accepted steps; returns whether none was blocked by another file.

        Deletions are first: a file may take the place of a directory.
        """
        entries = self._so_far.entries
        changed = [
            (step, each, self._values[each.path])
            for step in self._accepted
            for each in step.changed
        ]
        unblocked = True
        for step, each, value in sorted(changed, key=lambda one: (one[2] is not None, one[1].path)):
            blocking = (
                self._so_far.in_the_way(each.path)
                if value is not None and each.path not in entries
                else []
            )
            for other in blocking:
                detail = (
                    f"{other} is a file there"
                    if each.path.startswith(f"{other}/")
                    else f"{other} is beneath it"
                )
                self._list_conflict(
                    step, ConflictKind.DIRECTORY, each, other=self._so_far.who(other), detail=detail
                )
                unblocked = False
            if not blocking:
                self._put(each.path, value)
        return unblocked

    def _put(self, path: str, entry: TreeEntry | None) -> None:
        before = self._so_far.entries.get(path)
        if before != entry:
            self._undo.append((path, before))
            self._so_far.put(path, entry)

    def overwrite(self) -> list[Conflict]:
        """Replace the changes of other leaves; returns the conflicts solved by that.

        Changes of the source tree are never replaced.
        """
        overwritten: list[Conflict] = []
        steps = sorted(
            self._conflicts,
            key=lambda step: (step.changed[-1].after is not None, step.changed[-1].path),
        )
        for step in steps:
            values = {each.path: self._so_far.on_source(each) for each in step.changed}
            removed = self._removed_by(step)
            if (
                any(
                    each.other == SOURCE and each.kind is not ConflictKind.DIRECTORY
                    for each in self._conflicts[step]
                )
                or any(isinstance(value, Clash) for value in values.values())
                or any(map(self._so_far.is_users_own, removed))
            ):
                self._conflicts[step] = [
                    replace(each, other=SOURCE) for each in self._conflicts[step]
                ]
                continue
            for path in removed:
                self._put(path, None)
            for path, value in values.items():
                self._put(path, None if isinstance(value, Clash) else value)
            self._accepted.append(step)
            overwritten += self._conflicts.pop(step)
        return overwritten

    def _removed_by(self, step: ChangeStep) -> list[str]:
        """The files to remove for a step: those that block it, and new names of its own file."""
        paths = {each.path for each in step.changed}
        found = [
            other
            for each in step.changed
            if each.after is not None
            for other in self._so_far.in_the_way(each.path)
        ]
        for each in step.changed:
            gone = (
                None
                if each.path in self._so_far.entries
                else self._so_far.renamed_by(self._change.base, each.path)
            )
            if each.before is not None and gone is not None:
                found.append(gone[0])
        return [path for path in found if path not in paths and path in self._so_far.entries]

    def take_back(self) -> None:
        """Restore the tree as it was before this change."""
        for path, before in reversed(self._undo):
            self._so_far.put(path, before)
        self._undo.clear()

    def keep(self) -> None:
        """Accept the merge: record the paths that the leaf changed and renamed."""
        leaf = self._change.leaf
        for path in dict.fromkeys(path for path, _ in self._undo):
            self._so_far.writers.setdefault(path, []).append(self._change)
        renamed = [step.rename for step in self._accepted if step.rename is not None]
        self._so_far.renames.update((path, (to, leaf)) for path, to in renamed)


_DETAILS: Final = {
    ConflictKind.CONTENT: "they changed the same lines",
    ConflictKind.DELETE_MODIFY: "one deleted it, the other changed it",
    ConflictKind.CREATE_CREATE: "they created it with different content",
    ConflictKind.BINARY: "both changed it, and it is no text",
    ConflictKind.MODE: "they created it alike, but only one made it executable",
    ConflictKind.SYMLINK: "both changed it, and it is or was a symbolic link",
    ConflictKind.CRLF: "both changed it, and they differ in the ends of lines",
}
