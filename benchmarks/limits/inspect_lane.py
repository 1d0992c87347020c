"""Calls through inspect_ai's own controller, in its own environment: one line of JSON in, one out.

Only the controller is inspect_ai's (its defaults, its cooldown scaled as all times are); what sends
is a plain client that does with a rejection what its models do: the place is kept, and after three
to six seconds, which double each time, or as long as the server asks for if that is longer, the
call is sent again; that is not reported as a success.
"""
# mypy: disable-error-code="import-not-found"

import asyncio
import json
import random
import sys
import time
from typing import Any
from urllib.parse import urlsplit

from inspect_ai.util._concurrency import AdaptiveConcurrency, AdaptiveConcurrencyController

_TOO_MANY = 429
_WELL = 200


class Client:
    """POST over connections that are kept."""

    def __init__(self, url: str) -> None:
        """Nothing is opened yet."""
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def post(self, prompt: str) -> tuple[int, dict[str, str]]:
        """Ask once; the status and the headers."""
        body = json.dumps(
            {"model": "storm", "messages": [{"role": "user", "content": prompt}]}
        ).encode()
        reader, writer = (
            self._free.pop()
            if self._free
            else await asyncio.open_connection(self._host, self._port)
        )
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: storm\r\n"
            b"content-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(body), body)
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        await reader.readexactly(int(headers["content-length"]))
        self._free.append((reader, writer))
        return int(head[0].split()[1]), headers


async def lane(client: Client, prompts: list[str], scale: float, counts: dict[str, float]) -> None:
    """Ask them all."""
    config = AdaptiveConcurrency(cooldown_seconds=15.0 * scale)
    controller: Any = AdaptiveConcurrencyController("storm", config, visible=False)

    draw = random.Random(0)

    async def ask(prompt: str) -> None:
        async with controller.semaphore:
            pause = 3.0
            while True:
                status, headers = await client.post(prompt)
                if status == _WELL:
                    break
                if status == _TOO_MANY:
                    controller.notify_retry()
                told = float(headers.get("retry-after", "0"))
                await asyncio.sleep(max(told, (pause + draw.uniform(0, 3)) * scale))
                pause = min(2 * pause, 1800.0)
            counts["done"] += 1
            counts["seconds"] = time.monotonic() - counts["began"]
            if pause == 3.0:  # it was not sent again
                controller.notify_success()

    async with asyncio.TaskGroup() as group:
        for prompt in prompts:
            group.create_task(ask(prompt))


async def main() -> None:
    """Do what the line says.

    Lanes of an address and prompts each, until all is done or the time is over.
    """
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    asked = json.loads(sys.stdin.readline())
    counts = {"done": 0.0, "seconds": 0.0, "began": time.monotonic()}
    try:
        async with asyncio.timeout(asked["until"]), asyncio.TaskGroup() as group:
            for each in asked["lanes"]:
                group.create_task(
                    lane(Client(each["url"]), each["prompts"], asked["scale"], counts)
                )
    except TimeoutError:
        counts["seconds"] = asked["until"]
    sys.stdout.write(json.dumps(counts) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
