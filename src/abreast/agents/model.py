"""An agent as a model: a request is its task, its reply is what it says at the end.

So lanes, budgets, the journal, retries and replays are those of every model. What a reply of an
agent has beside its text is in `Reply.kept`: session, turns, steps, and what it made of its tree.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from abreast.agents.process import AgentFailed, AgentPlace, AgentTask, run_agent
from abreast.agents.report import AgentReport
from abreast.agents.runner import AgentRunner, Permission
from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import CallFailed, QuotaSpent, RequestRefused, Throttled
from abreast.core.events import AGENT_STEP
from abreast.core.usage import Usage
from abreast.executors.commands import CommandRunner
from abreast.models.port import Json, Message, OnText, Reply, Request
from abreast.run.current import CurrentItem, current_item

AGENT_STARTED: Final = "agent-started"
"""The event of an agent that has said its session: `session`, `agent`."""
FACTS: Final = "agent"
"""The key of an agent's facts in `Reply.kept`."""
GO_ON: Final = "You were cut off. Look at what is done, and go on with the task."
_STEP_EVENTS: Final = 500  # of one call, in the journal; later ones are only counted


class AgentPlaces(Protocol):
    """Where agents work: one directory for all, or a tree for each item."""

    async def enter(self, *, fresh: bool) -> AgentPlace:
        """Prepare the place of the current item."""

    async def leave(self, report: AgentReport) -> Mapping[str, Any]:
        """What the agent has made of its place, to be recorded with its reply."""

    def fail(self, *, goes_on: bool) -> Mapping[str, Any]:
        """Keep what a failed agent has left; returns what is known of it, without waiting.

        If it `goes_on`, a resumed run takes that up, as after a kill.
        """


@dataclass(frozen=True, slots=True)
class OneFolder:
    """All agents work in the same directory, as it is."""

    folder: Path

    async def enter(self, *, fresh: bool) -> AgentPlace:  # noqa: ARG002 - nothing to prepare
        """The directory."""
        return AgentPlace(self.folder)

    async def leave(self, report: AgentReport) -> Mapping[str, Any]:  # noqa: ARG002 - as above
        """Nothing is known of what they have changed."""
        return {}

    def fail(self, *, goes_on: bool) -> Mapping[str, Any]:  # noqa: ARG002 - as above
        """Nothing is kept."""
        return {}


@dataclass(slots=True)
class _ItemWork:
    """What an item has asked an agent so far."""

    first: str = ""
    session: str = ""
    cut_off: bool = False
    owed: Usage = field(default_factory=Usage)
    """Used by a session that could not be gone on with; it is charged with the next call."""


@dataclass(slots=True)
class AgentModel:
    """Implements the model port.

    `charge` makes for each call a function of the usage so far and of the model, which may raise.
    """

    runner: AgentRunner
    commands: CommandRunner
    places: AgentPlaces
    allow: tuple[Permission, ...] = ("read",)
    model: str | None = None
    started: Callable[[CurrentItem, int], None] = lambda _item, _group: None
    ended: Callable[[int], None] = lambda _group: None
    charge: Callable[[], Callable[[Usage, str], None]] = lambda: lambda _used, _model: None
    env: Mapping[str, str] = field(default_factory=dict)
    waits: bool = False
    """Whether a call is made again when a limit of the account has ended."""
    _items: dict[str, _ItemWork] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """`agent/model`, or `agent/default`."""
        return f"{self.runner.name}/{self.model or 'default'}"

    async def close(self) -> None:
        """Nothing to close: every call ends its process."""

    def resume(self, path: str, session: str) -> None:
        """Let the next call of an item go on with a session that was cut off."""
        self._items.setdefault(path, _ItemWork()).session = session
        self._items[path].cut_off = True

    def recall(self, path: str, request: Request, reply: Reply) -> None:
        """Note a call of an item that has a reply, recorded or new."""
        work = self._items.setdefault(path, _ItemWork())
        work.first = work.first or _text(request.messages)
        facts = agent_facts(reply)
        work.session, work.cut_off = str(facts.get("session") or ""), False

    async def complete(self, request: Request, hear: OnText | None = None) -> Reply:
        """Run the agent on the task; see `run_agent` for what it raises.

        A session that was cut off and can't be gone on with is begun anew.
        """
        item = current_item()
        work = self._items.setdefault(item.path if item is not None else "", _ItemWork())
        resumes = work.cut_off and bool(work.session and self.runner.resume)
        try:
            return await self._complete(request, hear)
        except AgentFailed as error:
            if not resumes or error.details.get("steps"):
                raise
            work.owed += error.usage or Usage()
            work.first, work.session, work.cut_off = "", "", False
            return await self._complete(request, hear)

    async def _complete(self, request: Request, hear: OnText | None) -> Reply:
        runner, item = self.runner, current_item()
        path = item.path if item is not None else ""
        work = self._items.setdefault(path, _ItemWork())
        self._check(request)
        text = _text(request.messages)
        fresh = not work.cut_off and work.first in {"", text}
        work.first = work.first or text
        goes_on = bool(work.session and runner.resume) and not fresh
        prompt = text if fresh or not goes_on else request.messages[-1].content
        task = AgentTask(
            GO_ON if work.cut_off and goes_on else prompt,
            self.allow,
            self.model,
            request.system,
            request.schema,
            work.session if goes_on else None,
        )
        place = await self.places.enter(fresh=fresh)
        began = SYSTEM_CLOCK.now()
        watch = _Watch(item, runner, work, self.charge(), hear)
        group = 0

        def started(pgid: int) -> None:
            nonlocal group
            group = pgid
            if item is not None:
                self.started(item, pgid)

        try:
            report = await run_agent(
                self.commands,
                runner,
                task,
                AgentPlace(place.folder, place.scratch, {**self.env, **place.env}),
                changed=watch.look,
                started=started,
            )
            facts = await self.places.leave(report)
        except BaseException as error:
            self._failed(error, work)
            raise
        finally:
            watch.close()
            self.ended(group)
        seconds = SYSTEM_CLOCK.now() - began
        usage, work.owed = report.usage + work.owed, Usage()
        usage = usage if usage.requests else Usage(requests=1, usd=report.cost, estimate=True)
        return _reply(runner, request, report, usage, seconds, facts)

    def _check(self, request: Request) -> None:
        if (
            any(message.files for message in request.messages)
            or request.tools
            or request.tool_choice
        ):
            raise RequestRefused(f"{self.runner.name} takes a text: no images, no tools")
        if request.schema is not None and not self.runner.schema:
            raise RequestRefused(f"{self.runner.name} can't be asked for JSON by a schema")

    def _failed(self, error: BaseException, work: _ItemWork) -> None:
        waits = self.waits and isinstance(error, QuotaSpent) and error.retry_after is not None
        if waits or isinstance(error, Throttled):
            # The same call is made again: the agent goes on in its tree, with its session.
            work.cut_off = bool(work.session and self.runner.resume)
            return
        with suppress(Exception):
            goes_on = isinstance(error, QuotaSpent) and bool(work.session and self.runner.resume)
            kept = self.places.fail(goes_on=goes_on)
            if isinstance(error, CallFailed):
                error.details |= kept


class _Watch:
    """Passes on what an agent reports: to the journal, to the budget, to the caller."""

    def __init__(
        self,
        item: CurrentItem | None,
        runner: AgentRunner,
        work: _ItemWork,
        charge: Callable[[Usage, str], None],
        hear: OnText | None,
    ) -> None:
        self._item, self._runner, self._work = item, runner, work
        self._charge, self._hear = charge, hear
        self._steps = 0
        self._session = ""

    def look(self, report: AgentReport) -> None:
        """Take a report that has grown; raises `BudgetSpent` if it costs too much."""
        if report.session and report.session != self._session:
            self._session = self._work.session = report.session
            if self._item is not None:
                self._item.note(AGENT_STARTED, session=report.session, agent=self._runner.name)
        while self._steps < report.step_count:
            text = report.steps[self._steps - report.step_count]
            self._steps += 1
            if self._item is not None and self._steps <= _STEP_EVENTS:
                self._item.note(AGENT_STEP, number=self._steps, text=text, usd=report.cost)
            if self._hear is not None:
                self._hear(f"{text}\n")
        self._charge(report.usage, report.model)

    def close(self) -> None:
        """Release what was reserved while it ran: the call is settled as a whole."""
        self._charge(Usage(), "")


def _text(messages: Sequence[Message]) -> str:
    """A conversation as one text; a single turn is its own text."""
    if len(messages) == 1:
        return messages[0].content
    return "\n\n".join(f"{one.role}: {one.content}" for one in messages)


def agent_facts(reply: Reply) -> dict[str, Any]:
    """What a reply of an agent has beside its text; empty for a reply of another model."""
    return next((dict(each[FACTS]) for each in reply.kept if FACTS in each), {})  # type: ignore[arg-type]


def _reply(  # noqa: PLR0917 - what a reply is made of
    runner: AgentRunner,
    request: Request,
    report: AgentReport,
    usage: Usage,
    seconds: float,
    facts: Mapping[str, Any],
) -> Reply:
    text, value = report.text, None
    if request.schema is not None:
        from abreast.models.schema import parse

        if report.value is not None:
            text = json.dumps(report.value, ensure_ascii=False)
        value = parse(text, request.schema)
    about: dict[str, Json] = {
        "name": runner.name,
        "session": report.session,
        "turns": report.turns,
        "cost": report.cost,
        "steps": list(report.steps),
        "step_count": report.step_count,
        "denied": list(report.denied),
        "seconds": round(seconds, 3),
        **facts,
    }
    return Reply(
        text,
        value,
        usage=usage,
        model=report.model or runner.name,
        id=report.session,
        seconds=seconds,
        kept=({FACTS: about},),
    )
