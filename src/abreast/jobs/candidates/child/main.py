"""The main program of the child: runs the tests with the target traced, then tries inputs."""

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any, cast

from abreast.jobs.candidates.child import guard
from abreast.jobs.candidates.child.audit import Audit, around_import
from abreast.jobs.candidates.child.capture import Function, Recorder
from abreast.jobs.candidates.child.channel import Channel
from abreast.jobs.candidates.child.paths import Places, SlotFinder, module_name, set_path
from abreast.jobs.candidates.child.suite import Suite
from abreast.jobs.candidates.child.trying import InputTrial
from abreast.jobs.candidates.child.wrapping import TargetMissing, install


class ChildProgram:
    """One run: reads its orders from a JSON file in its directory, and writes the trace there."""

    def __init__(self, directory: str) -> None:
        with open(os.path.join(directory, "orders.json"), encoding="utf-8") as file:
            self._orders: dict[str, Any] = json.load(file)
        self._channel = Channel(os.path.join(directory, "said"))
        self._recorder = Recorder(self._channel, self._orders.get("wanted") or ())
        self._places = Places(self._orders["top"], self._orders["slot"])
        self._target = os.path.realpath(os.path.join(self._places.slot, self._orders["file"]))
        self._audit = Audit(self._channel, self._places, directory)
        self._found: list[tuple[ModuleType, Function]] = []
        self._patches = guard.PatchDetector()
        self._state_before: Mapping[str, tuple[str, int]] = {}

    def run(self) -> None:
        """Run everything; the last line of the trace says that it came to its end."""
        set_path(self._target)
        around = around_import(self._audit, self._channel, self._on_target_imported)
        sys.meta_path.insert(0, SlotFinder(self._places, self._target, around))
        self._audit.start()
        code = self._run_tests() if self._orders["names"] else 0
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
                "codes": guard.code_digests(self._places, self._target),
                "grown": guard.changed_state(self._state_before, guard.state_digests(self._places)),
            },
        )

    def give_up(self, error: BaseException) -> None:
        """Report an unexpected exception instead of the end."""
        self._channel.send("failed", f"{type(error).__name__}: {error}"[:300])

    def _run_tests(self) -> int:
        suite = Suite(self._channel, self._recorder, self._before_tests)
        try:
            return suite.run(self._orders["names"], self._orders["extra"])
        except ModuleNotFoundError as error:
            if error.name != "pytest":
                raise
            self._channel.send("failed", f"pytest is not installed for {sys.executable}")
            return 3

    def _before_tests(self) -> None:
        """Record the state after all imports and before the first test."""
        self._state_before = guard.state_digests(self._places)
        self._patches.record_names()

    def _on_target_imported(self, module: object) -> None:
        held = cast("ModuleType", module)
        try:
            function = install(held, self._orders["qualname"], self._recorder)
        except TargetMissing as error:
            self._channel.send_once("failed", str(error))
            return
        self._found.append((held, function))
        if not self._orders["names"]:
            self._patches.record_names()
        if (
            self._state_before or not self._orders["names"]
        ):  # imported after the tests were collected
            self._state_before = {**guard.state_digests(self._places), **self._state_before}

    def _try_inputs(self, inputs: dict[str, Any]) -> None:
        if not self._found:
            importlib.import_module(module_name(self._target))
        module, function = self._found[-1]
        InputTrial(self._channel, self._recorder).run(
            inputs, module, self._orders["qualname"], function
        )

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
