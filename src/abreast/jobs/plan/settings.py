"""The options of a plan: how to divide, the work of a subplan, and how subplans are run."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Self

from abreast.jobs.files import units
from abreast.jobs.plan.decompose.decompose import decompose
from abreast.jobs.plan.decompose.imports import Imports, read_imports
from abreast.jobs.plan.decompose.inventory import take_inventory
from abreast.jobs.plan.decompose.set_aside import choose_files
from abreast.jobs.plan.errors import PlanInvalid
from abreast.jobs.plan.patterns import PathPattern
from abreast.jobs.plan.spec import Options, Plan
from abreast.jobs.plan.written.division import plan_of_parts
from abreast.jobs.plan.written.parts import PartSpec, parts_schema, read_parts
from abreast.models.port import EFFORTS, Effort
from abreast.store.port import JsonValue, RunRow

KIND: Final = "plan"
ORDERS: Final = ("parallel", "sequential", "dependencies")
# Keys that manifests leave out unless they are set.
_LATER: Final = (
    "reasoning",
    "min_tokens",
    "include",
    "exclude",
    "parts",
    "rounds",
    "planner",
    "default_bounds",
    "executor",
    "agent",
    "allow",
)
# Keys that manifests of before don't have, with what they meant then.
_BEFORE: Final[Mapping[str, Any]] = {"all_files": True}
DIVIDING: Final = ("max_depth", "min_files", "max_files", "max_tokens", "min_tokens")
"""The keys that decide how far to divide."""
_BY_FOLDERS: Final = ("max_depth", "min_files", "max_files")
"""Those of them that divide by directories, unless `min_tokens` is given, too."""
MAX_TOKENS: Final = 40_000
"""The most tokens of a part, by default: with its files, an agent has room for its own work."""
MIN_TOKENS: Final = 2_000
"""The fewest tokens of a part, by default."""
CHOOSING: Final = ("include", "exclude", "all_files")
"""The keys that decide which files are divided."""
_PATTERNS: Final = ("include", "exclude")
_TUPLES: Final = (*_PATTERNS, "allow")


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


def _patterns(given: object) -> tuple[str, ...]:
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list | tuple) or not all(
        isinstance(one, str) and one.strip("/") for one in listed
    ):
        raise ValueError(f"it must be a list of patterns such as docs/, not {units.quoted(given)}")
    for one in listed:
        PathPattern.read(one)
    return tuple(listed)


def _words(given: object) -> tuple[str, ...]:
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list | tuple) or not all(isinstance(one, str) for one in listed):
        raise ValueError(f"it must be a list of words such as edit, not {units.quoted(given)}")
    return tuple(listed)


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
_PATTERNS_KEY: Final = _Key(
    _patterns, {"type": ["array", "string"], "items": {"type": "string", "minLength": 1}}
)
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
    "rounds": _integer_key(1),
    "planner": _TEXT_KEY,
    "executor": _TEXT_KEY,
    "agent": _TEXT_KEY,
    "allow": _Key(_words, {"type": ["array", "string"], "items": {"type": "string"}}),
    "max_depth": _integer_key(0),
    "min_files": _integer_key(1),
    "max_files": _integer_key(1),
    "max_tokens": _integer_key(1),
    "min_tokens": _integer_key(0),
    "include": _PATTERNS_KEY,
    "exclude": _PATTERNS_KEY,
    "all_files": _Key(_flag, {"type": "boolean"}),
    "parts": _Key(read_parts, parts_schema()),
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
    min_tokens: int | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    all_files: bool = False
    """Whether generated and vendored files are divided, too."""
    default_bounds: bool = False
    """Whether the bounds of tokens are those by default.

    What fits into one part as a whole is then divided by directories: else nothing would run side
    by side.
    """
    parts: tuple[PartSpec, ...] = ()
    """The parts that a person has written; empty if the directory is to be divided."""
    rounds: int = 2
    """How often a part may run, if others ask for changes of its files; 1 lets none ask."""
    planner: str | None = None
    """The model that proposes the parts."""
    executor: str | None = None
    """Where the command or call of a part works: here, or on the nodes of a cluster (`ray`)."""
    agent: str | None = None
    """The coding agent that does the work of a part, by the prompt; `model` is one of its own."""
    allow: tuple[str, ...] = ()
    """What the agent may do."""

    @classmethod
    def of(
        cls,
        facts: Mapping[str, Any],
        home: str,
        spell: Callable[[str], str],
        place: str = "",
        *,
        works: bool = True,
    ) -> Self:
        """Read a job from its keys and values.

        For error messages, `spell` says how and where a key is written, and `place` where the
        plan is. It must say what to do, unless it is only shown (`works` is false).
        """
        read: dict[str, Any] = {}
        for word, given in facts.items():
            if word not in _KEYS:
                close = get_close_matches(word, _KEYS, 1)
                hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(_KEYS)}"
                raise PlanInvalid(f"{spell(word)}: there is no {word!r} in a plan; {hint}")
            if given is None:
                continue
            try:
                read[word] = _KEYS[word].read(given)
            except (ValueError, TypeError) as error:
                if word == "parts" and isinstance(error, PlanInvalid):
                    raise  # it says where
                raise PlanInvalid(f"{spell(word)}: {error}") from None
        _check_division(read, spell)
        if works:
            _check_work(read, spell, place)
        read |= _default_bounds(read)
        return cls(str((Path(home) / read.pop("path", ".")).resolve()), home, **read)

    @classmethod
    def recorded(cls, row: RunRow) -> Self:
        """The job of a recorded run; raises `PlanInvalid` if another version wrote other facts."""
        facts: Any = row.manifest.get(KIND)
        known = {each.name for each in fields(cls)}
        if not isinstance(facts, dict) or {*facts, *_LATER, *_BEFORE} != known:
            raise PlanInvalid(
                f"{row.id} was made by another version of abreast, "
                "and this one doesn't know all of it"
            )
        own = {word: tuple(facts[word]) for word in _TUPLES if word in facts}
        own |= {"parts": read_parts(facts["parts"])} if "parts" in facts else {}
        return cls(**{**_BEFORE, **facts, **own})

    def manifest(self) -> dict[str, JsonValue]:
        """The job as the run's manifest stores it."""
        facts = asdict(replace(self, parts=()))
        facts |= {word: list(facts[word]) for word in _TUPLES}
        facts["parts"] = [part.plain() for part in self.parts]
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
            *([self.agent] if self.agent else []),
        ]
        return hashlib.blake2b(json.dumps(settings).encode(), digest_size=8).hexdigest()

    def divide(self, *, strict: bool = True) -> tuple[Plan, Imports]:
        """The plan of the directory as it is now; raises `PlanInvalid` if it can't be divided.

        If not `strict`, parts may name files that are not there any more.
        """
        words = (*DIVIDING, *CHOOSING, "parts", "default_bounds")
        return divide(self.path, {word: getattr(self, word) for word in words}, strict=strict)


def _default_bounds(read: Mapping[str, Any]) -> dict[str, Any]:
    """The bounds of tokens that are not given, unless it is divided in another way."""
    low, high = read.get("min_tokens"), read.get("max_tokens")
    if read.get("parts") or (low is None and any(word in read for word in _BY_FOLDERS)):
        return {}
    if low is None and high is None:
        return {"min_tokens": MIN_TOKENS, "max_tokens": MAX_TOKENS, "default_bounds": True}
    if high is None:
        return {"max_tokens": MAX_TOKENS}
    return {"min_tokens": min(MIN_TOKENS, high * MIN_TOKENS // MAX_TOKENS)} if low is None else {}


def _check_division(read: Mapping[str, Any], spell: Callable[[str], str]) -> None:
    """Raise `PlanInvalid` if parts are given, and options that would divide or order them."""
    if not read.get("parts"):
        return
    for word in (*DIVIDING, "planner"):
        if word in read:
            raise PlanInvalid(
                f"{spell(word)} is for a directory that is to be divided, and the parts are given; "
                "leave it out"
            )
    if read.get("order") == "dependencies" and any(part.after for part in read["parts"]):
        raise PlanInvalid(
            f"{spell('order')}: parts say by `after` what they wait for, "
            "or wait by their imports; leave one of these out"
        )


def _check_work(read: Mapping[str, Any], spell: Callable[[str], str], place: str) -> None:
    """Raise `PlanInvalid` unless there is one kind of work, without options of another."""
    if "command" in read and "call" in read:
        raise PlanInvalid(
            f"{spell('command')} and {spell('call')} exclude each other; leave one of them out"
        )
    _check_agent(read, spell)
    if "command" not in read and "call" not in read and "prompt" not in read:
        raise PlanInvalid(
            f"{place}it is not said what to do: "
            f"give {spell('command')}, {spell('call')} or {spell('prompt')}"
        )
    if "command" in read or "call" in read:
        for word in ("model", "repairs", "temperature", "reply_tokens", "reasoning"):
            if word in read:
                kind = "command" if "command" in read else "call"
                raise PlanInvalid(
                    f"{spell(word)} is for a model, and {spell(kind)} asks none; "
                    "leave one of them out"
                )


def _check_agent(read: Mapping[str, Any], spell: Callable[[str], str]) -> None:
    """Raise `PlanInvalid` for an agent without a task, or beside other work."""
    if "agent" in read:
        for word in ("command", "call", "repairs", "temperature", "reply_tokens", "reasoning"):
            if word in read:
                raise PlanInvalid(
                    f"{spell('agent')} and {spell(word)} exclude each other; leave one of them out"
                )
        if "prompt" not in read:
            raise PlanInvalid(f"{spell('agent')} needs a task: give {spell('prompt')}")
        if read.get("executor") not in {None, "local"}:
            raise PlanInvalid(f"an agent works on this machine: leave {spell('executor')} out")
    elif "allow" in read:
        raise PlanInvalid(f"{spell('allow')} is for an agent: give {spell('agent')}")


def divide(
    path: str,
    given: Mapping[str, Any],
    spell: Callable[[str], str] = str,
    *,
    strict: bool = True,
) -> tuple[Plan, Imports]:
    """The plan of a directory; raises `PlanInvalid` if it can't be divided.

    `spell` says how a key is written, for errors. If not `strict`, given parts may name files that
    are not there.
    """
    root = Path(path)
    if not root.is_dir():
        raise PlanInvalid(f"{path} is no directory")
    read: dict[str, Any] = {}
    for word in (*DIVIDING, *CHOOSING):
        if given.get(word) is not None:
            try:
                read[word] = _KEYS[word].read(given[word])
            except ValueError as error:
                raise PlanInvalid(f"{spell(word)}: {error}") from None
    parts: Sequence[PartSpec] = given.get("parts") or ()
    inventory = take_inventory(root).without_submodules()
    chosen = choose_files(
        inventory,
        root,
        **{word: read.pop(word) for word in CHOOSING if word in read},
        named={each.text.removeprefix("./") for part in parts for each in part.files},
    )
    imports = read_imports(root, chosen.inventory)
    if parts:
        others = (*chosen.excluded, *chosen.set_aside)
        plan = plan_of_parts(chosen.inventory, parts, others, strict=strict)
    else:
        if given.get("default_bounds") and chosen.inventory.tokens <= read["max_tokens"]:
            del read["min_tokens"], read["max_tokens"]
        plan = decompose(chosen.inventory, imports, Options(**read))
    return replace(plan, left_out=(*plan.left_out, *chosen.excluded)), imports
