"""Requests between subplans: a write to a file that another subplan owns is what it asks for."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from abreast.jobs.plan.spec import Plan
from abreast.jobs.plan.work.assignment import PartRequest
from abreast.worktrees.merge.merge import WriteRules, is_met, steps_by_owner
from abreast.worktrees.merge.snapshots import Snapshots, TreeDifference


def find_requests(
    snapshots: Snapshots,
    plan: Plan,
    rules: WriteRules,
    done: Mapping[str, Mapping[str, Any]],
    folder: str = "",
) -> dict[str, tuple[PartRequest, ...]]:
    """For each leaf what others ask of it, in the order of the plan.

    `done` has the newest value of each leaf. `folder` is the path of the plan's directory in its
    repository, for `git apply`, which takes paths from the top. What a leaf was asked for before in
    the same way is not asked again, and what it has made itself is not asked at all.
    """
    found: dict[str, list[PartRequest]] = {}
    leaves = [leaf.id for leaf in plan.leaves]
    made = {
        leaf: snapshots.changes(done[leaf]["base"], done[leaf]["result"])
        for leaf in leaves
        if done.get(leaf)
    }
    for leaf in leaves:
        asked = _requests_by(snapshots, leaf, done.get(leaf, {}), rules, made, folder=folder)
        for owners, request in asked:
            owner = next((one for one in owners if one in leaves), None)
            if owner is not None and (leaf, request.file) not in _asked(done.get(owner, {})):
                found.setdefault(owner, []).append(request)
    return {leaf: tuple(found[leaf]) for leaf in leaves if leaf in found}


def all_answered(values: Iterable[Mapping[str, Any]]) -> frozenset[tuple[str, str]]:
    """The leaves and files of the requests that their owners have worked on, by their values."""
    return frozenset(each for value in values if value.get("answered") for each in _asked(value))


def all_declined(values: Iterable[Mapping[str, Any]]) -> frozenset[tuple[str, str]]:
    """The leaves and files of the requests whose owners made the same as before."""
    return frozenset(
        each for value in values if not value.get("answered") for each in _asked(value)
    )


def _asked(value: Mapping[str, Any]) -> set[tuple[str, str]]:
    return {(each["by"], each["file"]) for each in value.get("requests", ())}


def _requests_by(
    snapshots: Snapshots,
    leaf: str,
    value: Mapping[str, Any],
    rules: WriteRules,
    made: Mapping[str, TreeDifference],
    *,
    folder: str,
) -> list[tuple[Sequence[str], PartRequest]]:
    if not value:
        return []
    base, result = (snapshots.within(value[tree], folder) for tree in ("base", "result"))
    _, outside = steps_by_owner(leaf, made[leaf], rules)
    found: list[tuple[Sequence[str], PartRequest]] = []
    for each in outside:
        if is_met(snapshots, each, [made[owner] for owner in each.owners if owner in made]):
            continue
        paths = [f"{folder}{path}" for path in each.rename or (each.change.path,)]
        diff = snapshots.patch(base, result, paths)
        found.append((each.owners, PartRequest(leaf, each.change.path, _as_text(diff))))
    found += [
        (rules.owners(ask["file"]), PartRequest(leaf, ask["file"], ask["text"]))
        for ask in value.get("asks", ())
    ]
    return found


def _as_text(diff: str) -> str:
    """The diff with bytes that are no text replaced, so that it can be recorded and sent."""
    return diff.encode("utf-8", "replace").decode()
