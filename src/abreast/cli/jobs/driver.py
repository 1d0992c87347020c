"""Drives a job, new or resumed, from its request to its exit code.

What all jobs share is here: checks and dry run first, then the store, the run, signals, the live
line and the exit code. A job adds its work and what it prints.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from abreast.assembly.names import open_run
from abreast.assembly.process_groups import ProcessGroups, end_leftovers
from abreast.cli.errors import DONE, SPENT, explain, one_line, tell
from abreast.cli.jobs.left_trees import clear_left_trees
from abreast.cli.jobs.request import RunRequest
from abreast.cli.signals import Interrupts
from abreast.cli.stores import StoreChoice
from abreast.cli.terminal.live_line import LiveLine, closing_line, wants_progress
from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import AbreastError, BudgetSpent, LaneParked, StoreGone
from abreast.core.events import Observer
from abreast.run.run import Resume, Run
from abreast.store.port import RunRow, Store

if TYPE_CHECKING:
    from abreast.agents.caller import AgentCaller
    from abreast.cli.jobs.job_file import JobFile


STOPS: Final = (KeyboardInterrupt, asyncio.CancelledError, AbreastError)
"""The exceptions that stop a run early."""


WAIT: Final = "wait"
"""The key of a run's manifest that is true if it waits for the end of usage limits."""


class EarlyExit(NamedTuple):
    """Why a run stopped, its exit code, and options that `abreast resume` needs."""

    why: str
    code: int
    more: str = ""
    resumable: bool = True

    def tell(self, run_id: str, choice: StoreChoice) -> int:
        """Print it with the command that resumes the run; return the exit code."""
        hint = (
            f"; go on with: abreast resume {run_id}{self.more}{choice.flag}"
            if run_id and self.resumable
            else ""
        )
        tell(f"{self.why}{hint}")
        return self.code


class JobDriver:
    """A job to drive; `drive` calls the methods in the order in which they are written here."""

    kind: ClassVar[str]
    resume_modes: ClassVar[tuple[Resume, Resume]] = ("failed", "retry")
    """How `abreast resume` goes on with a run: without and with --retry-failed."""
    takes_inputs: ClassVar[bool] = False
    """Whether `abreast resume --input` is for this job."""
    takes_wait: ClassVar[bool] = False
    """Whether --wait is for this job."""
    failures: ClassVar[tuple[type[Exception], ...]] = ()
    """Exceptions that end the run early, besides those that end every run."""

    def __init__(self, request: RunRequest) -> None:
        """Nothing starts before `drive`."""
        self.view = request.view
        self.choice = request.choice
        self.wait = request.wait
        self.groups = ProcessGroups()
        self.run_id = ""
        self.replays = False
        self.started_at = SYSTEM_CLOCK.now()

    def wait_for_limits(self, caller: AgentCaller) -> None:
        """Let an agent wait for the end of a usage limit, if that is requested."""
        if self.wait:
            caller.wait_for_limits(self._tell_waiting)

    def _tell_waiting(self, why: str) -> None:
        if not self.view.quiet:
            tell(one_line(f"waiting: {why}"))

    @classmethod
    def of_file(cls, given: JobFile) -> int:
        """Drive the job of a file; return the exit code."""
        raise NotImplementedError

    @classmethod
    def of_run(
        cls, request: RunRequest, row: RunRow, changes: Mapping[str, Any], inputs: Sequence[str]
    ) -> JobDriver:
        """The driver of a recorded run, with the changes that aren't None."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise `UsageError` for errors that are visible before a store or a call is made."""

    def print_checked(self) -> int:
        """Check, for --check, and print that nothing is wrong; return the exit code."""
        self.check()
        return DONE

    def print_dry_run(self) -> int:
        """Print what would be done; return the exit code."""
        raise NotImplementedError

    def start_early(self, stack: ExitStack) -> None:
        """Start what takes long, while the store is opened; it ends with the stack."""

    def open_store(self) -> AbstractContextManager[Store | None]:
        """Open the store; it is created unless a model replays a run. None for a run in memory."""
        return self.choice.existing() if self.replays else self.choice.open()

    def live_line(self, _store: Store | None) -> LiveLine | None:
        """The live line on a terminal; it gets the run's events unless `open` says otherwise."""
        return None

    def log(self) -> Observer | None:
        """What gets the run's events where no live line can be drawn, such as in a log of CI."""
        return None

    async def open(self, stack: AsyncExitStack, store: Store | None) -> dict[str, Any]:
        """Open models and tools; return options of the run, such as its manifest and budget."""
        raise NotImplementedError

    async def work(self, run: Run, stack: AsyncExitStack) -> None:
        """Do the job's work in the opened run."""
        raise NotImplementedError

    def unfinished(self) -> AbreastError | None:
        """The error that the run is recorded with, if its work ended but is not done.

        The result is printed all the same.
        """
        return None

    def early_exit(self, error: BaseException, interrupts: Interrupts) -> EarlyExit:
        """The early exit for one of the `STOPS` or `failures`."""
        if isinstance(error, BudgetSpent):
            more = "" if isinstance(error, LaneParked) else " --budget MORE"
            return EarlyExit(str(error), SPENT, more)
        if isinstance(error, AbreastError):
            return EarlyExit(*explain(error), resumable=not isinstance(error, StoreGone))
        return EarlyExit(interrupts.word, interrupts.code)

    def print_stop(self, stopped: EarlyExit) -> int:
        """Print why the run ended early; return the exit code."""
        return stopped.tell(self.run_id, self.choice)

    def print_result(self) -> int:
        """Print the result; return the exit code."""
        raise NotImplementedError


def drive(job: JobDriver, request: RunRequest) -> int:
    """Check, show or run the job, as requested; return the exit code."""
    if request.dry_run:
        return job.print_dry_run()
    if request.check_only:
        return job.print_checked()
    job.check()
    clear_left_trees(quiet=job.view.quiet)
    with ExitStack() as stack:
        job.start_early(stack)
        store = stack.enter_context(
            nullcontext(request.store) if request.store is not None else job.open_store()
        )
        with asyncio.Runner() as runner:
            return runner.run(_run(job, request, store))


async def _run(job: JobDriver, request: RunRequest, store: Store | None) -> int:
    """Run the job, and print how it ended; return the exit code.

    Printed inside the loop: to close that may wait for threads.
    """
    stopped = None
    stops: tuple[type[BaseException], ...] = (*STOPS, *job.failures)
    line = job.live_line(store) if wants_progress() and not job.view.quiet else None
    with Interrupts(job.groups.kill) as interrupts:
        try:
            with closing_line(line, interrupts):
                await _open_and_work(job, request, store, interrupts, line)
        except stops as error:
            stopped = job.early_exit(error, interrupts)
    return job.print_result() if stopped is None else job.print_stop(stopped)


async def _open_and_work(
    job: JobDriver,
    request: RunRequest,
    store: Store | None,
    interrupts: Interrupts,
    line: LiveLine | None,
) -> None:
    async with AsyncExitStack() as stack:  # what the job opens closes after the run
        observer = job.log() if line is None and not job.view.quiet else line
        hooks = () if observer is None else [observer]
        run_options = {"hooks": hooks, **await job.open(stack, store)}
        if job.wait:
            run_options["manifest"] = {**(run_options.get("manifest") or {}), WAIT: True}
        run = open_run(
            request.name,
            store=store,
            seed=request.seed,
            tags=request.tags,
            kind=job.kind,
            resume=request.resume,
            run_id=request.run_id,
            retry_keys=request.retry_keys,
            **run_options,
        )
        try:
            unfinished = None
            async with AsyncExitStack() as opened:
                with interrupts.raise_immediately():  # also while it waits for a locked store
                    await opened.enter_async_context(run)
                job.run_id = run.id or ""
                if store is not None:
                    await _begin(job, run, store)
                await job.work(run, stack)
                interrupts.stop_cancelling()
                unfinished = job.unfinished()
                if unfinished is not None:
                    raise unfinished
        except AbreastError as error:
            if error is not unfinished:
                raise


async def _begin(job: JobDriver, run: Run, store: Store) -> None:
    """Say where the run is recorded, and end the processes that an earlier driver left."""
    if job.view.verbose:
        tell(f"run {job.run_id} in {store.url}")
    if run.resumed and (ended := await end_leftovers(store, job.run_id)) and not job.view.quiet:
        tell(
            f"ended {ended} process group(s) that an earlier driver of {job.run_id} had left behind"
        )
