"""Providers in virtual time: each a simulated world with limits, faults and its own log."""

import asyncio

from abreast.core.clock import sleep_until
from abreast.core.errors import ServerFault, Throttled
from abreast.core.outcome import Usage
from abreast.models.port import Reply
from abreast.testing.storm import World, WorldRequest
from abreast.testing.storm.settings import make_settings

NEVER = 1e12  # seconds


class Provider:
    """A model of a world. Models that share a world share a provider."""

    def __init__(self, name, world, clock, answer=lambda _: "T0"):
        self.name, self.world, self._clock, self._answer = name, world, clock, answer
        self.entries = {}
        """The requests that were answered well, by their prompts."""

    async def complete(self, request, hear=None):
        clock, world, prompt = self._clock, self.world, request.messages[-1].content
        began = clock.now()
        told = world.arrive(
            began, WorldRequest(f"{self.name} {prompt}", model=self.name, prompt=prompt)
        )
        if not told.admitted:
            raise Throttled("slow down", retry_after=told.ready_at - began)
        try:
            if told.latency >= NEVER:
                await asyncio.get_running_loop().create_future()
            await sleep_until(clock, began + told.latency)
        except asyncio.CancelledError:
            world.leave(clock.now(), told.id)
            raise
        world.finish(clock.now(), told.id)
        if told.status >= 500:
            raise ServerFault("oh")
        self.entries[prompt] = world.ledger.entries[told.id - 1]
        used = Usage(1, told.input_tokens, told.output_tokens)
        return Reply(self._answer(prompt), usage=used, seconds=clock.now() - began)

    async def close(self):
        pass


def worlds(latencies, clock, **settings):
    """A world for each lane, with the latency that is given for it."""
    return {
        lane: World(make_settings({**settings, "latency": latency}), start=clock.now())
        for lane, latency in latencies.items()
    }


def answered(world):
    """How many requests a world has answered well."""
    return world.stats().ok


async def pass_time(clock, done, is_ready=lambda: True):
    """Advance the clock until `done`.

    A store has a thread of its own, which takes none of this clock's time, so the clock advances
    only when `is_ready` says that the expected requests are in flight.
    """
    while not done():
        due = clock.next_due
        if due is not None and is_ready():
            await clock.advance(max(0.0, due - clock.now()))
        else:
            await asyncio.sleep(0)
