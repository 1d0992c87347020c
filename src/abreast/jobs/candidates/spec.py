"""The specification of a candidates job, as job files, the command line and manifests have it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any, Final, Self, cast

from abreast.jobs.candidates.timing.measure import MIN_BLOCKS
from abreast.models.port import full_name

_MAX_SHARE: Final = 10
# What calls the target; a run has at least one of these.
EVIDENCE: Final = ("tests", "doctests", "workload", "trace", "hints", "calls_by")
_LISTS: Final = ("tests", "refs", "workload", "allow")
# Where candidates may come from; a run has one of these.
SOURCES: Final = ("candidates", "patches", "patch", "refs", "command", "author", "model")


def no_evidence(spell: Callable[[str], str]) -> str:
    """The sentence for a specification without anything that calls the target."""
    tests, doctests, workload, trace, hints, calls_by = map(spell, EVIDENCE)
    return (
        f"nothing calls the target: give {tests}, or {doctests} (those of its file), {workload} "
        f"(a script), {trace} (a command whose calls are recorded), {hints} (calls made from "
        f"its type hints) or {calls_by} (calls that a model proposes)"
    )


def _is_text(given: object) -> bool:
    return isinstance(given, str) and bool(given.strip())


def _is_list(given: object) -> bool:
    return isinstance(given, list) and bool(given) and all(map(_is_text, given))


def _is_number(given: object, least: int) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= least


def _is_share(given: object) -> bool:
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    return is_number and 0 <= cast("float", given) < _MAX_SHARE


def _is_tolerance(given: object) -> bool:
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    return is_number and 0 <= cast("float", given) < math.inf


# By key of the specification: the test of a value, and the text that describes a valid one.
_KEYS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "target": (_is_text, "a text such as pkg/mod.py::function"),
    "all": (lambda given: isinstance(given, bool), "true or false"),
    "top": (lambda given: _is_number(given, 1), "a whole number of at least 1"),
    "tests": (_is_list, "a list of test files"),
    "doctests": (lambda given: isinstance(given, bool), "true or false"),
    "workload": (_is_list, "a list of scripts that call it"),
    "trace": (_is_text, "a command that calls it, such as python app.py"),
    "hints": (lambda given: isinstance(given, bool), "true or false"),
    "calls_by": (_is_text, "a model such as openai/gpt-4o-mini"),
    "candidates": (_is_text, "a directory with Python files"),
    "patches": (_is_text, "a directory with patches"),
    "patch": (_is_text, "a patch, or a Python file"),
    "refs": (_is_list, "a list of commits or branches"),
    "command": (_is_text, "a command that prints a candidate"),
    "model": (_is_text, "a text such as openai/gpt-4o-mini"),
    "author": (_is_text, "a coding agent such as claude"),
    "allow": (_is_list, "a list of permissions such as edit"),
    "proposals": (lambda given: _is_number(given, 1), "a whole number of at least 1"),
    "width": (lambda given: _is_number(given, 0), "a whole number of at least 0"),
    "compare": (lambda given: given in {"strict", "loose"}, "strict or loose"),
    "exceptions": (lambda given: given in {"type", "args", "message"}, "type, args or message"),
    "rel_tol": (_is_tolerance, "a number such as 1e-9"),
    "abs_tol": (_is_tolerance, "a number such as 1e-12"),
    "threshold": (_is_share, "a share such as 0.05"),
    "timing": (lambda given: isinstance(given, bool), "true or false"),
    "blocks": (
        lambda given: _is_number(given, MIN_BLOCKS),
        f"a whole number of at least {MIN_BLOCKS}",
    ),
    "budget": (_is_text, "a text such as 50req,10min"),
    "timeout": (_is_text, "a time such as 60s"),
    "generated": (lambda given: _is_number(given, 0), "a whole number of at least 0"),
    "repairs": (lambda given: _is_number(given, 0), "a whole number of at least 0"),
    "refine": (lambda given: isinstance(given, bool), "true or false"),
    "python": (_is_text, "the path of a Python"),
    "output": (_is_text, "the name of a file"),
    "branch": (_is_text, "the name of a branch that is not there yet"),
    "executor": (_is_text, "local or ray"),
}


@dataclass(frozen=True, slots=True)
class CandidatesSpec:
    """The target, its tests, the source of candidates, and how strictly they are compared."""

    target: str
    all: bool = False
    top: int = 5
    tests: tuple[str, ...] = ()
    doctests: bool = False
    workload: tuple[str, ...] = ()
    trace: str | None = None
    hints: bool = False
    calls_by: str | None = None
    """A model that proposes calls."""
    candidates: str | None = None
    patches: str | None = None
    patch: str | None = None
    refs: tuple[str, ...] = ()
    command: str | None = None
    model: str | None = None
    author: str | None = None
    """A coding agent that writes candidates; `model` is then one of its own."""
    allow: tuple[str, ...] = ()
    """What the agent may do."""
    proposals: int = 4
    width: int = 2
    compare: str = "strict"
    exceptions: str = "args"
    rel_tol: float | None = None
    abs_tol: float | None = None
    threshold: float = 0.02
    timing: bool = True
    blocks: int = 56
    budget: str | None = None
    timeout: str = "60s"
    generated: int = 200
    repairs: int = 2
    refine: bool = True
    python: str | None = None
    output: str | None = None
    branch: str | None = None
    executor: str | None = None

    @classmethod
    def of(
        cls, facts: Mapping[str, Any], where: str = "candidates", *, sourced: bool = True
    ) -> Self:
        """Read a mapping, such as a job file's. Raises ValueError that names the wrong key.

        Without `sourced`, candidates come from a program and need no source here.
        """
        given = _validate(facts, where)
        if "target" not in given:
            raise ValueError(f"{where}: target is missing: it is {_KEYS['target'][1]}")
        if not any(given.get(word) for word in EVIDENCE):
            raise ValueError(f"{where}: {no_evidence(str)}")
        chosen = [word for word in SOURCES if given.get(word)]
        # A model or an agent may repair and refine what comes from elsewhere.
        if sourced and (not chosen or len(set(chosen) - {"model", "author"}) > 1):
            raise ValueError(
                f"{where}: candidates come from one of {', '.join(SOURCES)}; "
                f"given: {', '.join(chosen) or 'none'}"
            )
        for word in _LISTS:
            given[word] = tuple(given.get(word) or ())
        if given.get("allow") and not given.get("author"):
            raise ValueError(f"{where}: allow is for author, a coding agent")
        if given.get("branch") and given.get("timing") is False:
            raise ValueError(f"{where}: branch is for a winner, and without timing there is none")
        if given.get("model") and not given.get("author"):
            given["model"] = full_name(given["model"])
        if given.get("calls_by"):
            given["calls_by"] = full_name(given["calls_by"])
        return cls(**given)

    def plain(self) -> dict[str, Any]:
        """Return the form that a manifest stores."""
        return {**asdict(self), **{word: list(getattr(self, word)) for word in _LISTS}}


def _validate(facts: Mapping[str, Any], where: str) -> dict[str, Any]:
    for word in facts:
        if word not in _KEYS:
            close = get_close_matches(str(word), _KEYS, 1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(_KEYS)}"
            raise ValueError(f"{where}: there is no {word!r}; {hint}")
    given = {word: value for word, value in facts.items() if value is not None and value != []}
    for word in _LISTS:
        if isinstance(given.get(word), str):
            given[word] = [given[word]]
    for word, value in given.items():
        fits, wanted = _KEYS[word]
        if not fits(value):
            raise ValueError(f"{where}.{word} must be {wanted}, not {value!r:.60}")
    return given
