"""The calls of a study by bare aiohttp: `python -m benchmarks.matrix_raw PLAN.json`.

Nothing is kept or scored.

What it takes is what this machine and its servers take: a bound that it misses is not ours to
reach.
"""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp


async def main(plan: dict[str, Any]) -> None:
    """Ask all lanes side by side, so many calls at once in each."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        for url in plan["urls"]:
            bodies = iter(plan["bodies"])
            for _ in range(plan["width"]):
                group.create_task(_ask(session, f"{url}/v1/chat/completions", bodies))


async def _ask(session: aiohttp.ClientSession, url: str, bodies: Iterator[object]) -> None:
    for body in bodies:
        async with session.post(url, json=body) as reply:
            await reply.json()


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text("utf-8"))))
