"""`abreast.sample`: a sample with its models, within a run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Never

from abreast.assembly.names import as_caller, open_model, open_run
from abreast.core.seeds import derive_seed
from abreast.run.current import current_item
from abreast.run.run import Run

if TYPE_CHECKING:
    from abreast.jobs.sample.arguments import SampleJob
    from abreast.jobs.sample.branch_order import Pick
    from abreast.jobs.sample.dry_run import SampleDryRun
    from abreast.jobs.sample.results import SampleResult
    from abreast.jobs.sample.strategies import Strategy, StrategyFunction
    from abreast.limits.budget import Budget
    from abreast.models.conversation import MessageLike
    from abreast.models.media import MediaSource
    from abreast.models.port import Effort, Model, V
    from abreast.run.calls.model import Caller


async def sample(
    prompt: str | None = None,
    *,
    messages: Sequence[MessageLike] | None = None,
    model: str | Model | Caller = "local/smollm2",
    checks: Sequence[object] = (),
    breadth: int = 1,
    depth: int = 1,
    strategy: Strategy | StrategyFunction | str | None = None,
    pick: Pick = "ordered",
    judge: str | Model | Caller | None = None,
    on_error: Literal["raise", "collect"] = "raise",
    system: str | None = None,
    schema: type[V] | Mapping[str, object] | None = None,
    temperature: float | None = None,
    max_tokens: int | None = None,
    reasoning: Effort | None = None,
    thinking_tokens: int | None = None,
    seed: int | None = None,
    explain: bool = False,
    files: Sequence[MediaSource] = (),
    warm: bool = False,
    run: Run | None = None,
    name: str = "sample",
    budget: Budget | str | None = None,
    **theirs: Never,
) -> SampleResult[V]:
    """Draw from a model, check and repair the draws, until one passes.

        colour = checks.regex("^(red|green|blue)$")
        result = await abreast.sample("Name a colour.", checks=[colour], breadth=4, depth=3)
        result.text, result.ok, result.winner, result.attempts, result.usage

    There are `breadth` branches of `depth` rounds each.

    The winner is the least (round, branch) that passes: the same whatever the delays, unless
    `pick="first"` asks for whichever passes first in time. Breadth costs: up to `breadth * depth`
    paid draws, and 429s come sooner; see `dry_run_sample`.

    Args:
        prompt: the user message, the last one.
        messages: the turns before it, or all turns where there is no prompt: `Message`s, or
            mappings with `role` and `content`.
        model: a name such as "openai/gpt-4o-mini", or a model that is open already.
        checks: what a draw must satisfy: functions, schemas, pydantic models, those of
            `abreast.checks`, or texts as of `--check`. Without any, the first draw wins.
        breadth: how many branches draw side by side.
        depth: how many rounds each branch has: the first draw, and `depth - 1` repairs.
        strategy: what to ask next, and which draw to choose: one of `abreast.strategies`, your own,
            a name such as "repair", or a function of the question and the history, plain or async.
        pick: "ordered" chooses the least (round, branch) that passes; "first" the draw that passes
            first in time, which depends on timing.
        judge: the model for checks that ask a model and name none; by default the same model.
        on_error: "raise" where nothing passed and something raised; "collect" returns the errors
            with the result.
        system: the system prompt.
        schema: a JSON schema for the replies, or a pydantic model's class: then `result.value` is
            an instance of it.
        temperature: the sampling temperature; the provider's default, or 0.8 for several draws from
            an embedded model.
        max_tokens: the longest reply.
        reasoning: how much to think before each: none, minimal, low, medium, high, xhigh or max.
        thinking_tokens: the most tokens to think with, beside `max_tokens`.
        seed: a seed of the sample's own; by default the run's, at the sample's place.
        explain: run all checks on every draw, also after one has failed.
        files: images and PDF files that go with the prompt, as paths or `MediaFile`s; judges get
            them too.
        warm: send one draw ahead, so that the others find a long prompt in the provider's cache.
        run: the run that it belongs to; by default the run of the current item, else one in memory.
        name: the sample's part of the path; unique in its scope.
        budget: a limit for draws, judges and repairs together.
        **theirs: none; a keyword of another library gets an error that names abreast's.

    Raises:
        ValueError, TypeError: an option is invalid; nothing was drawn.
        BranchesFailed: no draw passed and some raised (at breadth 1: what was raised).
        BudgetSpent: the cap is reached.
    """
    async with contextlib.AsyncExitStack() as stack:
        job = _sample_job(
            prompt,
            model,
            judge,
            _opener(stack),
            warm=warm,
            messages=messages,
            checks=checks,
            breadth=breadth,
            depth=depth,
            strategy=strategy,
            pick=pick,
            on_error=on_error,
            system=system,
            schema=schema,
            temperature=temperature,
            max_tokens=max_tokens,
            reasoning=reasoning,
            thinking_tokens=thinking_tokens,
            seed=seed,
            explain=explain,
            files=files,
            name=name,
            budget=budget,
            **theirs,
        )
        item = current_item()
        within = run if run is not None else item.run if item is not None else None
        if within is None:
            # The seed is derived from the prompt, so that the same question draws the same again.
            within = await stack.enter_async_context(
                open_run(job.name, seed=derive_seed(0, job.question.task))
            )
            job = replace(job, name="draws")
        result: SampleResult[Any] = await job.run(within)
        return result


def dry_run_sample(
    prompt: str | None = None,
    *,
    messages: Sequence[MessageLike] | None = None,
    pass_rate: float = 0.5,
    model: str | Model | Caller = "local/smollm2",
    checks: Sequence[object] = (),
    breadth: int = 1,
    depth: int = 1,
    strategy: Strategy | StrategyFunction | str | None = None,
    judge: str | Model | Caller | None = None,
    system: str | None = None,
    schema: type | Mapping[str, object] | None = None,
    max_tokens: int | None = None,
    thinking_tokens: int | None = None,
    files: Sequence[MediaSource] = (),
    **theirs: Never,
) -> SampleDryRun:
    """Return what a sample may cost at worst, and as expected, before anything is spent.

        abreast.dry_run_sample("Name a colour.", breadth=4, depth=3).worst_requests     # 12

    Args:
        prompt: the user message, the last one.
        messages: the turns before it, or all turns where there is no prompt.
        pass_rate: the share of draws that is assumed to pass.
        model: a name such as "openai/gpt-4o-mini", or a model that is open already.
        checks: what a draw must satisfy; those that ask a model cost a request for each draw.
        breadth: how many branches draw side by side.
        depth: how many rounds each branch has.
        strategy: what to ask next; strategies that wait for every branch draw more.
        judge: the model for checks that ask a model and name none; by default the same model.
        system: the system prompt.
        schema: a JSON schema or a pydantic model's class for the replies.
        max_tokens: the longest reply.
        thinking_tokens: the most tokens to think with, beside `max_tokens`.
        files: images and PDF files that go with the prompt.
        **theirs: none; a keyword of another library gets an error that names abreast's.

    Raises ValueError or TypeError for an option that is invalid.
    """
    job = _sample_job(
        prompt,
        model,
        judge,
        _opener(),
        messages=messages,
        checks=checks,
        breadth=breadth,
        depth=depth,
        strategy=strategy,
        system=system,
        schema=schema,
        max_tokens=max_tokens,
        thinking_tokens=thinking_tokens,
        files=files,
        **theirs,
    )
    return job.dry_run(pass_rate)


def _sample_job(
    prompt: str | None,
    model: str | Model | Caller,
    judge: str | Model | Caller | None,
    open_caller: Callable[[str | Model | Caller], Caller],
    *,
    checks: Sequence[object],
    strategy: Strategy | StrategyFunction | str | None,
    warm: bool = False,
    **options: Any,
) -> SampleJob:
    """Make the sample job with every model open: its own, its judges', and its strategy's."""
    from abreast.jobs.sample.arguments import make_job
    from abreast.jobs.sample.check_texts import as_checks
    from abreast.jobs.sample.checks import Judge
    from abreast.jobs.sample.strategies import Escalate

    caller = open_caller(model).warmed() if warm else open_caller(model)
    judge_caller = caller if judge is None else open_caller(judge)
    opened = [
        replace(check, model=judge_caller if check.model is None else open_caller(check.model))
        if isinstance(check, Judge)
        else check
        for check in as_checks(checks)
    ]
    if isinstance(strategy, Escalate):
        strategy = replace(strategy, slow=open_caller(strategy.slow))
    job = make_job(prompt, caller, checks=opened, strategy=strategy, **options)
    return replace(job, draws=replace(job.draws, open=open_caller, marks_prompt=warm))


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
