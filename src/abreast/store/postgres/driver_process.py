"""Names a process so that others on the same machine can tell whether it has ended."""

import os
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_START_TIME: Final = 19  # which field after the name, in /proc/PID/stat


def this_process() -> str | None:
    """This process: kernel, namespace of pids, pid and start time; None without a /proc."""
    place, pid = _place(), os.getpid()
    started = _start_time(pid)
    return f"{place} {pid} {started}" if place and started else None


def has_ended(process: str | None) -> bool:
    """Whether a process is known to have ended; False if it is not one of this machine."""
    place, _, numbers = (process or "").rpartition(" ")
    place, _, pid = place.rpartition(" ")
    if not place or place != _place() or not pid.isdecimal():
        return False
    return _start_time(int(pid)) != numbers


def _place() -> str | None:
    """This boot of this machine, and the namespace in which pids are counted."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return None


def _start_time(pid: int) -> str | None:
    """When a process started, in ticks since boot; None if it has ended, also as a zombie."""
    try:
        text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # The process's name comes before ")", and may contain spaces and parentheses itself.
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else fields[_START_TIME]
