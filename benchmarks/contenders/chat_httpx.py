"""httpx alone, in a window."""
# mypy: disable-error-code="import-not-found"

from collections.abc import AsyncIterator

import httpx

from benchmarks.contenders.chat import KEY, MODEL, PATIENCE, Ask, base_url, messages, windowed
from benchmarks.contenders.meter import run


async def opened(width: int) -> AsyncIterator[Ask]:
    """Open a client, with room for as many connections as calls."""
    limits = httpx.Limits(max_connections=width, max_keepalive_connections=width)
    headers = {"authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(
        base_url=base_url(), limits=limits, headers=headers, timeout=PATIENCE
    ) as client:

        async def ask(text: str) -> object:
            response = await client.post(
                "/chat/completions", json={"model": MODEL, "messages": messages(text)}
            )
            return response.json()["choices"][0]["message"]["content"]

        yield ask


if __name__ == "__main__":
    run({"D": windowed(opened)}, package="httpx")
