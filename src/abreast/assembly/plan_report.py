"""The result of `abreast.plan`: its parts, and how they are merged."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from abreast.assembly.plan_merge import ApplyResult, MergeOptions, PlanMerge
from abreast.jobs.plan.job import PlanResult, State
from abreast.jobs.plan.review.recorded_plan import RecordedPlan
from abreast.jobs.plan.settings import PlanJob
from abreast.jobs.plan.spec import Plan
from abreast.views.job_view import html_table
from abreast.worktrees.merge.merge import Merged
from abreast.worktrees.merge.names import printable
from abreast.worktrees.merge.repair import repair

Strategy: TypeAlias = Literal["three-way", "sequential", "fail-on-conflict", "last-wins"]

_COLUMNS: Final = ("part", "status", "files", "changed", "merged", "conflicts", "error")
_POLICY: Final = "default-src 'none'; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True, slots=True)
class PlanPart:
    """A subplan that has ended."""

    id: str
    scope: str
    """A readable name, such as `src/core/`."""
    files: tuple[str, ...]
    """The files that it owns."""
    status: State
    error: str | None
    """Why it is not done; None if it is."""
    attempts: int
    changed: tuple[str, ...]
    """The files that its work has changed, made or removed."""
    value: Any
    """What a work function returned."""
    conflicts: tuple[str, ...]
    """What prevents its changes from being merged, one line each."""
    merged: bool
    """Whether its changes are written into the directory."""


class PlanReport:
    """The result of `abreast.plan`; nothing is written into the directory before `apply`.

        if result.ok and not result.conflicts:
            await result.apply()

    Attributes:
        run: The id of its run in the store; empty for a run in memory.
        path: The directory that is divided, and that `apply` writes to.
        peak: How many parts ran at once at most.
        applied: The newest result of `apply`; None if it was not called.
    """

    __slots__ = (
        *("_job", "_kept_as", "_merged", "_notify", "_plan", "_result"),
        *("applied", "path", "run"),
    )
    applied: ApplyResult | None
    _merged: Merged | None

    def __init__(
        self,
        job: PlanJob,
        plan: Plan,
        result: PlanResult,
        *,
        run: str,
        kept_as: str,
        notify: Callable[[str], None],
    ) -> None:
        """Wrap the result of a run that has ended; its results are kept under `kept_as`."""
        self.run, self.path = run, Path(job.path)
        self.applied = self._merged = None
        self._job, self._plan, self._result = job, plan, result
        self._kept_as, self._notify = kept_as, notify

    @property
    def ok(self) -> bool:
        """Whether all parts are done."""
        return self._result.ok

    @property
    def peak(self) -> int:
        """How many parts ran at once at most."""
        return self._result.peak

    @property
    def parts(self) -> tuple[PlanPart, ...]:
        """The parts, in the order of the plan."""
        applied = self.applied
        merged = set(applied.merged.merged) if applied is not None and applied.ok else set()
        return tuple(
            PlanPart(
                one.leaf,
                self._plan.node(one.leaf).scope,
                self._plan.node(one.leaf).files,
                one.state,
                one.error,
                one.attempts,
                tuple(one.value.get("changed", ())),
                one.value.get("value"),
                self._conflicts_of(one.leaf),
                one.leaf in merged,
            )
            for one in self._result.subplans
        )

    @property
    def conflicts(self) -> tuple[str, ...]:
        """What prevents a merge of the parts that are done, one line each."""
        return () if self._merged is None else self._merged.blocked

    def _conflicts_of(self, leaf: str) -> tuple[str, ...]:
        if (merged := self._merged) is None:
            return ()
        lines = [str(one) for one in merged.conflicts if leaf in (one.leaf, one.other)]
        return (*lines, *(str(o) for o in (*merged.refused, *merged.requests) if o.leaf == leaf))

    async def apply(
        self,
        *,
        strategy: Strategy = "three-way",
        outside: Literal["refuse", "request", "allow"] = "refuse",
        leave_requests: bool = False,
        partial: bool = False,
        gate: bool = True,
        check: str | None = None,
        dry_run: bool = False,
    ) -> ApplyResult:
        """Merge what the parts did into the directory: all of it, or nothing on a problem.

        Look at `ok` and `blocked` of what it returns. `abreast plan undo` takes it back, for a run
        with a store.

        Args:
            strategy: what becomes of a part that conflicts with those before it.
            outside: whether writes outside of a part's files are refused, listed for the owner, or
                merged.
            leave_requests: with `outside="request"`, merge all but those writes.
            partial: merge what is done, though other parts failed.
            gate: look first whether it compiles, imports resolve and the check passes.
            check: a command that must pass on the merge if it passed before; by default that of
                the plan.
            dry_run: merge and check, but write nothing.
        """
        found = await self._merge(
            MergeOptions(strategy, outside, leave_requests, partial, gate, check, dry_run)
        )
        if not dry_run:
            self.applied = found
        return found

    async def preview(self) -> None:
        """Find the conflicts of a merge, without checks; nothing is written."""
        await self._merge(MergeOptions(partial=True, gate=False, dry_run=True))

    async def _merge(self, options: MergeOptions) -> ApplyResult:
        for line in await asyncio.to_thread(repair, self.path):
            self._notify(line)
        merge = PlanMerge(
            self._job,
            self._kept_as,
            RecordedPlan.of_result(self._result),
            options,
            notify=self._notify,
            partly="partial=True",
            allow="outside='allow'",
        )
        found = await merge.merge()
        self._merged = found.merged
        return found

    def rows(self) -> list[dict[str, Any]]:
        """One plain dict for each part, for a data frame."""
        return [
            {
                **asdict(one),
                "files": list(one.files),
                "changed": list(one.changed),
                "conflicts": list(one.conflicts),
            }
            for one in self.parts
        ]

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write one page with all parts and their files; return its path."""
        target = Path(path)
        title = escape(printable(f"Plan of {self.path.name}"))
        details = "".join(
            f"<h2>{escape(printable(one.scope))}</h2><ul>"
            + "".join(f"<li>{escape(printable(file))}</li>" for file in one.files)
            + "</ul>"
            for one in self.parts
        )
        target.write_text(
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
            f"<title>{title}</title></head><body><h1>{title}</h1>\n"
            f"{self._repr_html_()}\n{details}</body></html>\n",
            "utf-8",
        )
        return target

    def _headline(self) -> str:
        done = sum(one.state == "done" for one in self._result.subplans)
        words = f"{done} of {len(self._result.subplans)} parts done, {self.peak} at once"
        if self.conflicts:
            return f"{words}, {len(self.conflicts)} conflicts"
        if self.applied is not None and self.applied.paths:
            return f"{words}, {len(self.applied.paths)} files written"
        return words

    def _repr_html_(self) -> str:
        rows = [
            (
                printable(one.scope),
                one.status,
                len(one.files),
                len(one.changed),
                "yes" if one.merged else "no",
                printable("; ".join(one.conflicts)),
                printable(one.error or ""),
            )
            for one in self.parts
        ]
        return html_table(printable(f"{self.path}: {self._headline()}"), _COLUMNS, rows)

    def __repr__(self) -> str:
        return f"<PlanReport {printable(str(self.path))}: {self._headline()}>"
