"""Records what an invocation does as data, and compares two such records.

A record has what the function returned, raised, printed and yielded, and what it did to its
arguments.

Why a candidate can't forge "equal": it runs in a process of its own, over which it may have full
control. It may patch this module there, and send any bytes. So nothing that it sends is run or
trusted:

- The comparison runs in another process, the judge, which never imports code of a candidate. It
  reads JSON, field by field, never a pickle; anything that is not exactly a record raises
  `RecordInvalid`.
- A record holds claims about values, not verdicts. A claim counts only if it is equal to what the
  original did, and the original's records are never in the candidate's process: to claim the right
  value, the candidate must compute it, which is its task. A forged record is at worst a wrong
  answer.
- The judge knows which invocations there are. One that is missing, doubled, or not expected is a
  finding, so that a candidate can't exit early with success, or answer only the easy invocations.
- A value that can't be compared is never equal to anything, not even to the same claim.

This can't show that the code which was observed is the code that will be used: a candidate may
detect that it is observed, or look its answers up in a copy of the original. Hence timed runs are
observed and judged like all others.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from functools import lru_cache
from io import StringIO
from types import AsyncGeneratorType, CoroutineType, MethodType
from typing import Self, TypeAlias, cast

from abreast.jobs.candidates.rules import STRICT, Rules
from abreast.jobs.candidates.values.compare import ValueVerdict, compare_snapshots
from abreast.jobs.candidates.values.large import Contents, Place, whole_digest
from abreast.jobs.candidates.values.object_layout import Beyond
from abreast.jobs.candidates.values.snapshot import (
    SnapshotInvalid,
    SnapshotNode,
    ValueSnapshot,
    from_plain,
    pack,
    show,
)
from abreast.jobs.candidates.values.take_snapshot import MAX_YIELDED, take_snapshot

MAX_SLICES_READ_AGAIN = 512  # of one part of an invocation
_CACHED_RECORDS = 1_024  # that were read last
_CACHED_BYTES = 16 << 10  # of a record; a longer one is read every time
_RECORD_FIELDS = {"name", "before", "after", "steps", "stdout"}
_AFTER_PARTS = ("self", "arguments", "keywords", "returned", "raised", "yielded")

# The slices that were read again, by invocation and part: `before`, `after` or `step 3`.
AllContents: TypeAlias = Mapping[tuple[str, str], Contents]
Places: TypeAlias = dict[tuple[str, str], set[Place]]  # those to be read again


class RecordInvalid(ValueError):
    """The data is not a record of invocations: it was truncated, or not written by `encode`."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """One call. `name` says which call it was; the judge chose it.

    `before` has the arguments before the call; iterators among them are not consumed. `after` has
    the state after the call as one graph, so that a result which *is* an argument differs from one
    which equals it: `self`, `arguments`, `keywords`, and `returned`, `raised` or `yielded`. `steps`
    are the values of an async generator, each as it was when it was yielded.
    """

    name: str
    before: ValueSnapshot
    after: ValueSnapshot
    stdout: str = ""
    steps: tuple[ValueSnapshot, ...] = ()

    @property
    def digested(self) -> bool:
        """Whether only digests of it are known."""
        return self.after.nodes[0].kind == "whole"

    def as_digests(self) -> Self:
        """Return it with one digest for each part, as for one that is too large to be recorded."""
        if self.digested:
            return self
        printed = self.stdout.encode("utf-8", "surrogatepass")
        return replace(
            self,
            before=_as_whole_digest(self.before),
            after=_as_whole_digest(self.after),
            stdout=f"digest {whole_digest(printed)}" if printed else "",
            steps=tuple(map(_as_whole_digest, self.steps)),
        )


def _as_whole_digest(snapshot: ValueSnapshot) -> ValueSnapshot:
    """Return one digest of a snapshot; if a part can't be compared, the digest can't either."""
    unknown = next((node for node in snapshot.nodes if node.kind == "unknown"), None)
    return ValueSnapshot(
        (unknown or SnapshotNode("whole", "record", whole_digest(pack(snapshot))),)
    )


@dataclass(frozen=True, slots=True)
class BehaviourFinding:
    """A part of an invocation that is not the same as the original's."""

    name: str
    part: str
    verdict: ValueVerdict


# --- observing


def observe(
    name: str,
    function: Callable[..., object],
    *args: object,
    bound: int = MAX_YIELDED,
    **kwargs: object,
) -> Invocation:
    """Call a function and record what it does.

    A generator that it returns is consumed, up to `bound` values. Everything that it raises is part
    of the record, `SystemExit` included; only `KeyboardInterrupt` is raised again. Output to
    `sys.stdout` is recorded; output to the file descriptor itself is not.
    """
    call = _Call(name, function, args, kwargs, bound)
    with redirect_stdout(call.stdout):
        try:
            call.after["returned"] = function(*args, **kwargs)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - part of the record
            call.after["raised"] = error
        return call.record()


async def observe_async(
    name: str,
    function: Callable[..., object],
    *args: object,
    bound: int = MAX_YIELDED,
    **kwargs: object,
) -> Invocation:
    """Call an async function or async generator and record what it does, as `observe`.

    A cancellation comes from outside, not from the function, so it is raised again.
    """
    call = _Call(name, function, args, kwargs, bound)
    with redirect_stdout(call.stdout):
        try:
            result = function(*args, **kwargs)
            if type(result) is CoroutineType:
                result = await result
            if type(result) is AsyncGeneratorType:
                await call.follow(result)
            else:
                call.after["returned"] = result
        except (Exception, SystemExit, GeneratorExit) as error:  # noqa: BLE001 - part of the record
            call.after["raised"] = error
        return call.record()


class _Call:
    def __init__(
        self,
        name: str,
        function: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        bound: int,
    ) -> None:
        self.name, self._bound = name, bound
        self.stdout = StringIO()
        self.after: dict[str, object] = {"arguments": args, "keywords": kwargs}
        if type(function) is MethodType:
            self.after["self"] = function.__self__
        self.steps: list[ValueSnapshot] = []
        self._before = take_snapshot(self.after, consume=False)

    async def follow(self, values: AsyncGeneratorType[object, None]) -> None:
        alive = cast("list[object]", self.after.setdefault("yielded", []))
        async for value in values:
            if len(alive) == self._bound:
                alive.append(Beyond(f"it goes on after {self._bound} values"))
                await values.aclose()
                return
            self.steps.append(take_snapshot(value, bound=self._bound))
            alive.append(value)

    def record(self) -> Invocation:
        """Return the record. Generators are consumed now, while their output is still recorded."""
        after = take_snapshot(
            {part: self.after[part] for part in _AFTER_PARTS if part in self.after},
            bound=self._bound,
        )
        return Invocation(self.name, self._before, after, self.stdout.getvalue(), tuple(self.steps))


# --- encoding


def encode(invocations: Sequence[Invocation]) -> bytes:
    """Return invocations as bytes, for the judge."""
    plain = [
        {
            "name": one.name,
            "before": one.before.nodes,
            "after": one.after.nodes,
            "stdout": one.stdout.encode("utf-8", "surrogatepass").decode("latin-1"),
            "steps": [step.nodes for step in one.steps],
        }
        for one in invocations
    ]
    return json.dumps(plain, separators=(",", ":")).encode("ascii")


def decode(data: bytes) -> list[Invocation]:
    """Return the invocations in `data`, which need not be trusted. Raises `RecordInvalid`.

    Nothing in it is run.
    """
    return list((_decode_again if len(data) <= _CACHED_BYTES else _decode)(data))


def _decode(data: bytes) -> tuple[Invocation, ...]:
    try:
        plain = json.loads(data)
        if type(plain) is not list:
            raise RecordInvalid("not a record: no list of invocations")
        return tuple(map(_invocation, plain))
    except (ValueError, RecursionError) as error:
        raise RecordInvalid(str(error)) from None


# What a candidate does is mostly what the original does, to the byte: that is read once.
_decode_again = lru_cache(_CACHED_RECORDS)(_decode)


def _invocation(raw: object) -> Invocation:
    if type(raw) is not dict or raw.keys() != _RECORD_FIELDS or type(raw["steps"]) is not list:
        raise SnapshotInvalid("not a record: an invocation without its parts")
    if type(raw["name"]) is not str or type(raw["stdout"]) is not str:
        raise SnapshotInvalid("not a record: an invocation without a name")
    printed = raw["stdout"].encode("latin-1").decode("utf-8", "surrogatepass")
    return Invocation(
        raw["name"],
        from_plain(raw["before"]),
        from_plain(raw["after"]),
        printed,
        tuple(map(from_plain, raw["steps"])),
    )


# --- judging


def judge(
    originals: Sequence[Invocation],
    candidates: Sequence[Invocation],
    *,
    rules: Rules = STRICT,
    contents: tuple[AllContents, AllContents] = ({}, {}),
) -> list[BehaviourFinding]:
    """Return a finding for each difference of the candidate, and each place it can't compare.

    The list is empty if everything is the same. The originals determine which invocations there
    are. Their names must be unique, or `ValueError` is raised. `contents` has the slices that were
    read again, of both sides, where a value is too large to be recorded.
    """
    expected = {one.name: one for one in originals}
    if len(expected) != len(originals):
        raise ValueError("two invocations of the original have the same name")
    seen = Counter(one.name for one in candidates)
    answers = {one.name: one for one in candidates}
    found: list[BehaviourFinding] = []
    for name, original in expected.items():
        if seen[name] == 1:
            found += _differences(original, answers[name], rules, contents)
        else:
            found.append(
                _different(name, "doubled", "the candidate has it more than once")
                if seen[name]
                else _different(name, "missing", "the candidate has no such invocation")
            )
    return found + [
        _different(name, "extra", "only the candidate has this invocation")
        for name in seen
        if name not in expected
    ]


def _different(name: str, part: str, reason: str, *sides: str) -> BehaviourFinding:
    original, candidate = sides or ("", "")
    return BehaviourFinding(name, part, ValueVerdict("different", "$", original, candidate, reason))


def _differences(
    original: Invocation,
    candidate: Invocation,
    rules: Rules,
    contents: tuple[AllContents, AllContents],
) -> list[BehaviourFinding]:
    """Return one finding if the call ended in another way.

    Else at most one difference each of `before`, `after`, each step, the number of steps and
    stdout. Every place that can't be compared is a finding of its own.
    """
    if original.digested or candidate.digested:
        original, candidate = original.as_digests(), candidate.as_digests()
    steps = enumerate(zip(original.steps, candidate.steps, strict=False))
    pairs = [
        ("before", original.before, candidate.before),
        ("after", original.after, candidate.after),
        *((f"step {at}", mine, yours) for at, (mine, yours) in steps),
    ]
    ending, other_ending = _ending(original.after), _ending(candidate.after)
    name = original.name
    if ending[0] != other_ending[0]:
        reason = f"it {ending[0]}, and now {other_ending[0]}"
        return [_different(name, ending[0], reason, ending[1], other_ending[1])]
    ours, theirs = contents
    verdicts = [
        (
            part,
            compare_snapshots(
                mine,
                yours,
                rules=rules,
                contents=(ours.get((name, part), {}), theirs.get((name, part), {})),
            ),
        )
        for part, mine, yours in pairs
    ]
    found = [_finding(name, part, one) for part, one in _without_repeats(verdicts)]
    if len(original.steps) != len(candidate.steps):
        reason = f"{len(original.steps)} values became {len(candidate.steps)}"
        found.append(_different(name, "yielded", reason))
    if original.stdout != candidate.stdout:
        sides = repr(original.stdout[-80:]), repr(candidate.stdout[-80:])
        found.append(_different(name, "stdout", "it printed something else", *sides))
    return found


def _without_repeats(
    verdicts: Sequence[tuple[str, ValueVerdict]],
) -> Iterator[tuple[str, ValueVerdict]]:
    """Yield each difference, and each place that can't be compared as a verdict of its own.

    A place that can't be compared both before and after the call is yielded once, for `after`.
    """
    afterwards = {
        one.path for part, verdict in verdicts if part == "after" for one in verdict.places
    }
    for part, verdict in verdicts:
        if verdict.outcome == "different":
            yield part, verdict
        elif verdict.outcome == "cannot_compare":
            yield from (
                (part, one)
                for one in verdict.places
                if part != "before" or one.unread or one.path not in afterwards
            )


def _ending(after: ValueSnapshot) -> tuple[str, str]:
    root = after.nodes[0]
    if root.kind != "map" or not root.items:
        return "did nothing known", ""
    key, value = root.items[-2:]
    return str(after.nodes[key].value), show(after, value)


def _finding(name: str, part: str, verdict: ValueVerdict) -> BehaviourFinding:
    """Return a finding whose path starts at what was returned, raised or changed."""
    for inner in _AFTER_PARTS if part == "after" else ():
        path = verdict.path.removeprefix(f'$["{inner}"]')
        if path != verdict.path:
            return BehaviourFinding(name, inner, replace(verdict, path=f"${path}"))
    return BehaviourFinding(name, part, verdict)


def to_read_again(findings: Sequence[BehaviourFinding]) -> tuple[Places, Places]:
    """Return the slices whose digests differ, of the original and of the candidate."""
    ours, theirs = defaultdict(set), defaultdict(set)
    for one in findings:
        part = "after" if one.part in _AFTER_PARTS else one.part
        for left, right, at in one.verdict.unread[:MAX_SLICES_READ_AGAIN]:
            ours[one.name, part].add((left, at))
            theirs[one.name, part].add((right, at))
    return ours, theirs
