"""What the checks of a sample say of a draw: free ones first, models last, and an equal text only once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

from abreast.core.errors import BudgetSpent, CallFailed, CheckBroken
from abreast.core.outcome import Done
from abreast.executors.port import BoundCall
from abreast.jobs.sample.checks import Check, CheckedDraft, Function, broken
from abreast.jobs.sample.draw_context import HERE
from abreast.jobs.sample.results import CheckVerdict
from abreast.jobs.sample.strategies import Question
from abreast.models.port import Reply
from abreast.run.current import current_item


class Judging:
    """The checks of one sample, over all its branches."""

    def __init__(self, question: Question, threads: BoundCall[Any, Any], *, explain: bool) -> None:
        """Plain functions run in `threads`.

        To `explain`, all checks are asked, whatever the others said.
        """
        self._question = question
        self._threads = threads
        self._explain = explain
        self._known: dict[str, tuple[CheckVerdict, ...]] = {}
        self._judging: dict[str, asyncio.Future[None]] = {}

    async def verdicts(self, reply: Reply) -> tuple[CheckVerdict, ...]:
        """What the checks say; an equal text was judged already."""
        text, known, judging = reply.text, self._known, self._judging
        while text not in known and text in judging:
            await asyncio.wait(
                [judging[text]]
            )  # whoever judges it may be cancelled: then it is this branch's turn
        if text not in known:
            mine = judging[text] = asyncio.get_running_loop().create_future()
            try:
                known[text] = await self._judge(
                    CheckedDraft(text, reply.value, self._question.prompt)
                )
            finally:
                del judging[text]
                mine.set_result(None)
        return known[text]

    async def _judge(self, draft: CheckedDraft) -> tuple[CheckVerdict, ...]:
        """Free checks first; models are asked only about what passed those, and no more once one said no."""
        free = [check for check in self._question.checks if not check.costs]
        paid = [check for check in self._question.checks if check.costs]
        verdicts = {check.name: await self._checked(check, draft) for check in free}
        if self._explain or all(verdict.ok for verdict in verdicts.values()):
            for verdict in await self._asked(paid, draft):
                verdicts[verdict.check] = verdict
        return tuple(
            verdicts[check.name] for check in self._question.checks if check.name in verdicts
        )

    async def _asked(self, judges: Sequence[Check], draft: CheckedDraft) -> list[CheckVerdict]:
        """The judges side by side; the first no, in their order, ends it."""
        if not judges:
            return []
        item = current_item()
        if item is None:
            raise RuntimeError("a draw is judged inside its branch")
        here = HERE.get()
        name = f"judge-{here.round if here else 0}"
        until = None if self._explain else _says_no

        async def ask(check: Check) -> dict[str, Any]:
            verdict = await self._checked(check, draft)
            return {
                "check": verdict.check,
                "ok": verdict.ok,
                "reason": verdict.reason,
                "score": verdict.score,
            }

        asked = item.run.map(
            ask,
            judges,
            width=len(judges),
            name=name,
            until=until,
            on_error="raise",
            key=lambda check: check.name,
        )
        return [
            CheckVerdict(**outcome.value) async for outcome in asked if isinstance(outcome, Done)
        ]

    async def _checked(self, check: Check, draft: CheckedDraft) -> CheckVerdict:
        """One check's verdict; what it raises is a fault of the check, unless its model's call failed."""
        try:
            answer: Any = check.run(draft)
            if isinstance(answer, Awaitable):
                answer = await answer
            elif callable(answer) and isinstance(check, Function):
                answer = await self._in_thread(check, answer)
        except (CallFailed, BudgetSpent, CheckBroken):
            raise
        except Exception as error:
            raise broken(check.name, error) from error
        if not isinstance(answer, CheckVerdict):
            raise CheckBroken(f"the check {check.name!r} must give a Verdict, not {answer!r}")
        return answer

    async def _in_thread(self, check: Function, call: Any) -> CheckVerdict:  # noqa: ANN401 - the user's own
        """A plain function, where it can't hold up the loop."""
        answer = await self._threads.async_call(call)
        return check.verdict(await answer if isinstance(answer, Awaitable) else answer)


def _says_no(outcome: Any) -> bool:  # noqa: ANN401 - an outcome of any kind
    return isinstance(outcome, Done) and not outcome.value["ok"]
