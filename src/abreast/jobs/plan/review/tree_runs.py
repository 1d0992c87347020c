"""Runs of other jobs whose items worked in worktrees: merged as the parts of a plan are.

Each item is a part without files of its own, so that any item may write any file.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from abreast.core.events import ITEM_SETTLED, Event
from abreast.core.item import escape, unescape
from abreast.jobs.plan.decompose.imports import Imports, read_imports
from abreast.jobs.plan.decompose.inventory import take_inventory
from abreast.jobs.plan.errors import PlanInvalid
from abreast.jobs.plan.review.recorded_plan import RecordedPlan
from abreast.jobs.plan.review.tree_manifest import TREES, merge_folder
from abreast.jobs.plan.spec import ROOT, NodeKind, Options, Plan, PlanNode, Reason
from abreast.store.codec import codec
from abreast.store.port import RunRow, Store, each_event
from abreast.worktrees.merge.merge import Change

TREE: Final = "tree"
"""The key of an item's value: `base`, `result` and more of what it made of its copy."""
TREE_CHOSEN: Final = "tree-chosen"
"""The event of a job that chooses one tree itself: `part`, `base`, `result`."""

WORKFLOW: Final = "workflow"
"""The kind of runs whose steps are parts."""
TREE_ENTERED: Final = "tree-entered"
"""The event of a workflow's step that begins in a worktree: `part`, what is made there."""


@dataclass(frozen=True, slots=True)
class TreeJob:
    """What a merge needs of such a run."""

    path: str
    prompt: str | None = None
    parts: tuple[str, ...] = ()
    command: str | None = None
    call: str | None = None
    check: str | None = None

    @classmethod
    def recorded(cls, row: RunRow, parts: tuple[str, ...] = ()) -> "TreeJob":
        """The job of a run; raises `PlanInvalid` if its items had no worktrees."""
        path, facts = merge_folder(row), row.manifest.get(TREES)
        if path is None or not isinstance(facts, dict):
            raise PlanInvalid(f"{row.id} is no plan, but a {row.kind}, and had no worktrees")
        return cls(path, str(facts.get("task") or "") or None, parts)

    def divide(self, *, strict: bool = True) -> tuple[Plan, Imports]:
        """A plan with a part for each item, and the imports of the directory as it is now."""
        del strict
        root = Path(self.path)
        if not root.is_dir():
            raise PlanInvalid(f"{self.path} is no directory")
        imports = read_imports(root, take_inventory(root).without_submodules())
        leaves = tuple(_node(part, ROOT, ()) for part in self.parts)
        return Plan((_node(ROOT, None, self.parts), *leaves), Options(), 0), imports


def _node(name: str, parent: str | None, children: tuple[str, ...]) -> PlanNode:
    return PlanNode(
        id=name,
        parent=parent,
        children=children,
        depth=0 if parent is None else 1,
        files=(),
        tokens=0,
        reason=Reason.GIVEN,
        over_budget=False,
        kind=NodeKind.PART,
        scope=name,
    )


def read_tree_run(store: Store, row: RunRow) -> tuple[TreeJob, RecordedPlan]:
    """The job and the results of a run whose items worked in worktrees."""
    states: dict[str, str] = {}
    places: dict[str, int] = {}
    found: dict[str, Any] = {}
    chosen: dict[str, Any] = {}
    entered: dict[str, str] = {}
    for event in each_event(store, row.id, {ITEM_SETTLED, TREE_CHOSEN, TREE_ENTERED}):
        if event.kind == TREE_CHOSEN:
            chosen[str(event.data["part"])] = event.data
            continue
        if event.kind == TREE_ENTERED:
            part = str(event.data["part"])
            root = event.path.partition("/")[0]
            entered |= {event.path: part, f"{root}/{'/'.join(map(escape, part.split('/')))}": part}
            continue
        for part, tree in _step_trees(event, entered) if row.kind == WORKFLOW else _trees_in(event):
            states[part] = str(event.data.get("state"))
            places[part] = int(str(event.data.get("index") or 0))
            if tree is not None:
                found[part] = tree
            elif states[part] == "failed":
                found.pop(part, None)
    if chosen:
        found, states = chosen, dict.fromkeys(chosen, "done")
    parts = tuple(sorted(states, key=lambda part: (places.get(part, 0), part)))
    return TreeJob.recorded(row, parts), RecordedPlan(
        [Change(part, found[part]["base"], found[part]["result"]) for part in sorted(found)],
        {part: [] for part in found},
        states,
        list(parts),
    )


def _step_trees(event: Event, entered: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """The part that a step of a workflow, or an item of its fan-out, belongs to, and its tree."""
    part = entered.get(event.path)
    if part is None or event.data.get("speculative"):
        return
    if event.data.get("state") != "done":
        yield part, None
        return
    value: Any = codec.decode_plain(event.body or "null")
    records = [*value["steps"].values()] if "steps" in value and "last" in value else [value]
    trees = [one["output"][TREE] for one in records if TREE in (one.get("output") or {})]
    if trees:
        yield part, trees[-1]


def _trees_in(event: Event) -> Iterator[tuple[str, Any]]:
    """The part that an item of the run's map is, and its tree; None if it has none."""
    parts = event.path.split("/")
    if len(parts) != 3 or event.data.get("speculative"):  # noqa: PLR2004 - run/items/key
        return
    tree = None
    if event.data.get("state") == "done":
        value: Any = codec.decode_plain(event.body or "null")
        tree = value.get(TREE) if isinstance(value, dict) else None
        if tree is None:
            return
    yield unescape(parts[2]), tree
