"""What the warden watches over: commands and their pipes.

And the messages between it and the driver.

Imported by the warden, which must start quickly, so nothing of abreast is imported here and little
of anything else. Messages are tuples; they travel in lists, marshalled (both ends are the same
interpreter), each list after its length:

    to the warden    HELLO environment | RUN number argv cwd changed removed stdin keep | END number grace
    to the driver    READY | STARTED number pid | FINISHED number code out err out_size err_size
                     REFUSED number stage errno reason | BROKEN how trace
"""

from __future__ import annotations

import errno
import marshal
import os
import stat
import time  # noqa: TID251 - the warden is a program of its own, out of reach of abreast's clock

TYPE_CHECKING = False  # typing's own costs 2 ms
if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping
    from typing import Any, TypeAlias
else:
    # all of it but names for its numbers, which are made with enum, slow to import
    import _signal as signal

Message: TypeAlias = "tuple[Any, ...]"

HELLO, RUN, END, READY, STARTED, FINISHED, REFUSED, BROKEN = range(8)
ENTER, FIND, START = "enter", "find", "start"  # the stages at which a command can be refused

SHORT_OF = (
    errno.EAGAIN,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
)  # what there is again when a command ends

_HEADER = 8
_KEPT = 256
CHUNK = (
    1 << 16
)  # what a pipe holds; and more than twice as much would be mapped, and unmapped, at every read
_RESET = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them, and a command must not


def pack(messages: list[Message]) -> bytes:
    """Messages as bytes for the line."""
    body = marshal.dumps(messages)
    return len(body).to_bytes(_HEADER, "little") + body


def unpack(buffer: bytearray) -> list[Message]:
    """Take the messages that have come in full out of the buffer."""
    messages: list[Message] = []
    while len(buffer) >= _HEADER and len(buffer) >= (
        end := _HEADER + int.from_bytes(buffer[:_HEADER], "little")
    ):
        messages += marshal.loads(buffer[_HEADER:end])  # noqa: S302 - our own process wrote it
        del buffer[:end]
    return messages


class Stream:
    """What a command writes on one pipe: the beginning is kept, all of it is counted."""

    __slots__ = ("chunks", "fd", "room", "size")

    def __init__(self, fd: int, keep: int) -> None:
        """Nothing read yet; `fd` is -1 once it is closed."""
        self.fd = fd
        self.room = keep
        self.size = 0
        self.chunks: list[bytes] = []

    def read(self, times: int) -> bool:
        """Read what is there, at most so many chunks of it; whether that was the end."""
        for _ in range(times):
            try:
                data = os.read(self.fd, CHUNK)
            except BlockingIOError:
                return False
            if not data:
                return True
            self.size += len(data)
            if self.room:
                self.chunks.append(data[: self.room])
                self.room -= len(self.chunks[-1])
        return False


class SupervisedCommand:
    """One command under way. Its process group has the number of its first process."""

    __slots__ = ("born", "code", "due", "gone", "number", "pid", "presses", "streams")

    def __init__(self, number: int, pid: int, streams: tuple[Stream, Stream]) -> None:
        """It has just begun."""
        self.number = number
        self.pid = pid
        self.streams = streams
        self.born = time.monotonic()
        self.code: int | None = None  # the first process's, once it is reaped
        self.gone = False  # the whole group: its number may be a stranger's from now on
        self.due: float | None = None  # when what is left of the group is killed
        self.presses = 0

    @property
    def closed(self) -> bool:
        """Whether both pipes came to their end."""
        return self.streams[0].fd < 0 and self.streams[1].fd < 0

    def signal(self, number: int) -> None:
        """Send a signal to the group, or find out that it is gone."""
        if not self.gone:
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                self.gone = True
            except PermissionError:  # all that is left runs as someone else
                pass


found: dict[tuple[bytes, bytes, bytes | None], bytes] = {}
"""Files that commands' names stand for: by name, PATH and directory, as a part of the PATH may depend on it."""


def find(name: bytes, path: bytes, cwd: bytes | None) -> bytes:
    """The file that a command's name stands for, kept as looking takes a twentieth of a start.

    Raises OSError.
    """
    asked = (name, path, cwd)
    if asked not in found:
        if len(found) >= _KEPT:
            found.clear()
        found[asked] = _look_for(name, path)
    return found[asked]


def _look_for(name: bytes, path: bytes) -> bytes:
    places = (
        [name]
        if b"/" in name
        else [place + b"/" + name if place else name for place in path.split(b":")]
    )
    failure = errno.ENOENT
    for place in places if name else ():
        try:
            mode = os.stat(place).st_mode  # noqa: PTH116 - pathlib takes longer to import than all else here
        except OSError:
            continue
        if stat.S_ISREG(mode) and os.access(place, os.X_OK):
            return place
        failure = errno.EACCES
    raise OSError(failure, os.strerror(failure))


def start(path: bytes, message: Message, environment: Mapping[bytes, bytes]) -> SupervisedCommand:
    """Start the command of a RUN message as a process group of its own.

    Raises OSError, with nothing left open.
    """
    _, number, argv, _, _, _, stdin, keep = message
    ours: list[int] = []
    theirs: list[int] = []
    actions: list[tuple[int, int, int]] = []
    try:
        for target in (1, 2):
            read_end, write_end = os.pipe()
            ours.append(read_end)
            theirs.append(write_end)
            os.set_blocking(read_end, False)
            actions.append((os.POSIX_SPAWN_DUP2, write_end, target))
        if stdin is not None:
            theirs.append(_file_of(stdin))
            actions.append((os.POSIX_SPAWN_DUP2, theirs[-1], 0))
        # By vfork, at half the cost of a fork: it returns when the command runs, or says why it
        # can't.
        pid = os.posix_spawn(
            path, argv, environment, file_actions=actions, setpgroup=0, setsigdef=_RESET
        )
    except BaseException:
        for end in ours:
            os.close(end)
        raise
    finally:
        for end in theirs:
            os.close(end)
    return SupervisedCommand(number, pid, (Stream(ours[0], keep), Stream(ours[1], keep)))


def _file_of(data: bytes) -> int:
    """A file with these bytes, at its beginning: unlike a pipe it needs nobody to feed it."""
    fd = os.memfd_create("stdin")
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd


def sweep(session: int) -> None:
    """Kill all processes of a session but its leader, until there are none that haven't been killed."""
    killed: set[int] = set()
    while found := _members(session) - killed:  # once more, for what was forked meanwhile
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:  # it has ended, or runs as someone else
                continue
        killed |= found


def _members(session: int) -> set[int]:
    members: set[int] = set()
    for entry in os.scandir("/proc") if os.access("/proc/self", os.F_OK) else ():
        if entry.name.isdigit() and int(entry.name) != session:
            try:
                if os.getsid(int(entry.name)) == session:
                    members.add(int(entry.name))
            except OSError:  # it has ended meanwhile
                continue
    return members
