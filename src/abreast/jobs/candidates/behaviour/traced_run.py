"""Runs the tests of a project in a slot, confined, and traces every call of the target.

    watched = await watch(slot, target, Tests(("tests/test_words.py",), python=sys.executable))
    behaviour = judge_behaviour(watched_original, watched, STRICT)

The child (`abreast.jobs.candidates.child`) runs under the project's interpreter, which needs no
abreast: its modules are copied to its directory, under a package name of their own. Its trace is
validated here field by field. The files of the slot are compared in this process, where the child
can't interfere.
"""

import contextlib
import json
import os
import signal
import stat
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeAlias

from abreast.executors.commands import CommandMissing, CommandRefused
from abreast.jobs.candidates.behaviour.bundle import PROGRAM, write_bundle
from abreast.jobs.candidates.behaviour.trace import KILLED, Failure, Signs, Tests, Trace, Watched
from abreast.jobs.candidates.behaviour.verdict import (
    CRASH,
    PYTEST_EXITS,
    Behaviour,
    judge_behaviour,
)
from abreast.jobs.candidates.behaviour.warm_parents import ParentLost, WarmProcess
from abreast.jobs.candidates.source.target import Target
from abreast.jobs.candidates.values.invocation import Places, RecordInvalid
from abreast.worktrees.background import StopRequest, run_in_thread
from abreast.worktrees.confinement import ConfinedResult, ResourceLimits, run_confined
from abreast.worktrees.slot import Slot
from abreast.worktrees.staging import remove_tree

LIMITS: Final = ResourceLimits()
_MAX_TRACE_BYTES: Final = 192 << 20
_OUTPUT_CHARACTERS: Final = 4_000  # of stdout and of stderr that are kept
_RUN_NUMBERS: Final = count()


async def watch(
    slot: Slot,
    target: Target,
    tests: Tests,
    *,
    limits: ResourceLimits = LIMITS,
    inputs: bytes | None = None,
    wanted: Places | None = None,
    parent: WarmProcess | None = None,
    modules: bool = False,
) -> Watched:
    """Run the tests in the slot as it is, and trace every call of the target.

    With `inputs`, call the target with those as well. `wanted` names slices of values that are too
    large to be recorded; their content is returned in `contents`. With `parent`, the process is
    forked from that one, which has the hash seed of `hash_seed_of(tests)`. With `modules`, it
    reports which modules it imported from libraries.

    The slot is neither written to before nor reset afterwards. The hash seed, and so the order of
    sets of strings, is one in all runs with tests and another in runs without. Whatever goes wrong
    with the run is in `failure`. Raises what `run_confined` raises for a closed slot or a killed
    sandbox.
    """
    place = slot.scratch / f"watch-{slot.index}-{next(_RUN_NUMBERS)}"
    orders = {**_orders(slot, target, tests, inputs, wanted), "modules": modules}
    try:
        before = await run_in_thread(lambda stop: _prepare(place, slot, orders, stop))
        try:
            ran = await _run_child(slot, tests, place, limits, parent)
        except (CommandMissing, CommandRefused) as error:
            return _failed_run("error", f"the project's Python could not be started: {error}")
        data, files = await run_in_thread(
            lambda stop: (
                _read_trace(place / "said"),
                # Each file that was changed has two states.
                sorted({name for name, _ in before ^ _file_states(slot.path, stop)}),
            )
        )
    finally:
        with contextlib.suppress(OSError):  # closing the pool tries again, and reports why not
            await run_in_thread(lambda _: remove_tree(place))
    return _watched_from(ran, limits, data, tuple(files))


def hash_seed_of(tests: Tests) -> int:
    """The hash seed of a traced run: one with tests, another without."""
    return 0 if tests.any else 1


async def _run_child(
    slot: Slot, tests: Tests, place: Path, limits: ResourceLimits, parent: WarmProcess | None
) -> ConfinedResult:
    command = [tests.python, "-c", PROGRAM, str(place)]
    environment = {
        "PYTHONHASHSEED": str(hash_seed_of(tests)),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    if parent is not None:
        with contextlib.suppress(ParentLost):
            return await run_confined(
                command,
                slot,
                limits=limits,
                extra_env=environment,
                writable=[place],
                start=parent.starter("main", place),
            )
    await run_in_thread(lambda _: write_bundle(place))
    return await run_confined(command, slot, limits=limits, extra_env=environment, writable=[place])


def _orders(
    slot: Slot, target: Target, tests: Tests, inputs: bytes | None, wanted: Places | None
) -> dict[str, Any]:
    return {
        "top": str(slot.repository.top),
        "slot": str(slot.path),
        "file": str(slot.mirror(target.file).relative_to(slot.path)),
        "qualname": target.qualname,
        "names": tests.names,
        "workloads": tests.workloads,
        "inputs": json.loads(inputs) if inputs else None,
        "wanted": [
            (*call, *place) for call, places in (wanted or {}).items() for place in sorted(places)
        ],
        **staged_orders(slot),
    }


def staged_orders(slot: Slot) -> dict[str, list[str]]:
    """What the child is told of the files that a candidate changes: all, new ones, removed ones."""
    found: dict[str, list[str]] = {"changed": sorted(slot.staged), "added": [], "removed": []}
    for name, done in sorted(slot.staged.items()):
        if done != "changed":
            found[done].append(name)
    return found


_FileState: TypeAlias = tuple[str, tuple[int, int, int, int, int]]


def _prepare(place: Path, slot: Slot, orders: object, stop: StopRequest) -> set[_FileState]:
    place.mkdir(mode=0o700)
    (place / "orders.json").write_text(json.dumps(orders), "ascii")
    (place / "said").touch(mode=0o600)
    return _file_states(slot.path, stop)


def _file_states(top: Path, stop: StopRequest) -> set[_FileState]:
    """Return the state of every file except compiled ones; any change to a file changes it."""
    seen: set[_FileState] = set()
    waiting = [""]
    while waiting:
        stop.check()
        above = waiting.pop()
        with contextlib.suppress(OSError), os.scandir(f"{top}/{above}") as entries:
            for entry in entries:
                name = above + entry.name
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != "__pycache__":
                        waiting.append(f"{name}/")
                    continue
                with contextlib.suppress(OSError):
                    now = entry.stat(follow_symlinks=False)
                    times = (now.st_mtime_ns, now.st_ctime_ns)
                    if not stat.S_ISSOCK(now.st_mode):
                        seen.add((name, (now.st_ino, now.st_mode, now.st_size, *times)))
    return seen


def _read_trace(path: Path) -> bytes:
    """Read the trace; empty if the child removed the file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
        return file.read(_MAX_TRACE_BYTES) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""


def _failed_run(failure: Failure, reason: str, ran: ConfinedResult | None = None) -> Watched:
    layers, missing = (ran.confinement.layers, ran.confinement.missing) if ran else ((), {})
    stdout, stderr = (_shorten(ran.stdout), _shorten(ran.stderr)) if ran else ("", "")
    return Watched(0, 0, (), (), stdout, stderr, failure, reason, layers, unconfined=missing)


def _shorten(output: bytes) -> str:
    text = output.decode("utf-8", "replace")
    if len(text) <= _OUTPUT_CHARACTERS:
        return text
    crash = text.rfind(CRASH)  # a crash report has its most important lines first
    return "…" + (
        text[-_OUTPUT_CHARACTERS:] if crash < 0 else text[crash : crash + _OUTPUT_CHARACTERS]
    )


def _watched_from(
    ran: ConfinedResult, limits: ResourceLimits, data: bytes, files: tuple[str, ...]
) -> Watched:
    try:
        trace = Trace(data)
    except RecordInvalid as error:
        return _failed_run("refused", f"what it did can't be read: {error}", ran)
    failure, reason = _failure(ran, limits, trace)
    end = trace.end or {"broken": (), "codes": {}, "grown": {}}
    signs = Signs(tuple(trace.did), tuple(end["broken"]), end["codes"], end["grown"], files)
    return Watched(
        tests=len(trace.outcomes),
        passed=sum(word == "passed" for word in trace.outcomes.values()),
        outcomes=tuple(trace.outcomes.items()),
        invocations=tuple(trace.invocations),
        stdout=_shorten(ran.stdout),
        stderr=_shorten(ran.stderr),
        failure=failure,
        reason=reason,
        confinement=ran.confinement.layers,
        messages=trace.messages,
        cut=trace.cut,
        dropped=tuple(trace.dropped),
        signs=signs,
        unconfined=ran.confinement.missing,
        exit=trace.end["exit"] if trace.end else None,
        seconds=ran.wall_seconds,
        cpu=ran.cpu_seconds,
        contents=trace.contents,
        modules=tuple(trace.end["modules"]) if trace.end else (),
        loaded=tuple(trace.end["loaded"]) if trace.end else (),
    )


def _failure(
    ran: ConfinedResult, limits: ResourceLimits, trace: Trace
) -> tuple[Failure | None, str]:
    at = f", in {trace.last}" if trace.last else ", before its first test"
    if ran.why in {"timeout", "cpu"}:
        limit = f"{limits.cpu} s of CPU" if ran.why == "cpu" else f"{limits.seconds:g} s"
        return "timeout", f"it did not end within {limit}{at}"
    if trace.failed:
        return "error", trace.failed[0]
    if (end := trace.end) is None:
        return _failure_before_end(ran, limits, trace, at)
    if not end["found"] and end["elsewhere"]:
        return "refused", f"the module is imported from {end['elsewhere'][0]}, not from the slot"
    if end["exit"] in PYTEST_EXITS and not trace.outcomes:
        return "error", f"{PYTEST_EXITS[end['exit']]}: {_last_line(ran)}"
    missing = not end["found"] and not trace.messages
    return ("error", "no test imports the target's file") if missing else (None, "")


def _failure_before_end(
    ran: ConfinedResult, limits: ResourceLimits, trace: Trace, at: str
) -> tuple[Failure, str]:
    wants = {
        "memory": f"it asks for more memory than the {limits.memory >> 20} MB it may have{at}",
        "processes": f"it starts more than the {limits.processes} processes it may have{at}",
        "file size": f"it writes a file of more than {limits.file_size >> 20} MB{at}",
    }
    if ran.why in wants:
        return "refused", wants[ran.why]
    if ran.signal is not None:
        if ran.signal == signal.SIGKILL:
            return "refused", f"{KILLED}{at}; memory may have run out"
        return "refused", f"it was ended by signal {ran.signal}{at}"
    if ran.exit_code == 0:
        return "refused", f"it left with success before the tests had ended{at}"
    if not trace.last and not trace.outcomes:
        return "error", f"the tests could not be started: {_last_line(ran)}"
    return "refused", f"it left with exit code {ran.exit_code} before the tests had ended{at}"


def _last_line(ran: ConfinedResult) -> str:
    stderr, stdout = (one.decode("utf-8", "replace").strip() for one in (ran.stderr, ran.stdout))
    return (stderr or stdout or "it said nothing").splitlines()[-1].strip()[:300]


__all__ = [
    "LIMITS",
    "PROGRAM",
    "Behaviour",
    "Tests",
    "Watched",
    "judge_behaviour",
    "watch",
    "write_bundle",
]
