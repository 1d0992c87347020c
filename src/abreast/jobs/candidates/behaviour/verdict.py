"""Decides whether a candidate behaves like the original, is wrong, or has forbidden effects.

Before that, it checks that candidates can be compared with the original, and says precisely why
not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from abreast.core.errors import AbreastError
from abreast.jobs.candidates.behaviour.trace import Watched
from abreast.jobs.candidates.rules import Rules
from abreast.jobs.candidates.values.compare import ValueVerdict
from abreast.jobs.candidates.values.invocation import (
    AllContents,
    BehaviourFinding,
    Invocation,
    judge,
)
from abreast.jobs.candidates.values.snapshot import RAISED, ValueSnapshot

USAGE_EXIT: Final = 4  # pytest's exit code for arguments that it does not understand
NO_TESTS_EXIT: Final = 5
PYTEST_EXITS: Final = {
    2: "pytest was interrupted",
    3: "pytest itself failed",
    USAGE_EXIT: "pytest did not understand its arguments, or there is no such test",
    NO_TESTS_EXIT: "there are no tests in it",
}
_OUTPUT_LINES: Final = 12  # last lines of pytest's output that are shown
CRASH: Final = "Fatal Python error"  # how the interpreter's report of a crash begins
_MAX_NAMES: Final = 3  # in a sentence


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The result of the comparison: one word, one sentence, and every difference."""

    verdict: Literal["same", "wrong", "undecided", "refused", "timeout", "error"]
    reason: str
    findings: tuple[BehaviourFinding, ...] = ()


def judge_behaviour(
    original: Watched,
    candidate: Watched,
    rules: Rules,
    contents: tuple[AllContents, AllContents] = ({}, {}),
) -> Behaviour:
    """Decide whether the candidate did what the original did, and nothing besides.

    `refused` comes before `wrong`: a candidate with forbidden side effects is not repaired. Side
    effects that the original has too are allowed, and a test that fails for the original may fail
    for the candidate. `undecided`: something, which is named, can't be compared, and all else is
    the same. `contents` are the slices of large values that were read again from both sides.
    """
    if original.failure or not original.invocations:
        why = f"the original can't be watched: {original.reason}" if original.failure else ""
        return Behaviour("error", why or "no test calls the target")
    side_effects = [*_side_effects(original, candidate)]
    if candidate.failure:
        more = [f"; it {one}" for one in side_effects[:1] if one not in candidate.reason]
        return Behaviour(
            "refused" if side_effects else candidate.failure, "".join([candidate.reason, *more])
        )
    if side_effects:
        return Behaviour("refused", "it " + "; it ".join(side_effects))
    kept = [one for one in candidate.invocations if original.knows(one.name)]
    unrecorded = ValueVerdict("cannot_compare", "$", reason="it is too large, and was not recorded")
    findings = (
        *_test_findings(original, candidate),
        *judge(original.invocations, kept, rules=rules, contents=contents),
        *(BehaviourFinding(name, "call", unrecorded) for name in original.left_out),
    )
    if any(one.verdict.outcome != "cannot_compare" for one in findings):
        known = _out_of_memory(original.invocations)
        return _wrong_behaviour(
            findings, [name for name in _out_of_memory(kept) if name not in known]
        )
    if elsewhere := [*_kept_state(original, candidate, own=False)]:
        return Behaviour("refused", f"it {elsewhere[0]}")
    return _undecided(findings) if findings else Behaviour("same", "")


def errors_of(after: ValueSnapshot) -> list[str]:
    """Return the types of the exceptions of an invocation: its own, and those of its iterators."""
    root = after.nodes[0]
    own = [
        value
        for key, value in zip(root.items[::2], root.items[1::2], strict=False)
        if after.nodes[key].value == "raised"
    ]
    of_iterators = [
        value
        for node in after.nodes
        if node.kind == "iterator"
        for name, value in zip(node.names, node.attributes, strict=True)
        if name == RAISED
    ]
    return [after.nodes[at].type.removeprefix("builtins.") for at in (*own, *of_iterators)]


def _out_of_memory(invocations: Sequence[Invocation]) -> list[str]:
    return [one.name for one in invocations if "MemoryError" in errors_of(one.after)]


def _wrong_behaviour(
    findings: tuple[BehaviourFinding, ...], out_of_memory: Sequence[str]
) -> Behaviour:
    if out_of_memory:
        return Behaviour(
            "refused", f"it asks for more memory than it may have, in {out_of_memory[0]}", findings
        )
    different = [one for one in findings if one.verdict.outcome == "different"]
    # A difference in a call explains more than a failed test, which explains more than a missing
    # call.
    order = {"missing": 2, "test": 1}
    first = min(
        different, key=lambda one: (one.verdict.candidate == "missing", order.get(one.part, 0))
    )
    return Behaviour("wrong", sentence(first), findings)


def _undecided(findings: tuple[BehaviourFinding, ...]) -> Behaviour:
    """Nothing differs, but something can't be compared: name each place and reason once."""
    named = dict.fromkeys(
        f"{one.part}{one.verdict.path.removeprefix('$')}: {one.verdict.reason}" for one in findings
    )
    return Behaviour(
        "undecided", f"some of it can't be compared: {join_names([*named], '; ')}", findings
    )


def sentence(finding: BehaviourFinding) -> str:
    """Describe a finding: which call, which part of it, and both sides."""
    verdict = finding.verdict
    sides = (
        f" (original {verdict.original}, candidate {verdict.candidate})" if verdict.original else ""
    )
    path = f" at {verdict.path}" if verdict.path not in {"", "$"} else ""
    return f"{finding.name}: {finding.part}{path}: {verdict.reason}{sides}"


def _test_findings(original: Watched, candidate: Watched) -> Iterator[BehaviourFinding]:
    before, after = dict(original.outcomes), dict(candidate.outcomes)
    for name in before | after:
        was, now = before.get(name, "nothing"), after.get(name, "missing")
        message = candidate.messages.get(name, "")
        reason = (
            f"the test is {now} {message}".strip()
            if name in before
            else f"only the candidate has it: {message}"
        )
        if now != "passed" and was in {"passed", "nothing"}:
            yield BehaviourFinding(name, "test", ValueVerdict("different", "$", was, now, reason))


def _side_effects(original: Watched, candidate: Watched) -> Iterator[str]:
    before, after = original.signs, candidate.signs
    if patched := sorted(set(after.broken) - set(before.broken)):
        yield f"patches {join_names(patched)}"
    changed = [
        name.replace("::", ".")
        for name, digest in before.codes.items()
        if after.codes.get(name) != digest and name.partition("::")[0] + "::" in after.codes
    ]
    if changed:
        yield f"changes code that is not its own: {join_names(changed)}"
    no_network = " (there is no network behind it)" if "network" in candidate.confinement else ""
    did = (one for one in after.did if one not in before.did)
    yield from (one + (no_network if "socket" in one else "") for one in did)
    if files := sorted(set(after.files) - set(before.files)):
        yield f"touches other files: {join_names(files)}"
    yield from _kept_state(original, candidate, own=True)


def _kept_state(original: Watched, candidate: Watched, *, own: bool) -> Iterator[str]:
    """State that only the candidate keeps between calls.

    With `own` in the target's file, else elsewhere, where it may be an argument that it changed.
    """
    before, after = original.signs, candidate.signs
    new = sorted(after.grown.keys() - before.grown.keys())
    if grown := [
        name for name in new if (name.partition("::")[0] + "::" not in after.codes) == own
    ]:
        sizes = after.grown[grown[0]]
        names = join_names([name.replace("::", ".") for name in grown])
        yield (
            f"keeps something from one call to the next: {names} "
            f"went from {sizes[0]} to {sizes[1]} parts"
        )


def join_names(names: Sequence[str], between: str = ", ") -> str:
    """Return the first three names, and how many more there are."""
    return between.join(names[:_MAX_NAMES]) + (
        f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    )


# --- the original


class BaselineFailed(AbreastError):
    """The original can't be compared with candidates; the message says why."""

    retryable = False

    def __init__(self, reason: str, said: tuple[str, ...] = (), usage: bool = False) -> None:  # noqa: FBT001, FBT002 - to be pickled
        """`said` are the last lines of pytest's output; `usage`: other `--tests` are needed."""
        super().__init__(reason, said, usage)
        self.reason, self.said, self.usage = reason, said, usage

    def __str__(self) -> str:
        return self.reason


def check_baseline(watched: Watched, qualname: str, top: str) -> None:
    """Raise `BaselineFailed` unless a test of the original passed and called the target.

    `top` is the directory of the slot; it is removed from the paths in pytest's lines.
    """
    lines, usage = _last_lines(watched, top), watched.exit in {USAGE_EXIT, NO_TESTS_EXIT}
    if watched.failure:
        raise BaselineFailed(
            f"the tests can't be run on the code as it is: {watched.reason}", lines, usage=usage
        )
    if watched.invocations and watched.passed:
        return
    if broken := [name for name, word in watched.outcomes if word == "error" and "::" not in name]:
        why = watched.messages.get(broken[0], "").replace(f"{top}/", "")
        more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        raise BaselineFailed(f"pytest can't collect {broken[0]}{more}: {why}".rstrip(": "), lines)
    if watched.exit in PYTEST_EXITS:
        raise BaselineFailed(
            f"the tests can't be run: {PYTEST_EXITS[watched.exit]}", lines, usage=usage
        )
    if watched.invocations:
        raise BaselineFailed(
            f"no test passes on the code as it is ({watched.tests} were run)", lines
        )
    if failed := [name for name, word in watched.outcomes if word in {"failed", "error"}]:
        message = watched.messages.get(failed[0], "")
        why = f"{join_names(failed)} failed before that: {message}".rstrip(": ")
        raise BaselineFailed(f"no test calls {qualname}; {why}", lines)
    raise BaselineFailed(f"no test calls {qualname}: name tests that do with --tests", usage=False)


def _last_lines(watched: Watched, top: str) -> tuple[str, ...]:
    found = [
        line.rstrip().replace(f"{top}/", "")
        for output in (watched.stdout, watched.stderr)
        for line in output.splitlines()
        if line.strip()
    ]
    # The interpreter's crash report has the place first and pytest's innermost calls last.
    crash = next((at for at, line in enumerate(found) if CRASH in line), None)
    return tuple(found[-_OUTPUT_LINES:] if crash is None else found[crash : crash + _OUTPUT_LINES])
