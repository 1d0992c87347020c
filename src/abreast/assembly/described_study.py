"""A study that a Python program describes: its functions, open models and rows become a `Study`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from abreast.assembly.functions import find_function_in, function_text, module_text
from abreast.assembly.workflow_tools import call_function, wrong_sample
from abreast.jobs.matrix.design.input_files import files_of, inputs_of_file
from abreast.jobs.matrix.design.plain_rows import rows_in
from abreast.jobs.matrix.design.read_study import study_of
from abreast.models.schema import schema_of

if TYPE_CHECKING:
    from abreast.jobs.matrix.spec import Study
    from abreast.jobs.sample.checks import Check
    from abreast.models.port import Model


@dataclass(slots=True)
class StudyParts:
    """The functions and open models that a description of a study has named."""

    directory: Path
    functions: dict[str, Callable[..., Any]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    """The text of each function: when it changes, its cells run again."""
    opened: dict[str, Model] = field(default_factory=dict)

    def find(self, call: str) -> Callable[..., Any]:
        """The function of a strategy or a score; ValueError if there is none."""
        return self.functions.get(call) or find_function_in(call, str(self.directory))

    def code_of(self, call: str) -> str:
        """The text that decides what a function does."""
        return self.texts.get(call) or module_text(self.find(call))

    def study(
        self,
        name: str,
        *,
        models: Sequence[object],
        strategies: Mapping[str, object],
        inputs: object,
        scores: Sequence[object],
        options: Mapping[str, object],
    ) -> Study:
        """The study; `options` are other keys of a study's file.

        Raises ValueError or TypeError with what is wrong.
        """
        _check_form("models", models, Sequence, "a list of models")
        _check_form("strategies", strategies, Mapping, "a mapping of names to strategies")
        _check_form("scores", scores, Sequence, "a list of scores")
        facts = {
            "name": name,
            "models": [self._model(one) for one in models],
            "strategies": {word: self._strategy(word, one) for word, one in strategies.items()},
            "scores": [self._score(one) for one in scores],
            **options,
        }
        text = json.dumps({"matrix": facts, "functions": self.texts}, indent=1, default=repr)
        return study_of(
            facts,
            input_rows(inputs, self.directory),
            self.directory,
            text=text,
            code_of=self.code_of,
            check_sample=wrong_sample,
        )

    def _add(self, call: str, function: Callable[..., Any], text: str) -> str:
        self.functions[call], self.texts[call] = function, text
        return call

    def _model(self, given: Any) -> object:  # noqa: ANN401 - checked by the reader
        if hasattr(given, "complete") and hasattr(given, "name"):
            self.opened[str(given.name)] = given
            return str(given.name)
        return given

    def _strategy(self, name: str, given: object) -> object:
        if isinstance(given, str):
            return {"prompt": given}
        if isinstance(given, PathLike):
            return {"file": fspath(given)}
        if callable(given):
            return {"python": self._add(f"strategies.{name}", given, function_text(given))}
        if not isinstance(given, Mapping):
            return given
        found = dict(given)
        if callable(found.get("python")):
            own = found["python"]
            found["python"] = self._add(f"strategies.{name}", own, function_text(own))
        if isinstance(found.get("schema"), type):
            found["schema"] = schema_of(found["schema"])
        return found

    def _score(self, given: object) -> object:
        if isinstance(given, Mapping):
            own = given.get("python")
            if not callable(own):
                return given
            name = str(given.get("name") or _name_of(own))
            return {**given, **self._python_score(name, own, function_text(own))}
        if hasattr(given, "run") and hasattr(given, "costs"):
            return self._check(given)  # type: ignore[arg-type] # it has the methods of a check
        if callable(given):
            return self._python_score(_name_of(given), given, function_text(given))
        return given

    def _python_score(self, name: str, own: Callable[..., Any], text: str) -> dict[str, str]:
        return {"python": self._add(f"scores.{name}", own, text), "name": name}

    def _check(self, check: Check) -> dict[str, object]:
        """A check as a score: 1 if the output passes it, or the check's own score."""
        from abreast.jobs.sample.checks import CheckedDraft, Function, Judge

        if isinstance(check, Judge):
            question = f"Does the answer meet this: {check.requirement}?"
            model = {} if check.model is None else {"model": self._model(check.model)}
            return {"judge": question, "name": check.name, **model}

        async def score(row: Mapping[str, Any]) -> float:
            answer: Any = check.run(CheckedDraft(row["output"], row["value"]))
            if isinstance(answer, Awaitable):
                answer = await answer
            elif callable(answer) and isinstance(check, Function):
                run = answer
                answer = await call_function(lambda _: run(), run)
                answer = check.verdict(await answer if isinstance(answer, Awaitable) else answer)
            return float(answer.ok) if answer.score is None else float(answer.score)

        return {**self._python_score(check.name, score, _check_text(check))}


def input_rows(given: object, directory: Path) -> list[tuple[str, Any]]:
    """The default name and value of each input: rows, a frame, or the files of a path."""
    if not isinstance(given, (str, PathLike)):
        return [(f"{number:04}", row) for number, row in enumerate(rows_in(given))]
    pattern = fspath(given)
    found: list[tuple[str, Any]] = []
    wrong: list[str] = []
    files = files_of(directory, str(pattern))
    if not files:
        raise ValueError(f"inputs: there is no file {pattern}")
    for one in (one for path in files for one in inputs_of_file(path)):
        if isinstance(one, str):
            wrong.append(one)
        else:
            found.append(one)
    if wrong:
        raise ValueError("\n".join(f"inputs: {one}" for one in wrong))
    return found


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return "lambda" if name == "<lambda>" else str(name)


def _check_text(check: object) -> str:
    """What decides a check's verdict: its fields, and the text of its function."""
    if not is_dataclass(check):
        return function_text(type(check))
    values = ((one.name, getattr(check, one.name)) for one in fields(check))
    return "\n".join(
        f"{name} = {function_text(value) if callable(value) else repr(value)}"
        for name, value in values
    )


def _check_form(word: str, given: object, form: type, wanted: str) -> None:
    if isinstance(given, str) or not isinstance(given, form):
        raise TypeError(f"{word} must be {wanted}, not {type(given).__name__}")
