"""Checks: what a draw must be. Free ones first; models are asked only about what passed those."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeAlias

from abreast.core.errors import CheckBroken, ReplyInvalid
from abreast.jobs.sample.results import CheckVerdict
from abreast.models.port import SHORT_REPLY_TOKENS, Json, Message, Model, Request
from abreast.models.schema import parse, schema_of

_SHOWN: Final = 80  # characters of a text in a reason


@dataclass(frozen=True, slots=True)
class CheckedDraft:
    """A draw that is to be checked."""

    text: str
    value: Json = None
    prompt: str = ""


class Check(Protocol):
    """Something that a draw must be. `shown` is what the prompt says about it.

    None for a check kept from the model.
    """

    @property
    def name(self) -> str:
        """What it is called in verdicts and repairs; once per sample."""

    @property
    def shown(self) -> str | None:
        """What the prompt says about it."""

    @property
    def costs(self) -> bool:
        """Whether it asks a model."""

    def run(
        self, draft: CheckedDraft
    ) -> CheckVerdict | Awaitable[CheckVerdict] | Callable[[], Any]:
        """The verdict; a coroutine of it; or a plain function to be called in a thread."""


@dataclass(frozen=True, slots=True)
class Pure:
    """A check that only looks at the text: cheap enough to be made where it stands."""

    name: str
    look: Callable[[CheckedDraft], str | None]
    shown: str | None = None
    costs: bool = False

    def run(self, draft: CheckedDraft) -> CheckVerdict:
        """Passed, unless `look` says why not."""
        reason = self.look(draft)
        return CheckVerdict(self.name, ok=reason is None, reason=reason or "")


Answer: TypeAlias = "bool | tuple[bool, str] | CheckVerdict | float"


@dataclass(frozen=True, slots=True)
class Function:
    """A check by a function of yours: of the text, or with `of="value"` of the parsed value.

    It answers True or False, (False, "why"), a score from 0 to 1 (passed from 0.5 on), or a
    Verdict. An `async def` is awaited; a plain one runs in a thread. What it raises is a fault of
    the check, and concerns every draw.
    """

    name: str
    fn: Callable[[Any], Any]
    shown: str | None = None
    of: str = "text"
    costs: bool = False

    def run(self, draft: CheckedDraft) -> Awaitable[CheckVerdict] | Callable[[], Any]:
        """The function on its way."""
        given = draft.value if self.of == "value" else draft.text
        if inspect.iscoroutinefunction(self.fn):
            return self._awaited(self.fn(given))
        return lambda: self.fn(given)

    async def _awaited(self, answer: Awaitable[Any]) -> CheckVerdict:
        return self.verdict(await answer)

    def verdict(self, answer: Any) -> CheckVerdict:  # noqa: ANN401 - the user's own
        """The verdict that an answer stands for."""
        if isinstance(answer, CheckVerdict):
            return replace(answer, check=answer.check or self.name)
        if isinstance(answer, bool):
            return CheckVerdict(self.name, ok=answer, reason="" if answer else "it is not so")
        if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], bool):  # noqa: PLR2004
            return CheckVerdict(self.name, ok=answer[0], reason="" if answer[0] else str(answer[1]))
        if isinstance(answer, (int, float)):
            passed = answer >= 0.5  # noqa: PLR2004 - the middle
            return CheckVerdict(
                self.name,
                ok=passed,
                reason="" if passed else f"its score is {answer:g}",
                score=float(answer),
            )
        raise TypeError(
            f"it must answer True, False, (False, why), a number or a Verdict, not {answer!r}"
        )


@dataclass(frozen=True, slots=True)
class Judge:
    """A check by a model, open or named: it is asked whether the text meets a requirement."""

    name: str
    requirement: str
    model: Model | str | None = None
    shown: str | None = None
    costs: bool = True

    async def run(self, draft: CheckedDraft) -> CheckVerdict:
        """Ask it."""
        if self.model is None or isinstance(self.model, str):
            raise RuntimeError("no model is open that could judge")
        asked = f"Task:\n{draft.prompt}\n\nAnswer:\n{draft.text}\n\nDoes the answer meet this: {self.requirement}?"
        request = Request(
            (Message("user", asked),),
            system=_JUDGE,
            temperature=0.0,
            max_tokens=SHORT_REPLY_TOKENS,
            schema=_VERDICT,
        )
        reply = await self.model.complete(request)
        said: Any = reply.value
        return CheckVerdict(
            self.name,
            ok=bool(said["meets"]),
            reason="" if said["meets"] else str(said.get("reason") or "no"),
        )


_JUDGE: Final = "You judge whether an answer meets a requirement. Be strict and brief."
_VERDICT: Final[Mapping[str, Json]] = {
    "type": "object",
    "properties": {"reason": {"type": "string", "maxLength": 200}, "meets": {"type": "boolean"}},
    "required": ["reason", "meets"],
    "additionalProperties": False,
}


# --- by name ----------------------------------------------------------------------------------------------------------


def check(
    fn: Callable[[Any], Any], name: str | None = None, *, shown: str | None = None, of: str = "text"
) -> Function:
    """A check by a function of yours; `shown` is what the prompt says about it."""
    if of not in ("text", "value"):
        raise ValueError(f"a check looks at the 'text' or the 'value', not {of!r}")
    title = str(name or inspect.getdoc(fn) or getattr(fn, "__name__", "check"))
    return Function(title.strip().splitlines()[0], fn, shown, of)


def check_only(given: Check) -> Check:
    """The same check, kept from the model: the prompt says nothing about it."""
    return replace(given, shown=None)  # type: ignore[type-var]


def regex(pattern: str) -> Pure:
    """The text, without blanks around it, must match from its beginning."""
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

    choices = _CHOICES.fullmatch(pattern)
    shown = f"The answer must match the regular expression {pattern}"
    if choices is not None:
        *first, last = choices[1].split("|")
        one = "one word" if " " not in choices[1] else "one of these"
        shown = f"Answer with exactly {one}: {', '.join(first)} or {last}."
    return Pure(f"matches {pattern}", look, shown)


_CHOICES: Final = re.compile(r"\^\(([\w -]+(?:\|[\w -]+)+)\)\$")


def contains(wanted: str) -> Pure:
    """The text must contain another."""
    return Pure(
        f"contains {wanted!r}",
        lambda draft: None if wanted in draft.text else f"it does not contain {wanted!r}",
        f"The answer must contain {wanted!r}.",
    )


def lines(number: int) -> Pure:
    """So many lines that are not empty."""

    def look(draft: CheckedDraft) -> str | None:
        found = sum(bool(line.strip()) for line in draft.text.splitlines())
        return None if found == number else f"it has {found} lines"

    return Pure(f"{number} lines", look, f"Write exactly {number} lines.")


def words(least: int = 0, most: int | None = None) -> Pure:
    """So many words."""

    def look(draft: CheckedDraft) -> str | None:
        found = len(draft.text.split())
        return (
            None if found >= least and (most is None or found <= most) else f"it has {found} words"
        )

    bounds = [f"at least {least}"] * bool(least) + [f"at most {most}"] * (most is not None)
    said = " and ".join(bounds)
    return Pure(f"{said} words", look, f"Use {said} words.")


def is_json() -> Pure:
    """The text must be JSON."""

    def look(draft: CheckedDraft) -> str | None:
        try:
            json.loads(draft.text)
        except (ValueError, RecursionError) as error:
            return f"it is not JSON: {error}"
        return None

    return Pure("is JSON", look, "Answer with valid JSON and nothing else.")


def obeys(schema: Mapping[str, Json] | type) -> Pure:
    """The text must be JSON that obeys a schema (or a pydantic model's)."""
    shape = schema_of(schema)
    title = str(shape.get("title") or "the schema")

    def look(draft: CheckedDraft) -> str | None:
        try:
            parse(draft.text, shape)
        except ReplyInvalid as error:
            return str(error)
        return None

    return Pure(
        f"obeys {title}", look, f"Answer with JSON that obeys this schema: {json.dumps(shape)}"
    )


def judged(requirement: str, model: Model | str | None = None) -> Judge:
    """A model must find that the text meets a requirement.

    By default the sample's `judge`, or its own model.

    `model` is a name such as "openai/gpt-4o-mini", or a model that is open already.
    """
    return Judge(f"judged: {requirement}", requirement, model, f"The answer {requirement}.")


def as_check(given: object) -> Check:
    """A check in its one form: a check, a function, a schema, or a pydantic model."""
    if hasattr(given, "run") and hasattr(given, "costs"):
        return given  # type: ignore[return-value]
    if isinstance(given, Mapping) or hasattr(given, "model_json_schema"):
        return obeys(given)  # type: ignore[arg-type]
    if callable(given):
        return check(given)
    raise TypeError(
        f"a check is a function, a schema, a pydantic model or one of abreast.checks, not {given!r}"
    )


def broken(name: str, error: BaseException) -> CheckBroken:
    """The error for a check that raised instead of judging."""
    return CheckBroken(f"the check {name!r} raised {type(error).__name__}: {error}")


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return repr(flat if len(flat) <= _SHOWN else f"{flat[: _SHOWN - 3]}...")
