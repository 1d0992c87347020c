"""The result of a sample: one record for each draw, what its error concerns, and the counts."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Generic, Literal, Self, TypeAlias, cast

from abreast.core import errors
from abreast.core.errors import (
    AbreastError,
    ConnectionLost,
    RecordedError,
    Refused,
    ReplyBroken,
    ReplyInvalid,
    ReplyTimeout,
    ServerFault,
    Throttled,
    TooLong,
)
from abreast.core.frozen import later
from abreast.core.outcome import NO_USAGE, Usage
from abreast.models.port import Json, V_co

Concern: TypeAlias = Literal["draw", "branch", "sample"]
"""`draw`: it uses its round and is repaired. `branch`: it ends its branch.

`sample`: every draw would fail with it.
"""

_DRAW_ERRORS: Final = (Refused, ReplyBroken, ReplyInvalid)
"""A reply came but can't be used: declined, empty, unreadable, too long, or not by the schema.

The next one may be usable.
"""
_BRANCH_ERRORS: Final = (ServerFault, ConnectionLost, ReplyTimeout, Throttled, TooLong)
"""No reply came, after all retries, or the branch's conversation is too long for the model."""

State: TypeAlias = Literal["passed", "failed", "error", "cancelled"]


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    """The verdict of a check on a draw."""

    check: str
    """The check's name; empty for that of the function that returned it."""
    ok: bool
    """Whether the draw passes."""
    reason: str = ""
    """Why it does not; a repair shows it to the model."""
    score: float | None = None
    """How good the draw is, if the check says so."""


@dataclass(frozen=True, slots=True)
class SampleAttempt:
    """One draw: its branch and round, the reply, and the verdicts of the checks.

    Rounds and branches count from 0.
    """

    branch: int
    """The branch that drew it."""
    round: int
    """The round of its branch."""
    number: int
    """`branch * depth + round + 1`: unique over all branches."""
    state: State
    """`passed`, `failed` (checked, and not passed), `error` or `cancelled`."""
    text: str = ""
    """The reply."""
    value: Json = None
    """The value of the reply, if a schema was asked for."""
    verdicts: tuple[CheckVerdict, ...] = ()
    """What the checks found, in their order: up to the first failure, or all with `explain`."""
    error: str | None = None
    """The exception: its type's name and its message."""
    usage: Usage = NO_USAGE
    """What the draw and its judges used."""
    seed: int | None = None
    """The seed that was sent."""
    seconds: float = 0.0
    """How long it took."""
    model: str = ""
    """The model that was asked."""
    concerns: Concern | None = None
    """What its error concerns: this draw alone, its branch, or every draw of the sample."""
    work: Mapping[str, Any] | None = None
    """What an agent did beside its text, and made of its tree; None for other models."""

    @property
    def place(self) -> tuple[int, int]:
        """(round, branch): the order in which a sequential sample would draw."""
        return self.round, self.branch

    @property
    def reason(self) -> str:
        """The message of its error, without the type's name; empty if there is none."""
        return (self.error or "").partition(": ")[2]

    @property
    def passes(self) -> int:
        """How many checks it passed."""
        return sum(verdict.ok for verdict in self.verdicts)

    @property
    def score(self) -> float:
        """The sum of its scores."""
        return sum(verdict.score or 0.0 for verdict in self.verdicts)

    def plain(self) -> dict[str, Any]:
        """Return the form that is recorded and printed as JSON."""
        facts = asdict(self)
        if self.work is None:  # records of before have none
            del facts["work"]
        return facts

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """Read what `plain` returned."""
        verdicts = tuple(CheckVerdict(**verdict) for verdict in plain["verdicts"])
        return cls(**{**plain, "verdicts": verdicts, "usage": Usage(**plain["usage"])})


@dataclass(frozen=True, slots=True)
class SampleCounts:
    """How many draws were started and how they ended; `completed + cancelled + failed == started`.

    `completed` draws were checked, passed or not; `failed` ones raised, or had an unusable reply.
    `rounds` is the deepest round that any branch began, at most the depth: it counts rounds of one
    branch, where `started` counts draws over all of them.
    """

    started: int = 0
    completed: int = 0
    cancelled: int = 0
    failed: int = 0
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class SampleResult(Generic[V_co]):
    """The result of a sample; a `SampleResult[Recipe]` was asked with `schema=Recipe`.

    if result.ok:
        print(result.text, result.winner.round, result.usage.requests)
    """

    ok: bool
    """Whether a draw passed all checks."""
    winner: SampleAttempt | None
    """The chosen draw: the one that passed, or else the best; None if there is none."""
    attempts: tuple[SampleAttempt, ...]
    """All draws, sorted by (branch, round), independent of the order in which they ended."""
    counts: SampleCounts
    """How many draws were started, and how they ended."""
    usage: Usage
    """The usage of all draws, `speculative` ones included: what was paid for."""
    errors: tuple[BaseException, ...] = ()
    """The exceptions of draws, in (round, branch) order."""
    timing_dependent: frozenset[str] = field(default_factory=frozenset)
    """The options that let timing decide, such as `pick="first"`; empty by default."""
    speculative: Usage = NO_USAGE
    """The usage of draws past the winner in (round, branch) order; it depends on timing."""
    parsed: V_co | None = later(None)  # noqa: RUF009 - it makes a field
    """The value of the chosen draw as an instance of the pydantic model that was asked for."""

    @property
    def text(self) -> str:
        """The text of the chosen draw; empty if there is none."""
        return self.winner.text if self.winner else ""

    @property
    def value(self) -> V_co | None:
        """The value of the chosen draw, if a schema was asked for.

        It is an instance of `schema`, if that was a pydantic model's class; else JSON.
        """
        if self.parsed is not None or self.winner is None:
            return self.parsed
        return cast("V_co", self.winner.value)


def count(attempts: Sequence[SampleAttempt]) -> SampleCounts:
    """Count attempts by how they ended."""
    states = [attempt.state for attempt in attempts]
    return SampleCounts(
        started=len(states),
        completed=states.count("passed") + states.count("failed"),
        cancelled=states.count("cancelled"),
        failed=states.count("error"),
        rounds=max((attempt.round + 1 for attempt in attempts), default=0),
    )


def split_usage(
    attempts: Sequence[SampleAttempt], last: tuple[int, int] | None
) -> tuple[Usage, Usage]:
    """Return the usage of draws up to the (round, branch) `last`, and that of the others.

    The others are past it or were cancelled. The first is the same with any delays: it is what a
    sequential sample would have used.
    """
    counted = speculative = NO_USAGE
    for attempt in by_branch(attempts):
        if attempt.state == "cancelled" or (last is not None and attempt.place > last):
            speculative += attempt.usage
        else:
            counted += attempt.usage
    return counted, speculative


def by_branch(attempts: Sequence[SampleAttempt]) -> tuple[SampleAttempt, ...]:
    """Sorted by (branch, round)."""
    return tuple(sorted(attempts, key=lambda attempt: (attempt.branch, attempt.round)))


def best_failed(attempts: Sequence[SampleAttempt]) -> SampleAttempt | None:
    """Return the best draw: most checks passed, then the higher score, then the earliest."""
    drawn = [attempt for attempt in attempts if attempt.state in ("passed", "failed")]
    return min(drawn, key=rank, default=None)


def rank(attempt: SampleAttempt) -> tuple[int, float, int, int]:
    """The order among draws that did not pass: the least is the best."""
    return (-attempt.passes, -attempt.score, *attempt.place)


def concern_of(error: BaseException) -> Concern:
    """Return what an error concerns. An unknown error, such as a bug, concerns all draws.

    >>> concern_of(Refused("not this")), concern_of(ServerFault("down"))
    ('draw', 'branch')
    >>> concern_of(KeyError("a bug in a check"))
    'sample'
    """
    return (
        "draw"
        if isinstance(error, _DRAW_ERRORS)
        else "branch"
        if isinstance(error, _BRANCH_ERRORS)
        else "sample"
    )


def error_text(error: BaseException) -> str:
    """Return an error as an attempt stores it: its type's full name and its message."""
    return f"{type(error).__module__}.{type(error).__qualname__}: {error}".removeprefix("builtins.")


def error_from(text: str) -> AbreastError:
    """Return the error for such a text; an error of abreast's own gets its type again."""
    kind, _, message = text.partition(": ")
    module, _, name = kind.rpartition(".")
    own = vars(errors).get(name) if module == errors.__name__ else None
    if (
        isinstance(own, type)
        and issubclass(own, AbreastError)
        and own not in (AbreastError, RecordedError)
    ):
        try:
            return own(message)
        except TypeError:  # it takes more than a message
            pass
    return RecordedError(kind, message)
