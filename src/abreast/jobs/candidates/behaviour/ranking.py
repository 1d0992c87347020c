"""Ranks the functions of a project by how long the tests spend in them."""

import ast
import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from abreast.jobs.candidates.behaviour.bundle import PROGRAM, write_bundle
from abreast.jobs.candidates.behaviour.trace import Tests
from abreast.jobs.candidates.behaviour.verdict import BaselineFailed
from abreast.jobs.candidates.source.target import Target
from abreast.worktrees.background import run_in_thread
from abreast.worktrees.confinement import ResourceLimits, run_confined
from abreast.worktrees.slot import Slot
from abreast.worktrees.staging import remove_tree

_NUMBERS: Final = count()
_MAX_BYTES: Final = 16 << 20
_LINES: Final = 3  # of its output that are shown if it fails


@dataclass(frozen=True, slots=True)
class RankedFunction:
    """A function of the project, and what the tests spend in it.

    Attributes:
        seconds: Its own time and that of libraries and built-ins that it calls.
        share: Of the time of all functions that were ranked.
    """

    file: str
    qualname: str
    calls: int
    seconds: float
    share: float

    @property
    def target(self) -> Target:
        """The function, as a target."""
        return Target(self.file, self.qualname)


async def rank_functions(
    slot: Slot, tests: Tests, files: Sequence[str], limits: ResourceLimits
) -> list[RankedFunction]:
    """Run the tests in the slot, and return the functions of these files, the slowest first.

    Raises `BaselineFailed` if the tests can't be run.
    """
    place = slot.scratch / f"rank-{slot.index}-{next(_NUMBERS)}"
    orders = {
        "top": str(slot.repository.top),
        "slot": str(slot.path),
        "names": tests.names,
        "workloads": tests.workloads,
        "roots": sorted({_root_of(slot.path, file) for file in files}),
    }
    environment = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [tests.python, "-c", PROGRAM.replace(".child.main", ".child.ranking"), str(place)]

    def prepare() -> None:
        place.mkdir(mode=0o700)
        write_bundle(place)
        (place / "orders.json").write_text(json.dumps(orders), "ascii")

    try:
        await run_in_thread(lambda _: prepare())
        ran = await run_confined(
            command, slot, limits=limits, extra_env=environment, writable=[place]
        )
        said = await run_in_thread(lambda _: _read(place / "said"))
    finally:
        with contextlib.suppress(OSError):  # closing the pool tries again, and reports why not
            await run_in_thread(lambda _: remove_tree(place))
    if said is None:
        output = (ran.stderr or ran.stdout).decode("utf-8", "replace").strip().splitlines()
        raise BaselineFailed("the tests could not be profiled", tuple(output[-_LINES:]))
    return await run_in_thread(lambda _: _ranked(said, slot.path, files))


def _root_of(top: Path, file: str) -> str:
    """Return the directory that a file is imported from, from `top`."""
    place = (top / file).parent
    while place != top and (place / "__init__.py").exists():
        place = place.parent
    return str(place.relative_to(top))


def _read(path: Path) -> list[Any] | None:
    """Return the rows of the child, not trusted; None if it did not come to its end."""
    if path.is_symlink() or not path.is_file():
        return None
    with path.open("rb") as file:
        for line in file.read(_MAX_BYTES).splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError):
                kind, content = json.loads(line)
                if kind == "ranked":
                    return list(content["functions"])
    return None


def _ranked(rows: Sequence[Any], top: Path, files: Sequence[str]) -> list[RankedFunction]:
    wanted, tables = set(files), dict[str, Mapping[tuple[int, str], str]]()
    found: list[tuple[str, str, int, float]] = []
    for row in rows:
        try:
            file, line, name, calls, seconds = row
            key = (int(line), str(name))
            if file in wanted:
                table = tables.setdefault(file, dict(_qualnames(top / file)))
                if key in table:
                    found.append((file, table[key], int(calls), float(seconds)))
        except (TypeError, ValueError, OSError):
            continue
    whole = sum(seconds for *_, seconds in found) or 1.0
    found.sort(key=lambda one: -one[3])
    return [
        RankedFunction(file, name, calls, seconds, seconds / whole)
        for file, name, calls, seconds in found
    ]


def _qualnames(path: Path) -> Iterator[tuple[tuple[int, str], str]]:
    """Yield by first line and name the functions that may be targets: not those inside others."""
    waiting: list[tuple[ast.AST, str]] = [(ast.parse(path.read_bytes()), "")]
    while waiting:
        node, above = waiting.pop()
        for one in ast.iter_child_nodes(node):
            if isinstance(one, ast.ClassDef):
                waiting.append((one, f"{above}{one.name}."))
            elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min((mark.lineno for mark in one.decorator_list), default=one.lineno)
                yield (first, one.name), f"{above}{one.name}"
