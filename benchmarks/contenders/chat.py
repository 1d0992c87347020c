"""What the contenders of D share.

Where the server is, what is asked, and the window around a plain client.

The server echoes, so that everyone's results can be checked. It is a child of the harness and not
of the contender: its CPU time is nobody's.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from benchmarks.contenders.meter import Lap, Load, Play, on_loop, prompt
from benchmarks.contenders.taskgroup_window import window

MODEL = "gpt-4o-mini"
KEY = "sk-none"
PATIENCE = 60.0

Ask = Callable[[str], Awaitable[object]]


def base_url() -> str:
    """Return where chat completions are, as the harness says."""
    return os.environ["BENCHMARK_CHAT"] + "/v1"


def messages(text: str) -> list[dict[str, str]]:
    """Return one turn of a user."""
    return [{"role": "user", "content": text}]


def windowed(opened: Callable[[int], AsyncIterator[Ask]]) -> Play:
    """Make a play of a client.

    `opened(width)` yields what asks one question, and closes it afterwards.
    """
    opening = asynccontextmanager(opened)

    async def play(load: Load, lap: Lap) -> list[object]:
        async with opening(load.width) as ask:

            async def one(index: int) -> object:
                return await ask(prompt(index))

            with lap:
                return await window(one, range(load.n), load.width)

    return on_loop(play)
