"""Merges the results of subplans, in the order of the plan, without changing any working tree.

    changes = [Change(leaf, base, result), ...]
    merged = merge(snapshots, source, changes, ownership=Ownership.of(plan))
    merged.conflicts, merged.requests     # what prevents the apply
    apply(merged, snapshots, root)        # in apply.py: all of it, or nothing

Each change is merged against the snapshot that its own subplan started from: with any other base,
what was merged before would look deleted. A rename is one change: both halves are merged, or
neither. All that is not merged is listed: as a conflict, a refusal, a request to the owner, or,
with `last-wins`, as overwritten.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from abreast.worktrees.merge.merge_change import SOURCE, Change, Conflict, MergedSoFar, TreeDraft
from abreast.worktrees.merge.snapshots import (
    Changed,
    ChangeStep,
    Snapshots,
    TreeDifference,
    TreeEntry,
)
from abreast.worktrees.merge.three_way import ConflictKind, has_change

__all__ = [
    "SOURCE",
    "Change",
    "Conflict",
    "MergeRequest",
    "MergeStrategy",
    "Merged",
    "Outside",
    "WriteRules",
    "is_met",
    "merge",
    "steps_by_owner",
]


RESOLVED: Final = "what was chosen"
"""One side of a conflict with a choice that was made before."""


class WriteRules(Protocol):
    """Which leaf may write which path."""

    def owners(self, path: str) -> tuple[str, ...]:
        """The leaves that may write a path."""

    def allows(self, leaf: str, path: str) -> bool:
        """Whether a leaf may write a path."""


class MergeStrategy(StrEnum):
    """How a change that conflicts with earlier ones is treated."""

    # Files without a conflict are merged, one by one; those with a conflict stay as they were.
    THREE_WAY = "three-way"
    # A change is merged whole or not at all; those after it are still tried.
    SEQUENTIAL = "sequential"
    # The first conflict ends the merge; that change and those after it are left out.
    FAIL_ON_CONFLICT = "fail-on-conflict"
    # The later subplan replaces the earlier one; each such file is listed in `overwritten`. Changes
    # in the source tree itself are never replaced: a conflict with them blocks as with any other
    # strategy.
    LAST_WINS = "last-wins"


class Outside(StrEnum):
    """How a change to files that its subplan doesn't own is treated."""

    REFUSE = "refuse"  # the whole change is left out: half of it may be worse than none
    REQUEST = "request"  # files that it owns are merged; the rest is a request to the owners
    ALLOW = "allow"  # it is merged as if the subplan owned them


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """A write of `leaf` to a path that others own.

    If it is half of a rename, `rename` has both names.
    """

    leaf: str
    owners: tuple[str, ...]
    change: Changed
    rename: tuple[str, str] | None = None

    def __str__(self) -> str:
        owned = f"owned by {', '.join(self.owners)}"
        if self.rename is None:
            return f"{self.change.path}: written by {self.leaf}, {owned}"
        old, new = self.rename
        return f"{old}: renamed to {new} by {self.leaf}; {self.change.path} is {owned}"


@dataclass(frozen=True, slots=True)
class Merged:
    """The tree with all that could be merged into `source`, and lists of the rest."""

    source: str
    tree: str
    strategy: MergeStrategy
    # Leaves whose changes are in it, except for those listed in `conflicts` and `requests`.
    merged: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    refused: tuple[MergeRequest, ...] = ()
    requests: tuple[MergeRequest, ...] = ()
    overwritten: tuple[Conflict, ...] = ()
    # Writes outside that their owners have worked on since, and that are left out for that.
    answered: tuple[MergeRequest, ...] = ()
    # Writes outside that their owners have made too; what the owners made counts.
    met: tuple[MergeRequest, ...] = ()

    @property
    def blocked(self) -> tuple[str, ...]:
        """The reasons why it can't be applied, one line each; empty if it can."""
        lines = [str(each) for each in (*self.conflicts, *self.refused, *self.requests)]
        named = {each.leaf for each in self.conflicts} | {each.leaf for each in self.refused}
        return (*lines, *(f"{leaf}: left out" for leaf in self.left_out if leaf not in named))


def merge(
    snapshots: Snapshots,
    source: str,
    changes: Sequence[Change],
    *,
    ownership: WriteRules | None = None,
    strategy: MergeStrategy = MergeStrategy.THREE_WAY,
    outside: Outside = Outside.REFUSE,
    answered: Collection[tuple[str, str]] = (),
    resolved: Mapping[str, TreeEntry | None] | None = None,
) -> Merged:
    """Merge changes, in their order, into the snapshot `source` of the tree as it is now.

    Without an ownership every leaf may write everything. Only the object database of `snapshots` is
    written to. `answered` are leaves and the paths outside of them that the owners have worked on
    at their request: these writes are left out, as are those that the owners have made too.
    `resolved` has what becomes of files that were decided before: what the changes make of these
    does not count.
    """
    differences = {change: snapshots.changes(change.base, change.result) for change in changes}
    outside = Outside(outside)
    rules = None if outside is Outside.ALLOW else ownership
    work = _Merge(
        snapshots,
        source,
        MergeStrategy(strategy),
        outside,
        rules,
        differences,
        frozenset(answered),
        resolved or {},
    )
    for place, change in enumerate(changes):
        if not work.merge_change(change):
            work.left_out += [each.leaf for each in changes[place + 1 :]]
            break
    return work.result()


@dataclass(slots=True)
class _Merge:
    snapshots: Snapshots
    source: str
    strategy: MergeStrategy
    outside: Outside
    ownership: WriteRules | None
    differences: Mapping[Change, TreeDifference]
    answers: frozenset[tuple[str, str]]
    resolved: Mapping[str, TreeEntry | None]
    merged: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    refused: list[MergeRequest] = field(default_factory=list)
    requests: list[MergeRequest] = field(default_factory=list)
    overwritten: list[Conflict] = field(default_factory=list)
    answered: list[MergeRequest] = field(default_factory=list)
    met: list[MergeRequest] = field(default_factory=list)
    so_far: MergedSoFar = field(init=False)

    def __post_init__(self) -> None:
        self.so_far = MergedSoFar(self.snapshots, self.source, self.differences)

    def merge_change(self, change: Change) -> bool:
        """Merge a change; returns whether to continue with the next one."""
        own, outside = steps_by_owner(change.leaf, self.differences[change], self.ownership)
        own = [step for step in own if self._is_open(each.path for each in step.changed)]
        foreign: list[MergeRequest] = []
        for each in outside:
            if not self._is_open(each.rename or (each.change.path,)):
                continue
            if (each.leaf, each.change.path) in self.answers:
                self.answered.append(each)
            elif is_met(self.snapshots, each, self._made_by(each.owners)):
                self.met.append(each)
            else:
                foreign.append(each)
        if foreign and self.outside is Outside.REFUSE:
            self.refused += foreign
            self.left_out.append(change.leaf)
            return self.strategy is not MergeStrategy.FAIL_ON_CONFLICT
        self.requests += foreign
        draft = TreeDraft(self.so_far, change, own)
        if self.strategy is MergeStrategy.LAST_WINS:
            self.overwritten += draft.overwrite()
        self.conflicts += draft.conflicts
        if draft.conflicts and self.strategy in {
            MergeStrategy.SEQUENTIAL,
            MergeStrategy.FAIL_ON_CONFLICT,
        }:
            draft.take_back()
            self.left_out.append(change.leaf)
            return self.strategy is MergeStrategy.SEQUENTIAL
        draft.keep()
        self.merged.append(change.leaf)
        return True

    def _made_by(self, leaves: Collection[str]) -> list[TreeDifference]:
        return [found for change, found in self.differences.items() if change.leaf in leaves]

    def _is_open(self, paths: Iterable[str]) -> bool:
        """Whether none of these paths was decided before."""
        return self.resolved.keys().isdisjoint(paths)

    def _put_resolved(self) -> None:
        """Put what was decided in its place, for paths that one of the changes touches."""
        touched = [
            path
            for path in self.resolved
            if any(found.at(path) is not None for found in self.differences.values())
        ]
        for path in sorted(touched, key=lambda one: (self.resolved[one] is not None, one)):
            entry = self.resolved[path]
            blocking = () if entry is None else self.so_far.in_the_way(path)
            for other in blocking:
                kind, who = ConflictKind.DIRECTORY, self.so_far.who(other)
                detail = f"{other} is in its place"
                self.conflicts.append(Conflict(kind, path, RESOLVED, who, detail))
            if not blocking:
                self.so_far.put(path, entry)

    def result(self) -> Merged:
        self._put_resolved()
        return Merged(
            self.source,
            self.snapshots.write_tree(self.so_far.entries),
            self.strategy,
            tuple(self.merged),
            tuple(self.left_out),
            tuple(self.conflicts),
            tuple(self.refused),
            tuple(self.requests),
            tuple(self.overwritten),
            tuple(self.answered),
            tuple(self.met),
        )


def steps_by_owner(
    leaf: str, difference: TreeDifference, rules: WriteRules | None
) -> tuple[list[ChangeStep], list[MergeRequest]]:
    """The steps that a leaf may take, and requests for the others.

    A rename of which it owns only one half is a request.
    """
    steps = [*difference.steps()]
    if rules is None:
        return steps, []
    own: list[ChangeStep] = []
    foreign: list[MergeRequest] = []
    moved: set[str] = set()
    for move in _moves(steps):
        if (request := _request(leaf, move, rules)) is not None:
            foreign.append(request)
            moved.update(each.path for each in move.changed)
    for step in steps:
        if step.changed[0].path in moved:
            continue
        if (request := _request(leaf, step, rules)) is None:
            own.append(step)
        else:
            foreign.append(request)
    return own, foreign


def is_met(snapshots: Snapshots, request: MergeRequest, made: Iterable[TreeDifference]) -> bool:
    """Whether the owners have made the change themselves, as part of what they made."""
    if request.rename is not None:
        return False
    path = request.change.path
    return any(has_change(snapshots, each.at(path), request.change) for each in made)


def _request(leaf: str, step: ChangeStep, rules: WriteRules) -> MergeRequest | None:
    outside = [each for each in step.changed if not rules.allows(leaf, each.path)]
    if not outside:
        return None
    owners = sorted({owner for each in outside for owner in rules.owners(each.path)})
    return MergeRequest(leaf, tuple(owners), outside[0], step.rename)


def _moves(steps: Sequence[ChangeStep]) -> list[ChangeStep]:
    """Files deleted and created again elsewhere with the same name.

    They are too different for git to call it a rename.
    """
    deleted, created = _by_name(steps, created=False), _by_name(steps, created=True)
    pairs = [
        (deleted[name][0], created[name][0])
        for name in deleted
        if len(deleted[name]) == len(created.get(name, ())) == 1
    ]
    return [ChangeStep((old, new), (old.path, new.path)) for old, new in pairs]


def _by_name(steps: Sequence[ChangeStep], *, created: bool) -> dict[str, list[Changed]]:
    found: dict[str, list[Changed]] = {}
    for (each,) in (step.changed for step in steps if step.rename is None):
        if (each.before is None) == created and (each.after is None) != created:
            found.setdefault(each.path.rpartition("/")[2], []).append(each)
    return found
