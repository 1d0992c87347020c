"""The options of a plan, from flags or a file, and the plan that they make, as it is printed."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Self

from abreast.cli import units
from abreast.cli.errors import FAILED, UsageError, refusing, tell
from abreast.cli.jobs.request import recorded_facts, unknown_version
from abreast.cli.terminal.tables import say_json
from abreast.core.errors import AbreastError
from abreast.jobs.files.yaml_nodes import YamlNode
from abreast.jobs.plan.decompose.decompose import decompose
from abreast.jobs.plan.decompose.imports import Imports, read_imports
from abreast.jobs.plan.decompose.inventory import take_inventory
from abreast.jobs.plan.decompose.score import score as score_of
from abreast.jobs.plan.errors import PlanInvalid
from abreast.jobs.plan.spec import Options, Plan
from abreast.jobs.plan.work.held_results import rescue
from abreast.models.port import EFFORTS, Effort
from abreast.store.port import JsonValue, RunRow
from abreast.worktrees.merge.errors import ApplyRunning
from abreast.worktrees.merge.repair import repair
from abreast.worktrees.pool import has_pools, reap_worktrees

KIND: Final = "plan"
ORDERS: Final = ("parallel", "sequential", "dependencies")
_LATER: Final = ("reasoning",)  # keys that manifests leave out unless they are set
DIVIDING: Final = ("max_depth", "min_files", "max_files", "max_tokens")
"""The keys that decide how far to divide."""


def _number(least: int) -> Callable[[object], int]:
    return lambda given: units.number(given, least=least)


def _text(given: object) -> str:
    if not isinstance(given, str) or not given.strip():
        raise ValueError(f"it must be a text, not {units.quoted(given)}")
    return given


def _flag(given: object) -> bool:
    if not isinstance(given, bool):
        raise ValueError(f"it must be true or false, not {units.quoted(given)}")
    return given


def _order(given: object) -> str:
    if given not in ORDERS:
        raise ValueError(f"it must be one of {', '.join(ORDERS)}, not {units.quoted(given)}")
    return str(given)


def _temperature(given: object) -> float:
    try:
        found = (
            float(given)
            if isinstance(given, str | int | float) and not isinstance(given, bool)
            else -1.0
        )
    except ValueError:
        found = -1.0
    if not 0 <= found <= 100:  # noqa: PLR2004 - nan fails too
        raise ValueError(f"it must be a number of at least 0, not {units.quoted(given)}")
    return found


def _reasoning(given: object) -> str:
    if given not in EFFORTS:
        raise ValueError(f"it must be one of {', '.join(EFFORTS)}, not {units.quoted(given)}")
    return str(given)


@dataclass(frozen=True, slots=True)
class _Key:
    """A key of a plan: the function that reads its value, or raises ValueError; its JSON schema."""

    read: Callable[[Any], Any]
    schema: dict[str, Any]


def _integer_key(least: int) -> _Key:
    return _Key(_number(least), {"type": "integer", "minimum": least})


_TEXT_KEY: Final = _Key(_text, {"type": "string", "minLength": 1})
_KEYS: Final[dict[str, _Key]] = {
    "path": _TEXT_KEY,
    "command": _TEXT_KEY,
    "call": _TEXT_KEY,
    "prompt": _TEXT_KEY,
    "model": _TEXT_KEY,
    "width": _integer_key(1),
    "order": _Key(_order, {"enum": list(ORDERS)}),
    "fail_fast": _Key(_flag, {"type": "boolean"}),
    "retries": _integer_key(0),
    "timeout": _Key(units.duration, {"type": ["string", "number"]}),
    "budget": _Key(units.budget, {"type": "string", "minLength": 1}),
    "check": _TEXT_KEY,
    "repairs": _integer_key(0),
    "temperature": _Key(_temperature, {"type": "number", "minimum": 0}),
    "reply_tokens": _integer_key(1),
    "reasoning": _Key(_reasoning, {"enum": list(EFFORTS)}),
    "max_depth": _integer_key(0),
    "min_files": _integer_key(1),
    "max_files": _integer_key(1),
    "max_tokens": _integer_key(1),
}
"""The keys of a plan, in flags and files."""


def plan_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a plan's file, for editors."""
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
                "properties": {word: known.schema for word, known in _KEYS.items()},
                "additionalProperties": False,
            }
        },
    }


@dataclass(frozen=True, slots=True)
class PlanJob:
    """The options of a plan: how to divide, the work of a subplan, and how subplans are run."""

    path: str
    home: str
    """The directory where the command was started: functions are imported from there."""
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
    reasoning: Effort | None = None

    @classmethod
    def of(
        cls, facts: Mapping[str, Any], home: str, spell: Callable[[str], str], place: str = ""
    ) -> Self:
        """Read a job from its keys and values.

        For error messages, `spell` says how and where a key is written, and `place` where the
        plan is.
        """
        read: dict[str, Any] = {}
        for word, given in facts.items():
            if word not in _KEYS:
                close = get_close_matches(word, _KEYS, 1)
                hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(_KEYS)}"
                raise UsageError(f"{spell(word)}: there is no {word!r} in a plan; {hint}")
            if given is None:
                continue
            with refusing(spell(word), (ValueError, TypeError)):
                read[word] = _KEYS[word].read(given)
        _check_work(read, spell, place)
        return cls(str((Path(home) / read.pop("path", ".")).resolve()), home, **read)

    @classmethod
    def of_run(cls, row: RunRow, budget: str | None = None) -> Self:
        """The job of a recorded run, with another budget if one is given."""
        facts = recorded_facts(row, KIND)
        if {*facts, *_LATER} != {each.name for each in fields(cls)}:
            raise unknown_version(row)
        return cls(**{**facts, "budget": budget or facts["budget"]})

    def manifest(self) -> dict[str, JsonValue]:
        """The job as the run's manifest stores it."""
        facts = asdict(self)
        return {KIND: {word: facts[word] for word in facts if word not in _LATER or facts[word]}}

    def work_digest(self) -> str:
        """A digest of all that a subplan's work depends on besides its files.

        A recorded subplan with another digest is run again.
        """
        settings = [
            self.command,
            self.call,
            self.prompt,
            self.model,
            self.temperature,
            self.reply_tokens,
            *([self.reasoning] if self.reasoning else []),  # digests of before have none
        ]
        return hashlib.blake2b(json.dumps(settings).encode(), digest_size=8).hexdigest()

    def current_plan(self) -> tuple[Plan, Imports]:
        """The plan of the directory as it is now."""
        return make_plan(self.path, {word: getattr(self, word) for word in DIVIDING})


def read_job(file: str, node: YamlNode, flags: dict[str, Any]) -> PlanJob:
    """The job of a file; `flags` override its keys.

    Raises `UsageError` with the line of an error.
    """
    place = f"{file}:{node.line}: "
    if node.kind != "mapping":
        raise UsageError(
            f"{place}plan must be a mapping, "
            "such as {command: 'ruff format {files}', width: 10}"
        )

    def spell(word: str) -> str:
        return f"{file}:{node.line_of(word)}: {word}" if word in node.pairs else word

    facts = {word: value.plain() for word, value in node.items()}
    given = {word: value for word, value in flags.items() if value is not None}
    return PlanJob.of({**facts, **given}, os.getcwd(), spell, place)  # noqa: PTH109 - stored as text


def _check_work(read: Mapping[str, Any], spell: Callable[[str], str], place: str) -> None:
    """Raise `UsageError` unless there is one kind of work, without options of another."""
    if "command" in read and "call" in read:
        raise UsageError(
            f"{spell('command')} and {spell('call')} exclude each other; leave one of them out"
        )
    if "command" not in read and "call" not in read and "prompt" not in read:
        raise UsageError(
            f"{place}it is not said what to do: "
            f"give {spell('command')}, {spell('call')} or {spell('prompt')}"
        )
    if "command" in read or "call" in read:
        for word in ("model", "repairs", "temperature", "reply_tokens", "reasoning"):
            if word in read:
                kind = "command" if "command" in read else "call"
                raise UsageError(
                    f"{spell(word)} is for a model, and {spell(kind)} asks none; "
                    "leave one of them out"
                )


def repair_tree(root: Path) -> None:
    """Undo or complete a killed apply, and print what was done.

    Raises `UsageError` if that is impossible.
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

    Raises `UsageError` if the directory can't be divided.
    """
    root = Path(path)
    if not root.is_dir():
        raise UsageError(f"{path} is no directory")
    repair_tree(root)
    numbers: dict[str, Any] = {}
    for word in DIVIDING:
        if given.get(word) is not None:
            with refusing(f"--{word.replace('_', '-')}"):
                numbers[word] = _KEYS[word].read(given[word])
    with refusing("", PlanInvalid):
        inventory = take_inventory(root).without_submodules()
        imports = read_imports(root, inventory)
        return decompose(inventory, imports, Options(**numbers)), imports


def clear_leftovers(root: Path) -> None:
    """Save the results that killed drivers left in worktrees of `root`, and remove the worktrees.

    Prints what is saved. Worktrees that can't be saved are left as they are, and errors are only
    printed: a plan can be shown in a read-only directory too.
    """
    try:
        if not has_pools(root):
            return
        for each in rescue(root):
            tell(
                f"{each.leaf} of {each.run} was cut off; what it had done is kept: "
                f"git --git-dir {each.home} ls-tree -r {each.tree}"
            )
        reap_worktrees(root)
    except (OSError, AbreastError) as error:
        tell(f"worktrees of a plan that was cut off could not be removed: {error}")


def print_plan(
    plan: Plan,
    imports: Imports,
    *,
    ids: bool = False,
    as_json: bool = False,
    only_score: bool = False,
) -> int:
    """Print a plan: as JSON, as a tree with its score, or the score alone."""
    from abreast.jobs.plan.tree_text import score_lines, show, to_json
    from abreast.worktrees.merge.names import printable

    report = score_of(plan, imports)
    if as_json:
        say_json(to_json(plan, report))
        return 0
    from rich.console import Console

    console = Console(
        highlight=False, soft_wrap=True, force_terminal=None if os.isatty(1) else False
    )
    if only_score:
        for line in score_lines(plan, report):
            console.print(printable(line), markup=False)
    else:
        console.print(show(plan, report, ids=ids))
    return 0
