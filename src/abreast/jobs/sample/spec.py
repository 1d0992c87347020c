"""The specification of a sample, as job files, the command line and manifests have it."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from typing import Any, Final, Self

from abreast.jobs.files.shapes import TEXTS
from abreast.jobs.sample.arguments import ERRORS, SampleJob, make_job
from abreast.jobs.sample.checks import (
    Check,
    check,
    check_only,
    contains,
    is_json,
    judged,
    lines,
    obeys,
    regex,
    words,
)
from abreast.models.port import Model, full_name

_MAX_TEMPERATURE: Final = 100


def _is_number(given: object, *, whole: bool = False) -> bool:
    return not isinstance(given, bool) and isinstance(given, int if whole else (int, float))


_KEYS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "prompt": (lambda given: isinstance(given, str), "a text"),
    "model": (lambda given: isinstance(given, str), "a text such as openai/gpt-4o-mini"),
    "judge": (lambda given: isinstance(given, str), "a text such as openai/gpt-4o-mini"),
    "checks": (TEXTS.fits, "a list of texts, such as 'max-words 20'"),
    "breadth": (lambda given: _is_number(given, whole=True), "a whole number of at least 1"),
    "depth": (lambda given: _is_number(given, whole=True), "a whole number of at least 1"),
    "strategy": (lambda given: isinstance(given, str), "a text such as repair"),
    "pick": (lambda given: isinstance(given, str), "ordered or first"),
    "on_error": (lambda given: given in ERRORS, " or ".join(ERRORS)),
    "system": (lambda given: isinstance(given, str), "a text"),
    "schema": (lambda given: isinstance(given, dict), "a JSON schema"),
    "temperature": (
        lambda given: _is_number(given) and 0 <= given <= _MAX_TEMPERATURE,
        "a number of at least 0",
    ),
    "max_tokens": (
        lambda given: _is_number(given, whole=True) and given > 0,
        "a whole number of at least 1",
    ),
    "budget": (lambda given: isinstance(given, str), "a text such as 50req"),
    "explain": (lambda given: isinstance(given, bool), "true or false"),
}
"""By key of the specification: the test of a value, and the text that describes a valid one."""


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """A sample as plain data.

    `checks` are texts such as `json`, `max-words 20`, `regex ^a`, `judge: mentions rain`.
    """

    prompt: str
    model: str = "local/smollm2"
    judge: str | None = None
    checks: tuple[str, ...] = ()
    breadth: int = 1
    depth: int = 1
    strategy: str | None = None
    pick: str = "ordered"
    on_error: str = "raise"
    system: str | None = None
    schema: dict[str, Any] | None = field(default=None, hash=False)
    temperature: float | None = None
    max_tokens: int | None = None
    budget: str | None = None
    explain: bool = False

    @classmethod
    def of(cls, facts: Mapping[str, Any], where: str = "sample") -> Self:
        """Read a mapping, such as a job file's. Raises ValueError that names the wrong key."""
        for word in facts:
            if word not in _KEYS:
                close = get_close_matches(str(word), _KEYS, 1)
                hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(_KEYS)}"
                raise ValueError(f"{where}: there is no {word!r} in a sample; {hint}")
        if not isinstance(facts.get("prompt"), str):
            raise ValueError(f"{where}: a sample needs a prompt, which is a text")
        given = {word: value for word, value in facts.items() if value is not None}
        for word, value in given.items():
            fits, wanted = _KEYS[word]
            if not fits(value):
                raise ValueError(f"{where}.{word} must be {wanted}, not {value!r:.60}")
        for word in ("model", "judge"):
            if word in given:
                given[word] = full_name(given[word])
        return cls(**{**given, "checks": tuple(given.get("checks") or ())})

    def plain(self) -> dict[str, Any]:
        """Return the form that a manifest stores."""
        return {**asdict(self), "checks": list(self.checks)}

    def job(
        self,
        model: Model,
        judge: Model,
        *,
        find: Callable[[str], Callable[[Any], Any]],
        read: Callable[[str], Mapping[str, Any]],
    ) -> SampleJob:
        """Make the job; `find` gives the function of a `call`, `read` the schema in a file."""
        made = [parse_check(text, judge, find=find, read=read) for text in self.checks]
        return make_job(
            self.prompt,
            model,
            checks=made,
            breadth=self.breadth,
            depth=self.depth,
            strategy=self.strategy,
            pick=self.pick,  # type: ignore[arg-type] # `make_job` validates it
            on_error=self.on_error,  # type: ignore[arg-type] # `make_job` validates it
            system=self.system,
            schema=self.schema,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            budget=self.budget,
            explain=self.explain,
        )


def parse_check(
    text: str,
    judge: Model | None,
    *,
    find: Callable[[str], Callable[[Any], Any]],
    read: Callable[[str], Mapping[str, Any]],
) -> Check:
    """Parse a check; a leading `hidden` hides it from the model."""
    word, _, rest = text.strip().partition(" ")
    if word == "hidden":
        if not rest.strip():
            raise ValueError(
                "the check 'hidden' needs a check after it, such as 'hidden max-words 20'"
            )
        return check_only(parse_check(rest, judge, find=find, read=read))
    if word.startswith("judge:") or text.startswith("judge:"):
        wanted = text.strip().removeprefix("judge:").strip()
        if not wanted:
            raise ValueError("a judge needs something to judge: 'judge: mentions rain'")
        return judged(wanted, judge)
    makers: dict[str, Callable[[str], Check]] = {
        "json": lambda _: is_json(),
        "regex": regex,
        "contains": contains,
        "lines": lambda given: lines(_number(given, text)),
        "max-words": lambda given: words(most=_number(given, text)),
        "min-words": lambda given: words(_number(given, text)),
        "schema": lambda given: obeys(read(given)),
        "call": lambda given: check(find(given), name=given),
    }
    if word not in makers:
        close = get_close_matches(word, makers, 1)
        hint = (
            f"did you mean {close[0]!r}?"
            if close
            else f"there are {', '.join(makers)} and 'judge: ...'"
        )
        raise ValueError(f"there is no check {word!r}; {hint}")
    rest = rest.strip()
    if not rest and word != "json":
        raise ValueError(
            f"the check {word!r} needs something after it, such as {_EXAMPLES[word]!r}"
        )
    return makers[word](rest)


_EXAMPLES: Final = {
    "regex": "regex ^(red|blue)$",
    "contains": "contains rain",
    "lines": "lines 3",
    "max-words": "max-words 20",
    "min-words": "min-words 5",
    "schema": "schema label.json",
    "call": "call pkg.mod:fn",
}


def _number(given: str, text: str) -> int:
    if not given.isdecimal() or not 0 < int(given) < 10**9:
        raise ValueError(f"{text!r} needs a whole number of at least 1")
    return int(given)
