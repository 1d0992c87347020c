"""inspect_ai in a window: `generate` of its model for OpenAI, with as many connections as calls.

No log, no task.
"""
# mypy: disable-error-code="import-not-found"

from collections.abc import AsyncIterator

from inspect_ai.model import GenerateConfig, get_model

from benchmarks.contenders.chat import KEY, MODEL, Ask, base_url, windowed
from benchmarks.contenders.meter import run


async def opened(width: int) -> AsyncIterator[Ask]:
    """Open the model; chat completions, as its default for this model is another endpoint."""
    config = GenerateConfig(max_connections=width)
    async with get_model(
        f"openai/{MODEL}",
        base_url=base_url(),
        api_key=KEY,
        config=config,
        memoize=False,
        responses_api=False,
    ) as model:

        async def ask(text: str) -> object:
            return (await model.generate(text)).completion

        yield ask


if __name__ == "__main__":
    run({"D": windowed(opened)}, package="inspect-ai")
