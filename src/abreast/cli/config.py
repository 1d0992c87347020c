"""Settings, by precedence: flag, environment, `abreast.toml`, `[tool.abreast]`, default."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from abreast.cli.errors import UsageError, one_line, os_error_text
from abreast.core.frozen import record
from abreast.jobs.files import units

if TYPE_CHECKING:
    from abreast.agents.runner import AgentRunner
    from abreast.assembly.workflow_tools import Runner
    from abreast.models.lanes import LaneSettings
    from abreast.serve.named_models import NamedModel

T = TypeVar("T")

OWN_FILE: Final = "abreast.toml"
SHARED_FILE: Final = "pyproject.toml"
_PROJECT_MARKERS: Final = (OWN_FILE, SHARED_FILE, ".git")  # one of them makes a directory a project


@record(frozen=True, slots=True)
class ConfigSetting(Generic[T]):
    """A setting: its name in files and variables, the function that reads it, and its default."""

    name: str
    read: Callable[[object], T]
    default: T

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return f"ABREAST_{self.name.upper()}"


@record(frozen=True, slots=True)
class Layer:
    """Settings from one source: the environment or a file."""

    source: str
    values: Mapping[str, object]
    folder: Path | None = None
    lines: Mapping[str, int] = field(default_factory=dict)

    def place(self, name: str) -> str:
        """Where a setting is written: a line such as `abreast.toml:3`, or its variable."""
        if self.folder is None:
            return f"ABREAST_{name.upper()}"
        return f"{self.source}:{self.lines[name]}" if name in self.lines else self.source


@record(frozen=True, slots=True)
class ConfigValue(Generic[T]):
    """A setting's value and where it came from."""

    value: T
    source: str
    folder: Path | None = None


def _text(given: object) -> str:
    if not isinstance(given, str) or not given:
        raise ValueError(f"must be a text, not {units.quoted(given)}")
    return given


def _model(given: object) -> str:
    from abreast.models.port import full_name

    return full_name(_text(given))


def _optional(read: Callable[[object], T]) -> Callable[[object], T | None]:
    return read


STORE: Final[ConfigSetting[str | None]] = ConfigSetting("store", _text, None)
WIDTH: Final = ConfigSetting("width", partial(units.number, least=1), 8)
RETRIES: Final = ConfigSetting("retries", partial(units.number, least=0), 0)
TIMEOUT: Final[ConfigSetting[float | None]] = ConfigSetting(
    "timeout", _optional(units.duration), None
)
BUDGET: Final[ConfigSetting[str | None]] = ConfigSetting("budget", _optional(units.budget), None)
SEED: Final[ConfigSetting[int | None]] = ConfigSetting("seed", _optional(units.seed), None)
KEEP: Final = ConfigSetting("keep", units.size, 8 << 20)
PATIENCE: Final = ConfigSetting("patience", units.duration, 10.0)
MODEL: Final = ConfigSetting("model", _model, "local/smollm2")
DEFAULT: Final = "default"
"""The source of a value that is not set anywhere."""
LANES: Final = "lanes"
RUNNERS: Final = "runners"
_RUNNER_KEYS: Final = frozenset({"argv", "model", "stdin", "options"})
WORKFLOW: Final = "workflow"
AGENTS: Final = "agents"
SERVE: Final = "serve"
TABLES: Final = (LANES, RUNNERS, WORKFLOW, AGENTS, SERVE)
"""Tables that only files have: models' lanes, agents' command lines, bounds of workflows, ..."""

SETTINGS: Final[tuple[ConfigSetting[Any], ...]] = (
    STORE,
    WIDTH,
    RETRIES,
    TIMEOUT,
    BUDGET,
    SEED,
    KEEP,
    PATIENCE,
    MODEL,
)


class Config:
    """The settings of one working directory, and where each comes from."""

    def __init__(self, project: Path, layers: Sequence[Layer]) -> None:
        """Take the `layers` in order of precedence."""
        self.project = project
        self.layers = tuple(layers)

    @classmethod
    def load(cls, folder: Path | None = None) -> Config:
        """Read the environment, and the files of `folder` (or the working directory) and above.

        Raises `UsageError` for a file that can't be read.
        """
        here = folder or _working_directory()
        folders = (here, *here.parents)
        own = next(filter(None, (_own_layer(folder) for folder in folders)), None)
        shared = next(filter(None, (_shared_layer(folder) for folder in folders)), None)
        marked = next(
            (
                folder
                for folder in folders
                if any((folder / mark).exists() for mark in _PROJECT_MARKERS)
            ),
            here,
        )
        project = own.folder if own else shared.folder if shared else marked
        return cls(
            project or here,
            [layer for layer in (_environment_layer(), own, shared) if layer is not None],
        )

    def find(self, setting: ConfigSetting[T], flag: object = None) -> ConfigValue[T]:
        """The value of highest precedence, and its source.

        `flag` is the value from the command line, None if there is none.
        """
        if flag is not None:
            return ConfigValue(_read(setting, flag, f"--{setting.name}"), "the command line")
        for layer in self.layers:
            if setting.name in layer.values:
                place = layer.place(setting.name)
                value = _read(
                    setting,
                    layer.values[setting.name],
                    f"{place}: {setting.name}" if layer.folder else place,
                )
                return ConfigValue(value, place, layer.folder)
        return ConfigValue(setting.default, DEFAULT)

    def get(self, setting: ConfigSetting[T], flag: object = None) -> T:
        """The value of highest precedence."""
        return self.find(setting, flag).value

    def lanes(self) -> dict[str, LaneSettings]:
        """The lanes of models: the built-in ones, changed by the first file with a lanes table."""
        from abreast.models.lanes import PROVIDERS, read_lanes

        for layer in self.layers:
            if layer.folder is not None and LANES in layer.values:
                try:
                    return read_lanes(layer.values[LANES], layer.source, layer.folder)
                except ValueError as error:
                    raise UsageError(one_line(str(error))) from None
        return dict(PROVIDERS)

    def runners(self) -> dict[str, Runner]:
        """The command lines of agents.

        An example is `[runners.claude]` with `argv = ["claude", "-p", "{prompt}"]`.
        """
        from abreast.assembly.workflow_tools import Runner

        place, table = self._table(RUNNERS)
        found: dict[str, Runner] = {}
        for name, given in table.items():
            where = f"{place}: {RUNNERS}.{name}"
            if (
                not isinstance(given, dict)
                or not given.keys() <= _RUNNER_KEYS
                or "argv" not in given
            ):
                form = f'argv = ["{name}", "-p", "{{prompt}}"]'
                raise UsageError(
                    f"{where} must be a table with {form}, and perhaps model, stdin and options"
                )
            options = given.get("options", {})
            if not isinstance(options, dict):
                raise UsageError(
                    f'{where}.options must be a table, such as tools = ["--tools", "{{value}}"]'
                )
            for word, value in {
                **{word: value for word, value in given.items() if word != "options"},
                **{f"options.{one}": value for one, value in options.items()},
            }.items():
                if (
                    not isinstance(value, list)
                    or not value
                    or not all(isinstance(one, str) for one in value)
                ):
                    raise UsageError(f"{where}.{word} must be a list of texts")
            known = {one: tuple(value) for one, value in options.items()}
            argv, model, stdin = (tuple(given.get(word, ())) for word in ("argv", "model", "stdin"))
            found[name] = Runner(argv, model, stdin, known)
        return found

    def agents(self) -> dict[str, AgentRunner]:
        """The coding agents: those that abreast knows, and `[agents.NAME]` of the files."""
        from abreast.agents.known import read_agents

        place, table = self._table(AGENTS)
        try:
            return read_agents(table, place)
        except ValueError as error:
            raise UsageError(one_line(str(error))) from None

    def named_models(self) -> dict[str, NamedModel]:
        """The models that `[serve.models.NAME]` of the files name for clients of a server."""
        from abreast.serve.named_models import read_named_models

        place, table = self._table(SERVE)
        try:
            return read_named_models(table, place, self.lanes())
        except ValueError as error:
            raise UsageError(one_line(str(error))) from None

    def workflow(self) -> dict[str, int]:
        """The bounds of workflows: `max_items`, `max_output`."""
        place, table = self._table(WORKFLOW)
        readers: dict[str, Callable[[object], int]] = {
            "max_items": partial(units.number, least=1),
            "max_output": units.size,
        }
        found: dict[str, int] = {}
        for name, given in table.items():
            if name not in readers:
                raise UsageError(
                    f"{place}: {WORKFLOW} has no {name!r}; there are {', '.join(readers)}"
                )
            try:
                found[name] = readers[name](given)
            except ValueError as error:
                raise UsageError(f"{place}: {WORKFLOW}.{name}: {one_line(str(error))}") from None
        return found

    def _table(self, name: str) -> tuple[str, dict[str, Any]]:
        for layer in self.layers:
            if layer.folder is not None and name in layer.values:
                table = layer.values[name]
                if not isinstance(table, dict):
                    raise UsageError(f"{layer.place(name)}: {name} must be a table")
                return layer.source, table
        return "", {}


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except OSError:
        raise UsageError("the current directory is gone; go to one that exists") from None


def _environment_layer() -> Layer:
    values = {
        setting.name: os.environ[setting.variable]
        for setting in SETTINGS
        if os.environ.get(setting.variable)
    }
    return Layer("the environment", values)


def _own_layer(folder: Path) -> Layer | None:
    path = folder / OWN_FILE
    text = _file_text(path)
    return None if text is None else _layer(path, _table(path, text), text)


def _shared_layer(folder: Path) -> Layer | None:
    path = folder / SHARED_FILE
    text = _file_text(path)
    if text is None or "tool.abreast" not in text:
        return None
    values = _table(path, text).get("tool", {}).get("abreast")
    return (
        None if values is None else _layer(path, values, text[text.index("tool.abreast") :], text)
    )


def _file_text(path: Path) -> str | None:
    if not path.is_file():
        return None
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise UsageError(
            f"{path} can't be read ({os_error_text(error)}); see to its permissions"
        ) from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8; convert it") from None


def _table(path: Path, text: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not valid TOML: {one_line(str(error))}") from None


def _layer(path: Path, values: object, section: str, whole: str | None = None) -> Layer:
    if not isinstance(values, dict):
        raise UsageError(f"{path}: [tool.abreast] must be a table")
    first = whole.index(section) if whole else 0
    skipped = whole.count("\n", 0, first) if whole else 0
    lines = {name: skipped + at for name in values if (at := _line_number(section, name))}
    layer = Layer(str(path), values, path.parent, lines)
    known = [setting.name for setting in SETTINGS]
    for name in values:
        if name not in (*known, *TABLES):
            from difflib import get_close_matches

            close = get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            raise UsageError(f"{layer.place(name)}: there is no setting {name!r}; {hint}")
    return layer


def _line_number(text: str, name: str) -> int | None:
    found = re.search(rf"^\s*[\"']?{re.escape(name)}[\"']?\s*=", text, re.MULTILINE)
    return text.count("\n", 0, found.end()) + 1 if found else None


def _read(setting: ConfigSetting[T], given: object, place: str) -> T:
    try:
        return setting.read(given)
    except ValueError as error:
        raise UsageError(f"{place}: {one_line(str(error))}") from None
