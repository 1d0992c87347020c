"""Supervised commands and their pipes, and the messages between a supervisor and its driver.

The supervisor imports this and must start quickly, so nothing of abreast is imported here and
little of anything else. Messages are tuples. They are sent in lists, each list marshalled (both
ends are the same interpreter) and preceded by its length:

    to the supervisor    HELLO environment
                         RUN number argv cwd changed removed stdin keep live
                         END number grace
    to the driver        READY
                         STARTED number pid
                         OUTPUT number data
                         FINISHED number code out err out_size err_size
                         REFUSED number stage errno reason
                         BROKEN how trace
"""

from __future__ import annotations

import errno
import marshal
import os
import stat
import time  # noqa: TID251 - the supervisor is a program of its own, without abreast's clock

TYPE_CHECKING = False  # typing's own costs 2 ms
if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping
    from typing import Any, TypeAlias
else:
    # `signal` without names for its numbers, which are made with enum, slow to import
    import _signal as signal

Message: TypeAlias = "tuple[Any, ...]"

HELLO, RUN, END, READY, STARTED, FINISHED, REFUSED, BROKEN, OUTPUT = range(9)
ENTER, FIND, START = "enter", "find", "start"  # the stages at which a command can be refused

# What is missing then may be available again when a command ends.
RESOURCE_ERRORS = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)

_HEADER_BYTES = 8
_MAX_FOUND_PATHS = 256
# Bytes: a pipe's capacity. Reads of more than twice as much are mapped and unmapped by malloc
# every time.
CHUNK = 1 << 16
_RESET_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them; a command must not


def pack(messages: list[Message]) -> bytes:
    """Encode messages for the channel."""
    body = marshal.dumps(messages)
    return len(body).to_bytes(_HEADER_BYTES, "little") + body


def unpack(buffer: bytearray) -> list[Message]:
    """Remove the complete messages from the buffer and return them."""
    messages: list[Message] = []
    while len(buffer) >= _HEADER_BYTES and len(buffer) >= (
        end := _HEADER_BYTES + int.from_bytes(buffer[:_HEADER_BYTES], "little")
    ):
        messages += marshal.loads(buffer[_HEADER_BYTES:end])  # noqa: S302 - our own process wrote it
        del buffer[:end]
    return messages


class Stream:
    """What a command writes to one pipe: the beginning is kept, all of it is counted.

    Of a `live` stream all of it is also in `fresh`, until that is sent.
    """

    __slots__ = ("chunks", "fd", "fresh", "room", "size")

    def __init__(self, fd: int, keep: int, *, live: bool = False) -> None:
        """Nothing read yet; `fd` is -1 once it is closed."""
        self.fd = fd
        self.fresh: list[bytes] | None = [] if live else None
        self.room = keep
        self.size = 0
        self.chunks: list[bytes] = []

    def read(self, times: int) -> bool:
        """Read at most `times` chunks of what is there; return whether that was the end."""
        for _ in range(times):
            try:
                data = os.read(self.fd, CHUNK)
            except BlockingIOError:
                return False
            if not data:
                return True
            self.size += len(data)
            if self.fresh is not None:
                self.fresh.append(data)
            if self.room:
                self.chunks.append(data[: self.room])
                self.room -= len(self.chunks[-1])
        return False


class SupervisedCommand:
    """A running command. Its process group has the number of its first process."""

    __slots__ = ("code", "group_gone", "kill_at", "kills", "number", "pid", "started_at", "streams")

    def __init__(self, number: int, pid: int, streams: tuple[Stream, Stream]) -> None:
        self.number = number
        self.pid = pid
        self.streams = streams
        self.started_at = time.monotonic()
        self.code: int | None = None  # exit code of the first process, once it is reaped
        # The whole process group has ended, so its number may be given to other processes.
        self.group_gone = False
        self.kill_at: float | None = None  # when what is left of the group is killed
        self.kills = 0

    @property
    def closed(self) -> bool:
        """Whether both pipes have reached their end."""
        return self.streams[0].fd < 0 and self.streams[1].fd < 0

    def signal(self, number: int) -> None:
        """Send a signal to the group, or note that the group is gone."""
        if not self.group_gone:
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                self.group_gone = True
            except PermissionError:  # all that is left runs as another user
                pass


# Files that command names refer to, by name, PATH and working directory. The directory is part of
# the key because the PATH may contain relative entries.
found_paths: dict[tuple[bytes, bytes, bytes | None], bytes] = {}


def find(name: bytes, path: bytes, cwd: bytes | None) -> bytes:
    """Return the file that a command's name refers to; raises OSError.

    The result is cached, as the search takes a twentieth of a start.
    """
    key = (name, path, cwd)
    if key not in found_paths:
        if len(found_paths) >= _MAX_FOUND_PATHS:
            found_paths.clear()
        found_paths[key] = _search_path(name, path)
    return found_paths[key]


def _search_path(name: bytes, path: bytes) -> bytes:
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
    """Start the command of a RUN message in a process group of its own.

    Raises OSError, and then leaves nothing open.
    """
    _, number, argv, _, _, _, stdin, keep, live = message
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
            theirs.append(_make_stdin_file(stdin))
            actions.append((os.POSIX_SPAWN_DUP2, theirs[-1], 0))
        # By vfork, at half the cost of a fork. It returns when the command runs, and raises if it
        # can't be executed.
        pid = os.posix_spawn(
            path, argv, environment, file_actions=actions, setpgroup=0, setsigdef=_RESET_SIGNALS
        )
    except BaseException:
        for end in ours:
            os.close(end)
        raise
    finally:
        for end in theirs:
            os.close(end)
    return SupervisedCommand(number, pid, (Stream(ours[0], keep, live=live), Stream(ours[1], keep)))


def _make_stdin_file(data: bytes) -> int:
    """Return a file with these bytes, at its beginning: unlike a pipe it needs no writer."""
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


def kill_session(session: int) -> None:
    """Kill all processes of a session but its leader, until none is left that was not killed."""
    killed: set[int] = set()
    while found := _session_members(session) - killed:  # again, for processes forked meanwhile
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:  # it has ended, or runs as another user
                continue
        killed |= found


def _session_members(session: int) -> set[int]:
    members: set[int] = set()
    for entry in os.scandir("/proc") if os.access("/proc/self", os.F_OK) else ():
        if entry.name.isdigit() and int(entry.name) != session:
            try:
                if os.getsid(int(entry.name)) == session:
                    members.add(int(entry.name))
            except OSError:  # it has ended meanwhile
                continue
    return members
