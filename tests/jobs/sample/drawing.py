"""A model that answers by a table of branches and rounds, and records its requests."""

import asyncio

from abreast.core.outcome import Usage
from abreast.jobs.sample.draw_context import current_draw
from abreast.models.port import Reply

PASS = "good"


def passes(text):
    """is good"""
    return text.startswith(PASS), f"it is {text!r}"


class Table:
    """`says` is a function of (branch, round): a text, an exception, or an awaitable of a text."""

    def __init__(self, says, name="test/table"):
        self.name = name
        self.says = says
        self.asked = []
        self.requests = []
        self.now = self.peak = 0
        self.order = []

    async def complete(self, request, hear=None):
        here = current_draw()
        self.asked.append((here.branch, here.round))
        self.requests.append(request)
        self.now += 1
        self.peak = max(self.peak, self.now)
        try:
            said = self.says(here.branch, here.round)
            if asyncio.iscoroutine(said):
                said = await said
        finally:
            self.now -= 1
        if isinstance(said, BaseException):
            raise said
        return Reply(said, usage=Usage(1, 10, 5, 0.0), seconds=0.1, model="table")

    async def close(self):
        pass


def at(*places):
    """Passes at these (branch, round) only."""
    return lambda branch, number: (
        f"{PASS} {branch}.{number}" if (branch, number) in places else f"bad {branch}.{number}"
    )
