"""Drives a map, new, resumed or retried, from its first item to its exit code."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from abreast.assembly.names import open_run
from abreast.cli.errors import DONE, FAILED, UsageError, tell
from abreast.cli.jobs.early_exit import STOPS, EarlyExit, early_exit_by
from abreast.cli.jobs.map.call import find_function
from abreast.cli.jobs.map.command import CommandWork, check_command
from abreast.cli.jobs.map.input_lines import InputLines
from abreast.cli.jobs.map.job import INPUT, ITEMS, KIND, MapJob
from abreast.cli.jobs.map.process_groups import RUN_VARIABLE, ProcessGroups, end_leftovers
from abreast.cli.signals import Interrupts
from abreast.cli.stores import StoreChoice
from abreast.cli.terminal.live_line import LiveLine, closing_line
from abreast.cli.terminal.outcome_text import pieces_as_json, pieces_as_text
from abreast.cli.terminal.printer import OutputLost, Piece, Printer
from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import AbreastError
from abreast.core.frozen import record
from abreast.core.outcome import NO_USAGE, Outcome, Usage
from abreast.run.map.journal import FunctionChanged
from abreast.run.map.scheduler import LeftBehind
from abreast.run.results import StoppedAtFailure
from abreast.run.run import Resume, Run
from abreast.store.port import Store

if TYPE_CHECKING:
    from abreast.executors.commands import Commands
    from abreast.executors.supervisor.client import SupervisorProcess
    from abreast.run.calls.model import Caller

_PRINT_BATCH: Final = 256  # outcomes printed at once


@record(frozen=True, slots=True)
class OutputOptions:
    """--json, --quiet, --verbose."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False


@record(frozen=True, slots=True)
class MapStart:
    """Whether the run is new or resumed, and its name, seed and tags."""

    name: str
    seed: int | None = None
    tags: tuple[str, ...] = ()
    resume: Resume = "never"
    run_id: str | None = None
    retry_keys: tuple[str, ...] = ()
    input_complete: bool = False
    input_lost: bool = False
    """An earlier driver died before it had read anything: an empty input is now an error."""


@record(slots=True)
class _Counts:
    done: int = 0
    failed: int = 0
    last_failed: str | None = None
    used: Usage = NO_USAGE

    def add(self, outcome: Outcome[Any]) -> None:
        self.done += outcome.ok
        if not outcome.ok:
            self.failed += 1
            self.last_failed = outcome.key
        if outcome.usage is not NO_USAGE:
            self.used = self.used + outcome.usage


class MapDriver:
    """Drives one run of a map; `run` blocks until the run ends and returns the exit code.

    with MapDriver(job, start, choice, view, progress) as driver, choice.open() as store:
        return driver.run(store)
    """

    def __init__(
        self,
        job: MapJob,
        start: MapStart,
        choice: StoreChoice,
        view: OutputOptions,
        progress: LiveLine | None,
    ) -> None:
        """Nothing starts before the driver is entered."""
        self._job = job
        self._start = start
        self._choice = choice
        self._view = view
        self._progress = progress
        self._groups = ProcessGroups()
        self._counts = _Counts()
        self._run_id = ""
        self._output_error: OutputLost | None = None
        self._caller: Caller | None = None
        self._started_at = SYSTEM_CLOCK.now()
        self._started_early: SupervisorProcess | None = None

    def __enter__(self) -> Self:
        """Start the supervisor of commands early: it starts while the store and run are opened."""
        if self._job.command:
            from abreast.executors.supervisor.client import SupervisorProcess

            self._started_early = SupervisorProcess(os.getcwd())  # noqa: PTH109 - passed on as text
        return self

    def __exit__(self, *_: object) -> None:
        """End the supervisor if the run was never opened."""
        if self._started_early is not None:
            self._started_early.end()

    def run(self, store: Store) -> int:
        """Run the map; return the exit code. Messages are printed on stderr."""
        warnings.simplefilter("always", LeftBehind)
        if self._job.command:
            # The function that runs the command is part of abreast, and may change.
            warnings.simplefilter("ignore", FunctionChanged)
        with asyncio.Runner() as runner:
            return runner.run(self._drive(store))

    async def _drive(self, store: Store) -> int:
        with Interrupts(self._groups.kill) as interrupts:
            try:
                with closing_line(self._progress, interrupts):
                    await self._open_and_run(store, interrupts)
            except StoppedAtFailure:
                pass
            except STOPS as error:
                if self._output_error is None or isinstance(error, AbreastError):
                    return early_exit_by(error, interrupts).tell(self._run_id, self._choice)
                return (
                    self._print_stop(self._output_error)
                    if str(self._output_error)
                    else self._output_error.code
                )
            except UsageError as error:
                return self._print_stop(error)
        return self._print_end()

    async def _open_and_run(self, store: Store, interrupts: Interrupts) -> None:
        start, job = self._start, self._job
        hooks = [self._progress] if self._progress is not None else []
        self._caller = caller = _caller(job, store)
        run = open_run(
            start.name,
            store=store,
            budget=job.budget,
            seed=start.seed,
            executor=job.executor,
            resume=start.resume,
            hooks=hooks,
            tags=start.tags,
            kind=KIND,
            run_id=start.run_id,
            retry_keys=start.retry_keys,
            manifest=job.manifest(),
            lanes={caller.lane.name: caller.lane.limits} if caller else None,
        )
        async with AsyncExitStack() as stack:  # the supervisor and the model close after the run
            commands = await stack.enter_async_context(self._commands()) if job.command else None
            await self._run_items(run, store, interrupts, stack, commands)

    async def _run_items(
        self,
        run: Run,
        store: Store,
        interrupts: Interrupts,
        stack: AsyncExitStack,
        commands: Commands | None,
    ) -> None:
        caller = self._caller
        async with enter_run(run, interrupts):
            if caller is not None:
                await stack.enter_async_context(caller)
            self._run_id = run.id or ""
            if self._view.verbose:
                tell(f"run {self._run_id} in {store.url}")
            if (
                run.resumed
                and (ended := await end_leftovers(store, self._run_id))
                and not self._view.quiet
            ):
                tell(
                    f"ended {ended} process group(s) that an earlier driver of {self._run_id} "
                    "had left behind"
                )
            try:
                await self._print_outcomes(run, self._function(commands))
            except OutputLost as error:
                self._output_error = error
                raise asyncio.CancelledError from error
            interrupts.stop_cancelling()
            if self._job.halt and self._counts.last_failed is not None:
                raise StoppedAtFailure(self._counts.last_failed)  # so that the run isn't "done"

    async def _print_outcomes(self, run: Run, function: Callable[[Any], Any]) -> None:
        """Run the items, and print their outcomes as they are released."""
        job = self._job
        # An item that may be answered from the cache must not wait for a lane: only its call does.
        lane = self._caller.lane.name if self._caller and not job.cache else None
        aside = self._progress.aside if self._progress is not None else nullcontext
        printer, render = Printer(aside), self._render()
        outcomes = run.map(
            function,
            run.intake(INPUT, self._items()),
            width=job.width,
            name=ITEMS,
            until=job.until,
            on_error="halt" if job.halt else "collect",
            key=job.key_of,
            retry=job.retries or None,
            timeout=job.timeout,
            lane=lane,
        )
        async for batch in outcomes.batches(_PRINT_BATCH):
            pieces: list[Piece] = []
            for outcome in batch:
                self._counts.add(outcome)
                pieces += render(outcome)
            await printer.write(pieces)

    def _commands(self) -> Commands:
        from abreast.executors.commands import Commands

        early, self._started_early = self._started_early, None
        return Commands(early)

    def _function(self, commands: Commands | None) -> Callable[[Any], Any]:
        """The function to call with each item."""
        job = self._job
        if job.call is not None:
            return find_function(job.call, job.cwd)
        if self._caller is not None:
            from abreast.cli.jobs.map.prompt import PromptWork

            return PromptWork(job, self._caller)
        if commands is None:
            raise RuntimeError("a job is a function, a prompt or a command")
        os.environ[RUN_VARIABLE] = self._run_id
        commands.adopt_environment()
        return CommandWork(job, commands, self._groups)

    def _items(self) -> Iterable[object]:
        job, start = self._job, self._start
        if start.input_complete:
            return ()
        lines = InputLines(job.input, json_items=job.jsonl, null=job.null, check=job.check_item)
        return self._require_items(lines) if start.input_lost else lines

    def _require_items(self, lines: Iterable[object]) -> Iterator[object]:
        empty = True
        for item in lines:
            empty = False
            yield item
        if empty:
            raise UsageError(
                f"{self._run_id} died before it had read any of its input; "
                "hand it the items again on stdin"
            )

    def _render(self) -> Callable[[Outcome[Any]], list[Piece]]:
        if self._view.json:
            return partial(pieces_as_json, run_id=self._run_id)
        return partial(pieces_as_text, quiet=self._view.quiet)

    def _print_stop(self, error: UsageError | OutputLost) -> int:
        return EarlyExit(str(error), error.code).tell(self._run_id, self._choice)

    def _print_end(self) -> int:
        """Print a summary if items failed or stderr is a terminal; return the exit code."""
        count, until = self._counts, self._job.until
        short = until is not None and count.done < until
        bad = short or (until is None and count.failed > 0)
        if not self._view.quiet and (
            bad or self._progress is not None or self._view.verbose or self._caller
        ):
            seconds = SYSTEM_CLOCK.now() - self._started_at
            parts = [f"{count.done} done"] + ([f"{count.failed} failed"] if count.failed else [])
            if short:
                parts.append(f"{until} were wanted")
            hint = (
                f"; once more: abreast retry {self._run_id}{self._choice.flag}"
                if count.failed and bad
                else ""
            )
            tell(
                f"{', '.join(parts)} in {seconds:.1f} s{self._usage_text()} ({self._run_id}){hint}"
            )
        return FAILED if bad else DONE

    def _usage_text(self) -> str:
        """Requests, tokens and cost, if models were asked."""
        used = self._counts.used
        if self._caller is None:
            return ""
        cost = (
            ""
            if used.usd == 0.0
            else ", unknown cost"
            if used.usd is None
            else f", {used.usd:.4g} usd"
        )
        estimated = " (estimated)" if used.estimate else ""
        tokens = f"{used.input_tokens:,} + {used.output_tokens:,} tokens{estimated}"
        return f", {used.requests:,} requests, {tokens}{cost}"


@asynccontextmanager
async def enter_run(run: Run, interrupts: Interrupts) -> AsyncIterator[None]:
    """Open the run; a signal interrupts it even while it waits for a locked store."""
    async with AsyncExitStack() as stack:
        with interrupts.raise_immediately():
            await stack.enter_async_context(run)
        yield


def check_work(job: MapJob) -> None:
    """Raise `UsageError` for errors in the job's work that are visible before anything starts."""
    if job.call is not None:
        find_function(job.call, job.cwd)
    elif job.prompt is not None:
        from abreast.cli.jobs.map.prompt import check_prompt

        check_prompt(job)
    else:
        check_command(job)


def _caller(job: MapJob, store: Store) -> Caller | None:
    if job.prompt is None:
        return None
    from abreast.cli.jobs.map.prompt import open_caller

    return open_caller(job, store)
