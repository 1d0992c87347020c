"""Broken replies of models, in every dialect, streamed and whole, read by the adapters themselves.

The adapters ask a server on this machine, which sends what was drawn. A call must end with a reply
that can be recorded, or with one of the errors of calls.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from abreast.core.errors import CallFailed
from abreast.models.port import Message, Reply, Request
from abreast.models.providers.anthropic import Anthropic
from abreast.models.providers.gemini import Gemini
from abreast.models.providers.openai import OpenAI
from abreast.models.providers.provider import Provider
from abreast.models.providers.responses import OpenAIResponses
from abreast.store.codec.codec import decode, encode, encode_error
from benchmarks.fuzz.mutator import change, change_document, hostile_value, write_json
from benchmarks.fuzz.results import SLOW, Fuzzed

CORPUS: Final[Mapping[str, Mapping[str, Any]]] = json.loads(
    (Path(__file__).parent / "corpus" / "replies.json").read_text()
)
KEY: Final = "sk-planted-0123456789"
_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"word": {"type": "string"}, "many": {"type": "array"}},
    "required": ["word"],
}
_TOOL: Final[Mapping[str, Any]] = {
    "name": "look",
    "description": "Look.",
    "parameters": {"type": "object"},
}
_ASKED: Final = (Message("user", "Hello"),)
REQUESTS: Final = (
    Request(_ASKED),
    Request(_ASKED, schema=_SCHEMA),
    Request(_ASKED, schema={"type": "array", "items": {"type": "string"}}),
    Request(_ASKED, tools=(_TOOL,), stop=("x",)),
    Request(_ASKED, tools=(_TOOL,), schema=_SCHEMA, max_tokens=9, temperature=0.5, seed=3),
)
_STATUSES: Final = (200,) * 40 + (201, 204, 400, 401, 402, 404, 413, 422, 429, 500, 503, 529)
_WAITS: Final = (
    *("2", "-1", "nan", "inf", "1e400", "9" * 400, "0.5s", "9" * 400 + "s", "1h1h", "soon", ""),
    *("Thu, 01 Jan 99999999999 00:00:00 GMT", "Thu, 01 Jan 1970 00:00:00 GMT", "0001-01-01T00:00Z"),
    *("9999-12-31T23:59:59-23:59", "Thu, 32 Foo 2026 99:99:99 +9999", "\u0663", "1_0", "0x10"),
)
_WAIT_HEADERS: Final = (
    *("retry-after", "retry-after-ms", "x-ratelimit-reset-requests", "x-ratelimit-reset-tokens"),
    *("anthropic-ratelimit-requests-reset", "x-ratelimit-remaining-requests"),
    *("x-ratelimit-limit-requests", "x-ratelimit-limit-tokens"),
)


@dataclass(slots=True)
class RawServer:
    """Answers each request with the same bytes."""

    port: int = 0
    answer: bytes = b""
    closes: bool = False
    """Whether the connection ends with the answer."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while (head := await reader.readuntil(b"\r\n\r\n")) is not None:
                await reader.readexactly(_length(head))
                writer.write(self.answer)
                await writer.drain()
                if self.closes:
                    break
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass
        finally:
            writer.close()


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


@asynccontextmanager
async def open_raw_server() -> AsyncIterator[RawServer]:
    """A server on a port of its own."""
    served = RawServer()
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()


def adapters(port: int) -> dict[str, Provider]:
    """A model of each dialect at this port."""
    url, wait = f"http://127.0.0.1:{port}/v1", 5.0
    return {
        "openai": OpenAI("openai/m", url, KEY, stall=wait),
        "openai-responses": OpenAIResponses("responses/m", url, KEY, stall=wait),
        "anthropic": Anthropic("anthropic/m", url, KEY, stall=wait),
        "gemini": Gemini("gemini/m", url, KEY, stall=wait),
    }


def body_of(dialect: str, draw: Random, *, stream: bool) -> bytes:
    """A reply of the corpus, changed."""
    if not stream:
        document = change_document(draw.choice(CORPUS[dialect]["whole"]), draw)
        return write_json(document, draw).encode("utf-8", "surrogatepass")
    events = list(draw.choice(CORPUS[dialect]["stream"]))
    for _ in range(draw.randint(0, 2)):
        at = draw.randrange(len(events))
        kind = draw.randrange(4)
        if kind == 0:
            events[at] = change_document(events[at], draw)
        elif kind == 1:
            events.insert(at, draw.choice(events))
        elif kind == 2:
            draw.shuffle(events)
        elif len(events) > 1:
            del events[at]
    if draw.random() < 0.05:
        events.append(hostile_value(draw))
    lines = [f"data: {write_json(event, draw)}\n\n" for event in events]
    if draw.random() < 0.9:
        lines.append("data: [DONE]\n\n")
    text = "".join(lines)
    if draw.random() < 0.1:
        text = change(text, draw)
    return text.encode("utf-8", "surrogatepass")


def answer_of(body: bytes, draw: Random, *, stream: bool) -> bytes:
    """The reply as HTTP, mostly with a status of success."""
    status = draw.choice(_STATUSES)
    kind = "text/event-stream" if stream else "application/json"
    head = f"HTTP/1.1 {status} Said\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    if status in (429, 503, 529) or draw.random() < 0.1:
        head += f"{draw.choice(_WAIT_HEADERS)}: {draw.choice(_WAITS)}\r\n"
    return f"{head}\r\n".encode("utf-8", "surrogatepass") + body


async def ask(model: Provider, request: Request, found: Fuzzed, given: bytes, hear: Any) -> None:  # noqa: ANN401 - a list's append, or None
    """Ask once, and judge what comes of it."""
    try:
        async with asyncio.timeout(SLOW):
            reply = await model.complete(request, hear)
        fault = fault_of_reply(reply)
    except CallFailed as error:
        fault = fault_of_error(error)
        if not fault:
            found.end(type(error).__name__)
            return
    except TimeoutError:
        found.hang(given)
        return
    except Exception as error:  # noqa: BLE001 - nothing else may come out
        found.break_off(error, given)
        return
    if fault:
        found.break_off(fault, given)
    else:
        found.end("reply")


def fault_of_reply(reply: Reply) -> str:
    """Why a reply can't be recorded and used; empty if it can."""
    texts = {"text": reply.text, "model": reply.model, "id": reply.id}
    for call in reply.tool_calls:
        texts |= {"call.id": call.id, "call.name": call.name, "call.arguments": call.arguments}
    wrong = [name for name, text in texts.items() if not _is_text(text)]
    if wrong:
        return f"{', '.join(wrong)} of a reply is no text: {texts}"
    if any(KEY in str(text) for text in texts.values()):
        return "a reply has the key in it"
    usage = reply.usage
    counts = (usage.input_tokens, usage.output_tokens, usage.cached_input_tokens)
    if any(type(count) is not int or count < 0 for count in counts):
        return f"a count of tokens is {counts}"
    recorded = decode(encode((reply.text, reply.value, reply.tool_calls, reply.kept), "a reply"))
    return "" if recorded is not None else "a reply is not recorded"


def fault_of_error(error: CallFailed) -> str:
    """Why an error can't be recorded and acted on; empty if it can."""
    wait = getattr(error, "retry_after", None)
    if wait is not None and not (math.isfinite(wait) and wait >= 0):
        return f"an error says to wait {wait} seconds"
    if not _is_text(str(error)) or "\n" in str(error):
        return f"an error is no line of text: {str(error)!r}"
    if KEY in str(error) or KEY in (error.raw or ""):
        return "an error has the key in it"
    encode_error(error)
    return ""


def _is_text(text: object) -> bool:
    if not isinstance(text, str):
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


Answers = Callable[[str, Random, bool], bytes]


def draw_reply(dialect: str, draw: Random, stream: bool) -> bytes:  # noqa: FBT001 - as `Answers`
    """A whole HTTP answer with a changed reply in it."""
    return answer_of(body_of(dialect, draw, stream=stream), draw, stream=stream)


async def ask_at_random(tries: int, seed: int, answers: Answers, *, closes: bool) -> Fuzzed:
    """Ask models of all dialects so often; each time the server sends another answer."""
    found, draw = Fuzzed(), Random(seed)
    async with open_raw_server() as server:
        server.closes = closes
        models = adapters(server.port)
        for number in range(tries):
            dialect, stream = draw.choice(sorted(models)), draw.random() < 0.5
            server.answer = answers(dialect, draw, stream)
            hear = [].append if stream else None  # type: ignore[var-annotated]
            await ask(models[dialect], draw.choice(REQUESTS), found, server.answer, hear)
            if number % 50 == 0:  # what was learned of the model may hide later refusals
                for model in models.values():
                    await model.close()
                models = adapters(server.port)
        for model in models.values():
            await model.close()
    return found


def fuzz_replies(tries: int, seed: int) -> Fuzzed:
    """Give broken replies to the adapters."""
    return asyncio.run(ask_at_random(tries, seed, draw_reply, closes=False))
