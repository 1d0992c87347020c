"""any-llm in a window.

One client for all calls, which is its cheap form (its function makes a client per call).
"""
# mypy: disable-error-code="import-not-found"

from collections.abc import AsyncIterator

from any_llm import AnyLLM

from benchmarks.contenders.chat import KEY, MODEL, Ask, base_url, messages, windowed
from benchmarks.contenders.meter import run


async def opened(width: int) -> AsyncIterator[Ask]:
    """Open a client of its provider for OpenAI."""
    del width
    client = AnyLLM.create("openai", api_key=KEY, api_base=base_url())

    async def ask(text: str) -> object:
        reply = await client.acompletion(model=MODEL, messages=messages(text))
        return reply.choices[0].message.content

    yield ask


if __name__ == "__main__":
    run({"D": windowed(opened)}, package="any-llm-sdk")
