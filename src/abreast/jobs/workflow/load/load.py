"""Loads a workflow file: returns typed steps, or every problem with its line."""

import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Final

from abreast.core.errors import Problem, WorkflowInvalid
from abreast.jobs.files.problems import Problems, shown
from abreast.jobs.files.shapes import fitting
from abreast.jobs.files.yaml_nodes import MAX_BYTES, YamlNode, read_yaml
from abreast.jobs.workflow.inputs import coerce
from abreast.jobs.workflow.load import step_words
from abreast.jobs.workflow.load.analysis import KnownNames
from abreast.jobs.workflow.load.read_steps import CheckSample, Scope, StepReader
from abreast.jobs.workflow.load.step_types import READERS
from abreast.jobs.workflow.spec import Value, Workflow, WorkflowInput

__all__ = ["MAX_FILES", "Problem", "WorkflowInvalid", "load"]

MAX_FILES: Final = 16
"""How deep workflow files may be nested."""


def load(
    text: str,
    file: str,
    *,
    directory: Path | None = None,
    kinds: Mapping[str, Callable[..., Any]] | None = None,
    check_sample: CheckSample | None = None,
) -> Workflow:
    r"""Return the workflow of a file's text.

    Raises `WorkflowInvalid` with all problems together, each with its file and line.

    `file` is the name in problems, `directory` is searched for the files of `workflow` steps,
    `kinds` are the registered types beside the built-in ones, `check_sample` returns what is wrong
    with the keys of a sample.

    >>> text = "workflow: {id: hi}\nsteps: [{id: a, type: shell, run: echo hi}]"
    >>> load(text, "hi.yaml").steps[0].common.id
    'a'
    """
    report = Problems(file)
    chain = (directory / PurePath(file).name,) if directory else ()
    shared = _SharedState(kinds or {}, check_sample)
    workflow = _FileReader(text, report, directory, chain, shared).read()
    report.settled()
    if workflow is None:  # pragma: no cover - an unreadable file has been reported
        raise WorkflowInvalid.of([Problem(file, 1, "the file can't be read")])
    return workflow


@dataclass(slots=True)
class _SharedState:
    kinds: Mapping[str, Callable[..., Any]]
    check_sample: CheckSample | None
    # Files that were read, with how many files deep each nests: no file is read twice.
    loaded: dict[Path, tuple[Workflow | None, int]] = field(default_factory=dict)


@dataclass(slots=True)
class _FileReader:
    text: str
    report: Problems
    directory: Path | None
    chain: tuple[Path, ...]  # the files that include it, itself the last
    shared: _SharedState
    level: int = 0
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
        self.warn_unknown(root, step_words.TOP, "a workflow's file")
        self.schema_version(root)
        self.requires(root)
        inputs = self.inputs(root.get("inputs"))
        reader = StepReader(
            READERS,
            self.text,
            self.report,
            inputs,
            self.shared.kinds,
            self.shared.check_sample,
            self.inner,
        )
        header = self.header(root, reader)
        steps = reader.steps(self.listed(root), Scope(level=self.level))
        outputs = self.outputs(root.get("outputs"), reader)
        # Paths that are always null are no error, as an expression may read null.
        known = KnownNames(reader.ids, steps, inputs)
        for line, path in dict.fromkeys(reader.reads):
            for fault in known.faults(path, self.report.instead):
                self.report.warn(line, fault)
        return Workflow(
            file=self.report.file,
            text=self.text,
            steps=steps,
            inputs=tuple((inputs or {}).values()),
            outputs=outputs,
            warnings=tuple(sorted(set(self.report.warnings))),
            directory=str(self.directory.resolve()) if self.directory else "",
            **header,
        )

    def warn_unknown(self, node: YamlNode, words: tuple[str, ...], what: str) -> None:
        """Warn of unknown keys; no error, because spec-kit ignores them outside of steps."""
        for key in node.pairs:
            if key not in words:
                hint = self.report.instead(key, words)
                self.report.warn(
                    node.line_of(key),
                    f"there is no {shown(key)} in {what}, so it is not used; {hint}",
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
            self.report.problem(
                node.line_of("permissions"),
                "'requires.permissions' would not be kept: a step may do what its user may; "
                "use a gate instead",
            )
        self.warn_unknown(node, (*step_words.REQUIRES, "permissions"), "requires")

    def mapping(self, node: YamlNode | None, name: str) -> YamlNode | None:
        """Return the node if it is a mapping; report it if it is neither that nor null."""
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
        given = fitting(node, step_words.HEADER, "the workflow", self.report)
        self.warn_unknown(node, tuple(step_words.HEADER), "the workflow's header")
        texts = {
            word: given[word].text if word in given and given[word].value is not None else ""
            for word in ("id", "name", "version", "author", "description")
        }
        texts["name"] = texts["name"] or texts["id"]
        return {
            **texts,
            "integration": reader.optional(given.get("integration")),
            "model": reader.optional(given.get("model")),
            "options": reader.value(given.get("options")),
        }

    def listed(self, root: YamlNode) -> YamlNode | None:
        node = root.get("steps")
        close = get_close_matches("steps", set(root.pairs).difference(step_words.TOP), 1)
        if node is None and close:
            text = f"there is no {shown(close[0])} in a workflow's file; did you mean steps?"
            self.report.problem(root.line_of(close[0]), text)
            return None
        if node is None or node.kind != "list" or not node.entries:
            self.report.problem(
                node.line if node else root.line,
                "a workflow needs 'steps', a list of at least one step",
            )
            return None
        return node

    # --- inputs and outputs

    def inputs(self, node: YamlNode | None) -> dict[str, WorkflowInput] | None:
        """Return the inputs by name; None if they can't be read."""
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
        given = fitting(node, step_words.INPUT, f"the input {name!r}", self.report)
        self.warn_unknown(node, tuple(step_words.INPUT), "an input")
        default = given.get("default")
        declared = WorkflowInput(
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
        if declared.secret and (default is not None or declared.type != "string"):
            self.report.problem(
                line,
                f"the input {name!r} is secret: it must be a string, without a default, "
                "for the file is stored",
            )
        if default is not None and ("type" in given or "type" not in node.pairs):
            try:
                coerce(declared, declared.default)
            except ValueError as error:
                self.report.problem(default.line, f"the default can't be used: {error}")
        return declared

    def outputs(self, node: YamlNode | None, reader: StepReader) -> dict[str, Value]:
        found: dict[str, Value] = {}
        given = self.mapping(node, "outputs")
        for name, one in given.items() if given else ():
            line = given.line_of(name) if given else one.line
            if name in step_words.RESERVED_OUTPUTS or not re.fullmatch(
                step_words.OUTPUT_NAME, name
            ):
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

    # --- files as steps

    def inner(self, node: YamlNode, level: int) -> Workflow | None:
        """Return the workflow in another file; None if that is reported as a problem."""
        directory, name, chain = self.directory, node.text, self.chain
        fault = (
            _name_fault(name)
            if directory
            else "files can't be looked for here, as the workflow is in none itself"
        )
        path = (directory or Path()) / name
        fault = fault or _file_fault(path, (directory or Path()))
        if not fault and path in chain:
            names = " -> ".join(one.name for one in (*chain[chain.index(path) :], path))
            fault = f"these files stand within each other: {names}"
        if not fault and len(chain) >= MAX_FILES:
            fault = f"files stand within each other more than {MAX_FILES} deep"
        if fault:
            self.report.problem(node.line, f"the workflow {shown(name)}: {fault}")
            return None
        if path not in self.shared.loaded:
            self.shared.loaded[path] = self.open(path, name, level)
        workflow, depth = self.shared.loaded[path]
        self.depth = max(self.depth, depth + 1)
        if len(chain) + depth > MAX_FILES:
            self.report.problem(
                node.line, f"the workflow {shown(name)}: files stand within each other too deep"
            )
        return workflow

    def open(self, path: Path, name: str, level: int) -> tuple[Workflow | None, int]:
        report = Problems(str(PurePath(self.report.file).parent / name))
        try:
            text, chain = path.read_bytes().decode("utf-8-sig"), (*self.chain, path)
        except UnicodeDecodeError as error:
            report.problem(1, f"the file is not UTF-8: byte {error.start} can't be read")
        except OSError as error:
            report.problem(1, f"the file can't be read: {error.strerror}")
        else:
            file = _FileReader(text, report, path.parent, chain, self.shared, level + 1)
            workflow = file.read()
            self.report.problems += report.problems
            return (None if report.problems else workflow), file.depth
        self.report.problems += report.problems
        return None, 1


def _name_fault(name: str) -> str | None:
    path = PurePosixPath(name)
    if "{{" in name:
        return "it must be a file's name as it is, not an expression"
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        return "it must be a path beneath the directory of this file, without '..'"
    return (
        None
        if path.suffix in {".yaml", ".yml"}
        else "workflows that are installed by their id are not run here; "
        "name a file, such as inner.yaml"
    )


def _file_fault(path: Path, directory: Path) -> str | None:
    """Return why the file can't be read, else None.

    A link may lead out of the directory, and reading a pipe would never end.
    """
    parts = path.relative_to(directory).parts
    steps = [directory.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)]
    try:
        if any(one.is_symlink() for one in steps):
            return "it must not be a symbolic link, nor lead through one"
        found = path.stat()
    except (OSError, ValueError):
        return "there is no such file"
    too_large = "it is larger than 5 MiB" if found.st_size > MAX_BYTES else None
    return too_large if stat.S_ISREG(found.st_mode) else "it is no regular file"
