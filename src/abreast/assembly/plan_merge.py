"""Merges the results of a plan's subplans into its directory, after checks.

The command line and `abreast.plan` both drive it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from abreast.assembly.process_groups import ProcessGroups
from abreast.assembly.trees.opened_trees import snapshots_of
from abreast.core.clock import SYSTEM_CLOCK
from abreast.executors.commands import Commands
from abreast.jobs.plan.decompose.imports import Imports
from abreast.jobs.plan.errors import PlanInvalid
from abreast.jobs.plan.review.branches import (
    Branches,
    PartBranch,
    PartCommit,
    branch_faults,
    commit_message,
    stacks_of,
)
from abreast.jobs.plan.review.diffs import conflict_facts
from abreast.jobs.plan.review.recorded_plan import RecordedPlan
from abreast.jobs.plan.review.rejection import RejectedMerge
from abreast.jobs.plan.review.resolutions import Resolution, Resolutions, Sides
from abreast.jobs.plan.review.tree_runs import TreeJob
from abreast.jobs.plan.spec import Plan
from abreast.jobs.plan.work.checks import CheckedMerge, CheckResult, MergeCheck, check_imports
from abreast.jobs.plan.work.commands import Processes
from abreast.jobs.plan.work.ownership import Ownership
from abreast.worktrees.merge.apply import apply
from abreast.worktrees.merge.listing import list_submodules
from abreast.worktrees.merge.merge import (
    Change,
    Merged,
    MergeRequest,
    MergeStrategy,
    Outside,
    merge,
    steps_by_owner,
)
from abreast.worktrees.merge.snapshots import Snapshots
from abreast.worktrees.pool import open_worktrees
from abreast.worktrees.results.held_results import HeldResults, clear_leftovers


class MergeJob(Protocol):
    """What a merge needs of a job: that of a plan, or of items that worked in worktrees."""

    @property
    def path(self) -> str:
        """The directory to merge into."""

    @property
    def prompt(self) -> str | None:
        """The task, for the messages of commits."""

    @property
    def command(self) -> str | None:
        """The command that did it."""

    @property
    def call(self) -> str | None:
        """The function that did it."""

    @property
    def check(self) -> str | None:
        """A command that must pass on the merge."""

    def divide(self, *, strict: bool = True) -> tuple[Plan, Imports]:
        """The parts in their order, and the imports of the directory as it is now."""


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """How to merge, and which checks run before anything is written."""

    strategy: str = "three-way"
    outside: str = "refuse"
    leave_requests: bool = False
    partial: bool = False
    gate: bool = True
    check: str | None = None
    dry_run: bool = False
    anyway: bool = False
    """Merge although it was rejected."""


@dataclass(frozen=True, slots=True, repr=False)
class ApplyResult:
    """A merge of subplans: what prevents it from being written, or what was written."""

    merged: Merged
    blocked: list[str]
    """Why nothing was written, one line each; empty if nothing stands in the way."""
    notes: list[str]
    paths: tuple[str, ...]
    """The files that were written or removed."""
    left: list[str]
    """Requests that `leave_requests` left out."""
    missing: dict[str, str] = field(default_factory=dict)
    """Subplans that are not done, and the state of each."""
    faults: list[str] = field(default_factory=list)
    """What the checks found, one line each."""
    resolved: Mapping[str, Resolution] = field(default_factory=dict)
    """The choices by `plan resolve` that it has."""
    rejected: RejectedMerge | None = None
    """That it was rejected before, whether it was written all the same or not."""

    @property
    def ok(self) -> bool:
        """Whether nothing stands in the way."""
        return not self.blocked

    def plain(self) -> dict[str, Any]:
        """The result as JSON values."""
        merged = self.merged
        return {
            "merged": list(merged.merged),
            "blocked": self.blocked,
            "notes": self.notes,
            "written": list(self.paths),
            "overwritten": [str(each) for each in merged.overwritten],
            "left": self.left,
            "conflicts": [conflict_facts(each) for each in merged.conflicts],
            "refused": [_request_facts(each) for each in merged.refused],
            "requests": [_request_facts(each) for each in merged.requests],
            "answered": [_request_facts(each) for each in merged.answered],
            "not_done": self.missing,
            "faults": self.faults,
            "resolved": {file: one.take for file, one in self.resolved.items()},
            "rejected": None if self.rejected is None else self.rejected.plain(),
        }

    def __repr__(self) -> str:
        return f"<ApplyResult: {len(self.paths)} files written, {len(self.blocked)} in the way>"


def _request_facts(request: MergeRequest) -> dict[str, Any]:
    facts = {"file": request.change.path, "part": request.leaf, "owners": list(request.owners)}
    return facts | ({"rename": list(request.rename)} if request.rename else {})


@dataclass(frozen=True, slots=True)
class MergeDraft:
    """A merge that is not checked and not written."""

    plan: Plan
    imports: Imports
    changes: list[Change]
    merged: Merged
    merge_some: Callable[[Sequence[Change]], Merged]
    """Merges some of the changes in the same way."""
    sides: Callable[[], Sides]
    resolved: dict[str, Resolution]
    """The choices that hold, by file."""
    stale: list[str]
    """Files with choices for other contents."""
    not_merged: frozenset[tuple[str, str]] = frozenset()
    """Subplans, and the files of others that they wrote and whose owners' versions count."""


def _is_decided(parts: Sequence[str], merged: set[str]) -> bool:
    """Whether a choice between parts counts in a merge of some of them.

    What only one of them has made is not in conflict with the others yet.
    """
    return len(merged & set(parts)) >= min(2, len(parts))


class PlanMerge:
    """Merges the results of one run into the directory of its plan."""

    def __init__(
        self,
        job: MergeJob,
        run: str,
        recorded: RecordedPlan,
        options: MergeOptions,
        *,
        notify: Callable[[str], None],
        groups: ProcessGroups | None = None,
        partly: str = "--partial",
        allow: str = "--outside allow",
        rejected: RejectedMerge | None = None,
    ) -> None:
        """Nothing is read before `merge`; `groups` are told of the processes of a check.

        `partly` and `allow` are how these options are written, for messages. If it was `rejected`,
        only `anyway` of the options lets it be written.
        """
        self._job = job
        self._run = run
        self._recorded = recorded
        # Items of other jobs own no files.
        outside = "allow" if isinstance(job, TreeJob) else options.outside
        self._options = replace(options, outside=outside)
        self._notify = notify
        self._groups = groups or ProcessGroups()
        self._partial = partly
        self._rejected = rejected
        self._let_through = f"{allow} lets it through"
        self._root = Path(job.path)
        self._snapshots: Snapshots = snapshots_of(job.path)

    async def merge(self, before_write: Callable[[], None] = lambda: None) -> ApplyResult:
        """Merge, check and write: all of it, or nothing if something prevents it.

        `before_write` is called when nothing can prevent it any more.
        """
        await asyncio.to_thread(clear_leftovers, self._root, self._notify)
        draft = await asyncio.to_thread(self.prepare)
        merged = draft.merged
        left = merged.requests if self._options.leave_requests else ()
        blocked = [*self._rejection(), *self._blocking(merged, {str(each) for each in left})]
        missing = self._recorded.not_done(draft.plan)
        notes = self._notes(draft)
        if missing and self._options.partial:
            whole = len(missing) + len(self._recorded.files)
            notes.append(f"{len(missing)} of {whole} subplans are not done, and left out")
        elif missing:
            blocked = [
                *(
                    f"{leaf}: {state}; {self._partial} applies the others"
                    for leaf, state in missing.items()
                ),
                *blocked,
            ]
        paths: tuple[str, ...] = ()
        faults: list[str] = []
        if not blocked and self._options.gate:
            looked = await self._check(
                CheckedMerge(
                    merged, draft.changes, draft.merge_some, draft.imports, self._snapshots
                )
            )
            blocked = faults = [str(each) for each in looked.faults]
            notes += looked.notes
        if not blocked and not self._options.dry_run:
            before_write()
            paths = self._write(merged, set(merged.merged) - {each.leaf for each in left})
        return ApplyResult(
            merged,
            blocked,
            notes,
            paths,
            [str(each) for each in left],
            missing,
            faults,
            draft.resolved,
            self._rejected,
        )

    def _rejection(self) -> list[str]:
        """The line that a rejection stands in the way with, unless it is overruled."""
        if self._rejected is None or self._options.anyway:
            return []
        return [f"{self._run} was {self._rejected}; --anyway applies it"]

    def make_branches(self) -> list[PartBranch]:
        """Make a branch with one commit for each part that is done; this blocks.

        Raises `PlanInvalid` for conflicts without a choice, and for writes outside of a part's
        files, unless these are let through, asked for or left out.
        """
        branches = Branches(self._root, self._snapshots)
        head = branches.take_head()
        draft = self.prepare(head)
        if blocked := [*self._rejection(), *self._blocking(draft.merged, set())]:
            raise PlanInvalid("; ".join(branch_faults(self._run, draft.merged, blocked)))
        by_leaf = {each.leaf: each for each in draft.changes}
        changed = {
            each.leaf: [
                one.path
                for one in self._snapshots.changes(each.base, each.result).changed
                if (each.leaf, one.path) not in draft.not_merged
            ]
            for each in draft.changes
        }
        commits = [
            [
                self._part_commit(
                    leaf, draft.merge_some([by_leaf[one] for one in stack[: place + 1]]).tree
                )
                for place, leaf in enumerate(stack)
            ]
            for stack in stacks_of([*by_leaf], changed, self._recorded.needs)
        ]
        return branches.make(self._run, head, commits)

    def _part_commit(self, leaf: str, tree: str) -> PartCommit:
        job = self._job
        scope, task = self._recorded.scopes.get(leaf, leaf), job.prompt or job.command or job.call
        return PartCommit(leaf, tree, commit_message(scope, self._run, leaf, task or ""))

    def prepare(self, onto: str | None = None) -> MergeDraft:
        """Merge the results in memory, with the choices that were made; this blocks.

        They are merged into the tree as it is now, or into another snapshot.
        """
        plan, imports = self._job.divide(strict=False)
        source = self._snapshots.take(self._root)
        changes = self._in_order(plan)
        sides = partial(Sides.of, self._snapshots, source, changes)
        chosen = Resolutions(self._root, self._run).read()
        now = sides() if chosen else None
        resolved = {file: one for file, one in chosen.items() if now and now.holds(one)}
        entries = {path: entry for one in resolved.values() for path, entry in one.entries.items()}
        ownership = self._ownership(plan)
        merge_these = partial(
            merge,
            self._snapshots,
            source if onto is None else onto,
            ownership=ownership,
            strategy=MergeStrategy(self._options.strategy),
            outside=Outside(self._options.outside),
        )
        merged = merge_these(changes, answered=self._recorded.answered, resolved=entries)
        # Whether an owner has made a change too is known only while it is among those merged.
        not_merged = self._recorded.answered | {
            (each.leaf, each.change.path) for each in merged.met
        }
        if entries and self._options.outside != Outside.ALLOW:
            not_merged |= self._decided_writes(changes, ownership, entries)

        def merge_some(some: Sequence[Change]) -> Merged:
            leaves = {each.leaf for each in some}
            decided = {
                path: entry
                for path, entry in entries.items()
                if now is not None and _is_decided(now.parts(path), leaves)
            }
            return merge_these(some, answered=not_merged, resolved=decided)

        stale = sorted(chosen.keys() - resolved.keys())
        return MergeDraft(
            plan, imports, changes, merged, merge_some, sides, resolved, stale, not_merged
        )

    def _decided_writes(
        self, changes: Sequence[Change], ownership: Ownership, entries: Mapping[str, object]
    ) -> set[tuple[str, str]]:
        """Writes outside to files that were decided, which count only by that decision."""
        return {
            (each.leaf, each.change.path)
            for change in changes
            for each in steps_by_owner(
                change.leaf, self._snapshots.changes(change.base, change.result), ownership
            )[1]
            if not entries.keys().isdisjoint(each.rename or (each.change.path,))
        }

    def _notes(self, draft: MergeDraft) -> list[str]:
        replaced = self._recorded.replaced
        return [
            *(f"{leaf}: left out, as its files were done again" for leaf in replaced),
            *(f"{each}, which has worked on it since: left out" for each in draft.merged.answered),
            *(f"{one.file}: as chosen, {one.take}" for one in draft.resolved.values()),
            *(
                f"{file}: what was chosen was for other contents, and does not count"
                for file in draft.stale
            ),
        ]

    def _blocking(self, merged: Merged, left: set[str]) -> list[str]:
        """What stands in the way, with the option that lets a write outside through."""
        outside = {str(each): each for each in (*merged.refused, *merged.requests)}
        lines = [line for line in merged.blocked if line not in left]
        return [line + (self._advice(outside[line]) if line in outside else "") for line in lines]

    def _advice(self, request: MergeRequest) -> str:
        asked = (request.leaf, request.change.path) in self._recorded.declined
        why = ", which was asked for it, and made the same as before" if asked else ""
        return f"{why}; {self._let_through}"

    def count_files(self, result: ApplyResult) -> int:
        """How many files were written; a renamed file counts once."""
        if not result.paths:
            return 0
        return len(result.paths) - len(
            self._snapshots.changes(result.merged.source, result.merged.tree).renames
        )

    def _write(self, merged: Merged, finished: set[str]) -> tuple[str, ...]:
        """Write the merge, and release the held results of these leaves.

        They are stored in the record of the apply, so that an undo can hold them again.
        """
        kept = HeldResults(self._snapshots)
        held = [
            [each.leaf, each.how, each.tree]
            for each in kept.held(self._run)
            if each.leaf in finished
        ]
        paths = apply(
            merged,
            self._snapshots,
            self._root,
            leave_requests=self._options.leave_requests,
            record={"run": self._run, "at": SYSTEM_CLOCK.wall(), "held": held},
        )
        kept.drop(self._run, finished)
        return paths

    def _in_order(self, plan: Plan) -> list[Change]:
        """The changes in the order of the plan; those of removed subplans come last."""
        order = {leaf.id: place for place, leaf in enumerate(plan.leaves)}
        return sorted(
            self._recorded.changes, key=lambda each: (order.get(each.leaf, len(order)), each.leaf)
        )

    def _ownership(self, plan: Plan) -> Ownership:
        """The owner of each file: the subplan that had it when it ran.

        The tree may be divided differently now.
        """
        had = self._recorded.files
        taken = {path for files in had.values() for path in files}
        others = {
            leaf.id: [path for path in leaf.files if path not in taken] for leaf in plan.leaves
        }
        leaves = {leaf: files for leaf, files in others.items() if leaf not in had} | had
        return Ownership(leaves, list_submodules(self._root), plan.left_out)

    async def _check(self, whole: CheckedMerge) -> CheckResult:
        looked = await check_imports(whole)
        command = self._options.check or self._job.check
        if looked.faults or command is None:
            return looked
        async with AsyncExitStack() as stack:
            trees = await stack.enter_async_context(open_worktrees(self._root, 1, own_git=True))
            processes = Processes(
                await stack.enter_async_context(Commands()),
                self._groups.started,
                self._groups.ended,
            )
            return await MergeCheck(command, trees.slots[0], processes).look(whole)
