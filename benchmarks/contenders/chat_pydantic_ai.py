"""pydantic-ai in a window: one agent without tools, one run of it per question."""
# mypy: disable-error-code="import-not-found"

from collections.abc import AsyncIterator

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from benchmarks.contenders.chat import KEY, MODEL, Ask, base_url, windowed
from benchmarks.contenders.meter import run


async def opened(width: int) -> AsyncIterator[Ask]:
    """Make the agent."""
    del width
    agent = Agent(OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=base_url(), api_key=KEY)))

    async def ask(text: str) -> object:
        return (await agent.run(text)).output

    yield ask


if __name__ == "__main__":
    run({"D": windowed(opened)}, package="pydantic-ai-slim")
