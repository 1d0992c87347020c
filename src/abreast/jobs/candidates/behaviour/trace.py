"""Reads the trace that a confined child wrote; every line is validated, none is trusted."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, Self, TypeAlias

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

# Fields that are converted separately, or that older records do not have.
_READ_SEPARATELY = frozenset(
    {
        *("invocations", "signs", "cut", "unconfined", "exit", "seconds", "cpu"),
        *("contents", "modules", "loaded"),
    }
)
KILLED = "it was ended by signal 9"
"""How the reason of a run begins that was ended by SIGKILL."""
_MAX_DIGITS = 20  # of the number of a call; longer ones are not parsed


@dataclass(frozen=True, slots=True)
class Tests:
    """Which tests are run: pytest's node ids or files, from the directory of the worktree pool.

    Without names and workloads, nothing is run; only generated inputs are tried.

    Attributes:
        python: The interpreter of the user's project; it needs Python 3.11 or later, and pytest if
            there are names.
        workloads: What else calls the target, as `behaviour.evidence` describes it for the child.
    """

    __test__: ClassVar = False  # pytest would collect a class of this name
    names: tuple[str, ...]
    python: str
    workloads: tuple[Mapping[str, Any], ...] = ()

    @property
    def any(self) -> bool:
        """Whether there is anything to run."""
        return bool(self.names or self.workloads)


@dataclass(frozen=True, slots=True)
class Signs:
    """Side effects of a run; those that the original has too do not count.

    Attributes:
        did: Actions that audit events of the interpreter reported.
        broken: Names in clocks, pytest and other modules that were rebound.
        codes: Digests of the code of all functions of the project, except the target's file.
        grown: State that outlives a call and has changed: its number of parts before and after.
        files: Files of the slot that were created, changed or removed.
    """

    did: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    codes: Mapping[str, str] = field(default_factory=dict)
    grown: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Watched:
    """The trace of one traced run, of the original or of a candidate.

    Attributes:
        outcomes: By test: passed, failed, error or skipped.
        failure: None if the run came to its end, whether its tests passed or not.
        messages: By failed test: what was raised.
        left_out: Invocations that were too large to be recorded; newer records have digests of
            them.
        cut: By test with too many invocations: the number of the first one that is not recorded.
        dropped: Generated inputs that were not called or did not end, with the reason.
        unconfined: The layers of the sandbox that this system does not support, with the reason.
        exit: pytest's exit code; None if it did not come to its end.
        seconds: Wall time of the run; 0 if it is not known.
        cpu: CPU seconds of the run, with all its processes; 0 if it is not known.
        contents: Requested slices of values that are too large to be recorded; not stored.
        modules: The modules that it imported from libraries, if that was requested; not stored.
        loaded: The files that the candidate changes and that were imported; not stored.
    """

    tests: int
    passed: int
    outcomes: tuple[tuple[str, str], ...]
    invocations: tuple[Invocation, ...]
    stdout: str
    stderr: str
    failure: Failure | None
    reason: str
    confinement: tuple[str, ...]
    messages: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    cut: Mapping[str, int] = field(default_factory=dict)
    dropped: tuple[tuple[str, str], ...] = ()
    signs: Signs = field(default_factory=Signs)
    unconfined: Mapping[str, str] = field(default_factory=dict)
    exit: int | None = None
    seconds: float = 0.0
    cpu: float = 0.0
    contents: AllContents = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    loaded: tuple[str, ...] = ()

    @property
    def was_killed(self) -> bool:
        """Whether it was ended by SIGKILL, for no limit of its own: perhaps from outside."""
        return self.failure == "refused" and self.reason.startswith(KILLED)

    def to_plain(self) -> dict[str, Any]:
        """Return the trace as JSON data."""
        unstored = {"contents", "modules", "loaded"}
        stored = [name for name in self.__slots__ if name not in unstored]
        plain = {name: getattr(self, name) for name in stored}
        return plain | {
            "invocations": json.loads(encode(self.invocations)),
            "signs": asdict(self.signs),
        }

    def knows(self, name: str) -> bool:
        """Whether an invocation of that name would have been recorded."""
        test, _, number = name.rpartition("#")
        # The name comes from the child and may be anything.
        valid = number.isdecimal() and len(number) < _MAX_DIGITS
        return name not in self.left_out and not (
            valid and test in self.cut and int(number) >= self.cut[test]
        )

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Read what `to_plain` returned. Raises `ValueError` for anything else."""
        try:
            signs = plain["signs"]
            known = {name: plain[name] for name in cls.__slots__ if name not in _READ_SEPARATELY}
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
    """The lines of a child's trace, parsed. Raises `RecordInvalid` at the first invalid line."""

    def __init__(self, data: bytes) -> None:
        self.invocations: list[Invocation] = []
        self.outcomes: dict[str, str] = {}
        self.messages: dict[str, str] = {}
        self.cut: dict[str, int] = {}
        self.dropped: list[tuple[str, str]] = []
        self.contents: dict[tuple[str, str], dict[Place, ValueSnapshot]] = {}
        self.did: list[str] = []
        self.failed: list[str] = []
        self.last = ""  # the test or input that was running when the trace ended
        self.end: Mapping[str, Any] | None = None
        readers: dict[str, Callable[[Any], None]] = {
            "call": lambda content: self.invocations.extend(decode(content.encode("ascii"))),
            "test": self._read_test,
            "cut": self._read_cut,
            "content": self._read_content,
            "dropped": self._read_dropped,
            "did": lambda content: self.did.append(_require_text(content)),
            "failed": lambda content: self.failed.append(_require_text(content)),
            "trying": self._read_trying,
            "end": self._read_end,
        }
        # A truncated last line comes from a child that was killed; the lines before it are valid.
        for line in data.split(b"\n")[:-1]:
            try:
                kind, content = json.loads(line)
                readers[kind](content)
            except RecordInvalid:
                raise
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                raise RecordInvalid("a line that the child did not write") from None

    def _read_trying(self, content: object) -> None:
        self.last = _require_text(content)

    def _read_test(self, content: list[str]) -> None:
        name, word, message = map(_require_text, content)
        if word not in {"passed", "failed", "error", "skipped"}:
            raise RecordInvalid("a test without an outcome")
        self.outcomes[name] = word
        if message:
            self.messages[name] = message

    def _read_cut(self, content: list[Any]) -> None:
        test, first = content
        self.cut.setdefault(_require_text(test), int(first))

    def _read_content(self, content: list[Any]) -> None:
        name, part, node, at, nodes = content
        found = self.contents.setdefault((_require_text(name), _require_text(part)), {})
        found[int(node), int(at)] = from_plain(nodes)

    def _read_dropped(self, content: list[str]) -> None:
        name, reason = map(_require_text, content)
        self.dropped.append((name, reason))

    def _read_end(self, content: dict[str, Any]) -> None:
        if self.end is not None:
            raise RecordInvalid("it ended twice")
        self.end = {
            "exit": int(content["exit"]),
            **{
                name: [_require_text(one) for one in content[name]]
                for name in ("found", "elsewhere", "broken")
            },
            "modules": [_require_text(one) for one in content.get("modules", ())],
            "loaded": [_require_text(one) for one in content.get("loaded", ())],
            "codes": {
                _require_text(name): _require_text(digest)
                for name, digest in content["codes"].items()
            },
            "grown": {
                _require_text(name): (int(old), int(new))
                for name, (old, new) in content["grown"].items()
            },
        }


def _require_text(value: object) -> str:
    if type(value) is not str:
        raise RecordInvalid("something that is no text")
    return value
