"""Drives a sample, new or resumed, from its specification to its exit code."""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, Self

from abreast.cli.config import Config
from abreast.cli.errors import DONE, FAILED, UsageError, one_line, refusing, tell
from abreast.cli.jobs.driver import EarlyExit, JobDriver, drive
from abreast.cli.jobs.job_file import JobFile
from abreast.cli.jobs.map.call import find_function
from abreast.cli.jobs.model_options import (
    batch_share,
    check_sees,
    configured_lanes,
    open_named,
    read_call_mode,
    read_schema,
    with_wait,
)
from abreast.cli.jobs.request import RunRequest, check_wait, new_request, recorded_facts
from abreast.cli.jobs.sample_agent import SampleAgent
from abreast.cli.signals import Interrupts
from abreast.cli.terminal.live_line import LiveLine
from abreast.cli.terminal.outcome_text import error_sentence, json_line
from abreast.cli.terminal.printer import STDOUT, write_all
from abreast.cli.terminal.tables import say_facts, say_json
from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import BranchesFailed, CallFailed
from abreast.jobs.sample.arguments import SampleJob
from abreast.jobs.sample.results import SampleAttempt, SampleResult
from abreast.jobs.sample.spec import SampleSpec
from abreast.jobs.sample.view import SampleLive
from abreast.models.estimate import NO_BOUND
from abreast.models.lanes import LaneSettings, check_keys, split_name
from abreast.models.port import Request
from abreast.run.run import Run
from abreast.store.port import RunRow, Store

_TEXT_WIDTH: Final = 60  # characters of a draw
_MAX_ERRORS: Final = 8  # that are printed if no draw passed


class SampleDriver(JobDriver):
    """Drives one run of a sample."""

    kind = "sample"
    resume_modes = ("must", "must")
    takes_wait = True
    _sample: SampleJob
    _result: SampleResult

    def __init__(
        self,
        spec: SampleSpec,
        request: RunRequest,
        *,
        cwd: str,
        lane_width: str | None = None,
        calls: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(request)
        self._spec = spec
        self._cwd = cwd
        self._resumed_run = request.run_id
        self._lane_width = lane_width
        self._lanes: dict[str, LaneSettings] = configured_lanes(
            Config.load(Path(cwd)), lane_width, calls
        )
        self._calls = dict(calls or {})
        self._agent = None if spec.agent is None else SampleAgent(spec, cwd, self.groups)
        drawn = [] if spec.agent is not None else [spec.model]
        self._models = [*drawn, *([spec.judge] if spec.judge else [])]
        self.replays = any(name.startswith("replay/") for name in self._models)

    @classmethod
    def of_file(cls, given: JobFile) -> int:
        """Drive the sample of a file; return the exit code."""
        flags = given.flags
        request = new_request(Config.load(), flags["name"] or cls.kind, flags)
        facts = given.facts(cls.kind, "a prompt")
        words = ("model", "budget", "warm")
        own = {word: flags[word] for word in words if flags[word] not in (None, False)}
        try:
            spec = SampleSpec.of({**facts, **own}, f"{given.file}: sample")
        except (ValueError, TypeError) as error:
            raise UsageError(one_line(str(error))) from None
        return drive_spec(spec, request, calls=read_call_mode(flags))

    @classmethod
    def of_run(
        cls, request: RunRequest, row: RunRow, changes: Mapping[str, Any], _inputs: Sequence[str]
    ) -> Self:
        """The driver of a recorded run, with another budget if one is given.

        Raises `UsageError` if an image of its prompt has changed since.
        """
        facts = recorded_facts(row, cls.kind)
        changed = {**facts, "budget": changes["budget"] or facts.get("budget")}
        cwd, width = str(row.manifest.get("cwd") or "."), row.manifest.get("lane_width")
        calls: Any = row.manifest.get("calls") or {}
        driver = cls(
            SampleSpec.of(changed),
            request,
            cwd=cwd,
            lane_width=str(width) if width else None,
            calls=with_wait(calls, changes.get("batch_wait")),
        )
        before = row.manifest.get("images")
        if before is not None and driver._job(None, None).question.marks != before:
            raise UsageError(
                f"an image or a PDF file of {row.id} has changed since the run recorded it; "
                "put it back, or start a new run"
            )
        return driver

    def check(self) -> None:
        """Raise `UsageError` for errors that are visible before a store or a call is made."""
        check_wait(self._spec.agent, wait=self.wait)
        with refusing():
            lanes = {name: split_name(name, self._lanes)[0] for name in self._models}
        if self._spec.images:
            for name in self._models:  # a judge gets the images, too
                check_sees(name, self._lanes)
        check_keys(list(lanes.values()))
        job = self._job(None, None)
        if self._agent is not None:
            self._agent.check()
        for name, lane in lanes.items():
            if lane.kind != "replay":  # its replies are in the store, which isn't open yet
                budgets = () if job.budget is None else (job.budget,)
                # Raises if the budget limits money and the model's price is unknown.
                open_named(name, self._lanes).reserve(Request(()), budgets)

    def print_dry_run(self) -> int:
        """Print what the sample may cost, before anything is spent."""
        if self._agent is not None:
            return self._agent.print_dry_run(as_json=self.view.json)
        opened = [open_named(name, self._lanes) for name in self._models]
        plan = self._job(opened[0], opened[-1]).dry_run()
        if self.view.json:
            say_json({**asdict(plan), "note": f"tokens and cost are {NO_BOUND}"})
            return DONE
        cost = (
            "unknown"
            if plan.worst_usd is None
            else f"{plan.worst_usd:.6g} usd at worst, {plan.expected_usd:.6g} expected"
        )
        share = batch_share(opened[0])
        if share is not None and plan.worst_usd is not None and plan.expected_usd is not None:
            worst, expected = plan.worst_usd * share, plan.expected_usd * share
            cost += f"; in batches {worst:.6g} at worst, {expected:.6g} expected"
        say_facts(
            {
                "draws": f"{plan.breadth * plan.depth} at worst "
                f"({plan.breadth} branches x {plan.depth} rounds)",
                "requests": f"{plan.worst_requests} at worst, "
                f"{plan.expected_requests:.1f} expected "
                f"if each draw passes with {plan.pass_rate:.0%}"
                + (f"; {plan.judges} judge(s) beside each draw" if plan.judges else ""),
                "tokens": f"{plan.worst_tokens:,} at worst, {plan.expected_tokens:,.0f} expected",
                "cost": cost,
                "note": f"tokens and cost are {NO_BOUND}",
            }
        )
        return DONE

    def live_line(self, _store: Store | None) -> LiveLine | None:
        """The rounds of the branches; none beside JSON."""
        return None if self.view.json else LiveLine(SampleLive())

    async def open(self, stack: AsyncExitStack, store: Store | None) -> dict[str, Any]:
        """Open the model and the judge."""
        opened = [
            await stack.enter_async_context(
                open_named(name, self._lanes, store, warm=self._spec.warm)
            )
            for name in self._models
        ]
        facts: dict[str, Any] = {}
        if self._agent is not None:
            caller, facts = await self._agent.open(
                stack, store, self._resumed_run, self._lanes, quiet=self.view.quiet
            )
            self.wait_for_limits(caller)
            opened.insert(0, caller)
        job = self._job(opened[0], opened[-1])
        # The run holds the budget, as it records what an earlier driver has spent.
        self._sample = replace(job, budget=None)
        return {
            "budget": job.budget,
            "manifest": {
                self.kind: self._spec.plain(),
                "lane_width": self._lane_width,
                **({"calls": self._calls} if self._calls else {}),
                **({"images": job.question.marks} if job.question.files else {}),
                **facts.pop("manifest", {}),
            },
            **facts,
        }

    async def work(self, run: Run, _stack: AsyncExitStack) -> None:
        """Draw until a draw passes."""
        if self._agent is None:
            self._result = await self._sample.run(run)
        else:
            self._sample = self._agent.hold_trees(self._sample, self.run_id)
            self._result = await self._sample.run(run)
            self._agent.choose(run, self._result)

    def early_exit(self, error: BaseException, interrupts: Interrupts) -> EarlyExit:
        """Without a hint to resume if the model's calls failed."""
        if isinstance(error, (BranchesFailed, CallFailed)):
            return EarlyExit(one_line(str(error)), FAILED, resumable=False)
        return super().early_exit(error, interrupts)

    def _job(self, model: Any, judge: Any) -> SampleJob:  # noqa: ANN401 - None for a check alone
        try:
            return self._spec.job(
                model,
                judge,
                find=lambda call: find_function(call, self._cwd),
                read=self._read,
                folder="" if os.getcwd() == self._cwd else self._cwd,  # noqa: PTH109 - text
                command=None if self._agent is None else self._agent.command_check,
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

    def print_result(self) -> int:
        """Print the winner, and on stderr how it was found; return the exit code."""
        result, view = self._result, self.view
        if view.json:
            say_json(result_as_json(result, self.run_id))
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
            seconds = SYSTEM_CLOCK.now() - self.started_at
            parts = (
                [f"{result.counts.started} draws", f"{result.counts.cancelled} cancelled"]
                if result.counts.cancelled
                else [f"{result.counts.started} draws"]
            )
            best = "; this is the best of them" if result.winner is not None else ""
            head = "passed" if result.ok else f"no draw passed{best}"
            tokens = result.usage.input_tokens + result.usage.output_tokens
            used = f"{result.usage.requests} requests, {tokens:,} tokens"
            tell(f"{head}: {', '.join(parts)}, {used} in {seconds:.1f} s ({self.run_id})")
        if self._agent is not None and result.ok and not view.quiet:
            tell(f"merge it with: abreast plan apply {self.run_id}{self.choice.flag}")
        return DONE if result.ok else FAILED


def _attempt_line(attempt: SampleAttempt) -> str:
    """A draw in one line: its text, and the checks that it failed or the error."""
    why = [f"{one.check}: {one.reason}" for one in attempt.verdicts if not one.ok]
    why += [one_line(attempt.reason or attempt.error)] if attempt.error is not None else []
    text = " ".join(attempt.text.split())[:_TEXT_WIDTH]
    place = f"branch {attempt.branch} round {attempt.round}"
    return f"{place}: {attempt.state}  {text!r}  {'; '.join(why)}"


def drive_spec(
    spec: SampleSpec,
    request: RunRequest,
    lane_width: str | None = None,
    calls: Mapping[str, Any] | None = None,
) -> int:
    """Drive a new sample; return the exit code.

    Without a seed, one is derived from the prompt, so that equal prompts draw the same.
    """
    seed = spec.seed if request.seed is None else request.seed
    cwd = os.getcwd()  # noqa: PTH109 - stored as text
    driver = SampleDriver(spec, request, cwd=cwd, lane_width=lane_width, calls=calls)
    return drive(driver, replace(request, seed=seed))


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
