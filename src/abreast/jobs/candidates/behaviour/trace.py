"""What one side did, as the confined child told it: read line by line, believed in nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from abreast.jobs.candidates.values.invocation import (
    AllContents,
    Invocation,
    RecordInvalid,
    decode,
    encode,
)
from abreast.jobs.candidates.values.large import Place
from abreast.jobs.candidates.values.snapshot import ValueSnapshot, from_plain

Failure: TypeAlias = Literal["timeout", "refused", "error"]

# Read in a way of their own, or later additions.
_OTHERWISE = frozenset(
    {"invocations", "signs", "cut", "unconfined", "exit", "seconds", "cpu", "contents"}
)
_LONGEST_NUMBER = 20


@dataclass(frozen=True, slots=True)
class Tests:
    """What is run: pytest's node ids or files, from the directory that the pool was opened for.

    Without names, no test is run: only generated inputs are tried.
    """

    __test__: ClassVar = False  # to pytest, a class of this name would be one of its own
    names: tuple[str, ...]
    python: str
    """The interpreter of the user's project; it needs Python 3.11 or later, and pytest."""
    extra: tuple[str, ...] = ()
    """More arguments for pytest."""


@dataclass(frozen=True, slots=True)
class Signs:
    """What a run did besides answering; the same signs of the original are none."""

    did: tuple[str, ...] = ()
    """What it reached for, by the interpreter's own account."""
    broken: tuple[str, ...] = ()
    """Names of clocks, of pytest and of others' modules under which something else stands afterwards."""
    codes: Mapping[str, str] = field(default_factory=dict)
    """Every function of the project but the target's file, with a digest of what it does."""
    grown: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """What outlives a call and has changed: its parts before and after."""
    files: tuple[str, ...] = ()
    """Files of the slot that were made, changed or removed."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What one side did."""

    tests: int
    passed: int
    outcomes: tuple[tuple[str, str], ...]
    """By test: passed, failed, error or skipped."""
    invocations: tuple[Invocation, ...]
    stdout: str
    stderr: str
    failure: Failure | None
    """None if it came to its end, whatever its tests say."""
    reason: str
    confinement: tuple[str, ...]
    messages: Mapping[str, str] = field(default_factory=dict)
    """By test that failed: what was raised."""
    left_out: tuple[str, ...] = ()
    """Invocations of which nothing is known, as they are too large.

    Newer records have digests of them.
    """
    cut: Mapping[str, int] = field(default_factory=dict)
    """By test that made too many: the number of its first invocation that is not kept, nor are those after it."""
    dropped: tuple[tuple[str, str], ...] = ()
    """Generated inputs that were not called, or had no end, with the reason."""
    signs: Signs = field(default_factory=Signs)
    unconfined: Mapping[str, str] = field(default_factory=dict)
    """The walls that could not be built on this system, with the reason."""
    exit: int | None = None
    """pytest's exit code; None if it did not come to its end."""
    seconds: float = 0.0
    """What the run took by the clock on the wall; 0 if it is not known."""
    cpu: float = 0.0
    """Seconds of CPU that it took, with all its processes; 0 if it is not known."""
    contents: AllContents = field(default_factory=dict)
    """What was wanted of values that are too large to be recorded; not kept."""

    def to_plain(self) -> dict[str, Any]:
        """As JSON would have it."""
        plain = {
            name: getattr(self, name)
            for name in self.__slots__
            if name not in {"invocations", "signs", "contents"}
        }
        return plain | {
            "invocations": json.loads(encode(self.invocations)),
            "signs": asdict(self.signs),
        }

    def knows(self, name: str) -> bool:
        """Whether the invocation of that name would be known, had there been one."""
        test, _, number = name.rpartition("#")
        ours = (
            number.isdecimal() and len(number) < _LONGEST_NUMBER
        )  # the child may have said anything
        return name not in self.left_out and not (
            ours and test in self.cut and int(number) >= self.cut[test]
        )

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Watched:
        """What `to_plain` wrote. Raises `ValueError` for anything else."""
        try:
            signs = plain["signs"]
            known = {name: plain[name] for name in cls.__slots__ if name not in _OTHERWISE}
            return cls(
                **known
                | {
                    "outcomes": _pairs(plain["outcomes"]),
                    "dropped": _pairs(plain["dropped"]),
                    "left_out": tuple(plain["left_out"]),
                    "confinement": tuple(plain["confinement"]),
                    "cut": dict(plain.get("cut", {})),
                    "unconfined": dict(plain.get("unconfined", {})),
                    "exit": plain.get("exit"),
                    "seconds": float(plain.get("seconds", 0.0)),
                    "cpu": float(plain.get("cpu", 0.0)),
                    "invocations": tuple(decode(json.dumps(plain["invocations"]).encode())),
                    "signs": Signs(
                        tuple(signs["did"]),
                        tuple(signs["broken"]),
                        dict(signs["codes"]),
                        {name: (before, after) for name, (before, after) in signs["grown"].items()},
                        tuple(signs["files"]),
                    ),
                }
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not what was watched: {error!r}") from None


def _pairs(raw: Any) -> tuple[tuple[str, str], ...]:  # noqa: ANN401 - JSON
    return tuple((str(one), str(other)) for one, other in raw)


class Trace:
    """The lines of a child, taken one by one. Raises `RecordInvalid` at the first that is none."""

    def __init__(self, data: bytes) -> None:
        self.invocations: list[Invocation] = []
        self.outcomes: dict[str, str] = {}
        self.messages: dict[str, str] = {}
        self.left: list[str] = []
        self.cut: dict[str, int] = {}
        self.dropped: list[tuple[str, str]] = []
        self.contents: dict[tuple[str, str], dict[Place, ValueSnapshot]] = {}
        self.did: list[str] = []
        self.failed: list[str] = []
        self.last = ""
        """The test or input that was under way at the end."""
        self.end: Mapping[str, Any] | None = None
        takes: dict[str, Callable[[Any], None]] = {
            "call": self._call,
            "test": self._test,
            "left": self._left,
            "cut": self._cut_off,
            "content": self._content,
            "dropped": self._drop,
            "did": self._did,
            "failed": self._fail,
            "trying": self._try,
            "end": self._ended,
        }
        # A line that was cut short is the last words of one that was ended: all before it stands.
        for line in data.split(b"\n")[:-1]:
            try:
                kind, content = json.loads(line)
                takes[kind](content)
            except RecordInvalid:
                raise
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                raise RecordInvalid("a line that the child did not write") from None

    def _call(self, content: str) -> None:
        self.invocations += decode(content.encode("ascii"))

    def _test(self, content: list[str]) -> None:
        name, word, message = map(_text, content)
        if word not in {"passed", "failed", "error", "skipped"}:
            raise RecordInvalid("a test without an outcome")
        self.outcomes[name] = word
        if message:
            self.messages[name] = message

    def _left(self, content: str) -> None:
        self.left.append(_text(content))

    def _cut_off(self, content: list[Any]) -> None:
        test, first = content
        self.cut.setdefault(_text(test), int(first))

    def _content(self, content: list[Any]) -> None:
        name, part, node, at, nodes = content
        self.contents.setdefault((_text(name), _text(part)), {})[int(node), int(at)] = from_plain(
            nodes
        )

    def _drop(self, content: list[str]) -> None:
        name, reason = map(_text, content)
        self.dropped.append((name, reason))

    def _did(self, content: str) -> None:
        self.did.append(_text(content))

    def _fail(self, content: str) -> None:
        self.failed.append(_text(content))

    def _try(self, content: str) -> None:
        self.last = _text(content)

    def _ended(self, content: dict[str, Any]) -> None:
        if self.end is not None:
            raise RecordInvalid("it ended twice")
        self.end = {
            "exit": int(content["exit"]),
            "found": [_text(one) for one in content["found"]],
            "elsewhere": [_text(one) for one in content["elsewhere"]],
            "broken": [_text(one) for one in content["broken"]],
            "codes": {_text(name): _text(digest) for name, digest in content["codes"].items()},
            "grown": {
                _text(name): (int(old), int(new)) for name, (old, new) in content["grown"].items()
            },
        }


def _text(value: object) -> str:
    if type(value) is not str:
        raise RecordInvalid("something that is no text")
    return value
