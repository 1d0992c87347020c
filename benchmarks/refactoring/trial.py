"""Plays the trial: plan, run, review, apply, test, undo; each step by the command line."""

import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from benchmarks.refactoring.agent import MEETING, NOTE
from benchmarks.refactoring.meeting import Meeting
from benchmarks.refactoring.sources import Refactoring
from benchmarks.refactoring.tree_state import TreeState

WIDTH = 10
T = TypeVar("T")
_AGENT = Path(__file__).with_name("agent.py")
_COUNTS = re.compile(r"(\d+) (passed|failed|error)")


class TrialFailed(Exception):
    """A step of the trial did not do what it should."""


@dataclass(frozen=True, slots=True)
class Printed:
    """The exit code of a command, and what it printed."""

    code: int
    out: str
    err: str


def run_abreast(
    folder: Path, words: Sequence[str], given: str, environment: Mapping[str, str]
) -> Printed:
    """Run abreast in a directory, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "abreast", *words],
        cwd=folder,
        env=environment,
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    return Printed(done.returncode, done.stdout, done.stderr)


@dataclass(slots=True)
class Findings:
    """What the trial found, in the order of its table."""

    parts: int = 0
    peak: int = 0
    peak_seen: int = 0
    """Counted by the agents themselves."""
    agents: int = 0
    requests: int = 0
    asked_parts: int = 0
    conflicts: list[str] = field(default_factory=list)
    files_changed: int = 0
    gate: str = ""
    old_names_left: int = -1
    tests_before: dict[str, int] = field(default_factory=dict)
    tests_after: dict[str, int] = field(default_factory=dict)
    undo_differences: list[str] = field(default_factory=list)
    seconds: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Wall and CPU seconds of each step."""

    def faults(self) -> list[str]:
        """What is not as it should be."""
        found = {
            f"{self.peak} parts ran at once by the report, not {WIDTH}": self.peak != WIDTH,
            f"{self.peak_seen} agents met, not {WIDTH}": self.peak_seen != WIDTH,
            "no part asked another for a change": not self.requests,
            "there was no conflict": not self.conflicts,
            f"{self.old_names_left} files still have an old name": self.old_names_left != 0,
            f"tests: {self.tests_before} before, {self.tests_after} after": (
                self.tests_before != self.tests_after or "failed" in self.tests_after
            ),
            f"not as before: {', '.join(self.undo_differences[:5])}": bool(self.undo_differences),
        }
        return [sentence for sentence, wrong in found.items() if wrong]


class Trial:
    """One trial in a directory with a repository."""

    def __init__(
        self,
        root: Path,
        what: Refactoring,
        *,
        tests: Sequence[str] = ("-n", "2"),
        say: Callable[[str], None] = print,
        abreast: Callable[[Path, Sequence[str], str, Mapping[str, str]], Printed] = run_abreast,
    ) -> None:
        """`tests` are options of pytest, and `abreast` runs a command in a directory."""
        self.found, self._abreast = Findings(), abreast
        self._root, self._what, self._tests, self._say = root, what, tests, say
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith("ABREAST_")
        }

    def play(self) -> Findings:
        """Play all steps; raises `TrialFailed` if one can't go on."""
        self.found.tests_before = self._timed("tests before", self.run_tests)
        self._timed("plan", self.make_plan)
        self._timed("run", self.run_plan)
        self.edit_as_a_person()
        before = TreeState.of(self._root)
        self._timed("review", lambda: self.resolve(self.refused_conflicts()))
        if changed := TreeState.of(self._root).differences(before):
            raise TrialFailed(f"a refused apply changed {', '.join(changed[:5])}")
        self._timed("apply", self.apply)
        self.found.old_names_left = len(self.files_with(self._what.names))
        self.found.tests_after = self._timed("tests after", self.run_tests)
        self._timed("undo", lambda: self.abreast("plan", "undo"))
        self.found.undo_differences = TreeState.of(self._root).differences(before)
        return self.found

    # --- the steps --------------------------------------------------------------------------------

    def make_plan(self) -> None:
        """Write the plan as a file, and edit it as a person would."""
        options = ("--include", f"{self._what.package}/", "--min-files", str(self._what.min_files))
        self.abreast("plan", "show", *options, "-o", "plan.yaml")
        file = self._root / "plan.yaml"
        plan = yaml.safe_load(file.read_text("utf-8"))["plan"]
        if self._what.split:
            _split(plan["parts"], self._what.split)
        plan["prompt"] = self._what.prompt
        file.write_text(yaml.safe_dump({"plan": plan}, sort_keys=False), "utf-8")
        self.found.parts = len(plan["parts"])

    def run_plan(self) -> None:
        """Run the agents, ten at once, in two rounds."""
        with Meeting(WIDTH) as meeting:
            self._environment[MEETING] = str(meeting.port)
            run = ("plan", "run", "plan.yaml", "--width", str(WIDTH), "--rounds", "2", "--json")
            printed = self.abreast(*run, "--", sys.executable, "-I", "-S", str(_AGENT))
        result = json.loads(printed.out)
        if meeting.agents and not meeting.met:
            raise TrialFailed(f"{WIDTH} agents never ran at once")
        found, values = self.found, [one["value"] for one in result["subplans"]]
        found.peak, found.peak_seen, found.agents = result["peak"], meeting.peak, meeting.agents
        asked = [value["requests"] for value in values if value.get("requests")]
        found.requests, found.asked_parts = sum(map(len, asked)), len(asked)

    def edit_as_a_person(self) -> None:
        """Change a line that an agent renamed too, and write a note of the same name as one."""
        old = next(iter(self._what.names))
        place = next(
            file
            for file in self.files_with([old])
            if re.search(
                rf"^(class|def) {old}\b", (self._root / file).read_text("utf-8"), re.MULTILINE
            )
        )
        text = (self._root / place).read_text("utf-8")
        changed = re.sub(
            rf"^((?:class|def) {old}\b.*)$", r"\1  # see the manual", text, flags=re.MULTILINE
        )
        (self._root / place).write_text(changed, "utf-8")
        (self._root / place).with_name(NOTE).write_text("# To be renamed\n", "utf-8")

    def refused_conflicts(self) -> list[dict[str, Any]]:
        """The conflicts that an apply lists when it refuses to write."""
        result = self.json("plan", "apply", "last", code=1)
        found: list[dict[str, Any]] = result["conflicts"]
        if result["written"] or len(found) != len(result["blocked"]):
            raise TrialFailed(f"apply did not refuse for conflicts alone: {result['blocked']}")
        self.found.conflicts = [f"{each['file']}: {each['kind']}" for each in found]
        shown = self.abreast("plan", "diff", "last", "--conflicts").out
        if shown.count("<<<<<<< ") < len(found):
            raise TrialFailed("plan diff does not show all conflicts with markers")
        return found

    def resolve(self, conflicts: Sequence[dict[str, Any]]) -> None:
        """Choose for each conflict: a part, the tree, or a text of one's own."""
        for each in conflicts:
            file, parts = each["file"], each["parts"]
            resolve = ("plan", "resolve", "last", file)
            if "source" not in parts:
                marked = self.abreast(*resolve).out
                both = re.sub(r"(?m)^([<|>]{7} .*|=======)\n", "", marked)
                self.abreast(*resolve, "--take", "edit", "--from", "-", given=both)
            elif file.endswith(NOTE):
                self.abreast(*resolve, "--take", "source")
            else:
                self.abreast(*resolve, "--take", next(one for one in parts if one != "source"))

    def apply(self) -> None:
        """Merge what the agents did; the gate looks at it first."""
        result = self.json("plan", "apply", "last")
        self.found.files_changed = len(result["written"])
        self.found.gate = "passed" if not result["faults"] else "; ".join(result["faults"])

    def run_tests(self) -> dict[str, int]:
        """Run the package's own tests; how many passed, and how many did not."""
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *self._tests]
        done = subprocess.run(
            [*argv, self._what.package],
            cwd=self._root,
            env={
                **self._environment,
                "PYTHONPATH": str(self._root),
                "PYTHONDONTWRITEBYTECODE": "1",  # nothing but abreast writes into the tree
            },
            capture_output=True,
            text=True,
            check=False,
        )
        last = done.stdout.strip().rpartition("\n")[2]
        found = {word: int(count) for count, word in _COUNTS.findall(last)}
        if not found:
            raise TrialFailed(f"the tests of the package did not run: {last or done.stderr[-200:]}")
        return found

    def files_with(self, names: Sequence[str] | dict[str, str]) -> list[str]:
        """The Python files that have one of these words."""
        pattern = re.compile(rf"\b({'|'.join(names)})\b")
        return sorted(
            str(file.relative_to(self._root))
            for file in (self._root / self._what.package).rglob("*.py")
            if pattern.search(file.read_text("utf-8", "replace"))
        )

    # --- the command line -------------------------------------------------------------------------

    def json(self, *words: str, code: int = 0) -> dict[str, Any]:
        """What a command prints with --json."""
        found: dict[str, Any] = json.loads(self.abreast(*words, "--json", code=code).out)
        return found

    def abreast(self, *words: str, code: int = 0, given: str = "") -> Printed:
        """Run abreast in the repository; raises `TrialFailed` if it ends with another code."""
        done = self._abreast(self._root, words, given, self._environment)
        self._say(f"$ abreast {' '.join(words)}")
        for line in done.err.splitlines():
            self._say(f"  {line}")
        if done.code != code:
            raise TrialFailed(f"abreast {' '.join(words)}: exit code {done.code}, not {code}")
        return done

    def _timed(self, step: str, work: Callable[[], T]) -> T:
        begun, spent = time.perf_counter(), _cpu_of_children()
        result = work()
        self.found.seconds[step] = (time.perf_counter() - begun, _cpu_of_children() - spent)
        return result


def _split(parts: list[dict[str, Any]], name: str) -> None:
    """Split a part in two."""
    place = next(number for number, part in enumerate(parts) if part["name"] == name)
    files = parts[place]["files"]
    half = len(files) // 2
    parts[place]["files"] = files[:half]
    parts.insert(place + 1, {"name": f"{name}, the rest", "files": files[half:]})


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
