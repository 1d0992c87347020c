"""The main program of the child: runs the tests with the target traced, then tries inputs.

It records the target's side effects: files, sockets, processes, interpreter settings. The
interpreter reports these by audit events, which no Python code can undo. The sandbox around the
child prevents the worst; this records the attempts. Those that the original makes too do not count
against a candidate.
"""

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from abreast.jobs.candidates.child import guard
from abreast.jobs.candidates.child.capture import Channel, Function, Recorder, active
from abreast.jobs.candidates.child.paths import (
    Places,
    SlotFinder,
    import_root,
    is_importable,
    module_name,
    set_path,
)
from abreast.jobs.candidates.child.trying import try_inputs
from abreast.jobs.candidates.child.workloads import run_suite
from abreast.jobs.candidates.child.wrapping import TargetMissing, install

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


class _Audit:
    """Reports each kind of side effect once. `importing` is set while the target's module runs."""

    def __init__(self, channel: Channel, places: Places, own: str) -> None:
        self.importing = False
        self._channel, self._places = channel, places
        temporary = (os.environ.get("TMPDIR", ""), os.environ.get("HOME", ""))
        self._allowed = (*(os.path.realpath(one) + os.sep for one in temporary if one), "/dev/")
        self._own = os.path.realpath(own) + os.sep

    def start(self) -> None:
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, args: tuple[object, ...]) -> None:
        if event == "open":
            self._on_open(args)
        elif event in _ALWAYS_REPORTED:
            if self._is_library_import():
                return
            self._channel.send_once("did", _ALWAYS_REPORTED[event])
        elif event in _REPORTED_IN_TARGET and (self.importing or active()) and not _is_import():
            self._channel.send_once("did", _REPORTED_IN_TARGET[event])

    def _is_library_import(self) -> bool:
        """Whether an installed module does it while it is imported.

        numpy loads ctypes, and its tests ask what processor there is; a warmed parent has done so
        before, so it would be seen in one run and not in the next.
        """
        frame = sys._getframe(2)  # noqa: SLF001 - the only way to find the caller
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith("<frozen importlib"):
                return True
            if self._places.holds(file):
                return False
            frame = frame.f_back  # type: ignore[assignment] # the last one has none
        return False

    def _on_open(self, args: tuple[object, ...]) -> None:
        path, flags = args[0], args[2] if len(args) > 2 else 0  # noqa: PLR2004 - path, mode, flags
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if not isinstance(path, str) or not isinstance(flags, int):
            return
        writes = bool(flags & _WRITE_FLAGS)
        if not writes and (not (self.importing or active()) or _is_import()):
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


class ChildProgram:
    """One run: reads its orders from a JSON file in its directory, and writes the trace there."""

    def __init__(self, directory: str) -> None:
        with open(os.path.join(directory, "orders.json"), encoding="utf-8") as file:
            self._orders: dict[str, Any] = json.load(file)
        self._channel = Channel(os.path.join(directory, "said"))
        self._recorder = Recorder(self._channel, self._orders.get("wanted") or ())
        self._places = Places(
            self._orders["top"], self._orders["slot"], self._orders.get("removed", ())
        )
        self._target = self._in_slot(self._orders["file"])
        # The other files that the candidate changes are its own code, like the target's file.
        self._others = [self._in_slot(one) for one in self._orders.get("changed", ())]
        self._loaded: list[str] = []
        self._audit = _Audit(self._channel, self._places, directory)
        self._found: list[tuple[ModuleType, Function]] = []
        # Whether there is more to run than generated inputs.
        self._suite = bool(self._orders["names"] or self._orders.get("workloads"))
        self._patches = guard.PatchDetector(None if self._suite else self._source())
        self._state_before: Mapping[str, tuple[str, int]] = {}
        self._modules_before = frozenset(sys.modules)

    def run(self) -> None:
        """Run everything; the last line of the trace says that it came to its end."""
        set_path(self._target)
        finder = SlotFinder(
            self._places,
            self._target,
            self._import_target,
            others=self._others,
            around_others=self._import_other,
        )
        sys.meta_path.insert(0, finder)
        self._report_replaced_modules()
        self._audit.start()
        code = self._run_tests() if self._suite else 0
        if inputs := self._orders.get("inputs"):
            self._try_inputs(inputs)
        self._recorder.close()
        self._channel.send(
            "end",
            {
                "exit": code,
                "found": [str(module.__file__) for module, _ in self._found],
                "elsewhere": [] if self._found else self._files_elsewhere(),
                "broken": self._patches.rebound_names(self._places),
                "codes": guard.code_digests(self._places, {self._target, *self._others}),
                "loaded": self._loaded,
                "grown": guard.changed_state(self._state_before, guard.state_digests(self._places)),
                "modules": self._modules() if self._orders.get("modules") else [],
            },
        )

    def _in_slot(self, file: str) -> str:
        return os.path.realpath(os.path.join(self._places.slot, file))

    def _report_replaced_modules(self) -> None:
        """Report files that the candidate adds and that stand before an installed module."""
        outside = [one for one in sys.path if not self._places.holds(os.path.join(one, "x"))]
        added = {self._in_slot(one) for one in self._orders.get("added", ())}
        for path in sorted(one for one in added if one.endswith(".py")):
            name = module_name(path).partition(".")[0]
            package = os.path.join(import_root(path), name)
            files = os.listdir(package) if os.path.isdir(package) else ()
            # A package that has other modules as well is the project's own.
            known = any(os.path.join(package, one) not in added for one in files)
            if not known and is_importable(name, outside):
                self._channel.send_once("did", f"takes the place of the module {name}")

    def _source(self) -> str:
        with contextlib.suppress(OSError), open(self._target, encoding="latin-1") as file:
            return file.read()
        return ""  # importing it will report why

    def give_up(self, error: BaseException) -> None:
        """Report an unexpected exception instead of the end."""
        self._channel.send("failed", f"{type(error).__name__}: {error}"[:300])

    def _run_tests(self) -> int:
        try:
            return run_suite(
                self._orders, self._target, self._channel, self._recorder, self._before_tests
            )
        except ModuleNotFoundError as error:
            if error.name != "pytest":
                raise
            self._channel.send("failed", f"pytest is not installed for {sys.executable}")
            return 3

    def _before_tests(self) -> None:
        self._state_before = guard.state_digests(self._places)
        self._patches.record_names()

    def _import_target(self, module: ModuleType, execute: Callable[[], None]) -> None:
        before, self._audit.importing = self._audit.importing, True
        try:
            execute()
        except SystemExit:
            self._channel.send_once("did", "ends the program when it is imported")
            raise
        finally:
            self._audit.importing = before
        try:
            function = install(module, self._orders["qualname"], self._recorder)
        except TargetMissing as error:
            self._channel.send_once("failed", str(error))
            return
        self._found.append((module, function))
        if not self._suite:
            self._patches.record_names()
        if self._state_before or not self._suite:  # imported after the tests were collected
            self._state_before = {**guard.state_digests(self._places), **self._state_before}

    def _import_other(self, module: ModuleType, execute: Callable[[], None]) -> None:
        """Execute a module of another file that the candidate changes, watched like its own."""
        self._loaded.append(self._places.inside(str(module.__file__)))
        before, self._audit.importing = self._audit.importing, True
        try:
            execute()
        finally:
            self._audit.importing = before

    def _try_inputs(self, inputs: dict[str, Any]) -> None:
        if not self._found:
            importlib.import_module(module_name(self._target))
        module, function = self._found[-1]
        try_inputs(self._recorder, inputs, module, self._orders["qualname"], function)

    def _modules(self) -> list[str]:
        """Return the modules that the run imported from the libraries, in that order."""
        files = {
            name: getattr(getattr(one, "__spec__", None), "origin", None)
            for name, one in list(sys.modules.items())
            if name not in self._modules_before
        }
        return [
            name
            for name, file in files.items()
            if isinstance(file, str)
            and os.path.realpath(file).startswith(_LIBRARIES)
            and not self._places.belongs(file)
        ]

    def _files_elsewhere(self) -> list[str]:
        """Return files of modules of the target's name that were imported from another place."""
        last = os.sep + module_name(self._target).replace(".", os.sep) + ".py"
        files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        return [file for file in files if isinstance(file, str) and file.endswith(last)]


def main(directory: str) -> None:
    """Run the child, and exit without waiting for threads."""
    child = ChildProgram(directory)
    try:
        child.run()
    except BaseException as error:  # noqa: BLE001 - every failure is reported
        child.give_up(error)
    with contextlib.suppress(ValueError, OSError):  # the tests may have closed them
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)
