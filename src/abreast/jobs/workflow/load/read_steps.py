"""Reads the steps of a workflow file into typed objects, and reports all problems in them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, NamedTuple, Self, TypeAlias

from abreast.jobs.files.expressions import ExpressionInvalid, ExpressionText, parse, parse_condition
from abreast.jobs.files.problems import Problems, shown
from abreast.jobs.files.shapes import KeySpec, fitting, refuse_unknown
from abreast.jobs.files.yaml_nodes import YamlNode, line_in
from abreast.jobs.workflow.load import step_words
from abreast.jobs.workflow.shell.script import Script, ScriptInvalid, parse_script
from abreast.jobs.workflow.spec import Common, Custom, Step, Value, Workflow, WorkflowInput
from abreast.limits.budget import Budget
from abreast.models.schema import check_schema

CheckSample: TypeAlias = Callable[[dict[str, Any]], str | None]
"""Returns what is wrong with the keys of a sample, or None.

A value with `{{ }}` is passed as None, but the prompt as its text.
"""

MAX_LEVELS: Final = 64
"""How deep steps may be nested, the files of `workflow` steps included."""
_MAX_SCRIPT_WARNINGS: Final = 20  # of one script
_CHECKS: Final[tuple[tuple[str, Callable[[Any], str | None]], ...]] = (
    ("budget", partial(step_words.check_by, Budget.parse)),
    ("output_schema", partial(step_words.check_by, check_schema)),
    ("retry", step_words.check_retry),
)


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of a list of steps: the ids seen so far with their lines, and its nesting."""

    seen: dict[str, int] = field(default_factory=dict)
    in_fan_out: bool = False
    level: int = 0

    def beneath(self) -> Self:
        """Return the scope inside one of these steps."""
        return replace(self, level=self.level + 1)

    def template(self) -> "Scope":
        """Return the scope inside a fan-out, where ids belong to the items."""
        return Scope(in_fan_out=True, level=self.level + 1)


ReadStep: TypeAlias = "Callable[[StepReader, dict[str, YamlNode], Common, Scope], Step | None]"
"""Makes the typed step of one type from its checked keys."""


@dataclass(slots=True)
class StepReader:
    """Reads the steps of one file; `types` has the function for each type of step."""

    types: Mapping[str, ReadStep]
    source: str
    report: Problems
    inputs: Mapping[str, WorkflowInput] | None
    """None if they are invalid themselves: steps that use them are not checked."""
    custom: Mapping[str, Callable[..., Any]]
    check_sample: CheckSample | None
    inner: Callable[[YamlNode, int], Workflow | None]
    """Loads the file that a `workflow` step names."""
    ids: set[str] = field(default_factory=set)
    reads: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)

    # --- values

    def value(self, node: YamlNode | None) -> Value:
        """Return a value of the file, in which every text with `{{` is an ExpressionText."""
        if node is None:
            return None
        if node.kind == "list":
            return [self.value(one) for one in node.entries]
        if node.kind == "mapping":
            return {key: self.value(one) for key, one in node.items()}
        if isinstance(node.value, str) and "{{" in node.value:
            return self.template(node)
        plain: Value = node.value
        return plain

    def mapping(self, node: YamlNode | None) -> dict[str, Value]:
        """Return the values of a mapping."""
        return {key: self.value(one) for key, one in node.items()} if node else {}

    def template(
        self, node: YamlNode, parser: Callable[[str], ExpressionText] = parse
    ) -> ExpressionText:
        """Return a text as an ExpressionText, with or without `{{ }}` in it."""
        try:
            found = parser(node.text)
        except ExpressionInvalid as error:
            self.report.problem(line_in(node, error.at, self.source), str(error))
            return parse("")
        self.reads += [(node.line, path) for path in found.names]
        return found

    def optional(self, node: YamlNode | None) -> ExpressionText | None:
        """Return an optional text as an ExpressionText; None if it is left out."""
        return self.template(node) if node and isinstance(node.value, str) else None

    def condition(self, node: YamlNode) -> ExpressionText | bool:
        """Return the condition of an `if` or a loop.

        A text without an expression would always be true, so it is a problem.
        """
        if isinstance(node.value, str):
            return self.template(node, parse_condition)
        return node.value is True

    def script(self, node: YamlNode) -> Script:
        """Return the script of a shell step."""
        try:
            found = parse_script(node.text if isinstance(node.value, str) else "")
        except ScriptInvalid as error:
            self.report.problem(line_in(node, error.at, self.source), str(error))
            return parse_script("")
        self.reads += [(node.line, path) for path in found.names]
        for offset, sentence in found.warnings[:_MAX_SCRIPT_WARNINGS]:
            self.report.warn(line_in(node, offset, self.source), sentence)
        return found

    # --- steps

    def steps(self, node: YamlNode | None, scope: Scope) -> tuple[Step, ...]:
        """Return a list of steps; entries that are no step are reported and left out."""
        entries = node.entries if node else []
        if entries and scope.level > MAX_LEVELS:
            self.report.problem(
                entries[0].line, f"steps are nested more than {MAX_LEVELS} levels deep"
            )
            return ()
        steps = [self.step(entry, scope) for entry in entries]
        _check_order([_place(entry) for entry in entries], self.report)
        return tuple(one for one in steps if one is not None)

    def step(self, node: YamlNode, scope: Scope, default_id: str | None = None) -> Step | None:
        """Return one step; None if it has problems that leave no step."""
        if node.kind != "mapping":
            self.report.problem(node.line, f"a step must be a mapping, not {shown(node.plain(2))}")
            return None
        name = self.step_id(node, scope, default_id)
        kind = node.get("type")
        type_ = step_words.DEFAULT_TYPE if kind is None else kind.plain(2)
        line = kind.line if kind else node.line
        what = f"the {type_} step {name!r}"
        if isinstance(type_, str) and type_ in self.types:
            words = [*step_words.KINDS[type_], *step_words.COMMON]
            refuse_unknown(node, words, f"a {type_} step", self.report)
            given = fitting(node, _without_id(step_words.words_of(type_)), what, self.report)
            return self.types[type_](self, given, self.common(node, given, name, type_), scope)
        if isinstance(type_, str) and type_ in self.custom:
            ours = _without_id({word: step_words.COMMON[word] for word in step_words.SHARED_KEYS})
            given = fitting(node, ours, what, self.report)
            return self.custom_step(node, self.common(node, given, name, type_))
        if not isinstance(type_, str):
            self.report.problem(
                line, f"'type' of the step {name!r} must be a text, not {shown(type_)}"
            )
        elif type_ in step_words.REFUSED:
            self.report.problem(line, f"the step {name!r}: {step_words.REFUSED[type_]}")
        else:
            there = self.report.instead(type_, [*step_words.KINDS, *self.custom])
            self.report.problem(
                line, f"the step {name!r}: there is no type {shown(type_)}; {there}"
            )
        return None

    def step_id(self, node: YamlNode, scope: Scope, default: str | None) -> str:
        """Return the id; report it if it is invalid or used twice."""
        given = node.get("id")
        name = given.plain(2) if given else default
        line = given.line if given else node.line
        if name is None or name == "":
            self.report.problem(line, "a step has no 'id'")
            return "?"
        if not isinstance(name, str):
            quotes = "; put it in quotes" if isinstance(name, (int, float)) else ""
            self.report.problem(line, f"an id must be a text, not {shown(name)}{quotes}")
            return "?"
        if ":" in name:
            self.report.problem(
                line, f"the id {shown(name)} must not hold ':', which is for the items of a fan-out"
            )
        elif name in scope.seen:
            self.report.problem(
                line, f"the id {shown(name)} is taken already, on line {scope.seen[name]}"
            )
        scope.seen.setdefault(name, line)
        self.ids.add(name)
        return name

    def common(
        self, node: YamlNode, given: Mapping[str, YamlNode], name: str, type_: str
    ) -> Common:
        """Return the keys that every step may have."""
        facts = {
            word: given[word].plain()
            for word in step_words.SHARED_KEYS
            if word in given and word not in {"id", "type"}
        }
        for word, check in _CHECKS:
            if word in facts and (fault := check(facts[word])):
                self.report.problem(given[word].line, f"{word!r} of the step {name!r}: {fault}")
                facts.pop(word)
        for word in facts if type_ in step_words.COMPOSITE else ():
            if word in step_words.ACTION_KEYS:
                self.report.problem(
                    given[word].line,
                    f"{word!r} is for steps that do something: "
                    f"set it on the steps in the {type_} {name!r}",
                )
        if "needs" in facts:
            facts["needs"] = tuple(facts["needs"])
        if facts.pop("if", None) is not None:
            facts["when"] = self.condition(given["if"])
        if isinstance(retry := facts.get("retry"), dict):
            facts |= {"retry": retry["times"], "retry_delay": float(retry.get("delay", 0))}
        if type_ in step_words.PROCESSES:
            facts |= {"env": self.mapping(given.get("env")), "cwd": self.optional(given.get("cwd"))}
        if "worktree" in given:
            facts["worktree"] = given["worktree"].value is True
        return Common(name, type_, node.line, input=self.value(node.get("input")), **facts)

    def custom_step(self, node: YamlNode, common: Common) -> Step:
        """Return a step of a registered kind; the kind's own `check` may report its config."""
        config = [(key, one) for key, one in node.items() if key not in step_words.SHARED_KEYS]
        check = getattr(self.custom[common.type], "check", None)
        if callable(check):
            try:
                fault = check({key: one.plain() for key, one in config})
            except Exception as error:  # noqa: BLE001 - code of another package, reported as broken
                fault = f"its kind is broken: check raised {type(error).__name__}: {error}"
            if fault:
                self.report.problem(node.line, f"the {common.type} step {common.id!r}: {fault}")
        return Custom(common, {key: self.value(one) for key, one in config})


def _without_id(words: Mapping[str, KeySpec]) -> dict[str, KeySpec]:
    """Return the keys without `id` and `type`, which are read before all others."""
    return {key: word for key, word in words.items() if key not in {"id", "type"}}


class _StepPlace(NamedTuple):
    id: str | None
    line: int  # of `needs`, where it has any
    needs: Sequence[str] | None


def _place(node: YamlNode) -> _StepPlace:
    """Return a step's id, its line and its needs; invalid ones are reported elsewhere."""
    name, needs = node.get("id"), node.get("needs")
    texts = [one.value for one in (needs.entries if needs else ()) if isinstance(one.value, str)]
    step_id = name.value if name and isinstance(name.value, str) else None
    listed = texts if needs and needs.kind == "list" else None
    return _StepPlace(step_id, node.line_of("needs"), listed)


def _check_order(places: Sequence[_StepPlace], report: Problems) -> None:
    """Report what is wrong with the `needs` of a list of steps: unknown names, and cycles.

    A step without `needs` waits for the step before it.
    """
    if all(one.needs is None for one in places):
        return
    index = {one.id: at for at, one in enumerate(places) if one.id}
    waits: dict[int, list[int]] = {}
    for at, one in enumerate(places):
        known = [name for name in one.needs or () if name in index and name != one.id]
        waits[at] = [at - 1] * bool(at) if one.needs is None else [index[name] for name in known]
        for name in one.needs or ():
            if name == one.id:
                report.problem(
                    one.line, f"the step {one.id!r} needs itself; take it out of its needs"
                )
            elif name not in index:
                hint = report.instead(name, (each for each in index if each != one.id))
                fault = f"the step {one.id!r} needs {name!r}, which is no step of the same list"
                report.problem(one.line, f"{fault}; {hint}")
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        circle = error.args[1][:0:-1]  # each waits for the next, the last for the first
        first = circle.index(min(circle))
        cycle = [places[at] for at in (*circle[first:], *circle[: first + 1])]
        names = " -> ".join(str(one.id) for one in cycle)
        implied = any(one.needs is None for one in cycle)
        report.problem(
            next(one.line for one in cycle if one.needs is not None),
            f"these steps wait for each other: {names}; take one out of needs"
            + (" (a step without needs waits for the step before it)" if implied else ""),
        )
