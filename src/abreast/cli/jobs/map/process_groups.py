"""The process groups of a run: noted as they start, ended at once in need, and after a crash ended at resume."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from abreast.core.clock import SYSTEM_CLOCK, sleep_until
from abreast.core.frozen import record
from abreast.run.current import CurrentItem
from abreast.store.port import Store, each_event

CHILD_STARTED: Final = "child-started"
RUN_VARIABLE: Final = "ABREAST_RUN_ID"
"""Names its run to every child, and in a child's environment to us."""

_PROC: Final = Path("/proc")
# seconds; most commands of a large number end sooner, and asking for their birth costs a tenth
_YOUNG: Final = 0.05
_PATIENCE: Final = 2.0  # seconds until killed processes are gone
_STEP: Final = 0.01


class Groups:
    """The process groups that this driver has alive."""

    def __init__(self) -> None:
        """None yet."""
        self._alive: dict[int, _Child] = {}
        self._looking = False

    def started(self, item: CurrentItem, group: int) -> None:
        """A child of the item began: remember its group here, and if it lives on for a moment in the journal."""
        self._alive[group] = _Child(item, group, SYSTEM_CLOCK.now())
        self._look_later()

    def ended(self, group: int) -> None:
        """The group is no more."""
        self._alive.pop(group, None)

    def kill(self) -> None:
        """End all of them now, without a word."""
        for group in self._alive:
            _kill(group)

    def _look_later(self) -> None:
        # One timer for all: most children are gone before it goes off, and one each would cost as
        # much as their start.
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_later(_YOUNG, self._look)

    def _look(self) -> None:
        """Write down those that are no longer young."""
        self._looking = False
        now = SYSTEM_CLOCK.now()
        for child in self._alive.values():
            if not child.noted and now - child.since >= _YOUNG:
                child.noted = True
                child.item.note(CHILD_STARTED, pgid=child.group, born=born(child.group))
        if any(not child.noted for child in self._alive.values()):
            self._look_later()


@record(slots=True)
class _Child:
    """A process group, whose it is, and whether the journal knows of it."""

    item: CurrentItem
    group: int
    since: float
    noted: bool = False


class _Stat(NamedTuple):
    """What the kernel says of a process."""

    pid: int
    group: int
    born: str
    alive: bool


def born(pid: int) -> str | None:
    """When a process began, in a form that no other process will ever have with this pid.

    None if nobody can say.
    """
    found = _stat(pid)
    return found.born if found else None


async def end_leftovers(store: Store, run_id: str) -> int:
    """End the process groups that earlier drivers of the run have left behind; how many there were.

    A group is theirs if its leader is the recorded process, or if one of its members has the run's
    id in its environment: a number alone might be another's by now.
    """
    recorded = dict(_recorded(store, run_id))
    theirs = {
        stat.group
        for stat in _processes()
        if stat.group in recorded and _is_theirs(stat, recorded, run_id)
    }
    theirs -= {os.getpgrp(), 0, 1}
    for group in theirs:
        _kill(group)
    deadline = SYSTEM_CLOCK.now() + _PATIENCE
    while any(stat.group in theirs for stat in _processes()) and SYSTEM_CLOCK.now() < deadline:
        await sleep_until(SYSTEM_CLOCK, SYSTEM_CLOCK.now() + _STEP)
    return len(theirs)


def _recorded(store: Store, run_id: str) -> Iterator[tuple[int, str | None]]:
    for event in each_event(store, run_id, {CHILD_STARTED}):
        group, when = event.data.get("pgid"), event.data.get("born")
        if isinstance(group, int) and group > 1:
            yield group, when if isinstance(when, str) else None


def _is_theirs(stat: _Stat, recorded: dict[int, str | None], run_id: str) -> bool:
    if stat.pid == stat.group and recorded[stat.group] is not None:
        return stat.born == recorded[stat.group]
    try:
        environment = (_PROC / str(stat.pid) / "environ").read_bytes()
    except OSError:
        return False
    return f"{RUN_VARIABLE}={run_id}".encode() in environment.split(b"\0")


def _processes() -> Iterator[_Stat]:
    """All processes that are alive; none where the system has no /proc."""
    with suppress(OSError):
        for name in os.listdir(_PROC):  # noqa: PTH208 - hundreds of names, each looked at once
            if name.isdecimal() and (stat := _stat(int(name))) and stat.alive:
                yield stat


def _stat(pid: int) -> _Stat | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return None
    fields = text[
        text.rindex(")") + 2 :
    ].split()  # the name before it may have spaces and parentheses of its own
    return _Stat(pid, int(fields[2]), f"{_boot()}:{fields[19]}", fields[0] not in "ZX")


@cache
def _boot() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _kill(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
