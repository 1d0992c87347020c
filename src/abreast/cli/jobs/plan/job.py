"""What a plan was asked to do: plain facts, from flags or a file, that a run's manifest keeps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from abreast.cli import units
from abreast.cli.errors import FAILED, UsageError, tell
from abreast.core.errors import AbreastError
from abreast.jobs.plan.decompose.decompose import decompose
from abreast.jobs.plan.decompose.imports import Imports, read_imports
from abreast.jobs.plan.decompose.inventory import take_inventory
from abreast.jobs.plan.errors import PlanInvalid
from abreast.jobs.plan.spec import Options, Plan
from abreast.store.port import JsonValue, RunRow
from abreast.worktrees.merge.errors import ApplyRunning
from abreast.worktrees.merge.repair import repair

KIND: Final = "plan"
ORDERS: Final = ("parallel", "sequential", "dependencies")
DIVIDING: Final = ("max_depth", "min_files", "max_files", "max_tokens")
"""The words that say how far to divide."""


def _number(least: int) -> Callable[[object], int]:
    return lambda given: units.number(given, least=least)


def _text(given: object) -> str:
    if not isinstance(given, str) or not given.strip():
        raise ValueError(f"it must be a text, not {units.shown(given)}")
    return given


def _flag(given: object) -> bool:
    if not isinstance(given, bool):
        raise ValueError(f"it must be true or false, not {units.shown(given)}")
    return given


def _order(given: object) -> str:
    if given not in ORDERS:
        raise ValueError(f"it must be one of {', '.join(ORDERS)}, not {units.shown(given)}")
    return str(given)


def _warmth(given: object) -> float:
    try:
        found = (
            float(given)
            if isinstance(given, str | int | float) and not isinstance(given, bool)
            else -1.0
        )
    except ValueError:
        found = -1.0
    if not 0 <= found <= 100:  # noqa: PLR2004 - nan is neither
        raise ValueError(f"it must be a number of at least 0, not {units.shown(given)}")
    return found


@dataclass(frozen=True, slots=True)
class _Word:
    """A word of a plan: what reads it (a ValueError says what is wrong), and its JSON schema."""

    read: Callable[[Any], Any]
    schema: dict[str, Any]


def _whole(least: int) -> _Word:
    return _Word(_number(least), {"type": "integer", "minimum": least})


_A_TEXT: Final = _Word(_text, {"type": "string", "minLength": 1})
_WORDS: Final[dict[str, _Word]] = {
    "path": _A_TEXT,
    "command": _A_TEXT,
    "call": _A_TEXT,
    "prompt": _A_TEXT,
    "model": _A_TEXT,
    "width": _whole(1),
    "order": _Word(_order, {"enum": list(ORDERS)}),
    "fail_fast": _Word(_flag, {"type": "boolean"}),
    "retries": _whole(0),
    "timeout": _Word(units.duration, {"type": ["string", "number"]}),
    "budget": _Word(units.budget, {"type": "string", "minLength": 1}),
    "check": _A_TEXT,
    "repairs": _whole(0),
    "temperature": _Word(_warmth, {"type": "number", "minimum": 0}),
    "reply_tokens": _whole(1),
    "max_depth": _whole(0),
    "min_files": _whole(1),
    "max_files": _whole(1),
    "max_tokens": _whole(1),
}
"""The words of a plan, in flags and files."""


def plan_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a plan's file: what an editor can know."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A plan",
        "type": "object",
        "required": ["plan"],
        "additionalProperties": False,
        "properties": {
            "plan": {
                "type": "object",
                "anyOf": [{"required": [word]} for word in ("command", "call", "prompt")],
                "not": {"required": ["command", "call"]},
                "properties": {word: known.schema for word, known in _WORDS.items()},
                "additionalProperties": False,
            }
        },
    }


@dataclass(frozen=True, slots=True)
class PlanJob:
    """What is asked of a plan: how to divide, what the work of a subplan is, and how it is run."""

    path: str
    home: str
    """The directory that it was asked in: functions are found from there."""
    command: str | None = None
    call: str | None = None
    prompt: str | None = None
    model: str | None = None
    width: int = 5
    order: str = "parallel"
    fail_fast: bool = False
    retries: int = 0
    timeout: float | None = None
    budget: str | None = None
    check: str | None = None
    repairs: int = 2
    temperature: float | None = None
    reply_tokens: int | None = None
    max_depth: int | None = None
    min_files: int | None = None
    max_files: int | None = None
    max_tokens: int | None = None

    @classmethod
    def of(
        cls, facts: Mapping[str, Any], home: str, spell: Callable[[str], str], place: str = ""
    ) -> PlanJob:
        """From words and what they are given.

        `spell` says how and where one is written, `place` where all are.
        """
        read: dict[str, Any] = {}
        for word, given in facts.items():
            if word not in _WORDS:
                close = get_close_matches(word, _WORDS, 1)
                hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(_WORDS)}"
                raise UsageError(f"{spell(word)}: there is no {word!r} in a plan; {hint}")
            if given is None:
                continue
            try:
                read[word] = _WORDS[word].read(given)
            except (ValueError, TypeError) as error:
                raise UsageError(f"{spell(word)}: {error}") from None
        _check_work(read, spell, place)
        path = str((Path(home) / read.pop("path", ".")).resolve())
        return cls(path, home, **read)

    @classmethod
    def of_run(cls, row: RunRow, budget: str | None = None) -> PlanJob:
        """Of a recorded run, with another budget if one is given."""
        facts: Any = row.manifest.get(KIND)
        if not isinstance(facts, dict) or set(facts) != {each.name for each in fields(cls)}:
            raise UsageError(
                f"{row.id} was made by another version of abreast, and this one doesn't know all of it"
            )
        return cls(**{**facts, "budget": budget or facts["budget"]})

    def manifest(self) -> dict[str, JsonValue]:
        """As it is kept in the run's manifest."""
        return {KIND: asdict(self)}

    def around(self) -> str:
        """A name for all that a subplan's work depends on besides its files: with another, it is run again."""
        told = [
            self.command,
            self.call,
            self.prompt,
            self.model,
            self.temperature,
            self.reply_tokens,
        ]
        return hashlib.blake2b(json.dumps(told).encode(), digest_size=8).hexdigest()

    def divided(self) -> tuple[Plan, Imports]:
        """The plan of its directory as it is now."""
        return make_plan(self.path, {word: getattr(self, word) for word in DIVIDING})


def _check_work(read: Mapping[str, Any], spell: Callable[[str], str], place: str) -> None:
    """One kind of work, and nothing that belongs to another."""
    if "command" in read and "call" in read:
        raise UsageError(
            f"{spell('command')} and {spell('call')} exclude each other; leave one of them out"
        )
    if "command" not in read and "call" not in read and "prompt" not in read:
        raise UsageError(
            f"{place}it is not said what to do: give {spell('command')}, {spell('call')} or {spell('prompt')}"
        )
    if "command" in read or "call" in read:
        for word in ("model", "repairs", "temperature", "reply_tokens"):
            if word in read:
                kind = "command" if "command" in read else "call"
                raise UsageError(
                    f"{spell(word)} is for a model, and {spell(kind)} asks none; leave one of them out"
                )


def repair_tree(root: Path) -> None:
    """Take back or complete what a killed apply has left, and say so.

    `UsageError` if that can't be.
    """
    try:
        for line in repair(root):
            tell(line)
    except ApplyRunning as error:
        raise UsageError(str(error), FAILED) from None
    except (AbreastError, OSError) as error:
        raise UsageError(f"a merge was cut off, and can't be taken back: {error}", FAILED) from None


def make_plan(path: str, given: Mapping[str, Any]) -> tuple[Plan, Imports]:
    """The plan of a directory, after a killed apply is repaired.

    `UsageError` says what can't be.
    """
    root = Path(path)
    if not root.is_dir():
        raise UsageError(f"{path} is no directory")
    repair_tree(root)
    numbers: dict[str, Any] = {}
    for word in DIVIDING:
        if given.get(word) is not None:
            try:
                numbers[word] = _WORDS[word].read(given[word])
            except ValueError as error:
                raise UsageError(f"--{word.replace('_', '-')}: {error}") from None
    try:
        inventory = take_inventory(root).without_submodules()
        imports = read_imports(root, inventory)
        return decompose(inventory, imports, Options(**numbers)), imports
    except PlanInvalid as error:
        raise UsageError(str(error)) from None
