"""The records that a run keeps of its candidates: proposals, checks, measurements, results."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, TypeAlias

from abreast.jobs.candidates.source.changes import FileChange
from abreast.jobs.candidates.timing.measure import Speed
from abreast.jobs.candidates.values.invocation import BehaviourFinding

Fault: TypeAlias = Literal["wrong", "refused", "timeout", "error"]
Verdict: TypeAlias = Speed | Fault | Literal["duplicate"]
Origin: TypeAlias = Literal[
    "file",
    "patch",
    "ref",
    "command",
    "model",
    "text",
    "function",
    "repair",
    "refinement",
    "adaptive",
]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A candidate as it was proposed: its text, or the reason why there is none.

    Attributes:
        files: The files besides the target's that it changes.
        whole: Whether the text is certainly the whole file, as a patch makes it.
    """

    name: str
    text: str
    origin: Origin
    parent: str | None = None
    fault: Fault | None = None
    reason: str = ""
    files: tuple[FileChange, ...] = ()
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Diff:
    """One difference in behaviour: which call, which part of it, and the value on both sides."""

    invocation: str
    part: str
    outcome: str
    path: str
    original: str
    candidate: str
    reason: str

    @classmethod
    def of(cls, finding: BehaviourFinding) -> Self:
        """Convert a finding of the comparison."""
        verdict = finding.verdict
        return cls(
            finding.name,
            finding.part,
            verdict.outcome,
            verdict.path,
            verdict.original,
            verdict.candidate,
            verdict.reason,
        )

    def __str__(self) -> str:
        sides = (
            f" (original {self.original}, candidate {self.candidate})"
            if self.original or self.candidate
            else ""
        )
        where = f"{self.part}{self.path.removeprefix('$')}"
        return f"{self.invocation}: {where}: {self.reason}{sides}"


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of the behaviour check of one text.

    `verdict` is `same` if nothing differs and everything could be compared.

    Attributes:
        notes: What was not compared: generated inputs left out, by reason, and calls beyond the
            limit.
        generated: How many generated inputs were compared.
        kinds: The kinds of evidence: tests, doctests, workload, trace, type hints,
            proposed calls.
    """

    verdict: Literal["same", "wrong", "undecided", "refused", "timeout", "error"]
    reason: str = ""
    diffs: tuple[Diff, ...] = ()
    tests: int = 0
    passed: int = 0
    invocations: int = 0
    stdout: str = ""
    stderr: str = ""
    layers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    generated: int = 0
    kinds: tuple[str, ...] = ("tests",)

    @property
    def evidence(self) -> str:
        """The sentence that says what the verdict stands on."""
        source = f"{self.tests} tests, {self.passed} of which pass"
        if tuple(self.kinds) != ("tests",):
            source = f"{' and '.join(self.kinds)} ({self.passed} of {self.tests} items pass)"
        return (
            f"it behaves like the original in {self.invocations} calls of {source}, "
            f"and in {self.generated} generated inputs"
        )

    @property
    def share(self) -> float:
        """The share of the original's calls that differ; 1 if it is not known."""
        return (
            len({one.invocation for one in self.diffs if one.part != "test"}) / self.invocations
            if self.invocations
            else 1.0
        )


@dataclass(frozen=True, slots=True)
class Timed:
    """A measurement: the ratio of times, original to candidate, its bounds, the machine's noise.

    Attributes:
        seconds: Time of the original for one round over all inputs.
        uncounted: Why instructions were not counted.
    """

    verdict: Speed | Literal["refused", "timeout", "error"]
    reason: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    noise_floor: float | None = None
    blocks: int = 0
    seconds: float | None = None
    inputs: int = 0
    memory_ratio: float | None = None
    regressions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    instruction_ratio: float | None = None
    uncounted: str = ""


@dataclass(frozen=True, slots=True)
class ProfiledLine:
    """A line of a candidate's file: how often it ran, and for how many seconds."""

    number: int
    hits: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Tried:
    """A candidate with all that is known of it.

    `text` is the whole file; empty if it could not be made.

    Attributes:
        size: How many lines differ from the original's files.
        of: The earlier candidate that it is a duplicate of.
        profile: Its lines, how often they run and for how long: of the best one of a round.
        files: The files besides the target's that it changes.
    """

    name: str
    origin: Origin
    parent: str | None
    verdict: Verdict
    reason: str
    text: str = ""
    size: int = 0
    checked: Checked | None = None
    timed: Timed | None = None
    of: str | None = None
    profile: tuple[ProfiledLine, ...] = ()
    files: tuple[FileChange, ...] = ()

    @property
    def source(self) -> str:
        """The target's whole file with the candidate in it; empty if it could not be made."""
        return self.text

    @property
    def speedup(self) -> float | None:
        """How many times as fast as the original it is; None if it was not measured."""
        return self.timed.ratio if self.timed else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the speedup; None if it was not measured."""
        timed = self.timed
        return (
            None
            if not timed or timed.low is None or timed.high is None
            else (timed.low, timed.high)
        )

    def plain(self) -> dict[str, Any]:
        """As `--json` prints it."""
        checked, timed = self.checked or Checked("error"), self.timed
        return {
            "name": self.name,
            "origin": self.origin,
            "parent": self.parent,
            "verdict": self.verdict,
            "reason": self.reason,
            "ratio": timed and timed.ratio,
            "interval": [timed.low, timed.high] if timed and timed.low is not None else None,
            "memory_ratio": timed and timed.memory_ratio,
            "instruction_ratio": timed and timed.instruction_ratio,
            "notes": list(timed.notes) if timed else [],
            "files": [one.path for one in self.files],
            "diffs": [
                {word: getattr(one, word) for word in Diff.__slots__} for one in checked.diffs
            ],
            "behaviour": {
                word: getattr(checked, word)
                for word in ("tests", "passed", "invocations", "stdout", "stderr")
            }
            | {"evidence": list(checked.kinds)},
        }


# Candidates within this ratio of the fastest may win by a smaller change. A wide interval alone
# does not make a candidate eligible that is probably much slower.
_SIMILAR_SPEED: Final = 1.1


def size_of(original: str, text: str) -> int:
    """Return how many lines a patch from one text to the other removes and adds."""
    lines = difflib.unified_diff(original.splitlines(), text.splitlines(), n=0, lineterm="")
    return sum(line[:1] in "+-" for line in lines if not line.startswith(("+++ ", "--- ")))


def patch_of(original: str, text: str, file: str) -> str:
    """Return the patch from one text to the other, in the form that `git apply` takes."""
    lines = difflib.unified_diff(
        original.splitlines(keepends=True), text.splitlines(keepends=True), f"a/{file}", f"b/{file}"
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def change_size(original: str, text: str, files: Iterable[FileChange] = ()) -> int:
    """Return how many lines a candidate removes and adds, in all of its files."""
    others = sum(size_of(one.before or "", one.after or "") for one in files)
    return size_of(original, text) + others


def change_patch(original: str, text: str, file: str, files: Sequence[FileChange] = ()) -> str:
    """Return the patch of all files of a candidate, the target's first."""
    return patch_of(original, text, file) + "".join(map(file_patch, files))


def file_patch(change: FileChange) -> str:
    """Return the patch of one file, which may be new or removed."""
    path, before, after = change.path, change.before, change.after
    if before is not None and after is not None:
        return patch_of(before, after, path)
    mode = "new" if before is None else "deleted"
    lines = patch_of(before or "", after or "", path)
    sides = (f"--- a/{path}\n", f"+++ b/{path}\n")
    gone = sides[0] if before is None else sides[1]
    # Only git's own header says that an empty file comes or goes.
    header = f"diff --git a/{path} b/{path}\n{mode} file mode 100644\n"
    return header + lines.replace(gone, f"{gone[:4]}/dev/null\n", 1)


def largest_noise_floor(tried: Iterable[Tried]) -> float | None:
    """Return the largest noise floor of all measurements; None if there is none."""
    floors = [one.timed.noise_floor for one in tried if one.timed]
    return max((one for one in floors if one is not None), default=None)


def best_of(tried: Iterable[Tried]) -> Tried | None:
    """Return the winner; None if no candidate is faster.

    It is the fastest. Among those near it whose intervals overlap with its own, it is the smallest
    change, then the earliest.
    """
    faster = [one for one in tried if one.verdict == "faster" and one.timed and one.timed.ratio]
    if not faster:
        return None
    bounds = {
        one.name: (one.timed.ratio or 0.0, one.timed.low or 0.0, one.timed.high or 0.0)
        for one in faster
        if one.timed
    }
    ratio, low, _ = max(bounds.values(), key=lambda bound: bound[0])
    like = [
        one
        for one in faster
        if bounds[one.name][2] >= low and bounds[one.name][0] * _SIMILAR_SPEED >= ratio
    ]
    return min(like, key=lambda one: one.size)
