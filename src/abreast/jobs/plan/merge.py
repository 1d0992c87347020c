"""Puts the results of subplans together, in the order of the plan, without touching any working tree.

    merged = merge(snapshots, source, [Change(leaf, base, result), ...], ownership=Ownership.of(plan))
    merged.conflicts, merged.requests     # what stands in the way
    apply(merged, snapshots, root)        # in apply.py: all of it, or nothing

Each change is merged against the snapshot that its own subplan started from: with any other base, what was merged
before would look deleted. Whatever does not go in is listed: a conflict, a refusal, a request to the owner, or, with
`last-wins`, what was overwritten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from abreast.jobs.plan.ownership import Ownership
from abreast.jobs.plan.snapshots import Changed, Difference, Entry, Snapshots
from abreast.jobs.plan.three_way import Clash, ConflictKind, merge_entry

SOURCE: Final = "source"
"""The other side of a conflict with what changed in the source tree itself, while the subplans ran."""


class Strategy(StrEnum):
    """What becomes of a change that conflicts with those before it."""

    THREE_WAY = "three-way"
    """What doesn't conflict goes in, file by file; what does is left as it was."""
    SEQUENTIAL = "sequential"
    """A change goes in whole or not at all; those after it are still tried."""
    FAIL_ON_CONFLICT = "fail-on-conflict"
    """The first conflict ends the merge; that change and those after it are left out."""
    LAST_WINS = "last-wins"
    """The later side replaces the other; each such file is listed in `overwritten`, and nothing is blocked."""


class Outside(StrEnum):
    """What becomes of a change to files that its subplan doesn't own."""

    REFUSE = "refuse"
    """The whole change is left out: half of it may be worse than none."""
    REQUEST = "request"
    """What it owns goes in; the rest is a request to the owners."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a subplan did: the snapshots it started from and ended with."""

    leaf: str
    base: str
    result: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """A path that `leaf` and `other` (a leaf, or `SOURCE`) changed so that there is no saying which is right."""

    kind: ConflictKind
    path: str
    leaf: str
    other: str
    detail: str
    base: Entry | None = None
    ours: Entry | None = None
    theirs: Entry | None = None
    marked: str | None = None

    def __str__(self) -> str:
        """One line."""
        return f"{self.path}: {self.kind} conflict between {self.other} and {self.leaf}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Request:
    """A write of `leaf` to a path that others own."""

    leaf: str
    owners: tuple[str, ...]
    change: Changed

    def __str__(self) -> str:
        """One line."""
        return f"{self.change.path}: written by {self.leaf}, owned by {', '.join(self.owners)}"


@dataclass(frozen=True, slots=True)
class Merged:
    """The tree that has all that could be merged into `source`, and all that could not."""

    source: str
    tree: str
    strategy: Strategy
    merged: tuple[str, ...]
    """Leaves whose changes are in it: all that they own, apart from what `conflicts` lists."""
    left_out: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    refused: tuple[Request, ...] = ()
    requests: tuple[Request, ...] = ()
    overwritten: tuple[Conflict, ...] = ()

    @property
    def blocked(self) -> tuple[str, ...]:
        """Why it can't be applied, one line each; none if it can."""
        lines = [str(each) for each in (*self.conflicts, *self.refused, *self.requests)]
        return (*lines, *(f"{leaf}: left out" for leaf in self.left_out))


def merge(
    snapshots: Snapshots,
    source: str,
    changes: Sequence[Change],
    *,
    ownership: Ownership | None = None,
    strategy: Strategy = Strategy.THREE_WAY,
    outside: Outside = Outside.REFUSE,
) -> Merged:
    """Merge changes, in their order, into the snapshot `source` of the tree as it is now.

    Without an ownership every leaf may write everything. Only the object database of `snapshots` is written to.
    """
    work = _Merge(snapshots, source, Strategy(strategy), Outside(outside), ownership)
    for place, change in enumerate(changes):
        if not work.take(change):
            work.left_out += [each.leaf for each in changes[place + 1 :]]
            break
    return work.done()


@dataclass(slots=True)
class _Sum:
    """The tree merged so far: who changed what in it, and where there are directories."""

    entries: dict[str, Entry]
    touched: dict[str, str] = field(default_factory=dict)
    renames: dict[str, tuple[str, str]] = field(default_factory=dict)
    """To which name, and by whom."""
    _folders: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for path in self.entries:
            self._folders.update(_above(path))

    def put(self, path: str, entry: Entry | None) -> None:
        before = self.entries.pop(path, None)
        if entry is not None:
            self.entries[path] = entry
        step = (entry is not None) - (before is not None)
        for folder in _above(path) if step else ():
            self._folders[folder] += step

    def in_the_way(self, path: str) -> list[str]:
        """Files where a path needs directories, and files beneath it."""
        found = [folder for folder in _above(path) if folder in self.entries]
        if self._folders[path] > 0:
            found += sorted(other for other in self.entries if other.startswith(f"{path}/"))
        return found

    def who(self, path: str) -> str:
        return self.touched.get(path, SOURCE)


@dataclass(slots=True)
class _Merge:
    snapshots: Snapshots
    source: str
    strategy: Strategy
    outside: Outside
    ownership: Ownership | None
    merged: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    refused: list[Request] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    overwritten: list[Conflict] = field(default_factory=list)
    sum: _Sum = field(init=False)
    _moved: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sum = _Sum(self.snapshots.entries(self.source))

    def take(self, change: Change) -> bool:
        """Merge a change; whether to go on."""
        difference = self.snapshots.changes(change.base, change.result)
        own, foreign = self._by_owner(change.leaf, difference)
        if foreign and self.outside is Outside.REFUSE:
            self.refused += foreign
            self.left_out.append(change.leaf)
            return self.strategy is not Strategy.FAIL_ON_CONFLICT
        self.requests += foreign
        draft = _Draft(self, change, Difference(tuple(own), difference.renames))
        found = draft.conflicts
        if self.strategy is Strategy.LAST_WINS:
            draft.overwrite()
            self.overwritten += found
        else:
            self.conflicts += found
            if found and self.strategy is not Strategy.THREE_WAY:
                draft.take_back()
                self.left_out.append(change.leaf)
                return self.strategy is Strategy.SEQUENTIAL
        draft.keep()
        self.merged.append(change.leaf)
        return True

    def done(self) -> Merged:
        return Merged(
            self.source,
            self.snapshots.write_tree(self.sum.entries),
            self.strategy,
            tuple(self.merged),
            tuple(self.left_out),
            tuple(self.conflicts),
            tuple(self.refused),
            tuple(self.requests),
            tuple(self.overwritten),
        )

    def renamed_by(self, base: str, path: str) -> tuple[str, str] | None:
        """What became of a file that is gone: its new name, and who gave it."""
        if path in self.sum.renames:
            return self.sum.renames[path]
        if base not in self._moved:
            self._moved[base] = dict(self.snapshots.changes(base, self.source).renames)
        to = self._moved[base].get(path)
        return None if to is None else (to, SOURCE)

    def _by_owner(self, leaf: str, difference: Difference) -> tuple[list[Changed], list[Request]]:
        own: list[Changed] = []
        foreign: list[Request] = []
        for each in difference.changed:
            if self.ownership is None or self.ownership.allows(leaf, each.path):
                own.append(each)
            else:
                foreign.append(Request(leaf, self.ownership.owners(each.path), each))
        return own, foreign


class _Draft:
    """A change as it is merged: what was written can be taken back until it is kept."""

    def __init__(self, work: _Merge, change: Change, difference: Difference) -> None:
        self._work, self._sum = work, work.sum
        self._change = change
        self._renames = difference.renames
        self._targets = {to: path for path, to in difference.renames.items()}
        self._undo: list[tuple[str, Entry | None]] = []
        self.conflicts: list[Conflict] = []
        # What goes away first: a file may take the place of a directory.
        for each in sorted(difference.changed, key=lambda each: (each.after is not None, each.path)):
            self._merge(each)

    def _merge(self, each: Changed) -> None:
        ours = self._sum.entries.get(each.path)
        if self._renamed_twice(each):
            return
        found = merge_entry(self._work.snapshots, each.before, ours, each.after)
        if isinstance(found, Clash):
            self._conflict(found, each, ours)
            return
        blocking = self._sum.in_the_way(each.path) if ours is None and found is not None else []
        for other in blocking:
            detail = f"{other} is a file there" if each.path.startswith(f"{other}/") else f"{other} is beneath it"
            self._list(ConflictKind.DIRECTORY, each, ours, other=self._sum.who(other), detail=detail)
        if not blocking:
            self._put(each.path, found)

    def _renamed_twice(self, each: Changed) -> bool:
        """One file, renamed by both sides to different names: both would be kept, and nobody asked for two."""
        origin = self._targets.get(each.path)
        other = None if origin is None else self._work.renamed_by(self._change.base, origin)
        if origin is None or other is None or other[0] == each.path or origin in self._sum.entries:
            return False
        detail = f"{origin} was renamed to {other[0]} and to {each.path}"
        self._list(ConflictKind.RENAME, each, self._sum.entries.get(each.path), other=other[1], detail=detail)
        return True

    def _conflict(self, clash: Clash, each: Changed, ours: Entry | None) -> None:
        kind, other = clash.kind, self._sum.who(each.path)
        detail = _DETAILS[kind]
        if kind is ConflictKind.DELETE_MODIFY:
            detail = "the first deleted what the second changed" if ours is None else "the second deleted it"
            gone = self._work.renamed_by(self._change.base, each.path) if ours is None else None
            to = self._renames.get(each.path)
            if gone is not None:
                kind, other = ConflictKind.RENAME, gone[1]
                detail = f"the first renamed it to {gone[0]}, the second changed it"
            elif ours is not None and each.after is None and to is not None:
                kind, detail = ConflictKind.RENAME, f"the second renamed it to {to}, the first changed it"
        elif kind is ConflictKind.CREATE_CREATE and each.path in self._targets:
            kind, detail = ConflictKind.RENAME, f"the second renamed {self._targets[each.path]} to it"
        self._list(kind, each, ours, other=other, detail=detail, marked=clash.marked)

    def _list(
        self,
        kind: ConflictKind,
        each: Changed,
        ours: Entry | None,
        *,
        other: str,
        detail: str,
        marked: str | None = None,
    ) -> None:
        leaf = self._change.leaf
        self.conflicts.append(Conflict(kind, each.path, leaf, other, detail, each.before, ours, each.after, marked))

    def _put(self, path: str, entry: Entry | None) -> None:
        before = self._sum.entries.get(path)
        if before != entry:
            self._undo.append((path, before))
            self._sum.put(path, entry)

    def overwrite(self) -> None:
        """Let the later side win wherever there was a conflict."""
        for each in self.conflicts:
            for other in self._sum.in_the_way(each.path) if each.theirs is not None else ():
                self._put(other, None)
            origin = self._targets.get(each.path)
            gone = None if origin is None else self._work.renamed_by(self._change.base, origin)
            if each.kind is ConflictKind.RENAME and gone is not None and gone[0] != each.path:
                self._put(gone[0], None)
            self._put(each.path, each.theirs)

    def take_back(self) -> None:
        for path, before in reversed(self._undo):
            self._sum.put(path, before)

    def keep(self) -> None:
        leaf = self._change.leaf
        self._sum.touched.update((path, leaf) for path, _ in self._undo)
        self._sum.renames.update((path, (to, leaf)) for path, to in self._renames.items())


_DETAILS: Final = {
    ConflictKind.CONTENT: "they changed the same lines",
    ConflictKind.DELETE_MODIFY: "one deleted it, the other changed it",
    ConflictKind.CREATE_CREATE: "they created it with different content",
    ConflictKind.BINARY: "both changed it, and it is no text",
    ConflictKind.MODE: "they created it alike, but only one made it executable",
    ConflictKind.SYMLINK: "both changed it, and it is or was a symbolic link",
    ConflictKind.CRLF: "both changed it, and they differ in the ends of lines",
}


def _above(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
