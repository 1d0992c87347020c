"""The page's view of a plan: its tree, the state of each subplan, and files changed twice."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from abreast.core.events import (
    AGENT_STEP,
    CALL_STARTED,
    ITEM_QUEUED,
    ITEM_SETTLED,
    ITEM_STARTED,
    RUN_ENDED,
    RUN_RESUMED,
    Event,
)
from abreast.core.item import unescape
from abreast.jobs.plan.spec import round_of
from abreast.store.port import RunRow
from abreast.views.job_view import (
    LiveText,
    failure_in,
    listed,
    manifest_of,
    many,
    mapping,
    number,
    short,
    value_in,
)
from abreast.views.progress import LastSteps

_DIVIDED: Final = "plan-divided"
_MAX_NODES: Final = 600
_MAX_CLASHES: Final = 50
_MAX_FILES: Final = 20  # listed of a subplan
_TEXT_CHARACTERS: Final = 300


@dataclass(slots=True)
class _Leaf:
    state: str = "pending"
    path: str = ""
    message: str = ""
    seconds: float = 0.0
    attempts: int = 0
    round: int = 1
    requests: list[str] = field(default_factory=list)
    answered: set[tuple[str, str]] = field(default_factory=set)
    """The subplans that asked, and the files, if it has worked on that."""
    files: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)


class PlanView:
    """A plan's run so far."""

    KINDS: ClassVar = frozenset(
        {_DIVIDED, ITEM_QUEUED, ITEM_STARTED, CALL_STARTED, ITEM_SETTLED, RUN_RESUMED, RUN_ENDED}
    )

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, Any]] = {}
        self._leaves: dict[str, _Leaf] = {}
        self._divided = False

    def add(self, event: Event) -> None:
        """Add the next event."""
        parts = event.path.split("/")
        if event.kind == _DIVIDED:
            self._nodes = {
                str(node.get("id")): dict(node) for node in map(mapping, listed(value_in(event)))
            }
            self._divided = bool(self._nodes)
        elif event.kind in (RUN_RESUMED, RUN_ENDED):
            self._stop()
        elif len(parts) > 2 and (number := round_of(parts[1])):  # noqa: PLR2004 - run, map, leaf
            leaf = self._leaves.setdefault(unescape(parts[2]), _Leaf())
            path = "/".join(parts[:3])
            if path != leaf.path:  # its first event, or the first of another round
                leaf.path, leaf.round, leaf.state = path, number, "pending"
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
        leaf.message = ""
        if leaf.state == "done":
            facts = mapping(value_in(event))
            leaf.files = [str(path) for path in listed(facts.get("files"))]
            leaf.changed = [str(path) for path in listed(facts.get("changed"))]
            asked = [mapping(one) for one in listed(facts.get("requests"))]
            leaf.requests = [f"{one.get('by')}: {one.get('file')}" for one in asked]
            pairs = {(str(one.get("by")), str(one.get("file"))) for one in asked}
            leaf.answered = pairs if facts.get("answered") else set()
        elif leaf.state == "failed":
            leaf.message = short(failure_in(event), _TEXT_CHARACTERS)
        else:
            leaf.message = short(event.data.get("reason"), _TEXT_CHARACTERS)

    # --- what is shown ----------------------------------------------------------------------------

    def plain(self, run: RunRow, state: str) -> dict[str, object]:
        """The tree with the state of every node, at most 600 of them."""
        if state != "running":
            self._stop()
        # Leaves of an earlier division are left out: what was done again would count twice.
        for name in () if self._divided else self._leaves:
            self._nodes.setdefault(name, {"id": name, "parent": None, "scope": name})
        inner = {node.get("parent") for node in self._nodes.values()}
        states = {name: self._state(name, state) for name in self._nodes if name not in inner}
        changes = self._changes()
        outside = self._outside(changes)
        # A merge combines the changes of several subplans, or has a conflict.
        clashes = sorted(one for one in changes.items() if len(one[1]) > 1)
        touched = Counter(leaf for _, leaves in clashes for leaf in leaves)
        facts = manifest_of(run, "plan")
        return {
            "run": run.id,
            "directory": short(facts.get("path"), _TEXT_CHARACTERS),
            "order": facts.get("order"),
            "state": state,
            "what": short(
                facts.get("command") or facts.get("call") or facts.get("prompt"), _TEXT_CHARACTERS
            ),
            "counts": Counter(states.values()),
            "nodes": [
                self._node_facts(node, states.get(name), touched[name])
                for name, node in list(self._nodes.items())[:_MAX_NODES]
            ],
            "clashes": [
                {"file": short(path, _TEXT_CHARACTERS), "leaves": leaves[:10]}
                for path, leaves in clashes[:_MAX_CLASHES]
            ],
            "more_clashes": max(0, len(clashes) - _MAX_CLASHES),
            "outside": [
                {"file": short(path, _TEXT_CHARACTERS), "leaves": leaves[:10]}
                for path, leaves in outside[:_MAX_CLASHES]
            ],
            "more_outside": max(0, len(outside) - _MAX_CLASHES),
            "cut": f"shown: {_MAX_NODES:,} of {many(len(self._nodes), 'node')}"
            if len(self._nodes) > _MAX_NODES
            else None,
        }

    def _node_facts(
        self, node: dict[str, Any], state: str | None, clashes: int
    ) -> dict[str, object]:
        name = str(node.get("id"))
        leaf = self._leaves.get(name, _Leaf())
        return {
            "id": short(name, _TEXT_CHARACTERS),
            "parent": node.get("parent"),
            "scope": short(node.get("scope"), _TEXT_CHARACTERS),
            "reason": short(node.get("reason"), _TEXT_CHARACTERS),
            "files": node.get("files"),
            "tokens": node.get("tokens"),
            "over_budget": bool(node.get("over_budget")),
            "leaf": state is not None,
            "state": state,
            "seconds": round(leaf.seconds, 3),
            "attempts": leaf.attempts,
            "round": leaf.round,
            "requests": [short(one, _TEXT_CHARACTERS) for one in leaf.requests[:_MAX_FILES]],
            "path": leaf.path or None,
            "said": leaf.message
            or (f"it needs {self._blocker(name)}" if state == "blocked" else ""),
            "changed": len(leaf.changed),
            "clashes": clashes,
            "changes": [short(path, _TEXT_CHARACTERS) for path in leaf.changed[:_MAX_FILES]],
        }

    def _state(self, name: str, state: str) -> str:
        """The state of a leaf; one that needs a failed leaf is blocked."""
        found = self._leaves.get(name, _Leaf()).state
        if found == "pending" and self._blocker(name) is not None:
            return "blocked"
        return "not run" if found == "pending" and state in ("done", "failed") else found

    def _blocker(self, name: str) -> str | None:
        """The failed subplan that this one needs, directly or through others."""
        seen, todo = {name}, [name]
        while todo:
            for need in map(str, listed(self._nodes.get(todo.pop(), {}).get("needs"))):
                if self._leaves.get(need, _Leaf()).state in ("failed", "cancelled"):
                    return need
                if need not in seen:
                    seen.add(need)
                    todo.append(need)
        return None

    def _changes(self) -> dict[str, list[str]]:
        """The done subplans that changed each file; not those whose owner was asked for it."""
        found: dict[str, list[str]] = {}
        answered = set().union(*(leaf.answered for leaf in self._leaves.values()))
        for name in sorted(self._leaves.keys() & self._nodes.keys()):
            for path in self._leaves[name].changed if self._leaves[name].state == "done" else ():
                if (name, path) not in answered:
                    found.setdefault(path, []).append(name)
        return found

    def _outside(self, changes: dict[str, list[str]]) -> list[tuple[str, list[str]]]:
        """Files that were changed by subplans that do not own them."""
        owner = {
            path: name
            for name, leaf in self._leaves.items()
            if name in self._nodes
            for path in leaf.files
        }
        found = {
            path: [name for name in leaves if owner.get(path, name) != name]
            for path, leaves in changes.items()
        }
        return sorted((path, leaves) for path, leaves in found.items() if leaves)


class PlanLive(LiveText):
    """The live line of a plan: how many subplans are done, and the last step of each agent."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}
        self._agents = LastSteps()

    def add(self, event: Event) -> bool:
        """Add an event; those of subplans, and of agents, change the line."""
        parts = event.path.split("/")
        if len(parts) != 3 or not round_of(parts[1]):  # noqa: PLR2004 - run, map, leaf
            return False
        if event.kind == AGENT_STEP:
            self._agents.add(event)
        elif event.kind == ITEM_STARTED:
            self._states[parts[2]] = "running"
        elif event.kind == ITEM_SETTLED:
            self._states[parts[2]] = str(event.data.get("state"))
            self._agents.end(event.path)
        else:
            return False
        return True

    def parts(self) -> Iterator[tuple[str, str]]:
        """The parts of the line, each with its style."""
        counts = Counter(self._states.copy().values())
        yield f"{counts['done']} done", ""
        yield f"{counts['failed']} failed" if counts["failed"] else "", "red"
        yield f"{counts['running']} running", "cyan"
        yield self._agents.text(), "dim"
