"""Undoes an apply, if its files were not changed since."""

from pathlib import Path

from abreast.cli.errors import DONE, FAILED, UsageError, explain, os_error_text, tell
from abreast.cli.jobs.plan.apply import find_plan
from abreast.cli.jobs.plan.driver import snapshots_of
from abreast.cli.jobs.plan.job import KIND, PlanJob, repair_tree
from abreast.cli.jobs.plan.leftovers import clear_leftovers
from abreast.cli.stores import StoreChoice
from abreast.cli.terminal.tables import say, say_json
from abreast.core.errors import AbreastError
from abreast.jobs.plan.work.held_results import HeldResults
from abreast.worktrees.merge.names import printable
from abreast.worktrees.merge.undo import Applied, applies, changed_since, undo


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
