"""The verdict on a candidate's behaviour: the same as the original's, wrong, or refused for how it came about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from abreast.jobs.candidates.behaviour.trace import Watched
from abreast.jobs.candidates.rules import Rules
from abreast.jobs.candidates.values.compare import ValueVerdict
from abreast.jobs.candidates.values.invocation import AllContents, BehaviourFinding, judge
from abreast.jobs.candidates.values.snapshot import ValueSnapshot

_FEW = 3  # names in a sentence


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What became of the comparison, in one word, one sentence, and every difference."""

    verdict: Literal["same", "wrong", "undecided", "refused", "timeout", "error"]
    reason: str
    findings: tuple[BehaviourFinding, ...] = ()


def judge_behaviour(
    original: Watched,
    candidate: Watched,
    rules: Rules,
    contents: tuple[AllContents, AllContents] = ({}, {}),
) -> Behaviour:
    """Whether the candidate did what the original did, and nothing besides.

    `refused` comes before `wrong`: who cheats is not to be repaired. What the original does too is no cheat, and a test
    that fails for the original may fail for the candidate. `undecided`: some of it can't be compared, which is named,
    and all else is the same. `contents` has what was read again of both, of that which is too large to be recorded.
    """
    if original.failure or not original.invocations:
        told = (
            f"the original can't be watched: {original.reason}"
            if original.failure
            else "no test calls the target"
        )
        return Behaviour("error", told)
    cheats = [*_cheats(original, candidate)]
    if candidate.failure:
        told = f"; it {cheats[0]}" if cheats and cheats[0] not in candidate.reason else ""
        return Behaviour("refused" if cheats else candidate.failure, candidate.reason + told)
    if cheats:
        return Behaviour("refused", "it " + "; it ".join(cheats))
    kept = [one for one in candidate.invocations if original.knows(one.name)]
    findings = (
        *_tests(original, candidate),
        *judge(original.invocations, kept, rules=rules, contents=contents),
    )
    findings += tuple(map(_unrecorded, original.left_out))
    if findings and not all(one.verdict.outcome == "cannot_compare" for one in findings):
        starved = {one.name for one in original.invocations if raised(one.after) == "MemoryError"}
        hungry = [
            one.name
            for one in kept
            if raised(one.after) == "MemoryError" and one.name not in starved
        ]
        return _judged(findings, hungry)
    if elsewhere := [*_grown(original, candidate, own=False)]:
        return Behaviour("refused", f"it {elsewhere[0]}")
    return _undecided(findings) if findings else Behaviour("same", "")


def raised(after: ValueSnapshot) -> str | None:
    """The type of what was raised in an invocation, None if nothing was."""
    root = after.nodes[0]
    for key, value in zip(root.items[::2], root.items[1::2], strict=False):
        if after.nodes[key].value == "raised":
            return after.nodes[value].type.removeprefix("builtins.")
    return None


def _judged(findings: tuple[BehaviourFinding, ...], hungry: Sequence[str]) -> Behaviour:
    if hungry:
        return Behaviour(
            "refused", f"it asks for more memory than it may have, in {hungry[0]}", findings
        )
    different = [one for one in findings if one.verdict.outcome == "different"]
    # What it did says more than that a test failed, and that says more than that a call is missing.
    order = {"missing": 2, "test": 1}
    first = min(
        different, key=lambda one: (one.verdict.candidate == "missing", order.get(one.part, 0))
    )
    return Behaviour("wrong", sentence(first), findings)


def _unrecorded(name: str) -> BehaviourFinding:
    return BehaviourFinding(
        name,
        "call",
        ValueVerdict("cannot_compare", "$", reason="it is too large, and was not recorded"),
    )


def _undecided(findings: tuple[BehaviourFinding, ...]) -> Behaviour:
    """Nothing differs, and something can't be compared: where and why, each place once, whichever calls it is in."""
    named = dict.fromkeys(
        f"{one.part}{one.verdict.path.removeprefix('$')}: {one.verdict.reason}" for one in findings
    )
    return Behaviour("undecided", f"some of it can't be compared: {_few([*named], '; ')}", findings)


def sentence(finding: BehaviourFinding) -> str:
    """A finding in words: which call, what of it, and both sides."""
    verdict = finding.verdict
    sides = (
        f" (original {verdict.original}, candidate {verdict.candidate})" if verdict.original else ""
    )
    path = f" at {verdict.path}" if verdict.path not in {"", "$"} else ""
    return f"{finding.name}: {finding.part}{path}: {verdict.reason}{sides}"


def _tests(original: Watched, candidate: Watched) -> Iterator[BehaviourFinding]:
    after = dict(candidate.outcomes)
    for name, word in original.outcomes:
        now = after.get(name, "missing")
        if word == "passed" and now != word:
            said = candidate.messages.get(name, "")
            yield BehaviourFinding(
                name,
                "test",
                ValueVerdict("different", "$", word, now, f"the test is {now} {said}".strip()),
            )
    known = {name for name, _ in original.outcomes}
    for name, word in candidate.outcomes:
        if name not in known and word != "passed":
            said = candidate.messages.get(name, "")
            reason = f"only the candidate has it: {said}"
            yield BehaviourFinding(
                name, "test", ValueVerdict("different", "$", "nothing", word, reason)
            )


def _cheats(original: Watched, candidate: Watched) -> Iterator[str]:
    """What only the candidate did besides answering."""
    before, after = original.signs, candidate.signs
    if patched := sorted(set(after.broken) - set(before.broken)):
        yield f"patches {_few(patched)}"
    changed = [
        name.replace("::", ".")
        for name, digest in before.codes.items()
        if after.codes.get(name) != digest and name.partition("::")[0] + "::" in after.codes
    ]
    if changed:
        yield f"changes code that is not its own: {_few(changed)}"
    walled = " (there is no network behind it)" if "network" in candidate.confinement else ""
    for one in after.did:
        if one not in before.did:
            yield one + (walled if "socket" in one else "")
    if files := sorted(set(after.files) - set(before.files)):
        yield f"touches other files: {_few(files)}"
    yield from _grown(original, candidate, own=True)


def _grown(original: Watched, candidate: Watched, *, own: bool) -> Iterator[str]:
    """What only the candidate keeps: in the target's file, or elsewhere, where an argument that it changed may be."""
    before, after = original.signs, candidate.signs
    new = sorted(after.grown.keys() - before.grown.keys())
    if grown := [
        name for name in new if (name.partition("::")[0] + "::" not in after.codes) == own
    ]:
        sizes = after.grown[grown[0]]
        names = _few([name.replace("::", ".") for name in grown])
        yield f"keeps something from one call to the next: {names} went from {sizes[0]} to {sizes[1]} parts"


def _few(names: list[str], between: str = ", ") -> str:
    return between.join(names[:_FEW]) + (
        f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    )
