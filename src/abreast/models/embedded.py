"""The embedded model: a GGUF file, run inside this process with no key and no network.

`xllamacpp` blocks the thread that asks it, tells each piece of text to a callback on that thread, and stops once the
callback returns True. So a loaded model has as many threads as it has slots, and one more request waits in our own
queue: where it is dropped at once when nobody wants it any more, which the library's queue can't do.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import os
import queue
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import CallFailed, NoSuchModel, ReplyBroken, RequestRefused, TooLong
from abreast.core.outcome import Usage
from abreast.models import weights
from abreast.models.port import Finish, Hear, Json, Message, Reply, Request, ToolCall
from abreast.models.schema import check_schema, parse
from abreast.models.weights import Progress

SLOTS = 8
CONTEXT = 2048  # tokens of one slot; 8 such slots of smollm2 take 380 MB
# Tokens reckoned in one go. From 64 tokens of one prompt on, llama.cpp's attention takes another way, which rounds
# otherwise: with 64 or more, how a prompt was cut, and so its text, depended on what ran beside it (5 of 8 differed).
# Below, all 8 were the same, for no more CPU time; and a call is stopped after 32 tokens of its prompt at the latest.
BATCH = 32
_NO_SEED = 0xFFFFFFFF  # what llama.cpp takes for "choose one yourself"
_SOCKET_LONGEST = 100  # a path of a Unix socket has room for 107 bytes
# Said to the library's JSON grammar. Left to itself, half of a small model's tokens would be line breaks; and a keyword
# that the grammar doesn't know must not undo the rest of it, since the reply is checked afterwards anyway.
_TIGHT: Final[Mapping[str, Json]] = {
    "x-guidance": {"whitespace_flexible": False, "key_separator": ": ", "item_separator": ", ", "lenient": True}
}
_FINISHES: Final[Mapping[str, Finish]] = {"stop": "stop", "length": "length", "tool_calls": "tool_calls"}


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a loaded model has done so far, and what it is doing."""

    loads: int
    running: int
    most_running: int
    ended: int
    stopped: int
    """Of those ended: how many before they were whole, since nobody wanted them any more."""
    unread: int
    """Of those stopped: how many while their prompt was still being read."""
    pieces: int
    """Of text, about one a token, of all calls together."""


class Embedded:
    """A model that runs in this process: `local/smollm2`, or any GGUF file as `local/path/to.gguf`.

    It is loaded by the first call, once per process and file however many of these there are, and freed when the last
    of them is closed. Several calls run side by side, as many as the one that loaded it has `slots`; others wait for
    their turn, which is no part of `Reply.seconds`. With a temperature of 0, the default, or a seed, the same request
    gives the same text, whatever runs beside it.

    Without a `path`, `local/smollm2` is fetched into the cache when it isn't there, telling `progress`.

        model = Embedded("local/smollm2")
        reply = await model.complete(Request((Message("user", "Name a colour."),), max_tokens=8))
    """

    greedy = True
    """It says the likeliest unless a temperature is given."""

    def __init__(
        self,
        name: str = "local/smollm2",
        path: str | os.PathLike[str] | None = None,
        *,
        slots: int = SLOTS,
        context: int = CONTEXT,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Load nothing yet. `threads` is `ABREAST_LOCAL_THREADS` or 1 unless given."""
        if not 1 <= slots <= BATCH:
            raise ValueError(f"slots must be between 1 and {BATCH}, not {slots!r}")
        self._name = name
        self._source = _Source.of(name, path, progress)
        self._setting = _Setting(slots, context, threads or int(os.environ.get("ABREAST_LOCAL_THREADS", "1")))
        self._calls: set[_Call] = set()
        self._loaded: _Loaded | None = None
        self._closed = False

    @property
    def name(self) -> str:
        """`provider/model`, as it was asked for."""
        return self._name

    def __repr__(self) -> str:
        return f"<Embedded {self._name}: {'closed' if self._closed else 'open'}, {len(self._calls)} calls>"

    def statistics(self) -> Statistics:
        """Of the loaded model, which others may share."""
        return self._loaded.statistics() if self._loaded else Statistics(0, 0, 0, 0, 0, 0, 0)

    async def complete(self, request: Request, hear: Hear | None = None) -> Reply:
        """Answer once; waits for the model to be loaded, and for a slot. Cancelling stops it at the next token.

        Raises TooLong for a prompt beyond the context, NoSuchModel for a file that can't be had or read,
        RequestRefused, ReplyBroken and ReplyInvalid.
        """
        if self._closed:
            raise CallFailed(f"{self._name} is closed")
        call = _Call(self._name, self._source.path.name, request, hear)
        self._loaded = self._loaded or _SHARED.take(self._source, self._setting)
        self._calls.add(call)
        self._loaded.calls.put(call)
        try:
            return await call.reply
        finally:
            call.wanted = False
            self._calls.discard(call)

    async def close(self) -> None:
        """Stop what still runs; the last to close frees the memory. Harmless the second time."""
        self._closed = True
        for call in tuple(self._calls):
            call.wanted = False
            call.fail(CallFailed(f"{self._name} was closed before it had answered"))
        loaded, self._loaded = self._loaded, None
        if loaded is not None and _SHARED.give_back(loaded):
            await asyncio.to_thread(loaded.end)


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the weights are, and how they come there."""

    name: str
    path: Path
    weights: weights.Weights | None = None
    progress: Progress | None = None

    @classmethod
    def of(cls, name: str, path: str | os.PathLike[str] | None, progress: Progress | None) -> _Source:
        if path is not None:
            return cls(name, Path(path).expanduser().resolve())
        known = weights.KNOWN.get(name)
        if known is not None:
            return cls(name, weights.path_of(known).resolve(), known, progress)
        return cls(name, Path(name.removeprefix("local/")).expanduser().resolve())

    def have(self, stop: threading.Event) -> None:
        """See to it that the file is there and is a GGUF one: what else it may be is for the library to find out."""
        if self.weights is not None:
            weights.fetch(self.weights, progress=self.progress, stop=stop)
        try:
            with self.path.open("rb") as file:
                magic = file.read(4)
        except OSError as error:
            raise NoSuchModel(f"{self.name}: {self.path} can't be read: {error.strerror}") from None
        if magic != b"GGUF":
            raise NoSuchModel(f"{self.name}: {self.path} is not a GGUF file")


@dataclass(frozen=True, slots=True)
class _Setting:
    slots: int
    context: int
    threads: int


class _Loaded:
    """A model in memory, or about to be, with a thread per slot; shared by all who name the same file."""

    def __init__(self, source: _Source, setting: _Setting) -> None:
        self.source = source
        self.holders = 0
        self.calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._setting = setting
        self._server: Any = None
        self._guard = threading.Lock()  # of the server
        self._counts = threading.Lock()
        self._running: set[_Call] = set()
        self._loads = self._most = self._ended = self._stopped = self._unread = self._pieces = 0
        self._stop = threading.Event()
        # Daemons, since others are waited for before the exit handlers run, which is where these are told to end.
        self._threads = [
            threading.Thread(target=self._work, name=f"abreast-local-{slot}", daemon=True)
            for slot in range(setting.slots)
        ]
        for thread in self._threads:
            thread.start()

    def statistics(self) -> Statistics:
        with self._counts:
            return Statistics(
                self._loads, len(self._running), self._most, self._ended, self._stopped, self._unread, self._pieces
            )  # fmt: skip

    def end(self) -> None:
        """Stop every call, wait for the threads, free the memory. A running call ends at its next token or batch."""
        self._stop.set()
        for _ in self._threads:
            self.calls.put(None)
        for thread in self._threads:
            thread.join()
        self._server = None

    def forsake(self) -> None:
        """In a forked child, which has none of the library's threads: freeing would wait for them for ever."""
        if self._server is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._server))

    def _work(self) -> None:
        while (call := self.calls.get()) is not None:
            if call.wanted and not self._stop.is_set():
                self._answer(call)

    def _answer(self, call: _Call) -> None:
        try:
            server = self._ready()
            with self._counts:
                self._running.add(call)
                self._most = max(self._most, len(self._running))
            whole = False
            try:
                whole = call.run(server, self._stop)
            finally:
                with self._counts:
                    self._running.discard(call)
                    self._ended += 1
                    self._stopped += not whole
                    self._unread += call.reading and not whole
                    self._pieces += len(call.pieces)
            if whole:
                call.succeed()
            elif self._stop.is_set():
                call.fail(CallFailed(f"{self.source.name} was closed before it had answered"))
        except Exception as error:  # noqa: BLE001 - whatever it is belongs to the one who asked, not to this thread
            call.fail(error)

    def _ready(self) -> Any:  # noqa: ANN401 - the library has no types
        with self._guard:
            if self._server is None:
                self.source.have(self._stop)
                self._server = _load(self.source, self._setting)
                self._loads += 1
            return self._server


class _Call:
    """One request under way: run by a thread of the model's, awaited on the loop that asked."""

    def __init__(self, name: str, file: str, request: Request, hear: Hear | None) -> None:
        self.body = _body(request)
        self.pieces: list[str] = []
        self.reading = False  # the prompt
        self.wanted = True  # taken back by whoever no longer waits; the thread looks at it with each piece
        self._name = name
        self._file = file
        self._request = request
        self._hear = hear
        self._loop = asyncio.get_running_loop()
        self.reply: asyncio.Future[Reply] = self._loop.create_future()
        self._tools: dict[int, _ToolDraft] = {}
        self._usage = Usage(requests=1)
        self._finish: Finish = "other"
        self._id = ""
        self._began = 0.0
        self._first: float | None = None
        self._seconds = 0.0
        self._error: Exception | None = None

    def run(self, server: Any, stop: threading.Event) -> bool:  # noqa: ANN401 - the library has no types
        """Generate, on a thread; False if it was stopped before its end."""
        self._began = SYSTEM_CLOCK.now()
        stopped = False

        def take(chunk: dict[str, Any]) -> bool:
            nonlocal stopped
            # An exception in here would be swallowed by the library, and end the call as if it were whole.
            try:
                self._take(chunk)
            except Exception as error:  # noqa: BLE001 - raised below
                self._error = error
            stopped = self._error is not None or not self.wanted or stop.is_set()
            return stopped

        body = self.body
        if self._request.schema is not None:
            body = {**body, "grammar": _library().json_schema_to_grammar({**self._request.schema, **_TIGHT})}
        try:
            server.handle_chat_completions(body, take)
        except ValueError as error:
            raise RequestRefused(f"{self._name} can't take this request: {error}") from None
        self._seconds = SYSTEM_CLOCK.now() - self._began
        if self._error is not None:
            raise self._error
        return not stopped

    def succeed(self) -> None:
        """Make the reply of what came, and hand it over."""
        text = "".join(self.pieces)
        calls = tuple(draft.made() for _, draft in sorted(self._tools.items()))
        if not text and not calls and not (self._request.stop and self._finish == "stop"):
            raise ReplyBroken(f"{self._name} sent an empty reply")
        value: Json = None
        if self._request.schema is not None and not (calls and not text):
            cut = ", cut off at max_tokens," if self._finish == "length" else ""
            value = parse(text, self._request.schema, who=f"the reply of {self._name}{cut}")
        reply = Reply(
            text, value, calls, self._usage, self._finish, self._file, self._id, self._seconds, self._first
        )  # fmt: skip
        self._on_loop(self._settle, reply)

    def fail(self, error: Exception) -> None:
        """Raise `error` where the reply is awaited."""
        self._on_loop(self._settle, error)

    def _take(self, chunk: dict[str, Any]) -> None:
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
                self._piece(text)
            for part in delta.get("tool_calls") or ():
                self._tools.setdefault(part.get("index", 0), _ToolDraft()).add(part)
            if finish := choice.get("finish_reason"):
                self._finish = _FINISHES.get(finish, "other")

    def _piece(self, text: str) -> None:
        if self._first is None:
            self._first = SYSTEM_CLOCK.now() - self._began
        self.pieces.append(text)
        if self._hear is not None:
            self._on_loop(self._tell, text)

    def _tell(self, text: str) -> None:
        if self._hear is None or self.reply.done():
            return
        try:
            self._hear(text)
        except Exception as error:  # noqa: BLE001 - raised where the reply is awaited
            self._settle(error)

    def _settle(self, result: Reply | Exception) -> None:
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
        except RuntimeError:  # the loop was closed: nobody is waiting any more
            self.wanted = False


@dataclass(slots=True)
class _ToolDraft:
    """A tool call that comes in parts."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def add(self, part: Mapping[str, Any]) -> None:
        function = part.get("function", {})
        self.id = part.get("id") or self.id
        self.name = function.get("name") or self.name
        self.arguments.append(function.get("arguments") or "")

    def made(self) -> ToolCall:
        return ToolCall(self.id, self.name, "".join(self.arguments))


class _Shared:
    """The models in memory, by file: what makes it one per process."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._by_file: dict[Path, _Loaded] = {}

    def take(self, source: _Source, setting: _Setting) -> _Loaded:
        with self._guard:
            loaded = self._by_file.get(source.path)
            if loaded is None:
                loaded = self._by_file[source.path] = _Loaded(source, setting)
            loaded.holders += 1
            return loaded

    def give_back(self, loaded: _Loaded) -> bool:
        """Whether that was its last holder, who then has to end it."""
        with self._guard:
            loaded.holders -= 1
            if loaded.holders:
                return False
            del self._by_file[loaded.source.path]
            return True

    def end(self) -> None:
        """At the interpreter's exit: a thread of ours that came back from the library later would crash it."""
        with self._guard:
            every = list(self._by_file.values())
            self._by_file.clear()
        for loaded in every:
            loaded.end()

    def forget(self) -> None:
        """In a forked child, which loads its own when it needs one, and leaves by os._exit as multiprocessing's do.

        The library's own exit handlers would wait for its threads, which a fork doesn't copy.
        """
        for loaded in self._by_file.values():
            loaded.forsake()
        self._guard = threading.Lock()
        self._by_file = {}


def _load(source: _Source, setting: _Setting) -> Any:  # noqa: ANN401 - the library has no types
    xllamacpp = _library(setting.threads)
    params = xllamacpp.CommonParams()
    params.model.path = str(source.path)
    params.n_parallel = setting.slots
    params.n_ctx = setting.slots * setting.context
    params.n_batch = params.n_ubatch = BATCH
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED  # by rows: see BATCH
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = setting.threads
    params.n_gpu_layers = 0
    params.verbosity = -1  # nothing on our stderr
    params.offline = True
    params.fit_params = False  # or it would choose a context to its own liking
    params.cache_ram_mib = 0  # what was kept of one prompt would change how the next is reckoned, and so its text
    params.n_threads_http = 1
    # It always serves HTTP too: on a socket in a folder that only we can enter, and that is gone once it is bound.
    folder = tempfile.mkdtemp(prefix="abreast-")
    if len(folder) > _SOCKET_LONGEST - len("/s.sock"):
        Path(folder).rmdir()
        folder = tempfile.mkdtemp(prefix="abreast-", dir="/tmp")
    params.hostnames = [f"{folder}/s.sock"]
    try:
        return xllamacpp.Server(params)
    except RuntimeError:
        raise NoSuchModel(f"{source.name}: {source.path} is damaged, or of a kind that xllamacpp can't run") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _library(threads: int = 1) -> Any:  # noqa: ANN401 - the library has no types
    # Read once, when OpenMP is loaded: its threads would otherwise spin while they wait, and starve everybody else.
    ours = threads > 1 and "OMP_WAIT_POLICY" not in os.environ
    if ours:
        os.environ["OMP_WAIT_POLICY"] = "passive"
    try:
        import xllamacpp  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise NoSuchModel("local models need xllamacpp: pip install 'abreast[local]'") from None
    finally:
        if ours:
            del os.environ["OMP_WAIT_POLICY"]
    return xllamacpp


def _body(request: Request) -> dict[str, object]:
    """The request as the library takes it: as an OpenAI-compatible server does."""
    if not request.messages:
        raise RequestRefused("a request needs a message at least")
    if request.schema is not None:
        try:
            check_schema(request.schema)
        except ValueError as error:
            raise RequestRefused(str(error)) from None
    system = () if request.system is None else (Message("system", request.system),)
    body: dict[str, object] = {
        **request.extra,
        "messages": [_message(message) for message in (*system, *request.messages)],
        "temperature": request.temperature or 0.0,
        "seed": (request.seed or 0) % _NO_SEED,
        "cache_prompt": False,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,  # so that we are asked while a long prompt is read, too
    }
    if request.max_tokens is not None:
        body["max_tokens"] = request.max_tokens
    if request.stop:
        body["stop"] = list(request.stop)
    if request.tools:
        body["tools"] = [{"type": "function", "function": dict(tool)} for tool in request.tools]
    return body


def _message(message: Message) -> dict[str, object]:
    plain: dict[str, object] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        plain["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        plain["tool_call_id"] = message.tool_call_id
    return plain


def _error_of(name: str, error: Mapping[str, Any]) -> CallFailed:
    status, said = error.get("code"), error.get("message", "")
    if error.get("type") == "exceed_context_size_error":
        tokens, room = error.get("n_prompt_tokens"), error.get("n_ctx")
        return TooLong(f"{name}: a prompt of {tokens} tokens doesn't fit a context of {room}", status=status)
    kind = RequestRefused if status == 400 else CallFailed  # noqa: PLR2004 - as HTTP has it
    return kind(f"{name} can't answer this request: {said}", status=status)


_SHARED: Final = _Shared()
atexit.register(_SHARED.end)
os.register_at_fork(after_in_child=_SHARED.forget)
