"""A Python that has imported abreast already, and forks for every call.

To be `python -m abreast`, or a script.

Each call is a process of its own, with the standard files, the directory, the environment and the
end that it would have anyway. Only the start of an interpreter and its imports are saved, which are
most of a short call: 300 ms of 360 ms where coverage is measured. `test_warm.py` holds it to what a
new interpreter does.
"""

import atexit
import fcntl
import gc
import hashlib
import importlib
import json
import os
import pkgutil
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from tests import shared

PROGRAM = "from tests.warm import serve; serve({line}, {also}, session={session})"
LONGEST = 200_000  # bytes of a request, as a packet on the line
LATER = (
    "abreast.__main__",
    "abreast.cli.commands.env",
    "abreast.cli.commands.serve",
    "abreast.models",
    "abreast.serve",
    "abreast.testing",
)  # run, heavy or optional, not for users
SETTINGS = ("COVERAGE_", "PYTHON")
ALSO = (
    "asyncio",
    "concurrent.futures.thread",
    "csv",
    "encodings.utf_8_sig",
    "sqlite3",
    "tomllib",
    "jinja2",
    "rich.live",
    "rich.text",
    "rich.tree",
    "yaml",
)


class Warm:
    """The end of the tests: the process is there until it is closed.

    It has imported the modules named by `also` too.
    """

    def __init__(self, environment, also=(), program=PROGRAM):
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = program.format(line=theirs.fileno(), also=tuple(also), session=None)
            self._process = _start(words, environment, theirs, subprocess.PIPE)

    @property
    def line(self):
        """The socket to ask at, for a process that inherits it."""
        return self._line.fileno()

    @property
    def calls(self):
        """The processes of calls under way."""
        pid = self._process.pid
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]

    def close(self):
        self._line.close()
        self._process.communicate(timeout=60)

    def run(self, program, arguments, given=b"", *, cwd, environment, patience):
        """Run a module by its name, or a script by its path, to its end.

        Exit code, stdout, stderr.
        """
        with ExitStack() as files:
            theirs_in, stdin = _pipe(files)
            stdout, theirs_out = _pipe(files)
            stderr, theirs_err = _pipe(files)
            ended, theirs_end = _pipe(files)
            theirs = [theirs_in, theirs_out, theirs_err, theirs_end]
            with suppress(ConnectionError):  # it is gone, and what it said comes below
                request = (program, list(arguments), os.fspath(cwd), environment, False)
                self.ask_for(request, [file.fileno() for file in theirs])
            for file in theirs:
                file.close()
            out, err, end = _exchange(given, stdin, (stdout, stderr, ended), patience)
            pid, _, status = end.decode().partition(" ")
            if not pid and not ended.closed:  # it was not even started
                pid = ended.read(20).decode().partition(" ")[0]
            if not pid:
                raise RuntimeError(f"there is nobody to fork: {self._errors()}")
            if not ended.closed:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
                ended.read()
            if not all(file.closed for file in (stdout, stderr, ended)):
                raise subprocess.TimeoutExpired(arguments, patience, out, err)
        return os.waitstatus_to_exitcode(int(status)), out, err

    def ask_for(self, request, files):
        """Ask for a process that has these as its standard files and tells its end to the last."""
        socket.send_fds(self._line, [json.dumps(request).encode()], files)

    def _errors(self):
        return self._process.stderr.read().decode()


class SharedWarm(Warm):
    """A process for all workers of a session, which ends with it; the first to need it starts it.

    There is another for each program, for other modules, and for other settings of Python.
    """

    def __init__(self, environment, also=(), program=PROGRAM):
        settings = sorted(pair for pair in environment.items() if pair[0].startswith(SETTINGS))
        kind = json.dumps([program, *also, *settings]).encode()
        self._place = shared.folder() / f"warm-{hashlib.sha256(kind).hexdigest()[:16]}"
        with self._place.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            new = not self._place.exists()
            if new:
                os.mkfifo(self._place.with_suffix(".errors"))
            self._stderr = os.open(self._place.with_suffix(".errors"), os.O_RDWR | os.O_NONBLOCK)
            if new:
                self._start(environment, also, program)
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._line.connect(str(self._place))

    def close(self):
        self._line.close()
        os.close(self._stderr)

    def _start(self, environment, also, program):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(self._place))
            listener.listen()
            session = shared.process()
            words = program.format(line=listener.fileno(), also=tuple(also), session=session)
            process = _start(words, environment, listener, self._stderr)
        shared.end_with_it(self._place.name, process.pid)
        process.returncode = 0  # it goes on for other workers
        process.stdin.close()
        process.stdout.close()

    def _errors(self):
        with suppress(BlockingIOError):
            return os.read(self._stderr, 1 << 16).decode()
        return ""


def _start(words, environment, line, errors):
    """Start Python with pipes, as in every call.

    What standard files are is found out when an interpreter starts.
    """
    return subprocess.Popen(
        [sys.executable, "-c", words],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        pass_fds=(line.fileno(),),
    )


class Forked(subprocess.Popen):
    """A process forked from a warm one, to be started and ended as `subprocess.Popen` is."""

    def __init__(self, warm, program, arguments, *, session=False, cwd, env, **standard):
        request = (program, [*map(str, arguments)], os.fspath(cwd), env, session)
        self._ask = lambda files: warm.ask_for(request, files)
        super().__init__([program, *map(str, arguments)], **standard)

    def _execute_child(self, *given):
        """Have it forked there, instead of here."""
        pipes = given[10:16]  # of stdin, stdout, stderr: the end to read and the one to write
        standard = (pipes[0], pipes[3], pipes[5])
        self._ended, theirs = os.pipe()
        try:
            self._ask([*(max(file, at) for at, file in enumerate(standard)), theirs])
        finally:
            os.close(theirs)
            self._close_pipe_fds(*pipes)
        self.pid = int(os.read(self._ended, 20))
        self._child_created = True

    def _try_wait(self, flags):
        if flags & os.WNOHANG and not select.select([self._ended], [], [], 0)[0]:
            return 0, 0
        with os.fdopen(self._ended, "rb") as ended:
            return self.pid, int(ended.read())

    def _internal_poll(self, *_, **__):
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid:
                        self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def _pipe(files):
    """Both ends of a pipe, the one to read first."""
    ends = zip(os.pipe(), ("rb", "wb"), strict=True)
    return [files.enter_context(os.fdopen(end, mode, buffering=0)) for end, mode in ends]


def _exchange(given, stdin, sources, patience):
    """Write `given` and read all output, until every pipe is closed or `patience` has passed."""
    said = {source: bytearray() for source in sources}
    rest = memoryview(given)
    due = time.monotonic() + patience
    with selectors.DefaultSelector() as selector:
        for source in sources:
            selector.register(source, selectors.EVENT_READ)
        os.set_blocking(stdin.fileno(), False)
        selector.register(stdin, selectors.EVENT_WRITE)
        while selector.get_map() and time.monotonic() < due:
            for key, _ in selector.select(due - time.monotonic()):
                if key.fileobj is stdin:
                    try:
                        rest = rest[os.write(key.fd, rest) :] if rest else rest
                    except BrokenPipeError:
                        rest = rest[:0]
                    more = bool(rest)
                else:
                    piece = os.read(key.fd, 1 << 20)
                    said[key.fileobj] += piece
                    more = bool(piece)
                if not more:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
    return (bytes(said[source]) for source in sources)


# --- the other end --------------------------------------------------------------------------------


def serve(number, also=(), import_all=None, session=None):
    """Fork for every request, after the imports that are worth sharing.

    Each child leaves by being the program, and this process when the line is closed. With a
    session, many lines may be opened, and this process leaves when that process has ended.
    """
    if import_all is None:
        _import_all(also)
    else:
        import_all()
    _save_coverage()
    gc.freeze()  # a collection in a child would copy all that was imported
    _Server(socket.socket(fileno=number), session).serve()


class _Server:
    """Answers at its lines: a process for each request, whose end is told to who asked."""

    def __init__(self, line, session):
        line.set_inheritable(False)
        self._poll = select.poll()
        self._answers = {}  # by handle: what to do when there is something to read
        self._lines = {}
        self._running = {}  # by handle: the process, and where its end is told
        self._closed = False
        if session is None:
            self._open(line)
        else:
            self._listener = line
            self._watch(line.fileno(), self._accept)
            self._watch(os.pidfd_open(session), self._close)

    def serve(self):
        while not self._closed:
            for handle, _ in self._poll.poll():
                self._answers[handle](handle)

    def _watch(self, handle, answer):
        self._answers[handle] = answer
        self._poll.register(handle, select.POLLIN)

    def _forget(self, handle):
        del self._answers[handle]
        self._poll.unregister(handle)

    def _close(self, _):
        self._closed = True

    def _accept(self, _):
        self._open(self._listener.accept()[0])

    def _open(self, line):
        self._lines[line.fileno()] = line
        self._watch(line.fileno(), self._fork)

    def _fork(self, handle):
        request, files, _, _ = socket.recv_fds(self._lines[handle], LONGEST, 4)
        if not request:
            self._forget(handle)
            self._lines.pop(handle).close()
            self._closed = not self._answers
            return
        pid = os.fork()
        if pid == 0:
            for other in (*self._answers, *(end for _, end in self._running.values())):
                os.close(other)
            for line in self._lines.values():
                line.detach()
            *asked, session = json.loads(request)
            if session:
                os.setsid()
            if _tell(files[3], str(os.getpid())):
                become(*asked, files)
            os._exit(1)
        *standard, end = files
        for file in standard:
            os.close(file)
        child = os.pidfd_open(pid)
        self._running[child] = (pid, end)
        self._watch(child, self._tell_end)

    def _tell_end(self, child):
        self._forget(child)
        pid, end = self._running.pop(child)
        _tell(end, f" {os.waitpid(pid, 0)[1]}")
        os.close(end)
        os.close(child)


def _tell(end, words):
    """Whether there was still somebody to tell: who asked may have been stopped meanwhile."""
    with suppress(BrokenPipeError):
        return os.write(end, words.encode())


def _import_all(also):
    """All that a command may need: what is imported later than that is imported in every child."""
    import abreast

    for module in pkgutil.walk_packages(abreast.__path__, "abreast."):
        if not module.name.startswith(LATER):
            importlib.import_module(module.name)
    for name in (*ALSO, *also):
        importlib.import_module(name)


def _save_coverage():
    """What the imports reached is measured here, once; each child adds what it reaches itself."""
    coverage = sys.modules.get("coverage")
    measured = coverage and coverage.Coverage.current()
    if measured:
        measured.save()


def become(program, arguments, cwd, environment, files):
    """Do what `python -m program` or `python program.py` does after start-up, up to its exit."""
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
    for file in files:
        os.close(file)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    script = program.endswith(".py") or Path(program).is_absolute()
    sys.path[0] = str(Path(program).parent) if script else cwd
    sys.argv = [program, *arguments]
    try:
        if script:
            runpy.run_path(program, run_name="__main__")
        else:
            runpy._run_module_as_main(program)
        code = 0
    except SystemExit as error:
        if not isinstance(error.code, int | None):
            raise
        code = error.code or 0
    _leave(code)


def _leave(code):
    """End as an interpreter does, but for freeing what was imported, object by object.

    That would copy the memory of the process that this one was forked from: 60 ms of CPU, which is
    most of a short call.
    """
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        for file in (sys.stdout, sys.stderr):
            if file is not None and not file.closed:
                file.flush()
    except (OSError, ValueError):
        sys.exit(code)  # which says so
    os._exit(code & 0xFF)
