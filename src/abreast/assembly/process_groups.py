"""Records the process groups of a run, kills them, and ends those that a crashed driver left."""

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
"""The environment variable with the run's id: set for every child, and read to identify one."""

_PROC: Final = Path("/proc")
# Most commands of a large map end sooner; reading the start time of each would cost 10% of a run.
_SHORT_LIVED_SECONDS: Final = 0.05
_KILL_TIMEOUT: Final = 2.0  # seconds until killed processes are gone
_POLL_INTERVAL: Final = 0.01  # seconds


class ProcessGroups:
    """The process groups of this driver that are alive."""

    def __init__(self) -> None:
        self._alive: dict[int, _Child] = {}
        self._scheduled = False

    def started(self, item: CurrentItem, group: int) -> None:
        """Remember the group of a new child; the journal records it if it lives for 50 ms."""
        self._alive[group] = _Child(item, group, SYSTEM_CLOCK.now())
        self._schedule_recording()

    def ended(self, group: int) -> None:
        """Forget a group that has ended."""
        self._alive.pop(group, None)

    def kill(self) -> None:
        """Kill all of them with SIGKILL; it does not wait."""
        for group in self._alive:
            _kill(group)

    def _schedule_recording(self) -> None:
        # One timer for all: most children end before it fires, and a timer for each would cost as
        # much as starting the child.
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_later(_SHORT_LIVED_SECONDS, self._record_long_lived)

    def _record_long_lived(self) -> None:
        self._scheduled = False
        now = SYSTEM_CLOCK.now()
        for child in self._alive.values():
            if not child.noted and now - child.since >= _SHORT_LIVED_SECONDS:
                child.noted = True
                child.item.note(CHILD_STARTED, pgid=child.group, born=start_stamp(child.group))
        if any(not child.noted for child in self._alive.values()):
            self._schedule_recording()


@record(slots=True)
class _Child:
    item: CurrentItem
    group: int
    since: float
    noted: bool = False


class _Stat(NamedTuple):
    pid: int
    group: int
    start_stamp: str
    alive: bool


def start_stamp(pid: int) -> str | None:
    """The boot id and start time of a process, which no later process with this pid can have.

    None if the system has no /proc, or the process has ended.
    """
    found = _stat(pid)
    return found.start_stamp if found else None


async def end_leftovers(store: Store, run_id: str) -> int:
    """End the process groups that earlier drivers of the run left behind; return their number.

    A group belongs to the run if its leader is the recorded process, or if one of its members has
    the run's id in its environment: the number alone may have been reused by another process.
    """
    recorded = dict(_recorded(store, run_id))
    leftovers = {
        stat.group
        for stat in _processes()
        if stat.group in recorded and _belongs_to_run(stat, recorded, run_id)
    }
    leftovers -= {os.getpgrp(), 0, 1}
    for group in leftovers:
        _kill(group)
    deadline = SYSTEM_CLOCK.now() + _KILL_TIMEOUT
    while any(stat.group in leftovers for stat in _processes()) and SYSTEM_CLOCK.now() < deadline:
        await sleep_until(SYSTEM_CLOCK, SYSTEM_CLOCK.now() + _POLL_INTERVAL)
    return len(leftovers)


def _recorded(store: Store, run_id: str) -> Iterator[tuple[int, str | None]]:
    for event in each_event(store, run_id, {CHILD_STARTED}):
        group, when = event.data.get("pgid"), event.data.get("born")
        if isinstance(group, int) and group > 1:
            yield group, when if isinstance(when, str) else None


def _belongs_to_run(stat: _Stat, recorded: dict[int, str | None], run_id: str) -> bool:
    if stat.pid == stat.group and recorded[stat.group] is not None:
        return stat.start_stamp == recorded[stat.group]
    try:
        environment = (_PROC / str(stat.pid) / "environ").read_bytes()
    except OSError:
        return False
    return f"{RUN_VARIABLE}={run_id}".encode() in environment.split(b"\0")


def _processes() -> Iterator[_Stat]:
    """All living processes; none if the system has no /proc."""
    with suppress(OSError):
        for name in os.listdir(_PROC):  # noqa: PTH208 - hundreds of names, texts are cheaper
            if name.isdecimal() and (stat := _stat(int(name))) and stat.alive:
                yield stat


def _stat(pid: int) -> _Stat | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # The process's name comes before ")", and may contain spaces and parentheses itself.
    fields = text[text.rindex(")") + 2 :].split()
    return _Stat(pid, int(fields[2]), f"{_boot_id()}:{fields[19]}", fields[0] not in "ZX")


@cache
def _boot_id() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _kill(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
