"""Records that what a run did in worktrees is not to be merged."""

from pathlib import Path

from abreast.cli.errors import DONE, FAILED, UsageError, one_line, refusing, tell
from abreast.cli.jobs.plan.apply import find_plan
from abreast.cli.stores import StoreChoice, state_of
from abreast.cli.terminal.tables import say_json
from abreast.core.errors import AbreastError
from abreast.jobs.plan.review.rejection import reject, rejection_of
from abreast.worktrees.merge.undo import applies


def reject_run(wanted: str, choice: StoreChoice, reason: str, *, as_json: bool) -> int:
    """Reject the results of a run; return the exit code.

    Raises `UsageError` if it is running, or applied.
    """
    row, job, _ = find_plan(wanted, choice)
    with refusing("", AbreastError):
        applied = any(each.record["run"] == row.id for each in applies(Path(job.path)))
    if applied:
        raise UsageError(
            f"{row.id} is applied; take it back first: abreast plan undo {row.id}{choice.flag}",
            FAILED,
        )
    with choice.existing() as store:
        if state_of(store, row) == "running":
            raise UsageError(f"{row.id} is running; reject it when it has ended", FAILED)
        reject(store, row, one_line(reason))
        found = rejection_of(store, row)
    if as_json:
        say_json({"run": row.id, "rejected": None if found is None else found.plain()})
    else:
        tell(
            f"{row.id} is {found}; its results are kept; "
            f"apply them anyway with: abreast plan apply {row.id} --anyway{choice.flag}"
        )
    return DONE
