"""Drives a sample, new or resumed, from its specification to its exit code."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from abreast.assembly.names import open_model, open_run
from abreast.cli.config import Config
from abreast.cli.errors import DONE, FAILED, UsageError, one_line, tell
from abreast.cli.jobs.early_exit import STOPS, early_exit_by
from abreast.cli.jobs.map.call import find_function
from abreast.cli.jobs.map.driver import OutputOptions, enter_run
from abreast.cli.jobs.map.process_groups import ProcessGroups
from abreast.cli.jobs.map.prompt import configured_lanes, read_schema
from abreast.cli.signals import Interrupts
from abreast.cli.stores import LAST, StoreChoice
from abreast.cli.terminal.live_line import LiveLine, closing_line, wants_progress
from abreast.cli.terminal.outcome_text import error_sentence, json_line
from abreast.cli.terminal.printer import STDOUT, write_all
from abreast.cli.terminal.tables import say_facts, say_json
from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import BranchesFailed, CallFailed
from abreast.core.seeds import derive_seed
from abreast.jobs.sample.arguments import SampleJob
from abreast.jobs.sample.results import SampleAttempt, SampleResult
from abreast.jobs.sample.spec import SampleSpec
from abreast.jobs.sample.view import SampleLive
from abreast.models.lanes import LaneSettings, check_keys, split_name
from abreast.models.port import Request
from abreast.run.calls.model import Caller
from abreast.run.map.options import check_name
from abreast.run.run import Resume
from abreast.store.port import RunRow, Store

KIND: Final = "sample"
MANIFEST: Final = "sample"
SCOPE: Final = "draws"
_TEXT_WIDTH: Final = 60  # characters of a draw
_MAX_ERRORS: Final = 8  # that are printed if no draw passed


@dataclass(frozen=True, slots=True)
class SampleStart:
    """Whether the run is new or resumed, and its name, seed and tags."""

    name: str
    seed: int | None = None
    tags: tuple[str, ...] = ()
    resume: Resume = "never"
    run_id: str | None = None


class SampleDriver:
    """Drives one run of a sample."""

    def __init__(
        self,
        spec: SampleSpec,
        choice: StoreChoice,
        view: OutputOptions,
        *,
        cwd: str,
        lane_width: str | None = None,
    ) -> None:
        """Read the lanes; nothing starts before `run`."""
        self._spec = spec
        self._choice = choice
        self._view = view
        self._cwd = cwd
        self._lane_width = lane_width
        self._lanes: dict[str, LaneSettings] = configured_lanes(Config.load(Path(cwd)), lane_width)
        self._run_id = ""
        self._started_at = SYSTEM_CLOCK.now()
        self._line = (
            LiveLine(SampleLive())
            if wants_progress() and not view.quiet and not view.json
            else None
        )

    @classmethod
    def of_run(
        cls, row: RunRow, choice: StoreChoice, view: OutputOptions, budget: str | None = None
    ) -> SampleDriver:
        """The driver of a recorded run, with another budget if one is given."""
        facts: Any = row.manifest.get(MANIFEST)
        cwd, width = str(row.manifest.get("cwd") or "."), row.manifest.get("lane_width")
        if not isinstance(facts, dict):
            raise UsageError(
                f"{row.id} was made by another version of abreast, "
                "and this one doesn't know all of it"
            )
        changed = {**facts, "budget": budget or facts.get("budget")}
        return cls(
            SampleSpec.of(changed), choice, view, cwd=cwd, lane_width=str(width) if width else None
        )

    def check(self) -> None:
        """Raise `UsageError` for errors that are visible before a store or a call is made."""
        try:
            lanes = {name: split_name(name, self._lanes)[0] for name in self._models}
        except ValueError as error:
            raise UsageError(str(error)) from None
        check_keys(list(lanes.values()))
        job = self._job(None, None)
        for name, lane in lanes.items():
            if lane.kind != "replay":  # its replies are in the store, which isn't open yet
                budgets = () if job.budget is None else (job.budget,)
                # Raises if the budget limits money and the model's price is unknown.
                self._open(name, None).reserve(Request(()), budgets)

    @property
    def _models(self) -> list[str]:
        return [self._spec.model, *([self._spec.judge] if self._spec.judge else [])]

    def store(self) -> AbstractContextManager[Store]:
        """Open the store; it is created if it doesn't exist, unless a model replays a run."""
        replays = any(name.startswith("replay/") for name in self._models)
        return self._choice.existing() if replays else self._choice.open()

    def job(self) -> SampleJob:
        """The sample job, for a dry run."""
        model = self._open(self._spec.model, None)
        return self._job(model, self._open(self._spec.judge, None) if self._spec.judge else model)

    def run(self, store: Store, start: SampleStart) -> int:
        """Run the sample; return the exit code."""
        with asyncio.Runner() as runner:
            return runner.run(self._drive(store, start))

    async def _drive(self, store: Store, start: SampleStart) -> int:
        with Interrupts(ProcessGroups().kill) as interrupts:
            try:
                with closing_line(self._line, interrupts):
                    result = await self._sample(store, start, interrupts)
            except (BranchesFailed, CallFailed) as error:
                tell(one_line(str(error)))
                return FAILED
            except STOPS as error:
                return early_exit_by(error, interrupts).tell(self._run_id, self._choice)
        return self._print_result(result)

    async def _sample(
        self, store: Store, start: SampleStart, interrupts: Interrupts
    ) -> SampleResult:
        async with AsyncExitStack() as stack:
            model = await stack.enter_async_context(self._open(self._spec.model, store))
            judge = model
            if self._spec.judge:
                judge = await stack.enter_async_context(self._open(self._spec.judge, store))
            job = self._job(model, judge)
            run = open_run(
                start.name,
                store=store,
                budget=job.budget,
                seed=start.seed,
                resume=start.resume,
                run_id=start.run_id,
                tags=start.tags,
                kind=KIND,
                hooks=[self._line] if self._line else (),
                manifest={MANIFEST: self._spec.plain(), "lane_width": self._lane_width},
            )
            async with enter_run(run, interrupts):
                self._run_id = run.id or ""
                if self._view.verbose:
                    tell(f"run {self._run_id} in {store.url}")
                # The run holds the budget, as it records what an earlier driver has spent.
                result = await replace(job, budget=None).run(run)
                interrupts.stop_cancelling()
                return result

    def _open(self, name: str, store: Store | None) -> Caller:
        try:
            return open_model(name, lanes=self._lanes, store=store)
        except (ValueError, OSError) as error:
            raise UsageError(f"--model: {error}") from None

    def _job(self, model: Any, judge: Any) -> SampleJob:  # noqa: ANN401 - None for a check alone
        try:
            return self._spec.job(
                model, judge, find=lambda call: find_function(call, self._cwd), read=self._read
            )
        except UsageError as error:
            raise UsageError(
                str(error)
                .replace("--schema: ", "--check: schema ")
                .replace("--call: ", "--check: ")
            ) from None
        except (ValueError, TypeError) as error:
            raise UsageError(str(error)) from None

    def _read(self, path: str) -> dict[str, Any]:
        """The schema in a file; its path is relative to where the run was started."""
        here = os.getcwd() == self._cwd  # noqa: PTH109 - compared with the recorded text
        return read_schema(path if here else str(Path(self._cwd, path))) or {}

    def _print_result(self, result: SampleResult) -> int:
        view, counts = self._view, result.counts
        if view.json:
            say_json(result_as_json(result, self._run_id))
            return DONE if result.ok else FAILED
        if result.winner is not None:
            text = result.text if result.value is None else json_line({"v": result.value})[5:-1]
            write_all(STDOUT, f"{text.rstrip()}\n".encode("utf-8", "replace"))
        if view.verbose:
            for attempt in result.attempts:
                tell(_attempt_line(attempt))
        elif not result.ok and not view.quiet:
            for error in result.errors[:_MAX_ERRORS]:
                tell(one_line(error_sentence(error)))
            if len(result.errors) > _MAX_ERRORS:
                tell(f"and {len(result.errors) - _MAX_ERRORS} errors more; -v tells of each draw")
        if not view.quiet and (not result.ok or sys.stderr.isatty() or view.verbose):
            seconds = SYSTEM_CLOCK.now() - self._started_at
            parts = (
                [f"{counts.started} draws", f"{counts.cancelled} cancelled"]
                if counts.cancelled
                else [f"{counts.started} draws"]
            )
            best = "; this is the best of them" if result.winner is not None else ""
            head = "passed" if result.ok else f"no draw passed{best}"
            tokens = result.usage.input_tokens + result.usage.output_tokens
            used = f"{result.usage.requests} requests, {tokens:,} tokens"
            tell(f"{head}: {', '.join(parts)}, {used} in {seconds:.1f} s ({self._run_id})")
        return DONE if result.ok else FAILED


def _attempt_line(attempt: SampleAttempt) -> str:
    """A draw in one line: its text, and the checks that it failed or the error."""
    why = [f"{one.check}: {one.reason}" for one in attempt.verdicts if not one.ok]
    why += [one_line(attempt.reason or attempt.error)] if attempt.error is not None else []
    text = " ".join(attempt.text.split())[:_TEXT_WIDTH]
    place = f"branch {attempt.branch} round {attempt.round}"
    return f"{place}: {attempt.state}  {text!r}  {'; '.join(why)}"


def check_run_name(name: str) -> None:
    """Raise `UsageError` for a name that a run can't have."""
    if name == LAST:
        raise UsageError(f"--name: {LAST!r} stands for the newest run; choose another name")
    try:
        check_name(name)
    except ValueError as error:
        raise UsageError(f"--name: {error}") from None


def seed_of(spec: SampleSpec, given: int | None) -> int:
    """The given seed, or one derived from the prompt, so that equal prompts draw the same."""
    return derive_seed(0, spec.prompt) if given is None else given


def result_as_json(result: SampleResult, run_id: str) -> dict[str, Any]:
    """A result as JSON values."""
    winner = result.winner
    return {
        "run": run_id,
        "ok": result.ok,
        "text": result.text,
        "value": result.value,
        "winner": None
        if winner is None
        else {"branch": winner.branch, "round": winner.round, "number": winner.number},
        "attempts": [attempt.plain() for attempt in result.attempts],
        "counts": asdict(result.counts),
        "usage": asdict(result.usage),
        "speculative": asdict(result.speculative),
        "errors": [error_sentence(error) for error in result.errors],
        "timing_dependent": sorted(result.timing_dependent),
    }


def print_dry_run(driver: SampleDriver, *, as_json: bool) -> int:
    """Print what a sample may cost, before anything is spent."""
    plan = driver.job().plan()
    facts = asdict(plan)
    if as_json:
        say_json(facts)
        return 0
    cost = (
        "unknown"
        if plan.worst_usd is None
        else f"{plan.worst_usd:.6g} usd at worst, {plan.expected_usd:.6g} expected"
    )
    say_facts(
        {
            "draws": f"{plan.breadth * plan.depth} at worst "
            f"({plan.breadth} branches x {plan.depth} rounds)",
            "requests": f"{plan.worst_requests} at worst, {plan.expected_requests:.1f} expected "
            f"if each draw passes with {plan.pass_rate:.0%}"
            + (f"; {plan.judges} judge(s) beside each draw" if plan.judges else ""),
            "tokens": f"{plan.worst_tokens:,} at worst, {plan.expected_tokens:,.0f} expected",
            "cost": cost,
        }
    )
    return 0
