"""The checks that a draw must pass: functions, patterns, schemas, and judgements of a model."""

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeAlias

from abreast.core.errors import CheckBroken, ReplyInvalid
from abreast.executors.tasks import is_async
from abreast.jobs.sample.results import CheckVerdict
from abreast.models.media import MediaFile
from abreast.models.port import SHORT_REPLY_TOKENS, Json, Message, Model, Reply, Request
from abreast.models.schema import as_model, parse, schema_of

__all__ = [
    "Check",
    "CheckVerdict",
    "CheckedDraft",
    "check",
    "check_only",
    "contains",
    "is_json",
    "judged",
    "lines",
    "obeys",
    "regex",
    "words",
]

_REASON_CHARACTERS: Final = 80  # of the draw's text in a reason


@dataclass(frozen=True, slots=True)
class CheckedDraft:
    """A draw to be checked."""

    text: str
    """The reply."""
    value: Json = None
    """The parsed value, if a schema was asked for."""
    prompt: str = ""
    """What was asked."""
    files: tuple[MediaFile, ...] = ()
    """Images and PDF files that were sent with the prompt."""


class Check(Protocol):
    """A requirement that a draw must meet.

    `shown` is what the prompt says about it; None for a check that is hidden from the model.
    """

    @property
    def name(self) -> str:
        """Its name in verdicts and repairs; unique in a sample."""

    @property
    def shown(self) -> str | None:
        """What the prompt says about it."""

    @property
    def costs(self) -> bool:
        """Whether it asks a model."""

    def run(
        self, draft: CheckedDraft
    ) -> CheckVerdict | Awaitable[CheckVerdict] | Callable[[], Any]:
        """Return the verdict, a coroutine of it, or a plain function to be called in a thread."""


@dataclass(frozen=True, slots=True)
class Pure:
    """A check of the text alone, cheap enough to run in the event loop."""

    name: str
    look: Callable[[CheckedDraft], str | None]
    shown: str | None = None
    costs: bool = False

    def run(self, draft: CheckedDraft) -> CheckVerdict:
        """Pass, unless `look` returns a reason."""
        reason = self.look(draft)
        return CheckVerdict(self.name, ok=reason is None, reason=reason or "")


Answer: TypeAlias = "bool | tuple[bool, str] | CheckVerdict | float"


@dataclass(frozen=True, slots=True)
class Function:
    """A check by your own function of the text, or with `of="value"` of the parsed value.

    It returns True or False, (False, "why"), a score from 0 to 1 (0.5 or more passes), or a
    `CheckVerdict`. An `async def` is awaited; a plain function runs in a thread. An exception is a
    fault of the check, and concerns every draw.
    """

    name: str
    fn: Callable[[Any], Any]
    shown: str | None = None
    of: str = "text"
    costs: bool = False

    def run(self, draft: CheckedDraft) -> Awaitable[CheckVerdict] | Callable[[], Any]:
        """Start an async function, or return a plain one to be called."""
        given = draft.value if self.of == "value" else draft.text
        if is_async(self.fn):
            return self._await_verdict(self.fn(given))
        return lambda: self.fn(given)

    async def _await_verdict(self, answer: Awaitable[Any]) -> CheckVerdict:
        return self.verdict(await answer)

    def verdict(self, answer: Any) -> CheckVerdict:  # noqa: ANN401 - the user's own
        """Convert the function's answer to a verdict."""
        if isinstance(answer, CheckVerdict):
            return replace(answer, check=answer.check or self.name)
        if isinstance(answer, bool):
            return CheckVerdict(self.name, ok=answer, reason="" if answer else "it is not so")
        if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], bool):  # noqa: PLR2004 - a pair
            return CheckVerdict(self.name, ok=answer[0], reason="" if answer[0] else str(answer[1]))
        if isinstance(answer, (int, float)):
            passed = answer >= 0.5  # noqa: PLR2004 - documented above
            return CheckVerdict(
                self.name,
                ok=passed,
                reason="" if passed else f"its score is {answer:g}",
                score=float(answer),
            )
        raise TypeError(
            f"it must answer True, False, (False, why), a number or a CheckVerdict, not {answer!r}"
        )


@dataclass(frozen=True, slots=True)
class Judge:
    """A check by a model, open or named, which decides whether the text meets a requirement."""

    name: str
    requirement: str
    model: Model | str | None = None
    shown: str | None = None
    costs: bool = True

    async def run(self, draft: CheckedDraft) -> CheckVerdict:
        """Ask the model."""
        if self.model is None or isinstance(self.model, str):
            raise RuntimeError("no model is open that could judge")
        question = (
            f"Task:\n{draft.prompt}\n\nAnswer:\n{draft.text}\n\n"
            f"Does the answer meet this: {self.requirement}?"
        )
        request = Request(
            (Message("user", question, files=draft.files),),
            system=_JUDGE_SYSTEM_PROMPT,
            temperature=0.0,
            max_tokens=SHORT_REPLY_TOKENS,
            schema=_VERDICT_SCHEMA,
        )
        reply = await self.model.complete(request)
        answer: Any = reply.value
        return CheckVerdict(
            self.name,
            ok=bool(answer["meets"]),
            reason="" if answer["meets"] else str(answer.get("reason") or "no"),
        )


_JUDGE_SYSTEM_PROMPT: Final = (
    "You judge whether an answer meets a requirement. Be strict and brief."
)
_VERDICT_SCHEMA: Final[Mapping[str, Json]] = {
    "type": "object",
    "properties": {"reason": {"type": "string", "maxLength": 200}, "meets": {"type": "boolean"}},
    "required": ["reason", "meets"],
    "additionalProperties": False,
}


# --- functions that make checks


def check(
    fn: Callable[[Any], Any], name: str | None = None, *, shown: str | None = None, of: str = "text"
) -> Function:
    """A check by your own function.

        checks.check(lambda text: text.endswith("."), "ends with a full stop")

    Args:
        fn: a function, plain or `async`, that returns True or False, `(False, "why")`, a score from
            0 to 1 of which 0.5 passes, or a `CheckVerdict`.
        name: its name in verdicts and repairs; by default the first line of the function's
            docstring, or the function's name.
        shown: what the prompt says about it; by default nothing.
        of: what the function gets: the `"text"`, or the parsed `"value"`.
    """
    if of not in ("text", "value"):
        raise ValueError(f"a check looks at the 'text' or the 'value', not {of!r}")
    title = str(name or inspect.getdoc(fn) or getattr(fn, "__name__", "check"))
    return Function(title.strip().splitlines()[0], fn, shown, of)


def check_only(given: Check) -> Check:
    """The same check, hidden from the model: the prompt says nothing about it.

        checks.check_only(checks.contains("Paris"))

    Args:
        given: any check of this module.
    """
    return replace(given, shown=None)  # type: ignore[type-var] # checks are dataclasses


def regex(pattern: str) -> Pure:
    """The text, without surrounding whitespace, must match a regular expression.

        checks.regex("^(red|green|blue)$")

    Args:
        pattern: what is searched for in the text; ValueError if it is no regular expression.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from None

    def look(draft: CheckedDraft) -> str | None:
        return (
            None
            if compiled.search(draft.text.strip())
            else f"it does not match {pattern}: {_short(draft.text)}"
        )

    choices = _CHOICES_PATTERN.fullmatch(pattern)
    shown = f"The answer must match the regular expression {pattern}"
    if choices is not None:
        *first, last = choices[1].split("|")
        one = "one word" if " " not in choices[1] else "one of these"
        shown = f"Answer with exactly {one}: {', '.join(first)} or {last}."
    return Pure(f"matches {pattern}", look, shown)


_CHOICES_PATTERN: Final = re.compile(r"\^\(([\w -]+(?:\|[\w -]+)+)\)\$")


def contains(wanted: str) -> Pure:
    """The text must contain another text.

        checks.contains("Paris")

    Args:
        wanted: the text to look for.
    """
    return Pure(
        f"contains {wanted!r}",
        lambda draft: None if wanted in draft.text else f"it does not contain {wanted!r}",
        f"The answer must contain {wanted!r}.",
    )


def lines(number: int) -> Pure:
    """The text must have exactly this many lines that are not empty.

        checks.lines(3)

    Args:
        number: how many.
    """

    def look(draft: CheckedDraft) -> str | None:
        found = sum(bool(line.strip()) for line in draft.text.splitlines())
        return None if found == number else f"it has {found} lines"

    return Pure(f"{number} lines", look, f"Write exactly {number} lines.")


def words(least: int = 0, most: int | None = None) -> Pure:
    """The text must have at least `least` and at most `most` words.

        checks.words(most=20)

    Args:
        least: the fewest words.
        most: the most words; None for any number.
    """

    def look(draft: CheckedDraft) -> str | None:
        found = len(draft.text.split())
        return (
            None if found >= least and (most is None or found <= most) else f"it has {found} words"
        )

    bounds = [f"at least {least}"] * bool(least) + [f"at most {most}"] * (most is not None)
    range_text = " and ".join(bounds)
    return Pure(f"{range_text} words", look, f"Use {range_text} words.")


def is_json() -> Pure:
    """The text must be JSON."""

    def look(draft: CheckedDraft) -> str | None:
        try:
            json.loads(draft.text)
        except (ValueError, RecursionError) as error:
            return f"it is not JSON: {error}"
        return None

    return Pure("is JSON", look, "Answer with valid JSON and nothing else.")


def obeys(schema: Mapping[str, object] | type) -> Pure:
    """The text must be JSON that obeys a schema, or the schema of a pydantic model.

        checks.obeys({"type": "object", "required": ["name"]})

    Args:
        schema: a JSON schema, or a pydantic model's class.
    """
    shape = schema_of(schema)
    title = str(shape.get("title") or "the schema")

    def look(draft: CheckedDraft) -> str | None:
        try:
            value = parse(draft.text, shape)
            as_model(schema, Reply(draft.text, value), "the reply")
        except ReplyInvalid as error:
            return str(error)
        return None

    return Pure(
        f"obeys {title}", look, f"Answer with JSON that obeys this schema: {json.dumps(shape)}"
    )


def judged(requirement: str, model: Model | str | None = None) -> Judge:
    """A model must find that the text meets a requirement.

        checks.judged("is polite")

    Args:
        requirement: what the answer must do or be, as in "The answer ...".
        model: a name such as "openai/gpt-4o-mini", or a model that is already open; by default the
            sample's `judge`, or its own model.
    """
    return Judge(f"judged: {requirement}", requirement, model, f"The answer {requirement}.")


def broken(name: str, error: BaseException) -> CheckBroken:
    """Return the error for a check that raised an exception."""
    return CheckBroken(f"the check {name!r} raised {type(error).__name__}: {error}")


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return repr(flat if len(flat) <= _REASON_CHARACTERS else f"{flat[: _REASON_CHARACTERS - 3]}...")
