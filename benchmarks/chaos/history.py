"""The checker: what a job did under a fault, against the same job undisturbed.

It knows nothing of jobs, faults or stores; all of them are checked by the same rules.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

_DONE = "done"
_STARTED = {"item-started": "item-settled", "call-started": "call-settled"}
_INPUT_USD, _OUTPUT_USD = 1e-6, 2e-6  # what a token costs, as the lanes of the jobs say
_PRECISION = 1e-9  # usd
_OWN_CODE = re.compile(r"/abreast/(?!__init__\.py)")


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event of a journal, as far as it matters here."""

    kind: str
    path: str
    state: str = ""
    body: str = ""
    """A digest of what it holds."""
    tokens: tuple[int, int] = (0, 0)
    """Input and output of a call."""
    usd: float = 0.0
    wall: float = 0.0
    estimated: bool = False
    """Whether a part of what a call used is an estimate, as of an attempt that was cut off."""

    @property
    def is_done(self) -> bool:
        """Whether it is a result that is kept."""
        return self.kind.endswith("-settled") and self.state == _DONE


@dataclass(frozen=True, slots=True)
class Answered:
    """A request as the model's server saw it."""

    key: str
    tokens: tuple[int, int]
    whole: bool = True
    """Whether it was answered well and to the end."""

    @property
    def usd(self) -> float:
        """What the server bills for it."""
        return self.tokens[0] * _INPUT_USD + self.tokens[1] * _OUTPUT_USD


@dataclass(frozen=True, slots=True)
class History:
    """What happened to a job in a round."""

    expected: Mapping[str, object]
    """The answers of the undisturbed job, by path."""
    answers: Mapping[str, object]
    width: int = 1
    disturbed: Sequence[Recorded] = ()
    """The journal when the fault was over, before anything was resumed."""
    ended: Sequence[Recorded] = ()
    executed: Sequence[str] = ()
    """The names that commands wrote when they began."""
    executed_before: int = 0
    """How many of them before it was resumed."""
    answered: Sequence[Answered] = ()
    repeatable: int | None = None
    """How much may be done twice; None for `width`."""
    partial: bool = False
    """Whether answers may be missing, as a budget that is spent allows."""
    budget: float | None = None
    forgotten: float = 0.0
    """The dollars that were spent and are in no record, as records were taken away."""
    trees: tuple[Mapping[str, str], Mapping[str, str]] = field(default_factory=lambda: ({}, {}))
    recovered: bool = False
    """Whether the store was damaged and what was whole of it was saved."""
    left: Sequence[str] = ()
    errors: Sequence[str] = ()
    hung: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """What must not happen, and how often it did."""

    lost: int = 0
    recorded_repeated: int = 0
    repeated_beyond_width: int = 0
    changed: int = 0
    budget_passed: int = 0
    miscounted: int = 0
    left: int = 0
    tracebacks: int = 0
    tree_changed: int = 0
    hung: int = 0

    def __add__(self, other: Counts) -> Counts:
        mine, others = asdict(self), asdict(other)
        return Counts(**{name: mine[name] + others[name] for name in mine})

    def __bool__(self) -> bool:
        return any(asdict(self).values())

    def __str__(self) -> str:
        found = [f"{name} {count}" for name, count in asdict(self).items() if count]
        return ", ".join(found).replace("_", " ") or "all well"


def check(history: History) -> Counts:
    """Count what went wrong."""
    return Counts(
        lost=_lost(history),
        recorded_repeated=_recorded_repeated(history),
        repeated_beyond_width=_repeated_beyond_width(history),
        changed=_changed(history),
        budget_passed=_budget_passed(history),
        miscounted=_miscounted(history),
        left=len(history.left),
        tracebacks=sum(_is_traceback(text) for text in history.errors),
        tree_changed=_tree_changed(history),
        hung=history.hung,
    )


def _lost(history: History) -> int:
    """Events that are no longer in the journal, and answers that never came."""
    kept = Counter(history.ended)
    events = sum((Counter(history.disturbed) - kept).values())
    missing = [] if history.partial else history.expected.keys() - history.answers.keys()
    if history.recovered:
        # What was damaged beneath a result that is whole is told, and not needed any more.
        missing = [path for path in missing if not _is_beneath(path, history.answers)]
    return events + len(missing)


def _is_beneath(path: str, answers: Mapping[str, object]) -> bool:
    parts = path.split("/")
    return any("/".join(parts[:end]) in answers for end in range(1, len(parts)))


def _recorded_repeated(history: History) -> int:
    """What began again although its result was recorded, by the journal and by the commands."""
    done, repeated = set(), 0
    for event in history.ended:
        if event.is_done:
            done.add((event.kind, event.path))
        repeated += (_STARTED.get(event.kind), event.path) in done
    recorded = {_name(event.path) for event in history.disturbed if event.is_done}
    return repeated + sum(name in recorded for name in history.executed[history.executed_before :])


def _name(path: str) -> str:
    return path.rpartition("/")[2].partition("-")[0]


def _repeated_beyond_width(history: History) -> int:
    """What ran twice, beyond the width and what was recorded as failed and is run again."""
    allowed = _repeatable(history)
    commands = len(history.executed) - len(set(history.executed))
    calls = Counter(one.key for one in history.answered if one.whole)
    twice = sum(count - 1 for count in calls.values())
    return max(0, commands - allowed) + max(0, twice - allowed)


def _repeatable(history: History) -> int:
    if history.repeatable is not None:
        return history.repeatable
    settled = [event for event in history.disturbed if event.kind == "item-settled"]
    return history.width + sum(event.state == "failed" for event in settled)


def _changed(history: History) -> int:
    """Answers that differ, or that the undisturbed job does not have, and rewritten results."""
    before, after = _results(history.disturbed), _results(history.ended)
    rewritten = [path for path in before if path in after and before[path] != after[path]]
    nothing = object()
    other = [
        path
        for path, answer in history.answers.items()
        if history.expected.get(path, nothing) != answer
    ]
    return len(other) + len(rewritten)


def _results(journal: Sequence[Recorded]) -> dict[tuple[str, str], str]:
    return {(event.kind, event.path): event.body for event in journal if event.is_done}


def _budget_passed(history: History) -> int:
    if history.budget is None:
        return 0
    billed = sum(one.usd for one in history.answered)
    return int(billed > history.budget + history.forgotten + _PRECISION)


def unrecorded_usd(journal: Sequence[Recorded], answered: Sequence[Answered]) -> float:
    """What the server has billed beyond what the journal has booked, in dollars."""
    booked = sum(event.usd for event in journal if event.kind == "call-settled" and event.is_done)
    return max(0.0, sum(one.usd for one in answered) - booked)


def _miscounted(history: History) -> int:
    """Calls that were booked otherwise than billed, and bills that nothing was booked for.

    Of an answer that was on its way when the driver died the journal can't know. A call that is
    marked as an estimate stands for one bill, whatever that is.
    """
    calls = [event for event in history.ended if event.kind == "call-settled" and event.is_done]
    booked = Counter(event.tokens for event in calls if not event.estimated)
    billed = Counter(one.tokens for one in history.answered if one.whole)
    wrong = sum((booked - billed).values())
    unbooked = sum((billed - booked).values())
    allowed = _repeatable(history) + sum(event.estimated for event in calls)
    prices = sum(
        abs(event.usd - Answered("", event.tokens).usd) > _PRECISION
        for event in calls
        if event.tokens != (0, 0)
    )
    return wrong + max(0, unbooked - allowed) + prices


def _is_traceback(text: str) -> bool:
    """Whether there is a traceback; one of Python's own start, before any of our code, is none."""
    return "Traceback (most recent" in text and bool(_OWN_CODE.search(text))


def _tree_changed(history: History) -> int:
    before, after = history.trees
    return sum(before.get(name) != after.get(name) for name in before.keys() | after.keys())
