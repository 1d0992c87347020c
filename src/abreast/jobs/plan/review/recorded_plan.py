"""What a run of a plan has recorded: the results of its parts, for review and for the merge."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from abreast.core.events import ITEM_SETTLED
from abreast.jobs.plan.job import PLAN_DIVIDED, PlanResult
from abreast.jobs.plan.spec import Plan, round_of
from abreast.jobs.plan.work.requests import all_answered, all_declined
from abreast.store.codec import codec
from abreast.store.port import RunRow, Store, each_event
from abreast.worktrees.merge.merge import Change


@dataclass(slots=True)
class RecordedPlan:
    """The results of a run's subplans, in the order of their names, and the files of each."""

    changes: list[Change] = field(default_factory=list)
    files: dict[str, list[str]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    """The newest state of each subplan that has an outcome."""
    leaves: list[str] | None = None
    """All subplans of the run; None for an old run that did not record them."""
    replaced: list[str] = field(default_factory=list)
    """Subplans of an earlier division of the tree whose files another subplan has done again."""
    answered: frozenset[tuple[str, str]] = frozenset()
    """Subplans, and the files of others that they wrote and the owners have worked on since."""
    scopes: dict[str, str] = field(default_factory=dict)
    """The readable names of the subplans."""
    declined: frozenset[tuple[str, str]] = frozenset()
    """The same of those whose owners were asked, and made what they had made before."""
    needs: dict[str, list[str]] = field(default_factory=dict)
    """The subplans that each one waited for."""

    @classmethod
    def of_result(cls, result: PlanResult) -> Self:
        """The results of a run that has just ended."""
        done = {one.leaf: one.value for one in result.subplans if one.state == "done"}
        return cls(
            [Change(leaf, done[leaf]["base"], done[leaf]["result"]) for leaf in sorted(done)],
            {leaf: done[leaf]["files"] for leaf in sorted(done)},
            {one.leaf: one.state for one in result.subplans},
            [one.leaf for one in result.subplans],
            answered=all_answered(done.values()),
            declined=all_declined(done.values()),
        )

    def not_done_ids(self) -> list[str]:
        """The recorded subplans that are not done."""
        return [leaf for leaf in self.leaves or () if leaf not in self.files]

    def not_done(self, plan: Plan) -> dict[str, str]:
        """The subplans that are not done, and the state of each."""
        leaves = [leaf.id for leaf in plan.leaves] if self.leaves is None else self.leaves
        return {leaf: self.states.get(leaf, "not run") for leaf in leaves if leaf not in self.files}


def read_recorded(store: Store, row: RunRow) -> RecordedPlan:
    """The results that a run has recorded."""
    found: dict[str, Any] = {}
    states: dict[str, str] = {}
    leaves: list[str] | None = None
    scopes: dict[str, str] = {}
    needs: dict[str, list[str]] = {}
    for event in each_event(store, row.id, {ITEM_SETTLED, PLAN_DIVIDED}):
        if event.kind == PLAN_DIVIDED:
            nodes: Any = codec.decode(event.body) if event.body else []
            inner = {node["parent"] for node in nodes}
            leaves = [node["id"] for node in nodes if node["id"] not in inner]
            scopes |= {node["id"]: str(node["scope"]) for node in nodes}
            needs = {node["id"]: list(node.get("needs") or ()) for node in nodes}
            continue
        parts = event.path.split("/")
        if len(parts) != 3 or round_of(parts[1]) is None:  # noqa: PLR2004 - run/subplans/leaf
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
    return RecordedPlan(
        [Change(leaf, found[leaf]["base"], found[leaf]["result"]) for leaf in sorted(found)],
        {leaf: found[leaf]["files"] for leaf in sorted(found)},
        states,
        leaves,
        replaced,
        all_answered(found.values()),
        scopes,
        all_declined(found.values()),
        needs,
    )


def _replaced(found: Mapping[str, Any], leaves: Sequence[str] | None) -> list[str]:
    """Subplans of an earlier division whose files a subplan of the newest division has done.

    Only the newer result counts.
    """
    now = set(found) if leaves is None else set(leaves)
    again = {path for leaf in now & set(found) for path in found[leaf]["files"]}
    return sorted(leaf for leaf in set(found) - now if not again.isdisjoint(found[leaf]["files"]))
