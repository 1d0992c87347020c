"""A plan: the tree that a repository is divided into, what became of each subplan, and who changed the same files."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from abreast.core.events import (
    CALL_STARTED,
    ITEM_QUEUED,
    ITEM_SETTLED,
    ITEM_STARTED,
    RUN_ENDED,
    RUN_RESUMED,
    Event,
)
from abreast.core.item import unescape
from abreast.store.port import RunRow
from abreast.views.job_view import (
    failure_in,
    listed,
    manifest_of,
    many,
    mapping,
    number,
    short,
    value_in,
)

_DIVIDED: Final = "plan-divided"
_SUBPLANS: Final = "subplans"
_NODES: Final = 600  # that are shown
_CLASHES: Final = 50
_FILES: Final = 20
_TEXT: Final = 300


@dataclass(slots=True)
class _Leaf:
    """What became of a subplan."""

    state: str = "pending"
    path: str = ""
    said: str = ""
    seconds: float = 0.0
    attempts: int = 0
    files: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)


class PlanFold:
    """What has happened in a plan so far."""

    KINDS: ClassVar = frozenset(
        {_DIVIDED, ITEM_QUEUED, ITEM_STARTED, CALL_STARTED, ITEM_SETTLED, RUN_RESUMED, RUN_ENDED}
    )

    def __init__(self) -> None:
        """Nothing yet."""
        self._nodes: dict[str, dict[str, Any]] = {}
        self._leaves: dict[str, _Leaf] = {}
        self._divided = False

    def add(self, event: Event) -> None:
        """Take in the next event."""
        if event.kind == _DIVIDED:
            self._nodes = {
                str(node.get("id")): dict(node) for node in map(mapping, listed(value_in(event)))
            }
            self._divided = bool(self._nodes)
            return
        if event.kind in (RUN_RESUMED, RUN_ENDED):
            self._stop()
            return
        parts = event.path.split("/")
        if len(parts) < 3 or parts[1] != _SUBPLANS:  # noqa: PLR2004 - run, map, leaf
            return
        leaf = self._leaves.setdefault(unescape(parts[2]), _Leaf())
        leaf.path = "/".join(parts[:3])
        if event.kind == ITEM_SETTLED and event.path == leaf.path:
            self._settled(event, leaf)
        elif event.kind != ITEM_SETTLED and leaf.state != "done":
            leaf.state = "queued" if event.kind == ITEM_QUEUED else "running"

    def _stop(self) -> None:
        for leaf in self._leaves.values():
            if leaf.state in ("running", "queued"):
                leaf.state = "pending"

    def _settled(self, event: Event, leaf: _Leaf) -> None:
        took = [number(one) or 0.0 for one in listed(event.data.get("service"))]
        leaf.state, leaf.seconds, leaf.attempts = str(event.data.get("state")), sum(took), len(took)
        leaf.said = ""
        if leaf.state == "done":
            facts = mapping(value_in(event))
            leaf.files = [str(path) for path in listed(facts.get("files"))]
            leaf.changed = [str(path) for path in listed(facts.get("changed"))]
        elif leaf.state == "failed":
            leaf.said = short(failure_in(event), _TEXT)
        else:
            leaf.said = short(event.data.get("reason"), _TEXT)

    # --- the picture --------------------------------------------------------------------------------------------------

    def plain(self, run: RunRow, state: str) -> dict[str, object]:
        """The tree with every state; of very many nodes the first."""
        if state != "running":
            self._stop()
        # Of an earlier division, what was done again would count twice.
        for name in () if self._divided else self._leaves:
            self._nodes.setdefault(name, {"id": name, "parent": None, "scope": name})
        inner = {node.get("parent") for node in self._nodes.values()}
        states = {name: self._state(name, state) for name in self._nodes if name not in inner}
        clashes, outside = self._clashes(), self._outside()
        touched = Counter(leaf for _, leaves in clashes for leaf in leaves)
        facts = manifest_of(run, "plan")
        return {
            "directory": short(facts.get("path"), _TEXT),
            "order": facts.get("order"),
            "state": state,
            "what": short(facts.get("command") or facts.get("call") or facts.get("prompt"), _TEXT),
            "counts": Counter(states.values()),
            "nodes": [
                self._told(node, states.get(name), touched[name])
                for name, node in list(self._nodes.items())[:_NODES]
            ],
            "clashes": [
                {"file": short(path, _TEXT), "leaves": leaves[:10]}
                for path, leaves in clashes[:_CLASHES]
            ],
            "more_clashes": max(0, len(clashes) - _CLASHES),
            "outside": [
                {"file": short(path, _TEXT), "leaves": leaves[:10]}
                for path, leaves in outside[:_CLASHES]
            ],
            "more_outside": max(0, len(outside) - _CLASHES),
            "cut": f"shown: {_NODES:,} of {many(len(self._nodes), 'node')}"
            if len(self._nodes) > _NODES
            else None,
        }

    def _told(self, node: dict[str, Any], state: str | None, clashes: int) -> dict[str, object]:
        name = str(node.get("id"))
        leaf = self._leaves.get(name, _Leaf())
        return {
            "id": short(name, _TEXT),
            "parent": node.get("parent"),
            "scope": short(node.get("scope"), _TEXT),
            "reason": short(node.get("reason"), _TEXT),
            "files": node.get("files"),
            "tokens": node.get("tokens"),
            "over_budget": bool(node.get("over_budget")),
            "leaf": state is not None,
            "state": state,
            "seconds": round(leaf.seconds, 3),
            "attempts": leaf.attempts,
            "path": leaf.path or None,
            "said": leaf.said or self._why(name, state),
            "changed": len(leaf.changed),
            "clashes": clashes,
            "changes": [short(path, _TEXT) for path in leaf.changed[:_FILES]],
        }

    def _state(self, name: str, state: str) -> str:
        """Of a leaf: what needs one that failed is blocked."""
        found = self._leaves.get(name, _Leaf()).state
        if found == "pending" and self._blocker(name) is not None:
            return "blocked"
        return "not run" if found == "pending" and state in ("done", "failed") else found

    def _blocker(self, name: str) -> str | None:
        """The failed subplan that this one needs, itself or through others."""
        seen, todo = {name}, [name]
        while todo:
            for need in map(str, listed(self._nodes.get(todo.pop(), {}).get("needs"))):
                if self._leaves.get(need, _Leaf()).state in ("failed", "cancelled"):
                    return need
                if need not in seen:
                    seen.add(need)
                    todo.append(need)
        return None

    def _why(self, name: str, state: str | None) -> str:
        return f"it needs {self._blocker(name)}" if state == "blocked" else ""

    def _changes(self) -> dict[str, list[str]]:
        """Who has changed which file."""
        found: dict[str, list[str]] = {}
        for name in sorted(self._leaves.keys() & self._nodes.keys()):
            for path in self._leaves[name].changed if self._leaves[name].state == "done" else ():
                found.setdefault(path, []).append(name)
        return found

    def _clashes(self) -> list[tuple[str, list[str]]]:
        """Files that several subplans have changed: a merge has to put these together, or can't."""
        return sorted((path, leaves) for path, leaves in self._changes().items() if len(leaves) > 1)

    def _outside(self) -> list[tuple[str, list[str]]]:
        """Files that others than their owners have changed."""
        owner = {
            path: name
            for name, leaf in self._leaves.items()
            if name in self._nodes
            for path in leaf.files
        }
        found = {
            path: [name for name in leaves if owner.get(path, name) != name]
            for path, leaves in self._changes().items()
        }
        return sorted((path, leaves) for path, leaves in found.items() if leaves)
