"""A kit that records its calls, holds them at a gate and fails by script.

And the short way to run a workflow on it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

import yaml

import abreast
from abreast.core.errors import AbreastError, Halted, Paused
from abreast.jobs.workflow.job import Flow
from abreast.jobs.workflow.load.load import load
from abreast.jobs.workflow.tools import AgentResult, CannotDo
from abreast.models.port import Reply
from abreast.testing import MemoryStore

KINDS = {"do": lambda config, context: None}
"""The custom kind that files may name; the fake tools decide what it does."""


class FakeKit:
    """Fake tools: every action calls them, with the name in its file's `who`."""

    default_model = "fake"
    max_output = 1 << 20
    max_items = 1_000

    def __init__(self, gate=None, fails=None, raises=None, gives=None, decides=None):
        """`fails` and `raises` are by name: a sentence, or an error that is no step's.

        `gate` holds every step.
        """
        self.gate = gate
        self.fails = dict(fails or {})
        self.raises = dict(raises or {})
        self.gives = dict(gives or {})
        self.decides = dict(decides or {})
        self.calls = []
        self.ended = []
        self.asked = []
        self.cancelled = []
        self.contexts = []
        self.inside = self.peak = 0

    @property
    def ran(self):
        """Return how often each was called."""
        return Counter(self.calls)

    async def act(self, who):
        """Count the call, wait at the gate, and end as the test has set."""
        self.calls.append(who)
        self.inside += 1
        self.peak = max(self.peak, self.inside)
        try:
            if self.gate is not None:
                await self.gate.pass_(who)
        except asyncio.CancelledError:
            self.cancelled.append(who)
            raise
        finally:
            self.inside -= 1
        self.ended.append(who)
        if who in self.raises:
            raise self.raises[who]
        return self.gives.get(who, who)

    async def shell(self, script, env=None):
        value = await self.act(script)
        code, said = (1, self.fails[script]) if script in self.fails else (0, "")
        return AgentResult(code, value, said)

    async def agent(self, integration, prompt, model, more=None):
        return AgentResult(0, await self.act(f"{integration} {prompt}"), "")

    async def ask(self, question):
        return Reply(await self.act(f"{question.model} {question.prompt}"))

    async def call(self, name, given):
        who = given["who"]
        value = await self.act(who)
        if who in self.fails:
            raise ValueError(self.fails[who])
        return value(given) if callable(value) else value

    async def custom(self, kind, config, context):
        who = str(config.get("who", context.step))
        self.contexts.append(context)
        value = await self.act(who)
        if who in self.fails:
            raise CannotDo(self.fails[who])
        return value(config) if callable(value) else value

    async def sample(self, run, facts):
        return {"ok": True, "text": await self.act(facts["prompt"])}

    async def decide(self, question):
        self.asked.append(question.step)
        return self.decides.get(question.step)


def step(name, who=None, **more):
    """Return an action; the fake tools get `who`, by default its id."""
    return {"id": name, "type": "python", "call": "kit:act", "with": {"who": who or name}, **more}


def each(name, **more):
    """Return an action for each item, whose `who` ends with the item."""
    return step(name, f"{name}{{{{ item }}}}", **more)


def fan(items, *steps, name="fan", width=1, **more):
    """Return a fan-out."""
    inner = {"step": steps[0]} if len(steps) == 1 else {"steps": list(steps)}
    return {
        "id": name,
        "type": "fan-out",
        "items": items,
        "max_concurrency": width,
        **inner,
        **more,
    }


def gate(name, **more):
    """Return a gate."""
    return {"id": name, "type": "gate", "message": "well?", **more}


def flow(*steps, directory=None, **more):
    """Return a workflow of these steps."""
    tree = {"workflow": {"id": "test"}, "steps": list(steps), **more}
    return load(
        yaml.safe_dump(tree, sort_keys=False), "test.yaml", kinds=KINDS, directory=directory
    )


class FlowFailed(AbreastError):
    """Ends a run as the command line does: a workflow that did not complete can be resumed."""


ENDS = {"failed": FlowFailed, "aborted": Halted, "paused": Paused}


async def go(workflow, kit, inputs=None, *, verdicts=None, store=None, width=None, **opening):
    """Run a workflow and return its result.

    If the store has a run of it, that one is resumed, and failed steps are run again.
    """
    found = []
    resume = "failed" if store is not None and store.newest("flow") else "auto"
    opening = {"seed": 1, "resume": resume, **opening}
    with suppress(FlowFailed, Halted, Paused):
        async with abreast.open_run("flow", store=store, **opening) as run:
            found.append(await Flow(workflow, kit, verdicts, width=width).run(run, inputs or {}))
            if not found[0].ok:
                raise ENDS[found[0].status](found[0].error or "")
    return found[0]


async def at_gate(workflow, kit, body, **options):
    """Run a workflow while `body` opens the kit's gate."""
    task = asyncio.ensure_future(go(workflow, kit, **options))
    try:
        await body()
        return await asyncio.wait_for(task, 60)
    finally:
        task.cancel()
        with suppress(BaseException):
            await task


def told(result):
    """Return all of a result, in order."""
    return (
        result.status,
        result.error,
        result.outputs,
        [
            (name, record.type, record.status, record.fate, record.output, record.error)
            for name, record in result.steps.items()
        ],
    )


def statuses(result):
    """Return the status of each step by its full id."""
    return {name: record.status for name, record in result.steps.items()}


def recorded(store):
    """Return the committed states, by path."""
    outcomes = [one for run in store.runs() for one in store.outcomes(run.id)]
    return {one.path: one.data["state"] for one in outcomes}


def photograph(store):
    """Return a copy of the store as a process that is killed now would leave it."""
    copy = MemoryStore()
    with store._db.reading() as db:
        db.backup(copy._db.connection)
    return copy
