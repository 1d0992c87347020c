"""Scores: how good an output is, from 0 to 1.

An error in a scorer is reported as such, and never counts as a failure of the model.
"""

import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from abreast.core.errors import ReplyInvalid
from abreast.jobs.matrix.spec import ScoreSpec, StudyInput
from abreast.models.media import MediaFile
from abreast.models.schema import parse

_NUMBER: Final = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_FENCED: Final = re.compile(r"\s*```(?:json|JSON)?[ \t]*\n(.*?)\n?[ \t]*```\s*", re.DOTALL)
KINDS: Final = (
    "exact",
    "contains",
    "regex",
    "numeric",
    "precision",
    "recall",
    "f1",
    "schema",
    "python",
    "judge",
)


class CannotScore(ValueError):
    """An output can't be scored: it has no truth, is not a number, or got no verdict."""


@dataclass(frozen=True, slots=True)
class Judged:
    """An output that is scored, with its input."""

    output: str
    value: Any
    input: StudyInput
    files: tuple[MediaFile, ...] = ()
    """Images and PDF files that were sent with the question."""

    @property
    def truth(self) -> Any:  # noqa: ANN401 - any value of an input
        """The right answer; raises CannotScore if none is known."""
        if self.input.truth is None:
            raise CannotScore(f"the input {self.input.id} has no truth")
        return self.input.truth

    def parsed(self) -> Any:  # noqa: ANN401 - any JSON value
        """The output as JSON; None if it is not JSON."""
        if self.value is not None:
            return self.value
        fenced = _FENCED.fullmatch(self.output)
        try:
            return json.loads(fenced[1] if fenced else self.output)
        except (ValueError, RecursionError):
            return None

    def plain(self) -> dict[str, Any]:
        """What a user's scorer gets."""
        return {
            "output": self.output,
            "value": self.value,
            "input": dict(self.input.value),
            "truth": self.input.truth,
        }


Ask = Callable[[str | None, str, tuple[MediaFile, ...]], Awaitable[str]]
"""Asks a judge (a model's name, or None for the default one) a question with files."""


async def score(
    spec: ScoreSpec,
    judged: Judged,
    *,
    ask: Ask,
    call: Callable[[str, dict[str, Any]], Awaitable[Any]],
) -> float:
    """Return the score; raises an exception if it can't be given."""
    if spec.kind == "judge":
        return await _judge(spec, judged, ask)
    if spec.kind == "python":
        return _as_score(await call(spec.argument, judged.plain()), spec.argument)
    return _SCORES[spec.kind](judged, spec.argument)


async def _judge(spec: ScoreSpec, judged: Judged, ask: Ask) -> float:
    truth = (
        "" if judged.input.truth is None else f"\n\nThe right answer:\n{_text(judged.input.truth)}"
    )
    question = (
        f"{spec.argument}\n\nThe question:\n{_text(judged.input.value)}{truth}"
        f"\n\nThe answer to judge:\n{judged.output}\n\nSay yes or no."
    )
    verdict = (await ask(spec.model, question, judged.files)).strip().lower()
    found = re.search(r"\b(yes|no)\b", verdict)
    if found is None:
        raise CannotScore(f"the judge said neither yes nor no: {verdict[:80]!r}")
    return float(found[1] == "yes")


def _as_score(given: object, function: str) -> float:
    if isinstance(given, bool) or (isinstance(given, (int, float)) and math.isfinite(given)):
        return float(given)
    raise CannotScore(f"{function} gave {given!r:.60}, and a score is a number")


# --- by comparison --------------------------------------------------------------------------------


def _exact(judged: Judged, field: Any) -> float:  # noqa: ANN401 - a field's name or None
    truth = judged.truth
    if field is not None:
        return float(_same(_field(judged.parsed(), field), _field(truth, field)))
    return float(_same(judged.output if isinstance(truth, str) else judged.parsed(), truth))


def _same(one: object, other: object) -> bool:
    one, other = (given.strip() if isinstance(given, str) else given for given in (one, other))
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _numeric(judged: Judged, tolerance: Any) -> float:  # noqa: ANN401 - a number, a mapping or None
    bounds = tolerance if isinstance(tolerance, Mapping) else {"abs": tolerance or 0.0}
    relative, absolute = (float(bounds.get(word, 0.0)) for word in ("rel", "abs"))
    found = _number(judged.output if judged.value is None else judged.value)
    truth = _number(judged.truth)
    if truth is None:
        raise CannotScore(f"the truth of {judged.input.id} is no number")
    return float(
        found is not None and math.isclose(found, truth, rel_tol=relative, abs_tol=absolute)
    )


def _number(given: object) -> float | None:
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return float(given)
    found = _NUMBER.search(given) if isinstance(given, str) else None
    return float(found[0].replace(",", "")) if found else None


def _overlap(judged: Judged, field: Any, of: Callable[[int, int], float]) -> float:  # noqa: ANN401 - a field's name or None
    """What is both found and wanted, as a share; `of` gives the whole from both counts.

    They are the elements of a list, or name-value pairs of a mapping.
    """
    found, wanted = (
        _parts(given if field is None else _field(given, field))
        for given in (judged.parsed(), judged.truth)
    )
    whole = of(len(found), len(wanted))
    return len(found & wanted) / whole if whole else float(not found and not wanted)


def _parts(given: object) -> set[str]:
    if isinstance(given, Mapping):
        pairs = ((name, one) for name, value in given.items() for one in _listed(value))
        return {f"{name}={_text(one)}".lower() for name, one in pairs}
    return {_text(one).strip().lower() for one in ([] if given is None else _listed(given))}


def _listed(given: object) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _field(given: object, name: str) -> Any:  # noqa: ANN401 - any JSON value
    for part in str(name).split("."):
        given = given.get(part) if isinstance(given, Mapping) else None
    return given


def _schema(judged: Judged, schema: Any) -> float:  # noqa: ANN401 - checked when the study was read
    try:
        parse(judged.output if judged.value is None else json.dumps(judged.value), schema)
    except ReplyInvalid:
        return 0.0
    return 1.0


def _text(given: object) -> str:
    return (
        given
        if isinstance(given, str)
        else json.dumps(given, sort_keys=True, ensure_ascii=False, default=str)
    )


_SCORES: Final[dict[str, Callable[[Judged, Any], float]]] = {
    "exact": _exact,
    "contains": lambda judged, wanted: float(
        _text(judged.truth if wanted is None else wanted).lower() in judged.output.lower()
    ),
    "regex": lambda judged, pattern: float(re.search(pattern, judged.output) is not None),
    "numeric": _numeric,
    "precision": lambda judged, field: _overlap(judged, field, lambda found, _: found),
    "recall": lambda judged, field: _overlap(judged, field, lambda _, wanted: wanted),
    "f1": lambda judged, field: _overlap(judged, field, lambda *both: sum(both) / 2),
    "schema": _schema,
}
