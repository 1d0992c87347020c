"""Times a candidate against the original, with the calls that the tests make.

Each call starts from the state in which the tests made it. `scout` chooses the calls beforehand; a
`Race` measures them and checks that the candidate does its work where it is timed.
"""

from dataclasses import dataclass, replace
from statistics import median
from typing import Final, Literal

from abreast.core.clock import SYSTEM_CLOCK
from abreast.jobs.candidates.behaviour.trace import Tests
from abreast.jobs.candidates.results import Timed
from abreast.jobs.candidates.source.target import Target
from abreast.jobs.candidates.timing.measure import Measurement, measure, turns_of
from abreast.jobs.candidates.timing.race import OriginalTimedOut, Race, RaceOptions
from abreast.jobs.candidates.timing.timed_calls import MAX_ROUND_SECONDS, TimedCalls, choose
from abreast.jobs.candidates.timing.timed_process import (
    MIN_ANSWER_SECONDS,
    ProcessPlace,
    TimedProcesses,
    TimedProcessFailed,
    TimedProcessTimedOut,
    open_timed_processes,
)
from abreast.jobs.candidates.timing.untimed_calls import (
    PASSES,
    Pass,
    UntimedComparison,
    compare_passes,
    doubt,
)
from abreast.worktrees.slot import Slot

_SCOUT_CALLS: Final = 6  # repetitions of each call, to estimate how long it takes
_SCOUT_EXTRA_INPUTS: Final = 2  # timed by the scout besides those that are chosen first
_MIN_PASSES: Final = 2  # over the tests, of either side
_PASSES_SECONDS: Final = 60.0  # after which no further pass begins
_PROFILED_CALL_SECONDS: Final = 1.0  # longer calls are not profiled, if there are others
_MIN_FIRST_CALL_SHARE: Final = 1 / 3  # that first calls must save of what repeated calls save
_HIGH_RATIO: Final = 1.5  # a faster candidate must be proved to do its work where it is timed


async def scout(
    slot: Slot,
    target: Target,
    tests: Tests,
    seconds: float,
    *,
    round_seconds: float = MAX_ROUND_SECONDS,
) -> TimedCalls:
    """Choose the calls to time, by two runs of the original. Raises `TimedProcessFailed`.

    A run may take `seconds`; the chosen calls together take at most `round_seconds`, except the
    longest.
    """
    async with open_timed_processes() as processes:
        place = ProcessPlace(slot, target, tests, seconds=seconds)
        _, answer = (await processes.start([place]))[0]
        try:
            first = choose(answer["calls"], round_seconds=round_seconds)
            # A busy machine may make a short call look long, so the next ones are timed too.
            first = first.beside(first.left[:_SCOUT_EXTRA_INPUTS])
        except (ValueError, TypeError, KeyError):
            raise TimedProcessFailed(
                f"no call of {target.qualname} could be timed {answer.get('failed', '')}".strip()
            ) from None
        await processes.end()
        wanted = tuple(one.name for one in first.chosen)
        alive = seconds + sum(
            first.timeout_of(one, least=MIN_ANSWER_SECONDS) for one in first.chosen
        )
        process, _ = (await processes.start([replace(place, wanted=wanted, seconds=alive)]))[0]
        calls = []
        for number, one in enumerate(first.chosen):
            looks = [1] * _SCOUT_CALLS if first.chunks_of(one) else [1]
            made = await process.make(
                number, looks, first.timeout_of(one, least=MIN_ANSWER_SECONDS), ()
            )
            calls.append((one.name, min(made.chunks), one.name, one.copyable))
        again = choose(calls, round_seconds=round_seconds)
        left = sorted([*again.left, *first.left], key=lambda one: -one.seconds)
        return replace(again, of=first.of, left=tuple(left))


async def time_candidate(
    slots: tuple[Slot, Slot],
    target: Target,
    tests: Tests,
    inputs: TimedCalls,
    *,
    options: RaceOptions,
) -> Timed:
    """Measure the candidate in the second slot against the original in the first."""
    try:
        async with open_timed_processes() as processes:
            return await _Timing(processes, slots, target, tests, options).run(inputs)
    except TimedProcessFailed as error:
        verdict: Literal["timeout", "undecided", "refused"] = (
            "timeout"
            if isinstance(error, TimedProcessTimedOut)
            else "undecided"
            if isinstance(error, OriginalTimedOut)
            else "refused"
        )
        return Timed(verdict, str(error), inputs=len(inputs.chosen))


@dataclass(frozen=True, slots=True)
class _Timing:
    """The timing of one candidate, in the second slot, against the original in the first."""

    processes: TimedProcesses
    slots: tuple[Slot, Slot]
    target: Target
    tests: Tests
    options: RaceOptions

    async def run(self, inputs: TimedCalls) -> Timed:
        """Return the verdict; for a faster one, compare all other calls of the tests as well."""
        found = await self._measure(inputs)
        if found.verdict != "faster":
            return found
        comparison = await self._compare_untimed(inputs)
        if more := comparison.worth_timing():
            known = {one.name: one for one in inputs.left}
            inputs = inputs.beside([known.get(one.name, one) for one in more])
            found = await self._measure(inputs)
            names = ", ".join(one.name for one in more)
            note = f"timed because it seemed slower in the tests: {names}"
            found = replace(found, notes=(*found.notes, note))
        if found.verdict == "faster" and (
            reason_against := doubt(comparison, inputs, found.low or 1.0)
        ):
            return _undecided(found, reason_against)
        return found

    async def _measure(self, inputs: TimedCalls) -> Timed:
        """Return the verdict by these inputs alone."""
        options = self.options
        race = Race(self.processes, self.slots, self.target, self.tests, inputs, options=options)
        measurement = await measure(
            race.run_once, plan=inputs.fitted(options.plan), seed=options.seed
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
            _round_seconds(measurement, inputs),
            len(inputs.chosen),
            memory,
            race.regressions(),
            inputs.notes,
            instructions,
            uncounted,
        )
        return (
            await self._verify_faster(race, found, inputs) if found.verdict == "faster" else found
        )

    async def _compare_untimed(self, inputs: TimedCalls) -> UntimedComparison:
        """Make passes over the tests, original and candidate in turns, and compare them."""
        passes: tuple[list[Pass], list[Pass]] = ([], [])
        began = SYSTEM_CLOCK.now()
        while len(passes[0]) < PASSES and (
            len(passes[0]) < _MIN_PASSES or SYSTEM_CLOCK.now() - began < _PASSES_SECONDS
        ):
            for slot, found in zip(self.slots, passes, strict=True):
                await self.processes.end()
                place = ProcessPlace(slot, self.target, self.tests, digests=False)
                _, answer = (await self.processes.start([place]))[0]
                try:
                    found.append(Pass.of(answer))
                except ValueError as error:
                    raise TimedProcessFailed(str(error)) from None
        await self.processes.end()
        return compare_passes(*passes, [one.name for one in inputs.chosen])

    async def _verify_faster(self, race: Race, found: Timed, inputs: TimedCalls) -> Timed:
        """Refuse a faster candidate that works outside the timed part, or remembers results.

        The latter is faster only when a call is repeated.
        """
        plan = inputs.fitted(self.options.plan)
        elsewhere, share = race.works_elsewhere(), race.first_calls()
        high, block = (found.ratio or 0.0) > _HIGH_RATIO, found.blocks
        # It is known to be faster, but not yet that it does its work where it is timed.
        while high and block < plan.most and None in (elsewhere, share):
            for turn in turns_of(block, self.options.seed, plan.laps):
                await race.run_once(turn)
            elsewhere, share, block = race.works_elsewhere(), race.first_calls(), block + 1
        if elsewhere:
            reason = (
                "it works elsewhere than where it is timed: "
                "on the whole, little of the time is saved"
            )
            return replace(found, verdict="refused", reason=reason)
        too_much = "too much goes on here to know that it"
        if elsewhere is None and high:
            return _undecided(found, f"{too_much} does its work where it is timed")
        if share is None and high:
            return _undecided(found, f"{too_much} is no faster only when a call is repeated")
        if share is not None and share < _MIN_FIRST_CALL_SHARE:
            saved = f"first calls save {max(0.0, share):.0%} of what later ones do"
            reason = f"it is faster only when a call is repeated: {saved}"
            return replace(found, verdict="refused", reason=reason)
        return found


def _undecided(found: Timed, reason_against: str) -> Timed:
    return replace(found, verdict="undecided", reason=f"{found.reason}; but {reason_against}")


def _round_seconds(measurement: Measurement, inputs: TimedCalls) -> float:
    times = [second for pair in measurement.times["original"] for second in pair]
    return median(times) / inputs.rounds


def _sentence(measurement: Measurement, instructions: float | None) -> str:
    one = measurement.candidate
    ratio = f"{one.ratio:.2f}x [{one.low:.2f}, {one.high:.2f}]"
    word = {
        "faster": " as fast",
        "slower": ": slower",
        "same": ": no faster",
        "undecided": ": can't be told from the noise",
    }[measurement.verdict]
    counted = "" if instructions is None else f", {instructions:.2f}x the instructions"
    noise = f"noise {measurement.noise_floor:.1%}, {measurement.blocks} blocks{counted}"
    return f"{ratio}{word} ({noise})"


async def line_profile(
    slot: Slot, target: Target, tests: Tests, inputs: TimedCalls
) -> dict[int, tuple[int, float]]:
    """Return, by line of the staged file, how often it ran and for how many seconds.

    Raises `TimedProcessFailed`.
    """
    found: dict[int, tuple[int, float]] = {}
    async with open_timed_processes() as processes:
        # Tracing every line makes a call some ten times slower, so long ones are profiled only if
        # there are no others.
        short = [one for one in inputs.chosen if one.seconds <= _PROFILED_CALL_SECONDS] or [
            inputs.chosen[-1]
        ]
        wanted = tuple(one.name for one in short)
        process, _ = (await processes.start([ProcessPlace(slot, target, tests, wanted)]))[0]
        order = {"do": "profile", "file": str(slot.mirror(target.file).resolve())}
        for number in range(len(wanted)):
            answer = await process.ask(number, order, MIN_ANSWER_SECONDS * 5)
            for line, hits, seconds in answer.get("lines", ()):
                before = found.get(int(line), (0, 0.0))
                found[int(line)] = (before[0] + int(hits), before[1] + float(seconds))
    return found
