"""Evaluates a candidate in a real project: traces the tests, compares behaviour, measures speed."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from abreast.jobs.candidates.behaviour.evidence import (
    EvidenceSources,
    calls_workload,
    hinted_workload,
    proposed_workload,
    traced_calls,
    usable_calls,
)
from abreast.jobs.candidates.behaviour.on_node import TraceOnNode
from abreast.jobs.candidates.behaviour.traced_run import (
    LIMITS,
    Tests,
    Watched,
    hash_seed_of,
    judge_behaviour,
    watch,
)
from abreast.jobs.candidates.behaviour.verdict import (
    BaselineFailed,
    Behaviour,
    check_baseline,
    join_names,
)
from abreast.jobs.candidates.behaviour.warm_parents import (
    WarmParents,
    WarmProcess,
    open_warm_parents,
)
from abreast.jobs.candidates.inputs.generate import DEFAULT_INPUT_COUNT
from abreast.jobs.candidates.inputs.probe import Probe, prepare
from abreast.jobs.candidates.phases import PhaseCosts
from abreast.jobs.candidates.results import Checked, Diff, ProfiledLine, Timed
from abreast.jobs.candidates.rules import STRICT, Rules
from abreast.jobs.candidates.source.changes import (
    CandidateSource,
    FileChange,
    is_code,
    stage_source,
)
from abreast.jobs.candidates.source.checks import check_files, check_text
from abreast.jobs.candidates.source.target import Target
from abreast.jobs.candidates.timing.measure import MeasurePlan
from abreast.jobs.candidates.timing.race import RaceOptions
from abreast.jobs.candidates.timing.timed_calls import TimedCalls
from abreast.jobs.candidates.timing.timing import line_profile, scout, time_candidate
from abreast.jobs.candidates.values.graph_match import TOO_LARGE
from abreast.jobs.candidates.values.invocation import Places, to_read_again
from abreast.worktrees.confinement import ResourceLimits
from abreast.worktrees.machine_lock import machine
from abreast.worktrees.slot import Slot

_MAX_DIFFS: Final = 20
_SLOWDOWN_ALLOWED: Final = 10  # a candidate may take this many times as long as the original
# Every run of the tests may take this long by the wall clock: the machine itself may be slow.
MIN_WALL_SECONDS: Final = 60.0
# Runs the tests of the original or the candidate again, to read the content at these places.
TraceReader: TypeAlias = Callable[[Places], Awaitable[Watched]]


def limits_for(limits: ResourceLimits, *originals: Watched) -> ResourceLimits:
    """Return the limits for a candidate, given traced runs of the original.

    CPU: `limits`, or ten times what the original used if that is more. Wall time only ends a
    process that waits for ever: at ten times the original's time, and never before a minute. If no
    run has a known time, `limits` is returned unchanged.
    """
    if not (known := [one for one in originals if one.seconds]):
        return limits
    cpu = math.ceil(_SLOWDOWN_ALLOWED * max(one.cpu for one in known))
    seconds = _SLOWDOWN_ALLOWED * max(one.seconds for one in known)
    return replace(limits, cpu=max(limits.cpu, cpu), seconds=max(MIN_WALL_SECONDS, seconds))


@dataclass(frozen=True, slots=True)
class OriginalTrace:
    """The trace of the original, as plain data, and the calls that are timed, if any are.

    Attributes:
        recorded: JSON: workloads of calls that were recorded or drawn, to be made again.
    """

    watched: Mapping[str, Any]
    inputs: TimedCalls | None
    recorded: str = "[]"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How strict the comparison is, what a check may use, and how much is measured.

    Attributes:
        generated: How many generated inputs are tried besides the calls of the tests.
        timing: Whether candidates are measured; without it, no calls are chosen for that.
    """

    rules: Rules = STRICT
    limits: ResourceLimits = LIMITS
    plan: MeasurePlan = field(default_factory=lambda: MeasurePlan(most=56))
    generated: int = DEFAULT_INPUT_COUNT
    timing: bool = True


class Evaluator:
    """Evaluates candidates by the project's own tests, or by other calls of the target."""

    def __init__(
        self,
        target: Target,
        source: str,
        tests: Tests,
        bounds: Bounds,
        sources: EvidenceSources | None = None,
        *,
        cwd: Path | None = None,
    ) -> None:
        """`source` is the text of the target's file. Nothing starts before `begin`.

        `sources` are calls besides those of the tests; a command is run in `cwd`. If a model is
        to propose calls, `ask_for_calls` is set before `begin`: it returns Python.
        """
        self.target, self._source, self._bounds = target, source, bounds
        self._sources, self._cwd = sources or EvidenceSources(), cwd or Path.cwd()
        self._tests = replace(tests, workloads=self._sources.workloads())
        self.kinds = (*(("tests",) if tests.names else ()), *self._sources.kinds)
        self.ask_for_calls: Callable[[], Awaitable[str]] | None = None
        self._probe: Probe | None = None
        self._slot_lock, self._probe_lock = asyncio.Lock(), asyncio.Lock()
        self._parents: WarmParents | None = None
        self._processes = "new ones"
        self.costs = PhaseCosts()
        # The trace of the original, the calls that are timed, and the slot of the original.
        self._ready: tuple[Watched, TimedCalls | None, Slot] | None = None

    @property
    def seen(self) -> bool:
        """Whether the original has been traced."""
        return self._ready is not None

    @property
    def _baseline(self) -> tuple[Watched, TimedCalls | None, Slot]:
        if self._ready is None:
            raise RuntimeError("the original has not been seen yet")
        return self._ready

    @property
    def original(self) -> Watched:
        """The trace of the original. Raises RuntimeError before there is one."""
        return self._baseline[0]

    @property
    def inputs(self) -> TimedCalls | None:
        """The calls that are timed; None without timing. Raises RuntimeError before `ready`."""
        return self._baseline[1]

    @property
    def _timed_calls(self) -> TimedCalls:
        if (inputs := self.inputs) is None:
            raise RuntimeError("nothing is timed: the calls for that were not chosen")
        return inputs

    @asynccontextmanager
    async def open(self, slot: Slot) -> AsyncIterator[None]:
        """Within this context, runs are forked from warmed parents where that is possible.

        `slot` holds the original. Without it, every run is a new process.
        """
        async with open_warm_parents(slot, self._tests) as parents:
            self._parents = parents
            try:
                yield
            finally:
                self._processes = self.processes
                self._parents = None

    @property
    def processes(self) -> str:
        """How runs are started: forked, or as new processes and why."""
        if self._parents is None:
            return self._processes
        return f"new ones: {self._parents.unfit}" if self._parents.unfit else "forked"

    async def begin(self, slot: Slot) -> OriginalTrace:
        """Trace the original twice and choose the calls to time. Raises `BaselineFailed`."""

        async def once_more(wanted: Places | None = None) -> Watched:
            await slot.reset()
            # Another parent has other addresses: what depends on them is not the same twice.
            parent = await self._parent(self._tests, 1)
            return await self._trace(slot, self._bounds.limits, wanted=wanted, parent=parent)

        async with machine(alone=False):
            recorded = await self._record_calls(slot)
            self._tests = replace(self._tests, workloads=(*self._tests.workloads, *recorded))
            watched = await self._trace(slot, self._bounds.limits, modules=True)
            check_baseline(watched, self.target.qualname, str(slot.path))
            if self._parents is not None:
                await self._parents.import_modules(watched.modules)
            second = await once_more()
            again = await self._compare_traces(watched, second, once_more, once_more)
            changing = any(one.verdict.reason.startswith(TOO_LARGE) for one in again.findings)
            if changing or again.verdict not in {"same", "undecided"}:
                raise BaselineFailed(
                    f"{self.target.qualname} does not do the same twice, "
                    f"so nothing can be compared: {again.reason}"
                )
            await slot.reset()
            inputs = await self._choose_inputs(slot) if self._bounds.timing else None
        return OriginalTrace(watched.to_plain(), inputs, json.dumps(recorded))

    async def _record_calls(self, slot: Slot) -> list[dict[str, Any]]:
        """Record calls of a program, by type hints and of a model. Raises `BaselineFailed`."""
        name, recorded = self.target.qualname, []
        if self._sources.trace is not None and slot.commands is not None:
            calls = await traced_calls(
                self._sources.trace,
                slot.commands,
                target=self.target,
                root=slot.repository.top,
                cwd=self._cwd,
                python=self._tests.python,
            )
            recorded.append(calls_workload("trace", calls))
        if self._sources.hints:
            drawn = await self._try_out(slot, hinted_workload())
            none = f"{name} raises an error for all that its type hints allow"
            recorded.append(calls_workload("type hints", usable_calls(drawn, none)))
        if self._sources.calls_by is not None and self.ask_for_calls is not None:
            tried = await self._try_out(slot, proposed_workload(await self.ask_for_calls()))
            none = f"{self._sources.calls_by} proposes no call that {name} answers without an error"
            recorded.append(calls_workload("proposed calls", usable_calls(tried, none)))
        return recorded

    async def _try_out(self, slot: Slot, workload: dict[str, Any]) -> Watched:
        """Run a workload alone, with the original."""
        trying = replace(self._tests, names=(), workloads=(workload,))
        watched = await watch(slot, self.target, trying, limits=self._bounds.limits)
        await slot.reset()
        return watched

    async def _choose_inputs(self, slot: Slot) -> TimedCalls:
        seconds = self._bounds.limits.seconds
        self._count("original")
        return await scout(slot, self.target, self._tests, seconds, parents=self._parents)

    def ready(self, seen: object, slot: Slot) -> None:
        """Take over what `begin` returned. `slot` holds the original; nothing else uses it."""
        if not isinstance(seen, OriginalTrace):
            raise TypeError(f"not what the original did: {type(seen).__name__}")
        fixed = self._sources.workloads()
        self._tests = replace(self._tests, workloads=(*fixed, *json.loads(seen.recorded)))
        self._ready = (Watched.from_plain(seen.watched), seen.inputs, slot)

    async def _parent(self, tests: Tests, number: int = 0) -> WarmProcess | None:
        if self._parents is None:
            return None
        return await self._parents.get(hash_seed_of(tests), number, tests=tests.any)

    async def _trace(
        self,
        slot: Slot,
        limits: ResourceLimits,
        inputs: bytes | None = None,
        wanted: Places | None = None,
        *,
        parent: WarmProcess | None = None,
        modules: bool = False,
    ) -> Watched:
        tests = self._tests if inputs is None else replace(self._tests, names=(), workloads=())
        if slot.nodes is not None:
            there = TraceOnNode(
                self.target, tests, limits, inputs, wanted, modules, str(slot.path), slot.staged
            )
            found = await slot.nodes.call(slot, there)
        else:
            found = await watch(
                slot,
                self.target,
                tests,
                limits=limits,
                inputs=inputs,
                wanted=wanted,
                parent=parent or await self._parent(tests),
                modules=modules,
            )
        phase = "behaviour" if self.seen else "original"
        self.costs.add("generated inputs" if inputs else phase, found.seconds, found.cpu)
        return found

    def _count(self, phase: str) -> None:
        """Count the timed processes that end from now on as those of this phase."""
        if self._parents is not None:
            self._parents.count = lambda seconds, cpu: self.costs.add(phase, seconds, cpu)

    async def _compare_traces(
        self, original: Watched, candidate: Watched, ours: TraceReader, theirs: TraceReader
    ) -> Behaviour:
        """Compare two traces.

        Values that are too large to be recorded are compared by digest; where digests differ, the
        values are read again from both sides.
        """
        behaviour = judge_behaviour(original, candidate, self._bounds.rules)
        wanted = to_read_again(behaviour.findings) if behaviour.verdict == "undecided" else ({}, {})
        if not wanted[0]:
            return behaviour
        contents = ((await ours(wanted[0])).contents, (await theirs(wanted[1])).contents)
        return judge_behaviour(original, candidate, self._bounds.rules, contents)

    async def _original_again(self, wanted: Places) -> Watched:
        slot = self._baseline[2]
        async with self._slot_lock:
            await slot.reset()
            try:
                return await self._trace(slot, self._bounds.limits, wanted=wanted)
            finally:
                await slot.reset()

    async def _trace_candidate(
        self, slot: Slot, inputs: bytes | None = None, wanted: Places | None = None
    ) -> Watched:
        seen = [self.original] if self._probe is None else [self.original, self._probe.expected]
        return await self._trace(slot, limits_for(self._bounds.limits, *seen), inputs, wanted)

    async def _trace_original_inputs(self, inputs: bytes) -> Watched:
        """Trace the original with generated inputs. Its slot serves one such run at a time."""
        async with self._slot_lock:
            return await self._trace(self._baseline[2], self._bounds.limits, inputs)

    async def check(self, slot: Slot, text: str, files: Sequence[FileChange] = ()) -> Checked:
        """Check a candidate, which is staged in `slot`; `files` are others that it changes.

        Checks its text, traces it under the tests and compares with the original, then compares it
        on generated inputs.
        """
        collected = {name.partition("::")[0] for name, _ in self.original.outcomes}
        if refused := check_files(files, collected) or check_text(
            self._source, text, self.target, files
        ):
            return _checked_from(refused, len(self.original.invocations))

        async def stage_again() -> None:
            await slot.reset()
            await stage_source(slot, self.target, CandidateSource(text, tuple(files)))

        async def trace(inputs: bytes | None = None, wanted: Places | None = None) -> Watched:
            found = await self._trace_candidate(slot, inputs, wanted)
            if not found.was_killed:
                return found
            # Once more: the machine may have run out of memory, or an operator have killed it.
            await stage_again()
            return await self._trace_candidate(slot, inputs, wanted)

        async def candidate_again(wanted: Places) -> Watched:
            await stage_again()
            return await trace(wanted=wanted)

        async with machine(alone=False):
            watched = await trace()
            behaviour = await self._compare_traces(
                self.original, watched, self._original_again, candidate_again
            )
            if behaviour.verdict in {"same", "undecided"} and self._bounds.generated:
                probed = await self._try_generated_inputs(trace)
                behaviour = behaviour if probed.verdict == "same" else probed
            if behaviour.verdict == "same":
                behaviour = _unknown_files(files, watched) or behaviour
        truncated = [
            f"{test} calls it too often: the calls from number {first} on are not compared"
            for test, first in self.original.cut.items()
        ]
        notes = (*truncated[:_MAX_DIFFS], *(self._probe.notes if self._probe else ()))
        return replace(
            _checked_from(behaviour, len(self.original.invocations), watched),
            notes=notes,
            kinds=self.kinds,
            generated=len(self._probe.inputs.calls) if self._probe else 0,
        )

    async def _try_generated_inputs(
        self, trace: Callable[[bytes], Awaitable[Watched]]
    ) -> Behaviour:
        async with self._probe_lock:  # the first candidate to get here has the inputs generated
            if self._probe is None:
                self._probe = await prepare(
                    self._trace_original_inputs,
                    self.original.invocations,
                    self._source,
                    self.target,
                    count=self._bounds.generated,
                )
        return await self._probe.check(trace, self._trace_original_inputs, self._bounds.rules)

    async def time(self, original: Slot, candidate: Slot, text: str, seed: int) -> Timed:
        """Measure a candidate, staged in `candidate`, while nothing else runs on the machine."""
        del text
        options = RaceOptions(self._bounds.rules, self._bounds.plan, seed)
        async with machine(alone=True):
            self._count("measuring")
            return await time_candidate(
                (original, candidate),
                self.target,
                self._tests,
                self._timed_calls,
                options=options,
                parents=self._parents,
            )

    async def profile(self, slot: Slot) -> list[ProfiledLine]:
        """Return how often each line of the code staged in `slot` runs, and for how long.

        Raises `TimedProcessFailed`.
        """
        async with machine(alone=True):
            self._count("line profile")
            found = await line_profile(
                slot, self.target, self._tests, self._timed_calls, parents=self._parents
            )
        return [
            ProfiledLine(number, hits, seconds) for number, (hits, seconds) in sorted(found.items())
        ]


def _unknown_files(files: Sequence[FileChange], watched: Watched) -> Behaviour | None:
    """A verdict that names the modules that no run has imported; None if there are none."""
    unknown = [one.path for one in files if is_code(one) and one.path not in watched.loaded]
    if not unknown:
        return None
    reason = f"nothing that was run imports {join_names(unknown)}, so nothing is known of it"
    return Behaviour("undecided", reason)


def _checked_from(behaviour: Behaviour, calls: int, watched: Watched | None = None) -> Checked:
    diffs = tuple(Diff.of(one) for one in behaviour.findings[:_MAX_DIFFS])
    found = Checked(behaviour.verdict, behaviour.reason, diffs, invocations=calls)
    return (
        found
        if watched is None
        else replace(
            found,
            tests=watched.tests,
            passed=watched.passed,
            stdout=watched.stdout,
            stderr=watched.stderr,
            layers=watched.confinement,
        )
    )
