"""Reports on the functions of a project that were tried in one run, as one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from abreast.jobs.candidates.behaviour.ranking import RankedFunction
from abreast.jobs.candidates.behaviour.trace import Watched
from abreast.jobs.candidates.branch import MadeBranch, WinnerCommit
from abreast.jobs.candidates.phases import PhaseCosts
from abreast.jobs.candidates.report import CandidatesReport
from abreast.jobs.candidates.results import Tried, file_patch, largest_noise_floor
from abreast.jobs.candidates.source.changes import FileChange
from abreast.jobs.candidates.timing.timed_calls import TimedCalls

_TEMPLATES: Final = Path(__file__).parent / "page"


@dataclass(frozen=True, slots=True)
class FunctionsReport:
    """What is known of each function, the slowest first. It is shown like a `CandidatesReport`.

    Attributes:
        target: The file or directory whose functions were ranked.
        parts: The functions that were tried, with what is known of their candidates.
        skipped: By function: why none of its candidates was tried.
        merged: By file: its text before, and with all winners in it.
        left_out: Winners that are not in `merged`, as they change the same lines as others.
        unranked: Functions that the tests call and that were not tried.
        steps: The winners in `merged`, in order: number of the part, and its files with all
            winners so far.
        branch: The branch that was made of the winners.
    """

    target: str
    parts: Sequence[tuple[RankedFunction, CandidatesReport]] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    merged: Mapping[str, FileChange] = field(default_factory=dict)
    left_out: Sequence[str] = ()
    unranked: int = 0
    timing: bool = True
    inputs: TimedCalls | None = None
    steps: Sequence[tuple[int, tuple[FileChange, ...]]] = ()
    branch: MadeBranch | None = None

    def commits(self, run: str) -> list[WinnerCommit]:
        """A commit for each function that became faster, each on the one before."""
        return [WinnerCommit(self.parts[at][1].message(run), files) for at, files in self.steps]

    @property
    def failures(self) -> int:
        """Candidates of which nothing is known, as the machine failed to try them."""
        return sum(report.failures for _, report in self.parts)

    @property
    def tried(self) -> list[Tried]:
        """All candidates, each named after its function."""
        return [
            replace(one, name=f"{function.qualname}/{one.name}")
            for function, report in self.parts
            for one in report.tried
        ]

    @property
    def winner(self) -> Tried | None:
        """The winner of the slowest function that has one."""
        return next((one.winner for _, one in self.parts if one.winner is not None), None)

    @property
    def behaves(self) -> bool:
        """Whether there are candidates, and all of them behave like the original."""
        return bool(self.parts) and all(one.behaves for _, one in self.parts)

    @property
    def noise_floor(self) -> float | None:
        """The largest noise floor of all measurements."""
        return largest_noise_floor(self.tried)

    @property
    def watched(self) -> Watched | None:
        """The trace of one of the functions; None if none was traced."""
        return next((one.watched for _, one in self.parts if one.watched is not None), None)

    @property
    def walls(self) -> str:
        """Which layers of the sandbox confined the tests, and which are missing and why."""
        return next((one.walls for _, one in self.parts if one.watched), "nothing was run")

    @property
    def uncounted(self) -> str:
        """Why no instructions were counted; empty if they were, or nothing was measured."""
        return next((one.uncounted for _, one in self.parts if one.uncounted), "")

    @property
    def uncompared(self) -> list[str]:
        """What was not compared, by function."""
        return [
            f"{function.qualname}: {note}"
            for function, report in self.parts
            for note in report.uncompared
        ]

    @property
    def processes(self) -> str:
        """How runs were started."""
        return next((one.processes for _, one in self.parts if one.processes), "")

    @property
    def costs(self) -> PhaseCosts:
        """What each phase took, of all functions."""
        whole = PhaseCosts()
        for _, report in self.parts:
            whole.include(report.costs)
        return whole

    @property
    def patch(self) -> str:
        """All winners as one patch; empty without any."""
        return "".join(map(file_patch, self.merged.values()))

    def plain(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "target": self.target,
            "functions": [
                {
                    "calls": function.calls,
                    "seconds": function.seconds,
                    "share": function.share,
                    **report.plain(),
                }
                for function, report in self.parts
            ],
            "skipped": dict(self.skipped),
            "left_out": list(self.left_out),
            "unranked": self.unranked,
            "branch": self.branch and self.branch.plain(),
            "winners": [one.winner.name if one.winner else None for _, one in self.parts],
        }

    def rows(self) -> list[tuple[str, str, str, str, str, str]]:
        """The verdict table: name, verdict, speed, interval, memory, why."""
        return [
            (f"{function.qualname}/{row[0]}", *row[1:])
            for function, report in self.parts
            for row in report.rows()
        ]

    def counterexamples(self) -> list[str]:
        """For each wrong candidate its first difference."""
        return [
            f"{function.qualname}/{line}"
            for function, report in self.parts
            for line in report.counterexamples()
        ]

    def function_lines(self) -> list[str]:
        """A line for each function: its share of the time, and what became of it."""
        lines = [
            f"{function.file}::{function.qualname} ({function.share:.0%} of the time, "
            f"{function.calls} calls): {report.headline()}"
            for function, report in self.parts
        ]
        lines += [f"{name} was skipped: {why}" for name, why in self.skipped.items()]
        return lines + [
            f"{name} is not in the patch: it changes what another changes" for name in self.left_out
        ]

    def headline(self) -> str:
        """The result in one sentence, after a line for each function."""
        faster = [function.qualname for function, report in self.parts if report.winner]
        many = len(self.parts) + len(self.skipped)
        became = f"{len(faster)} of {many} functions became faster"
        named = f": {', '.join(faster)}" if faster else ""
        rest = f"; {self.unranked} more were not tried" if self.unranked else ""
        return "\n".join([*self.function_lines(), f"{became}{named}{rest}"])

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
        return environment.get_template("functions.html").render(
            target=self.target,
            facts=list(facts.items()),
            lines=self.headline().splitlines(),
            parts=[(function, report.rows()) for function, report in self.parts],
            walls=self.walls,
            patch=self.patch,
        )
