"""One request to the embedded model, in the form of `xllamacpp`, and its reply.

The library blocks the calling thread, passes each piece of text to a callback on that thread, and
stops once the callback returns True.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import CallFailed, NoSuchModel, ReplyBroken, RequestRefused, TooLong
from abreast.core.outcome import Usage
from abreast.models.chat_form import ToolCallDraft, message_form, present, tools_form
from abreast.models.port import Finish, Json, Message, OnText, Reply, Request
from abreast.models.schema import check_schema, parse
from abreast.system.installation import install_hint

_RANDOM_SEED = 0xFFFFFFFF  # with this value, llama.cpp chooses a seed itself
# Options of the library's JSON grammar. Without them, half of a small model's tokens would be line
# breaks. `lenient`: an unknown keyword must not disable the grammar, as the reply is checked
# afterwards anyway.
_GRAMMAR_OPTIONS: Final[Mapping[str, Json]] = {
    "x-guidance": {
        "whitespace_flexible": False,
        "key_separator": ": ",
        "item_separator": ", ",
        "lenient": True,
    }
}
_FINISHES: Final[Mapping[str, Finish]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
}


class EmbeddedRequest:
    """A request under way: run by a thread of the model, awaited on the caller's loop."""

    def __init__(self, name: str, file: str, request: Request, hear: OnText | None) -> None:
        self.body = _body(request)
        self.pieces: list[str] = []
        self.reading = False  # whether the prompt is being read
        # Set to False by a caller that no longer waits; the thread checks it with each piece.
        self.wanted = True
        self._name = name
        self._file = file
        self._request = request
        self._hear = hear
        self._loop = asyncio.get_running_loop()
        self.reply: asyncio.Future[Reply] = self._loop.create_future()
        self._tools: dict[int, ToolCallDraft] = {}
        self._usage = Usage(requests=1)
        self._finish: Finish = "other"
        self._id = ""
        self._began = 0.0
        self._first: float | None = None
        self._seconds = 0.0
        self._error: Exception | None = None

    def run(self, server: Any, stop: threading.Event) -> bool:  # noqa: ANN401 - the library has no types
        """Generate, on a thread; returns False if it was stopped before its end."""
        self._began = SYSTEM_CLOCK.now()
        stopped = False

        def on_chunk(chunk: dict[str, Any]) -> bool:
            nonlocal stopped
            # The library would suppress an exception here, and end the call as if it were complete.
            try:
                self._read_chunk(chunk)
            except Exception as error:  # noqa: BLE001 - raised below
                self._error = error
            stopped = self._error is not None or not self.wanted or stop.is_set()
            return stopped

        body = self.body
        if self._request.schema is not None:
            body = {
                **body,
                "grammar": library().json_schema_to_grammar(
                    {**self._request.schema, **_GRAMMAR_OPTIONS}
                ),
            }
        try:
            server.handle_chat_completions(body, on_chunk)
        except ValueError as error:
            raise RequestRefused(f"{self._name} can't take this request: {error}") from None
        self._seconds = SYSTEM_CLOCK.now() - self._began
        if self._error is not None:
            raise self._error
        return not stopped

    def succeed(self) -> None:
        """Build the reply from its pieces, and resolve `reply` with it."""
        text = "".join(self.pieces)
        calls = tuple(draft.tool_call() for _, draft in sorted(self._tools.items()))
        if not text and not calls and not (self._request.stop and self._finish == "stop"):
            raise ReplyBroken(f"{self._name} sent an empty reply")
        value: Json = None
        if self._request.schema is not None and not (calls and not text):
            cut = ", cut off at max_tokens," if self._finish == "length" else ""
            value = parse(text, self._request.schema, who=f"the reply of {self._name}{cut}")
        reply = Reply(
            text,
            value,
            calls,
            self._usage,
            self._finish,
            self._file,
            self._id,
            self._seconds,
            self._first,
            changed=() if self._request.reasoning in (None, "none") else ("without reasoning",),
        )
        self._on_loop(self._resolve, reply)

    def fail(self, error: Exception) -> None:
        """Raise `error` where the reply is awaited."""
        self._on_loop(self._resolve, error)

    def _read_chunk(self, chunk: dict[str, Any]) -> None:
        if "error" in chunk:
            raise _error_of(self._name, chunk["error"])
        self._id = chunk.get("id", self._id)
        if read := chunk.get("prompt_progress"):
            self.reading = read["processed"] < read["total"]
        if used := chunk.get("usage"):
            self._usage = Usage(1, used["prompt_tokens"], used["completion_tokens"], usd=0.0)
        for choice in chunk.get("choices", ()):
            delta = choice.get("delta", {})
            if text := delta.get("content"):
                self._add_text(text)
            for part in delta.get("tool_calls") or ():
                self._tools.setdefault(part.get("index", 0), ToolCallDraft()).add(part)
            if finish := choice.get("finish_reason"):
                self._finish = _FINISHES.get(finish, "other")

    def _add_text(self, text: str) -> None:
        if self._first is None:
            self._first = SYSTEM_CLOCK.now() - self._began
        self.pieces.append(text)
        if self._hear is not None:
            self._on_loop(self._pass_to_hear, text)

    def _pass_to_hear(self, text: str) -> None:
        if self._hear is None or self.reply.done():
            return
        try:
            self._hear(text)
        except Exception as error:  # noqa: BLE001 - raised where the reply is awaited
            self._resolve(error)

    def _resolve(self, result: Reply | Exception) -> None:
        if self.reply.done():
            return
        if isinstance(result, Exception):
            self.wanted = False
            self.reply.set_exception(result)
        else:
            self.reply.set_result(result)

    def _on_loop(self, callback: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:  # the loop was closed: no task waits
            self.wanted = False


def library(threads: int = 1) -> Any:  # noqa: ANN401 - the library has no types
    """The library that runs the models, imported when the first one is used."""
    # OpenMP reads this once, when it is loaded. Without it, its threads spin while they wait, and
    # starve all others.
    set_policy = threads > 1 and "OMP_WAIT_POLICY" not in os.environ
    if set_policy:
        os.environ["OMP_WAIT_POLICY"] = "passive"
    try:
        import xllamacpp  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise NoSuchModel(f"local models need xllamacpp: {install_hint('local')}") from None
    finally:
        if set_policy:
            del os.environ["OMP_WAIT_POLICY"]
    return xllamacpp


def _body(request: Request) -> dict[str, object]:
    """The request in the form of the library, which is that of an OpenAI-compatible server."""
    if not request.messages:
        raise RequestRefused("a request needs a message at least")
    if request.tool_choice is not None:
        raise RequestRefused("an embedded model can't be made to call a tool: tool_choice")
    if request.schema is not None:
        try:
            check_schema(request.schema)
        except ValueError as error:
            raise RequestRefused(str(error)) from None
    system = () if request.system is None else (Message("system", request.system),)
    return {
        **request.extra,
        "messages": [message_form(message) for message in (*system, *request.messages)],
        "temperature": request.temperature or 0.0,
        "seed": (request.seed or 0) % _RANDOM_SEED,
        "cache_prompt": False,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,  # makes the callback run while a long prompt is read, too
        **present(
            max_tokens=request.max_tokens,
            stop=list(request.stop) or None,
            tools=tools_form(request),
        ),
    }


def _error_of(name: str, error: Mapping[str, Any]) -> CallFailed:
    status, message = error.get("code"), error.get("message", "")
    if error.get("type") == "exceed_context_size_error":
        tokens, context = error.get("n_prompt_tokens"), error.get("n_ctx")
        return TooLong(
            f"{name}: a prompt of {tokens} tokens doesn't fit a context of {context}", status=status
        )
    kind = RequestRefused if status == 400 else CallFailed  # noqa: PLR2004 - HTTP's bad request
    return kind(f"{name} can't answer this request: {message}", status=status)
