"""A warmed parent: a process that has imported pytest and its plugins, and forks for every run.

Most of a short run is the start of an interpreter, of pytest and of its plugins. This process does
that once. It imports nothing of the project: a run forks from a state in which neither the original
nor a candidate has been seen. The fork applies the sandbox (`abreast.worktrees.sandbox`) and only
then becomes the child (`main` or `timed`), with the environment, directory, descriptors and signals
that a new interpreter would have.

It reports itself unfit if forking would not be the same as starting: if a plugin is code of the
project, starts a thread or keeps a file open. Then every run starts an interpreter of its own.

The orders come by a FIFO that has no name any more when the first run starts, and that runs can't
reach. When the driver closes it, this process ends all runs and itself.
"""

import contextlib
import ctypes
import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from abreast.jobs.candidates.child import guard, main, suite, timed
from abreast.jobs.candidates.child.paths import Places
from abreast.worktrees.sandbox import landlock, seccomp
from abreast.worktrees.sandbox import program as sandbox

# A fork can't import them any more: its files may be out of its reach by then.
FILTERS = (landlock, seccomp)
_PROGRAMS = {"main": main.main, "timed": timed.main}
_STANDARD = 3  # descriptors: stdin, stdout, stderr
_PDEATHSIG = 1
# Objects of each size class that are allocated before a run at most, so that no two runs have
# the same layout of memory.
_PADDING_OBJECTS = 61
_PADDING_SIZES = range(16, 513, 16)
_padding: list[object] = []


def serve(directory: str) -> NoReturn:
    """Get warm, say so, and fork for every order until the driver closes the FIFO."""
    control = os.open(os.path.join(directory, "control"), os.O_RDONLY | os.O_CLOEXEC)
    answers = os.open(os.path.join(directory, "answers"), os.O_WRONLY | os.O_CLOEXEC)
    for name in ("control", "answers"):
        os.unlink(os.path.join(directory, name))
    with open(os.path.join(directory, "warm.json"), encoding="utf-8") as file:
        orders = json.load(file)
    WarmParent(control, answers, orders).serve()


class WarmParent:
    """Forks runs, and ends them when it is told to."""

    def __init__(self, control: int, answers: int, orders: dict[str, Any]) -> None:
        self._control, self._answers, self._orders = control, answers, orders
        self._places = Places(orders["top"], orders["slot"])
        self._runs: dict[int, tuple[int, int]] = {}  # by pidfd: number of the order, and pid
        self._inbox = b""
        # Where bytecode is kept for the parents that come later; empty where pytest has its own.
        self._bytecode = "" if _is_compiled("pytest") else str(orders["bytecode"])

    def serve(self) -> NoReturn:
        """Serve until the driver closes the FIFO."""
        self._answer({"unfit": self._warm_up(self._orders["modules"])})
        waiting = select.poll()
        waiting.register(self._control, select.POLLIN)
        while True:
            for file, _ in waiting.poll():
                if file != self._control:
                    waiting.unregister(file)
                    os.waitpid(self._runs.pop(file)[1], 0)
                    os.close(file)
                    continue
                for order in self._read_orders():
                    if "import" in order:
                        self._answer({"unfit": self._warm_up(order["import"])})
                    elif "signal" in order:
                        self._send_signal(order)
                    else:
                        waiting.register(self._fork(order), select.POLLIN)

    # --- warming up

    @contextlib.contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Restore all that pytest changes in an interpreter besides importing modules."""
        lists: list[list[Any]] = [sys.path, sys.meta_path, sys.path_hooks, sys.argv]
        before, environment, place = [list(one) for one in lists], dict(os.environ), os.getcwd()
        filters = list(warnings.filters)
        try:
            yield
        finally:
            for one, content in zip(lists, before, strict=True):
                one[:] = content
            os.environ.clear()
            os.environ.update(environment)
            os.chdir(place)
            warnings.filters[:] = filters  # type: ignore[index] # a list
            importlib.invalidate_caches()

    def _warm_up(self, modules: Sequence[str]) -> str:
        """Import pytest, its plugins and these modules; return why forks would be of no use."""
        with self._unchanged(), _shared_bytecode(self._bytecode):
            try:
                # Imports all modules that are guarded.
                guard.PatchDetector(None if self._orders["tests"] else "")
                os.chdir(self._orders["root"])
                with (
                    open(os.devnull, "w") as nowhere,
                    contextlib.redirect_stdout(nowhere),
                    contextlib.redirect_stderr(nowhere),
                ):
                    code = self._import(modules)
            except BaseException as error:  # noqa: BLE001 - a new process will report it
                return f"pytest could not be started beforehand ({type(error).__name__})"
        if unfit := self._unfit() or ("pytest does not start here" if code else ""):
            return unfit
        # Collections in the forks need not visit, and so copy, the objects that exist now.
        gc.collect()
        gc.freeze()
        return ""

    def _import(self, modules: Sequence[str]) -> int:
        """Import pytest and plugins, if there are tests, and modules; return pytest's exit code."""
        if self._orders["names"]:
            return suite.load_plugins(self._orders["names"], modules)
        for name in modules:
            # What the plugins of pytest imported is not what the target needs.
            if self._orders["tests"] or not name.startswith(("pytest", "_pytest")):
                with contextlib.suppress(BaseException):
                    importlib.import_module(name)
        return 0

    def _unfit(self) -> str:
        """Why a fork of this process would not be like a new process; empty if it would."""
        for name, one in list(sys.modules.items()):
            file = getattr(one, "__file__", None)
            if self._places.owns(one) or (isinstance(file, str) and self._places.belongs(file)):
                return f"pytest imports {name} of the project before any test"
        if len(os.listdir("/proc/self/task")) > 1:
            return "what the tests import starts threads"
        mine = {0, 1, 2, self._control, self._answers}
        kept = [int(one) for one in os.listdir("/proc/self/fd") if int(one) not in mine]
        if any(os.path.exists(f"/proc/self/fd/{one}") for one in kept):
            return "what the tests import keeps files open"
        return ""

    # --- orders

    def _answer(self, content: dict[str, Any]) -> None:
        os.write(self._answers, json.dumps(content).encode("ascii") + b"\n")

    def _read_orders(self) -> list[dict[str, Any]]:
        data = os.read(self._control, 1 << 16)
        if not data:
            for _, pid in self._runs.values():
                os.kill(pid, signal.SIGKILL)
            os._exit(0)
        *lines, self._inbox = (self._inbox + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def _send_signal(self, order: dict[str, Any]) -> None:
        for number, pid in self._runs.values():
            if number == order["number"]:
                os.kill(pid, order["signal"])

    def _fork(self, order: dict[str, Any]) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if not pid:
            try:
                _run(order)
            finally:
                os._exit(1)
        file = os.pidfd_open(pid)
        self._runs[file] = (order["number"], pid)
        return file


def _is_compiled(name: str) -> bool:
    """Whether a module has bytecode, or can't have any. It is not imported."""
    found = importlib.util.find_spec(name)
    return found is None or found.cached is None or os.path.exists(found.cached)


@contextlib.contextmanager
def _shared_bytecode(place: str) -> Iterator[None]:
    """Within this context, what is compiled is kept in `place`, if there is one.

    That is for libraries that were installed without bytecode: compiling pytest and its plugins
    takes three times as long as importing them.
    """
    before = sys.pycache_prefix, sys.dont_write_bytecode
    if place:
        sys.pycache_prefix, sys.dont_write_bytecode = place, False
    try:
        yield
    finally:
        sys.pycache_prefix, sys.dont_write_bytecode = before


# --- in the fork


def _run(order: dict[str, Any]) -> NoReturn:
    """Be the sandbox of one run; it ends with this process, which the driver sees at `end`."""
    ctypes.CDLL(None).prctl(_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    os.closerange(_STANDARD, os.sysconf("SC_OPEN_MAX"))
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(os.path.join(order["scratch"], name), os.O_WRONLY), number)
    os.closerange(_STANDARD, _STANDARD + 2)
    end = os.open(os.path.join(order["scratch"], "end"), os.O_WRONLY | os.O_CLOEXEC)
    os.write(end, b"begun")
    order["directories"] = [place for place in sys.path if os.path.isdir(place)]
    request = order["request"]
    request["become"] = lambda write_end: _become(order, write_end)
    sandbox.run_request(request)
    os._exit(0)


def _become(order: dict[str, Any], write_end: int) -> NoReturn:
    """Be the child: as a new interpreter is after its imports."""
    os.close(write_end)
    os.closerange(_STANDARD, os.sysconf("SC_OPEN_MAX"))
    # As an interpreter sets them when it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    os.environ.clear()
    os.environ.update(order["request"]["env"])
    if "tempfile" in sys.modules:  # it may have looked for a directory of the parent's
        sys.modules["tempfile"].tempdir = None  # type: ignore[attr-defined] # it has one
    # An interpreter that starts in the sandbox leaves out the directories that are hidden there.
    hidden = {place for place in order["directories"] if not os.path.isdir(place)}
    sys.path[:] = [place for place in sys.path if place not in hidden]
    importlib.invalidate_caches()
    _vary_layout(order["layout"])
    _PROGRAMS[order["program"]](order["directory"])
    os._exit(0)


def _vary_layout(number: int) -> None:
    """Allocate objects that stay, some of each size: what follows has other addresses.

    A forked process has its parent's addresses. Where things lie makes code faster or slower by a
    percent, and decides the order of sets of objects.
    """
    for size in _PADDING_SIZES:
        number = (number * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        objects = (number >> 33) % _PADDING_OBJECTS
        _padding.append([_object_of(size) for _ in range(objects)])


def _object_of(size: int) -> object:
    """Return a new object of that many bytes, a multiple of 16."""
    if size <= 16:  # noqa: PLR2004 - the smallest object
        return object()
    # A float takes 24 bytes, and a bytes object 33 besides its content.
    return float(len(_padding) + size) if size <= 32 else bytes(size - 33)  # noqa: PLR2004
