"""`abreast.sample`: a sample with its models, within a run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from abreast.assembly.names import as_caller, open_model, open_run
from abreast.core.seeds import derive_seed
from abreast.run.current import current_item
from abreast.run.run import Run

if TYPE_CHECKING:
    from abreast.jobs.sample.arguments import SampleJob
    from abreast.jobs.sample.dry_run import SampleDryRun
    from abreast.jobs.sample.results import SampleResult
    from abreast.models.conversation import MessageLike
    from abreast.models.port import Model
    from abreast.run.calls.model import Caller


async def sample(
    prompt: str | None = None,
    *,
    messages: Sequence[MessageLike] | None = None,
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
        prompt: the user message, the last one.
        messages: the turns before it, or all turns where there is no prompt: `Message`s, or
            mappings with `role` and `content`.
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
        job = _sample_job(prompt, model, judge, {**options, "messages": messages}, _opener(stack))
        item = current_item()
        within = run if run is not None else item.run if item is not None else None
        if within is None:
            # The seed is derived from the prompt, so that the same question draws the same again.
            within = await stack.enter_async_context(
                open_run(job.name, seed=derive_seed(0, job.question.task))
            )
            job = replace(job, name="draws")
        return await job.run(within)


def plan_sample(
    prompt: str | None = None,
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
    prompt: str | None,
    model: str | Model | Caller,
    judge: str | Model | Caller | None,
    options: dict[str, Any],
    open_caller: Callable[[str | Model | Caller], Caller],
) -> SampleJob:
    """Make the sample job with every model open: its own, its judges', and its strategy's."""
    from abreast.jobs.sample.arguments import make_job
    from abreast.jobs.sample.check_texts import as_checks
    from abreast.jobs.sample.checks import Judge
    from abreast.jobs.sample.strategies import Escalate

    options, caller = dict(options), open_caller(model)
    judge_caller = caller if judge is None else open_caller(judge)
    options["checks"] = [
        replace(check, model=judge_caller if check.model is None else open_caller(check.model))
        if isinstance(check, Judge)
        else check
        for check in as_checks(options.get("checks", ()))
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
