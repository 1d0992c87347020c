"""Runs the tests of a project in a slot, confined, and sees what the target does in them.

    watched = await watch(slot, target, Tests(("tests/test_words.py",), python=sys.executable))
    behaviour = judge_behaviour(watched_original, watched, STRICT)

The child (`abreast.jobs.candidates.child`) runs under the project's interpreter, which needs no
abreast. What it tells is read here field by field; the files of the slot are compared here, where
it has no say.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final

from abreast.executors.commands import CommandMissing, CommandRefused
from abreast.jobs.candidates.behaviour.baseline import CRASH, PYTEST_EXITS
from abreast.jobs.candidates.behaviour.bundle import PROGRAM, write_bundle
from abreast.jobs.candidates.behaviour.trace import Failure, Signs, Tests, Trace, Watched
from abreast.jobs.candidates.behaviour.verdict import Behaviour, judge_behaviour
from abreast.jobs.candidates.source.target import Target
from abreast.jobs.candidates.values.invocation import Places, RecordInvalid
from abreast.worktrees.background import StopRequest, aside
from abreast.worktrees.confinement import ConfinedResult, ResourceLimits, run_confined
from abreast.worktrees.slot import Slot
from abreast.worktrees.staging import remove_tree

LIMITS: Final = ResourceLimits()
_MOST_SAID: Final = 192 << 20  # bytes
_LONGEST: Final = 4_000  # characters of stdout and stderr that are kept
_NUMBERS: Final = count()


async def watch(
    slot: Slot,
    target: Target,
    tests: Tests,
    *,
    limits: ResourceLimits = LIMITS,
    inputs: bytes | None = None,
    wanted: Places | None = None,
) -> Watched:
    """Run the tests in the slot as it is, and tell every call of the target.

    With `inputs`, try those as well.

    `wanted` are slices of values that are too large to be recorded: their content is told.

    The slot is neither written to before nor reset afterwards. Sets of texts have one order in all
    runs with tests, and another one in those without. Whatever goes wrong with the run is in
    `failure`. Raises what `run_confined` does for a slot that is closed or a jail that was killed.
    """
    place = slot.scratch / f"watch-{slot.index}-{next(_NUMBERS)}"
    environment = {"PYTHONHASHSEED": "0" if tests.names else "1", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        before = await aside(
            lambda stop: _prepare(place, slot, _orders(slot, target, tests, inputs, wanted), stop)
        )
        command = [tests.python, "-c", PROGRAM, str(place)]
        try:
            ran = await run_confined(
                command, slot, limits=limits, extra_env=environment, writable=[place]
            )
        except (CommandMissing, CommandRefused) as error:
            return _nothing("error", f"the project's Python could not be started: {error}")
        data, files = await aside(
            lambda stop: (_read(place / "said"), _changed(before, _look(slot.path, stop)))
        )
    finally:
        with contextlib.suppress(OSError):  # closing the pool tries again, and says why not
            await aside(lambda _: remove_tree(place))
    return _told(ran, limits, data, files)


def _orders(
    slot: Slot, target: Target, tests: Tests, inputs: bytes | None, wanted: Places | None
) -> bytes:
    orders = {
        "top": str(slot.repository.top),
        "slot": str(slot.path),
        "file": str(slot.mirror(target.file).relative_to(slot.path)),
        "qualname": target.qualname,
        "names": tests.names,
        "extra": tests.extra,
        "inputs": json.loads(inputs) if inputs else None,
        "wanted": [
            (*call, *place) for call, places in (wanted or {}).items() for place in sorted(places)
        ],
    }
    return json.dumps(orders).encode("ascii")


_Look = tuple[int, int, int, int, int]


def _prepare(place: Path, slot: Slot, orders: bytes, stop: StopRequest) -> dict[str, _Look]:
    place.mkdir(mode=0o700)
    write_bundle(place)
    (place / "orders.json").write_bytes(orders)
    (place / "said").touch(mode=0o600)
    return _look(slot.path, stop)


def _look(top: Path, stop: StopRequest) -> dict[str, _Look]:
    """How every file is, but for what Python compiled: no change leaves all of this as it was."""
    seen: dict[str, _Look] = {}
    for above, directories, names in os.walk(top):
        stop.check()
        directories[:] = [name for name in directories if name != "__pycache__"]
        for name in names:
            path = os.path.join(above, name)  # noqa: PTH118 - of very many
            with contextlib.suppress(OSError):
                facts = os.lstat(path)
                if not stat.S_ISSOCK(facts.st_mode):
                    seen[os.path.relpath(path, top)] = (
                        facts.st_ino,
                        facts.st_mode,
                        facts.st_size,
                        facts.st_mtime_ns,
                        facts.st_ctime_ns,
                    )
    return seen


def _changed(before: dict[str, _Look], after: dict[str, _Look]) -> tuple[str, ...]:
    return tuple(
        sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    )


def _read(path: Path) -> bytes:
    """What the child said; nothing if it took the file away."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with open(descriptor, "rb") as file:  # noqa: PTH123 - opened already
        return file.read(_MOST_SAID) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""


def _nothing(failure: Failure, reason: str, ran: ConfinedResult | None = None) -> Watched:
    layers, missing = (ran.confinement.layers, ran.confinement.missing) if ran else ((), {})
    stdout, stderr = (_short(ran.stdout), _short(ran.stderr)) if ran else ("", "")
    return Watched(0, 0, (), (), stdout, stderr, failure, reason, layers, unconfined=missing)


def _short(output: bytes) -> str:
    text = output.decode("utf-8", "replace")
    if len(text) <= _LONGEST:
        return text
    crash = text.rfind(CRASH)  # what follows that has the most important lines first
    return "…" + (text[-_LONGEST:] if crash < 0 else text[crash : crash + _LONGEST])


def _told(
    ran: ConfinedResult, limits: ResourceLimits, data: bytes, files: tuple[str, ...]
) -> Watched:
    try:
        said = Trace(data)
    except RecordInvalid as error:
        return _nothing("refused", f"what it did can't be read: {error}", ran)
    failure, reason = _failure(ran, limits, said)
    end = said.end or {"broken": (), "codes": {}, "grown": {}}
    signs = Signs(tuple(said.did), tuple(end["broken"]), end["codes"], end["grown"], files)
    return Watched(
        tests=len(said.outcomes),
        passed=sum(word == "passed" for word in said.outcomes.values()),
        outcomes=tuple(said.outcomes.items()),
        invocations=tuple(said.invocations),
        stdout=_short(ran.stdout),
        stderr=_short(ran.stderr),
        failure=failure,
        reason=reason,
        confinement=ran.confinement.layers,
        messages=said.messages,
        left_out=tuple(said.left),
        cut=said.cut,
        dropped=tuple(said.dropped),
        signs=signs,
        unconfined=ran.confinement.missing,
        exit=said.end["exit"] if said.end else None,
        seconds=ran.wall_seconds,
        cpu=ran.cpu_seconds,
        contents=said.contents,
    )


def _failure(
    ran: ConfinedResult, limits: ResourceLimits, said: Trace
) -> tuple[Failure | None, str]:
    at = f", in {said.last}" if said.last else ", before its first test"
    if ran.why == "timeout":
        return "timeout", f"it did not end within {limits.seconds:g} s{at}"
    if ran.why == "cpu":
        return "timeout", f"it did not end within {limits.cpu} s of CPU{at}"
    return (
        _cut_short(ran, limits, said, at) if said.end is None else _at_the_end(ran, said, said.end)
    )


def _at_the_end(
    ran: ConfinedResult, said: Trace, end: Mapping[str, Any]
) -> tuple[Failure | None, str]:
    if said.failed:
        return "error", said.failed[0]
    if not end["found"] and end["elsewhere"]:
        return "refused", f"the module is imported from {end['elsewhere'][0]}, not from the slot"
    if end["exit"] in PYTEST_EXITS and not said.outcomes:
        return "error", f"{PYTEST_EXITS[end['exit']]}: {_last_line(ran)}"
    if not end["found"] and not said.messages:
        return "error", "no test imports the target's file"
    return None, ""


def _cut_short(
    ran: ConfinedResult, limits: ResourceLimits, said: Trace, at: str
) -> tuple[Failure, str]:
    if said.failed:
        return "error", said.failed[0]
    wants = {
        "memory": f"it asks for more memory than the {limits.memory >> 20} MB it may have{at}",
        "processes": f"it starts more than the {limits.processes} processes it may have{at}",
        "file size": f"it writes a file of more than {limits.file_size >> 20} MB{at}",
    }
    if ran.why in wants:
        return "refused", wants[ran.why]
    if ran.signal is not None:
        hint = "; memory may have run out" if ran.signal == signal.SIGKILL else ""
        return "refused", f"it was ended by signal {ran.signal}{at}{hint}"
    if ran.exit_code == 0:
        return "refused", f"it left with success before the tests had ended{at}"
    if not said.last and not said.outcomes:
        return "error", f"the tests could not be started: {_last_line(ran)}"
    return "refused", f"it left with exit code {ran.exit_code} before the tests had ended{at}"


def _last_line(ran: ConfinedResult) -> str:
    for output in (ran.stderr, ran.stdout):
        lines = [line for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
        if lines:
            return lines[-1].strip()[:300]
    return "it said nothing"


__all__ = ["LIMITS", "Behaviour", "Tests", "Watched", "judge_behaviour", "watch"]
