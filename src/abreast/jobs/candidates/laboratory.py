"""Judges texts in a real project: its tests are watched, its behaviour compared, its speed measured alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from abreast.core.errors import AbreastError
from abreast.jobs.candidates.machine import machine
from abreast.jobs.candidates.measure import Plan
from abreast.jobs.candidates.rules import STRICT, Rules
from abreast.jobs.candidates.target import Target
from abreast.jobs.candidates.timing import Inputs, line_profile, scout, time_candidate
from abreast.jobs.candidates.tried import Checked, Diff, Timed
from abreast.jobs.candidates.watching import LIMITS, Tests, Watched, judge_behaviour, watch
from abreast.worktrees.confine import Limits
from abreast.worktrees.slot import Slot

_MOST_DIFFS: Final = 20


class BaselineFailed(AbreastError):
    """There is nothing to compare candidates with; the message says why."""

    retryable = False


@dataclass(frozen=True, slots=True)
class Seen:
    """What the original does: what was watched, as plain data, and the calls that are timed."""

    watched: Mapping[str, Any]
    inputs: Inputs


@dataclass(frozen=True, slots=True)
class Bounds:
    """How strict it is, what a check may use, and how much is measured."""

    rules: Rules = STRICT
    limits: Limits = LIMITS
    plan: Plan = field(default_factory=lambda: Plan(most=56))


class Bench:
    """A laboratory in which a project's own tests are the measure."""

    def __init__(self, target: Target, tests: Tests, bounds: Bounds) -> None:
        """Nothing starts before `begin`."""
        self.target = target
        self._tests = tests
        self._bounds = bounds
        self._original: Watched | None = None
        self._inputs: Inputs | None = None

    @property
    def original(self) -> Watched:
        """What the original does; RuntimeError before that is known."""
        if self._original is None:
            raise RuntimeError("the original has not been seen yet")
        return self._original

    @property
    def inputs(self) -> Inputs:
        """The calls that are timed; RuntimeError before they are known."""
        if self._inputs is None:
            raise RuntimeError("the original has not been seen yet")
        return self._inputs

    async def begin(self, slot: Slot) -> Seen:
        """Watch the original twice, and choose inputs. Raises `BaselineFailed`."""
        async with machine(alone=False):
            watched = await self._watched(slot)
            if watched.failure:
                raise BaselineFailed(f"the tests can't be run on the code as it is: {watched.reason}")
            if not watched.invocations:
                raise BaselineFailed(f"no test calls {self.target.qualname}: name tests that do with --tests")
            if not watched.passed:
                raise BaselineFailed(f"no test passes on the code as it is ({watched.tests} were run)")
            await slot.reset()
            again = judge_behaviour(watched, await self._watched(slot), self._bounds.rules)
            if again.verdict != "same":
                raise BaselineFailed(
                    f"{self.target.qualname} does not do the same twice, so nothing can be compared: {again.reason}"
                )
            await slot.reset()
            inputs = await scout(slot, self.target, self._tests, self._bounds.limits.seconds)
        return Seen(watched.to_plain(), inputs)

    def ready(self, seen: object) -> None:
        """Go on from what `begin` returned."""
        if not isinstance(seen, Seen):
            raise TypeError(f"not what the original did: {type(seen).__name__}")
        self._original, self._inputs = Watched.from_plain(seen.watched), seen.inputs

    async def _watched(self, slot: Slot) -> Watched:
        return await watch(slot, self.target, self._tests, limits=self._bounds.limits)

    async def check(self, slot: Slot, text: str) -> Checked:
        """Watch a candidate, which is staged in the slot, and compare."""
        del text  # it is in the slot
        async with machine(alone=False):
            watched = await self._watched(slot)
        behaviour = judge_behaviour(self.original, watched, self._bounds.rules)
        diffs = tuple(Diff.of(one) for one in behaviour.findings[:_MOST_DIFFS])
        return Checked(
            behaviour.verdict, behaviour.reason, diffs, watched.tests, watched.passed, len(self.original.invocations),
            watched.stdout, watched.stderr, watched.confinement,
        )  # fmt: skip

    async def time(self, original: Slot, candidate: Slot, text: str, seed: int) -> Timed:
        """Measure a candidate, which is staged in its slot, with the machine to itself."""
        del text
        how = {"rules": self._bounds.rules, "plan": self._bounds.plan, "seed": seed}
        async with machine(alone=True):
            return await time_candidate((original, candidate), self.target, self._tests, self.inputs, how)

    async def profile(self, slot: Slot) -> dict[int, tuple[int, float]]:
        """How often each line of what is staged in the slot is run, and for how long. Raises StandFailed."""
        async with machine(alone=True):
            return await line_profile(slot, self.target, self._tests, self.inputs)
