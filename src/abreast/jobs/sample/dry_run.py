"""The dry run of a sample: what it may cost, before anything is spent."""

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Final

from abreast.executors.tasks import is_async
from abreast.jobs.sample.checks import Judge
from abreast.jobs.sample.job import BreadthDepth, RequestSettings
from abreast.jobs.sample.strategies import History, Question, Strategy, Turn
from abreast.models.port import SHORT_REPLY_TOKENS, Model, Request
from abreast.run.calls.model import Caller

PASS_RATE: Final = 0.5
"""The assumed share of draws that pass."""


@dataclass(frozen=True, slots=True)
class SampleDryRun:
    """Requests, tokens and cost: at worst, and as expected if each draw passes with `pass_rate`.

    Breadth multiplies the worst case: `breadth` branches of `depth` rounds make up to `breadth *
    depth` draws, each with one more request for every judge. The cost in USD is None where a price
    isn't known.
    """

    breadth: int
    depth: int
    judges: int
    pass_rate: float
    worst_requests: int
    expected_requests: float
    worst_tokens: int
    expected_tokens: float
    worst_usd: float | None
    expected_usd: float | None


def make_dry_run(
    question: Question,
    draws: RequestSettings,
    strategy: Strategy,
    shape: BreadthDepth,
    pass_rate: float = PASS_RATE,
) -> SampleDryRun:
    """Calculate the dry run. Raises ValueError if `pass_rate` is not between 0 and 1."""
    if not 0.0 <= pass_rate <= 1.0:
        raise ValueError(f"pass_rate must be between 0 and 1, not {pass_rate!r}")
    judges = sum(check.costs for check in question.checks)
    worst = shape.breadth * shape.depth
    expected = _expected_draws(shape, pass_rate, early=strategy.early)
    tokens, usd = _draw_cost(question, draws, strategy)
    verdicts = [
        _verdict_usd(check, tokens) if isinstance(check, Judge) else usd
        for check in question.checks
        if check.costs
    ]
    known = [part for part in (usd, *verdicts) if part is not None]
    each_usd = sum(known) if len(known) == 1 + len(verdicts) else None
    each_tokens = tokens + judges * (tokens + SHORT_REPLY_TOKENS)
    return SampleDryRun(
        shape.breadth,
        shape.depth,
        judges,
        pass_rate,
        worst * (1 + judges),
        expected * (1 + judges),
        worst * each_tokens,
        expected * each_tokens,
        None if each_usd is None else worst * each_usd,
        None if each_usd is None else expected * each_usd,
    )


def _verdict_usd(judge: Judge, tokens: int) -> float | None:
    """Cost of one verdict: the judge reads prompt and answer, and may think before it decides."""
    price = judge.model.price if isinstance(judge.model, Caller) else None
    return None if price is None else price.of(tokens, SHORT_REPLY_TOKENS)


def _expected_draws(shape: BreadthDepth, rate: float, *, early: bool) -> float:
    """The average number of draws: all branches draw round by round until one passes."""
    fails = (1.0 - rate) ** (shape.breadth if early else 1)
    rounds = float(shape.depth) if fails == 1.0 else (1.0 - fails**shape.depth) / (1.0 - fails)
    return rounds * shape.breadth


def _draw_cost(
    question: Question, draws: RequestSettings, strategy: Strategy
) -> tuple[int, float | None]:
    """Tokens and cost of one draw, by the model's own estimate and its price, if known."""
    # A strategy that is async can't be asked here; its first question is likely the prompt.
    asked = None if is_async(strategy.next) else strategy.next(question, History(0))
    turn = asked if isinstance(asked, Turn) else Turn(question.turns())
    if isinstance(asked, Coroutine):
        asked.close()
    request = Request(
        turn.messages,
        system=draws.system,
        max_tokens=draws.max_tokens,
        schema=draws.schema,
        thinking_tokens=draws.thinking_tokens,
    )
    model: Model | str = turn.model or draws.model
    if isinstance(model, str) and draws.open is not None:
        model = draws.open(model)
    if not isinstance(model, Caller):
        return 0, None
    need, _ = model.reserve(request, ())
    return need.tokens, need.usd if model.price is not None else None
