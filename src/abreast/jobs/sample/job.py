"""The one engine of all samples: branches side by side, each drawing, checking and repairing until one passes.

Race (pure: who may go on) <- branch (an item of a map: its rounds) <- draw -> Caller (lane, budget, journal)
                                                                     `-> Judging (free checks, then models)
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

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
from abreast.jobs.sample.branch_order import BranchOrder, Pick, Place
from abreast.jobs.sample.check_draw import Judging
from abreast.jobs.sample.draw_context import HERE, DrawContext
from abreast.jobs.sample.error_scope import Concern, concern_of, error_from, error_text
from abreast.jobs.sample.results import (
    CheckVerdict,
    SampleAttempt,
    SampleResult,
    by_branch,
    count,
    split_usage,
)
from abreast.jobs.sample.strategies import History, Question, Strategy
from abreast.models.port import Json, Model, Reply, Request
from abreast.run.context import GRACE
from abreast.run.current import current_item
from abreast.run.run import Run

SAMPLE_STARTED: Final = "sample-started"
SAMPLE_ENDED: Final = "sample-ended"
DRAW_STARTED: Final = "draw-started"
DRAW_ENDED: Final = "draw-ended"
BRANCHES: Final = "branch"

_SEED_BITS: Final = 31
_LONGEST: Final = 500  # characters of a reason in an event
MOST: Final = 100_000
"""Draws of one sample, at worst."""
WARM: Final = 0.8
"""The temperature of several draws from a model that would say the same each time, unless another is given."""


class SameAnswers(UserWarning):
    """All branches said the same, seeds or not: breadth costs more here and brings nothing."""


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """How a draw is made: the model, and what each request says beside its messages."""

    model: Model
    system: str | None = None
    schema: Mapping[str, Json] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    """By default that of the sample's place in its run.

    Branches and rounds each get their own from it.
    """
    open: Callable[[str], Model] | None = None
    """Opens a model that a strategy names; it is called once for each name."""


@dataclass(frozen=True, slots=True)
class BreadthDepth:
    """How wide and how deep, and how the winner is found."""

    breadth: int
    depth: int
    pick: Pick = "ordered"
    collect: bool = False
    explain: bool = False

    def __post_init__(self) -> None:
        """More draws than anybody can mean are refused before they take up memory."""
        if self.breadth * self.depth > MOST:
            said = f"breadth {self.breadth:,} x depth {self.depth:,}"
            raise ValueError(
                f"{said} is {self.breadth * self.depth:,} draws; a sample has at most {MOST:,}"
            )


@dataclass(slots=True)
class _Ledger:
    """What has happened so far, over all branches."""

    attempts: dict[tuple[int, int], SampleAttempt] = field(default_factory=dict)
    errors: dict[tuple[int, int], BaseException] = field(default_factory=dict)
    first: list[str] = field(default_factory=list)  # the texts of the first round
    warned: bool = False

    def add(self, attempt: SampleAttempt, error: BaseException | None = None) -> None:
        """A draw has ended."""
        self.attempts[attempt.round, attempt.branch] = attempt
        if error is not None:
            self.errors[attempt.round, attempt.branch] = error

    def restore(self, recorded: Sequence[Mapping[str, Any]]) -> list[SampleAttempt]:
        """The draws of a branch that an earlier driver has recorded."""
        attempts = [SampleAttempt.of(plain) for plain in recorded]
        for attempt in attempts:
            if (attempt.round, attempt.branch) not in self.attempts:
                self.add(attempt, None if attempt.error is None else error_from(attempt.error))
        return attempts

    def concern(self, attempt: SampleAttempt) -> Concern:
        """Whom the error of an attempt concerns.

        One recorded before this was noted goes by its type.
        """
        return attempt.concerns or concern_of(self.errors[attempt.round, attempt.branch])


async def run_sample(
    scope: Run, question: Question, draws: RequestSettings, strategy: Strategy, shape: BreadthDepth
) -> SampleResult:
    """Do it in a scope of its own, which it must have to itself; raises what a sample raises."""
    engine = _Engine(scope, question, draws, strategy, shape)
    async with engine.told():
        return await engine.run()


class _Engine:
    """One sample under way."""

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
        self._race = BranchOrder(shape.breadth, shape.depth, shape.pick, early=strategy.early)
        own = draws.seed
        self._seed = (
            scope.setting.seed_of(scope.path) if own is None else derive_seed(own, "sample")
        )
        self._map: Any = None
        self._winner: SampleAttempt | None = None
        self._opened: dict[str, Model] = {}  # those that the strategy has named
        # By the executor that the run was given: threads of its own, which see the draw's context
        # and end with it.
        self._threads: BoundCall[Any, Any] = scope.setting.executor("local").bind(
            _call, shape.breadth
        )
        self._judging = Judging(question, self._threads, explain=shape.explain)

    @asynccontextmanager
    async def told(self) -> AsyncIterator[None]:
        """Say that it begins, and once, however it goes, that it has ended and how."""
        shape = self._shape
        self._emit(
            SAMPLE_STARTED,
            breadth=shape.breadth,
            depth=shape.depth,
            checks=len(self._question.checks),
        )
        try:
            yield
        finally:
            for name in await self._threads.close(GRACE):
                warnings.warn(
                    f"{self._scope.path}: {name} can't be stopped and is still running",
                    stacklevel=2,
                )
            self._count_usage()
            counts = count(list(self._ledger.attempts.values()))
            winner = self._winner
            self._emit(
                SAMPLE_ENDED,
                ok=winner is not None and winner.state == "passed",
                started=counts.started,
                completed=counts.completed,
                cancelled=counts.cancelled,
                failed=counts.failed,
                rounds=counts.rounds,
                winner=None if winner is None else winner.number,
            )

    def _emit(self, kind: str, **facts: Any) -> None:
        journal = self._scope.setting.journal
        if journal is not None:
            journal.emit(kind, self._scope.path, data=facts)

    def _count_usage(self) -> None:
        """Add to the item that the sample is beneath what its draws used, but for those past the last that counts."""
        item = current_item()
        if item is not None:
            item.add_usage(self._split_usage()[0])

    def _split_usage(self) -> tuple[Usage, Usage]:
        return split_usage(
            list(self._ledger.attempts.values()), self._race.best or self._race.broken
        )

    # --- the branches -----------------------------------------------------------------------------------------------

    async def run(self) -> SampleResult:
        breadth = self._shape.breadth
        async with self._scope.map(
            self._branch, range(breadth), width=breadth, name=BRANCHES
        ) as branches:
            self._map = branches
            branches.leave_usage()  # a branch may hold draws past the winner
            async for outcome in branches:
                attempts = self._ledger.restore(outcome.value) if isinstance(outcome, Done) else []
                self._ended(outcome.index, attempts[-1] if attempts else None)
        return self._result(branches.timing_dependent)

    def _ended(self, branch: int, last: SampleAttempt | None) -> None:
        """A branch has ended with that draw, now or in an earlier drive of the run.

        Stop those that can't win now.
        """
        race = self._race
        if last is not None and last.state == "passed":
            beaten = race.passed(branch, last.round)
        elif last is not None and last.state == "error" and self._ledger.concern(last) == "sample":
            beaten = race.broke(branch, last.round)
        else:
            beaten = race.ended(branch)
        why = (
            "another draw passed"
            if race.broken is None
            else "another draw met an error that concerns all"
        )
        for other in beaten:
            self._map.cancel(other, why)

    async def _branch(self, branch: int) -> list[dict[str, Any]]:
        """Draw, check, repair, from this branch's own history, until one passes or the rounds are used up."""
        history = History(branch)
        number = 0
        while self._race.may_draw(branch, number):
            here = DrawContext(branch, number, branch * self._shape.depth + number + 1)
            HERE.set(here)
            attempt = await self._draw(here, history)
            history.attempts.append(attempt)
            if attempt.state == "passed" or attempt.concerns in ("branch", "sample"):
                break
            number += 1
        self._ended(branch, history.last)
        return [attempt.plain() for attempt in history.attempts]

    # --- one draw -----------------------------------------------------------------------------------------------------

    async def _draw(self, here: DrawContext, history: History) -> SampleAttempt:
        item = current_item()
        if item is None:
            raise RuntimeError("a branch is an item of a map")
        item.note(DRAW_STARTED, branch=here.branch, round=here.round, number=here.number)
        seed = derive_seed(self._seed, f"{here.branch}/{here.round}") & ((1 << _SEED_BITS) - 1)
        before = item.usage or NO_USAGE
        drawn = _Drawn(here, seed)
        error: BaseException | None = None
        try:
            await self._fill(drawn, history)
        except asyncio.CancelledError:
            drawn.state = "cancelled"
            self._end(drawn, _less(item.usage or NO_USAGE, before), None)
            raise
        except BudgetSpent:
            drawn.state = "cancelled"
            self._end(drawn, _less(item.usage or NO_USAGE, before), None)
            raise
        except Exception as raised:  # noqa: BLE001 - it is the sample's to judge
            error = raised
            drawn.state = "error"
        return self._end(drawn, _less(item.usage or NO_USAGE, before), error)

    async def _fill(self, drawn: _Drawn, history: History) -> None:
        """Ask, and have the reply checked."""
        draws = self._draws
        turn = self._strategy.next(self._question, history)
        model = self._model(turn.model)
        drawn.model = model.name
        temperature = draws.temperature
        if (
            temperature is None
            and getattr(model, "greedy", False)
            and self._shape.breadth * self._shape.depth > 1
        ):
            temperature = WARM
        request = Request(
            turn.messages,
            system=draws.system,
            temperature=temperature,
            seed=drawn.seed,
            max_tokens=draws.max_tokens,
            schema=draws.schema,
        )
        drawn.reply = await model.complete(request)
        _check_usable(drawn.reply, model.name)
        self._warn_if_same(drawn)
        drawn.verdicts = await self._judging.verdicts(drawn.reply)
        drawn.state = "passed" if all(verdict.ok for verdict in drawn.verdicts) else "failed"

    def _model(self, wanted: Model | str | None) -> Model:
        """The model that a strategy wants, opened if it is named."""
        if not isinstance(wanted, str):
            return wanted or self._draws.model
        if wanted not in self._opened:
            if self._draws.open is None:
                raise ValueError(
                    f"the strategy asks {wanted!r}, and no models are opened by name here"
                )
            self._opened[wanted] = self._draws.open(wanted)
        return self._opened[wanted]

    def _end(self, drawn: _Drawn, used: Usage, error: BaseException | None) -> SampleAttempt:
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
                why=_why_not(attempt),
            )
        return attempt

    def _warn_if_same(self, drawn: _Drawn) -> None:
        """Two branches whose first draws are alike, in spite of their seeds, will be alike all the way."""
        if (
            drawn.here.round
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
                f"all {self._shape.breadth} branches drew the same text: {drawn.model} seems to ignore seeds at this "
                "temperature, so breadth multiplies the cost and brings nothing",
                SameAnswers,
                stacklevel=2,
            )

    # --- the end ------------------------------------------------------------------------------------------------------

    def _result(self, why: frozenset[str]) -> SampleResult:
        ledger, race = self._ledger, self._race
        attempts = by_branch(list(ledger.attempts.values()))
        errors = tuple(ledger.errors[place] for place in sorted(ledger.errors))
        usage = sum((attempt.usage for attempt in attempts), NO_USAGE)
        if race.broken is not None and not self._shape.collect:
            self._raise(attempts)
        # Which draws behind an error for all came to their end is a matter of timing: none of them
        # is chosen.
        counted = tuple(
            attempt for attempt in attempts if race.broken is None or _place(attempt) < race.broken
        )
        winner = self._selected(counted) if race.best is None else ledger.attempts[race.best]
        self._winner = winner
        ok = winner is not None and winner.state == "passed"
        if not ok and errors and not self._shape.collect:
            self._raise(attempts)
        if self._shape.pick == "first":
            why |= {"pick=first"}
        failed = [place for place in ledger.errors if race.broken is None or place <= race.broken]
        self._scope.count_results("draw", done=count(counted).completed, failed=len(failed))
        return SampleResult(
            ok, winner, attempts, count(attempts), usage, errors, why, self._split_usage()[1]
        )

    def _selected(self, attempts: tuple[SampleAttempt, ...]) -> SampleAttempt | None:
        drawn = tuple(attempt for attempt in attempts if attempt.state in ("passed", "failed"))
        if not drawn:
            return None
        chosen = self._strategy.select(drawn)
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
        """An error for all as it is; else the first error, at more than one branch as a cause."""
        errors, broken = self._ledger.errors, self._race.broken
        first = errors[min(errors) if broken is None else broken]
        if self._shape.breadth == 1 or broken is not None:
            first.attempts = attempts  # type: ignore[attr-defined]
            raise first
        raised = len({branch for _, branch in errors})
        said = f"no branch passed, and {raised} of {self._shape.breadth} raised; the first: "
        raise BranchesFailed(said + _sentence(first), attempts) from first


@dataclass(slots=True)
class _Drawn:
    """A draw in the making."""

    here: DrawContext
    seed: int
    state: Any = "failed"
    model: str = ""
    reply: Reply | None = None
    verdicts: tuple[CheckVerdict, ...] = ()

    def attempt(self, used: Usage, error: BaseException | None) -> SampleAttempt:
        """As it is kept."""
        reply = self.reply
        return SampleAttempt(
            self.here.branch,
            self.here.round,
            self.here.number,
            self.state,
            text=reply.text if reply else _said(error),
            value=reply.value if reply else None,
            verdicts=self.verdicts,
            usage=used,
            seed=self.seed,
            error=None if error is None else error_text(error),
            seconds=reply.seconds if reply else 0.0,
            model=self.model,
            concerns=None if error is None else concern_of(error),
        )


def _call(what: Any) -> Any:  # noqa: ANN401 - a check of the user's
    return what()


def _less(after: Usage, before: Usage) -> Usage:
    """What was used between two moments."""
    usd = None if after.usd is None or before.usd is None else after.usd - before.usd
    return Usage(
        after.requests - before.requests,
        after.input_tokens - before.input_tokens,
        after.output_tokens - before.output_tokens,
        usd,
        after.estimate and not before.estimate,
    )


def _check_usable(reply: Reply, name: str) -> None:
    """Raise for what no check can judge, also where a model of one's own doesn't."""
    if reply.finish == "refused":
        raise Refused(f"{name} refused to answer", raw=reply.text)
    if not reply.text.strip() and not reply.tool_calls:
        raise ReplyBroken(f"{name} sent an empty reply")


def _said(error: BaseException | None) -> str:
    """What the model said in a reply that breaks the schema: a repair shows it."""
    return error.raw if isinstance(error, ReplyInvalid) else ""


def _place(attempt: SampleAttempt) -> Place:
    return (attempt.round, attempt.branch)


def _why_not(attempt: SampleAttempt) -> str | None:
    """What an attempt failed by, in a line: of a branch that is still under way nothing else says it."""
    said = attempt.error or "; ".join(
        f"{verdict.check}: {verdict.reason}" if verdict.reason else verdict.check
        for verdict in attempt.verdicts
        if not verdict.ok
    )
    return said[:_LONGEST] or None


def _sentence(error: BaseException) -> str:
    return str(error) if isinstance(error, AbreastError) else f"{type(error).__name__}: {error}"
