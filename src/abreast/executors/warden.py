"""The warden: a small process that starts commands, keeps what they write, and ends them, also when the driver dies.

It runs as a script without site-packages, so it imports nothing of abreast and little of the standard library: it must
be there within milliseconds. It has one thread and a session of its own: a signal to the driver's group can't reach it,
and nothing it has started is ever unknown to it. `abreast.executors.leash` is the driver's end of the line.

Messages are tuples; they travel in lists, marshalled (both ends are the same interpreter), each list after its length:

    to the warden    HELLO environment · RUN number argv stdin cwd environment keep · END number grace
    to the driver    STARTED number pid · FINISHED number code out err out_size err_size
                     REFUSED number stage errno reason · BROKEN reason
"""

from __future__ import annotations

import errno
import marshal
import os
import select
import signal
import time  # noqa: TID251 - a script of its own, out of reach of abreast's clock
from collections import deque
from collections.abc import Callable
from typing import Any

HELLO, RUN, END, STARTED, FINISHED, REFUSED, BROKEN = range(7)
ENTER, FIND, START = "enter", "find", "start"  # the stages at which a command can be refused

UNWATCHED = 0.005  # s; a command that ends sooner never has its pipes polled: a tenth less CPU for 2,000 `true`
LINGER = 0.2  # s; for what a command has left in its group, or whoever still holds its pipes
PRESS = 0.02  # s; between one SIGKILL and the next look
PRESSES = 50  # then a command that has exited is reported whatever is left: a zombie nobody reaps, a stranger's process
DYING = 1.0  # s; the longest that the warden outlives its driver
CHUNK = 1 << 16  # what a pipe holds
READS = 17  # at a command's exit: all that a pipe of 1 MiB can hold; what is written later is polled for
HEADER = 8

SHORT_OF = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
RESET = (signal.SIGPIPE, signal.SIGXFSZ)  # which Python ignores, and a command must not

Message = tuple[Any, ...]


def pack(messages: list[Message]) -> bytes:
    """Messages as bytes for the line."""
    body = marshal.dumps(messages)
    return len(body).to_bytes(HEADER, "little") + body


def unpack(buffer: bytearray) -> list[Message]:
    """Take the messages that have come in full out of the buffer."""
    messages: list[Message] = []
    while len(buffer) >= HEADER and len(buffer) >= (end := HEADER + int.from_bytes(buffer[:HEADER], "little")):
        messages += marshal.loads(buffer[HEADER:end])  # noqa: S302 - our own process wrote it
        del buffer[:end]
    return messages


class Stream:
    """What a command writes on one pipe: the beginning is kept, all of it is counted."""

    __slots__ = ("chunks", "fd", "room", "size")

    def __init__(self, fd: int, keep: int) -> None:
        """Nothing read yet."""
        self.fd = fd
        self.room = keep
        self.size = 0
        self.chunks: list[bytes] = []

    def read(self, times: int) -> bool:
        """Read at most so many chunks of what is there; whether that was the end."""
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


class Command:
    """One command: its leader's process is its group."""

    __slots__ = ("born", "code", "due", "gone", "number", "pid", "presses", "streams")

    def __init__(self, number: int, pid: int, streams: tuple[Stream, Stream]) -> None:
        """It has just begun."""
        self.number = number
        self.pid = pid
        self.streams = streams
        self.born = time.monotonic()
        self.code: int | None = None  # of the leader, once it is reaped
        self.gone = False  # the whole group; its number may be a stranger's from then on
        self.due: float | None = None  # when what is left of the group is killed
        self.presses = 0

    def signal(self, number: int) -> None:
        """Send a signal to the group, or find that it is gone. As a subreaper we reap all of it: no id is reused early."""
        if not self.gone:
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                self.gone = True
            except PermissionError:
                pass


class Warden:
    """The commands of one driver, and the loop that watches over them."""

    def __init__(self, line: int, driver: int) -> None:
        """Watch the line, the driver and the bell that rings when a child ends; start nothing yet."""
        self.environment: dict[bytes, bytes] = {}
        self._line = line
        self._home = os.open(".", os.O_RDONLY)
        self._inbox = bytearray()
        self._outbox: list[Message] = []
        self._commands: dict[int, Command] = {}
        self._leaders: dict[int, Command] = {}
        self._leaving: dict[int, Command] = {}  # those with a `due`
        self._young: deque[Command] = deque()  # not watched yet, or over before they were
        self._waiting: deque[Message] = deque()  # for processes or files to become free
        self._poll = select.poll()
        self._hear: dict[int, Callable[[], None]] = {}
        # The bell comes first: what has ended is reported before the next start, which takes a while.
        self._watch(_bell(), self._reap)
        self._watch(line, self._read_line)
        for life in _life_of(driver):
            self._watch(life, self.quit)

    def serve(self) -> None:
        """Until the driver hangs up or dies."""
        while True:
            for fd, _ in self._poll.poll(self._timeout()):
                if fd in self._hear:
                    self._hear[fd]()
                if self._outbox:
                    self.send(self._outbox)
                    self._outbox = []
            self._tick(time.monotonic())

    def send(self, messages: list[Message]) -> None:
        """Write to the driver; waits for it, as it always reads."""
        data = memoryview(pack(messages))
        while data:
            try:
                data = data[os.write(self._line, data) :]
            except OSError:  # it died
                self.quit()

    def quit(self) -> None:
        """End all groups and this process; the alarm ends it if a group won't."""
        signal.setitimer(signal.ITIMER_REAL, DYING)
        for command in self._commands.values():
            command.signal(signal.SIGKILL)
        for command in self._commands.values():
            while not command.gone:
                try:
                    os.waitpid(-command.pid, 0)
                except ChildProcessError:
                    break
        os._exit(0)

    # --- what happens ---------------------------------------------------------------------------------------------

    def _read_line(self) -> None:
        data = os.read(self._line, 1 << 20)
        if not data:
            self.quit()
        self._inbox += data
        for message in unpack(self._inbox):
            if message[0] == RUN:
                self._run(message)
            elif message[0] == END:
                self._end(*message[1:])
            else:
                self.environment = message[1]

    def _run(self, message: Message) -> None:
        _, number, argv, stdin, cwd, environment, keep = message
        stage = ENTER
        try:
            if cwd is not None:
                os.chdir(cwd)
            stage = FIND
            path = find(argv[0], self.environment if environment is None else environment)
            stage = START
            command = _start(number, path, argv, stdin, self.environment if environment is None else environment, keep)
        except OSError as error:
            if error.errno in SHORT_OF and self._commands:
                self._waiting.append(message)
            else:
                self._outbox.append((REFUSED, number, stage, error.errno, os.strerror(error.errno or 0)))
            return
        except ValueError as error:  # a name in the environment that can't be one
            self._outbox.append((REFUSED, number, stage, errno.EINVAL, str(error)))
            return
        finally:
            if cwd is not None:
                os.fchdir(self._home)
        self._commands[number] = self._leaders[command.pid] = command
        self._young.append(command)
        self._outbox.append((STARTED, number, command.pid))

    def _end(self, number: int, grace: float) -> None:
        """Ask a command's group to end; by force after `grace` seconds."""
        command = self._commands.get(number)
        if command is not None:
            if grace:
                command.signal(signal.SIGTERM)
            due = time.monotonic() + grace
            self._leave(command, due if command.due is None else min(due, command.due))
        elif any(message[1] == number for message in self._waiting):
            self._waiting = deque(message for message in self._waiting if message[1] != number)
            self._outbox.append((FINISHED, number, -signal.SIGTERM, b"", b"", 0, 0))

    def _reap(self) -> None:
        """Collect ended children: leaders, and what our commands have left behind, which becomes ours as it is orphaned."""
        orphans = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            command = self._leaders.pop(pid, None)
            if command is None:
                orphans = True
            else:
                command.code = os.waitstatus_to_exitcode(status)
                self._settle(command)
        if orphans:
            for command in list(self._leaving.values()):
                self._settle(command)

    def _listen(self, command: Command, stream: Stream) -> None:
        if stream.read(1):
            self._close(stream)
            self._settle(command)

    def _settle(self, command: Command) -> None:
        """Report a command whose leader has exited, group is empty and pipes are at their end; else give it a moment."""
        if command.code is None:
            return
        command.signal(0)
        for stream in command.streams:
            if stream.fd >= 0 and stream.read(READS):
                self._close(stream)
        if command.gone and all(stream.fd < 0 for stream in command.streams):
            self._report(command)
        elif command.due is None:
            self._leave(command, time.monotonic() + LINGER)

    def _leave(self, command: Command, due: float) -> None:
        command.due = due
        self._leaving[command.number] = command
        self._watch_streams(command)

    def _report(self, command: Command) -> None:
        for stream in command.streams:
            self._close(stream)
        del self._commands[command.number]
        self._leaving.pop(command.number, None)
        out, err = command.streams
        kept = (b"".join(out.chunks), b"".join(err.chunks))
        self._outbox.append((FINISHED, command.number, command.code, *kept, out.size, err.size))
        if self._waiting:
            self._run(self._waiting.popleft())

    # --- time -----------------------------------------------------------------------------------------------------

    def _timeout(self) -> int | None:
        """Milliseconds until something is due."""
        dues = [command.due for command in self._leaving.values() if command.due is not None]
        if self._young:
            dues.append(self._young[0].born + UNWATCHED)
        return max(0, int((min(dues) - time.monotonic()) * 1000) + 1) if dues else None

    def _tick(self, now: float) -> None:
        while self._young and (self._young[0].code is not None or self._young[0].born + UNWATCHED <= now):
            self._watch_streams(self._young.popleft())
        for command in [command for command in self._leaving.values() if command.due is not None and command.due <= now]:
            command.due = now + PRESS
            command.presses += 1
            command.signal(signal.SIGKILL)
            if command.code is not None and (command.gone or command.presses > PRESSES):
                self._report(command)

    # --- files ----------------------------------------------------------------------------------------------------

    def _watch(self, fd: int, hear: Callable[[], None]) -> None:
        self._hear[fd] = hear
        self._poll.register(fd, select.POLLIN)

    def _watch_streams(self, command: Command) -> None:
        for stream in command.streams:
            if stream.fd >= 0 and stream.fd not in self._hear:
                self._watch(stream.fd, lambda stream=stream: self._listen(command, stream))

    def _close(self, stream: Stream) -> None:
        if stream.fd >= 0:
            if self._hear.pop(stream.fd, None) is not None:
                self._poll.unregister(stream.fd)
            os.close(stream.fd)
            stream.fd = -1
