"""Times a candidate against the original, with the calls that the tests make.

Each call starts from the state in which the tests made it. `scout` chooses the calls beforehand; a
`Race` measures them and checks that the candidate does its work where it is timed.

The calls of the tests that are not timed are compared, so that none of them is slower unnoticed. A
pass runs the tests once and records how long each call takes, by the child's own clock. The timed
processes have made passes when they started; if those show a call that looks slower, original and
candidate have passes of their own in turns. The quickest of each call counts. This is too coarse
to accept anything, and accepts nothing: a call that looks slower is timed like the chosen ones, and
the verdict is that of all of them together. If there are more such calls than can be timed, or if
the rest together takes so much longer that nothing is left of the gain, the candidate stays
`undecided`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import median
from typing import Any, Final, Literal, Self

from abreast.core.clock import SYSTEM_CLOCK
from abreast.jobs.candidates.behaviour.trace import Tests
from abreast.jobs.candidates.behaviour.verdict import join_names
from abreast.jobs.candidates.behaviour.warm_parents import WarmParents
from abreast.jobs.candidates.results import Timed
from abreast.jobs.candidates.source.target import Target
from abreast.jobs.candidates.timing.measure import Measurement, measure, turns_of
from abreast.jobs.candidates.timing.race import OriginalTimedOut, Race, RaceOptions
from abreast.jobs.candidates.timing.timed_calls import (
    MAX_ROUND_SECONDS,
    TimedCall,
    TimedCalls,
    choose,
    in_words,
)
from abreast.jobs.candidates.timing.timed_process import (
    MIN_ANSWER_SECONDS,
    ProcessPlace,
    TimedProcesses,
    TimedProcessFailed,
    TimedProcessTimedOut,
    open_timed_processes,
)
from abreast.worktrees.slot import Slot

_SCOUT_CALLS: Final = 6  # repetitions of each call, to estimate how long it takes
_SCOUT_EXTRA_INPUTS: Final = 2  # timed by the scout besides those that are chosen first
PASSES: Final = 3  # of either side
_SLOWER_RATIO: Final = 1.15  # a call that takes this many times as long looks slower
_PASS_NOISE_SECONDS: Final = 50e-6  # by which a single call differs from pass to pass
_MAX_SUSPECTS: Final = 12  # calls that look slower and are timed
_SUSPECTS_SECONDS: Final = 5.0  # for the suspects of a candidate; the first may take any time
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
    parents: WarmParents | None = None,
) -> TimedCalls:
    """Choose the calls to time, by two runs of the original. Raises `TimedProcessFailed`.

    A run may take `seconds`; the chosen calls together take at most `round_seconds`, except the
    longest. With `parents`, the runs are forked from those.
    """
    async with open_timed_processes(parents) as processes:
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
        return replace(
            again,
            of=first.of,
            left=tuple(sorted([*again.left, *first.left], key=lambda one: -one.seconds)),
        )


async def time_candidate(
    slots: tuple[Slot, Slot],
    target: Target,
    tests: Tests,
    inputs: TimedCalls,
    *,
    options: RaceOptions,
    parents: WarmParents | None = None,
) -> Timed:
    """Measure the candidate in the second slot against the original in the first."""
    try:
        async with open_timed_processes(parents) as processes:
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
        found, race = await self._measure(inputs)
        if found.verdict != "faster":
            return found
        comparison = _compare_answers(race, inputs)
        if comparison is None or comparison.suspects or doubt(comparison, inputs, found.low or 1.0):
            comparison = await self._compare_untimed(inputs)
        if more := comparison.worth_timing():
            known = {one.name: one for one in inputs.left}
            inputs = inputs.beside([known.get(one.name, one) for one in more])
            found, _ = await self._measure(inputs)
            names = ", ".join(one.name for one in more)
            found = replace(
                found, notes=(*found.notes, f"timed because it seemed slower in the tests: {names}")
            )
        against = doubt(comparison, inputs, found.low or 1.0) if found.verdict == "faster" else ""
        return _undecided(found, against) if against else found

    async def _measure(self, inputs: TimedCalls) -> tuple[Timed, Race]:
        options = self.options
        race = Race(self.processes, self.slots, self.target, self.tests, inputs, options=options)
        measurement = await measure(
            race.run_once, plan=inputs.fitted(options.plan), seed=options.seed
        )
        memory = await race.memory_ratio()
        instructions, uncounted = await race.instruction_ratio()
        found = Timed(
            measurement.verdict,
            _sentence(measurement, instructions),
            measurement.candidate.ratio,
            measurement.candidate.low,
            measurement.candidate.high,
            measurement.noise_floor,
            measurement.blocks,
            median(chain(*measurement.times["original"])) / inputs.rounds,
            len(inputs.chosen),
            memory,
            race.regressions(),
            inputs.notes,
            instructions,
            uncounted,
        )
        if found.verdict == "faster":
            found = await self._verify_faster(race, found, inputs)
        return found, race

    async def _compare_untimed(self, inputs: TimedCalls) -> "UntimedComparison":
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
            # Two laps more than the eight of a plain verdict are enough, unless there is noise.
            laps = min(2, plan.laps) if block == found.blocks else plan.laps
            for turn in turns_of(block, self.options.seed, laps):
                await race.run_once(turn)
            elsewhere, share, block = race.works_elsewhere(), race.first_calls(), block + 1
        if elsewhere:
            return replace(
                found,
                verdict="refused",
                reason="it works elsewhere than where it is timed: "
                "on the whole, little of the time is saved",
            )
        too_much = "too much goes on here to know that it"
        if elsewhere is None and high:
            return _undecided(found, f"{too_much} does its work where it is timed")
        if share is None and high:
            return _undecided(found, f"{too_much} is no faster only when a call is repeated")
        if share is not None and share < _MIN_FIRST_CALL_SHARE:
            saved = f"first calls save {max(0.0, share):.0%} of what later ones do"
            return replace(
                found,
                verdict="refused",
                reason=f"it is faster only when a call is repeated: {saved}",
            )
        return found


def _undecided(found: Timed, reason_against: str) -> Timed:
    return replace(found, verdict="undecided", reason=f"{found.reason}; but {reason_against}")


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
    noise = f"noise {measurement.noise_floor:.1%}"
    return f"{ratio}{word} ({noise}, {measurement.blocks} blocks{counted})"


async def line_profile(
    slot: Slot,
    target: Target,
    tests: Tests,
    inputs: TimedCalls,
    *,
    parents: WarmParents | None = None,
) -> dict[int, tuple[int, float]]:
    """Return, by line of the staged file, how often it ran and for how many seconds.

    Raises `TimedProcessFailed`.
    """
    found: dict[int, tuple[int, float]] = {}
    async with open_timed_processes(parents) as processes:
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


# --- calls that are not timed


@dataclass(frozen=True, slots=True)
class Pass:
    """One run of the tests: the seconds of each call, by name.

    Attributes:
        complete: Whether it has all calls.
    """

    seconds: Mapping[str, float]
    complete: bool = True

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        """Read a child's answer. Raises `ValueError` for anything else."""
        try:
            return cls(
                {str(name): max(0.0, float(took)) for name, took, *_ in answer["calls"]},
                not answer.get("uncounted"),
            )
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"no pass over the tests: {error!r}") from None


@dataclass(frozen=True, slots=True)
class UntimedComparison:
    """The result of the passes for all calls except the timed ones.

    Attributes:
        suspects: Calls that look slower, the most seconds lost first; `seconds` are the original's.
        lost: By suspect: the seconds that the candidate seems to take longer.
        missing: Calls of the original that the candidate's passes don't have.
        original: Seconds of all untimed calls except the suspects: the least and the most of a
            pass.
    """

    suspects: tuple[TimedCall, ...]
    lost: Mapping[str, float]
    missing: tuple[str, ...]
    original: tuple[float, float]
    candidate: tuple[float, float]
    complete: bool

    def worth_timing(self) -> tuple[TimedCall, ...]:
        """The suspects to time: the worst in any case, and others within the limits."""
        found: list[TimedCall] = []
        took = 0.0
        for one in self.suspects:
            seconds = one.seconds + self.lost[one.name]
            if not found or (len(found) < _MAX_SUSPECTS and took + seconds <= _SUSPECTS_SECONDS):
                found.append(one)
                took += seconds
        return tuple(found)


def compare_passes(
    original: Sequence[Pass], candidate: Sequence[Pass], timed: Sequence[str]
) -> UntimedComparison:
    """Compare the times of both sides for all calls except the `timed` ones."""
    known = set(timed)
    ours, theirs = _quickest(original, known), _quickest(candidate, known)
    lost = {
        name: theirs[name] - took
        for name, took in ours.items()
        if name in theirs and theirs[name] > _SLOWER_RATIO * took + _PASS_NOISE_SECONDS
    }
    suspects = sorted(lost, key=lambda name: (-lost[name], name))
    rest = ours.keys() & theirs.keys() - lost.keys()
    return UntimedComparison(
        tuple(TimedCall(name, ours[name], copyable=False) for name in suspects),
        lost,
        tuple(sorted(ours.keys() - theirs.keys())),
        _extremes(original, rest),
        _extremes(candidate, rest),
        all(one.complete for one in (*original, *candidate)),
    )


def _compare_answers(race: Race, inputs: TimedCalls) -> UntimedComparison | None:
    """Compare the passes that the timed processes made when they started.

    None if there are too few, or if they don't have the seconds of every call.
    """
    try:
        original, candidate = (
            [Pass.of(answer) for answer in race.answers[which]]
            for which in ("original", "candidate")
        )
    except ValueError:
        return None
    if len(original) < _MIN_PASSES or not all(one.complete for one in (*original, *candidate)):
        return None
    return compare_passes(original, candidate, [one.name for one in inputs.chosen])


def _quickest(passes: Sequence[Pass], known: set[str]) -> dict[str, float]:
    """By call that is in every pass: its quickest time."""
    names = set.intersection(*(set(one.seconds) for one in passes)) - known
    return {name: min(one.seconds[name] for one in passes) for name in names}


def _extremes(passes: Sequence[Pass], names: set[str]) -> tuple[float, float]:
    sums = [sum(one.seconds[name] for name in names) for one in passes]
    return min(sums), max(sums)


def doubt(found: UntimedComparison, inputs: TimedCalls, low: float) -> str:
    """Say why a candidate that is faster for the timed `inputs` may not be faster on the whole.

    It is faster by at least `low` for those. Empty if it is faster on the whole. Pessimistic: it
    compares the original's quickest pass with the candidate's slowest.
    """
    timed = {one.name for one in inputs.chosen}
    if slower := [one.name for one in found.suspects if one.name not in timed]:
        seem = "seems" if len(slower) == 1 else "seem"
        return f"{join_names(slower)} {seem} to take longer, and could not be timed"
    if found.missing:
        return (
            f"the tests did not make the call {join_names(found.missing)} each time, "
            "so it could not be compared"
        )
    if not found.complete:
        return "the tests make more calls than can be compared"
    before, after = inputs.seconds + found.original[0], inputs.seconds / low + found.candidate[1]
    took = f"{in_words(found.candidate[1])} instead of {in_words(found.original[0])}"
    return (
        f"the calls that were not timed take up to {took} together, "
        "which leaves nothing of the gain"
        if after >= before
        else ""
    )
