"""Many calls of one client: `python serve_load.py CLIENT CALLS WIDTH MODEL`; prints JSON."""

# mypy: ignore-errors

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable

Ask = Callable[[str], Awaitable[None]]


def openai(model: str) -> Ask:
    from openai import AsyncOpenAI

    client = AsyncOpenAI(timeout=300)

    async def ask(text: str) -> None:
        turn = [{"role": "user", "content": text}]
        await client.chat.completions.create(model=model, messages=turn, max_tokens=16)

    return ask


def anthropic(model: str) -> Ask:
    from anthropic import AsyncAnthropic

    client = AsyncAnthropic(timeout=300)

    async def ask(text: str) -> None:
        turn = [{"role": "user", "content": text}]
        await client.messages.create(model=model, messages=turn, max_tokens=16)

    return ask


def langchain(model: str) -> Ask:
    from langchain_openai import ChatOpenAI

    client = ChatOpenAI(model=model, timeout=300, max_tokens=16)

    async def ask(text: str) -> None:
        await client.ainvoke(text)

    return ask


async def main() -> None:
    name, calls, width, model = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    ask = {"openai": openai, "anthropic": anthropic, "langchain": langchain}[name](model)
    errors = Counter()
    numbers = iter(range(calls))

    async def work() -> None:
        for number in numbers:
            try:
                await ask(f"{name} {number}")
            except Exception as error:  # noqa: BLE001 - counted
                errors[type(error).__name__] += 1

    start = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(width)))
    seconds = time.perf_counter() - start
    print(json.dumps({"client": name, "calls": calls, "errors": errors, "seconds": seconds}))


if __name__ == "__main__":
    asyncio.run(main())
