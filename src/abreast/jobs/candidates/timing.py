"""Times a candidate beside the original: the calls that the tests make, each from the state in which it was made.

Which calls to time is seen beforehand; a race tells how long they take, and whether that is honest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import Any, Final

from abreast.jobs.candidates.inputs import Inputs, choose
from abreast.jobs.candidates.measure import Measurement, Plan, measure, turns_of
from abreast.jobs.candidates.race import Race
from abreast.jobs.candidates.stand import PATIENCE, Place, StandFailed, StandTimedOut
from abreast.jobs.candidates.stands import Stands, within_stands
from abreast.jobs.candidates.target import Target
from abreast.jobs.candidates.tried import Timed
from abreast.jobs.candidates.witnessed import Tests
from abreast.worktrees.slot import Slot

_LOOKS: Final = 6  # at each call, to know about how long it takes
_HARDLY: Final = 1 / 3  # of what repeated calls save, first calls must save more than this part
_BOLD: Final = 1.5  # who claims more than that must be seen to do all of its work where it is timed


async def scout(slot: Slot, target: Target, tests: Tests, seconds: float) -> Inputs:
    """Which of the tests' calls to time, seen in two runs of the original. Raises StandFailed."""
    found: list[Inputs] = []

    async def look(stands: Stands) -> None:
        place = Place(slot, target, tests, seconds=seconds)
        _, told = (await stands.started([place]))[0]
        try:
            first = choose(told["calls"])
        except (ValueError, TypeError, KeyError):
            raise StandFailed(f"no call of {target.qualname} could be timed {told.get('failed', '')}".strip()) from None
        await stands.end()
        # What it told is the time until it returned, which of a generator is nothing.
        stand, _ = (await stands.started([replace(place, wanted=tuple(one.name for one in first.chosen))]))[0]
        calls = []
        for number, one in enumerate(first.chosen):
            made = await stand.make(number, [1] * _LOOKS if one.copyable else [1], seconds, ())
            calls.append((one.name, min(made.chunks), one.name, one.copyable))
        found.append(replace(choose(calls), of=first.of))

    await within_stands(look)
    return found[0]


async def time_candidate(
    slots: tuple[Slot, Slot], target: Target, tests: Tests, inputs: Inputs, how: Mapping[str, Any]
) -> Timed:
    """Measure what is staged in the second slot beside the first; `how` has `rules`, `plan` and `seed`."""
    found: list[Timed] = []

    async def work(stands: Stands) -> None:
        race = Race(stands, slots, target, tests, inputs)
        race.rules, race.seed = how["rules"], how["seed"]
        found.append(await _timed(race, inputs, how["plan"]))

    try:
        await within_stands(work)
    except StandTimedOut as error:
        return Timed("timeout", str(error), inputs=len(inputs.chosen))
    except StandFailed as error:
        return Timed("refused", str(error), inputs=len(inputs.chosen))
    return found[0]


async def _timed(race: Race, inputs: Inputs, plan: Plan) -> Timed:
    plan = replace(plan, laps=inputs.laps)
    measurement = await measure(race.run_once, plan=plan, seed=race.seed)
    memory = await race.memory_ratio()
    instructions, uncounted = await race.instruction_ratio()
    verdict, reason = measurement.verdict, _sentence(measurement, instructions)
    found = Timed(
        verdict, reason, measurement.candidate.ratio, measurement.candidate.low, measurement.candidate.high,
        measurement.noise_floor, measurement.blocks, _round_of(measurement, inputs), len(inputs.chosen), memory,
        race.regressions(), inputs.notes, instructions, uncounted,
    )  # fmt: skip
    if verdict != "faster":
        return found
    elsewhere, share = race.works_elsewhere(), race.first_calls()
    bold, block = measurement.candidate.ratio > _BOLD, measurement.blocks
    while bold and block < plan.most and None in (elsewhere, share):  # that it is faster is known; how, not yet
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
        said = (
            f"it is faster only when a call is repeated: first calls save {max(0.0, share):.0%} of what later ones do"
        )
        return replace(found, verdict="refused", reason=said)
    return found


def _round_of(measurement: Measurement, inputs: Inputs) -> float:
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


async def line_profile(slot: Slot, target: Target, tests: Tests, inputs: Inputs) -> dict[int, tuple[int, float]]:
    """By line of the target's file, as it is staged: how often it was run, and its seconds. Raises StandFailed."""
    found: dict[int, tuple[int, float]] = {}

    async def work(stands: Stands) -> None:
        wanted = tuple(one.name for one in inputs.chosen)
        stand, _ = (await stands.started([Place(slot, target, tests, wanted)]))[0]
        order = {"do": "profile", "file": str(slot.mirror(target.file).resolve())}
        for number in range(len(wanted)):
            told = await stand.ask(number, order, PATIENCE * 5)
            for line, hits, seconds in told.get("lines", ()):
                before = found.get(int(line), (0, 0.0))
                found[int(line)] = (before[0] + int(hits), before[1] + float(seconds))

    await within_stands(work)
    return found
