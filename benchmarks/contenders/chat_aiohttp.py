"""The floor of D: aiohttp alone, in a window.

No limits, no retries, no errors told apart, nothing kept.
"""

import json
from collections.abc import AsyncIterator

import aiohttp

from benchmarks.contenders.chat import KEY, MODEL, Ask, base_url, messages, windowed
from benchmarks.contenders.meter import run


async def opened(width: int) -> AsyncIterator[Ask]:
    """Open a session, with room for as many connections as calls."""
    url = base_url() + "/chat/completions"
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=width), headers=headers
    ) as session:

        async def ask(text: str) -> object:
            body = json.dumps({"model": MODEL, "messages": messages(text)}).encode()
            async with session.post(url, data=body) as response:
                return json.loads(await response.read())["choices"][0]["message"]["content"]

        yield ask


if __name__ == "__main__":
    run({"D": windowed(opened)}, package="aiohttp")
