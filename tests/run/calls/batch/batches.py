"""A model in batches on a storm, with short times."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace

import abreast
from abreast.core.events import BATCH_SUBMITTED
from abreast.models.batch.terms import BatchTerms
from abreast.models.lanes import LaneSettings
from abreast.models.price import FlatPrice
from abreast.testing import open_storm

KINDS = ("openai", "anthropic", "gemini")
TERMS = BatchTerms(size=20, age=0.03, poll=0.01, longest_poll=0.05, settle=0.1)


def lane_of(storm, kind="openai", terms=TERMS, **more):
    base = f"{storm.url}/v1beta" if kind == "gemini" else f"{storm.url}/v1"
    price = FlatPrice(1.0, 2.0)
    return LaneSettings("lane", kind, base, width=8, price=price, batch=terms, **more)


def open_batched(storm, kind="openai", *, mode="batch", terms=TERMS, lane=None, **options):
    found = lane_of(storm, kind, terms) if lane is None else lane
    return abreast.open_model("lane/m", lanes={"lane": found}, mode=mode, **options)


@asynccontextmanager
async def open_batching(kind="openai", *, terms=TERMS, seconds=0.02, **settings):
    """A storm, and a function that opens a model of it in batches."""
    async with open_storm(batch_seconds=seconds, **settings) as storm:

        def opened(**options):
            more = options.pop("terms", terms)
            return open_batched(storm, kind, terms=more, **options)

        yield storm, opened


async def ask_all(model, store, size, *, width=4, hooks=(), **options):
    """Ask about each of so many prompts, in a run with a store; returns the outcomes."""

    async def ask(value):
        return (await model.ask(f"prompt {value}", max_tokens=50)).text

    async with model, abreast.open_run("run", store=store, seed=1, hooks=hooks) as run:
        return [outcome async for outcome in run.map(ask, range(size), width=width, **options)]


def times_paid(storm):
    """How often each request was paid for, in batches."""
    return Counter(row["key"] for row in storm.batches() if row["billed"])


class Submissions:
    """An observer that counts the batches that are recorded as submitted."""

    def __init__(self):
        self._loop = asyncio.get_running_loop()
        self._count = 0
        self._wanted = (0, self._loop.create_future())

    def __call__(self, event):
        if event.kind == BATCH_SUBMITTED:
            self._loop.call_soon_threadsafe(self._add)

    def _add(self):
        self._count += 1
        wanted, reached = self._wanted
        if self._count >= wanted and not reached.done():
            reached.set_result(None)

    async def reach(self, count):
        self._wanted = (count, self._loop.create_future())
        self._count -= 1
        self._add()
        async with asyncio.timeout(60):
            await self._wanted[1]


def shorter(**changes):
    return replace(TERMS, **changes)
