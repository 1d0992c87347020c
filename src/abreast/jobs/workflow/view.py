"""The view of a workflow run: its steps as a graph, their progress, and the gates that wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from abreast.core.events import (
    AGENT_STEP,
    CALL_STARTED,
    ITEM_SETTLED,
    ITEM_STARTED,
    MAP_ENDED,
    MAP_STARTED,
    RUN_ENDED,
    RUN_RESUMED,
    Event,
)
from abreast.core.item import escape, unescape
from abreast.jobs.workflow.steps.step_paths import BRANCHES, BUDGET_SUFFIX, LOOPS
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
    whole,
)
from abreast.views.progress import RunProgress

_OUTLINED: Final = "workflow-outlined"
_FAN_OUT_STARTED: Final = "fan-out-started"
_GATE_ASKED: Final = "gate-asked"

_MAX_STEPS: Final = 300  # steps that are shown
_MAX_GATES: Final = 20  # gates that are shown
_MESSAGE_LENGTH: Final = 20_000  # characters of a gate's message
_TEXT_LENGTH: Final = 300  # characters of any other text
_PATH_WIDTH: Final = 60  # characters of a path in the live line


@dataclass(slots=True)
class _Step:
    """A step of the file, with the states of its instances.

    It has one instance, or one for each item and round in which it runs.
    """

    id: str
    type: str
    needs: list[str] | None = None
    budget: bool = False
    beneath: list[tuple[str, list[_Step]]] = field(default_factory=list)
    states: dict[str, str] = field(default_factory=dict)  # by path, the newest
    under_way: set[str] = field(default_factory=set)
    seconds: float = 0.0
    last: tuple[str, str, str] = ("", "", "")  # path, state, a line of text
    items: dict[str, int] = field(default_factory=dict)  # of a fan-out: how many, by its path
    # By id, the steps whose paths lie beneath this one's.
    inner: dict[str, _Step] = field(default_factory=dict)

    def index(self) -> None:
        """Index the steps beneath by their ids; those of an `if` are in the scope of the `if`."""
        self.inner = {one.id: one for _, steps in self.beneath for one in _in_scope(steps)}
        for one in self.inner.values():
            one.index()

    @property
    def single_action(self) -> _Step | None:
        """A fan-out's single action, whose path is the item's own; None if there are more steps."""
        steps = [one for _, held in self.beneath for one in held] if self.type == "fan-out" else []
        return (
            steps[0] if len(steps) == 1 and not steps[0].beneath and not steps[0].budget else None
        )


def _in_scope(steps: list[_Step]) -> Iterator[_Step]:
    """Yield the steps whose paths lie in one scope."""
    for step in steps:
        yield step
        if step.type in BRANCHES:
            for _, within in step.beneath:
                yield from _in_scope(within)


class WorkflowView:
    """The state of a workflow run, built from its events."""

    KINDS: ClassVar = frozenset(
        {
            _OUTLINED,
            _FAN_OUT_STARTED,
            _GATE_ASKED,
            MAP_STARTED,
            MAP_ENDED,
            ITEM_STARTED,
            CALL_STARTED,
            ITEM_SETTLED,
            RUN_RESUMED,
            RUN_ENDED,
        }
    )

    def __init__(self) -> None:
        self._root = _Step("", "workflow")
        # By path: the step, and the question in JSON's types.
        self._gates: dict[str, tuple[_Step, dict[str, object]]] = {}

    def add(self, event: Event) -> None:
        """Add the next event."""
        if event.kind == _OUTLINED:
            self._add_outline(event)
        elif event.kind in (RUN_RESUMED, RUN_ENDED):
            if event.kind == RUN_RESUMED:
                self._gates.clear()  # gates that are still open are asked again
            for step in _every(self._root):
                step.under_way.clear()
        elif (found := self._find(event.path)) is not None:
            self._dispatch(event, *found)

    def _add_outline(self, event: Event) -> None:
        """Replace the steps by those of the newest driver; steps that remain keep their state."""
        if "/" in event.path:  # a workflow within another job
            return
        self._root = _Step(
            "",
            "workflow",
            beneath=[("", _read(value_in(event), dict(_with_names(self._root, ())), ("", "")))],
        )
        self._root.index()

    # --- find the step of an event ---------------------------------------------------------------

    def _find(self, path: str) -> tuple[_Step, str, bool] | None:
        """Return the step of a path, its instance's path, and whether that is a fan-out's item."""
        parts = path.split("/")
        step, at = self._root, 1
        while at < len(parts):
            if unescape(parts[at]).endswith(BUDGET_SUFFIX):
                at += 1
                continue
            inner = step.inner.get(unescape(parts[at]))
            if inner is None:
                return (
                    (step, "/".join(parts[:at]), False)
                    if step is not self._root and not step.beneath
                    else None
                )
            step, at = inner, at + 1
            if (
                step.budget
                and not step.beneath
                and at < len(parts)
                and parts[at] == escape(step.id)
            ):
                at += 1
            if step.type == "fan-out" and at < len(parts):
                at += 1
                if at == len(parts) or unescape(parts[at]) not in step.inner:
                    return step, "/".join(parts[:at]), True
            elif step.type in LOOPS:
                at += 1
        return (step, path, False) if step is not self._root else None

    # --- apply an event to a step ----------------------------------------------------------------

    def _dispatch(self, event: Event, step: _Step, path: str, item: bool) -> None:  # noqa: FBT001 - the result of `_find`
        if item and (action := step.single_action) is not None:
            self._apply(event, action, path)
        if item or step.type != "fan-out" or event.kind == _FAN_OUT_STARTED:
            self._apply(event, step, path)

    def _apply(self, event: Event, step: _Step, path: str) -> None:
        kind = event.kind
        if kind == _FAN_OUT_STARTED:
            step.items[event.path] = whole(event.data.get("items")) or 0
        elif kind == _GATE_ASKED:
            self._open_gate(event, step, path)
        elif kind == ITEM_SETTLED and event.path == path:
            self._settle(event, step, path)
        elif kind == MAP_ENDED and event.path == path:
            step.under_way.discard(path)
        elif kind in (MAP_STARTED, ITEM_STARTED, CALL_STARTED) and step.states.get(path) != "done":
            step.under_way.add(path)
            step.states.pop(path, None)

    def _settle(self, event: Event, step: _Step, path: str) -> None:
        state = str(event.data.get("state"))
        if state == "failed":
            text = failure_in(event)
        elif state == "cancelled":
            text = str(event.data.get("reason") or "")
        else:
            value = mapping(value_in(event))
            text = _summary_of(value)
            if value.get("status") == "failed":  # a rejected gate: it is done, but it ends the run
                state, text = "failed", str(value.get("error"))
        self._gates.pop(path, None)
        step.under_way.discard(path)
        step.states[path] = state
        step.seconds += sum(filter(None, map(number, listed(event.data.get("service")))))
        if state == "failed" or step.last[1] != "failed" or step.last[0] == path:
            step.last = (path, state, short(text, _TEXT_LENGTH))

    def _open_gate(self, event: Event, step: _Step, path: str) -> None:
        step.under_way.discard(path)
        if step.type != "gate":  # the fan-out whose item it is
            return
        facts = mapping(value_in(event))
        self._gates[path] = (
            step,
            {
                "gate": short(event.data.get("gate"), _TEXT_LENGTH),
                "path": path,
                "message": short(facts.get("message"), _MESSAGE_LENGTH),
                "options": [short(one, _TEXT_LENGTH) for one in listed(facts.get("options"))[:20]],
                "on_reject": short(facts.get("on_reject"), _TEXT_LENGTH),
                "show_file": short(facts.get("show_file"), _TEXT_LENGTH) or None,
            },
        )

    # --- the view as JSON ------------------------------------------------------------------------

    def plain(self, run: RunRow, state: str) -> dict[str, object]:
        """Return the graph in JSON's types; of more than 300 steps the first 300."""
        if state != "running":
            for step in _every(self._root):
                step.under_way.clear()
        writer = _StepWriter(state, Counter(id(step) for step, _ in self._gates.values()))
        steps = writer.steps(self._root.beneath[0][1] if self._root.beneath else [], ())
        total = sum(1 for _ in _every(self._root)) - 1
        return {
            "file": short(manifest_of(run, "workflow").get("file"), _TEXT_LENGTH),
            "state": state,
            "reason": short(run.reason, _TEXT_LENGTH),
            "steps": steps,
            "gates": [question for _, question in self._gates.values()][:_MAX_GATES],
            "decidable": state != "running",
            "more_gates": max(0, len(self._gates) - _MAX_GATES),
            "cut": None
            if total <= _MAX_STEPS
            else f"shown: {_MAX_STEPS:,} of {many(total, 'step')}",
        }


class WorkflowLive(LiveText):
    """The live line of a workflow: how many steps are done, and the newest one."""

    def __init__(self) -> None:
        self._progress = RunProgress()
        self._path = ""

    def add(self, event: Event) -> bool:
        """Count the event."""
        self._progress.add(event)
        self._path = event.path.partition("/")[2][-_PATH_WIDTH:]
        return event.kind in (ITEM_STARTED, ITEM_SETTLED, AGENT_STEP)

    def parts(self) -> Iterator[tuple[str, str]]:
        """The parts of the line, each with its style."""
        done, failed = (self._progress.ended[state] for state in ("done", "failed"))
        failures = f", {failed} failed" if failed else ""
        yield f"{done} done{failures}, {max(0, self._progress.running)} running", ""
        agents = self._progress.agents.text()
        yield agents or self._path, "dim" if agents else ""


class _StepWriter:
    """Converts steps to JSON's types, up to the number that is shown."""

    def __init__(self, state: str, open_gates: Counter[int]) -> None:
        self._state = state
        self._open_gates = open_gates
        self._left = _MAX_STEPS

    def steps(self, steps: list[_Step], above: tuple[str, ...]) -> list[dict[str, object]]:
        found = []
        for step in steps:
            if self._left <= 0:
                break
            self._left -= 1
            found.append(self._one(step, (*above, step.id)))
        return found

    def _one(self, step: _Step, names: tuple[str, ...]) -> dict[str, object]:
        beneath = [
            {"name": name, "steps": self.steps(steps, (*names, name))}
            for name, steps in step.beneath
        ]
        counts, running, waiting = (
            Counter(step.states.values()),
            len(step.under_way),
            self._open_gates[id(step)],
        )
        return {
            "id": step.id,
            "key": "/".join(names),
            "type": step.type,
            "needs": step.needs,
            "state": self._state_of(step, counts, running, waiting, beneath),
            "counts": counts,
            "running": running,
            "waiting": waiting,
            "items": sum(step.items.values()) if step.items else None,
            "seconds": round(step.seconds, 3),
            "path": step.last[0] or None,
            "said": step.last[2],
            "beneath": beneath,
        }

    def _state_of(
        self,
        step: _Step,
        counts: Mapping[str, int],
        running: int,
        waiting: int,
        beneath: list[dict[str, Any]],
    ) -> str:
        """Return one state for all instances. A step that never began is skipped in a done run."""
        if waiting:
            return "waiting"
        if running:
            return "running"
        inner = {one["state"] for held in beneath for one in held["steps"]} - {"pending", "skipped"}
        for word in ("waiting", "running", "failed", "tolerated", "cancelled"):
            if counts.get(word) or word in inner:
                return "tolerated" if word == "failed" and self._state == "done" else word
        if (
            step.items
            and self._state == "running"
            and sum(counts.values()) < sum(step.items.values())
        ):
            return "running"
        if counts.get("done") or "done" in inner:
            return "done"
        return "skipped" if self._state == "done" else "pending"


def _read(
    outline: object, before: Mapping[tuple[str, ...], _Step], above: tuple[str, ...]
) -> list[_Step]:
    """Make the steps of an outline; a step that is in `before` keeps its state."""
    found = []
    for facts in map(mapping, listed(outline)):
        name, kind = str(facts.get("id")), str(facts.get("type"))
        known = before.get((*above, name))
        step = known if known is not None and known.type == kind else _Step(name, kind)
        needs = facts.get("needs")
        step.needs = [str(one) for one in needs] if isinstance(needs, list) else None
        step.budget = bool(facts.get("budget"))
        step.beneath = [
            (word, _read(held[1], before, (*above, name, word)))
            for held in map(listed, listed(facts.get("beneath")))
            if len(held) == 2  # noqa: PLR2004 - a pair of a name and steps
            for word in [short(held[0], _TEXT_LENGTH)]
        ]
        found.append(step)
    return found


def _with_names(step: _Step, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], _Step]]:
    """Yield every step with the names of the steps around it, the outermost first."""
    names = (*above, step.id)
    yield names, step
    for word, steps in step.beneath:
        for one in steps:
            yield from _with_names(one, (*names, word))


def _every(step: _Step) -> Iterator[_Step]:
    return (one for _, one in _with_names(step, ()))


def _summary_of(facts: Mapping[str, Any]) -> str:
    """Return the part of a step's output that is shown in one line."""
    output = mapping(mapping(facts.get("last")).get("output") or facts.get("output"))
    return next(
        (str(output[word]) for word in ("choice", "text", "stdout", "value") if output.get(word)),
        "",
    )
