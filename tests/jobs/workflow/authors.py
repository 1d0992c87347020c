"""Writes random workflows, and runs them with fake tools whose steps end in a random order."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from contextlib import suppress

import yaml

import abreast
from abreast.core.errors import Halted, Paused
from abreast.jobs.workflow.job import Flow
from abreast.jobs.workflow.load.load import load
from abreast.run.current import current_item
from abreast.testing import MemoryStore
from tests.jobs.workflow.kits import ENDS, KINDS, FakeKit, FlowFailed, photograph
from tests.turns import turns

WIDE = 8
DEEPEST = 3


class Author:
    """Writes workflows of all kinds of steps.

    What each step does depends on its path and on what it reads.
    """

    def __init__(self, choose):
        self.choose = choose

    def file(self):
        steps = self.steps(0, [], first=True)
        tree = {
            "workflow": {"id": "random"},
            "inputs": {"k": {"type": "number", "required": True}},
            "steps": steps,
            "outputs": {"last": {"value": f"{{{{ steps.{steps[-1]['id']}.output }}}}"}},
        }
        return yaml.safe_dump(tree, sort_keys=False)

    def chance(self, part):
        return self.choose.randrange(1000) < part * 1000

    def steps(self, depth, seen, *, first=False):
        """Return a list of steps; `seen` are the ids of its scope that later ones may read."""
        mine = []
        for _ in range(self.choose.randint(1, 3)):
            made = self.step(depth, seen, plain=first and not mine)
            if mine and self.chance(0.15):
                made["needs"] = [one["id"] for one in mine if self.chance(0.5)]
            mine.append(made)
        return mine

    def step(self, depth, seen, *, plain=False):
        kinds = ["leaf"] * 4 + ["gate"]
        kinds += ["fan"] * 5 + ["branch", "switch", "loop"] if depth < DEEPEST else []
        kinds += ["fan_in"] if seen else []
        name = f"s{len(seen)}"
        known = list(seen)
        seen.append(name)
        made = getattr(self, "leaf" if plain else self.choose.choice(kinds))(depth, seen, known)
        if self.chance(0.2):
            made["continue_on_error"] = True
        return {"id": name, **made}

    def read(self, known, default="0"):
        """Return an expression for the output of an earlier step, if there is one."""
        if not known:
            return default
        path = self.choose.choice(["n", "n", "value", "results | default([]) | map('value')"])
        return f"{{{{ steps.{self.choose.choice(known)}.output.{path} }}}}"

    def leaf(self, depth, seen, known):
        own = seen[-1] if self.chance(0.1) else None  # its own last round
        given = {
            "who": seen[-1],
            "item": "{{ item }}",
            "read": self.read(known),
            "own": self.read([own] if own else []),
        }
        if self.chance(0.06):
            return {"type": "do", **given}
        return {"type": "python", "call": "kit:act", "with": given}

    def gate(self, depth, seen, known):
        return {
            "type": "gate",
            "message": self.read(known, "?"),
            "on_reject": self.choose.choice(["skip", "skip", "abort", "retry"]),
        }

    def condition(self, known):
        value = f"(steps.{self.choose.choice(known)}.output.n | default(3))"
        return f"{{{{ {value} > {self.choose.randint(0, 8)} }}}}"

    def branch(self, depth, seen, known):
        return {
            "type": "if",
            "condition": self.condition(known or ["s0"]),
            "then": self.steps(depth + 1, seen),
            "else": self.steps(depth + 1, seen) if self.chance(0.5) else [],
        }

    def switch(self, depth, seen, known):
        return {
            "type": "switch",
            "expression": f"{{{{ steps.{(known or ['s0'])[-1]}.output.n | default(0) }}}}",
            "cases": {number: self.steps(depth + 1, seen) for number in (1, 4)},
            "default": self.steps(depth + 1, seen),
        }

    def loop(self, depth, seen, known):
        body = self.steps(depth + 1, seen)
        return {
            "type": self.choose.choice(["while", "do-while"]),
            "steps": body,
            "max_iterations": 3,
            "condition": self.condition([body[-1]["id"]]),
        }

    def fan_in(self, depth, seen, known):
        return {
            "type": "fan-in",
            "wait_for": [self.choose.choice(known)],
            "output": {"n": self.choose.randint(0, 9)},
        }

    def fan(self, depth, seen, known):
        outside = list(known)
        inner = []  # a scope of its own, which uses the same ids as the outside
        made = {
            "type": "fan-out",
            "items": self.items(outside),
            "max_concurrency": "{{ inputs.k }}",
            "steps": self.steps(depth + 1, inner),
        }
        if self.chance(0.3):
            self.read_itself(made["steps"][0], seen[-1])
        if self.chance(0.2):
            made["max_failures"] = self.choose.randint(0, 2)
        if self.chance(0.2):
            made["min_success"] = self.choose.choice([0.3, 0.7, 1, 2])
        if self.chance(0.1):
            made["canary"] = {
                "items": self.choose.randint(1, 3),
                "min_success": self.choose.choice([0.3, 1.0]),
            }
        if self.chance(0.1):
            made["key"] = "k{{ item }}"
        return made

    def read_itself(self, template, fan):
        """Let a step read the results of its own fan-out, which it always sees empty."""
        if template["type"] == "python":
            template["with"]["own"] = f"{{{{ steps.{fan}.output.results | length }}}}"

    def items(self, known):
        if known and self.chance(0.3):
            return f"{{{{ steps.{self.choose.choice(known)}.output.list }}}}"
        return list(range(self.choose.randint(0, 4)))


class Chaos(FakeKit):
    """Fake tools: a step's result depends on its path and input alone, its end is random."""

    def __init__(self, world, choose=None):
        super().__init__()
        self.world = world
        self.choose = choose
        self.waiting = []

    async def act(self, who):
        path = current_item().path
        self.calls.append(path)
        self.inside += 1
        self.peak = max(self.peak, self.inside)
        try:
            if self.choose is not None:
                waiter = asyncio.get_running_loop().create_future()
                self.waiting.append(waiter)
                await waiter
        finally:
            self.inside -= 1
        return path

    def number(self, *what):
        text = json.dumps([self.world, *what], sort_keys=True, default=repr)
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")

    def reply(self, path, given):
        n = self.number(path, given)
        return {
            "n": n % 10,
            "value": f"{n:x}",
            "list": [f"{n % 100}-{place}" for place in range(n % 4)],
        }

    async def call(self, name, given):
        path = await self.act(given["who"])
        if self.number("fails", path) % 9 == 0:
            raise ValueError(path)
        return self.reply(path, given)

    async def custom(self, kind, config, context):
        path = await self.act(config["who"])
        if self.number("raises", path) % 3 == 0:
            raise LookupError(path)
        return self.reply(path, [config, context.step, context.item])

    async def decide(self, question):
        await self.act(question.step)
        return ["approve", "approve", "approve", "reject", None][
            self.number("decides", question.step) % 5
        ]

    async def let_go(self, done):
        """End the steps one by one, in a random order, until the workflow is done."""
        while not done():
            await turns(self.choose.choice([1, 5, 30]))
            waiting = [one for one in self.waiting if not one.done()]
            if waiting:
                self.choose.choice(waiting).set_result(None)
            self.waiting = waiting


class Photographing(MemoryStore):
    """Keeps a copy of itself at every commit of its journal."""

    def __init__(self):
        super().__init__()
        self.photos = []
        self._photographing = threading.Lock()

    def commit(self, *what):
        super().commit(*what)
        with self._photographing:
            self.photos.append(photograph(self))


async def run(text, kit, width, store=None):
    """Run a workflow and return its whole result, or the exception that it raised."""
    workflow = load(text, "random.yaml", kinds=KINDS)
    resume = "failed" if store is not None and store.newest("flow") else "auto"
    task = asyncio.ensure_future(_run(workflow, kit, width, store, resume))
    if kit.choose is not None:
        await kit.let_go(task.done)
    return await task


async def _run(workflow, kit, width, store, resume):
    found = []
    try:
        with suppress(FlowFailed, Halted, Paused):
            async with abreast.open_run("flow", store=store, seed=1, resume=resume) as run:
                found.append(await Flow(workflow, kit).run(run, {"k": width}))
                if not found[0].ok:
                    raise ENDS[found[0].status](found[0].error or "")
    except LookupError as error:
        return "raised", str(error)
    if not found:
        return "stopped", None
    result = found[0]
    steps = [
        (name, one.type, one.status, one.fate, plain(one.output), one.error)
        for name, one in result.steps.items()
    ]
    return result.status, result.error, plain(result.outputs), steps


def plain(value):
    """Return the value without the width, which is an input and in the output of a fan-out."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items() if key != "max_concurrency"}
    return [plain(one) for one in value] if isinstance(value, list) else value
