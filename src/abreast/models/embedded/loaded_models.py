"""Embedded models in memory, one per file however many use it, each with a thread per slot.

One more request than there are slots waits in our own queue: where it is dropped at once when
nobody wants it any more, which the library's queue can't do.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import queue
import shutil
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from abreast.core.errors import CallFailed, NoSuchModel
from abreast.models.embedded import weights
from abreast.models.embedded.request import EmbeddedRequest, library
from abreast.models.embedded.weights import Progress

# Tokens reckoned in one go. From 64 tokens of one prompt on, llama.cpp's attention takes another
# way, which rounds otherwise: with 64 or more, how a prompt was cut, and so its text, depended on
# what ran beside it (5 of 8 differed). Below, all 8 were the same, for no more CPU time; and a call
# is stopped after 32 tokens of its prompt at the latest.
BATCH = 32
_SOCKET_LONGEST = 100  # a path of a Unix socket has room for 107 bytes


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


@dataclass(frozen=True, slots=True)
class Source:
    """Where the weights are, and how they come there."""

    name: str
    path: Path
    weights: weights.Weights | None = None
    progress: Progress | None = None

    @classmethod
    def of(
        cls, name: str, path: str | os.PathLike[str] | None, progress: Progress | None
    ) -> Source:
        """Of a model by its name, or of the file that is given."""
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
class LoadSettings:
    """How much of the machine it may have."""

    slots: int
    context: int
    threads: int


class Loaded:
    """A model in memory, or about to be, with a thread per slot.

    Shared by all who name the same file.
    """

    def __init__(self, source: Source, setting: LoadSettings) -> None:
        self.source = source
        self.holders = 0
        self.calls: queue.SimpleQueue[EmbeddedRequest | None] = queue.SimpleQueue()
        self._setting = setting
        self._server: Any = None
        self._guard = threading.Lock()  # of the server
        self._counts = threading.Lock()
        self._running: set[EmbeddedRequest] = set()
        self._loads = self._most = self._ended = self._stopped = self._unread = self._pieces = 0
        self._stop = threading.Event()
        # Daemons, since others are waited for before the exit handlers run, which is where these
        # are told to end.
        self._threads = [
            threading.Thread(target=self._work, name=f"abreast-local-{slot}", daemon=True)
            for slot in range(setting.slots)
        ]
        for thread in self._threads:
            thread.start()

    def statistics(self) -> Statistics:
        """What it has done so far, at one moment."""
        with self._counts:
            return Statistics(
                self._loads,
                len(self._running),
                self._most,
                self._ended,
                self._stopped,
                self._unread,
                self._pieces,
            )

    def end(self) -> None:
        """Stop every call, wait for the threads, free the memory.

        A running call ends at its next token or batch.
        """
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

    def _answer(self, call: EmbeddedRequest) -> None:
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


class Shared:
    """The models in memory, by file: what makes it one per process."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._by_file: dict[Path, Loaded] = {}

    def take(self, source: Source, setting: LoadSettings) -> Loaded:
        """The model of this file, of which one more has hold now.

        The first one's setting counts.
        """
        with self._guard:
            loaded = self._by_file.get(source.path)
            if loaded is None:
                loaded = self._by_file[source.path] = Loaded(source, setting)
            loaded.holders += 1
            return loaded

    def give_back(self, loaded: Loaded) -> bool:
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


def _load(source: Source, setting: LoadSettings) -> Any:  # noqa: ANN401 - the library has no types
    xllamacpp = library(setting.threads)
    params = xllamacpp.CommonParams()
    params.model.path = str(source.path)
    params.n_parallel = setting.slots
    params.n_ctx = setting.slots * setting.context
    params.n_batch = params.n_ubatch = BATCH
    params.flash_attn_type = (
        xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    )  # by rows: see BATCH
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = setting.threads
    params.n_gpu_layers = 0
    params.verbosity = -1  # nothing on our stderr
    params.offline = True
    params.fit_params = False  # or it would choose a context to its own liking
    params.cache_ram_mib = (
        0  # what was kept of one prompt would change how the next is reckoned, and so its text
    )
    params.n_threads_http = 1
    # It always serves HTTP too: on a socket in a folder that only we can enter, and that is gone
    # once it is bound.
    folder = tempfile.mkdtemp(prefix="abreast-")
    if len(folder) > _SOCKET_LONGEST - len("/s.sock"):
        Path(folder).rmdir()
        folder = tempfile.mkdtemp(prefix="abreast-", dir="/tmp")
    params.hostnames = [f"{folder}/s.sock"]
    try:
        return xllamacpp.Server(params)
    except RuntimeError:
        raise NoSuchModel(
            f"{source.name}: {source.path} is damaged, or of a kind that xllamacpp can't run"
        ) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


SHARED: Final = Shared()
atexit.register(SHARED.end)
os.register_at_fork(after_in_child=SHARED.forget)
