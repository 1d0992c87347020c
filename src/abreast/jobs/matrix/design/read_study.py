"""Reads and checks a study's file: returns a `Study`, or reports every problem with its line."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar

from abreast.core.errors import Problem, WorkflowInvalid
from abreast.jobs.files.expressions import ExpressionInvalid, ExpressionText, parse
from abreast.jobs.files.problems import Problems, shown
from abreast.jobs.files.shapes import (
    ANY,
    MAPPING,
    NAME,
    NAMES,
    SWITCH,
    TEXT,
    KeySpec,
    ValueShape,
    fitting,
    is_number,
    one_of,
    refuse_unknown,
    whole,
)
from abreast.jobs.files.yaml_nodes import YamlNode, node_of, read_yaml
from abreast.jobs.matrix.design.input_files import files_of, inputs_of_file
from abreast.jobs.matrix.design.template_fields import ROOT, missing_fields
from abreast.jobs.matrix.scoring.scores import KINDS
from abreast.jobs.matrix.spec import (
    CONTROLS,
    ModelArm,
    ScoreSpec,
    Study,
    StudyInput,
    StudyStrategy,
    by_content,
    digest,
    is_image,
)
from abreast.models.media import MediaFile
from abreast.models.port import EFFORTS, THINKING_OPTIONS, full_name
from abreast.models.schema import check_schema

_TEMPERATURE: Final = ValueShape(
    lambda given: is_number(given) and given >= 0, "a number of at least 0", {"type": "number"}
)
_MAX_FIELDS: Final = 20  # of inputs, listed in a message
_STUDY: Final[dict[str, KeySpec]] = {
    "name": KeySpec(NAME),
    "models": KeySpec(
        ValueShape(lambda given: isinstance(given, list) and bool(given), "a list of models", {}),
        required=True,
    ),
    "strategies": KeySpec(
        ValueShape(
            lambda given: isinstance(given, dict) and bool(given), "a mapping of strategies", {}
        ),
        required=True,
    ),
    "inputs": KeySpec(
        ValueShape(
            lambda given: isinstance(given, (str, list)),
            "a pattern such as data/*.jsonl, or a list",
            {},
        ),
        required=True,
    ),
    "scores": KeySpec(ValueShape(lambda given: isinstance(given, list), "a list of scores", {})),
    "repeats": KeySpec(whole(1, 10_000)),
    "controls": KeySpec(
        ValueShape(lambda given: isinstance(given, list), f"a list of {', '.join(CONTROLS)}", {})
    ),
    "truth": KeySpec(NAME, about="The field of an input that holds the right answer"),
    "lane_width": KeySpec(whole(1, 10_000)),
    "warm": KeySpec(SWITCH),
}
_THINKING: Final[dict[str, KeySpec]] = {
    "reasoning": KeySpec(one_of(EFFORTS)),
    "thinking_tokens": KeySpec(whole(0)),
}
_IMAGES: Final = ValueShape(
    lambda given: NAME.fits(given) or NAMES.fits(given),
    "the name of a field, or a list of them",
    {},
)
_CALL_OPTIONS: Final[dict[str, KeySpec]] = {
    "system": KeySpec(TEXT),
    "schema": KeySpec(ANY),
    "temperature": KeySpec(_TEMPERATURE),
    "max_tokens": KeySpec(whole(1)),
    **_THINKING,
    "images": KeySpec(_IMAGES, about="The fields of an input that are paths of images"),
}
_STRATEGIES: Final[dict[str, dict[str, KeySpec]]] = {
    "prompt": {"prompt": KeySpec(TEXT, required=True), **_CALL_OPTIONS},
    "file": {"file": KeySpec(NAME, required=True), **_CALL_OPTIONS},
    "python": {"python": KeySpec(NAME, required=True)},
    "sample": {"sample": KeySpec(MAPPING, required=True), "images": KeySpec(_IMAGES)},
    "workflow": {"workflow": KeySpec(NAME, required=True)},
}

T = TypeVar("T")
CodeOf = Callable[[str], str]
"""Returns the source that decides what a `module:function` does; raises ValueError if it can't."""


def load_study(
    text: str,
    file: str,
    directory: Path,
    *,
    code_of: CodeOf,
    check_sample: Callable[[Mapping[str, Any]], str | None],
) -> Study:
    """Read the study of a file.

    Raises `WorkflowInvalid` with all problems, each with its file and line.
    """
    report = Problems(file)
    node = read_yaml(text, report)
    study = (
        None
        if node is None
        else _Reader(text, file, directory, report, code_of, check_sample).study(node)
    )
    warnings = report.settled()
    if study is None:  # pragma: no cover - unreadable files are reported above
        raise WorkflowInvalid.of([Problem(file, 1, "the file can't be read")])
    return replace(study, warnings=warnings)


def study_of(
    facts: Mapping[str, Any],
    rows: Sequence[tuple[str, Any]],
    directory: Path,
    *,
    text: str,
    code_of: CodeOf,
    check_sample: Callable[[Mapping[str, Any]], str | None],
) -> Study:
    """The study of a mapping with the keys of a file, and its inputs with their default names.

    `text` is what is recorded in place of a file's. Raises ValueError with all problems.
    """
    report = Problems("")
    reader = _Reader(text, "", directory, report, code_of, check_sample, rows=rows)
    study = reader.study(node_of({"matrix": {"inputs": [], **facts}}))
    try:
        report.settled()
    except WorkflowInvalid as error:
        raise ValueError("\n".join(problem.text for problem in error.problems)) from None
    if study is None:  # pragma: no cover - only a file can lack the mapping
        raise ValueError("a study is a mapping")
    return study


@dataclass(slots=True)
class _Reader:
    text: str
    file: str
    directory: Path
    report: Problems
    code_of: CodeOf
    check_sample: Callable[[Mapping[str, Any]], str | None]
    # Each with its file, if it has one of its own, and its line in the study.
    templates: list[tuple[ExpressionText, str, int]] = field(default_factory=list)
    rows: Sequence[tuple[str, Any]] | None = None
    """The inputs, if they are not in the file."""

    def study(self, root: YamlNode) -> Study | None:
        node = root.get("matrix")
        if node is None or node.kind != "mapping":
            self.report.problem(
                root.line, "a study is a mapping with the one key 'matrix', and a mapping in it"
            )
            return None
        for key in root.pairs:
            if key != "matrix":
                self.report.problem(root.line_of(key), f"there is no {shown(key)} beside 'matrix'")
        refuse_unknown(node, _STUDY, "a matrix", self.report)
        given = fitting(node, _STUDY, "the matrix", self.report)
        truth = str(given["truth"].value) if "truth" in given else "truth"
        models = self._entries("models", given, self._model)
        pairs = given["strategies"].items() if "strategies" in given else ()
        strategies = [made for name, entry in pairs if (made := self._strategy(name, entry))]
        columns = {name for made in strategies for name in made.images or ()}
        inputs = self._inputs(given["inputs"], truth, columns) if "inputs" in given else []
        if inputs:
            self._check_fields(inputs)
        scores = self._entries("scores", given, self._score)
        controls = self._controls(given["controls"]) if "controls" in given else ()
        self._check_distinct([(one.label, node.line) for one in models], "models")
        self._check_distinct([(one.name, one.line) for one in scores], "scores")
        for made in strategies:
            if made.name in CONTROLS:
                self.report.problem(
                    made.line, f"{made.name!r} is a control; give the strategy another name"
                )
        return Study(
            str(given["name"].value) if "name" in given else Path(self.file).stem,
            self.file,
            self.text,
            tuple(models),
            tuple(strategies),
            tuple(inputs),
            tuple(scores),
            given["repeats"].value if "repeats" in given else 1,
            controls,
            given["lane_width"].value if "lane_width" in given else 4,
            warm="warm" in given and given["warm"].value,
        )

    @staticmethod
    def _entries(
        word: str, given: Mapping[str, YamlNode], read: Callable[[YamlNode], T | None]
    ) -> list[T]:
        return (
            [made for entry in given[word].entries if (made := read(entry)) is not None]
            if word in given
            else []
        )

    def _check_distinct(self, named: list[tuple[str, int]], what: str) -> None:
        names = [name for name, _ in named]
        for place, (name, line) in enumerate(named):
            if name in names[:place]:
                self.report.problem(line, f"two {what} are called {name!r}; give one another name")

    # --- models and strategies --------------------------------------------------------------------

    def _model(self, node: YamlNode) -> ModelArm | None:
        words = {
            "name": KeySpec(NAME, required=True),
            "label": KeySpec(NAME),
            "temperature": KeySpec(_TEMPERATURE),
            "max_tokens": KeySpec(whole(1)),
            **_THINKING,
        }
        if node.kind == "mapping":
            refuse_unknown(node, words, "a model", self.report)
            facts = {
                word: one.value
                for word, one in fitting(node, words, "a model", self.report).items()
            }
        else:
            facts = {"name": node.plain(2)}
        name = facts.get("name")
        if isinstance(name, str):
            facts["name"] = name = full_name(name)
        if not isinstance(name, str) or "/" not in name:
            self.report.problem(
                node.line,
                f"a model is named provider/model, such as local/smollm2, not {shown(name)}",
            )
            return None
        return ModelArm(
            **{**facts, "label": self._label(facts.get("label", name), node.line, "a model")}
        )

    def _label(self, name: str, line: int, what: str) -> str:
        if "~" in name or "\n" in name or not name.strip():
            self.report.problem(
                line, f"the name of {what} must be a line without '~', not {shown(name)}"
            )
        return name

    def _strategy(self, name: str, node: YamlNode) -> StudyStrategy | None:
        self._label(name, node.line, "a strategy")
        what = f"the strategy {name!r}"
        if node.kind == "value" and isinstance(node.value, str):
            return self._prompt(name, node, {"file": node})
        kind = next((one for one in _STRATEGIES if node.get(one) is not None), None)
        if node.kind != "mapping" or kind is None:
            self.report.problem(
                node.line,
                f"{what} must be a prompt's file, or a mapping with one of "
                f"{', '.join(_STRATEGIES)}",
            )
            return None
        words = _STRATEGIES[kind]
        refuse_unknown(node, words, what, self.report)
        given = fitting(node, words, what, self.report)
        if kind not in given:
            return None
        makers: dict[str, Callable[[], StudyStrategy | None]] = {
            "prompt": lambda: self._prompt(name, node, given),
            "file": lambda: self._prompt(name, node, given),
            "python": lambda: self._python(name, node, str(given[kind].value)),
            "sample": lambda: self._sample(name, node, given),
            "workflow": lambda: self._workflow(name, node, given[kind]),
        }
        return makers[kind]()

    def _python(self, name: str, node: YamlNode, call: str) -> StudyStrategy:
        try:
            return StudyStrategy(
                name, "python", node.line, call=call, code=digest(self.code_of(call))
            )
        except ValueError as error:  # it can't run here, which is reported before the run starts
            return StudyStrategy(name, "python", node.line, call=call, code=f"missing: {error}")

    def _workflow(self, name: str, node: YamlNode, place: YamlNode) -> StudyStrategy:
        return StudyStrategy(
            name,
            "workflow",
            node.line,
            file=str(place.value),
            code=digest(self._read(str(place.value), place.line) or ""),
        )

    def _prompt(
        self, name: str, node: YamlNode, given: Mapping[str, YamlNode]
    ) -> StudyStrategy | None:
        place = given.get("prompt") or given["file"]
        text = str(place.value) if "prompt" in given else self._read(str(place.value), place.line)
        if text is None:
            return None
        system = str(given["system"].value) if "system" in given else None
        schema = self._schema(given["schema"]) if "schema" in given else None
        images = _images(given.get("images"))
        words = ("temperature", "max_tokens", *THINKING_OPTIONS)
        facts = {word: given[word].value for word in words if word in given}
        prompt = self._template(text, place.line, "" if "prompt" in given else str(place.value))
        if prompt is None:
            return None
        return StudyStrategy(
            name,
            "prompt",
            node.line,
            prompt,
            None if system is None else self._template(system, place.line),
            schema,
            code=digest([text, system, schema, facts, *([images] if images else [])]),
            images=images,
            **facts,
        )

    def _sample(self, name: str, node: YamlNode, given: Mapping[str, YamlNode]) -> StudyStrategy:
        words, images = given["sample"], _images(given.get("images"))
        facts = words.plain()
        if "images" in facts:
            self.report.problem(
                words.line, f"the strategy {name!r}: put images beside sample; it names fields"
            )
        if wrong := self.check_sample(facts):
            self.report.problem(words.line, f"the strategy {name!r}: {wrong}")
        return StudyStrategy(
            name,
            "sample",
            node.line,
            self._template(str(facts.get("prompt", "")), words.line),
            images=images,
            facts=facts,
            code=digest([facts, images] if images else facts),
        )

    def _template(self, text: str, line: int, file: str = "") -> ExpressionText | None:
        try:
            self.templates.append((parse(text), file, line))
            return self.templates[-1][0]
        except ExpressionInvalid as error:
            self.report.problem(line, str(error))
            return None

    def _check_fields(self, inputs: list[StudyInput]) -> None:
        """Report every field that a template reads and an input lacks.

        Otherwise calls with incomplete prompts would be paid for.
        """
        given = [(one.id, one.value) for one in inputs]
        known = sorted({str(name) for one in inputs for name in one.value})
        fields = ", ".join(known[:_MAX_FIELDS]) + (
            " and others" if len(known) > _MAX_FIELDS else ""
        )
        for template, file, line in self.templates:
            for one in missing_fields(template, given):
                where = f"{file}:{one.line + 1}: " if file else ""
                close = (
                    get_close_matches(one.keys[1], known, 1)
                    if one.keys[0] == ROOT and len(one.keys) > 1
                    else []
                )
                meant = (
                    f"; did you mean {ROOT}.{close[0]}?"
                    if close and len(one.lacking) == len(inputs)
                    else ""
                )
                self.report.problem(line, f"{where}{one}{meant}; the fields are {fields}")

    def _schema(self, node: YamlNode) -> Mapping[str, Any] | None:
        found = node.plain()
        if isinstance(found, str):
            try:
                found = json.loads(self._read(found, node.line) or "{}")
            except ValueError as error:
                self.report.problem(node.line, f"{found} is no JSON: {error}")
                return None
        try:
            if not isinstance(found, dict):
                raise ValueError("a schema is a mapping, or the file of one")  # noqa: TRY301 - reported below with its line
            check_schema(found)
        except ValueError as error:
            self.report.problem(node.line, str(error))
            return None
        return found

    def _read(self, name: str, line: int) -> str | None:
        try:
            return (self.directory / name).read_text("utf-8")
        except OSError as error:
            self.report.problem(
                line, f"{name} can't be read: {(error.strerror or str(error)).lower()}"
            )
        except UnicodeDecodeError:
            self.report.problem(line, f"{name} is not UTF-8; convert it")
        return None

    # --- inputs -----------------------------------------------------------------------------------

    def _inputs(self, node: YamlNode, truth: str, columns: set[str]) -> list[StudyInput]:
        """The inputs; `columns` are fields that strategies name as paths of images."""
        if self.rows is not None:
            found = [(name, value, node.line) for name, value in self.rows]
        elif node.kind == "list":
            found = [
                (f"{number:04}", one.plain(), one.line) for number, one in enumerate(node.entries)
            ]
        else:
            found = self._from_files(str(node.value), node.line)
        inputs: list[StudyInput] = []
        seen: set[str] = set()
        for name, value, line in found:
            facts = value if isinstance(value, dict) else {"text": value}
            label = self._label(str(facts.get("id", name)), line, "an input")
            if label in seen:
                self.report.problem(
                    line, f"two inputs are called {label!r}; give each an id of its own"
                )
            seen.add(label)
            files = self._files(label, facts, columns, line)
            whole = digest(by_content(facts, files))
            inputs.append(StudyInput(label, facts, facts.get(truth), whole, files))
        if not inputs:
            which = "" if self.rows is not None else f": {shown(node.plain(2))} gives none"
            self.report.problem(node.line, f"there are no inputs{which}")
        return inputs

    def _files(
        self, label: str, facts: Mapping[str, Any], columns: set[str], line: int
    ) -> dict[str, MediaFile]:
        """The images and PDF files of an input, by field; their paths count from the study."""
        found: dict[str, MediaFile] = {}
        for name in [*(key for key in facts if is_image(facts[key])), *sorted(columns)]:
            if name in found:
                continue
            value = facts.get(name)
            path = value["image"] if isinstance(value, Mapping) and is_image(value) else value
            if not isinstance(path, str) or not path:
                self.report.problem(
                    line, f"the input {label!r} has no path of an image in {name!r}"
                )
                continue
            try:
                found[name] = MediaFile.read(self.directory / path)
            except ValueError as error:
                self.report.problem(line, f"the input {label!r}: {error}")
        return found

    def _from_files(self, pattern: str, line: int) -> list[tuple[str, Any, int]]:
        if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            self.report.problem(
                line, f"inputs are beside the study: {pattern} leads out of its directory"
            )
            return []
        found: list[tuple[str, Any, int]] = []
        for path in files_of(self.directory, pattern):
            for one in inputs_of_file(path, str(path.relative_to(self.directory))):
                if isinstance(one, str):
                    self.report.problem(line, one)
                else:
                    found.append((*one, line))
        return found

    # --- scores -----------------------------------------------------------------------------------

    def _score(self, node: YamlNode) -> ScoreSpec | None:
        if node.kind == "value":
            kind, argument, name, model = node.value, None, None, None
        else:
            kind = next((one for one in node.pairs if one in KINDS), None)
            argument = node.pairs[kind][1].plain() if kind else None
            name, model = (
                one.plain(2) if (one := node.get(word)) else None for word in ("name", "model")
            )
            refuse_unknown(node, (*KINDS, "name", "model"), "a score", self.report)
        if kind not in KINDS:
            self.report.problem(
                node.line,
                f"there is no score {shown(kind)}; {self.report.instead(str(kind), KINDS)}",
            )
            return None
        if wrong := _wrong_argument(kind, argument):
            self.report.problem(node.line, f"the score {kind!r} {wrong}")
            return None
        code = ""
        if kind == "schema":
            argument = self._schema(node.pairs[kind][1])
        elif kind == "python":
            try:
                code = digest(self.code_of(str(argument)))
            except ValueError as error:
                self.report.problem(node.line, str(error))
        field_name = (
            argument
            if isinstance(argument, str) and kind in ("precision", "recall", "f1", "exact")
            else None
        )
        return ScoreSpec(
            name or (f"{kind}:{field_name}" if field_name else kind),
            kind,
            argument,
            full_name(model) if isinstance(model, str) else model,
            code,
            node.line,
        )

    def _controls(self, node: YamlNode) -> tuple[str, ...]:
        wanted = one_of(CONTROLS)
        for one in node.entries:
            if not wanted.fits(one.plain(2)):
                self.report.problem(
                    one.line, f"a control is {wanted.wanted}, not {shown(one.plain(2))}"
                )
        return tuple(str(one.plain(2)) for one in node.entries)


def _images(node: YamlNode | None) -> tuple[str, ...] | None:
    """The fields that a strategy names as images; None if it names none."""
    if node is None:
        return None
    given = node.plain()
    return tuple(given) if isinstance(given, list) else (str(given),)


def _wrong_argument(kind: str, argument: object) -> str | None:
    """What is wrong with the argument of a score; None if it is valid."""
    if kind in ("regex", "python", "judge") and not (isinstance(argument, str) and argument):
        return "needs a text: a pattern, a module:function, a question"
    if kind == "regex":
        try:
            re.compile(str(argument))
        except re.error as error:
            return f"has no valid pattern: {error}"
    if kind == "schema" and argument is None:
        return "needs a schema, or the file of one"
    if kind == "numeric" and not (
        argument is None or is_number(argument) or isinstance(argument, Mapping)
    ):
        return "takes a tolerance, or {rel: ..., abs: ...}"
    return None
