"""The warden: a small process that starts commands, keeps what they write, and ends them, also when the driver dies.

It has one thread and a session of its own: a signal to the driver's group can't reach it, and
nothing that it has started is ever unknown to it. As a child subreaper it inherits what commands
leave behind: so it knows when a group is gone, and no number of a group is reused before that.
`abreast.executors.commands` holds the driver's end of the line.
"""

from __future__ import annotations

import errno
import os
import select
import time  # noqa: TID251 - a program of its own, out of reach of abreast's clock

from abreast.executors.supervisor import protocol as wards

TYPE_CHECKING = False  # typing's own costs 2 ms
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable

    from abreast.executors.supervisor.protocol import Message, Stream, SupervisedCommand
else:
    import _signal as signal

# s; a command that ends sooner never has its pipes polled, nor a message for its start alone
UNWATCHED = 0.005
LINGER = 0.2  # s; for what a command has left in its group, and for others who hold its pipes
PRESS = 0.02  # s; between one SIGKILL and the next
# then a command that has exited is reported, whatever is left: a stranger's process, a zombie of
# one
PRESSES = 50
DYING = 1.0  # s; the longest that the warden outlives its driver
READS = 17  # at a command's exit: all that a pipe of 1 MiB can hold, and its end

_PR_SET_CHILD_SUBREAPER = 36
_PATH = os.defpath.encode()


class Supervisor:
    """The commands of one driver, and the loop that watches over them."""

    def __init__(self, line: int, driver: int) -> None:
        """Watch the line, the driver's life and the bell that rings when a child ends.

        Nothing runs yet.
        """
        self._line = line
        self._home = os.open(".", getattr(os, "O_PATH", os.O_RDONLY))  # readable or not
        self._environment: dict[bytes, bytes] = {}
        self._inbox = bytearray()
        self._outbox: list[Message] = []
        self._urgent = False
        self._wards: dict[int, SupervisedCommand] = {}
        self._leaders: dict[int, SupervisedCommand] = {}
        self._leaving: dict[int, SupervisedCommand] = {}  # those with a `due`
        self._young: list[SupervisedCommand] = []  # not watched yet, or over before they were
        self._queue: list[Message] = []  # to be started
        self._short = False  # of processes or files, until a command ends
        self._poll = select.poll()
        self._hear: dict[int, Callable[[], None]] = {}
        self._bell = _make_bell()
        self._watch(self._bell, self._reap)
        self._watch(line, self._read)
        life = _life_of(driver)
        if life is not None:
            self._watch(life, self.quit)

    def serve(self) -> None:
        """Say that this is up, and watch until the driver hangs up or dies."""
        self._tell(wards.READY)
        self._send()
        while True:
            for fd, _ in self._poll.poll(self._timeout()):
                if fd in self._hear:
                    self._hear[fd]()
            self._tick(time.monotonic())
            self._send()  # before the starts, which take a while
            self._start_queued()
            self._send()

    def quit(self, *last: Message) -> None:
        """End all commands, then this process; the alarm ends it if a command won't."""
        signal.setitimer(signal.ITIMER_REAL, DYING)
        for ward in self._wards.values():
            ward.signal(signal.SIGKILL)
        wards.sweep(os.getpid())  # what has left its group, though not the session
        for ward in self._wards.values():
            while not ward.gone:
                try:
                    os.waitpid(-ward.pid, 0)
                except ChildProcessError:
                    break
        if last:
            os.write(self._line, wards.pack([*last]))
        os._exit(0)

    def _send(self) -> None:
        """Write to the driver, if there is something it waits for.

        Waits for it, as it always reads.
        """
        if self._urgent:
            data = memoryview(wards.pack(self._outbox))
            self._outbox = []
            self._urgent = False
            while data:
                try:
                    data = data[os.write(self._line, data) :]
                except OSError:  # it died
                    self.quit()

    # --- what happens ---------------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            data = os.read(self._line, wards.CHUNK)
        except OSError:
            data = b""
        if not data:
            self.quit()
        self._inbox += data
        for message in wards.unpack(self._inbox):
            if message[0] == wards.RUN:
                self._queue.append(message)
            elif message[0] == wards.END:
                self._end(*message[1:])
            else:
                self._environment = message[1]

    def _start_queued(self) -> None:
        while self._queue and not self._short:
            self._short = not self._start(self._queue[0])
            if not self._short:
                del self._queue[0]

    def _start(self, message: Message) -> bool:
        """Start a command, or say why not; False if it may start when another has ended."""
        _, number, argv, cwd, changed, removed, _, _ = message
        environment = {**self._environment, **changed} if changed or removed else self._environment
        for name in removed:
            del environment[name]
        stage = wards.ENTER
        try:
            if cwd is not None:
                os.chdir(cwd)
            stage = wards.FIND
            path = wards.find(argv[0], environment.get(b"PATH", _PATH), cwd)
            stage = wards.START
            ward = wards.start(path, message, environment)
        except (
            OSError,
            ValueError,
        ) as error:  # ValueError: a name in the environment that can't be one
            code = getattr(error, "errno", None) or errno.EINVAL
            if code in wards.SHORT_OF and self._wards:
                return False
            wards.found.clear()  # what was found may be there no more
            if stage == wards.START and not os.access(path, os.F_OK):
                stage = wards.FIND
            self._tell(
                wards.REFUSED, number, stage, code, getattr(error, "strerror", None) or str(error)
            )
        else:
            self._wards[number] = self._leaders[ward.pid] = ward
            self._young.append(ward)
        finally:
            if cwd is not None:
                os.fchdir(self._home)
        return True

    def _tell(self, *message: object) -> None:
        self._outbox.append(message)
        self._urgent = True

    def _end(self, number: int, grace: float) -> None:
        """Ask a command's group to end, and make it after `grace` seconds."""
        ward = self._wards.get(number)
        if ward is not None:
            if grace:
                ward.signal(signal.SIGTERM)
            due = time.monotonic() + grace
            self._leave(ward, due if ward.due is None else min(due, ward.due))
        elif any(message[1] == number for message in self._queue):
            self._queue = [message for message in self._queue if message[1] != number]
            self._tell(wards.FINISHED, number, -signal.SIGTERM, b"", b"", 0, 0)

    def _reap(self) -> None:
        """Collect ended children: commands, and the orphans they left, which become ours."""
        os.read(self._bell, 4096)
        orphans = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            ward = self._leaders.pop(pid, None)
            if ward is None:
                orphans = True
            else:
                ward.code = os.waitstatus_to_exitcode(status)
                self._settle(ward)
        for ward in list(self._leaving.values()) if orphans else ():
            self._settle(ward)

    def _listen(self, ward: SupervisedCommand, stream: Stream) -> None:
        if stream.read(1):
            self._close(stream)
            self._settle(ward)

    def _settle(self, ward: SupervisedCommand) -> None:
        """Report a command that has exited, with its group gone and its pipes at their end.

        Else give it a moment.
        """
        if ward.code is None:
            return
        ward.signal(0)
        for stream in ward.streams:
            if stream.fd >= 0 and stream.read(READS):
                self._close(stream)
        if ward.gone and ward.closed:
            self._report(ward)
        elif ward.due is None:
            self._leave(ward, time.monotonic() + LINGER)

    def _leave(self, ward: SupervisedCommand, due: float) -> None:
        ward.due = due
        self._leaving[ward.number] = ward
        self._watch_streams(ward)

    def _report(self, ward: SupervisedCommand) -> None:
        out, err = ward.streams
        self._close(out)
        self._close(err)
        del self._wards[ward.number]
        self._leaving.pop(ward.number, None)
        kept = (b"".join(out.chunks), b"".join(err.chunks))
        self._tell(wards.FINISHED, ward.number, ward.code, *kept, out.size, err.size)
        self._short = False

    # --- time -----------------------------------------------------------------------------------------------------

    def _timeout(self) -> int | None:
        """Milliseconds until something is due."""
        dues = [ward.due for ward in self._leaving.values() if ward.due is not None]
        if self._young:
            dues.append(self._young[0].born + UNWATCHED)
        return max(0, int((min(dues) - time.monotonic()) * 1000) + 1) if dues else None

    def _tick(self, now: float) -> None:
        while self._young and (
            self._young[0].code is not None or self._young[0].born + UNWATCHED <= now
        ):
            ward = self._young.pop(0)
            self._watch_streams(ward)
            if ward.code is None:  # of a shorter one the driver hears only that it has finished
                self._tell(wards.STARTED, ward.number, ward.pid)
        for ward in [
            ward for ward in self._leaving.values() if ward.due is not None and ward.due <= now
        ]:
            ward.due = now + PRESS
            ward.presses += 1
            ward.signal(signal.SIGKILL)
            if ward.code is not None and (ward.gone or ward.presses > PRESSES):
                self._report(ward)

    # --- files ----------------------------------------------------------------------------------------------------

    def _watch(self, fd: int, hear: Callable[[], None]) -> None:
        self._hear[fd] = hear
        self._poll.register(fd, select.POLLIN)

    def _watch_streams(self, ward: SupervisedCommand) -> None:
        for stream in ward.streams:
            if stream.fd >= 0 and stream.fd not in self._hear:
                self._watch(stream.fd, lambda stream=stream: self._listen(ward, stream))  # type: ignore[misc]

    def _close(self, stream: Stream) -> None:
        if stream.fd >= 0:
            if self._hear.pop(stream.fd, None) is not None:
                self._poll.unregister(stream.fd)
            os.close(stream.fd)
            stream.fd = -1


def _make_bell() -> int:
    """A pipe that becomes readable with every signal."""
    bell, hammer = os.pipe()
    os.set_blocking(bell, False)
    os.set_blocking(hammer, False)
    signal.set_wakeup_fd(hammer, warn_on_full_buffer=False)
    return bell


def _life_of(driver: int) -> int | None:
    """A file that becomes readable when the driver ends, even if a fork of it still holds the line."""
    try:
        return os.pidfd_open(driver)
    except (AttributeError, OSError):  # an old kernel, another system; the line's end has to do
        return None


def _prepare() -> None:
    """Take signals without dying or passing that on to commands.

    Inherit orphans, where the system lets us.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if (
            number == signal.SIGCHLD or signal.getsignal(number) != signal.SIG_IGN
        ):  # nohup goes on to commands
            signal.signal(number, lambda *_: None)
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)
    except (
        ImportError,
        OSError,
        AttributeError,
    ):  # then PID 1 reaps them, and we look again and again
        pass


def main(line: int, driver: int) -> None:
    """Be the warden of the driver at the other end of `line`."""
    os.set_inheritable(line, False)  # noqa: FBT003 - it has no keyword
    _prepare()
    warden = Supervisor(line, driver)
    if os.getppid() != driver:  # it died before we could watch it
        os._exit(0)
    try:
        warden.serve()
    except BaseException as error:  # noqa: BLE001 - told to the driver
        import traceback

        warden.quit((wards.BROKEN, f"broke ({error!r})", traceback.format_exc()))
