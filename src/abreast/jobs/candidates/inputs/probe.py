"""Tries a candidate with generated inputs against the original, and makes what differs as small as it can.

    probe = await prepare(run_original, recorded, source, target)
    behaviour = await probe.check(run_candidate, run_original, STRICT)

`run_*` watch a side with inputs and without tests. An input counts only if the original's own answer can be compared,
is the same twice, and is no error that the tests never show: beyond that, it says nothing about what is right. On an
unusual value that no test is like, any error of the original is respected: the input doesn't count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from abreast.jobs.candidates.behaviour.trace import Watched
from abreast.jobs.candidates.behaviour.verdict import Behaviour, judge_behaviour, raised, sentence
from abreast.jobs.candidates.inputs.generate import COUNT, GeneratedCall, GeneratedInputs, generate
from abreast.jobs.candidates.inputs.unusual import PREFIX
from abreast.jobs.candidates.rules import STRICT, Rules
from abreast.jobs.candidates.source.target import Target
from abreast.jobs.candidates.values.compare import compare_portraits
from abreast.jobs.candidates.values.invocation import BehaviourFinding, Invocation, judge

Run: TypeAlias = Callable[[bytes], Awaitable[Watched]]
"""Watches one side with these inputs, and with no tests."""

_SECONDS: Final = 0.2  # of CPU that an input may keep the original busy
_ROUNDS: Final = 8  # of shrinking
_BATCH: Final = 120  # smaller inputs that are tried in a round
_NEVER: Final = frozenset({"MemoryError", "RecursionError"})


@dataclass(frozen=True, slots=True)
class Probe:
    """Inputs that the original answers, and its answers; made by `prepare`."""

    inputs: GeneratedInputs
    expected: Watched
    target: Target
    raises: frozenset[str]
    """The errors that the tests show."""
    dropped: Mapping[str, int]
    """Inputs that don't count, by reason."""

    @property
    def notes(self) -> tuple[str, ...]:
        """How many inputs count, and how many don't, by reason."""
        tried = f"{len(self.inputs.calls)} generated inputs were compared"
        return (
            tried,
            *(
                f"{count} generated inputs were not: {reason}"
                for reason, count in self.dropped.items()
            ),
        )

    async def check(self, candidate: Run, original: Run, rules: Rules = STRICT) -> Behaviour:
        """The verdict on a candidate.

        A difference is made small, and named as the call that shows it.
        """
        if not self.inputs.calls:
            return Behaviour("same", "")
        watched = await candidate(self.inputs.encode())
        behaviour = judge_behaviour(self.expected, watched, rules)
        calls = {call.name: call for call in self.inputs.calls}
        if behaviour.verdict == "timeout":
            at = [
                self._shown(call)
                for call in self.inputs.calls
                if f", in {call.name}" == _place(behaviour.reason)
            ]
            return replace(behaviour, reason=": ".join([behaviour.reason, *at]))
        if behaviour.verdict != "wrong":
            return behaviour
        differing = [calls[one.name] for one in behaviour.findings if one.name in calls]
        smallest, findings = await self._shrunk(
            _least(differing), behaviour.findings, (original, candidate), rules
        )
        shown = [replace(one, name=self._shown(smallest)) for one in findings]
        return Behaviour("wrong", sentence(shown[0]), tuple(shown))

    def _shown(self, call: GeneratedCall) -> str:
        return call.shown(self.target.name)

    async def _shrunk(
        self,
        call: GeneratedCall,
        findings: Sequence[BehaviourFinding],
        sides: tuple[Run, Run],
        rules: Rules,
    ) -> tuple[GeneratedCall, list[BehaviourFinding]]:
        found = [one for one in findings if one.name == call.name]
        for _ in range(_ROUNDS):
            batch = self._smaller(call)
            if not batch.calls:
                break
            first = await sides[0](batch.encode(_SECONDS))
            good = [one for one in first.invocations if _why_not(one, self.raises) is None]
            second = await sides[1](batch.only(one.name for one in good).encode(_SECONDS))
            differing = judge(good, second.invocations, rules=rules) if not second.failure else []
            names = {one.name for one in differing if one.part not in {"missing", "extra"}}
            if not names:
                break
            call = _least([one for one in batch.calls if one.name in names])
            found = [one for one in differing if one.name == call.name]
        return call, found

    def _smaller(self, call: GeneratedCall) -> GeneratedInputs:
        profile = self.inputs.profile
        wholes = dict.fromkeys(profile.tidied(one) for one in call.smaller())
        prefix = PREFIX if call.name.startswith(PREFIX) else ""
        less = (one for one in wholes if one.size < call.whole.size)
        fitting = sorted((one for one in less if profile.fits(one, hull=not prefix)), key=_size)
        spread = fitting if len(fitting) <= _BATCH else fitting[:: -(-len(fitting) // _BATCH)]
        return replace(
            self.inputs,
            calls=tuple(
                GeneratedCall(f"{prefix}smaller {at}", one) for at, one in enumerate(spread)
            ),
        )


def _size(one: object) -> int:
    return int(getattr(one, "size", 0))


def _least(calls: Sequence[GeneratedCall]) -> GeneratedCall:
    return min(calls, key=lambda call: call.whole.size)


def _place(reason: str) -> str:
    return reason[reason.rfind(", in ") :] if ", in " in reason else ""


async def prepare(
    original: Run,
    recorded: Sequence[Invocation],
    source: str,
    target: Target,
    *,
    count: int = COUNT,
    seed: int = 0,
) -> Probe:
    """Make inputs and have the original answer them, twice.

    Those that it has no time for are in `dropped`.
    """
    inputs = generate(recorded, source, target, count=count, seed=seed)
    raises = frozenset(name for one in recorded if (name := raised(one.after)) is not None)
    dropped: Counter[str] = Counter()
    if inputs.left_out:
        dropped["a recorded input can't be made again"] = inputs.left_out
    if inputs.forbidden:
        dropped["the type hint forbids the unusual value"] = inputs.forbidden
    empty = Watched(0, 0, (), (), "", "", None, "", ())
    if not inputs.calls:
        return Probe(inputs, empty, target, raises, dropped)
    first = await original(inputs.encode(_SECONDS))
    answered = inputs.only(one.name for one in first.invocations)
    second = await original(answered.encode(_SECONDS)) if answered.calls else first
    if second.failure:  # then it is not known what else it does
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
        reason = _why_not(one, raises)
        if reason is None and (one.name not in again or judge([one], [again[one.name]])):
            reason = "the original answers differently each time"
        if reason is None:
            kept.append(one)
        else:
            dropped[reason] += 1
    expected = replace(second, invocations=tuple(kept), dropped=())
    return Probe(inputs.only(one.name for one in kept), expected, target, raises, dropped)


def _why_not(one: Invocation, raises: frozenset[str]) -> str | None:
    """Why an answer of the original says nothing about what is right."""
    name = raised(one.after)
    if name is not None and one.name.startswith(PREFIX):
        return f"the original raises {name} on an unusual value"
    if name is not None and (name in _NEVER or name not in raises):
        return f"the original raises {name}, which no test shows"
    if compare_portraits(one.after, one.after).outcome != "same":
        return "what the original does can't be compared"
    return None
