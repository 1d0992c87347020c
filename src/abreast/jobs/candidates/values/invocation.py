"""What an invocation does, as data that travels: what it returned, raised, printed, yielded, and did to its arguments.

Why a candidate can't forge "equal". It runs in a process of its own, which it may own completely:
it may patch this module there, and send any bytes it likes. So nothing that it sends is run or
believed:

- The judge is another process, in which no code of a candidate is ever imported. It reads JSON, field by field, never
  a pickle; what is not exactly a record is `RecordInvalid`. The comparison runs there.
- A record holds claims about values, not verdicts. A claim counts only where it is the same as what the original did,
  and the original's records are never in the candidate's process: to claim the right thing it must find it out, and
  that is what it was asked to do. A forged record can at worst be a wrong answer.
- The judge knows which invocations there are. One that is missing, doubled, or not asked for is a finding, so that
  leaving early with success, or answering only what is easy, is no way through.
- What says "beyond comparison" is never the same as anything, the same claim included.

What this can't show is that the code which was observed is the code that will be used: a candidate
that knows when it is watched, or looks its answers up in a copy of the original. Hence timed runs
are observed and judged like all others.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from types import AsyncGeneratorType, CoroutineType, MethodType
from typing import TypeAlias, cast

from abreast.jobs.candidates.rules import STRICT, Rules
from abreast.jobs.candidates.values.compare import ValueVerdict, compare_portraits
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
from abreast.jobs.candidates.values.take_snapshot import MOST_YIELDED, take_snapshot

MOST_READ_AGAIN = 512
"""Slices of one part of an invocation that are read again."""
_PARTS = ("self", "arguments", "keywords", "returned", "raised", "yielded")
_FIELDS = {"name", "before", "after", "steps", "stdout"}

AllContents: TypeAlias = Mapping[tuple[str, str], Contents]
"""What was read again, by invocation and part: `before`, `after` or `step 3`."""
Places: TypeAlias = dict[tuple[str, str], set[Place]]
"""The slices to be read again, likewise."""


class RecordInvalid(ValueError):
    """What came is no record of invocations: it was cut short, or made by hand."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """One call. `name` is the judge's: which call it was.

    `before` has the arguments as they came; iterators among them are not touched. `after` has all that is left, as one
    graph, so that a result which *is* an argument differs from one which is like it: `self`, `arguments`, `keywords`,
    and `returned`, `raised` or `yielded`. `steps` are the values of an async generator, each as it was when it came.
    """

    name: str
    before: ValueSnapshot
    after: ValueSnapshot
    stdout: str = ""
    steps: tuple[ValueSnapshot, ...] = ()

    @property
    def digested(self) -> bool:
        """Whether only digests are known of it."""
        return self.after.nodes[0].kind == "whole"

    def as_digests(self) -> Invocation:
        """The same with a digest for each of its parts: what is known of one that is too large to be recorded."""
        if self.digested:
            return self
        printed = (
            f"digest {whole_digest(self.stdout.encode('utf-8', 'surrogatepass'))}"
            if self.stdout
            else ""
        )
        steps = tuple(map(_in_one, self.steps))
        return Invocation(self.name, _in_one(self.before), _in_one(self.after), printed, steps)


def _in_one(portrait: ValueSnapshot) -> ValueSnapshot:
    """One digest for all; what can't be compared stays so."""
    unknown = next((node for node in portrait.nodes if node.kind == "unknown"), None)
    return ValueSnapshot(
        (unknown or SnapshotNode("whole", "record", whole_digest(pack(portrait))),)
    )


@dataclass(frozen=True, slots=True)
class BehaviourFinding:
    """An invocation that is not the same: which, in what part, and how."""

    name: str
    part: str
    verdict: ValueVerdict


# --- observing


def observe(
    name: str,
    function: Callable[..., object],
    *args: object,
    bound: int = MOST_YIELDED,
    **kwargs: object,
) -> Invocation:
    """Call a function and see what it does.

    A generator that it returns is consumed, up to `bound` values.

    Whatever it raises is part of the record, `SystemExit` included; only `KeyboardInterrupt` goes
    on. What is written to `sys.stdout` is taken; what goes to the file descriptor itself is not.
    """
    call = _Call(name, function, args, kwargs, bound)
    with redirect_stdout(call.stdout):
        try:
            call.after["returned"] = function(*args, **kwargs)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - it is what the invocation did
            call.after["raised"] = error
        return call.record()


async def observe_async(
    name: str,
    function: Callable[..., object],
    *args: object,
    bound: int = MOST_YIELDED,
    **kwargs: object,
) -> Invocation:
    """The same for async functions and async generators.

    Being cancelled is not what the function did: that goes on.
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
        except (Exception, SystemExit, GeneratorExit) as error:  # noqa: BLE001
            call.after["raised"] = error
        return call.record()


class _Call:
    """One call that is being observed."""

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
        """Take the values of an async generator, each as it is when it comes."""
        alive = cast("list[object]", self.after.setdefault("yielded", []))
        async for value in values:
            if len(alive) == self._bound:
                alive.append(Beyond(f"it goes on after {self._bound} values"))
                await values.aclose()
                return
            self.steps.append(take_snapshot(value, bound=self._bound))
            alive.append(value)

    def record(self) -> Invocation:
        """What it did. Generators are consumed now, while what they print is still taken."""
        after = take_snapshot(
            {part: self.after[part] for part in _PARTS if part in self.after}, bound=self._bound
        )
        return Invocation(self.name, self._before, after, self.stdout.getvalue(), tuple(self.steps))


# --- travelling


def encode(invocations: Sequence[Invocation]) -> bytes:
    """Invocations as bytes, for the judge."""
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
    """The invocations in `data`, which may come from anybody. Raises `RecordInvalid`.

    Nothing in it is run.
    """
    try:
        plain = json.loads(data)
        if type(plain) is not list:
            raise RecordInvalid("not a record: no list of invocations")
        return [_invocation(one) for one in plain]
    except (ValueError, RecursionError) as error:
        raise RecordInvalid(str(error)) from None


def _invocation(raw: object) -> Invocation:
    if type(raw) is not dict or raw.keys() != _FIELDS or type(raw["steps"]) is not list:
        raise SnapshotInvalid("not a record: an invocation without its parts")
    if type(raw["name"]) is not str or type(raw["stdout"]) is not str:
        raise SnapshotInvalid("not a record: an invocation without a name")
    printed = raw["stdout"].encode("latin-1").decode("utf-8", "surrogatepass")
    steps = tuple(map(from_plain, raw["steps"]))
    return Invocation(
        raw["name"], from_plain(raw["before"]), from_plain(raw["after"]), printed, steps
    )


# --- judging


def judge(
    originals: Sequence[Invocation],
    candidates: Sequence[Invocation],
    *,
    rules: Rules = STRICT,
    contents: tuple[AllContents, AllContents] = ({}, {}),
) -> list[BehaviourFinding]:
    """Each invocation in which the candidate did something else, or which can't be compared.

    None if all is the same.

    The originals say which invocations there are. Their names must be unique, or `ValueError` is
    raised. `contents` has what was read again of both sides, of that which is too large to be
    recorded: by invocation and part.
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
            reason = (
                "the candidate has no such invocation"
                if not seen[name]
                else "the candidate has it more than once"
            )
            found.append(
                BehaviourFinding(
                    name, "missing" if not seen[name] else "doubled", _different(reason)
                )
            )
    extra = [name for name in seen if name not in expected]
    return found + [
        BehaviourFinding(name, "extra", _different("only the candidate has this invocation"))
        for name in extra
    ]


def _different(reason: str, original: str = "", candidate: str = "") -> ValueVerdict:
    return ValueVerdict("different", "$", original, candidate, reason)


def _differences(
    original: Invocation,
    candidate: Invocation,
    rules: Rules,
    contents: tuple[AllContents, AllContents],
) -> list[BehaviourFinding]:
    """One finding if it ended otherwise.

    Else at most one difference of the arguments, what is left, steps, stdout.

    Every place that can't be compared is a finding of its own.
    """
    if original.digested or candidate.digested:
        original, candidate = original.as_digests(), candidate.as_digests()
    pairs = [
        ("before", original.before, candidate.before),
        ("after", original.after, candidate.after),
    ]
    pairs += [
        (f"step {at}", mine, yours)
        for at, (mine, yours) in enumerate(zip(original.steps, candidate.steps, strict=False))
    ]
    ends, others = _end(original.after), _end(candidate.after)
    if ends[0] != others[0]:
        return [
            BehaviourFinding(
                original.name,
                ends[0],
                _different(f"it {ends[0]}, and now {others[0]}", ends[1], others[1]),
            )
        ]
    verdicts: list[tuple[str, ValueVerdict]] = []
    for part, mine, yours in pairs:
        read = (
            contents[0].get((original.name, part), {}),
            contents[1].get((original.name, part), {}),
        )
        verdicts.append((part, compare_portraits(mine, yours, rules=rules, contents=read)))
    found = [_placed(original.name, part, one) for part, one in _named_once(verdicts)]
    if len(original.steps) != len(candidate.steps):
        reason = f"{len(original.steps)} values became {len(candidate.steps)}"
        found.append(BehaviourFinding(original.name, "yielded", _different(reason)))
    if original.stdout != candidate.stdout:
        printed = _different(
            "it printed something else", repr(original.stdout[-80:]), repr(candidate.stdout[-80:])
        )
        found.append(BehaviourFinding(original.name, "stdout", printed))
    return found


def _named_once(verdicts: Sequence[tuple[str, ValueVerdict]]) -> Iterator[tuple[str, ValueVerdict]]:
    """What is not the same; each place beyond comparison by itself, and not again if it is so afterwards as before."""
    afterwards = {
        one.path for part, verdict in verdicts if part == "after" for one in verdict.places
    }
    for part, verdict in verdicts:
        if verdict.outcome == "different":
            yield part, verdict
        elif verdict.outcome == "cannot_compare":
            fresh = [
                one
                for one in verdict.places
                if part != "before" or one.unread or one.path not in afterwards
            ]
            yield from ((part, one) for one in fresh)


def _end(after: ValueSnapshot) -> tuple[str, str]:
    """How an invocation ended, by its last part, and with what."""
    root = after.nodes[0]
    if root.kind != "map" or not root.items:
        return "did nothing known", ""
    key, value = root.items[-2:]
    return str(after.nodes[key].value), show(after, value)


def _placed(name: str, part: str, verdict: ValueVerdict) -> BehaviourFinding:
    """A finding whose path starts at what was returned, raised or changed, not at the record."""
    for inner in _PARTS if part == "after" else ():
        start = f'$["{inner}"]'
        if verdict.path.startswith(start):
            path = "$" + verdict.path.removeprefix(start)
            return BehaviourFinding(name, inner, replace(verdict, path=path))
    return BehaviourFinding(name, part, verdict)


def to_read_again(findings: Sequence[BehaviourFinding]) -> tuple[Places, Places]:
    """The slices that differ by their digests, of the original and of the candidate."""
    ours: Places = {}
    theirs: Places = {}
    for one in findings:
        part = "after" if one.part in _PARTS else one.part
        for left, right, at in one.verdict.unread[:MOST_READ_AGAIN]:
            ours.setdefault((one.name, part), set()).add((left, at))
            theirs.setdefault((one.name, part), set()).add((right, at))
    return ours, theirs
