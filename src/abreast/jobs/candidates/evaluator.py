"""Judges texts in a real project: its tests are watched, its behaviour compared, its speed measured alone."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from abreast.jobs.candidates.behaviour.baseline import BaselineFailed, check_baseline
from abreast.jobs.candidates.behaviour.traced_run import (
    LIMITS,
    Tests,
    Watched,
    judge_behaviour,
    watch,
)
from abreast.jobs.candidates.behaviour.verdict import Behaviour
from abreast.jobs.candidates.inputs.generate import COUNT
from abreast.jobs.candidates.inputs.probe import Probe, prepare
from abreast.jobs.candidates.results import Checked, Diff, ProfiledLine, Timed
from abreast.jobs.candidates.rules import STRICT, Rules
from abreast.jobs.candidates.source.checks import check_text
from abreast.jobs.candidates.source.target import Target
from abreast.jobs.candidates.timing.measure import MeasurePlan
from abreast.jobs.candidates.timing.timed_calls import TimedCalls
from abreast.jobs.candidates.timing.timing import line_profile, scout, time_candidate
from abreast.jobs.candidates.values.graph_match import TOO_LARGE
from abreast.jobs.candidates.values.invocation import Places, to_read_again
from abreast.worktrees.confinement import ResourceLimits
from abreast.worktrees.machine_lock import machine
from abreast.worktrees.slot import Slot

_MOST_DIFFS: Final = 20
_TIMES: Final = 10  # as long as the original a candidate may take
LEAST_SECONDS: Final = 60.0
"""A run of the tests may take so long by the wall clock in any case: a slow machine is no fault of a candidate."""
Reader: TypeAlias = Callable[[Places], Awaitable[Watched]]
"""Runs the tests of one side again, for the content of what is wanted."""


def limits_for(limits: ResourceLimits, *originals: Watched) -> ResourceLimits:
    """What a candidate may use, given runs of the original: `limits`, or ten times the CPU that these took.

    The clock on the wall only ends what waits for ever: at ten times the original's time, and not
    before a minute. Without a run of which the time is known, the limits are as they are.
    """
    known = [one for one in originals if one.seconds]
    if not known:
        return limits
    cpu = math.ceil(_TIMES * max(one.cpu for one in known))
    seconds = _TIMES * max(one.seconds for one in known)
    return replace(limits, cpu=max(limits.cpu, cpu), seconds=max(LEAST_SECONDS, seconds))


@dataclass(frozen=True, slots=True)
class OriginalTrace:
    """What the original does: what was watched, as plain data, and the calls that are timed."""

    watched: Mapping[str, Any]
    inputs: TimedCalls


@dataclass(frozen=True, slots=True)
class Bounds:
    """How strict it is, what a check may use, and how much is measured."""

    rules: Rules = STRICT
    limits: ResourceLimits = LIMITS
    plan: MeasurePlan = field(default_factory=lambda: MeasurePlan(most=56))
    generated: int = COUNT
    """Inputs that are tried beside those of the tests."""


class Evaluator:
    """A laboratory in which a project's own tests are the measure."""

    def __init__(self, target: Target, source: str, tests: Tests, bounds: Bounds) -> None:
        """`source` is the target's file as it is. Nothing starts before `begin`."""
        self.target = target
        self._source = source
        self._slot: Slot | None = None
        self._probe: Probe | None = None
        self._turn, self._first = asyncio.Lock(), asyncio.Lock()
        self._tests = tests
        self._bounds = bounds
        self._original: Watched | None = None
        self._inputs: TimedCalls | None = None

    @property
    def seen(self) -> bool:
        """Whether it is known what the original does."""
        return self._original is not None

    @property
    def original(self) -> Watched:
        """What the original does; RuntimeError before that is known."""
        if self._original is None:
            raise RuntimeError("the original has not been seen yet")
        return self._original

    @property
    def inputs(self) -> TimedCalls:
        """The calls that are timed; RuntimeError before they are known."""
        if self._inputs is None:
            raise RuntimeError("the original has not been seen yet")
        return self._inputs

    async def begin(self, slot: Slot) -> OriginalTrace:
        """Watch the original twice, and choose inputs. Raises `BaselineFailed`."""
        async with machine(alone=False):
            watched = await self._watched(slot, self._tests)
            check_baseline(watched, self.target.qualname, str(slot.path))
            await slot.reset()
            second = await self._watched(slot, self._tests)

            async def once_more(wanted: Places) -> Watched:
                await slot.reset()
                return await self._watched(slot, self._tests, wanted=wanted)

            again = await self._judged(watched, second, once_more, once_more)
            changing = any(one.verdict.reason.startswith(TOO_LARGE) for one in again.findings)
            if changing or again.verdict not in {"same", "undecided"}:
                raise BaselineFailed(
                    f"{self.target.qualname} does not do the same twice, so nothing can be compared: {again.reason}"
                )
            await slot.reset()
            inputs = await scout(slot, self.target, self._tests, self._bounds.limits.seconds)
        return OriginalTrace(watched.to_plain(), inputs)

    def ready(self, seen: object, slot: Slot) -> None:
        """Go on from what `begin` returned.

        The slot has the original, and is not used by others.
        """
        if not isinstance(seen, OriginalTrace):
            raise TypeError(f"not what the original did: {type(seen).__name__}")
        self._original, self._inputs, self._slot = (
            Watched.from_plain(seen.watched),
            seen.inputs,
            slot,
        )

    async def _watched(
        self, slot: Slot, tests: Tests, inputs: bytes | None = None, wanted: Places | None = None
    ) -> Watched:
        """What the original does."""
        return await watch(
            slot, self.target, tests, limits=self._bounds.limits, inputs=inputs, wanted=wanted
        )

    async def _judged(
        self, original: Watched, candidate: Watched, ours: Reader, theirs: Reader
    ) -> Behaviour:
        """The verdict; what is too large to be recorded and differs by its digests is read again, from both."""
        behaviour = judge_behaviour(original, candidate, self._bounds.rules)
        wanted = to_read_again(behaviour.findings) if behaviour.verdict == "undecided" else ({}, {})
        if not wanted[0]:
            return behaviour
        contents = ((await ours(wanted[0])).contents, (await theirs(wanted[1])).contents)
        return judge_behaviour(original, candidate, self._bounds.rules, contents)

    async def _original_again(self, wanted: Places) -> Watched:
        """What the original does in the tests, with the content of what is wanted."""
        if self._slot is None:
            raise RuntimeError("the original has not been seen yet")
        async with self._turn:
            await self._slot.reset()
            try:
                return await self._watched(self._slot, self._tests, wanted=wanted)
            finally:
                await self._slot.reset()

    async def _candidate(
        self, slot: Slot, tests: Tests, inputs: bytes | None = None, wanted: Places | None = None
    ) -> Watched:
        """What a candidate does, with the time that follows from the original's."""
        seen = [self.original] if self._probe is None else [self.original, self._probe.expected]
        limits = limits_for(self._bounds.limits, *seen)
        return await watch(slot, self.target, tests, limits=limits, inputs=inputs, wanted=wanted)

    async def _asked(self, inputs: bytes) -> Watched:
        """What the original does with these inputs; its slot is for one at a time."""
        if self._slot is None:
            raise RuntimeError("the original has not been seen yet")
        async with self._turn:
            return await self._watched(self._slot, replace(self._tests, names=()), inputs)

    async def check(self, slot: Slot, text: str) -> Checked:
        """Look at a candidate's text, watch it in the slot, in which it is staged, and compare.

        Then try new inputs.
        """
        if (refused := check_text(self._source, text, self.target)) is not None:
            return _checked(refused, len(self.original.invocations))
        async with machine(alone=False):
            watched = await self._candidate(slot, self._tests)

            async def candidate_again(wanted: Places) -> Watched:
                await slot.reset()
                await slot.stage(self.target.file, text)
                return await self._candidate(slot, self._tests, wanted=wanted)

            behaviour = await self._judged(
                self.original, watched, self._original_again, candidate_again
            )
            if behaviour.verdict in {"same", "undecided"} and self._bounds.generated:
                probed = await self._probed(slot)
                behaviour = behaviour if probed.verdict == "same" else probed
        notes = (*_cut(self.original), *(self._probe.notes if self._probe else ()))
        return replace(_checked(behaviour, len(self.original.invocations), watched), notes=notes)

    async def _probed(self, slot: Slot) -> Behaviour:
        async def candidate(inputs: bytes) -> Watched:
            return await self._candidate(slot, replace(self._tests, names=()), inputs)

        async with self._first:  # whoever comes first has them made
            if self._probe is None:
                self._probe = await prepare(
                    self._asked,
                    self.original.invocations,
                    self._source,
                    self.target,
                    count=self._bounds.generated,
                )
        return await self._probe.check(candidate, self._asked, self._bounds.rules)

    async def time(self, original: Slot, candidate: Slot, text: str, seed: int) -> Timed:
        """Measure a candidate, which is staged in its slot, with the machine to itself."""
        del text
        how = {"rules": self._bounds.rules, "plan": self._bounds.plan, "seed": seed}
        async with machine(alone=True):
            return await time_candidate(
                (original, candidate), self.target, self._tests, self.inputs, how
            )

    async def profile(self, slot: Slot) -> list[ProfiledLine]:
        """How often each line of what is staged in the slot is run, and for how long.

        Raises StandFailed.
        """
        async with machine(alone=True):
            found = await line_profile(slot, self.target, self._tests, self.inputs)
        return [
            ProfiledLine(number, hits, seconds) for number, (hits, seconds) in sorted(found.items())
        ]


def _cut(original: Watched) -> list[str]:
    """The tests of which not every call is compared."""
    return [
        f"{test} calls it too often: the calls from number {first} on are not compared"
        for test, first in original.cut.items()
    ][:_MOST_DIFFS]


def _checked(behaviour: Behaviour, calls: int, watched: Watched | None = None) -> Checked:
    diffs = tuple(Diff.of(one) for one in behaviour.findings[:_MOST_DIFFS])
    if watched is None:
        return Checked(behaviour.verdict, behaviour.reason, diffs, invocations=calls)
    return Checked(
        behaviour.verdict,
        behaviour.reason,
        diffs,
        watched.tests,
        watched.passed,
        calls,
        watched.stdout,
        watched.stderr,
        watched.confinement,
    )
