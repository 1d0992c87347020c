"""Compares a candidate with the original on generated inputs, and shrinks an input that differs.

    probe = await prepare(run_original, recorded, source, target)
    behaviour = await probe.check(run_candidate, run_original, STRICT)

`run_*` run the original or the candidate with inputs and without tests, and trace it. An input
counts only if the original's answer can be compared, is the same twice, and is not an error that no
test shows: otherwise it doesn't tell what is right. If the original raises any error on an unusual
value, which is unlike the tests, that input doesn't count.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from abreast.jobs.candidates.behaviour.trace import Watched
from abreast.jobs.candidates.behaviour.verdict import (
    Behaviour,
    errors_of,
    judge_behaviour,
    sentence,
)
from abreast.jobs.candidates.inputs.generate import (
    DEFAULT_INPUT_COUNT,
    GeneratedCall,
    GeneratedInputs,
    generate,
)
from abreast.jobs.candidates.inputs.unusual import PREFIX
from abreast.jobs.candidates.rules import STRICT, Rules
from abreast.jobs.candidates.source.target import Target
from abreast.jobs.candidates.values.compare import compare_snapshots
from abreast.jobs.candidates.values.invocation import BehaviourFinding, Invocation, judge

# Runs the original or the candidate with these inputs, without tests, and traces it.
RunSide: TypeAlias = Callable[[bytes], Awaitable[Watched]]
_CPU_SECONDS_PER_INPUT: Final = 0.2  # for the original
_SHRINK_ROUNDS: Final = 8
_SHRINK_BATCH: Final = 120  # smaller inputs that are run in one round


@dataclass(frozen=True, slots=True)
class Probe:
    """Generated inputs and the original's answers; made by `prepare`.

    Attributes:
        raises: The types of errors that the tests show.
        dropped: The number of inputs that don't count, by reason.
    """

    inputs: GeneratedInputs
    expected: Watched
    target: Target
    raises: frozenset[str]
    dropped: Mapping[str, int]

    @property
    def notes(self) -> tuple[str, ...]:
        """How many inputs count, and how many don't, by reason."""
        return (
            f"{len(self.inputs.calls)} generated inputs were compared",
            *(
                f"{count} generated inputs were not: {reason}"
                for reason, count in self.dropped.items()
            ),
        )

    async def check(
        self, candidate: RunSide, original: RunSide, rules: Rules = STRICT
    ) -> Behaviour:
        """Return the verdict on a candidate; a difference names the smallest call that shows it."""
        if not self.inputs.calls:
            return Behaviour("same", "")
        behaviour = judge_behaviour(self.expected, await candidate(self.inputs.encode()), rules)
        if behaviour.verdict == "timeout":
            at = [
                call.shown(self.target.name)
                for call in self.inputs.calls
                if behaviour.reason.endswith(f", in {call.name}")
            ]
            return replace(behaviour, reason=": ".join([behaviour.reason, *at]))
        if behaviour.verdict != "wrong":
            return behaviour
        calls = {call.name: call for call in self.inputs.calls}
        differing = [calls[one.name] for one in behaviour.findings if one.name in calls]
        smallest, findings = await self._shrink(
            _smallest(differing), behaviour.findings, (original, candidate), rules
        )
        shown = [replace(one, name=smallest.shown(self.target.name)) for one in findings]
        return Behaviour("wrong", sentence(shown[0]), tuple(shown))

    async def _shrink(
        self,
        call: GeneratedCall,
        findings: Sequence[BehaviourFinding],
        sides: tuple[RunSide, RunSide],
        rules: Rules,
    ) -> tuple[GeneratedCall, list[BehaviourFinding]]:
        found = [one for one in findings if one.name == call.name]
        for _ in range(_SHRINK_ROUNDS):
            batch = self._smaller_calls(call)
            if not batch.calls:
                break
            first = await sides[0](batch.encode(_CPU_SECONDS_PER_INPUT))
            counted = [
                one for one in first.invocations if _reason_to_drop(one, self.raises) is None
            ]
            second = await sides[1](
                batch.only(one.name for one in counted).encode(_CPU_SECONDS_PER_INPUT)
            )
            differing = (
                judge(counted, second.invocations, rules=rules) if not second.failure else []
            )
            names = {one.name for one in differing if one.part not in {"missing", "extra"}}
            if not names:
                break
            call = _smallest([one for one in batch.calls if one.name in names])
            found = [one for one in differing if one.name == call.name]
        return call, found

    def _smaller_calls(self, call: GeneratedCall) -> GeneratedInputs:
        profile = self.inputs.profile
        wholes = dict.fromkeys(profile.adjust(one) for one in call.smaller())
        prefix = PREFIX if call.name.startswith(PREFIX) else ""
        less = (one for one in wholes if one.size < call.whole.size)
        fits = (one for one in less if profile.fits(one, hull=not prefix))
        fitting = sorted(fits, key=lambda one: one.size)
        chosen = fitting[:: -(-len(fitting) // _SHRINK_BATCH) or 1]
        calls = (GeneratedCall(f"{prefix}smaller {at}", one) for at, one in enumerate(chosen))
        return replace(self.inputs, calls=tuple(calls))


def _smallest(calls: Sequence[GeneratedCall]) -> GeneratedCall:
    return min(calls, key=lambda call: call.whole.size)


async def prepare(
    original: RunSide,
    recorded: Sequence[Invocation],
    source: str,
    target: Target,
    *,
    count: int = DEFAULT_INPUT_COUNT,
    seed: int = 0,
) -> Probe:
    """Generate inputs, and run the original with them twice.

    Inputs for which it needs too long are in `dropped`.
    """
    inputs = generate(recorded, source, target, count=count, seed=seed)
    raises = frozenset(name for one in recorded for name in errors_of(one.after))
    dropped: Counter[str] = Counter()
    if inputs.left_out:
        dropped["a recorded input can't be made again"] = inputs.left_out
    if inputs.forbidden:
        dropped["the type hint forbids the unusual value"] = inputs.forbidden
    empty = Watched(0, 0, (), (), "", "", None, "", ())
    if not inputs.calls:
        return Probe(inputs, empty, target, raises, dropped)
    first = await original(inputs.encode(_CPU_SECONDS_PER_INPUT))
    answered = inputs.only(one.name for one in first.invocations)
    second = await original(answered.encode(_CPU_SECONDS_PER_INPUT)) if answered.calls else first
    if second.failure:  # its other answers can't be trusted
        dropped[f"the original: {second.reason}"] = len(inputs.calls)
        return Probe(replace(inputs, calls=()), empty, target, raises, dropped)
    if first.failure:
        dropped[f"the original: {first.reason}"] = (
            len(inputs.calls) - len(answered.calls) - len(first.dropped)
        )
    dropped.update(reason for _, reason in first.dropped)
    again = {one.name: one for one in second.invocations}
    kept: list[Invocation] = []
    for one in first.invocations:
        reason = _reason_to_drop(one, raises)
        if reason is None and (one.name not in again or judge([one], [again[one.name]])):
            reason = "the original answers differently each time"
        if reason is None:
            kept.append(one)
        else:
            dropped[reason] += 1
    expected = replace(second, invocations=tuple(kept), dropped=())
    return Probe(inputs.only(one.name for one in kept), expected, target, raises, dropped)


def _reason_to_drop(one: Invocation, raises: frozenset[str]) -> str | None:
    for name in errors_of(one.after):
        if one.name.startswith(PREFIX):
            return f"the original raises {name} on an unusual value"
        if name in {"MemoryError", "RecursionError"} or name not in raises:
            return f"the original raises {name}, which no test shows"
    comparable = compare_snapshots(one.after, one.after).outcome == "same"
    return None if comparable else "what the original does can't be compared"
