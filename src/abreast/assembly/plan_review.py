"""What a person reviews of a plan: the diff of a part, conflicts, and whether it is applied."""

from pathlib import Path
from typing import Any, Final

from abreast.assembly.plan_merge import MergeJob, MergeOptions, PlanMerge
from abreast.core.errors import AbreastError
from abreast.jobs.plan.review.diffs import conflict_facts, diff_of, marked_text
from abreast.jobs.plan.review.recorded_plan import RecordedPlan, read_recorded
from abreast.jobs.plan.review.rejection import rejection_of
from abreast.jobs.plan.review.tree_runs import read_tree_run
from abreast.jobs.plan.settings import KIND, PlanJob
from abreast.store.port import RunRow, Store
from abreast.worktrees.merge.apply import HOME
from abreast.worktrees.merge.snapshots import Snapshots
from abreast.worktrees.merge.undo import applies

_MAX_CHARACTERS: Final = 200_000  # of a diff or a conflict
_MAX_CONFLICTS: Final = 50


def part_diff(store: Store, row: RunRow, part: str) -> dict[str, object]:
    """The diff of a part; `error` says why there is none."""
    try:
        job, recorded = _read(store, row)
        root = _root_of(job)
        change = next((each for each in recorded.changes if each.leaf == part), None)
        if change is None:
            return {"error": f"{part} has no result"}
        diff = diff_of(Snapshots(root / HOME / "plan.git"), change)
    except (AbreastError, OSError) as error:
        return {"error": str(error)}
    return {"part": part, "diff": _cut(diff)}


def merge_preview(store: Store, row: RunRow) -> dict[str, object]:
    """What stands in the way of a merge, its conflicts with markers, and whether it is applied."""
    try:
        job, recorded = _read(store, row)
        root = _root_of(job)
        options = MergeOptions(gate=False, dry_run=True)
        merge = PlanMerge(job, row.id, recorded, options, notify=_ignore)
        draft = merge.prepare()
        snapshots = Snapshots(root / HOME / "plan.git")
        conflicts: list[dict[str, Any]] = []
        for each in draft.merged.conflicts[:_MAX_CONFLICTS]:
            marked = marked_text(snapshots, each)
            text = None if marked is None else _cut(marked.decode("utf-8", "replace"))
            conflicts.append({**conflict_facts(each), "marked": text})
        rejected = rejection_of(store, row)
        missing = [f"{leaf}: {state}" for leaf, state in recorded.not_done(draft.plan).items()]
        return {
            "applied": any(each.record["run"] == row.id for each in applies(root)),
            "blocked": [*missing, *draft.merged.blocked],
            "conflicts": conflicts,
            "resolved": {file: one.take for file, one in draft.resolved.items()},
            "answered": [str(each) for each in draft.merged.answered],
            "merged": len(draft.merged.merged),
            "rejected": None if rejected is None else rejected.plain(),
        }
    except (AbreastError, OSError) as error:
        return {"error": str(error)}


def _read(store: Store, row: RunRow) -> tuple[MergeJob, RecordedPlan]:
    """A plan, or a run of another job whose items worked in worktrees, and its results."""
    if row.kind == KIND:
        return PlanJob.recorded(row), read_recorded(store, row)
    return read_tree_run(store, row)


def _root_of(job: MergeJob) -> Path:
    """The directory of a plan; raises `FileNotFoundError` if its results are not there."""
    root = Path(job.path)
    if not (root / HOME / "plan.git").is_dir():
        raise FileNotFoundError(f"{root} has no results of plans")
    return root


def _cut(text: str) -> str:
    if len(text) <= _MAX_CHARACTERS:
        return text
    return f"{text[:_MAX_CHARACTERS]}\n[cut: it has {len(text):,} characters]\n"


def _ignore(message: str) -> None:
    del message
