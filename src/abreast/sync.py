"""Synchronous and top-level entry points: `map`, `sample`, `workflow`."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from abreast.assembly.names import as_caller, open_model, open_run
from abreast.core.errors import WouldBlock
from abreast.core.outcome import Outcome
from abreast.core.seeds import derive_seed
from abreast.run.current import current_item
from abreast.run.map.options import check_options
from abreast.run.map.outcomes import Map
from abreast.run.run import Run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from abreast.jobs.sample.arguments import SampleJob
    from abreast.jobs.sample.dry_run import SampleDryRun
    from abreast.jobs.sample.results import SampleResult
    from abreast.jobs.workflow.job import FlowResult
    from abreast.jobs.workflow.spec import Workflow
    from abreast.jobs.workflow.tools import CustomKind
    from abreast.models.port import Model
    from abreast.run.calls.model import Caller

T = TypeVar("T")

INTERRUPT_GRACE = 2.0  # seconds that an interrupted caller waits for its cancelled work
BATCH_OUTCOMES = 256  # most outcomes passed from the loop's thread to the caller's at once


def map(
    fn: Callable[[T], Any], items: Iterable[T], *, width: int, **options: Any
) -> Iterator[Outcome[Any]]:
    """Call `fn` with each item, at most `width` at once; an iterator of outcomes in item order.

        outcomes = abreast.map(lambda x: x * x, range(5), width=3)
        [outcome.value for outcome in outcomes]      # [0, 1, 4, 9, 16]

    `fn` may be a plain function (it runs in threads) or `async def`. It takes all options of
    `run.map`, and `store=`, `lanes=`, `budget=`, `seed=`, `resume=`, `types=` of `open_run`. The
    run is named after the map. Inside an item (a plain function's) it becomes a map beneath that
    item. Items are read in a thread of abreast's own. Leaving the loop early cancels the items in
    work.

    Raises ValueError or TypeError at once for invalid options; `WouldBlock` inside an `async def`
    item, where it would stop the loop that it waits for: use `async for ... in
    abreast.current().run.map(...)` there.
    """
    run_options = {name: options.pop(name) for name in _RUN_OPTIONS if name in options}
    checked = check_options(fn, stored=run_options.get("store") is not None, width=width, **options)
    item = current_item()
    if item is not None:
        return _map_inside_item(item.run, fn, items, run_options, {"width": width, **options})
    run = open_run(run_options.pop("name", checked.name), **run_options)
    return _Outcomes(
        _background.loop(), run, lambda opened: opened.map(fn, items, width=width, **options)
    )


async def sample(
    prompt: str,
    *,
    model: str | Model | Caller = "local/smollm2",
    run: Run | None = None,
    judge: str | Model | Caller | None = None,
    **options: Any,
) -> SampleResult:
    """Draw from a model, check and repair the draws, until one passes.

        colour = checks.regex("^(red|green|blue)$")
        result = await abreast.sample("Name a colour.", checks=[colour], breadth=4, depth=3)
        result.text, result.ok, result.winner, result.attempts, result.usage

    There are `breadth` branches of `depth` rounds each.

    The winner is the least (round, branch) that passes: the same whatever the delays, unless
    `pick="first"` asks for whichever passes first in time. Breadth costs: up to `breadth * depth`
    paid draws, and 429s come sooner; see `plan`.

    Args:
        prompt: the user message.
        model: a name such as "openai/gpt-4o-mini", or a model that is open already.
        run: the run that it belongs to; by default the run of the current item, else one in memory.
        judge: the model for checks that ask a model and name none; by default the same model.
        **options: those of `abreast.jobs.sample.arguments.make_job`: checks, breadth, depth,
            strategy, pick, on_error, system, schema, temperature, max_tokens, reasoning,
            thinking_tokens, seed, explain, name, budget, files.

    Raises:
        ValueError, TypeError: an option is invalid; nothing was drawn.
        BranchesFailed: no draw passed and some raised (at breadth 1: what was raised).
        BudgetSpent: the cap is reached.
    """
    async with contextlib.AsyncExitStack() as stack:
        job = _sample_job(prompt, model, judge, options, _opener(stack))
        item = current_item()
        within = run if run is not None else item.run if item is not None else None
        if within is None:
            # The seed is derived from the prompt, so that the same question draws the same again.
            within = await stack.enter_async_context(
                open_run(job.name, seed=derive_seed(0, prompt))
            )
            job = replace(job, name="draws")
        return await job.run(within)


def sample_sync(prompt: str, **options: Any) -> SampleResult:
    """Call `abreast.sample` from code that isn't async, and wait for its result."""
    result: SampleResult = _Call(
        _background.loop(), sample(prompt, **options), contextvars.copy_context()
    ).wait()
    return result


def plan_sample(
    prompt: str,
    *,
    model: str | Model | Caller = "local/smollm2",
    judge: str | Model | Caller | None = None,
    **options: Any,
) -> SampleDryRun:
    """Return what a sample may cost at worst, and as expected, before anything is spent."""
    rate = options.pop("pass_rate", None)
    job = _sample_job(prompt, model, judge, options, _opener())
    return job.plan() if rate is None else job.plan(rate)


def _sample_job(
    prompt: str,
    model: str | Model | Caller,
    judge: str | Model | Caller | None,
    options: dict[str, Any],
    open_caller: Callable[[str | Model | Caller], Caller],
) -> SampleJob:
    """Make the sample job with every model open: its own, its judges', and its strategy's."""
    from abreast.jobs.sample.arguments import make_job
    from abreast.jobs.sample.checks import Judge
    from abreast.jobs.sample.strategies import Escalate

    options, caller = dict(options), open_caller(model)
    judge_caller = caller if judge is None else open_caller(judge)
    options["checks"] = [
        replace(check, model=judge_caller if check.model is None else open_caller(check.model))
        if isinstance(check, Judge)
        else check
        for check in options.get("checks", ())
    ]
    strategy = options.get("strategy")
    if isinstance(strategy, Escalate):
        options["strategy"] = replace(strategy, slow=open_caller(strategy.slow))
    job = make_job(prompt, caller, **options)
    return replace(job, draws=replace(job.draws, open=open_caller))


def _opener(
    stack: contextlib.AsyncExitStack | None = None,
) -> Callable[[str | Model | Caller], Caller]:
    """Return a function that opens each model once; the stack closes them."""
    by_name: dict[str, Caller] = {}

    def open_caller(model: str | Model | Caller) -> Caller:
        if not isinstance(model, str):
            return as_caller(model)
        if model not in by_name:
            by_name[model] = open_model(model)
            if stack is not None:
                stack.push_async_callback(by_name[model].close)
        return by_name[model]

    return open_caller


async def workflow(
    file: str | os.PathLike[str],
    inputs: Mapping[str, Any] | None = None,
    *,
    run: Run | None = None,
    model: str | None = None,
    verdicts: Mapping[str, str] | None = None,
    **run_options: Any,
) -> FlowResult:
    """Run a workflow file; the result has its status, error, outputs, and every step by full id.

        result = await abreast.workflow("flow.yaml", {"city": "Paris"}, store="runs.db")
        result.steps["fan:greet:2"].output

    Args:
        file: the file; other files that it names are looked for beside it.
        inputs: values of its inputs.
        run: the run that it belongs to; by default the run of the current item, else one named
            after the workflow.
        model: the model for prompts that name none.
        verdicts: the answers to gates, by their full ids.
        **run_options: options of `open_run`, for a run of its own: `store`, `budget`, `lanes`,
            `seed`, `resume`, `types`.

    Raises:
        WorkflowInvalid: the file can't be run; it has every problem with its line.
        ValueError: the inputs don't fit.
    """
    from abreast.assembly.workflow_tools import RunTools, Tools, find_function, find_kinds
    from abreast.jobs.workflow.inputs import SealedInputs, Secrets, resolve_inputs
    from abreast.jobs.workflow.job import Flow

    kinds = find_kinds()
    loaded = _read_workflow(Path(file), kinds)
    values = resolve_inputs(loaded.inputs, inputs or {})
    tools = Tools(kinds=kinds, find=find_function)
    if model is not None:
        tools.default_model = model
    item = current_item()
    async with contextlib.AsyncExitStack() as stack:
        run_tools = await stack.enter_async_context(RunTools(tools))
        within = run if run is not None else item.run if item is not None else None
        if within is None:
            secrets = Secrets(SealedInputs(loaded.inputs, values).secrets.values())
            if secrets:
                run_options.setdefault("redact", lambda _path, value: secrets.hide(value))
            within = await stack.enter_async_context(
                open_run(loaded.id, kind="workflow", **run_options)
            )
        else:
            within = await stack.enter_async_context(within.child(loaded.id))
        return await Flow(loaded, run_tools, verdicts).run(within, values)


def _read_workflow(path: Path, kinds: Mapping[str, CustomKind]) -> Workflow:
    from abreast.jobs.workflow.load.load import load

    return load(path.read_text("utf-8"), path.name, directory=path.resolve().parent, kinds=kinds)


_RUN_OPTIONS = ("store", "lanes", "budget", "seed", "resume", "hooks", "tags", "redact", "types")


def _map_inside_item(
    run: Run,
    fn: Callable[..., Any],
    items: Iterable[Any],
    run_options: dict[str, Any],
    options: dict[str, Any],
) -> Iterator[Outcome[Any]]:
    if run_options.keys() - {"lanes", "budget"}:
        raise TypeError(
            f"inside an item, {', '.join(sorted(run_options))} are the run's own "
            "and can't be given again"
        )
    loop = run.context.loop
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is loop:
        raise WouldBlock(
            "abreast.map waits, which would stop the loop it runs on; inside an async item use "
            "`async for outcome in abreast.current().run.map(...)`"
        )
    return _Outcomes(loop, None, lambda _: run.map(fn, items, **options))


class _Outcomes:
    """An iterator over outcomes that come from an event loop in another thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        run: Run | None,
        start: Callable[[Any], Map[Any, Any]],
    ) -> None:
        self._loop = loop
        self._context = contextvars.copy_context()
        self._source = _batches(run, start)
        self._ready: deque[Outcome[Any]] = deque()
        self._over = False

    def __iter__(self) -> Iterator[Outcome[Any]]:
        return self

    def __next__(self) -> Outcome[Any]:
        while not self._ready:
            if self._over:
                raise StopIteration
            try:
                self._ready.extend(self._call(anext(self._source)))
            except StopAsyncIteration:
                self._over = True
            except BaseException:
                self._over = True
                raise
        return self._ready.popleft()

    def close(self) -> None:
        """Cancel the items in work and wait until they have ended."""
        self._ready.clear()
        if not self._over:
            self._over = True
            self._call(self._source.aclose())

    def __del__(self) -> None:
        if not self._over and not self._loop.is_closed():
            self._over = True
            _Call(self._loop, self._source.aclose(), self._context)

    def _call(self, work: Awaitable[Any]) -> Any:
        return _Call(self._loop, work, self._context).wait()


class _Call:
    """An awaitable that runs on a loop in another thread.

    The calling thread waits for it, and can still be interrupted.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, work: Awaitable[Any], context: contextvars.Context
    ) -> None:
        self._loop = loop
        self._done = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None
        self._task: asyncio.Task[None] | None = None
        loop.call_soon_threadsafe(self._start, work, context.copy())

    def _start(self, work: Awaitable[Any], context: contextvars.Context) -> None:
        self._task = self._loop.create_task(self._run(work), context=context)

    async def _run(self, work: Awaitable[Any]) -> None:
        try:
            self._value = await work
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            self._error = error
        finally:
            self._done.set()

    def wait(self) -> Any:
        """Wait for the value and return it, or raise its error.

        An interrupt cancels the work, waits INTERRUPT_GRACE seconds for its end, and is raised.
        """
        try:
            self._done.wait()
        except BaseException:
            self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())
            self._done.wait(INTERRUPT_GRACE)
            raise
        if self._error is not None:
            raise self._error
        return self._value


async def _batches(
    run: Run | None, start: Callable[[Any], Map[Any, Any]]
) -> AsyncGenerator[list[Outcome[Any]], None]:
    """Yield outcomes in lists: all that are ready go to the caller's thread together."""
    async with (
        contextlib.nullcontext() if run is None else run as opened,
        start(opened) as outcomes,
    ):
        async for batch in outcomes.batches(BATCH_OUTCOMES):
            yield batch


class _Background:
    """One event loop in a daemon thread, for all calls of code that isn't async.

    They share it, so that they can share limits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop; it is started at the first call, and again in a forked child."""
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
                threading.Thread(
                    target=self._loop.run_forever, name="abreast-loop", daemon=True
                ).start()
            return self._loop


_background = _Background()
