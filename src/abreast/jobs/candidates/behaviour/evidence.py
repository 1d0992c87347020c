"""Finds calls of the target without tests: of a program, by type hints, or by a model.

The calls are recorded once, with the original. The confined child makes them again, as it runs
tests.
"""

import ast
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from abreast.executors.commands import CommandRunner
from abreast.jobs.candidates.behaviour.bundle import BUNDLE, write_bundle
from abreast.jobs.candidates.behaviour.trace import Watched
from abreast.jobs.candidates.behaviour.verdict import BaselineFailed, errors_of
from abreast.jobs.candidates.inputs.generate import GeneratedCall, whole_call
from abreast.jobs.candidates.inputs.plain_values import NotPlain, Plain
from abreast.jobs.candidates.source.target import Target
from abreast.jobs.candidates.values.invocation import RecordInvalid
from abreast.jobs.candidates.values.snapshot import from_plain
from abreast.worktrees.background import run_in_thread

HINTED_CALLS: Final = 120  # that are drawn from type hints
PROPOSED_CALLS: Final = 60  # of a model that are tried
_MAX_CALLS: Final = 200  # of a trace that are kept
_LONGEST_CALLS: Final = 40  # of these: the ones that took longest; the others are the first ones
_MAX_LOG_BYTES: Final = 64 << 20
_ERROR_LINES: Final = 3

# Loaded by every Python of the traced program as it starts, from a directory on PYTHONPATH. A
# module of the same name that the user has is loaded afterwards.
_STARTUP: Final = f"""
import os, sys
place = os.path.dirname(os.path.abspath(__file__))
try:
    if sys.version_info >= (3, 11):
        from {BUNDLE}.child.recording import start
        start(place)
except Exception as error:
    print("abreast: calls are not recorded:", error, file=sys.stderr)
sys.path[:] = [one for one in sys.path if one != place]
sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize
except ImportError:
    pass
"""


@dataclass(frozen=True, slots=True)
class EvidenceSources:
    """What calls the target besides tests: which kinds of evidence a verdict stands on.

    Attributes:
        doctests: Whether the doctests of the target's file are run.
        scripts: Programs that call it, from the directory of the project.
        trace: A command; its calls of the target are recorded, and made again.
        hints: Whether it is called with what Hypothesis makes of its type hints.
        calls_by: The name of a model that proposes calls.
    """

    doctests: bool = False
    scripts: tuple[str, ...] = ()
    trace: str | None = None
    hints: bool = False
    calls_by: str | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The names of these kinds of evidence."""
        named = {
            "doctests": self.doctests,
            "workload": bool(self.scripts),
            "trace": self.trace is not None,
            "type hints": self.hints,
            "proposed calls": self.calls_by is not None,
        }
        return tuple(name for name, given in named.items() if given)

    def workloads(self) -> tuple[dict[str, Any], ...]:
        """Those that the child runs as they are, for its orders."""
        doctests = [{"kind": "doctests"}] if self.doctests else []
        return (*doctests, *({"kind": "script", "path": path} for path in self.scripts))


def hinted_workload() -> dict[str, Any]:
    """The workload that draws calls from type hints, for a run of the original."""
    return {"kind": "hints", "count": HINTED_CALLS}


def proposed_workload(reply: str) -> dict[str, Any]:
    """The workload that makes the calls of a model's reply, for a run of the original."""
    return {"kind": "expressions", "texts": expressions_in(reply)[:PROPOSED_CALLS]}


def expressions_in(code: str) -> list[str]:
    """Return the expressions of a Python text that have a call in them, each once.

    Of a text that is no Python as a whole, its lines are read one by one.
    """
    try:
        bodies = [ast.parse(code).body]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        bodies = list(map(_statements_in, code.splitlines()))
    found: dict[str, None] = {}
    for statement in (one for body in bodies for one in body):
        if isinstance(statement, ast.Expr | ast.Assign | ast.Assert):
            # What the model believes the result to be is no evidence.
            called = statement.test if isinstance(statement, ast.Assert) else statement.value
            if isinstance(called, ast.Compare):
                called = called.left
            if any(isinstance(node, ast.Call) for node in ast.walk(called)):
                found[ast.unparse(called)] = None
    return list(found)


def _statements_in(line: str) -> list[ast.stmt]:
    try:
        return ast.parse(line.strip().removeprefix(">>> ")).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def calls_workload(label: str, calls: Sequence[Plain]) -> dict[str, Any]:
    """The workload that makes recorded calls again."""
    made = [GeneratedCall(str(number), one).to_json() for number, one in enumerate(calls)]
    return {"kind": "calls", "label": label, "calls": made}


def usable_calls(watched: Watched, none: str) -> list[Plain]:
    """Return the calls of a run on which the original raised nothing, each once.

    Raises `BaselineFailed` if there are none; `none` is then the reason.
    """
    if watched.failure:
        raise BaselineFailed(watched.reason)
    found: dict[Plain, None] = {}
    for one in watched.invocations:
        if not errors_of(one.after):
            try:
                found[whole_call(one.before)] = None
            except NotPlain:
                continue
    if not found:
        raise BaselineFailed(none)
    return list(found)


async def traced_calls(
    command: str, commands: CommandRunner, *, target: Target, root: Path, cwd: Path, python: str
) -> list[Plain]:
    """Run a command of the user in `cwd`, unconfined, and return the calls that it made.

    Raises `BaselineFailed` if it made none that can be made again.
    """
    with tempfile.TemporaryDirectory(prefix="abreast-trace-") as place:
        directory = Path(place)
        await run_in_thread(lambda _: _prepare(directory, target, root))
        environment = {
            **os.environ,
            # `python` is the project's own.
            "PATH": f"{Path(python).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "PYTHONPATH": os.pathsep.join(filter(None, (place, os.environ.get("PYTHONPATH", "")))),
        }
        finished = await commands.run(["sh", "-c", command], cwd=str(cwd), env=environment)
        logged, failed = await run_in_thread(lambda _: _read_logs(directory))
    if logged:
        return _choose(logged)
    errors = tuple(finished.stderr.decode("utf-8", "replace").strip().splitlines()[-_ERROR_LINES:])
    code = f"; it ended with exit code {finished.exit_code}" if finished.exit_code else ""
    unfit = f"; {failed} calls have arguments that can't be made again" if failed else ""
    raise BaselineFailed(f"{command!r} makes no call of {target.qualname}{unfit}{code}", errors)


def _prepare(directory: Path, target: Target, root: Path) -> None:
    write_bundle(directory)
    orders = {"top": str(root), "file": str(root / target.file), "qualname": target.qualname}
    (directory / "trace.json").write_text(json.dumps(orders), "ascii")
    (directory / "sitecustomize.py").write_text(_STARTUP, "utf-8")


def _read_logs(directory: Path) -> tuple[list[tuple[float, Plain]], int]:
    """Return the logged calls with their seconds, and how many can't be made again."""
    found: dict[Plain, float] = {}
    failed = 0
    for seconds, nodes in _lines(directory):
        try:
            call = whole_call(from_plain(nodes))
        except (NotPlain, RecordInvalid):
            failed += 1
            continue
        found[call] = max(found.get(call, 0.0), seconds)
    return [(seconds, call) for call, seconds in found.items()], failed


def _lines(directory: Path) -> Iterator[tuple[float, Any]]:
    for path in sorted(directory.glob("calls-*.jsonl"), key=lambda one: one.stat().st_mtime_ns):
        with path.open("rb") as file:
            # A process that was killed has left half a line.
            for line in file.read(_MAX_LOG_BYTES).split(b"\n")[:-1]:
                seconds, nodes = json.loads(line)
                yield float(seconds), nodes


def _choose(logged: list[tuple[float, Plain]]) -> list[Plain]:
    """Return the calls that took longest and the first of the others, in their order."""
    numbers = range(len(logged))
    longest = sorted(numbers, key=lambda at: -logged[at][0])[:_LONGEST_CALLS]
    others = [at for at in numbers if at not in set(longest)]
    kept = sorted([*longest, *others[: _MAX_CALLS - len(longest)]])
    return [logged[at][1] for at in kept]
