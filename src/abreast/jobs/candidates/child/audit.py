"""Records the target's side effects: files, sockets, processes, interpreter settings.

The interpreter reports these by audit events, which no Python code can undo. The sandbox around the
child prevents the worst; this records the attempts. Those that the original makes too do not count
against a candidate.
"""

import os
import sys
from collections.abc import Callable

from abreast.jobs.candidates.child.capture import active
from abreast.jobs.candidates.child.channel import Channel
from abreast.jobs.candidates.child.paths import Places

_ALWAYS_REPORTED = {
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
_REPORTED_IN_TARGET = {
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
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Audit:
    """Reports each kind of side effect once. `importing` is set while the target's module runs."""

    def __init__(self, channel: Channel, places: Places, own: str) -> None:
        self.importing = False
        self._channel, self._places = channel, places
        temporary = (os.environ.get("TMPDIR", ""), os.environ.get("HOME", ""))
        self._allowed = (*(os.path.realpath(one) + os.sep for one in temporary if one), "/dev/")
        self._own = os.path.realpath(own) + os.sep

    def start(self) -> None:
        """Report from now on, until the process ends."""
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, args: tuple[object, ...]) -> None:
        if event == "open":
            self._on_open(args)
        elif event in _ALWAYS_REPORTED:
            self._channel.send_once("did", _ALWAYS_REPORTED[event])
        elif event in _REPORTED_IN_TARGET and (self.importing or active()) and not _is_import():
            self._channel.send_once("did", _REPORTED_IN_TARGET[event])

    def _on_open(self, args: tuple[object, ...]) -> None:
        path, flags = args[0], args[2] if len(args) > 2 else 0  # noqa: PLR2004 - path, mode, flags
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if not isinstance(path, str) or not isinstance(flags, int):
            return
        writes = bool(flags & _WRITE_FLAGS)
        if not writes and not ((self.importing or active()) and not _is_import()):
            return
        real = os.path.realpath(path)
        if real.startswith(self._own):
            if active() or self.importing:
                self._channel.send_once("did", "opens the record of its own calls")
        elif not (real + os.sep).startswith(
            self._allowed if writes else (*self._allowed, *_LIBRARIES)
        ):
            self._channel.send_once(
                "did", f"{'writes' if writes else 'reads'} {self._places.inside(real)}"
            )


def _is_import() -> bool:
    """Whether the event comes from the import system, which opens and lists files itself."""
    frame = sys._getframe(2)  # noqa: SLF001 - the only way to find the caller
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
    """Return a function that executes the target's module under the audit, and calls `then`."""

    def execute(module: object, run: Callable[[], None]) -> None:
        audit.importing = True
        try:
            run()
        except SystemExit:
            channel.send_once("did", "ends the program when it is imported")
            raise
        finally:
            audit.importing = False
        then(module)

    return execute
