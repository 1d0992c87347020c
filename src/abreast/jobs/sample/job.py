"""Runs a sample: branches side by side, each drawing, checking and repairing until one passes.

BranchOrder (pure: which branches may continue)
  <- branch (an item of a map: its rounds)
  <- draw -> model (lane, budget, journal)
          `-> DrawChecker (free checks, then models)
"""

import asyncio
import operator
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Final

from abreast.agents.model import agent_facts
from abreast.core.errors import (
    AbreastError,
    BranchesFailed,
    BudgetSpent,
    Refused,
    ReplyBroken,
    ReplyInvalid,
)
from abreast.core.outcome import NO_USAGE, Done, Usage
from abreast.core.seeds import derive_seed
from abreast.executors.port import BoundCall
from abreast.executors.tasks import is_async
from abreast.jobs.sample.branch_order import BranchOrder, Pick
from abreast.jobs.sample.check_draw import DrawChecker
from abreast.jobs.sample.draw_context import (
    CURRENT_DRAW,
    DRAW_ENDED,
    DRAW_STARTED,
    SAMPLE_ENDED,
    SAMPLE_STARTED,
    DrawContext,
)
from abreast.jobs.sample.results import (
    CheckVerdict,
    Concern,
    SampleAttempt,
    SampleResult,
    by_branch,
    concern_of,
    count,
    error_from,
    error_text,
    split_usage,
)
from abreast.jobs.sample.strategies import (
    BestOf,
    Escalate,
    FunctionStrategy,
    History,
    MultiTurn,
    Question,
    Rejection,
    Repair,
    Strategy,
    Turn,
    as_turn,
    passed,
)
from abreast.models.port import Effort, Json, Model, Reply, Request, is_greedy
from abreast.models.schema import as_model
from abreast.run.calls.journal import digest_of
from abreast.run.context import GRACE
from abreast.run.current import current_item
from abreast.run.map.hooks import name_of
from abreast.run.run import Run

_SEED_BITS: Final = 31
# Strategies that call no function of the user: they need no thread.
_WITHOUT_FUNCTIONS: Final = frozenset({Rejection, Repair, MultiTurn, Escalate})
_REASON_CHARACTERS: Final = 500  # in an event
MAX_DRAWS: Final = 100_000
"""The largest number of draws of one sample, `breadth * depth`."""
GREEDY_MODEL_TEMPERATURE: Final = 0.8
"""The default temperature of several draws from a model that would answer the same each time."""


class SameAnswers(UserWarning):
    """All branches drew the same text in spite of their seeds: breadth only costs more here."""


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """The model of a draw, and the settings of each request besides its messages."""

    model: Model
    system: str | None = None
    schema: Mapping[str, Json] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    """By default derived from the run's seed and the sample's path.

    Each branch and round gets a seed of its own, derived from it.
    """
    open: Callable[[str], Model] | None = None
    """Opens a model that a strategy names; called once for each name."""
    reply_type: type | None = None
    """The pydantic model of which `schema` is; it checks replies too."""
    reasoning: Effort | None = None
    thinking_tokens: int | None = None
    worktrees: str | None = None
    """The lane that lends each branch a worktree."""
    marks_prompt: bool = False
    """Whether the provider is asked to cache the prompt, for the draws that have the same one."""
    seed_path: str | None = None
    """The path from which seeds are derived, if that of the sample was another one before."""


@dataclass(frozen=True, slots=True)
class BreadthDepth:
    """The number of branches and rounds, and how the winner is found."""

    breadth: int
    depth: int
    pick: Pick = "ordered"
    collect: bool = False
    explain: bool = False

    def __post_init__(self) -> None:
        """Refuse an absurd number of draws before it takes up memory."""
        if self.breadth * self.depth > MAX_DRAWS:
            size = f"breadth {self.breadth:,} x depth {self.depth:,}"
            raise ValueError(
                f"{size} is {self.breadth * self.depth:,} draws; a sample has at most {MAX_DRAWS:,}"
            )


@dataclass(slots=True)
class _Ledger:
    """The attempts and errors so far, of all branches."""

    attempts: dict[tuple[int, int], SampleAttempt] = field(default_factory=dict)
    errors: dict[tuple[int, int], BaseException] = field(default_factory=dict)
    first: list[str] = field(default_factory=list)  # the texts of the first round
    warned: bool = False

    def add(self, attempt: SampleAttempt, error: BaseException | None = None) -> None:
        """Add a draw that has ended."""
        self.attempts[attempt.place] = attempt
        if error is not None:
            self.errors[attempt.place] = error

    def restore(self, recorded: Sequence[Mapping[str, Any]]) -> list[SampleAttempt]:
        """Add the draws of a branch that were recorded by an earlier process."""
        attempts = [SampleAttempt.of(plain) for plain in recorded]
        for attempt in attempts:
            if attempt.place not in self.attempts:
                self.add(attempt, None if attempt.error is None else error_from(attempt.error))
        return attempts

    def concern(self, attempt: SampleAttempt) -> Concern:
        """What the error of an attempt concerns; by its type, in records that do not say it."""
        return attempt.concerns or concern_of(self.errors[attempt.place])


@dataclass(slots=True)
class _DrawInProgress:
    context: DrawContext
    seed: int
    state: Any = "failed"
    model: str = ""
    reply: Reply | None = None
    verdicts: tuple[CheckVerdict, ...] = ()

    def attempt(self, used: Usage, error: BaseException | None) -> SampleAttempt:
        """Return the record of this draw."""
        reply = self.reply
        return SampleAttempt(
            self.context.branch,
            self.context.round,
            self.context.number,
            self.state,
            # The text of a reply that breaks the schema is for the repair.
            text=reply.text if reply else error.raw if isinstance(error, ReplyInvalid) else "",
            value=reply.value if reply else None,
            verdicts=self.verdicts,
            usage=used,
            seed=self.seed,
            error=None if error is None else error_text(error),
            seconds=reply.seconds if reply else 0.0,
            model=self.model,
            concerns=None if error is None else concern_of(error),
            work=agent_facts(reply) or None if reply else None,
        )


async def run_sample(
    scope: Run, question: Question, draws: RequestSettings, strategy: Strategy, shape: BreadthDepth
) -> SampleResult[Any]:
    """Run a sample in a scope that nothing else uses. Raises what a sample raises."""
    sampler = _Sampler(scope, question, draws, strategy, shape)
    async with sampler.lifecycle_events():
        return await sampler.run()


class _Sampler:
    def __init__(
        self,
        scope: Run,
        question: Question,
        draws: RequestSettings,
        strategy: Strategy,
        shape: BreadthDepth,
    ) -> None:
        self._scope = scope
        self._question = question
        self._draws = draws
        self._strategy = strategy
        self._shape = shape
        self._ledger = _Ledger()
        self._order = BranchOrder(shape.breadth, shape.depth, shape.pick, early=strategy.early)
        self._seed = (
            scope.context.seed_of(draws.seed_path or scope.path)
            if draws.seed is None
            else derive_seed(draws.seed, "sample")
        )
        self._map: Any = None
        self._winner: SampleAttempt | None = None
        self._models_by_name: dict[str, Model] = {}  # models that the strategy has named
        # Threads of the run's own executor: they see the draw's context and end with the sample.
        self._threads: BoundCall[Any, Any] = scope.context.executor("local").bind(
            operator.call, shape.breadth
        )
        self._checker = DrawChecker(question, self._threads, explain=shape.explain)

    @asynccontextmanager
    async def lifecycle_events(self) -> AsyncIterator[None]:
        """Emit one event at the start, and one at the end with the result, also after an error."""
        shape = self._shape
        facts = {
            "breadth": shape.breadth,
            "depth": shape.depth,
            "checks": len(self._question.checks),
        }
        self._scope.note(SAMPLE_STARTED, facts)
        try:
            yield
        finally:
            for name in await self._threads.close(GRACE):
                warnings.warn(
                    f"{self._scope.path}: {name} can't be stopped and is still running",
                    stacklevel=2,
                )
            item = current_item()
            if item is not None:  # but for the draws past the deciding one
                item.add_usage(self._split_usage()[0])
            counts = count(list(self._ledger.attempts.values()))
            winner = self._winner
            ended = {
                "ok": winner is not None and winner.state == "passed",
                **asdict(counts),
                "winner": None if winner is None else winner.number,
            }
            self._scope.note(SAMPLE_ENDED, ended)

    def _split_usage(self) -> tuple[Usage, Usage]:
        return split_usage(
            list(self._ledger.attempts.values()), self._order.best or self._order.broken
        )

    # --- branches

    async def run(self) -> SampleResult[Any]:
        breadth, asked = self._shape.breadth, self._asked()
        async with self._scope.map(
            self._branch,
            # What was drawn about another question is not used when the sample is resumed.
            ((branch, asked) for branch in range(breadth)),
            width=breadth,
            name="branch",
            on_change="rerun",
            hold=self._draws.worktrees,
        ) as branches:
            self._map = branches
            branches.leave_usage()  # a branch may have draws past the winner
            async for outcome in branches:
                attempts = self._ledger.restore(outcome.value) if isinstance(outcome, Done) else []
                self._branch_ended(outcome.index, attempts[-1] if attempts else None)
        return await self._result(branches.timing_dependent)

    def _branch_ended(self, branch: int, last: SampleAttempt | None) -> None:
        """Record that a branch ended with that draw, now or before a resume; stop those beaten."""
        order = self._order
        if last is not None and last.state == "passed":
            beaten = order.passed(branch, last.round)
        elif last is not None and last.state == "error" and self._ledger.concern(last) == "sample":
            beaten = order.broke(branch, last.round)
        else:
            beaten = order.ended(branch)
        why = (
            "another draw passed"
            if order.broken is None
            else "another draw met an error that concerns all"
        )
        for other in beaten:
            self._map.cancel(other, why)

    def _asked(self) -> str:
        """Return a digest of what is asked and checked: another one makes other draws."""
        draws, strategy = self._draws, self._strategy
        request = Request(
            self._question.turns(),
            system=draws.system,
            temperature=draws.temperature,
            seed=draws.seed,
            max_tokens=draws.max_tokens,
            schema=draws.schema,
            extra={
                "checks": [check.name for check in self._question.checks],
                "strategy": [type(strategy).__qualname__, getattr(strategy, "template", "")],
            },
            reasoning=draws.reasoning,
            thinking_tokens=draws.thinking_tokens,
        )
        return digest_of(draws.model.name, request)

    async def _branch(self, value: tuple[int, str]) -> list[dict[str, Any]]:
        """Draw, check and repair, until a draw passes or the rounds are used up."""
        branch = value[0]
        history = History(branch)
        number = 0
        while self._order.may_draw(branch, number):
            context = DrawContext(branch, number, branch * self._shape.depth + number + 1)
            CURRENT_DRAW.set(context)
            attempt = await self._draw(context, history)
            history.attempts.append(attempt)
            if attempt.state == "passed" or attempt.concerns in ("branch", "sample"):
                break
            number += 1
        self._branch_ended(branch, history.last)
        return [attempt.plain() for attempt in history.attempts]

    # --- one draw

    async def _draw(self, context: DrawContext, history: History) -> SampleAttempt:
        item = current_item()
        if item is None:
            raise RuntimeError("a branch is an item of a map")
        item.note(DRAW_STARTED, branch=context.branch, round=context.round, number=context.number)
        seed = derive_seed(self._seed, f"{context.branch}/{context.round}") & (
            (1 << _SEED_BITS) - 1
        )
        before = item.usage or NO_USAGE
        drawn = _DrawInProgress(context, seed)
        error: BaseException | None = None
        try:
            await self._ask_and_check(drawn, history)
        except (asyncio.CancelledError, BudgetSpent):
            drawn.state = "cancelled"
            self._record_attempt(drawn, (item.usage or NO_USAGE) - before, None)
            raise
        except Exception as raised:  # noqa: BLE001 - recorded with the attempt; `_raise` decides
            error = raised
            drawn.state = "error"
        return self._record_attempt(drawn, (item.usage or NO_USAGE) - before, error)

    async def _ask_and_check(self, drawn: _DrawInProgress, history: History) -> None:
        draws = self._draws
        turn = await self._next_turn(history)
        model = self._model(turn.model)
        drawn.model = model.name
        several = self._shape.breadth * self._shape.depth > 1
        default = GREEDY_MODEL_TEMPERATURE if several and is_greedy(model) else None
        request = Request(
            turn.messages,
            system=draws.system,
            temperature=default if draws.temperature is None else draws.temperature,
            seed=drawn.seed,
            max_tokens=draws.max_tokens,
            schema=draws.schema,
            reasoning=draws.reasoning,
            thinking_tokens=draws.thinking_tokens,
            shared_prefix=len(turn.messages[-1].content) if draws.marks_prompt else None,
        )
        drawn.reply = await model.complete(request)
        _check_usable(drawn.reply, model.name)
        if draws.reply_type is not None:
            as_model(draws.reply_type, drawn.reply, f"the reply of {model.name}")
        self._warn_if_same(drawn)
        drawn.verdicts = await self._checker.verdicts(drawn.reply)
        drawn.state = "passed" if all(verdict.ok for verdict in drawn.verdicts) else "failed"

    async def _next_turn(self, history: History) -> Turn:
        strategy = self._strategy
        answer = await self._call(strategy.next, self._question, history)
        name = name_of(strategy.fn if isinstance(strategy, FunctionStrategy) else strategy)
        return as_turn(self._question, answer, name)

    async def _call(self, function: Callable[..., Any], *given: object) -> Any:  # noqa: ANN401 - what the function returns
        """Call a function, in a thread if it may be a plain one of the user."""
        if is_async(function) or type(self._strategy) in _WITHOUT_FUNCTIONS:
            answer = function(*given)
        else:
            answer = await self._threads.async_call(partial(function, *given))
        return await answer if isinstance(answer, Awaitable) else answer

    def _model(self, wanted: Model | str | None) -> Model:
        """Return the model that a strategy wants, opened if it is a name."""
        if not isinstance(wanted, str):
            return wanted or self._draws.model
        if wanted not in self._models_by_name:
            if self._draws.open is None:
                raise ValueError(
                    f"the strategy asks {wanted!r}, and no models are opened by name here"
                )
            self._models_by_name[wanted] = self._draws.open(wanted)
        return self._models_by_name[wanted]

    def _record_attempt(
        self, drawn: _DrawInProgress, used: Usage, error: BaseException | None
    ) -> SampleAttempt:
        attempt = drawn.attempt(used, error)
        self._ledger.add(attempt, error)
        item = current_item()
        if item is not None:
            item.note(
                DRAW_ENDED,
                branch=attempt.branch,
                round=attempt.round,
                number=attempt.number,
                state=attempt.state,
                why=_failure_reason(attempt),
            )
        return attempt

    def _warn_if_same(self, drawn: _DrawInProgress) -> None:
        """Warn if the first draws of all branches are equal: later ones will be equal too."""
        if (
            drawn.context.round
            or self._ledger.warned
            or drawn.reply is None
            or self._shape.breadth == 1
        ):
            return
        first = self._ledger.first
        first.append(drawn.reply.text)
        if len(first) == self._shape.breadth and len(set(first)) == 1:
            self._ledger.warned = True
            warnings.warn(
                f"all {self._shape.breadth} branches drew the same text: {drawn.model} seems to "
                "ignore seeds at this temperature, "
                "so breadth multiplies the cost and brings nothing",
                SameAnswers,
                stacklevel=2,
            )

    # --- the result

    async def _result(self, why: frozenset[str]) -> SampleResult[Any]:
        ledger, order = self._ledger, self._order
        attempts = by_branch(list(ledger.attempts.values()))
        errors = tuple(ledger.errors[place] for place in sorted(ledger.errors))
        usage = sum((attempt.usage for attempt in attempts), NO_USAGE)
        if order.broken is not None and not self._shape.collect:
            self._raise(attempts)
        # It depends on timing which draws after an error for all draws ended: none of them is
        # chosen.
        counted = tuple(
            attempt for attempt in attempts if order.broken is None or attempt.place < order.broken
        )
        winner = await self._select(counted) if order.best is None else ledger.attempts[order.best]
        self._winner = winner
        ok = winner is not None and winner.state == "passed"
        if not ok and errors and not self._shape.collect:
            self._raise(attempts)
        if self._shape.pick == "first":
            why |= {"pick=first"}
        failed = [place for place in ledger.errors if order.broken is None or place <= order.broken]
        self._scope.count_results("draw", done=count(counted).completed, failed=len(failed))
        speculative = self._split_usage()[1]
        parsed = None if winner is None else self._parsed(winner)
        return SampleResult(
            ok, winner, attempts, count(attempts), usage, errors, why, speculative, parsed
        )

    def _parsed(self, attempt: SampleAttempt) -> object:
        """Return its value as an instance of the pydantic model that was asked for, if one was."""
        kind = self._draws.reply_type
        if kind is None or attempt.value is None:
            return None
        return as_model(kind, Reply(attempt.text, attempt.value), f"the reply of {attempt.model}")

    async def _select(self, attempts: tuple[SampleAttempt, ...]) -> SampleAttempt | None:
        drawn = tuple(attempt for attempt in attempts if attempt.state in ("passed", "failed"))
        if not drawn:
            return None
        strategy = self._strategy
        if isinstance(strategy, BestOf):
            scores = {one.place: await self._call(strategy.score, one) for one in passed(drawn)}
            strategy = replace(strategy, score=lambda one: scores[one.place])
        chosen = await self._call(strategy.select, drawn)
        if isinstance(chosen, bool) or (
            chosen is not None and not isinstance(chosen, (int, SampleAttempt))
        ):
            raise TypeError(
                f"{self._strategy!r} must choose an attempt or an index, not {chosen!r}"
            )
        if isinstance(chosen, int):
            if not -len(drawn) <= chosen < len(drawn):
                raise ValueError(
                    f"{self._strategy!r} chose number {chosen} of {len(drawn)} attempts"
                )
            return drawn[chosen]
        return chosen

    def _raise(self, attempts: tuple[SampleAttempt, ...]) -> None:
        """Raise an error for all draws as it is, else the first one.

        With more than one branch, the latter is the cause of a `BranchesFailed`.
        """
        errors, broken = self._ledger.errors, self._order.broken
        first = errors[min(errors) if broken is None else broken]
        if self._shape.breadth == 1 or broken is not None:
            first.attempts = attempts  # type: ignore[attr-defined]
            raise first
        raised = len({branch for _, branch in errors})
        kind = "" if isinstance(first, AbreastError) else f"{type(first).__name__}: "
        raise BranchesFailed(
            f"no branch passed, and {raised} of {self._shape.breadth} raised; "
            f"the first: {kind}{first}",
            attempts,
        ) from first


def _check_usable(reply: Reply, name: str) -> None:
    """Raise for a reply that no check can judge, also where a user's model doesn't."""
    if reply.finish == "refused":
        raise Refused(f"{name} refused to answer", raw=reply.text)
    if not reply.text.strip() and not reply.tool_calls:
        raise ReplyBroken(f"{name} sent an empty reply")


def _failure_reason(attempt: SampleAttempt) -> str | None:
    """Return in one line why an attempt failed; a view has no other source while a branch runs."""
    reason = attempt.error or "; ".join(
        f"{verdict.check}: {verdict.reason}" if verdict.reason else verdict.check
        for verdict in attempt.verdicts
        if not verdict.ok
    )
    return reason[:_REASON_CHARACTERS] or None
