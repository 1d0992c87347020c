"""Rounds: a job, a store and a fault, the resume after it, and the history for the checker."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from abreast.testing.storm import StormProcess
from benchmarks.chaos.faults import FAULTS, Fault
from benchmarks.chaos.history import Answered, Counts, History, check, unrecorded_usd
from benchmarks.chaos.jobs import JOBS, Job, answers_of
from benchmarks.chaos.journal import RunJournal, read_journal
from benchmarks.chaos.mutants import Mutant
from benchmarks.chaos.place import PATIENCE, Place, Said, kill, processes_of, wait_for_processes
from benchmarks.chaos.scene import DatabaseServer, Scene

_SMALL_DISK = "size=48m"
_DISTURBED_REQUESTS = 5  # one of so many
LATENCY = 0.04  # seconds of a model's reply
_OVER = ("done", "spent")


@dataclass(frozen=True, slots=True)
class Calm:
    """A job that nothing disturbed."""

    answers: Mapping[str, object]
    seconds: float
    """From the first execution or call to the end."""
    left: frozenset[str]
    calls: Mapping[str, int]
    """How many times the store's files were written, and fsynced."""
    steps: int
    """How many commands and calls it made."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a round came to."""

    job: str
    fault: str
    store: str
    seed: int
    counts: Counts
    seconds: float
    first: Said
    last: Said
    history: History
    hit: bool = True
    """Whether the fault met the job while it could still disturb it."""

    @property
    def is_timed(self) -> bool:
        """Whether the fault has a moment, so that it can come too late."""
        fault = FAULTS[self.fault]
        return bool(fault.act or fault.environment)


@dataclass(slots=True)
class Arena:
    """Where rounds are played."""

    home: Path
    storm: StormProcess
    database: DatabaseServer | None = None
    shim: Path | None = None
    patience: float = PATIENCE
    mutant: Mutant | None = None
    """What is broken on purpose, in all rounds but the undisturbed ones."""
    _calm: dict[str, Calm] = field(default_factory=dict)

    def calm(self, name: str) -> Calm:
        """The job undisturbed, with a file as its store; run once."""
        if name not in self._calm:
            self._calm[name] = self._run_calm(name)
        return self._calm[name]

    def play(
        self,
        name: str,
        fault_name: str,
        store: str,
        seed: int,
        *,
        aim: float = 1.0,
        at: int | None = None,
    ) -> Report:
        """Play a round; everything in it is drawn from `seed`. `aim` and `at` are as in `Scene`."""
        job, fault, calm = JOBS[name], FAULTS[fault_name], self.calm(name)
        expected = self.calm("prompts").answers if job.budget else calm.answers
        folder = Path(tempfile.mkdtemp(prefix="round-", dir=self.home))
        began = time.monotonic()
        disk = folder / "disk"
        disk.mkdir()
        with _disk_of_its_own(disk, wanted=fault.small_disk), self._no_process_left(folder):
            place = Place(
                disk / "place", self._store(store, seed), self.storm.url, folder / "place.log"
            )
            since = len(self.storm.log())
            scene = Scene(place, Random(seed), self.storm, since, calm.seconds, calls=calm.calls)
            scene.shim, scene.database = self.shim, self.database
            scene.steps, scene.aim, scene.at = calm.steps, aim, at
            arguments = job.prepare(place)
            tree = place.tree()
            place.patience = self.patience
            if self.mutant:
                paths = (self.mutant.write(folder / "mutant"), place.environment["PYTHONPATH"])
                place.environment["PYTHONPATH"] = os.pathsep.join(paths)
            first = self._disturb(scene, fault, arguments)
            journal = read_journal(place.store)
            scene.hit = self._is_hit(scene, job, fault, first, journal)
            before = len(place.executed())
            taken = scene.repeatable is not None  # records were taken away
            forgotten = unrecorded_usd(journal.events, self._answered(since)) if taken else 0.0
            last = self._finish(scene, job, journal, first, arguments)
            scene.errors += [first.err, last.err]
            history = History(
                expected=expected,
                answers=self._answers(place, last, job),
                width=job.width,
                disturbed=journal.events,
                executed_before=before,
                executed=place.executed(),
                answered=self._answered(since),
                repeatable=scene.repeatable,
                partial=job.budget is not None,
                budget=job.budget,
                forgotten=forgotten,
                recovered=scene.recovered,
                trees=(tree, place.tree()),
                hung=first.hung + last.hung,
            )
            history = replace(history, ended=read_journal(place.store).events)
            history = self._after(scene, job, history, calm)
        return Report(
            name,
            fault_name,
            store,
            seed,
            check(history),
            time.monotonic() - began,
            first,
            last,
            history,
            scene.hit,
        )

    def _run_calm(self, name: str) -> Calm:
        job = JOBS[name]
        with tempfile.TemporaryDirectory(prefix="calm-", dir=self.home) as folder:
            place = Place(Path(folder) / "place", storm=self.storm.url)
            arguments = job.prepare(place)
            report = place.folder / "calls"
            shim = {"CHAOS_FILES": place.store, "CHAOS_DO": "count", "CHAOS_REPORT": str(report)}
            shim |= {"LD_PRELOAD": str(self.shim)} if self.shim else {}
            scene = Scene(place, Random(0), self.storm, len(self.storm.log()))
            driver = place.start(*arguments, environment=shim)
            scene.wait_for_work(driver)
            began = time.monotonic()
            said = place.wait(driver)
            seconds = time.monotonic() - began
            if said.code != job.code:
                raise SystemExit(f"{name} ends with {said.code} undisturbed: {said.err}")
            answers = self._answers(place, said, job)
            answers |= job.more(place) if job.more else {}
            counts = report.read_text().split() if report.exists() else ("100", "10")
            calls = dict(zip(("write", "sync"), map(int, counts), strict=True))
            left = frozenset(place.files())
            return Calm(answers, seconds, left, calls, scene.made())

    def _answers(self, place: Place, said: Said, job: Job) -> dict[str, object]:
        found = answers_of(place, said, job)
        if not job.budget:
            return found
        # How much of it is done depends on what the fault cost.
        return {path: row for path, row in found.items() if path.startswith("map/") and _done(row)}

    def _disturb(self, scene: Scene, fault: Fault, arguments: tuple[str, ...]) -> Said:
        """Run the job under the fault, until its end or its death."""
        if fault.requests:
            start = len(self.storm.log())
            numbers = range(start + 2, start + 60, _DISTURBED_REQUESTS)
            drawn = {str(number): scene.draw.choice(fault.requests) for number in numbers}
            self.storm.change(fault_at=drawn, retry_after=0.2)
        environment = fault.environment(scene) if fault.environment else {}
        try:
            with _stdout(scene, piped=fault.pipe) as stdout:
                driver = scene.place.start(*arguments, stdout=stdout, environment=environment)
                if stdout is not None:
                    os.close(stdout)
                if fault.act:
                    fault.act(scene, driver)
                said = scene.place.wait(driver)
        finally:
            if fault.requests:
                self.storm.change(fault_at={})
        if fault.between:
            fault.between(scene)
        return said

    def _is_hit(
        self, scene: Scene, job: Job, fault: Fault, first: Said, journal: RunJournal
    ) -> bool:
        """Whether the fault disturbed the job, as far as that can be told."""
        if fault.environment:
            return scene.hit_file.exists()
        if fault.limits:
            failed = any(event.state == "failed" for event in journal.events)
            return first.code != job.code or failed
        if fault.requests and not fault.act:
            return any(entry.fault for entry in self.storm.log(scene.since))
        return scene.hit

    def _finish(
        self,
        scene: Scene,
        job: Job,
        journal: RunJournal,
        first: Said,
        arguments: tuple[str, ...],
    ) -> Said:
        """Resume the run, or start it if there is none; as often as failures were recorded."""
        place = scene.place
        if not journal.run:
            return place.run(*arguments)
        if journal.state in _OVER and first.code == job.code and not job.budget:
            return first
        flags = ("--json",) if "--json" in arguments else ()
        return place.run("resume", journal.run, "--retry-failed", *flags)

    def _after(self, scene: Scene, job: Job, history: History, calm: Calm) -> History:
        """What is left behind, and what the job's own command makes of its results."""
        place = scene.place
        left = [f"process {pid}" for pid in wait_for_processes(place.folder)]
        left += [f"file {name}" for name in place.files() - calm.left]
        answers = dict(history.answers) | (job.more(place) if job.more else {})
        if scene.is_silent(history.expected):
            answers["damage"] = "not told"
        return replace(history, answers=answers, left=left, errors=scene.errors)

    def _answered(self, since: int) -> list[Answered]:
        return [
            Answered(entry.key, (entry.input_tokens, entry.output_tokens), entry.outcome == "ok")
            for entry in self.storm.log(since)
            if entry.verdict == "admitted" and entry.fault not in ("500", "502", "503", "529")
        ]

    def _store(self, store: str, seed: int) -> str:
        if store == "sqlite":
            return ""
        if self.database is None:
            raise SystemExit("there is no PostgreSQL here")
        return f"{self.database.url}?schema=r{os.getpid()}_{seed:x}"

    @contextmanager
    def _no_process_left(self, folder: Path) -> Iterator[None]:
        try:
            yield
        finally:
            for pid in processes_of(folder):
                kill(pid)
            shutil.rmtree(folder, ignore_errors=True)


def _done(row: object) -> bool:
    return isinstance(row, dict) and row.get("state") == "done"


@contextmanager
def _stdout(scene: Scene, *, piped: bool) -> Iterator[int | None]:
    """The end of a pipe for the driver's stdout, or None."""
    if not piped:
        yield None
        return
    scene.reader, writer = os.pipe()
    os.set_blocking(scene.reader, False)
    try:
        yield writer
    finally:
        if scene.reader >= 0:
            os.close(scene.reader)


@contextmanager
def _disk_of_its_own(folder: Path, *, wanted: bool) -> Iterator[None]:
    """A small file system at `folder`, if this process may mount one."""
    mount = ["mount", "-t", "tmpfs", "-o", _SMALL_DISK, "chaos", str(folder)]
    if not wanted or subprocess.run(mount, capture_output=True, check=False).returncode:
        yield
        return
    try:
        yield
    finally:
        with suppress(OSError):
            subprocess.run(["umount", "-l", str(folder)], check=False)
            shutil.rmtree(folder.parent, ignore_errors=True)


def build_shim(folder: Path) -> Path | None:
    """Compile the shim; None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    target, source = folder / "shim.so", Path(__file__).with_name("shim.c")
    flags = ("-O1", "-shared", "-fPIC")
    subprocess.run([compiler, *flags, "-o", str(target), str(source), "-ldl"], check=True)
    return target
