"""The arguments of `abreast.sample`: validates them and makes a job that runs within a run."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self

from abreast.core.events import CALL_SETTLED
from abreast.core.outcome import NO_USAGE
from abreast.core.window import whole
from abreast.jobs.sample.branch_order import PICKS, Pick
from abreast.jobs.sample.check_texts import as_checks
from abreast.jobs.sample.dry_run import PASS_RATE, SampleDryRun, make_dry_run
from abreast.jobs.sample.job import BreadthDepth, RequestSettings, run_sample
from abreast.jobs.sample.results import SampleResult
from abreast.jobs.sample.strategies import (
    STRATEGIES,
    FunctionStrategy,
    Question,
    Rejection,
    Strategy,
    StrategyFunction,
)
from abreast.limits.budget import Budget
from abreast.models.conversation import MessageLike, make_conversation
from abreast.models.media import MediaSource
from abreast.models.port import Effort, Model, check_effort
from abreast.models.schema import schema_of
from abreast.run.map.hooks import name_of
from abreast.run.outcome_record import usage_of
from abreast.run.run import Run

ERRORS: Final = ("raise", "collect")
"""The values of `on_error`: what is done with errors where no draw passed."""
THEIR_WORDS: Final = {
    "loop_budget": "depth",
    "concurrency_budget": "breadth",
    "requirements": "checks",
}
"""Keywords of other libraries, and abreast's keyword for the same."""


@dataclass(frozen=True, slots=True)
class SampleJob:
    """A sample, checked and ready to run."""

    question: Question
    draws: RequestSettings
    strategy: Strategy
    shape: BreadthDepth
    name: str = "sample"
    budget: Budget | None = None

    def dry_run(self, pass_rate: float = PASS_RATE) -> SampleDryRun:
        """Return the dry run: what the sample may cost, before anything is spent."""
        return make_dry_run(self.question, self.draws, self.strategy, self.shape, pass_rate)

    async def run(self, within: Run) -> SampleResult[Any]:
        """Run the sample within a run, under its own name."""
        job = await self._after_hooks(within)
        async with within.child(job.name, budget=job.budget) as scope:
            await _restore_budget(scope)
            return await run_sample(scope, job.question, job.draws, job.strategy, job.shape)

    async def _after_hooks(self, within: Run) -> Self:
        """Return the job after the `before_sample` hooks, which may change breadth and depth."""
        shape = self.shape
        for hook in within.context.hooks:
            decide = getattr(hook, "before_sample", None)
            if decide is None:
                continue
            answer = decide(replace(self, shape=shape).dry_run())
            answer = await answer if inspect.isawaitable(answer) else answer
            if answer is not None:
                shape = _apply_hook_answer(shape, answer, f"before_sample of {name_of(hook)}")
        return replace(self, shape=shape)


def make_job(
    prompt: str | None,
    model: Model,
    *,
    messages: Sequence[MessageLike] | None = None,
    checks: Iterable[object] = (),
    breadth: int = 1,
    depth: int = 1,
    strategy: Strategy | StrategyFunction | str | None = None,
    pick: Pick = "ordered",
    on_error: Literal["raise", "collect"] = "raise",
    system: str | None = None,
    schema: Mapping[str, object] | type | None = None,
    temperature: float | None = None,
    max_tokens: int | None = None,
    reasoning: Effort | None = None,
    thinking_tokens: int | None = None,
    seed: int | None = None,
    explain: bool = False,
    name: str = "sample",
    budget: Budget | str | None = None,
    files: Sequence[MediaSource] = (),
    folder: str = "",
    **theirs: Any,
) -> SampleJob:
    """Validate the arguments, before anything is drawn.

    Raises ValueError or TypeError for arguments that are not valid.

    Args:
        prompt: the question for the model.
        messages: the turns before the prompt, or all turns where there is no prompt: `Message`s, or
            mappings with `role` and `content`. The last one is of the user.
        model: the model to draw from; `abreast.sample` takes a name too.
        checks: what a draw must satisfy: functions (plain or async), texts as the command line
            has them ("max-words 20", "judge: is polite"), schemas, pydantic models, or those of
            `abreast.checks`. Without any, the first draw wins.
        breadth: how many branches draw side by side. It multiplies the worst-case number of paid
            requests (up to `breadth * depth` draws, judges besides), and a provider that limits
            rates will answer 429 sooner: such replies pause the lane and use up no round.
        depth: how many rounds each branch has: the first draw, and `depth - 1` repairs.
        strategy: what to ask next, and which draw to choose: Rejection (default), Repair,
            MultiTurn, Vote, BestOf, Escalate, your own, a name such as "repair", or a function of
            the question and the branch's history, plain or async, that returns what to ask.
        pick: "ordered" chooses the least (round, branch) that passes, the same whatever the delays;
            "first" chooses the draw that passes first in time, which depends on timing.
        on_error: "raise" where nothing passed and something raised; "collect" returns the errors
            with the result. A reply that is declined, empty, broken or not valid by the schema uses
            its round and is repaired; an error that concerns every draw, such as a refused key, is
            raised only if no draw before it in (round, branch) order passed.
        system: the system prompt.
        schema: a JSON schema or pydantic model for the replies.
        temperature: the sampling temperature; the provider's default, or 0.8 for several draws from
            an embedded model.
        max_tokens: the longest reply.
        reasoning: how much to think before each: none, minimal, low, medium, high, xhigh or max.
        thinking_tokens: the most tokens to think with, beside `max_tokens`.
        seed: a seed of the sample's own; by default the run's, at the sample's place.
        explain: run all checks on every draw, also after one has failed.
        name: the sample's part of the path; unique in its scope.
        budget: a limit for draws, judges and repairs together.
        files: images and PDF files that go with the prompt, as paths or `MediaFile`s; judges get
            them too.
        folder: the directory from which paths count; by default the current one.
        theirs: none; a keyword of another library gets an error that names abreast's.
    """
    for word in theirs:
        ours = THEIR_WORDS.get(word)
        raise TypeError(
            f"{word} is called {ours} here" if ours else f"a sample has no option {word!r}"
        )
    *before, last = make_conversation(prompt, messages, files, system=system, folder=folder)
    if last.role != "user":
        raise ValueError(
            f"messages[{len(before)}], the last, is of a tool; a sample goes on from a user message"
        )
    if not last.content.strip():
        raise ValueError("the prompt is empty")
    if pick not in PICKS:
        raise ValueError(f"pick must be one of {', '.join(PICKS)}, not {pick!r}")
    if on_error not in ERRORS:
        raise ValueError(f"on_error must be {' or '.join(ERRORS)}, not {on_error!r}")
    made = as_checks(checks)
    shape = BreadthDepth(
        whole("breadth", breadth), whole("depth", depth), pick, on_error == "collect", explain
    )
    draws = RequestSettings(
        model,
        system,
        None if schema is None else schema_of(schema),
        temperature,
        max_tokens,
        seed,
        reply_type=schema if isinstance(schema, type) else None,
        reasoning=check_effort(reasoning),
        thinking_tokens=None
        if thinking_tokens is None
        else whole("thinking_tokens", thinking_tokens, least=0),
    )
    own = Budget.parse(budget) if isinstance(budget, str) else budget
    question = Question(last.content, made, last.files, tuple(before))
    return SampleJob(question, draws, _strategy_from(strategy), shape, name, own)


async def _restore_budget(scope: Run) -> None:
    """Charge a resumed sample's own budget with what the calls beneath it have used already."""
    context, budget = scope.context, scope.budget
    writer, store, row = context.writer, context.store, context.row
    if budget is None or not context.resumed or writer is None or store is None or row is None:
        return
    prefix = f"{scope.path}/"
    found = await writer.read(
        lambda: store.events(row.id, kinds={CALL_SETTLED}, prefix=prefix, limit=1_000_000)
    )
    used = sum((usage_of(event.data) for event in found), NO_USAGE)
    budget.restore(
        {
            "requests": used.requests,
            "tokens": used.input_tokens + used.output_tokens,
            "usd": used.usd or 0.0,
        }
    )


def _strategy_from(given: Strategy | StrategyFunction | str | None) -> Strategy:
    if given is None:
        return Rejection()
    if not isinstance(given, str):
        if hasattr(given, "next") and hasattr(given, "select"):
            return given  # type: ignore[return-value] # it has the methods of a strategy
        if isinstance(given, type) or not callable(given):
            raise TypeError(
                f"a strategy is a name, one of abreast.strategies or a function, not {given!r:.60}"
            )
        return FunctionStrategy(given)
    if given not in STRATEGIES:
        raise ValueError(f"there is no strategy {given!r}; there are {', '.join(STRATEGIES)}")
    return STRATEGIES[given]()


def _apply_hook_answer(shape: BreadthDepth, answer: object, hook: str) -> BreadthDepth:
    if not isinstance(answer, Mapping):
        raise ValueError(f"{hook} must answer None or a mapping of numbers, not {answer!r}")
    for word in answer:
        if word not in ("breadth", "depth"):
            raise ValueError(f"{hook} may change breadth and depth, not {word!r}")
    try:
        breadth, depth = answer.get("breadth", shape.breadth), answer.get("depth", shape.depth)
        return replace(shape, breadth=whole("breadth", breadth), depth=whole("depth", depth))
    except ValueError as error:
        raise ValueError(f"{hook} answered with a number that can't be: {error}") from None
