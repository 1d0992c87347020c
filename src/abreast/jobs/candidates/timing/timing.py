"""Times a candidate beside the original: the calls that the tests make, each from the state in which it was made.

Which calls to time is seen beforehand; a race tells how long they take, and whether that is honest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final

from abreast.core.clock import SYSTEM_CLOCK
from abreast.jobs.candidates.behaviour.trace import Tests
from abreast.jobs.candidates.results import Timed
from abreast.jobs.candidates.source.target import Target
from abreast.jobs.candidates.timing.measure import Measurement, measure, turns_of
from abreast.jobs.candidates.timing.race import OriginalTimedOut, Race
from abreast.jobs.candidates.timing.timed_calls import TimedCalls, choose
from abreast.jobs.candidates.timing.timed_process import (
    PATIENCE,
    ProcessPlace,
    TimedProcessFailed,
    TimedProcessTimedOut,
)
from abreast.jobs.candidates.timing.timed_processes import TimedProcesses, within_timed_processes
from abreast.jobs.candidates.timing.untimed_calls import (
    PASSES,
    Pass,
    UntimedComparison,
    compare_passes,
    doubt,
)
from abreast.worktrees.slot import Slot

_LOOKS: Final = 6  # at each call, to know about how long it takes
_NEXT: Final = 2  # calls that are looked at again besides those that are chosen
_FEWEST: Final = 2  # passes over the tests, of either side
_PASSING: Final = 60.0  # s after which no further pass begins
_PROFILED: Final = 1.0  # s of a call
_HARDLY: Final = 1 / 3  # of what repeated calls save, first calls must save more than this part
_BOLD: Final = 1.5  # who claims more than that must be seen to do all of its work where it is timed


async def scout(slot: Slot, target: Target, tests: Tests, seconds: float) -> TimedCalls:
    """Which of the tests' calls to time, seen in two runs of the original. Raises StandFailed."""
    found: list[TimedCalls] = []

    async def look(stands: TimedProcesses) -> None:
        place = ProcessPlace(slot, target, tests, seconds=seconds)
        _, told = (await stands.started([place]))[0]
        try:
            first = choose(told["calls"])
            # A machine with much else to do may make a short call look long: the next ones are
            # looked at, too.
            first = first.beside(first.left[:_NEXT])
        except (ValueError, TypeError, KeyError):
            raise TimedProcessFailed(
                f"no call of {target.qualname} could be timed {told.get('failed', '')}".strip()
            ) from None
        await stands.end()
        wanted = tuple(one.name for one in first.chosen)
        alive = seconds + sum(first.patience(one, least=PATIENCE) for one in first.chosen)
        stand, _ = (await stands.started([replace(place, wanted=wanted, seconds=alive)]))[0]
        calls = []
        for number, one in enumerate(first.chosen):
            looks = [1] * _LOOKS if first.chunks_of(one) else [1]
            made = await stand.make(number, looks, first.patience(one, least=PATIENCE), ())
            calls.append((one.name, min(made.chunks), one.name, one.copyable))
        again = choose(calls)
        left = sorted([*again.left, *first.left], key=lambda one: -one.seconds)
        found.append(replace(again, of=first.of, left=tuple(left)))

    await within_timed_processes(look)
    return found[0]


async def time_candidate(
    slots: tuple[Slot, Slot],
    target: Target,
    tests: Tests,
    inputs: TimedCalls,
    how: Mapping[str, Any],
) -> Timed:
    """Measure what is staged in the second slot beside the first.

    `how` has `rules`, `plan` and `seed`.
    """
    found: list[Timed] = []

    async def work(stands: TimedProcesses) -> None:
        found.append(await _Timing(stands, slots, target, tests, how).timed(inputs))

    try:
        await within_timed_processes(work)
    except TimedProcessTimedOut as error:
        return Timed("timeout", str(error), inputs=len(inputs.chosen))
    except OriginalTimedOut as error:
        return Timed("undecided", str(error), inputs=len(inputs.chosen))
    except TimedProcessFailed as error:
        return Timed("refused", str(error), inputs=len(inputs.chosen))
    return found[0]


@dataclass(frozen=True, slots=True)
class _Timing:
    """One candidate, in the second slot, beside the original in the first."""

    stands: TimedProcesses
    slots: tuple[Slot, Slot]
    target: Target
    tests: Tests
    how: Mapping[str, Any]

    async def timed(self, inputs: TimedCalls) -> Timed:
        """The verdict; one that is faster has all other calls of the tests compared as well."""
        found = await self._measured(inputs)
        if found.verdict != "faster":
            return found
        comparison = await self._compared(inputs)
        if more := comparison.worth_timing():
            known = {one.name: one for one in inputs.left}
            inputs = inputs.beside([known.get(one.name, one) for one in more])
            found = await self._measured(inputs)
        said = doubt(comparison, inputs, found.low or 1.0) if found.verdict == "faster" else ""
        if said:
            found = replace(found, verdict="undecided", reason=f"{found.reason}; but {said}")
        names = ", ".join(one.name for one in more)
        told = f"timed because it seemed slower in the tests: {names}" if names else ""
        return replace(found, notes=(*found.notes, told)) if told else found

    async def _measured(self, inputs: TimedCalls) -> Timed:
        """The verdict by these inputs alone."""
        race = Race(self.stands, self.slots, self.target, self.tests, inputs)
        race.rules, race.seed = self.how["rules"], self.how["seed"]
        measurement = await measure(
            race.run_once, plan=inputs.fitted(self.how["plan"]), seed=race.seed
        )
        one = measurement.candidate
        memory = await race.memory_ratio()
        instructions, uncounted = await race.instruction_ratio()
        found = Timed(
            measurement.verdict,
            _sentence(measurement, instructions),
            one.ratio,
            one.low,
            one.high,
            measurement.noise_floor,
            measurement.blocks,
            _round_of(measurement, inputs),
            len(inputs.chosen),
            memory,
            race.regressions(),
            inputs.notes,
            instructions,
            uncounted,
        )
        return await self._believed(race, found, inputs) if found.verdict == "faster" else found

    async def _compared(self, inputs: TimedCalls) -> UntimedComparison:
        """Passes over the tests, original and candidate in turns."""
        passes: tuple[list[Pass], list[Pass]] = ([], [])
        began = SYSTEM_CLOCK.now()
        while len(passes[0]) < PASSES and (
            len(passes[0]) < _FEWEST or SYSTEM_CLOCK.now() - began < _PASSING
        ):
            for slot, found in zip(self.slots, passes, strict=True):
                await self.stands.end()
                place = ProcessPlace(slot, self.target, self.tests, digests=False)
                _, told = (await self.stands.started([place]))[0]
                try:
                    found.append(Pass.of(told))
                except ValueError as error:
                    raise TimedProcessFailed(str(error)) from None
        await self.stands.end()
        return compare_passes(*passes, [one.name for one in inputs.chosen])

    async def _believed(self, race: Race, found: Timed, inputs: TimedCalls) -> Timed:
        """What is faster, unless it works elsewhere than where it is timed, or only when a call is repeated."""
        plan, reason = inputs.fitted(self.how["plan"]), found.reason
        elsewhere, share = race.works_elsewhere(), race.first_calls()
        bold, block = (found.ratio or 0.0) > _BOLD, found.blocks
        while (
            bold and block < plan.most and None in (elsewhere, share)
        ):  # that it is faster is known; how, not yet
            for turn in turns_of(block, race.seed, plan.laps):
                await race.run_once(turn)
            elsewhere, share, block = race.works_elsewhere(), race.first_calls(), block + 1
        if elsewhere:
            said = "it works elsewhere than where it is timed: on the whole, little of the time is saved"
            return replace(found, verdict="refused", reason=said)
        if elsewhere is None and bold:
            said = f"{reason}; but too much goes on here to know that it does its work where it is timed"
            return replace(found, verdict="undecided", reason=said)
        if share is None and bold:
            said = f"{reason}; but too much goes on here to know that it is no faster only when a call is repeated"
            return replace(found, verdict="undecided", reason=said)
        if share is not None and share < _HARDLY:
            saved = f"first calls save {max(0.0, share):.0%} of what later ones do"
            return replace(
                found,
                verdict="refused",
                reason=f"it is faster only when a call is repeated: {saved}",
            )
        return found


def _round_of(measurement: Measurement, inputs: TimedCalls) -> float:
    times = [second for pair in measurement.times["original"] for second in pair]
    return median(times) / inputs.rounds


def _sentence(measurement: Measurement, instructions: float | None) -> str:
    one = measurement.candidate
    ratio = f"{one.ratio:.2f}x [{one.low:.2f}, {one.high:.2f}]"
    counted = "" if instructions is None else f", {instructions:.2f}x the instructions"
    noise = f"noise {measurement.noise_floor:.1%}, {measurement.blocks} blocks{counted}"
    words = {
        "faster": f"{ratio} as fast ({noise})",
        "slower": f"{ratio}: slower ({noise})",
        "same": f"{ratio}: no faster ({noise})",
        "undecided": f"{ratio}: can't be told from the noise ({noise})",
    }
    return words[measurement.verdict]


async def line_profile(
    slot: Slot, target: Target, tests: Tests, inputs: TimedCalls
) -> dict[int, tuple[int, float]]:
    """By line of the target's file, as it is staged: how often it was run, and its seconds.

    Raises StandFailed.
    """
    found: dict[int, tuple[int, float]] = {}

    async def work(stands: TimedProcesses) -> None:
        # To trace every line makes a call some ten times slower: long ones only where there is
        # nothing else.
        short = [one for one in inputs.chosen if one.seconds <= _PROFILED] or [inputs.chosen[-1]]
        wanted = tuple(one.name for one in short)
        stand, _ = (await stands.started([ProcessPlace(slot, target, tests, wanted)]))[0]
        order = {"do": "profile", "file": str(slot.mirror(target.file).resolve())}
        for number in range(len(wanted)):
            told = await stand.ask(number, order, PATIENCE * 5)
            for line, hits, seconds in told.get("lines", ()):
                before = found.get(int(line), (0, 0.0))
                found[int(line)] = (before[0] + int(hits), before[1] + float(seconds))

    await within_timed_processes(work)
    return found
