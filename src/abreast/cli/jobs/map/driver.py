"""Drives a map, new, resumed or retried, from its first item to its exit code."""

from __future__ import annotations

import asyncio
import os
import shlex
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from abreast.assembly.process_groups import RUN_VARIABLE
from abreast.cli.errors import DONE, FAILED, USAGE, UsageError, tell
from abreast.cli.jobs.driver import EarlyExit, JobDriver
from abreast.cli.jobs.executors import check_executor
from abreast.cli.jobs.map.call import find_function
from abreast.cli.jobs.map.command import CommandWork, check_command
from abreast.cli.jobs.map.input_lines import InputLines, check_input
from abreast.cli.jobs.map.job import INPUT, ITEMS, KIND, MapJob
from abreast.cli.jobs.map.template import UnstartedItem
from abreast.cli.jobs.request import RunRequest, check_wait
from abreast.cli.signals import Interrupts
from abreast.cli.terminal.live_line import LiveLine
from abreast.cli.terminal.outcome_text import Render, json_line, pieces_as_json, pieces_as_text
from abreast.cli.terminal.printer import STDOUT, OutputLost, Piece, Printer, write_all
from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import AbreastError, ItemChanged
from abreast.core.events import ITEM_READ, ITEMS_COMPLETE, count_read
from abreast.core.frozen import record
from abreast.core.item import escape, position_key
from abreast.core.outcome import NO_USAGE, Outcome, Usage, tokens_in_words
from abreast.jobs.map.view import MapLive
from abreast.run.context import StoppedAtFailure
from abreast.run.map.journal import FunctionChanged
from abreast.run.map.scheduler import LeftBehind
from abreast.run.run import Run
from abreast.store.port import RunRow, Store, each_event
from abreast.views.progress import RunProgress

if TYPE_CHECKING:
    from abreast.cli.jobs.map.in_trees import MapTrees
    from abreast.executors.commands import CommandRunner
    from abreast.executors.supervisor.client import SupervisorProcess
    from abreast.run.calls.model import Caller

_PRINT_BATCH: Final = 256  # outcomes printed at once


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


class MapDriver(JobDriver):
    """Drives one run of a map."""

    kind = KIND
    resume_modes = ("must", "retry")
    takes_wait = True
    failures = (UsageError,)

    def __init__(self, job: MapJob, request: RunRequest, row: RunRow | None = None) -> None:
        """Read how far earlier drivers of `row` came, if it is given."""
        super().__init__(request)
        self.replays = (job.model or "").startswith("replay/")
        self._job = job
        self._name = request.name
        self._row = row
        self._counts = _Counts()
        self._output_error: OutputLost | None = None
        self._caller: Caller | None = None
        self._commands: CommandRunner | None = None
        self._trees: MapTrees | None = None
        self._progress: LiveLine | None = None
        self._started_early: SupervisorProcess | None = None
        self._input_complete = self._input_lost = False
        if row is not None:
            store = request.opened
            self._input_complete = is_complete(store, row)
            # An earlier driver died before it had read anything: an empty input is now an error.
            self._input_lost = not self._input_complete and not store.events(
                row.id, kinds={ITEM_READ}, limit=1
            )

    @classmethod
    def of_run(
        cls, request: RunRequest, row: RunRow, changes: Mapping[str, Any], _inputs: Sequence[str]
    ) -> MapDriver:
        """The driver of a recorded run, with those changes that aren't None."""
        return cls(MapJob.of_run(row).with_changes(**changes), request, row)

    def check(self) -> None:
        """Raise `UsageError` for errors that are visible before anything is read or started."""
        job, row = self._job, self._row
        if row is not None and not os.path.isdir(job.cwd):  # noqa: PTH112 - a recorded text
            raise UsageError(
                f"{row.id} ran in {job.cwd}, which is gone; put it back, for its commands run there"
            )
        check_wait(job.agent, wait=self.wait)
        check_work(job)
        check_executor(job.executor)
        _ = job.key_of, job.arguments
        if self._input_complete:
            return
        if job.input is not None:
            check_input(job.input)
            if job.may_have_files and os.path.isfile(job.input):  # noqa: PTH113 - a recorded text
                # Every conversation and image is looked at before the first call.
                for _ in self._lines():
                    pass
        elif row is not None and os.isatty(0):
            raise UsageError(
                f"the input of {row.id} was cut off before it was read to its end; "
                f"hand the same items in again: abreast resume {row.id} < items"
            )

    def print_dry_run(self) -> int:
        """Print the commands that would run, one per line, quoted for a shell.

        Of prompts it says, too, what they may cost.
        """
        job = self._job
        self.check()
        estimate = None
        if job.asks and job.agent is None:
            from abreast.cli.jobs.map.prompt import PromptEstimate

            estimate = PromptEstimate(job)
        for index, value in enumerate(self._lines()):
            key = job.key_of(value) if job.key_of is not None else position_key(index)
            item = UnstartedItem(index, key)
            words = job.words(value, item)
            if estimate is not None:
                estimate.add(value, item)
            line = (
                json_line({"key": key, "index": index, "argv": words})
                if self.view.json
                else shlex.join(words)
            )
            write_all(STDOUT, f"{line}\n".encode("utf-8", "surrogateescape"))
        if estimate is not None and not self.view.quiet:
            tell(estimate.spoken())
        return DONE

    def start_early(self, stack: ExitStack) -> None:
        """Start the supervisor of commands: it starts while the store and run are opened."""
        new = self._row is None and not self.view.quiet
        if new and self._job.input is None and os.isatty(0):
            tell("reading the items from the terminal, one per line; end them with Ctrl-D")
        if self._job.command and self._job.executor == "local" and not self._job.worktree:
            from abreast.executors.supervisor.client import SupervisorProcess

            self._started_early = SupervisorProcess(os.getcwd())  # noqa: PTH109 - passed on as text
            stack.callback(self._end_supervisor)

    def _end_supervisor(self) -> None:
        """End the supervisor if the run was never opened."""
        if self._started_early is not None:
            self._started_early.end()

    def live_line(self, store: Store | None) -> LiveLine:
        """Items done and read, from the counts of earlier drivers."""
        row, complete = self._row, self._input_complete
        if row is None or store is None:
            self._progress = LiveLine(MapLive(self._name))
        else:
            from abreast.cli.jobs.map.recorded import tally

            count = tally(store, row.id)
            read = sum(map(count_read, each_event(store, row.id, {ITEM_READ})))
            before = RunProgress(
                read=read, complete=complete, done=count["done"], failed=count["failed"]
            )
            self._progress = LiveLine(MapLive(row.id, before))
        return self._progress

    async def open(self, stack: AsyncExitStack, store: Store | None) -> dict[str, Any]:
        """Open the model or the supervisor of commands."""
        job, row = self._job, self._row
        warnings.simplefilter("always", LeftBehind)
        if job.worktree or job.agent:
            from abreast.cli.jobs.map.in_trees import MapTrees

            self._trees = MapTrees(
                job, self.groups, quiet=self.view.quiet, prepare=self.wait_for_limits
            )
            return await self._trees.open(stack, store, None if row is None else row.id)
        if job.asks:
            from abreast.cli.jobs.map.prompt import open_caller

            self._caller = open_caller(job, store)
        if job.command:
            # The function that runs the command is part of abreast, and may change.
            warnings.simplefilter("ignore", FunctionChanged)
            early, self._started_early = self._started_early, None
            from abreast.executors.names import open_commands

            self._commands = await open_commands(stack, job.executor, early)
        caller = self._caller
        return {
            "budget": job.budget,
            "executor": "local" if job.command else job.executor,
            "manifest": job.manifest(),
            "lanes": {caller.lane.name: caller.lane.limits} if caller else None,
        }

    async def work(self, run: Run, stack: AsyncExitStack) -> None:
        """Run the items, and print their outcomes."""
        if self._caller is not None:
            await stack.enter_async_context(self._caller)
        try:
            await self._print_outcomes(run, self._function())
        except OutputLost as error:
            self._output_error = error
            raise asyncio.CancelledError from error

    def unfinished(self) -> StoppedAtFailure | None:
        """A map that has halted leaves a run that is not done."""
        failed = self._counts.last_failed if self._job.halt else None
        return None if failed is None else StoppedAtFailure(failed)

    def early_exit(self, error: BaseException, interrupts: Interrupts) -> EarlyExit:
        """If stdout was lost, that is why; it has cancelled the run."""
        why = error if isinstance(error, AbreastError) else self._output_error or error
        if isinstance(why, ItemChanged) and self._job.may_have_files:
            return EarlyExit(f"{why} (the content of its images counts)", USAGE, resumable=False)
        return (
            EarlyExit(str(why), why.code)
            if isinstance(why, UsageError)
            else super().early_exit(why, interrupts)
        )

    def print_stop(self, stopped: EarlyExit) -> int:
        """Print why the run ended early, unless the reader of stdout has ended."""
        return super().print_stop(stopped) if stopped.why else stopped.code

    async def _print_outcomes(self, run: Run, function: Callable[[Any], Any]) -> None:
        job = self._job
        # An item that may be answered from the cache must not wait for a lane: only its call does.
        lane = self._caller.lane.name if self._caller and not job.cache else None
        printer = Printer(self._progress.aside if self._progress is not None else nullcontext)
        render: Render = (
            partial(pieces_as_json, run_id=self.run_id)
            if self.view.json
            else partial(pieces_as_text, quiet=self.view.quiet)
        )
        lines, key = run.intake(INPUT, self._items()), job.key_of
        if job.may_have_files:
            from abreast.cli.jobs.map.prompt import key_of_line, with_content

            lines, key = with_content(job, lines), key_of_line(key)
        hold = None if self._trees is None else self._trees.hold
        lane = lane if self._trees is None else self._trees.lane
        outcomes = run.map(
            function,
            lines,
            width=job.width,
            name=ITEMS,
            until=job.until,
            on_error="halt" if job.halt else "collect",
            key=key,
            retry=job.retries or None,
            timeout=job.timeout,
            lane=lane,
            hold=hold,
        )
        async for batch in outcomes.batches(_PRINT_BATCH):
            pieces: list[Piece] = []
            for outcome in batch:
                self._counts.add(outcome)
                pieces += render(outcome)
            await printer.write(pieces)

    def _function(self) -> Callable[[Any], Any]:
        job, commands = self._job, self._commands
        if job.call is not None:
            return find_function(job.call, job.cwd)
        if self._trees is not None:
            return self._trees.work(self.run_id)
        if self._caller is not None:
            from abreast.cli.jobs.map.prompt import PromptWork

            return PromptWork(job, self._caller)
        if commands is None:
            raise RuntimeError("a job is a function, a prompt or a command")
        os.environ[RUN_VARIABLE] = self.run_id
        commands.adopt_environment()
        return CommandWork(job, commands, self.groups)

    def _items(self) -> Iterable[object]:
        if self._input_complete:
            return ()
        return self._require_items(self._lines()) if self._input_lost else self._lines()

    def _lines(self) -> InputLines:
        job = self._job
        return InputLines(job.input, json_items=job.jsonl, null=job.null, check=job.check_item)

    def _require_items(self, lines: Iterable[object]) -> Iterator[object]:
        empty = True
        for item in lines:
            empty = False
            yield item
        if empty:
            raise UsageError(
                f"{self.run_id} died before it had read any of its input; "
                "hand it the items again on stdin"
            )

    def print_result(self) -> int:
        """Print a summary if items failed or stderr is a terminal; return the exit code."""
        count, until = self._counts, self._job.until
        short = until is not None and count.done < until
        bad = short or (until is None and count.failed > 0)
        if not self.view.quiet and (
            bad or self._progress is not None or self.view.verbose or self._job.asks
        ):
            seconds = SYSTEM_CLOCK.now() - self.started_at
            parts = [f"{count.done} done"] + ([f"{count.failed} failed"] if count.failed else [])
            if short:
                parts.append(f"{until} were wanted")
            hint = (
                f"; once more: abreast retry {self.run_id}{self.choice.flag}"
                if count.failed and bad
                else ""
            )
            tell(f"{', '.join(parts)} in {seconds:.1f} s{self._usage_text()} ({self.run_id}){hint}")
        if self._job.worktree and count.done and not self.view.quiet:
            tell(f"merge them with: abreast plan apply {self.run_id}{self.choice.flag}")
        return FAILED if bad else DONE

    def _usage_text(self) -> str:
        used = self._counts.used
        if self._caller is None and self._job.agent is None:
            return ""
        cost = (
            ""
            if used.usd == 0.0
            else ", unknown cost"
            if used.usd is None
            else f", {used.usd:.4g} usd"
        )
        estimated = " (estimated)" if used.estimate else ""
        tokens = tokens_in_words(used)
        return f", {used.requests:,} requests, {tokens}{estimated}{cost}"


def check_work(job: MapJob) -> None:
    """Raise `UsageError` for errors in the job's work that are visible before anything starts."""
    if job.call is not None:
        find_function(job.call, job.cwd)
    elif job.agent is not None:
        from abreast.cli.jobs.map.in_trees import check_agent

        check_agent(job)
    elif job.asks:
        from abreast.cli.jobs.map.prompt import check_prompt

        check_prompt(job)
    else:
        check_command(job)


def is_complete(store: Store, row: RunRow) -> bool:
    """Whether the input of a recorded map was read to its end."""
    return bool(
        store.events(row.id, kinds={ITEMS_COMPLETE}, prefix=f"{escape(row.name)}/{INPUT}", limit=1)
    )
