"""Runs the checks of a sample on a draw: free ones first, models last, equal texts once."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from abreast.agents.model import agent_facts
from abreast.core.errors import BudgetSpent, CallFailed, CheckBroken
from abreast.core.outcome import Done, Outcome
from abreast.executors.port import BoundCall
from abreast.executors.tasks import is_async
from abreast.jobs.sample.checks import Check, CheckedDraft, Function, Judge, Pure, broken
from abreast.jobs.sample.draw_context import CURRENT_DRAW
from abreast.jobs.sample.results import CheckVerdict
from abreast.jobs.sample.strategies import Question
from abreast.models.port import Message, Reply, Request
from abreast.run.calls.journal import digest_of
from abreast.run.current import current_item


@dataclass(slots=True)
class DrawChecker:
    """The checks of one sample, over all its branches.

    Plain functions run in `threads`. With `explain`, all checks run on every draw.
    """

    question: Question
    threads: BoundCall[Any, Any]
    explain: bool
    _verdicts_by_text: dict[str, tuple[CheckVerdict, ...]] = field(default_factory=dict)
    _under_way: dict[str, asyncio.Future[None]] = field(default_factory=dict)

    async def verdicts(self, reply: Reply) -> tuple[CheckVerdict, ...]:
        """Return the verdicts of the checks; those of an equal text are reused."""
        known, under_way = self._verdicts_by_text, self._under_way
        # Agents that say the same may have done different things.
        text, key = reply.text, f"{reply.text}{agent_facts(reply).get('result', '')}"
        while key not in known and key in under_way:
            # The branch that checks it may be cancelled; then this branch checks it.
            await asyncio.wait([under_way[key]])
        if key not in known:
            mine = under_way[key] = asyncio.get_running_loop().create_future()
            try:
                known[key] = await self._run_checks(
                    CheckedDraft(text, reply.value, self.question.task, self.question.files)
                )
            finally:
                del under_way[key]
                mine.set_result(None)
        return known[key]

    async def _run_checks(self, draft: CheckedDraft) -> tuple[CheckVerdict, ...]:
        """Run free checks first; ask models only if those passed, until one of them says no."""
        free = [check for check in self.question.checks if not check.costs]
        paid = [check for check in self.question.checks if check.costs]
        verdicts = {check.name: await self._run_check(check, draft) for check in free}
        if self.explain or all(verdict.ok for verdict in verdicts.values()):
            for verdict in await self._run_paid_checks(paid, draft):
                verdicts[verdict.check] = verdict
        return tuple(
            verdicts[check.name] for check in self.question.checks if check.name in verdicts
        )

    async def _run_paid_checks(
        self, judges: Sequence[Check], draft: CheckedDraft
    ) -> list[CheckVerdict]:
        """Ask the judges side by side; the first rejection, in their order, ends it."""
        if not judges:
            return []
        item = current_item()
        if item is None:
            raise RuntimeError("a draw is judged inside its branch")
        draw = CURRENT_DRAW.get()
        name = f"judge-{draw.round if draw else 0}"

        by_name = {judge.name: judge for judge in judges}
        # A verdict on another draw is not used when the sample is resumed.
        drawn = digest_of(draft.prompt, Request((Message("user", draft.text, files=draft.files),)))

        async def ask(value: tuple[str, str]) -> dict[str, Any]:
            return asdict(await self._run_check(by_name[value[0]], draft))

        def is_rejection(outcome: Outcome[dict[str, Any]]) -> bool:
            return isinstance(outcome, Done) and not outcome.value["ok"]

        asked = item.run.map(
            ask,
            [(name, drawn) for name in by_name],
            width=len(judges),
            name=name,
            until=None if self.explain else is_rejection,
            on_error="raise",
            on_change="rerun",
            key=lambda value: value[0],
        )
        return [
            CheckVerdict(**outcome.value) async for outcome in asked if isinstance(outcome, Done)
        ]

    async def _run_check(self, check: Check, draft: CheckedDraft) -> CheckVerdict:
        """Run one check. What it raises is a `CheckBroken`, unless its model's call failed."""
        try:
            answer: Any
            # A plain function of the user must not block the event loop.
            if isinstance(check, (Pure, Function, Judge)) or is_async(check.run):
                answer = check.run(draft)
            else:
                answer = await self.threads.async_call(partial(check.run, draft))
            if isinstance(answer, Awaitable):
                answer = await answer
            elif callable(answer) and isinstance(check, Function):
                answer = await self.threads.async_call(answer)
                answer = check.verdict(await answer if isinstance(answer, Awaitable) else answer)
        except (CallFailed, BudgetSpent, CheckBroken):
            raise
        except Exception as error:
            raise broken(check.name, error) from error
        if not isinstance(answer, CheckVerdict):
            raise CheckBroken(f"the check {check.name!r} must give a Verdict, not {answer!r}")
        return answer
