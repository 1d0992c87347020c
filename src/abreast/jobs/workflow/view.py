"""A workflow: its steps as a graph, how far each is, and the gates that wait for somebody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from abreast.core.events import (
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
    whole,
)

_OUTLINED: Final = "workflow-outlined"
_FAN_OUT_STARTED: Final = "fan-out-started"
_GATE_ASKED: Final = "gate-asked"

_STEPS: Final = 300  # that are shown
_GATES: Final = 20
_MESSAGE: Final = 20_000
_TEXT: Final = 300
_BUDGET: Final = ":budget"
_LOOPS: Final = ("while", "do-while")
_WITHOUT: Final = ("if", "switch")  # their steps are journaled beside them, not beneath


@dataclass(slots=True)
class _Step:
    """A step of the file, and what became of it: once, or once for each item and round that it stands in."""

    id: str
    type: str
    needs: list[str] | None = None
    budget: bool = False
    beneath: list[tuple[str, list[_Step]]] = field(default_factory=list)
    states: dict[str, str] = field(default_factory=dict)  # by path, the newest
    under_way: set[str] = field(default_factory=set)
    seconds: float = 0.0
    last: tuple[str, str, str] = ("", "", "")  # path, state, a line about it
    items: dict[str, int] = field(default_factory=dict)  # of a fan-out: how many, by its path
    inner: dict[str, _Step] = field(
        default_factory=dict
    )  # by id, those whose paths lie beneath this one's

    def index(self) -> None:
        """Know the steps beneath by their ids: those of an `if` are found where the `if` itself is."""
        self.inner = {one.id: one for _, steps in self.beneath for one in reached(steps)}
        for one in self.inner.values():
            one.index()

    @property
    def alone(self) -> _Step | None:
        """The one step of a fan-out that does something itself: it has no path but the item's."""
        steps = [one for _, held in self.beneath for one in held] if self.type == "fan-out" else []
        return (
            steps[0] if len(steps) == 1 and not steps[0].beneath and not steps[0].budget else None
        )


def reached(steps: list[_Step]) -> Iterator[_Step]:
    """Steps whose paths lie in one scope."""
    for step in steps:
        yield step
        if step.type in _WITHOUT:
            for _, within in step.beneath:
                yield from reached(within)


@dataclass(slots=True)
class _Gate:
    step: _Step
    gate: str
    path: str
    message: str
    options: list[str]
    on_reject: str
    show_file: str


class WorkflowFold:
    """What has happened in a workflow so far."""

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
        """Nothing yet."""
        self._root = _Step("", "workflow")
        self._gates: dict[str, _Gate] = {}  # by path

    def add(self, event: Event) -> None:
        """Take in the next event."""
        if event.kind == _OUTLINED:
            self._outlined(event)
        elif event.kind in (RUN_RESUMED, RUN_ENDED):
            if event.kind == RUN_RESUMED:
                self._gates.clear()  # what is still to be decided is asked again
            for step in _every(self._root):
                step.under_way.clear()
        elif (found := self._find(event.path)) is not None:
            self._told(event, *found)

    def _outlined(self, event: Event) -> None:
        """The steps as the newest driver has them.

        What is known of those that are still there stays.
        """
        if "/" in event.path:  # a workflow within another job
            return
        before = dict(_named(self._root, ()))
        self._root = _Step("", "workflow", beneath=[("", _read(value_in(event), before, ("", "")))])
        self._root.index()

    # --- which step is it? --------------------------------------------------------------------------------------------

    def _find(self, path: str) -> tuple[_Step, str, bool] | None:
        """The step of a path, the path of its instance, and whether that is one item of a fan-out."""
        parts = path.split("/")
        step, at = self._root, 1
        while at < len(parts):
            if unescape(parts[at]).endswith(_BUDGET):
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
            elif step.type in _LOOPS:
                at += 1
        return (step, path, False) if step is not self._root else None

    # --- what happened to it? -----------------------------------------------------------------------------------------

    def _told(self, event: Event, step: _Step, path: str, item: bool) -> None:  # noqa: FBT001 - what `_find` gave
        if item and (alone := step.alone) is not None:
            self._happened(event, alone, path)
        if item or step.type != "fan-out" or event.kind == _FAN_OUT_STARTED:
            self._happened(event, step, path)

    def _happened(self, event: Event, step: _Step, path: str) -> None:
        kind = event.kind
        if kind == _FAN_OUT_STARTED:
            step.items[event.path] = whole(event.data.get("items")) or 0
        elif kind == _GATE_ASKED:
            self._asked(event, step, path)
        elif kind == ITEM_SETTLED and event.path == path:
            self._settled(event, step, path)
        elif kind == MAP_ENDED and event.path == path:
            step.under_way.discard(path)
        elif kind in (MAP_STARTED, ITEM_STARTED, CALL_STARTED) and step.states.get(path) != "done":
            step.under_way.add(path)
            step.states.pop(path, None)

    def _settled(self, event: Event, step: _Step, path: str) -> None:
        state = str(event.data.get("state"))
        value: Mapping[str, Any] = {}
        if state == "failed":
            said = failure_in(event)
        elif state == "cancelled":
            said = str(event.data.get("reason") or "")
        else:
            value = mapping(value_in(event))
            said = _said(value)
        if (
            value.get("status") == "failed"
        ):  # a rejected gate has been decided, and yet it ends the run
            state, said = "failed", str(value.get("error"))
        self._gates.pop(path, None)
        step.under_way.discard(path)
        step.states[path] = state
        step.seconds += sum(filter(None, map(number, listed(event.data.get("service")))))
        if state == "failed" or step.last[1] != "failed" or step.last[0] == path:
            step.last = (path, state, short(said, _TEXT))

    def _asked(self, event: Event, step: _Step, path: str) -> None:
        step.under_way.discard(path)
        if step.type != "gate":  # the fan-out whose item it is
            return
        facts = mapping(value_in(event))
        self._gates[path] = _Gate(
            step,
            short(event.data.get("gate"), _TEXT),
            path,
            short(facts.get("message"), _MESSAGE),
            [short(one, _TEXT) for one in listed(facts.get("options"))[:20]],
            short(facts.get("on_reject"), _TEXT),
            short(facts.get("show_file"), _TEXT),
        )

    # --- the picture --------------------------------------------------------------------------------------------------

    def plain(self, run: RunRow, state: str) -> dict[str, object]:
        """The graph; of very many steps the first."""
        if state != "running":
            for step in _every(self._root):
                step.under_way.clear()
        told = _Telling(state, Counter(id(gate.step) for gate in self._gates.values()))
        steps = told.steps(self._root.beneath[0][1] if self._root.beneath else [], ())
        total = sum(1 for _ in _every(self._root)) - 1
        waiting = list(self._gates.values())
        return {
            "file": short(manifest_of(run, "workflow").get("file"), _TEXT),
            "state": state,
            "reason": short(run.reason, _TEXT),
            "steps": steps,
            "gates": [
                {
                    "gate": one.gate,
                    "path": one.path,
                    "message": one.message,
                    "options": one.options,
                    "on_reject": one.on_reject,
                    "show_file": one.show_file or None,
                }
                for one in waiting[:_GATES]
            ],
            "decidable": state != "running",
            "more_gates": max(0, len(waiting) - _GATES),
            "cut": None if total <= _STEPS else f"shown: {_STEPS:,} of {many(total, 'step')}",
        }


class _Telling:
    """Steps on their way into JSON, as many as are shown."""

    def __init__(self, state: str, asked: Counter[int]) -> None:
        self._state = state
        self._asked = asked
        self._left = _STEPS

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
            self._asked[id(step)],
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
        """One word for all of it. What was never begun was skipped, once the run is done."""
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
    """Steps from an outline, with what is known of them."""
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
            if len(held) == 2  # noqa: PLR2004 - a name, and steps
            for word in [short(held[0], _TEXT)]
        ]
        found.append(step)
    return found


def _named(step: _Step, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], _Step]]:
    """Every step with its names from the outermost on."""
    names = (*above, step.id)
    yield names, step
    for word, steps in step.beneath:
        for one in steps:
            yield from _named(one, (*names, word))


def _every(step: _Step) -> Iterator[_Step]:
    yield step
    for _, steps in step.beneath:
        for one in steps:
            yield from _every(one)


def _said(facts: Mapping[str, Any]) -> str:
    """What a person wants to see of a step's output in a line."""
    output = mapping(mapping(facts.get("last")).get("output") or facts.get("output"))
    return next(
        (str(output[word]) for word in ("choice", "text", "stdout", "value") if output.get(word)),
        "",
    )
