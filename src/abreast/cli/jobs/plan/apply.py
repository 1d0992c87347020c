"""Merges the results of a run's subplans into its directory, and takes that back again."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from abreast.cli.errors import DONE, FAILED, UsageError, explain, os_error_text, tell
from abreast.cli.jobs.map.process_groups import ProcessGroups
from abreast.cli.jobs.plan.driver import snapshots_of
from abreast.cli.jobs.plan.job import KIND, PlanJob, clear_leftovers, repair_tree
from abreast.cli.signals import Interrupts
from abreast.cli.stores import StoreChoice, find_run
from abreast.cli.terminal.tables import say, say_json
from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import AbreastError
from abreast.core.events import ITEM_SETTLED
from abreast.executors.commands import Commands
from abreast.jobs.plan.job import PLAN_DIVIDED, SUBPLANS
from abreast.jobs.plan.spec import Plan
from abreast.jobs.plan.work.checks import CheckedMerge, CheckResult, MergeCheck, check_imports
from abreast.jobs.plan.work.commands import Processes
from abreast.jobs.plan.work.held_results import HeldResults
from abreast.jobs.plan.work.ownership import Ownership
from abreast.store.codec import codec
from abreast.store.port import RunRow, Store, each_event
from abreast.worktrees.merge.apply import apply
from abreast.worktrees.merge.listing import list_submodules
from abreast.worktrees.merge.merge import Change, Merged, MergeStrategy, Outside, merge
from abreast.worktrees.merge.names import printable
from abreast.worktrees.merge.snapshots import Snapshots
from abreast.worktrees.merge.undo import Applied, applies, changed_since, undo
from abreast.worktrees.pool import open_worktrees


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """How to merge, and which checks run before anything is written."""

    strategy: str = "three-way"
    outside: str = "refuse"
    leave_requests: bool = False
    partial: bool = False
    gate: bool = True
    check: str | None = None
    dry_run: bool = False
    as_json: bool = False


@dataclass(slots=True)
class _RecordedPlan:
    """The results of a run's subplans, in the order of their names, and the files of each."""

    changes: list[Change] = field(default_factory=list)
    files: dict[str, list[str]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    """The newest state of each subplan that has an outcome."""
    leaves: list[str] | None = None
    """All subplans of the run; None for an old run that did not record them."""
    replaced: list[str] = field(default_factory=list)
    """Subplans of an earlier division of the tree whose files another subplan has done again."""

    def not_done(self, plan: Plan) -> dict[str, str]:
        """The subplans that are not done, and the state of each."""
        leaves = [leaf.id for leaf in plan.leaves] if self.leaves is None else self.leaves
        return {leaf: self.states.get(leaf, "not run") for leaf in leaves if leaf not in self.files}


def apply_run(wanted: str, choice: StoreChoice, options: ApplyOptions) -> int:
    """Merge, check, write; return the exit code."""
    row, job, recorded = find_plan(wanted, choice)
    with asyncio.Runner() as runner:
        return runner.run(_ApplyDriver(job, row.id, recorded, options).drive())


def find_plan(wanted: str, choice: StoreChoice) -> tuple[RunRow, PlanJob, _RecordedPlan]:
    """A recorded plan, and its results.

    Repairs a killed apply in its directory first. Raises `UsageError` if there is no such plan.
    """
    with choice.existing() as store:
        row = find_run(store, wanted)
        if row.kind != KIND:
            raise UsageError(f"{row.id} is no plan, but a {row.kind}")
        job = PlanJob.of_run(row)
        recorded = _recorded(store, row)
    if not Path(job.path).is_dir():
        raise UsageError(f"{job.path}, which {row.id} divided, is not there any more")
    repair_tree(Path(job.path))
    return row, job, recorded


def _recorded(store: Store, row: RunRow) -> _RecordedPlan:
    found: dict[str, Any] = {}
    states: dict[str, str] = {}
    leaves: list[str] | None = None
    for event in each_event(store, row.id, {ITEM_SETTLED, PLAN_DIVIDED}):
        if event.kind == PLAN_DIVIDED:
            nodes: Any = codec.decode(event.body) if event.body else []
            inner = {node["parent"] for node in nodes}
            leaves = [node["id"] for node in nodes if node["id"] not in inner]
            continue
        parts = event.path.split("/")
        if len(parts) != 3 or parts[1] != SUBPLANS:  # noqa: PLR2004 - run/subplans/leaf
            continue
        leaf = parts[2]
        states[leaf] = str(event.data.get("state"))
        if states[leaf] == "done" and event.body:
            found[leaf] = codec.decode(event.body)
        elif states[leaf] == "failed":
            # It may have been done before, and have run again because its files had changed.
            found.pop(leaf, None)
    replaced = _replaced(found, leaves)
    found = {leaf: facts for leaf, facts in found.items() if leaf not in replaced}
    return _RecordedPlan(
        [Change(leaf, found[leaf]["base"], found[leaf]["result"]) for leaf in sorted(found)],
        {leaf: found[leaf]["files"] for leaf in sorted(found)},
        states,
        leaves,
        replaced,
    )


def _replaced(found: Mapping[str, Any], leaves: Sequence[str] | None) -> list[str]:
    """Subplans of an earlier division whose files a subplan of the newest division has done.

    Only the newer result counts.
    """
    now = set(found) if leaves is None else set(leaves)
    again = {path for leaf in now & set(found) for path in found[leaf]["files"]}
    return sorted(leaf for leaf in set(found) - now if not again.isdisjoint(found[leaf]["files"]))


@dataclass(frozen=True, slots=True)
class _ApplyResult:
    merged: Merged
    blocked: list[str]
    notes: list[str]
    paths: tuple[str, ...]
    left: list[str]
    """Requests that `--leave-requests` left out."""


class _ApplyDriver:
    def __init__(
        self, job: PlanJob, run: str, recorded: _RecordedPlan, options: ApplyOptions
    ) -> None:
        self._job = job
        self._run = run
        self._recorded = recorded
        self._options = options
        self._groups = ProcessGroups()
        self._root = Path(job.path)
        self._snapshots: Snapshots = snapshots_of(job.path)

    async def drive(self) -> int:
        with Interrupts(self._groups.kill) as interrupts:
            try:
                return await self._merge(interrupts)
            except (KeyboardInterrupt, asyncio.CancelledError):
                tell(f"{interrupts.word}; nothing was written")
                return interrupts.code
            except AbreastError as error:
                why, code = explain(error)
                tell(why)
                return code
            except OSError as error:
                place = printable(str(error.filename or self._root))
                tell(f"nothing was written: {place}: {os_error_text(error)}")
                return FAILED

    async def _merge(self, interrupts: Interrupts) -> int:
        clear_leftovers(self._root)
        plan, imports = self._job.current_plan()
        source = self._snapshots.take(self._root)
        ownership = self._ownership(plan)

        def merge_some(changes: Sequence[Change]) -> Merged:
            return merge(
                self._snapshots,
                source,
                changes,
                ownership=ownership,
                strategy=MergeStrategy(self._options.strategy),
                outside=Outside(self._options.outside),
            )

        changes = self._in_order(plan)
        merged = merge_some(changes)
        left = merged.requests if self._options.leave_requests else ()
        blocked = [line for line in merged.blocked if line not in set(map(str, left))]
        missing = self._recorded.not_done(plan)
        notes = [
            f"{leaf}: left out, as its files were done again" for leaf in self._recorded.replaced
        ]
        if missing and self._options.partial:
            whole = len(missing) + len(self._recorded.files)
            notes.append(f"{len(missing)} of {whole} subplans are not done, and left out")
        elif missing:
            blocked = [
                *(
                    f"{leaf}: {state}; --partial applies the others"
                    for leaf, state in missing.items()
                ),
                *blocked,
            ]
        paths: tuple[str, ...] = ()
        if not blocked and self._options.gate:
            looked = await self._check(
                CheckedMerge(merged, changes, merge_some, imports, self._snapshots)
            )
            blocked, notes = [str(each) for each in looked.faults], [*notes, *looked.notes]
        if not blocked and not self._options.dry_run:
            interrupts.stop_cancelling()
            paths = self._write(merged, set(merged.merged) - {each.leaf for each in left})
        return self._print_result(
            _ApplyResult(merged, blocked, notes, paths, [str(each) for each in left])
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
        return Ownership(leaves, list_submodules(self._root))

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

    def _print_result(self, result: _ApplyResult) -> int:
        merged, blocked = result.merged, result.blocked
        overwritten = [str(each) for each in merged.overwritten]
        if self._options.as_json:
            say_json(
                {
                    "merged": list(merged.merged),
                    "blocked": blocked,
                    "notes": result.notes,
                    "written": list(result.paths),
                    "overwritten": overwritten,
                    "left": result.left,
                }
            )
            return FAILED if blocked else DONE
        for line in blocked:
            say(printable(line))
        for line in result.notes:
            tell(printable(line))
        if blocked:
            tell(f"nothing was written: {len(blocked)} thing(s) stand in the way")
            return FAILED
        for line in overwritten:
            say(printable(f"overwritten: {line}"))
        for line in result.left:
            say(printable(f"left out: {line}"))
        tell(
            f"{len(merged.merged)} subplans can be merged"
            if self._options.dry_run
            else f"{self._count_files(result)} files written, from {len(merged.merged)} subplans"
        )
        return DONE

    def _count_files(self, result: _ApplyResult) -> int:
        """How many files were written; a renamed file counts once."""
        if not result.paths:
            return 0
        return len(result.paths) - len(
            self._snapshots.changes(result.merged.source, result.merged.tree).renames
        )


def undo_run(wanted: str | None, choice: StoreChoice, *, dry_run: bool, as_json: bool) -> int:
    """Undo the newest apply, of one run or of all; return the exit code."""
    root, applied = _newest(choice) if wanted is None else _newest_of(wanted, choice)
    run = str(applied.record["run"])
    clear_leftovers(root)
    try:
        changed = changed_since(root, applied)
        if not changed and not dry_run:
            _hold_again(root, run, applied)
            undo(root, applied)
    except AbreastError as error:
        why, code = explain(error)
        raise UsageError(why, code) from None
    except OSError as error:
        raise UsageError(
            f"nothing was taken back: {error.filename or root}: {os_error_text(error)}", FAILED
        ) from None
    restored = [] if changed else list(applied.paths)
    if as_json:
        say_json({"run": run, "restored": [] if dry_run else restored, "changed": changed})
        return FAILED if changed else DONE
    for path in changed:
        say(printable(f"{path}: changed since it was applied"))
    if changed:
        tell(f"nothing was taken back: {len(changed)} file(s) changed since {run} was applied")
        return FAILED
    again = f"apply it once more with: abreast plan apply {run}{choice.flag}"
    tell(
        f"{len(restored)} files can be taken back"
        if dry_run
        else f"{len(restored)} files are as they were before {run} was applied; {again}"
    )
    return DONE


def _newest_of(wanted: str, choice: StoreChoice) -> tuple[Path, Applied]:
    row, job, _ = find_plan(wanted, choice)
    root = Path(job.path)
    found = [each for each in _applies(root) if each.record["run"] == row.id]
    if not found:
        raise UsageError(f"nothing of {row.id} is applied to {root}, or it was taken back already")
    return root, found[-1]


def _newest(choice: StoreChoice) -> tuple[Path, Applied]:
    """The newest apply to the directories of all recorded plans."""
    with choice.existing() as store:
        rows = [row for row in store.runs(limit=1000) if row.kind == KIND]
    roots = {Path.cwd(), *(Path(PlanJob.of_run(row).path) for row in rows)}
    found: list[tuple[float, Path, Applied]] = []
    for root in sorted(root for root in roots if root.is_dir()):
        repair_tree(root)
        found += [(float(each.record["at"]), root, each) for each in _applies(root)[-1:]]
    if not found:
        raise UsageError("there is nothing to take back: no plan is applied")
    _, root, applied = max(found, key=lambda each: each[0])
    return root, applied


def _applies(root: Path) -> list[Applied]:
    try:
        return applies(root)
    except AbreastError as error:
        raise UsageError(str(error), FAILED) from None


def _hold_again(root: Path, run: str, applied: Applied) -> None:
    """Hold the results of the subplans again: the apply released them."""
    kept = HeldResults(snapshots_of(str(root)))
    for leaf, how, tree in applied.record["held"]:
        kept.hold(run, leaf, how, tree)
