"""The SDK of OpenAI, in a window.

As it comes, and on the aiohttp transport that it offers as an extra.
"""
# mypy: disable-error-code="import-not-found"

from collections.abc import AsyncIterator

import openai

from benchmarks.contenders.chat import KEY, MODEL, PATIENCE, Ask, base_url, messages, windowed
from benchmarks.contenders.meter import run


async def opened(width: int) -> AsyncIterator[Ask]:
    """Open a client as it comes: it allows a thousand connections."""
    del width
    async with openai.AsyncOpenAI(api_key=KEY, base_url=base_url(), timeout=PATIENCE) as client:
        yield _asking(client)


async def opened_on_aiohttp(width: int) -> AsyncIterator[Ask]:
    """Open a client over aiohttp."""
    del width
    http = openai.DefaultAioHttpClient()
    async with openai.AsyncOpenAI(
        api_key=KEY, base_url=base_url(), timeout=PATIENCE, http_client=http
    ) as client:
        yield _asking(client)


def _asking(client: openai.AsyncOpenAI) -> Ask:
    async def ask(text: str) -> object:
        reply = await client.chat.completions.create(model=MODEL, messages=messages(text))
        return reply.choices[0].message.content

    return ask


if __name__ == "__main__":
    run({"D": windowed(opened), "D-aiohttp": windowed(opened_on_aiohttp)}, package="openai")
