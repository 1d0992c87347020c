"""The specification of a sample, as job files, the command line and manifests have it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Final, Self

from abreast.core.seeds import derive_seed
from abreast.jobs.files.manifests import without_unsaid
from abreast.jobs.files.shapes import TEXTS
from abreast.jobs.sample.arguments import ERRORS, SampleJob, make_job
from abreast.jobs.sample.check_texts import parse_check
from abreast.jobs.sample.checks import Check
from abreast.models.conversation import has_files, make_conversation
from abreast.models.port import EFFORTS, THINKING_OPTIONS, Effort, Model, full_name

_MAX_TEMPERATURE: Final = 100
_LATER: Final = (*THINKING_OPTIONS, "messages", "agent", "allow", "warm")


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
    "reasoning": (lambda given: given in EFFORTS, f"one of {', '.join(EFFORTS)}"),
    "thinking_tokens": (
        lambda given: _is_number(given, whole=True) and given >= 0,
        "a whole number of at least 0",
    ),
    "budget": (lambda given: isinstance(given, str), "a text such as 50req"),
    "explain": (lambda given: isinstance(given, bool), "true or false"),
    "images": (TEXTS.fits, "a list of paths of images and PDF files"),
    "messages": (lambda given: isinstance(given, list), "a list of messages"),
    "agent": (lambda given: isinstance(given, str), "an agent such as claude"),
    "allow": (TEXTS.fits, "a list of permissions such as edit"),
    "warm": (lambda given: isinstance(given, bool), "true or false"),
}
"""By key of the specification: the test of a value, and the text that describes a valid one."""


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """A sample as plain data.

    `checks` are texts such as `json`, `max-words 20`, `regex ^a`, `judge: mentions rain`.
    """

    prompt: str | None
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
    images: tuple[str, ...] = ()
    """Paths of images and PDF files that go with the prompt."""
    reasoning: Effort | None = None
    thinking_tokens: int | None = None
    messages: tuple[dict[str, Any], ...] | None = field(default=None, hash=False)
    """The turns before the prompt, or all turns where there is no prompt."""
    agent: str | None = None
    """A coding agent, in place of a model; `model` is then one of its own, or empty."""
    allow: tuple[str, ...] = ()
    """What the agent may do."""
    warm: bool = False
    """Whether one draw goes ahead, so that the others find a long prompt cached."""

    @classmethod
    def of(cls, facts: Mapping[str, Any], where: str = "sample") -> Self:
        """Read a mapping, such as a job file's. Raises ValueError that names the wrong key."""
        for word in facts:
            if word not in _KEYS:
                close = get_close_matches(str(word), _KEYS, 1)
                hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(_KEYS)}"
                raise ValueError(f"{where}: there is no {word!r} in a sample; {hint}")
        if not isinstance(facts.get("prompt"), str) and "messages" not in facts:
            raise ValueError(f"{where}: a sample needs a prompt, which is a text")
        given = {word: value for word, value in facts.items() if value is not None}
        for word, value in given.items():
            fits, wanted = _KEYS[word]
            if not fits(value):
                raise ValueError(f"{where}.{word} must be {wanted}, not {value!r:.60}")
        if "agent" in given:
            given.setdefault("model", "")
        for word in ("judge",) if "agent" in given else ("model", "judge"):
            if word in given:
                given[word] = full_name(given[word])
        lists: dict[str, Any] = {
            word: tuple(given.get(word) or ()) for word in ("checks", "images", "allow")
        }
        if "messages" in given:
            lists["messages"] = tuple(given["messages"])
            _check_messages(given, where)
        return cls(**{"prompt": None, **given, **lists})

    @property
    def seed(self) -> int:
        """The seed that belongs to what is asked, so that the same question draws the same."""
        asked = self.prompt or ""
        if self.messages is not None:
            asked = json.dumps([*self.messages, asked], sort_keys=True, default=str)
        return derive_seed(0, asked)

    def plain(self) -> dict[str, Any]:
        """Return the form that a manifest stores."""
        facts = {**asdict(self), "checks": list(self.checks), "images": list(self.images)}
        facts["allow"] = list(self.allow)
        if self.messages is not None:
            facts["messages"] = list(self.messages)
        return without_unsaid(facts, _LATER)

    def job(
        self,
        model: Model,
        judge: Model,
        *,
        find: Callable[[str], Callable[[Any], Any]],
        read: Callable[[str], Mapping[str, Any]],
        folder: str = "",
        command: Callable[[str], Check] | None = None,
    ) -> SampleJob:
        """Make the job; `find` gives the function of a `call`, `read` the schema in a file.

        Paths of images count from `folder`; `command` makes a check of a command.
        """
        made = [
            parse_check(text, judge, find=find, read=read, command=command) for text in self.checks
        ]
        job = make_job(
            self.prompt,
            model,
            messages=self.messages,
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
            reasoning=self.reasoning,
            thinking_tokens=self.thinking_tokens,
            budget=self.budget,
            explain=self.explain,
            files=self.images,
            folder=folder,
        )
        return replace(job, draws=replace(job.draws, marks_prompt=self.warm))


def _check_messages(given: Mapping[str, Any], where: str) -> None:
    """Raise ValueError for messages that are wrong; files are read where the sample is made."""
    if has_files(given["messages"]):
        return
    try:
        make_conversation(given.get("prompt"), given["messages"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None
