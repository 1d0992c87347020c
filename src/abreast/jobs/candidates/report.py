"""Reports on a run's candidates: JSON, lines for a terminal, a page, a patch, a Python result."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from abreast.jobs.candidates.behaviour.trace import Watched
from abreast.jobs.candidates.branch import (
    MadeBranch,
    RunEvidence,
    WinnerCommit,
    commit_message,
)
from abreast.jobs.candidates.phases import PhaseCosts
from abreast.jobs.candidates.results import (
    Checked,
    ProfiledLine,
    Timed,
    Tried,
    best_of,
    change_patch,
    largest_noise_floor,
)
from abreast.jobs.candidates.source.changes import FileChange
from abreast.jobs.candidates.source.target import Target
from abreast.jobs.candidates.timing.timed_calls import TimedCalls
from abreast.views.job_view import html_table, short

_TEMPLATES: Final = Path(__file__).parent / "page"
_REASON_CHARACTERS: Final = 160
COLUMNS: Final = ("candidate", "verdict", "speed", "interval", "memory", "why")


@dataclass(frozen=True, slots=True)
class CandidatesReport:
    """All that is known at the end, or so far.

    `watched` is the trace of the original; None if no candidate had to be evaluated. Without
    `timing`, behaviour alone was compared.

    Attributes:
        processes: How runs were started: forked, or as new ones and why; empty if it is not known.
        costs: What each phase took.
        branch: The branch that was made of the winner.
        failures: Candidates of which nothing is known, as the machine failed to try them.
    """

    target: Target
    original: str
    tried: Sequence[Tried]
    watched: Watched | None = None
    inputs: TimedCalls | None = None
    profile: Sequence[ProfiledLine] = ()
    timing: bool = True
    processes: str = ""
    costs: PhaseCosts = field(default_factory=PhaseCosts)
    branch: MadeBranch | None = None
    failures: int = 0

    def commits(self, run: str) -> list[WinnerCommit]:
        """The winner as a commit, with the evidence in its message; none without a winner."""
        if (winner := self.winner) is None:
            return []
        own = FileChange(self.target.file, self.original, winner.text)
        changes = (*(() if own.before == own.after else (own,)), *winner.files)
        return [WinnerCommit(self.message(run), changes)]

    def message(self, run: str) -> str:
        """The message of the winner's commit; empty without a winner."""
        evidence = RunEvidence(run, self.noise_floor, self.walls)
        return commit_message(self.target, self.winner, evidence) if self.winner else ""

    @property
    def behaves(self) -> bool:
        """Whether there are candidates, and all of them behave like the original."""
        alike = {"same", "duplicate", "faster", "slower"}
        return bool(self.tried) and all(one.verdict in alike for one in self.tried)

    @property
    def winner(self) -> Tried | None:
        """The best candidate, if one is faster."""
        return best_of(self.tried)

    @property
    def noise_floor(self) -> float | None:
        """The largest noise floor of all measurements."""
        return largest_noise_floor(self.tried)

    @property
    def uncounted(self) -> str:
        """Why no instructions were counted; empty if they were, or nothing was measured."""
        return next(
            (one.timed.uncounted for one in self.tried if one.timed and one.timed.uncounted), ""
        )

    @property
    def walls(self) -> str:
        """Which layers of the sandbox confined the tests, and which are missing and why."""
        if self.watched is None:
            return "nothing was run"
        missing = ", ".join(f"{name} ({why})" for name, why in self.watched.unconfined.items())
        return (", ".join(self.watched.confinement) or "none") + (
            f"; missing here: {missing}" if missing else ""
        )

    @property
    def patch(self) -> str:
        """The patch from the original to the winner; empty without a winner."""
        winner = self.winner
        return self.patch_of(winner) if winner else ""

    def patch_of(self, one: Tried) -> str:
        """The patch from the original to a candidate, with all of its files."""
        return change_patch(self.original, one.text, self.target.file, one.files)

    def plain(self) -> dict[str, Any]:
        """As `--json` prints it."""
        winner, watched = self.winner, self.watched
        baseline = (
            {
                "tests": watched.tests,
                "passed": watched.passed,
                "invocations": len(watched.invocations),
                "inputs": len(self.inputs.chosen) if self.inputs else 0,
                "seconds": next(
                    (one.timed.seconds for one in self.tried if one.timed and one.timed.seconds),
                    None,
                ),
                "different": self.inputs.of if self.inputs else 0,
                "untimed": [one.name for one in self.inputs.left] if self.inputs else [],
            }
            if watched
            else None
        )
        return {
            "target": str(self.target),
            "baseline": baseline,
            "candidates": [one.plain() for one in self.tried],
            "winner": winner and winner.name,
            "noise_floor": self.noise_floor,
            "confinement": list(watched.confinement) if watched else [],
            "unconfined": dict(watched.unconfined) if watched else {},
            "uncounted": self.uncounted or None,
            "uncompared": self.uncompared,
            "timing": self.timing,
            "processes": self.processes or None,
            "phases": self.costs.plain(),
            "branch": self.branch and self.branch.plain(),
        }

    def rows(self) -> list[tuple[str, str, str, str, str, str]]:
        """The verdict table: name, verdict, speed, interval, memory, why."""
        return [
            (one.name, one.verdict, *_figures(one.timed), short(one.reason, _REASON_CHARACTERS))
            for one in self.tried
        ]

    def counterexamples(self) -> list[str]:
        """For each wrong candidate its first difference, in a call rather than a test outcome."""
        return [
            f"{one.name} is wrong: {min(one.checked.diffs, key=lambda diff: diff.part == 'test')}"
            for one in self.tried
            if one.verdict == "wrong" and one.checked and one.checked.diffs
        ]

    @property
    def uncompared(self) -> list[str]:
        """What was not compared, of all candidates, each note once."""
        return list(
            dict.fromkeys(note for one in self.tried if one.checked for note in one.checked.notes)
        )

    def headline(self) -> str:
        """The result in one sentence."""
        if (winner := self.winner) is not None:
            ratio, interval, _ = _figures(winner.timed)
            kinds = winner.checked.kinds if winner.checked else ("tests",)
            # Tests were written to tell right from wrong; other calls only happened.
            weaker = "" if "tests" in kinds else f", by the evidence of {' and '.join(kinds)}"
            return (
                f"{winner.name} behaves like the original and is {ratio} {interval} as fast{weaker}"
            )
        if self.tried and not self.timing:
            alike = sum(one.verdict == "same" for one in self.tried)
            return (
                f"{alike} of {len(self.tried)} candidates behave like the original, "
                "as far as it was called; speed was not measured"
            )
        return (
            f"none of {len(self.tried)} candidates is known to be faster "
            "and to behave like the original"
            if self.tried
            else "there are no candidates"
        )

    def html(self, facts: Mapping[str, object]) -> str:
        """One page that loads nothing and runs no script; all content is escaped text."""
        from jinja2 import Environment, FileSystemLoader, StrictUndefined

        environment = Environment(
            loader=FileSystemLoader(_TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        watched, winner, noise = self.watched, self.winner, self.noise_floor
        shown = {
            **facts,
            "original": watched
            and f"{watched.passed} of {watched.tests} tests pass, {len(watched.invocations)} calls",
            "confinement": watched and self.walls,
            "timed": (self.inputs and self.inputs.untimed) or None,
            "noise floor": None if noise is None else f"{noise:.1%}",
            "instructions": f"not counted: {self.uncounted}" if self.uncounted else None,
        }
        return environment.get_template("report.html").render(
            target=str(self.target),
            headline=self.headline(),
            facts=[(name, one) for name, one in shown.items() if name in facts or one is not None],
            candidates=[self._html_row(one) for one in self.tried],
            winner=winner and winner.name,
            lines=self._profile_rows(),
        )

    def _html_row(self, one: Tried) -> dict[str, Any]:
        speed, interval, memory = _figures(one.timed)
        checked, timed = one.checked or Checked("error"), one.timed or Timed("error")
        regressions = (f"slower for one input: {text}" for text in timed.regressions)
        return {
            "name": one.name,
            "origin": one.origin,
            "parent": one.parent,
            "verdict": one.verdict,
            "reason": one.reason,
            "speed": speed,
            "interval": interval,
            "memory": memory,
            "diffs": checked.diffs,
            "notes": [*checked.notes, *timed.notes, *regressions],
            "stdout": checked.stdout,
            "stderr": checked.stderr,
            "patch": self.patch_of(one) if one.size else one.text,
            "files": [change.path for change in one.files],
        }

    def _profile_rows(self) -> list[dict[str, Any]]:
        if (winner := self.winner) is None:
            return []
        total = sum(line.seconds for line in self.profile) or 1.0
        code = winner.text.splitlines()
        return [
            {
                "number": line.number,
                "hits": line.hits,
                "share": line.seconds / total,
                "code": code[line.number - 1] if 0 < line.number <= len(code) else "",
            }
            for line in self.profile
        ]


class OptimizeResult:
    """The result of `abreast.optimize`.

        result.best.name, result.best.speedup, result.best.interval, result.best.source
        pandas.DataFrame(result.rows())
        Path("faster.patch").write_text(result.patch)       # git apply faster.patch

    Attributes:
        run: The id of its run in the store; empty for a run in memory.
    """

    __slots__ = ("_report", "run")

    def __init__(self, report: CandidatesReport, run: str = "") -> None:
        """Wrap the report of a run that has ended."""
        self._report, self.run = report, run

    @property
    def target(self) -> str:
        """The function, as `pkg/mod.py::name`."""
        return str(self._report.target)

    @property
    def best(self) -> Tried | None:
        """The winner, with `name`, `source`, `speedup`, `interval`; None if none is faster.

        `files` are those besides the function's that it changes.
        """
        return self._report.winner

    @property
    def candidates(self) -> tuple[Tried, ...]:
        """All candidates in the order of the proposals, with `verdict` and `reason`."""
        return tuple(self._report.tried)

    @property
    def patch(self) -> str:
        """The patch from the original to the winner, for `git apply`; empty without a winner."""
        return self._report.patch

    @property
    def branch(self) -> MadeBranch | None:
        """The branch that was made of the winner: `name`, `base`, `commits`; None if none was."""
        return self._report.branch

    @property
    def noise_floor(self) -> float | None:
        """The noise of the machine, as a share of the time; None if nothing was measured."""
        return self._report.noise_floor

    def rows(self) -> list[dict[str, Any]]:
        """One plain dict for each candidate, for a data frame."""
        winner = self.best
        return [
            {
                "candidate": one.name,
                "origin": one.origin,
                "parent": one.parent,
                "verdict": one.verdict,
                "reason": one.reason,
                "speedup": one.speedup,
                "low": one.interval and one.interval[0],
                "high": one.interval and one.interval[1],
                "memory_ratio": one.timed and one.timed.memory_ratio,
                "lines_changed": one.size,
                "best": one is winner,
            }
            for one in self._report.tried
        ]

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the report, one page that works offline; return its path."""
        target = Path(path)
        target.write_text(self._report.html({"run": self.run or "in memory"}), "utf-8", newline="")
        return target

    def plain(self) -> dict[str, Any]:
        """As `abreast optimize --json` prints it."""
        return self._report.plain()

    def _repr_html_(self) -> str:
        caption = f"{self.target}: {self._report.headline()}"
        return html_table(caption, COLUMNS, self._report.rows())

    def __repr__(self) -> str:
        return f"<OptimizeResult {self.target}: {self._report.headline()}>"


def _figures(timed: Timed | None) -> tuple[str, str, str]:
    """Speed, its interval, memory; a dash where the figure is not known."""
    if timed is None or timed.ratio is None or timed.low is None or timed.high is None:
        return "-", "-", "-"
    memory = "-" if timed.memory_ratio is None else f"{timed.memory_ratio:.2f}x"
    return f"{timed.ratio:.2f}x", f"[{timed.low:.2f}, {timed.high:.2f}]", memory
