"""Merges the results of a run's subplans into its directory, and takes that back again."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from abreast.assembly.plan_merge import ApplyResult, MergeJob, MergeOptions, PlanMerge
from abreast.assembly.process_groups import ProcessGroups
from abreast.assembly.trees.opened_trees import snapshots_of
from abreast.cli.errors import DONE, FAILED, UsageError, explain, os_error_text, refusing, tell
from abreast.cli.jobs.plan.job import recorded_job, repair_tree
from abreast.cli.signals import Interrupts
from abreast.cli.stores import StoreChoice, find_run
from abreast.cli.terminal.tables import say, say_json
from abreast.core.errors import AbreastError
from abreast.jobs.plan.errors import PlanInvalid
from abreast.jobs.plan.review.recorded_plan import RecordedPlan, read_recorded
from abreast.jobs.plan.review.rejection import RejectedMerge, overrule, rejection_of
from abreast.jobs.plan.review.tree_manifest import TREES
from abreast.jobs.plan.review.tree_runs import TreeJob, read_tree_run
from abreast.jobs.plan.settings import KIND
from abreast.store.port import RunRow
from abreast.views.job_view import many
from abreast.worktrees.merge.names import printable
from abreast.worktrees.merge.undo import Applied, applies, changed_since, undo
from abreast.worktrees.results.held_results import HeldResults, clear_leftovers


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """How to merge, and whether JSON is printed."""

    merging: MergeOptions
    as_json: bool = False


def apply_run(wanted: str, choice: StoreChoice, options: ApplyOptions) -> int:
    """Merge, check, write; return the exit code."""
    row, job, recorded = find_plan(wanted, choice)
    with choice.existing() as store:
        rejected = rejection_of(store, row)
    with asyncio.Runner() as runner:
        driver = _ApplyDriver(job, row.id, recorded, options, choice.flag, rejected=rejected)
        code = runner.run(driver.drive())
    if rejected is not None and code == DONE and not options.merging.dry_run:
        with choice.existing() as store:
            overrule(store, row.id)
    return code


def find_plan(wanted: str, choice: StoreChoice) -> tuple[RunRow, MergeJob, RecordedPlan]:
    """A recorded plan, or a run whose items worked in worktrees, and its results.

    Repairs a killed apply in its directory first. Raises `UsageError` if there is no such run.
    """
    job: MergeJob
    with choice.existing() as store:
        row = find_run(store, wanted)
        if row.kind != KIND:
            with refusing("", PlanInvalid):
                job, recorded = read_tree_run(store, row)
        else:
            job, recorded = recorded_job(row), read_recorded(store, row)
    if not Path(job.path).is_dir():
        raise UsageError(f"{job.path}, which {row.id} divided, is not there any more")
    repair_tree(Path(job.path))
    return row, job, recorded


class _ApplyDriver:
    def __init__(
        self,
        job: MergeJob,
        run: str,
        recorded: RecordedPlan,
        options: ApplyOptions,
        flag: str,
        *,
        rejected: RejectedMerge | None,
    ) -> None:
        self._options = options
        self._run, self._flag = run, flag
        self._undo_hint = f"; take that back with: abreast plan undo{flag}"
        self._groups = ProcessGroups()
        self._root = Path(job.path)
        self._merge = PlanMerge(
            job,
            run,
            recorded,
            options.merging,
            notify=tell,
            groups=self._groups,
            rejected=rejected,
        )

    async def drive(self) -> int:
        with Interrupts(self._groups.kill) as interrupts:
            try:
                return self._print_result(await self._merge.merge(interrupts.stop_cancelling))
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

    def _print_result(self, result: ApplyResult) -> int:
        merged, blocked = result.merged, result.blocked
        overwritten = [str(each) for each in merged.overwritten]
        if self._options.as_json:
            say_json(result.plain())
            return FAILED if blocked else DONE
        for line in blocked:
            say(printable(line))
        for line in result.notes:
            tell(printable(line))
        if blocked:
            stand = "stands" if len(blocked) == 1 else "stand"
            tell(f"nothing was written: {many(len(blocked), 'thing')} {stand} in the way")
            if merged.conflicts:
                tell(
                    f"choose for each file: abreast plan resolve {self._run} FILE "
                    f"--take PART|source|edit{self._flag}"
                )
            return FAILED
        for line in overwritten:
            say(printable(f"overwritten: {line}"))
        for line in result.left:
            say(printable(f"left out: {line}"))
        parts = many(len(merged.merged), "subplan")
        if self._options.merging.dry_run:
            tell(f"{parts} can be merged")
        elif not result.paths:
            tell(f"nothing to write: the tree has all that {parts} changed")
        else:
            files = many(self._merge.count_files(result), "file")
            tell(f"{files} written, from {parts}{self._undo_hint}")
        return DONE


def undo_run(wanted: str | None, choice: StoreChoice, *, dry_run: bool, as_json: bool) -> int:
    """Undo the newest apply, of one run or of all; return the exit code."""
    root, applied = _newest(choice) if wanted is None else _newest_of(wanted, choice)
    run = str(applied.record["run"])
    clear_leftovers(root, tell)
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
        files = many(len(changed), "file")
        tell(f"nothing was taken back: {files} changed since {run} was applied")
        return FAILED
    again = f"apply it once more with: abreast plan apply {run}{choice.flag}"
    tell(
        f"{many(len(restored), 'file')} can be taken back"
        if dry_run
        else f"taken back: {many(len(restored), 'file')}, as before {run} was applied; {again}"
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
        rows = store.runs(limit=1000)
    plans = (Path(recorded_job(row).path) for row in rows if row.kind == KIND)
    trees = (Path(TreeJob.recorded(row).path) for row in rows if TREES in row.manifest)
    roots = {Path.cwd(), *plans, *trees}
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
