"""`abreast.sample`: what people call.

It checks what it is given, finds the scope, and lets the engine run.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from abreast.core.events import CALL_SETTLED
from abreast.core.outcome import NO_USAGE
from abreast.core.window import whole
from abreast.jobs.sample.branch_order import PICKS, Pick
from abreast.jobs.sample.checks import Check, Function, as_check
from abreast.jobs.sample.dry_run import PASS_RATE, SampleDryRun, plan_sample
from abreast.jobs.sample.job import BreadthDepth, RequestSettings, run_sample
from abreast.jobs.sample.results import SampleResult
from abreast.jobs.sample.strategies import STRATEGIES, Question, Rejection, Strategy
from abreast.limits.budget import Budget
from abreast.models.port import Json, Model
from abreast.models.schema import schema_of
from abreast.run.hooks import name_of
from abreast.run.outcome_record import usage_of
from abreast.run.run import Run

ERRORS: Final = ("raise", "collect")
"""What is done with errors where no draw passed."""
THEIR_WORDS: Final = {
    "loop_budget": "depth",
    "concurrency_budget": "breadth",
    "requirements": "checks",
}
"""Words of others, and ours for the same."""


@dataclass(frozen=True, slots=True)
class SampleJob:
    """A sample, checked and ready to run."""

    question: Question
    draws: RequestSettings
    strategy: Strategy
    shape: BreadthDepth
    name: str = "sample"
    budget: Budget | None = None

    def plan(self, pass_rate: float = PASS_RATE) -> SampleDryRun:
        """What it may cost, before anything is spent."""
        return plan_sample(self.question, self.draws, self.strategy, self.shape, pass_rate)

    async def run(self, within: Run) -> SampleResult:
        """Do it within a run, under its own name."""
        job = await self._decided(within)
        async with AsyncExitStack() as stack:
            scope = await stack.enter_async_context(within.child(job.name, budget=job.budget))
            await _charge(scope)
            return await run_sample(scope, job.question, job.draws, job.strategy, job.shape)

    async def _decided(self, within: Run) -> SampleJob:
        """The job as the run's deciders want it: `before_sample` may change breadth and depth."""
        shape = self.shape
        for hook in within.setting.hooks:
            decide = getattr(hook, "before_sample", None)
            if decide is None:
                continue
            answer = decide(replace(self, shape=shape).plan())
            answer = await answer if inspect.isawaitable(answer) else answer
            if answer is not None:
                shape = _changed(shape, answer, f"before_sample of {name_of(hook)}")
        return replace(self, shape=shape)


def make_job(
    prompt: str,
    model: Model,
    *,
    checks: Sequence[object] = (),
    breadth: int = 1,
    depth: int = 1,
    strategy: Strategy | str | None = None,
    pick: Pick = "ordered",
    on_error: Literal["raise", "collect"] = "raise",
    system: str | None = None,
    schema: Mapping[str, Json] | type | None = None,
    temperature: float | None = None,
    max_tokens: int | None = None,
    seed: int | None = None,
    explain: bool = False,
    name: str = "sample",
    budget: Budget | str | None = None,
    **theirs: Any,
) -> SampleJob:
    """Check all that is given, before anything is drawn.

    A ValueError or TypeError says what can't be.

    Args:
        prompt: what is asked.
        model: who is asked; `abreast.sample` takes a name too.
        checks: what a draw must be: functions, schemas, pydantic models, or those of `abreast.checks`. Without any,
            the first draw wins.
        breadth: how many branches draw side by side. It multiplies the worst-case number of paid requests by as much
            (up to `breadth * depth` draws, judges beside them), and a provider that limits rates will answer 429
            sooner: those pause the lane and use up no round.
        depth: how many rounds each branch has: the first draw, and `depth - 1` repairs.
        strategy: what to ask next, and which draw to choose: Rejection (default), Repair, MultiTurn, Vote, BestOf,
            Escalate, your own, or a name such as "repair".
        pick: "ordered" gives the least (round, branch) that passes, the same whatever the delays; "first" gives
            whichever passes first in time, which depends on timing.
        on_error: "raise" where nothing passed and something raised; "collect" returns the errors with the result. A
            reply that is declined, empty, broken or not by the schema uses its round and is repaired; what concerns
            every draw, such as a refused key, is raised only if no draw before it in (round, branch) order passed.
        system: what stands before the prompt.
        schema: a JSON schema or pydantic model for the replies.
        temperature: how freely to choose; the provider's default, or 0.8 for several draws from an embedded model.
        max_tokens: the longest reply.
        seed: makes draws repeatable on its own; by default the run's, at the sample's place.
        explain: run all checks on every draw, also after one has failed.
        name: the sample's part of the path; once per scope.
        budget: a cap for draws, judges and repairs together.
        theirs: nothing; a word of another library gets an error that says ours.
    """
    for word in theirs:
        if word in THEIR_WORDS:
            raise TypeError(f"{word} is called {THEIR_WORDS[word]} here")
        raise TypeError(f"a sample has no option {word!r}")
    if not prompt.strip():
        raise ValueError("the prompt is empty")
    if pick not in PICKS:
        raise ValueError(f"pick must be one of {', '.join(PICKS)}, not {pick!r}")
    if on_error not in ERRORS:
        raise ValueError(f"on_error must be {' or '.join(ERRORS)}, not {on_error!r}")
    made = tuple(_named(as_check(one), number) for number, one in enumerate(checks, 1))
    names = [one.name for one in made]
    if len(set(names)) < len(names):
        twice = next(one for one in names if names.count(one) > 1)
        raise ValueError(f"two checks are called {twice!r}; give each a name of its own")
    shape = BreadthDepth(
        whole("breadth", breadth), whole("depth", depth), pick, on_error == "collect", explain
    )
    draws = RequestSettings(
        model, system, None if schema is None else schema_of(schema), temperature, max_tokens, seed
    )
    own = Budget.parse(budget) if isinstance(budget, str) else budget
    return SampleJob(Question(prompt, made), draws, _strategy(strategy), shape, name, own)


async def _charge(scope: Run) -> None:
    """Let a resumed sample's own budget go on from what the calls beneath it have used up already."""
    setting, budget = scope.setting, scope.budget
    scribe, store, row = setting.scribe, setting.store, setting.row
    if budget is None or not setting.resumed or scribe is None or store is None or row is None:
        return
    prefix = f"{scope.path}/"
    found = await scribe.read(
        lambda: store.events(row.id, kinds={CALL_SETTLED}, prefix=prefix, limit=1_000_000)
    )
    used = sum((usage_of(event.data) for event in found), NO_USAGE)
    tokens = used.input_tokens + used.output_tokens
    budget.restore({"requests": used.requests, "tokens": tokens, "usd": used.usd or 0.0})


def _named(one: Check, number: int) -> Check:
    """A check without a name goes by its place."""
    return (
        replace(one, name=f"check {number}")
        if isinstance(one, Function) and one.name == "<lambda>"
        else one
    )


def _strategy(given: Strategy | str | None) -> Strategy:
    if given is None:
        return Rejection()
    if isinstance(given, str):
        if given not in STRATEGIES:
            raise ValueError(f"there is no strategy {given!r}; there are {', '.join(STRATEGIES)}")
        return STRATEGIES[given]()
    return given


def _changed(shape: BreadthDepth, answer: object, hook: str) -> BreadthDepth:
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
