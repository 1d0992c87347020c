"""Strategies: what to ask next in a branch, and which draw to choose; `job` runs the loop."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, TypeAlias

from abreast.executors.tasks import is_async
from abreast.jobs.sample.checks import Check
from abreast.jobs.sample.results import SampleAttempt, best_failed, rank
from abreast.models.conversation import conversation_text, read_messages
from abreast.models.media import MediaFile
from abreast.models.port import Message, Model

__all__ = [
    "BestOf",
    "Escalate",
    "History",
    "MultiTurn",
    "Question",
    "Rejection",
    "Repair",
    "Strategy",
    "Turn",
    "Vote",
]

TEMPLATE: Final = """{prompt}

An earlier answer was:
{answer}

It does not meet these requirements:
{failures}

Write a new answer that meets all requirements. Give only the answer."""

NO_ANSWER: Final = "(no answer)"
"""The text of a draw without text in a repair: some providers refuse an empty turn."""
USABLE: Final = "a usable answer"
"""The requirement that a declined, empty, broken or schema-breaking reply did not meet."""

_SENTENCE_ENDS: Final = frozenset(".!?:;")
_REPAIR_TURN: Final = """Your answer does not meet these requirements:
{failures}

Write a new answer that meets all requirements. Give only the answer."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a sample asks, as a strategy sees it."""

    prompt: str
    """The prompt as it was given."""
    checks: tuple[Check, ...] = ()
    """The checks, whose requirements `text` states."""
    files: tuple[MediaFile, ...] = ()
    """Images and PDF files that go with it."""
    before: tuple[Message, ...] = ()
    """The turns of the conversation that the prompt goes on from."""

    @property
    def text(self) -> str:
        """The prompt as it is sent to the model."""
        shown = [check.shown for check in self.checks if check.shown]
        if not shown:
            return self.prompt
        prompt = self.prompt.rstrip()
        ended = prompt if prompt[-1:] in _SENTENCE_ENDS else f"{prompt}."
        # As sentences: small models take a list of requirements for something to be listed.
        return f"{ended} {shown[0]}" if len(shown) == 1 else "\n".join((ended, *shown))

    @property
    def marks(self) -> list[str]:
        """What a record has of the files: type, size and digest."""
        return [file.mark for file in self.files]

    @property
    def task(self) -> str:
        """What is asked, as one text: the prompt, after the turns before it."""
        return conversation_text((*self.before, Message("user", self.prompt)))

    def turn(self, text: str | None = None) -> Message:
        """The user's turn with the files, and with the prompt or another text."""
        return Message("user", self.text if text is None else text, files=self.files)

    def turns(self, text: str | None = None) -> tuple[Message, ...]:
        """The whole conversation: the turns before, and the user's turn."""
        return (*self.before, self.turn(text))


@dataclass(slots=True)
class History:
    """The draws of one branch so far."""

    branch: int
    """The number of the branch, from 0."""
    attempts: list[SampleAttempt] = field(default_factory=list)
    """Its draws, the oldest first."""
    turns: list[Message] = field(default_factory=list)

    @property
    def last(self) -> SampleAttempt | None:
        """Its newest draw."""
        return self.attempts[-1] if self.attempts else None


@dataclass(frozen=True, slots=True)
class Turn:
    """What a strategy asks next."""

    messages: tuple[Message, ...]
    """The whole conversation; the last message is of the user."""
    model: Model | str | None = None
    """The model to ask: an open one, a name, or None for the sample's own."""


Chosen: TypeAlias = SampleAttempt | int | None


class Strategy(Protocol):
    """Decides what to ask next, and which draw to choose.

    It has no state, so several samples may share it. Methods of your own may be `async def`; plain
    ones run in a thread.
    """

    @property
    def early(self) -> bool:
        """Whether the first draw that passes ends the sample."""

    def next(self, question: Question, history: History) -> Turn | Awaitable[Turn]:
        """Return what the branch asks now."""

    def select(self, attempts: Sequence[SampleAttempt]) -> Chosen | Awaitable[Chosen]:
        """Choose a draw where none has won, of attempts in (branch, round) order.

        The answer is one of them, its index, or None.
        """


def failures(attempt: SampleAttempt) -> str:
    """List the checks that a draw did not pass, each with its reason, in their order.

    For a draw that was not checked, say why its reply could not be used.
    """
    failed = [
        f"- {verdict.check}: {verdict.reason}" for verdict in attempt.verdicts if not verdict.ok
    ]
    return "\n".join(failed + [f"- {USABLE}: {attempt.reason}"] * (attempt.error is not None))


def passed(attempts: Sequence[SampleAttempt]) -> list[SampleAttempt]:
    """Return the draws that passed, in their order."""
    return [attempt for attempt in attempts if attempt.state == "passed"]


def answer(attempt: SampleAttempt) -> str:
    """Return the text of a draw, or `NO_ANSWER` if it has none."""
    return attempt.text if attempt.text.strip() else NO_ANSWER


@dataclass(frozen=True, slots=True)
class _AskAgain:
    @property
    def early(self) -> bool:
        """Whether the first draw that passes ends the sample."""
        return True

    def next(self, question: Question, history: History) -> Turn:  # noqa: ARG002 - history is not used
        """Ask the prompt again."""
        return Turn(question.turns())

    def select(self, attempts: Sequence[SampleAttempt]) -> Chosen:
        """Most checks passed, then the higher score, then the earliest."""
        return best_failed(attempts)


@dataclass(frozen=True, slots=True)
class Rejection(_AskAgain):
    """Ask the same again, with another seed, until a draw passes."""


@dataclass(frozen=True, slots=True)
class Repair(_AskAgain):
    """Show the model its last draw, the checks that it did not pass, and why.

    `template` contains `{prompt}`, `{answer}` and `{failures}`.
    """

    template: str = TEMPLATE

    def next(self, question: Question, history: History) -> Turn:
        """Ask the prompt; from the second round on, with what was wrong."""
        last = history.last
        text = question.text
        if last is not None:
            text = self.template.format(
                prompt=question.text, answer=answer(last), failures=failures(last)
            )
        return Turn(question.turns(text))


@dataclass(frozen=True, slots=True)
class MultiTurn(_AskAgain):
    """Continue the conversation: each round adds the model's answer and what is wrong with it."""

    def next(self, question: Question, history: History) -> Turn:
        """Send the conversation so far, with what is wrong with the last answer."""
        turns = [*question.turns()]
        for attempt in history.attempts:
            turns += [
                Message("assistant", answer(attempt)),
                Message("user", _REPAIR_TURN.format(failures=failures(attempt))),
            ]
        return Turn(tuple(turns))

    def select(self, attempts: Sequence[SampleAttempt]) -> Chosen:
        """Choose the last draw of the branch whose last draw ranks best.

        It is the deepest repaired one, not the last to end.
        """
        last = {
            attempt.branch: attempt for attempt in attempts if attempt.state in ("passed", "failed")
        }
        return min(last.values(), key=rank, default=None)


@dataclass(frozen=True, slots=True)
class Vote(_AskAgain):
    """Let every branch draw until it passes, and choose the most frequent text.

    `same` gives what is compared: by default the text without case and extra whitespace. With
    `risk`, a distance between two texts, the draw with the least total distance to all others wins
    (minimum Bayes risk).
    """

    same: Callable[[str], str] = lambda text: " ".join(text.split()).casefold()
    risk: Callable[[str, str], float] | None = None

    @property
    def early(self) -> bool:
        """No: every branch draws until it passes."""
        return False

    def __post_init__(self) -> None:
        """Refuse functions that are not plain: they compare texts and wait for nothing."""
        if is_async(self.same) or (self.risk is not None and is_async(self.risk)):
            raise TypeError("same and risk of a Vote must be plain functions, not async")

    def select(self, attempts: Sequence[SampleAttempt]) -> Chosen:
        """The most frequent of those that passed, or the closest to all; on a tie the earliest."""
        passing = passed(attempts)
        if not passing:
            return best_failed(attempts)
        if self.risk is not None:
            risk = self.risk
            return min(
                passing,
                key=lambda one: (
                    sum(risk(one.text, other.text) for other in passing),
                    *one.place,
                ),
            )
        votes = Counter(self.same(attempt.text) for attempt in passing)
        return min(passing, key=lambda one: (-votes[self.same(one.text)], *one.place))


@dataclass(frozen=True, slots=True)
class BestOf(_AskAgain):
    """Let every branch draw until it passes, and choose the highest score.

    `score` may be a plain function, which runs in a thread, or `async def`.
    """

    score: Callable[[SampleAttempt], float | Awaitable[float]] = lambda attempt: attempt.score

    @property
    def early(self) -> bool:
        """No: every branch draws until it passes."""
        return False

    def select(self, attempts: Sequence[SampleAttempt]) -> Chosen:
        """The highest score of those that passed; on a tie the earliest."""
        passing = passed(attempts)
        return min(
            passing,
            key=lambda one: (-self.score(one), *one.place),  # type: ignore[operator] # `job` awaits it
            default=best_failed(attempts),
        )


@dataclass(frozen=True, slots=True)
class Escalate(_AskAgain):
    """Ask the sample's own model first; when a round brings no progress, ask `slow` from then on.

    `slow` is a name such as "openai/gpt-4o", or a model that is already open. `start` says what it
    begins with: `"fresh"` the prompt alone, `"continue"` the last draw to repair, `"best"` the best
    draw of the branch to repair.
    """

    slow: Model | str
    start: Literal["fresh", "continue", "best"] = "fresh"

    def next(self, question: Question, history: History) -> Turn:
        """Ask for a repair, from the sample's own model or from `slow`."""
        stuck = _stuck_at(history.attempts)
        if stuck is None:
            return Repair().next(question, history)
        if len(history.attempts) > stuck:
            return Turn(
                Repair().next(question, History(history.branch, history.attempts[stuck:])).messages,
                self.slow,
            )
        best = best_failed(history.attempts)
        starts = {"continue": history.attempts[-1:], "best": [best] if best else []}
        shown = starts.get(self.start, [])
        return Turn(Repair().next(question, History(history.branch, shown)).messages, self.slow)


def _stuck_at(attempts: Sequence[SampleAttempt]) -> int | None:
    """Return after how many draws of the fast model one brought no progress; None if all did."""
    best = -1
    for number, attempt in enumerate(attempts, 1):
        if attempt.passes <= best:
            return number
        best = attempt.passes
    return None


StrategyFunction: TypeAlias = Callable[[Question, History], Any]


@dataclass(frozen=True, slots=True)
class FunctionStrategy(_AskAgain):
    """What to ask next by your own function of the question and the branch's history.

    It returns the text of the user's turn, a whole conversation, or a `Turn`; `async def` is
    awaited, a plain function runs in a thread.

        async def shorter(question, history):
            return question.text if history.last is None else f"Shorter: {history.last.text}"
    """

    fn: StrategyFunction

    def next(self, question: Question, history: History) -> Turn | Awaitable[Turn]:  # type: ignore[override] # what the function returns; `job` makes a turn of it
        """Ask what the function says."""
        return self.fn(question, history)  # type: ignore[no-any-return] # the same


def as_turn(question: Question, answer: object, name: str) -> Turn:
    """What the function `name` says to ask next; TypeError if it is nothing that can be asked."""
    if isinstance(answer, Turn):
        return answer
    if isinstance(answer, str):
        return Turn(question.turns(answer))
    if isinstance(answer, (list, tuple)):
        return Turn(read_messages(answer))
    raise TypeError(
        f"the strategy {name} must return a text, messages or a Turn, not {answer!r:.60}"
    )


STRATEGIES: Final[dict[str, Callable[[], Strategy]]] = {
    "rejection": Rejection,
    "repair": Repair,
    "multi-turn": MultiTurn,
    "vote": Vote,
    "best-of": BestOf,
}
"""The strategies without required arguments, by the name in job files and on the command line."""
