"""The supervisor process: starts commands, keeps their output, ends them if the driver dies.

It has one thread and a session of its own. A signal to the driver's process group does not reach
it, and it knows every process that it has started. It is a child subreaper, so it inherits the
orphans of its commands: it can tell when a process group is gone, and no group number is reused
before that. `abreast.executors.supervisor.client` is the driver's side.
"""

from __future__ import annotations

import errno
import os
import select
import time  # noqa: TID251 - a program of its own, out of reach of abreast's clock

from abreast.executors.supervisor import protocol

TYPE_CHECKING = False  # typing's own costs 2 ms
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable

    from abreast.executors.supervisor.protocol import Message, Stream, SupervisedCommand
else:
    import _signal as signal

# Seconds after which a command's pipes are polled and its start is reported; shorter commands are
# spared both.
POLL_AFTER = 0.005
# Seconds that processes left in a command's group, or other holders of its pipes, have to end.
LINGER = 0.2
KILL_INTERVAL = 0.02  # seconds between one SIGKILL to a group and the next
# After so many SIGKILLs a command that has exited is reported although its group is not empty: what
# is left belongs to another user, or is the zombie of such a process.
MAX_KILLS = 50
EXIT_TIMEOUT = 1.0  # seconds that the supervisor outlives its driver at most
READS_AT_EXIT = 17  # chunks: all that a pipe of 1 MiB can hold, and its end

_PR_SET_CHILD_SUBREAPER = 36
_DEFAULT_PATH = os.defpath.encode()


class Supervisor:
    """The commands of one driver, and the loop that supervises them."""

    def __init__(self, channel: int, driver: int) -> None:
        """Poll the channel, the driver's pidfd and the pipe that signals an ended child.

        Nothing runs yet.
        """
        self._channel = channel
        self._home = os.open(".", getattr(os, "O_PATH", os.O_RDONLY))  # works if it is unreadable
        self._environment: dict[bytes, bytes] = {}
        self._inbox = bytearray()
        self._outbox: list[Message] = []
        self._commands: dict[int, SupervisedCommand] = {}
        self._leaders: dict[int, SupervisedCommand] = {}
        self._ending: dict[int, SupervisedCommand] = {}  # those with a `kill_at`
        self._unpolled: list[SupervisedCommand] = []  # not polled yet, or ended before they were
        self._queue: list[Message] = []  # RUN messages whose commands have not been started
        self._out_of_resources = False  # no processes or files left, until a command ends
        self._poll = select.poll()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._wakeup = _make_wakeup_pipe()
        self._watch(self._wakeup, self._reap)
        self._watch(channel, self._read)
        pidfd = _open_driver_pidfd(driver)
        if pidfd is not None:
            self._watch(pidfd, self.quit)

    def serve(self) -> None:
        """Send READY, then supervise until the driver closes the channel or dies."""
        self._post(protocol.READY)
        self._send()
        while True:
            for fd, _ in self._poll.poll(self._timeout()):
                if fd in self._callbacks:
                    self._callbacks[fd]()
            self._run_timers(time.monotonic())
            self._send()  # before the starts, which take a while
            self._start_queued()
            self._send()

    def quit(self, *last: Message) -> None:
        """End all commands, then this process; SIGALRM ends it if a command does not end."""
        signal.setitimer(signal.ITIMER_REAL, EXIT_TIMEOUT)
        for command in self._commands.values():
            command.signal(signal.SIGKILL)
        protocol.kill_session(os.getpid())  # processes that left their group but not the session
        for command in self._commands.values():
            while not command.group_gone:
                try:
                    os.waitpid(-command.pid, 0)
                except ChildProcessError:
                    break
        if last:
            os.write(self._channel, protocol.pack([*last]))
        os._exit(0)

    def _send(self) -> None:
        """Write pending messages to the driver.

        Blocks until they are written, which is safe because the driver always reads.
        """
        if self._outbox:
            data = memoryview(protocol.pack(self._outbox))
            self._outbox = []
            while data:
                try:
                    data = data[os.write(self._channel, data) :]
                except OSError:  # the driver died
                    self.quit()

    # --- messages and children

    def _read(self) -> None:
        try:
            data = os.read(self._channel, protocol.CHUNK)
        except OSError:
            data = b""
        if not data:
            self.quit()
        self._inbox += data
        for message in protocol.unpack(self._inbox):
            if message[0] == protocol.RUN:
                self._queue.append(message)
            elif message[0] == protocol.END:
                self._end(*message[1:])
            else:
                self._environment = message[1]

    def _start_queued(self) -> None:
        while self._queue and not self._out_of_resources:
            self._out_of_resources = not self._start(self._queue[0])
            if not self._out_of_resources:
                del self._queue[0]

    def _start(self, message: Message) -> bool:
        """Start a command or refuse it; False if it may start once another has ended."""
        _, number, argv, cwd, changed, removed, *_ = message
        environment = {**self._environment, **changed} if changed or removed else self._environment
        for name in removed:
            del environment[name]
        stage = protocol.ENTER
        try:
            if cwd is not None:
                os.chdir(cwd)
            stage = protocol.FIND
            path = protocol.find(argv[0], environment.get(b"PATH", _DEFAULT_PATH), cwd)
            stage = protocol.START
            command = protocol.start(path, message, environment)
        # ValueError: an environment variable's name is invalid.
        except (OSError, ValueError) as error:
            code = getattr(error, "errno", None) or errno.EINVAL
            if code in protocol.RESOURCE_ERRORS and self._commands:
                return False
            protocol.found_paths.clear()  # a path found_paths before may no longer exist
            if stage == protocol.START and not os.access(path, os.F_OK):
                stage = protocol.FIND
            self._post(
                protocol.REFUSED,
                number,
                stage,
                code,
                getattr(error, "strerror", None) or str(error),
            )
        else:
            self._commands[number] = self._leaders[command.pid] = command
            self._unpolled.append(command)
        finally:
            if cwd is not None:
                os.fchdir(self._home)
        return True

    def _post(self, *message: object) -> None:
        self._outbox.append(message)

    def _end(self, number: int, grace: float) -> None:
        """Send SIGTERM to a command's group, and SIGKILL after `grace` seconds."""
        command = self._commands.get(number)
        if command is not None:
            if grace:
                command.signal(signal.SIGTERM)
            kill_at = time.monotonic() + grace
            self._schedule_kill(
                command, kill_at if command.kill_at is None else min(kill_at, command.kill_at)
            )
        elif any(message[1] == number for message in self._queue):
            self._queue = [message for message in self._queue if message[1] != number]
            self._post(protocol.FINISHED, number, -signal.SIGTERM, b"", b"", 0, 0)

    def _reap(self) -> None:
        """Collect ended children: commands, and the orphans that they left to this process."""
        os.read(self._wakeup, 4096)
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
        for command in list(self._ending.values()) if orphans else ():
            self._settle(command)

    def _read_stream(self, command: SupervisedCommand, stream: Stream) -> None:
        ended = stream.read(1)
        self._post_fresh(command, stream)
        if ended:
            self._close(stream)
            self._settle(command)

    def _post_fresh(self, command: SupervisedCommand, stream: Stream) -> None:
        """Pass on what a live stream has brought since the last time."""
        if stream.fresh:
            self._post(protocol.OUTPUT, command.number, b"".join(stream.fresh))
            stream.fresh = []

    def _settle(self, command: SupervisedCommand) -> None:
        """Report a command that has exited if its group is gone and its pipes are closed.

        Otherwise schedule the SIGKILL of what is left.
        """
        if command.code is None:
            return
        command.signal(0)
        for stream in command.streams:
            if stream.fd >= 0 and stream.read(READS_AT_EXIT):
                self._close(stream)
            self._post_fresh(command, stream)
        if command.group_gone and command.closed:
            self._report(command)
        elif command.kill_at is None:
            self._schedule_kill(command, time.monotonic() + LINGER)

    def _schedule_kill(self, command: SupervisedCommand, kill_at: float) -> None:
        command.kill_at = kill_at
        self._ending[command.number] = command
        self._watch_streams(command)

    def _report(self, command: SupervisedCommand) -> None:
        out, err = command.streams
        self._close(out)
        self._close(err)
        del self._commands[command.number]
        self._ending.pop(command.number, None)
        kept = (b"".join(out.chunks), b"".join(err.chunks))
        self._post(protocol.FINISHED, command.number, command.code, *kept, out.size, err.size)
        self._out_of_resources = False

    # --- timers

    def _timeout(self) -> int | None:
        """Milliseconds until the next timer."""
        times = [
            command.kill_at for command in self._ending.values() if command.kill_at is not None
        ]
        if self._unpolled:
            times.append(self._unpolled[0].started_at + POLL_AFTER)
        return max(0, int((min(times) - time.monotonic()) * 1000) + 1) if times else None

    def _run_timers(self, now: float) -> None:
        while self._unpolled and (
            self._unpolled[0].code is not None or self._unpolled[0].started_at + POLL_AFTER <= now
        ):
            command = self._unpolled.pop(0)
            self._watch_streams(command)
            if command.code is None:  # a shorter one is reported only by FINISHED
                self._post(protocol.STARTED, command.number, command.pid)
        for command in [
            command
            for command in self._ending.values()
            if command.kill_at is not None and command.kill_at <= now
        ]:
            command.kill_at = now + KILL_INTERVAL
            command.kills += 1
            command.signal(signal.SIGKILL)
            if command.code is not None and (command.group_gone or command.kills > MAX_KILLS):
                self._report(command)

    # --- file descriptors

    def _watch(self, fd: int, callback: Callable[[], None]) -> None:
        self._callbacks[fd] = callback
        self._poll.register(fd, select.POLLIN)

    def _watch_streams(self, command: SupervisedCommand) -> None:
        for stream in command.streams:
            if stream.fd >= 0 and stream.fd not in self._callbacks:
                self._watch(stream.fd, lambda stream=stream: self._read_stream(command, stream))  # type: ignore[misc]

    def _close(self, stream: Stream) -> None:
        if stream.fd >= 0:
            if self._callbacks.pop(stream.fd, None) is not None:
                self._poll.unregister(stream.fd)
            os.close(stream.fd)
            stream.fd = -1


def _make_wakeup_pipe() -> int:
    """Return a pipe that becomes readable with every signal."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    return read_end


def _open_driver_pidfd(driver: int) -> int | None:
    """A file descriptor that becomes readable when the driver ends.

    The end of the channel is not enough: a fork of the driver may still hold it open.
    """
    try:
        return os.pidfd_open(driver)
    except (AttributeError, OSError):  # an old kernel, or not Linux: rely on the channel's end
        return None


def _prepare() -> None:
    """Survive signals, without making commands ignore them; become a child subreaper."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A signal that is ignored (nohup) stays ignored, also in commands.
        if number == signal.SIGCHLD or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)
    # Without it PID 1 reaps orphans, and `_run_timers` has to look for them.
    except (ImportError, OSError, AttributeError):
        pass


def main(channel: int, driver: int) -> None:
    """Supervise commands for the driver at the other end of `channel`."""
    os.set_inheritable(channel, False)  # noqa: FBT003 - it has no keyword
    _prepare()
    supervisor = Supervisor(channel, driver)
    if os.getppid() != driver:  # it died before its pidfd was opened
        os._exit(0)
    try:
        supervisor.serve()
    except BaseException as error:  # noqa: BLE001 - reported to the driver
        import traceback

        supervisor.quit((protocol.BROKEN, f"broke ({error!r})", traceback.format_exc()))
