"""litellm in a window: its `acompletion`, which reckons usage and cost, and retries, by default."""
# mypy: disable-error-code="import-not-found"

import os
from collections.abc import AsyncIterator

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else importing it asks the network for prices

import litellm

from benchmarks.contenders.chat import KEY, MODEL, PATIENCE, Ask, base_url, messages, windowed
from benchmarks.contenders.meter import run


async def opened(width: int) -> AsyncIterator[Ask]:
    """Open nothing: it keeps its clients to itself."""
    del width

    async def ask(text: str) -> object:
        reply = await litellm.acompletion(
            model=f"openai/{MODEL}",
            messages=messages(text),
            api_base=base_url(),
            api_key=KEY,
            timeout=PATIENCE,
        )
        return reply.choices[0].message.content

    yield ask


if __name__ == "__main__":
    run({"D": windowed(opened)}, package="litellm")
