"""Notes what the target reaches for outside of itself: files, sockets, processes, the interpreter's own levers.

The interpreter tells of these by audit events, which no Python code can take back. The walls around
the child keep the worst from happening; this says what was tried. What the original does too is
nothing to be said of a candidate.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from abreast.jobs.candidates.child.capture import active
from abreast.jobs.candidates.child.channel import Channel
from abreast.jobs.candidates.child.paths import Places

_ALWAYS = {
    "socket.connect": "opens a socket",
    "socket.bind": "opens a socket",
    "socket.sendto": "opens a socket",
    "socket.getaddrinfo": "asks for a network address",
    "subprocess.Popen": "starts a process",
    "os.fork": "starts a process",
    "os.forkpty": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.exec": "starts a process",
    "os.system": "starts a process",
    "os.kill": "sends signals",
    "os.killpg": "sends signals",
    "ctypes.dlopen": "loads a library of C",
    "sys.settrace": "sets a tracing function",
    "sys.setprofile": "sets a profiling function",
}
_INSIDE = {
    "socket.__new__": "opens a socket",
    "gc.get_objects": "looks through all objects",
    "gc.get_referrers": "looks through all objects",
    "sys.addaudithook": "adds an audit hook",
    "os.putenv": "changes the environment",
    "os.listdir": "lists a directory",
    "os.scandir": "lists a directory",
    "os.chdir": "changes the directory",
    "os.remove": "removes a file",
    "os.rename": "renames a file",
    "os.mkdir": "makes a directory",
    "signal.pthread_kill": "sends signals",
}
_LIBRARIES = tuple(
    os.path.realpath(one) + os.sep
    for one in (sys.prefix, sys.base_prefix, "/usr/share", "/usr/lib")
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Audit:
    """Tells each thing once. `importing` is set while the target's module is carried out."""

    def __init__(self, channel: Channel, places: Places, own: str) -> None:
        self.importing = False
        self._channel, self._places = channel, places
        temporary = (os.environ.get("TMPDIR", ""), os.environ.get("HOME", ""))
        self._free = (*(os.path.realpath(one) + os.sep for one in temporary if one), "/dev/")
        self._own = os.path.realpath(own) + os.sep

    def start(self) -> None:
        """From now on, until the process ends."""
        sys.addaudithook(self._heard)

    def _heard(self, event: str, args: tuple[object, ...]) -> None:
        if event == "open":
            self._opened(args)
        elif event in _ALWAYS:
            self._channel.say_once("did", _ALWAYS[event])
        elif event in _INSIDE and (self.importing or active()) and not _is_import():
            self._channel.say_once("did", _INSIDE[event])

    def _opened(self, args: tuple[object, ...]) -> None:
        path, flags = args[0], args[2] if len(args) > 2 else 0  # noqa: PLR2004 - path, mode, flags
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if not isinstance(path, str) or not isinstance(flags, int):
            return
        writes = bool(flags & _WRITING)
        if not writes and not ((self.importing or active()) and not _is_import()):
            return
        real = os.path.realpath(path)
        if real.startswith(self._own):
            if active() or self.importing:
                self._channel.say_once("did", "opens the record of its own calls")
        elif not (real + os.sep).startswith(self._free if writes else (*self._free, *_LIBRARIES)):
            self._channel.say_once(
                "did", f"{'writes' if writes else 'reads'} {self._places.inside(real)}"
            )


def _is_import() -> bool:
    """Whether the import system is at work, which opens and lists what it needs."""
    frame = sys._getframe(2)  # noqa: SLF001 - the only way to know who asks
    for _ in range(6):
        if frame is None:
            return False
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back  # type: ignore[assignment] # the last one has none
    return False


def around_import(
    audit: Audit, channel: Channel, then: Callable[[object], None]
) -> Callable[[object, Callable[[], None]], None]:
    """Carry out the target's module with ears open, and `then` go on with it."""

    def carry_out(module: object, run: Callable[[], None]) -> None:
        audit.importing = True
        try:
            run()
        except SystemExit:
            channel.say_once("did", "ends the program when it is imported")
            raise
        finally:
            audit.importing = False
        then(module)

    return carry_out
