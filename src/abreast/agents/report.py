"""What an agent reports while it runs, read from the lines that it writes."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from abreast.agents.runner import SUMS, TEXT, AgentRunner
from abreast.core.usage import Usage

MAX_LINE: Final = 16 << 20  # bytes; a longer line is passed over
MAX_TEXT: Final = 1 << 20  # bytes kept of an agent that writes plain text
MAX_STEPS: Final = 200  # kept; all are counted
STEP_CHARACTERS: Final = 160


@dataclass(slots=True)
class AgentReport:
    """What is known of a run of an agent: all of it once it has ended."""

    text: str = ""
    value: Any = None
    session: str = ""
    model: str = ""
    turns: int = 0
    cost: float | None = None
    usage: Usage = field(default_factory=Usage)
    error: str = ""
    status: int | None = None
    resets: float | None = None
    denied: tuple[str, ...] = ()
    steps: list[str] = field(default_factory=list)
    step_count: int = 0
    ended: bool = False
    """Whether it has given its text or an error: without one of them it was cut off."""


class ReportReader:
    """Reads the output of an agent as it comes.

    `changed` is called when there is a new step, a session or usage.
    """

    def __init__(
        self, runner: AgentRunner, changed: Callable[[AgentReport], None] = lambda _report: None
    ) -> None:
        self.report = AgentReport()
        self.events = 0
        """Lines of JSON objects."""
        self.strange: list[str] = []
        """The first lines that are none."""
        self._rules = runner.rules
        self._structured = runner.is_structured
        self._changed = changed
        self._rest = bytearray()
        self._skipping = False
        self._turns: dict[str, tuple[int, int]] = {}
        self._totals: dict[str, int] = {}

    def feed(self, data: bytes) -> None:
        """Take the next piece of what it wrote."""
        if not self._structured:
            self._rest += data[: max(0, MAX_TEXT - len(self._rest))]
            return
        *lines, last = data.split(b"\n")
        for line in lines:
            self._rest += line
            if not self._skipping:
                self._line(bytes(self._rest))
            self._rest.clear()
            self._skipping = False
        self._rest += last
        if len(self._rest) > MAX_LINE:
            self._rest.clear()
            self._skipping = True

    def end(self) -> AgentReport:
        """Take what is left, and return the report."""
        if not self._structured:
            self.report.text = bytes(self._rest).decode("utf-8", "replace").strip()
            self.report.ended = True
        elif not self._skipping:
            self._line(bytes(self._rest))
        self._rest.clear()
        return self.report

    def _line(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict):
            if len(self.strange) < 5:  # noqa: PLR2004 - enough to tell what it is
                self.strange.append(line[:STEP_CHARACTERS].decode("utf-8", "replace"))
            return
        self.events += 1
        found = {name: self._find(name, event) for name in self._rules}
        self._take({name: values for name, values in found.items() if values})

    def _find(self, name: str, event: Mapping[str, Any]) -> list[Any]:
        found = [value for rule in self._rules[name] for value in rule.find(event)]
        if name in SUMS:
            numbers = [one for one in found if isinstance(one, int) and not isinstance(one, bool)]
            return [sum(numbers)] if numbers else []
        return found

    def _take(self, found: Mapping[str, list[Any]]) -> None:
        if not found:
            return
        report = self.report
        if "text" in found and "error" not in found:
            report.text, report.error, report.ended = str(found[TEXT][0]), "", True
        if "error" in found:
            report.error, report.ended = _text(found["error"][0]) or "it failed", True
        for name in ("session", "model"):
            if name in found:
                setattr(report, name, str(found[name][0]))
        if "value" in found:
            report.value = found["value"][0]
        if "denied" in found:
            report.denied = tuple(dict.fromkeys(map(str, found["denied"])))
        self._take_numbers(found)
        for step in found.get("step", ()):
            report.step_count += 1
            report.steps.append(brief(step))
            del report.steps[:-MAX_STEPS]
        self._changed(report)

    def _take_numbers(self, found: Mapping[str, list[Any]]) -> None:
        report = self.report
        if "turn" in found:
            counts = (found.get(name, [0])[0] for name in ("turn_input", "turn_output"))
            self._turns[str(found["turn"][0])] = (next(counts), next(counts))
            report.turns = max(report.turns, len(self._turns))
        turns = _number(found, "turns")
        report.turns = report.turns if turns is None else int(turns)
        cost, status = _number(found, "cost"), _number(found, "status")
        report.cost = report.cost if cost is None else cost
        report.status = report.status if status is None else int(status)
        resets = _number(found, "resets")
        report.resets = report.resets if resets is None else resets
        self._totals |= {name: found[name][0] for name in found if name in SUMS}
        live = self._turns.values()
        totals = self._totals
        report.usage = Usage(
            max(1, report.turns),
            totals.get("input_tokens", sum(one for one, _ in live)),
            totals.get("output_tokens", sum(one for _, one in live)),
            report.cost,
            bool(live) and "input_tokens" not in totals,
            totals.get("cached_input_tokens", 0),
            totals.get("cache_write_tokens", 0),
            totals.get("reasoning_tokens", 0),
        )


def _number(found: Mapping[str, list[Any]], name: str) -> float | None:
    value = found.get(name, [None])[0]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer of more than 300 digits
        return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def brief(step: object) -> str:
    """A step in one line: a text, or a tool's name and the first text among its arguments."""
    if isinstance(step, Mapping):
        given = step.get("input")
        texts = (
            [one for one in given.values() if isinstance(one, str)]
            if isinstance(given, Mapping)
            else []
        )
        step = " ".join([str(step.get("name", "")), *texts[:1]]).strip() or _text(dict(step))
    line = " ".join(_text(step).split())
    return line if len(line) <= STEP_CHARACTERS else f"{line[: STEP_CHARACTERS - 1]}…"
