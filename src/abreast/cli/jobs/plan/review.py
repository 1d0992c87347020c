"""Shows what the parts of a plan did, and records what becomes of files in conflict."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from abreast.assembly.plan_merge import MergeDraft, MergeJob, MergeOptions, PlanMerge
from abreast.assembly.trees.opened_trees import snapshots_of
from abreast.cli.errors import DONE, UsageError, os_error_text, refusing, tell
from abreast.cli.jobs.plan.apply import find_plan
from abreast.cli.stores import StoreChoice
from abreast.cli.terminal.tables import say, say_json, say_table
from abreast.jobs.plan.errors import PlanInvalid
from abreast.jobs.plan.review.branches import HEAD
from abreast.jobs.plan.review.diffs import conflict_facts, diff_of, file_counts, marked_text
from abreast.jobs.plan.review.recorded_plan import RecordedPlan
from abreast.jobs.plan.review.rejection import rejection_of
from abreast.jobs.plan.review.resolutions import Resolutions
from abreast.jobs.plan.written.division import listed
from abreast.jobs.plan.written.parts import EDIT
from abreast.views.job_view import many
from abreast.worktrees.git import folder_in_repository
from abreast.worktrees.merge.merge import SOURCE, Change, Conflict
from abreast.worktrees.merge.names import printable
from abreast.worktrees.merge.snapshots import Snapshots

_MARKERS: Final = (b"<<<<<<< ", b"||||||| ", b">>>>>>> ")


def diff_run(wanted: str, part: str | None, choice: StoreChoice, given: Mapping[str, Any]) -> int:
    """Print what the parts of a run changed, or its conflicts; return the exit code."""
    row, job, recorded = find_plan(wanted, choice)
    snapshots, folder = snapshots_of(job.path), folder_in_repository(Path(job.path))
    changes = recorded.changes if part is None else [_change_of(recorded, part)]
    draft = _merged(job, row.id, recorded) if given["conflicts"] else None
    leaves = {each.leaf for each in changes}
    conflicts = [
        each
        for each in (draft.merged.conflicts if draft is not None else ())
        if {each.leaf, each.other} & leaves
    ]
    if given["as_json"]:
        say_json(
            {
                "run": row.id,
                "parts": [_facts(snapshots, recorded, each, folder) for each in changes],
                "conflicts": [_conflict_json(snapshots, each) for each in conflicts],
            }
        )
    elif given["conflicts"]:
        for each in conflicts:
            _print_conflict(snapshots, each)
        tell("no conflicts" if not conflicts else many(len(conflicts), "conflict"))
    elif given["stat"]:
        _print_counts(snapshots, recorded, changes)
    else:
        for change in changes:
            name = "" if part is not None else recorded.scopes.get(change.leaf, change.leaf)
            _print_diff(change, diff_of(snapshots, change, folder), name)
    return DONE


def _facts(
    snapshots: Snapshots, recorded: RecordedPlan, change: Change, folder: str
) -> dict[str, Any]:
    return {
        "id": change.leaf,
        "name": recorded.scopes.get(change.leaf, change.leaf),
        "files": [asdict(each) for each in file_counts(snapshots, change)],
        "diff": diff_of(snapshots, change, folder),
    }


def _conflict_json(snapshots: Snapshots, conflict: Conflict) -> dict[str, Any]:
    marked = marked_text(snapshots, conflict)
    text = None if marked is None else marked.decode("utf-8", "replace")
    return {**conflict_facts(conflict), "marked": text}


def _print_diff(change: Change, diff: str, name: str) -> None:
    """Print a diff, with a line above it that names the part."""
    if name and diff:
        say(printable(f"# part {change.leaf}  {name}"))
    _print_text(os.fsencode(diff))


def _print_counts(snapshots: Snapshots, recorded: RecordedPlan, changes: Sequence[Change]) -> None:
    rows = [
        (change.leaf, each.path, _count(each.added), _count(each.removed))
        for change in changes
        for each in file_counts(snapshots, change)
    ]
    say_table(("part", "file", "added", "removed"), rows)
    unchanged = len(changes) - len({row[0] for row in rows})
    tell(
        f"changed: {many(len(rows), 'file')} of {many(len(changes) - unchanged, 'part')}; "
        f"nothing was changed by {many(unchanged, 'part')}, "
        f"not done: {many(len(recorded.not_done_ids()), 'part')}"
    )


def _count(lines: int | None) -> object:
    return "binary" if lines is None else lines


def _print_conflict(snapshots: Snapshots, conflict: Conflict) -> None:
    say(printable(str(conflict)))
    _print_text(marked_text(snapshots, conflict) or b"")


def _print_text(text: bytes) -> None:
    """Print a text as it is; on a terminal without characters that could move its cursor."""
    if sys.stdout.isatty():
        for line in text.decode("utf-8", "replace").splitlines():
            say(line)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()


def resolve_run(
    wanted: str, file: str, choice: StoreChoice, take: str | None, source: str | None
) -> int:
    """Record what becomes of a file, or print its conflict with markers; return the exit code."""
    row, job, recorded = find_plan(wanted, choice)
    draft = _merged(job, row.id, recorded)
    snapshots = snapshots_of(job.path)
    file = _inside(file, Path(job.path))
    conflict = next((each for each in draft.merged.conflicts if each.path == file), None)
    if take is None:
        return _print_marked(snapshots, draft, file, conflict)
    if take not in (SOURCE, EDIT):
        take = _change_of(recorded, take).leaf
    if source is not None and take != EDIT:
        raise UsageError(f"--from is the text of --take {EDIT}")
    edited = None
    if take == EDIT:
        edited = snapshots.write(_edited(source, snapshots, conflict))
    with refusing("", PlanInvalid):
        chosen = draft.sides().choose(file, take, edited)
    Resolutions(Path(job.path), row.id).keep(chosen)
    others = [printable(path) for path in chosen.entries if path != file]
    also = f", and with it {', '.join(others)}" if others else ""
    left = sorted({each.path for each in draft.merged.conflicts} - set(chosen.entries))
    then = (
        f"conflicts are left in {listed(left)}"
        if left
        else f"no conflict is left; merge with: abreast plan apply {row.id}{choice.flag}"
    )
    tell(f"{printable(file)}{also}: as chosen, {take}; {then}")
    return DONE


def _print_marked(
    snapshots: Snapshots, draft: MergeDraft, file: str, conflict: Conflict | None
) -> int:
    if conflict is None:
        chosen = draft.resolved.get(file)
        tell(
            f"{printable(file)} has no conflict"
            if chosen is None
            else f"{printable(file)}: as chosen, {chosen.take}"
        )
        return DONE
    marked = marked_text(snapshots, conflict)
    if marked is None:
        tell(f"{conflict}; take one of its sides")
        return DONE
    _print_text(marked)
    return DONE


def _edited(source: str | None, snapshots: Snapshots, conflict: Conflict | None) -> bytes:
    """The text of one's own: from a file, from the standard input, or from an editor."""
    marked = None if conflict is None else marked_text(snapshots, conflict)
    if source == "-":
        text = sys.stdin.buffer.read()
    elif source is not None:
        try:
            text = Path(source).read_bytes()
        except OSError as error:
            raise UsageError(f"--from: {source} can't be read ({os_error_text(error)})") from None
    else:
        if marked is None or not sys.stdin.isatty():
            raise UsageError(f"--take {EDIT} needs --from FILE, the text as it is to be")
        changed = click.edit(marked.decode("utf-8", "surrogateescape"))
        if changed is None:
            raise UsageError("nothing was changed in the editor, and nothing is recorded")
        text = changed.encode("utf-8", "surrogateescape")
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(_MARKERS) and marked is not None and line in marked.splitlines():
            raise UsageError(f"line {number} still has a marker of the conflict: {line.decode()}")
    return text


def branches_run(wanted: str, choice: StoreChoice, options: MergeOptions, *, as_json: bool) -> int:
    """Make a branch for each part of a run; return the exit code."""
    row, job, recorded = find_plan(wanted, choice)
    with choice.existing() as store:
        rejected = rejection_of(store, row)
    merge = PlanMerge(job, row.id, recorded, options, notify=tell, rejected=rejected)
    with refusing("", PlanInvalid):
        made = merge.make_branches()
    if as_json:
        say_json({"run": row.id, "branches": [asdict(each) for each in made]})
        return DONE
    say_table(
        ("part", "branch", "base", "commit", "files"),
        [(each.part, each.name, each.base, each.commit[:12], each.files) for each in made],
    )
    stacked = sum(each.base != HEAD for each in made)
    order = f"; {stacked} on top of another, to be merged after it" if stacked else ""
    tell(f"{many(len(made), 'branch')}, each with one commit{order}; the tree is as it was")
    return DONE


def _merged(job: MergeJob, run: str, recorded: RecordedPlan) -> MergeDraft:
    options = MergeOptions(partial=True, gate=False, dry_run=True)
    with refusing("", PlanInvalid):
        return PlanMerge(job, run, recorded, options, notify=tell).prepare()


def _change_of(recorded: RecordedPlan, wanted: str) -> Change:
    """The change of a part: by its id, the beginning of that, or its name."""
    changes = {each.leaf: each for each in recorded.changes}
    if wanted in changes:
        return changes[wanted]
    found = [leaf for leaf in changes if recorded.scopes.get(leaf) == wanted] or [
        leaf for leaf in changes if leaf.startswith(wanted)
    ]
    if len(found) != 1:
        known = ", ".join(found or changes)
        why = "several parts are called so" if found else "there is no such part that is done"
        raise UsageError(f"{wanted!r}: {why}; there are {known}")
    return changes[found[0]]


def _inside(file: str, root: Path) -> str:
    """A file as the plan names it: from its directory."""
    place = Path(file)
    if place.is_absolute() and place.is_relative_to(root):
        return place.relative_to(root).as_posix()
    return file.removeprefix("./")
