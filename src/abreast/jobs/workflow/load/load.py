"""A workflow's file, read and checked once: typed steps, or every problem with its line."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Final

from abreast.core.errors import Problem, WorkflowInvalid
from abreast.jobs.files.problems import Problems, shown
from abreast.jobs.files.shapes import fitting
from abreast.jobs.files.yaml_nodes import MAX_BYTES, YamlNode, read_yaml
from abreast.jobs.workflow.inputs import coerce
from abreast.jobs.workflow.load import step_words as kinds
from abreast.jobs.workflow.load.known_names import KnownNames
from abreast.jobs.workflow.load.read_steps import CheckSample, Scope, StepReader
from abreast.jobs.workflow.spec import Step, Value, Workflow, WorkflowInput

__all__ = ["MAX_FILES", "Problem", "WorkflowInvalid", "load"]

MAX_FILES: Final = 16
"""How deep files of workflows may stand within each other."""


def load(
    text: str,
    file: str,
    *,
    directory: Path | None = None,
    kinds: Mapping[str, Callable[..., Any]] | None = None,
    check_sample: CheckSample | None = None,
) -> Workflow:
    r"""The workflow that a file's text says.

    `WorkflowInvalid` has all problems together, each with its file and line.

    `file` is the name that problems go by, `directory` where the files of `workflow` steps are looked for, `kinds` what
    is registered beside the built-in types, `check_sample` says what is wrong with the words of a sample.

    >>> load("workflow: {id: hi}\nsteps: [{id: a, type: shell, run: echo hi}]", "hi.yaml").steps[0].common.id
    'a'
    """
    report = Problems(file)
    place = _Place(file, directory, (directory / PurePath(file).name,) if directory else ())
    workflow = _File(text, report, place, _Shared(kinds or {}, check_sample)).read()
    report.settled()
    if workflow is None:  # pragma: no cover - what can't be read has said so
        raise WorkflowInvalid.of([Problem(file, 1, "the file can't be read")])
    return workflow


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a file is, and the files that it stands in, itself the last."""

    file: str
    directory: Path | None
    chain: tuple[Path, ...]
    level: int = 0


@dataclass(slots=True)
class _Shared:
    """What all files of one load share."""

    kinds: Mapping[str, Callable[..., Any]]
    check_sample: CheckSample | None
    loaded: dict[Path, tuple[Workflow | None, int]] = field(default_factory=dict)
    """Files that were read already, and how many files deep each is: none is read twice."""


@dataclass(slots=True)
class _File:
    """One file, being read."""

    text: str
    report: Problems
    place: _Place
    shared: _Shared
    depth: int = 1

    def read(self) -> Workflow | None:
        root = read_yaml(self.text, self.report)
        if root is None:
            return None
        if root.kind != "mapping":
            self.report.problem(
                root.line, f"a workflow must be a mapping, not {shown(root.plain(2))}"
            )
            return None
        self.warn_unknown(root, kinds.TOP, "a workflow's file")
        self.schema_version(root)
        self.requires(root)
        inputs = self.inputs(root.get("inputs"))
        reader = StepReader(
            self.text, self.report, inputs, self.shared.kinds, self.shared.check_sample, self.inner
        )
        header = self.header(root, reader)
        steps = reader.steps(self.listed(root), Scope(level=self.place.level))
        outputs = self.outputs(root.get("outputs"), reader)
        self.warn_of_unknown_names(reader, steps, inputs)
        return Workflow(
            file=self.report.file,
            text=self.text,
            steps=steps,
            inputs=tuple((inputs or {}).values()),
            outputs=outputs,
            warnings=tuple(sorted(set(self.report.warnings))),
            directory=str(self.place.directory.resolve()) if self.place.directory else "",
            **header,
        )

    def warn_unknown(self, node: YamlNode, words: tuple[str, ...], what: str) -> None:
        """Spec-kit reads over what it doesn't know, outside of steps: so it is no problem."""
        for key in node.pairs:
            if key not in words:
                there = self.report.instead(key, words)
                self.report.warn(
                    node.line_of(key),
                    f"there is no {shown(key)} in {what}, so it is not used; {there}",
                )

    def schema_version(self, root: YamlNode) -> None:
        node = root.get("schema_version")
        if node and (node.kind != "value" or str(node.value) != "1.0"):
            self.report.problem(
                node.line, f"schema_version must be '1.0', not {shown(node.plain(2))}"
            )

    def requires(self, root: YamlNode) -> None:
        node = self.mapping(root.get("requires"), "requires")
        if node is None:
            return
        if "permissions" in node.pairs:
            fault = "'requires.permissions' would not be kept: a step may do what its user may; use a gate instead"
            self.report.problem(node.line_of("permissions"), fault)
        self.warn_unknown(node, (*kinds.REQUIRES, "permissions"), "requires")

    def mapping(self, node: YamlNode | None, name: str) -> YamlNode | None:
        """A mapping that may be left out."""
        if node and node.kind != "mapping" and node.plain(2) is not None:
            self.report.problem(
                node.line, f"{name!r} must be a mapping, not {shown(node.plain(2))}"
            )
        return node if node and node.kind == "mapping" else None

    def header(self, root: YamlNode, reader: StepReader) -> dict[str, Any]:
        node = root.get("workflow")
        if node is None or node.kind != "mapping":
            at = node.line if node else root.line
            self.report.problem(at, "a workflow needs a header, such as 'workflow: {id: my-flow}'")
            return {"id": ""}
        given = fitting(node, kinds.HEADER, "the workflow", self.report)
        self.warn_unknown(node, tuple(kinds.HEADER), "the workflow's header")
        named = {
            word: _written(given.get(word))
            for word in ("id", "name", "version", "author", "description")
        }
        named["name"] = named["name"] or named["id"]
        return {
            **named,
            "integration": reader.optional(given.get("integration")),
            "model": reader.optional(given.get("model")),
            "options": reader.value(given.get("options")),
        }

    def listed(self, root: YamlNode) -> YamlNode | None:
        node = root.get("steps")
        if node is None or node.kind != "list" or not node.entries:
            self.report.problem(
                node.line if node else root.line,
                "a workflow needs 'steps', a list of at least one step",
            )
            return None
        return node

    # --- inputs and outputs

    def inputs(self, node: YamlNode | None) -> dict[str, WorkflowInput] | None:
        """The inputs by name; None if they can't be read."""
        given = self.mapping(node, "inputs")
        if given is None:
            return {} if node is None or node.plain(2) is None else None
        found = {}
        for name, one in given.items():
            if one.kind == "mapping":
                found[name] = self.input(name, one, given.line_of(name))
            else:
                self.report.problem(
                    one.line, f"the input {name!r} must be a mapping, such as {{type: string}}"
                )
        return found

    def input(self, name: str, node: YamlNode, line: int) -> WorkflowInput:
        given = fitting(node, kinds.INPUT, f"the input {name!r}", self.report)
        self.warn_unknown(node, tuple(kinds.INPUT), "an input")
        default = given.get("default")
        made = WorkflowInput(
            name,
            line,
            type=given["type"].value if "type" in given else "string",
            required="required" in given and given["required"].value is True,
            has_default=default is not None,
            default=default.plain() if default else None,
            enum=tuple(given["enum"].plain()) if "enum" in given else None,
            prompt=given["prompt"].text if "prompt" in given else None,
            secret="secret" in given and given["secret"].value is True,
        )
        if made.secret and (default is not None or made.type != "string"):
            fault = f"the input {name!r} is secret: it must be a string, without a default, for the file is stored"
            self.report.problem(line, fault)
        if default is not None and ("type" in given or "type" not in node.pairs):
            try:
                coerce(made, made.default)
            except ValueError as error:
                self.report.problem(default.line, f"the default can't be used: {error}")
        return made

    def outputs(self, node: YamlNode | None, reader: StepReader) -> dict[str, Value]:
        found: dict[str, Value] = {}
        given = self.mapping(node, "outputs")
        for name, one in given.items() if given else ():
            line = given.line_of(name) if given else one.line
            if name in kinds.RESERVED_OUTPUTS or not re.fullmatch(kinds.OUTPUT_NAME, name):
                self.report.problem(
                    line, f"an output can't be called {shown(name)}; choose another name"
                )
            if one.kind != "mapping" or list(one.pairs) != ["value"]:
                self.report.problem(
                    line, f"the output {name!r} must be a mapping such as {{value: ...}}"
                )
                continue
            found[name] = reader.value(one.get("value"))
        return found

    def warn_of_unknown_names(
        self,
        reader: StepReader,
        steps: tuple[Step, ...],
        inputs: Mapping[str, WorkflowInput] | None,
    ) -> None:
        """A path that leads nowhere is null when it is read, so it is no problem.

        It is seldom meant.
        """
        known = KnownNames(reader.ids, steps, inputs)
        for line, path in dict.fromkeys(reader.reads):
            for fault in known.faults(path, self.report.instead):
                self.report.warn(line, fault)

    # --- files as steps

    def inner(self, node: YamlNode, level: int) -> Workflow | None:
        """The workflow in another file; the report has why there is none."""
        directory, named = self.place.directory, node.text
        wrong = (
            _wrong_name(named)
            if directory
            else "files can't be looked for here, as the workflow is in none itself"
        )
        path = (directory or Path()) / named
        wrong = wrong or _wrong_file(path, (directory or Path()))
        chain = self.place.chain
        if not wrong and path in chain:
            names = " -> ".join(one.name for one in (*chain[chain.index(path) :], path))
            wrong = f"these files stand within each other: {names}"
        if not wrong and len(chain) >= MAX_FILES:
            wrong = f"files stand within each other more than {MAX_FILES} deep"
        if wrong:
            self.report.problem(node.line, f"the workflow {shown(named)}: {wrong}")
            return None
        if path not in self.shared.loaded:
            self.shared.loaded[path] = self.open(path, named, level)
        workflow, depth = self.shared.loaded[path]
        self.depth = max(self.depth, depth + 1)
        if len(chain) + depth > MAX_FILES:
            self.report.problem(
                node.line, f"the workflow {shown(named)}: files stand within each other too deep"
            )
        return workflow

    def open(self, path: Path, named: str, level: int) -> tuple[Workflow | None, int]:
        report = Problems(str(PurePath(self.place.file).parent / named))
        place = _Place(report.file, path.parent, (*self.place.chain, path), level + 1)
        try:
            file = _File(path.read_bytes().decode("utf-8-sig"), report, place, self.shared)
        except UnicodeDecodeError as error:
            report.problem(1, f"the file is not UTF-8: byte {error.start} can't be read")
        except OSError as error:
            report.problem(1, f"the file can't be read: {error.strerror}")
        else:
            workflow = file.read()
            self.report.problems += report.problems
            return (None if report.problems else workflow), file.depth
        self.report.problems += report.problems
        return None, 1


def _wrong_name(named: str) -> str | None:
    path = PurePosixPath(named)
    if "{{" in named:
        return "it must be a file's name as it is, not an expression"
    if path.is_absolute() or ".." in path.parts or "\0" in named:
        return "it must be a path beneath the directory of this file, without '..'"
    if path.suffix not in {".yaml", ".yml"}:
        return "workflows that are installed by their id are not run here; name a file, such as inner.yaml"
    return None


def _wrong_file(path: Path, directory: Path) -> str | None:
    """A link may lead out of the directory, and a pipe would never end."""
    parts = path.relative_to(directory).parts
    steps = [directory.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)]
    try:
        if any(one.is_symlink() for one in steps):
            return "it must not be a symbolic link, nor lead through one"
        found = path.stat()
    except (OSError, ValueError):
        return "there is no such file"
    if not stat.S_ISREG(found.st_mode):
        return "it is no regular file"
    return "it is larger than 5 MiB" if found.st_size > MAX_BYTES else None


def _written(node: YamlNode | None) -> str:
    """What stands there, of something that is only shown."""
    return node.text if node and node.value is not None else ""
