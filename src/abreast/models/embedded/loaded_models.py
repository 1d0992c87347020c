"""Embedded models in memory: one per file, shared by all instances, with a thread per slot.

Requests beyond the number of slots wait in our own queue, from which a cancelled one is dropped at
once; the library's queue can't do that.
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
from abreast.models.embedded.loading import LOADING
from abreast.models.embedded.request import EmbeddedRequest, library
from abreast.models.embedded.weights import Progress

# Tokens computed in one batch. From 64 tokens of one prompt on, llama.cpp uses another attention
# kernel, which rounds differently: with 64 or more, the division of a prompt into batches, and so
# its text, depended on the other requests (5 of 8 texts differed). With less, all 8 were the same,
# for no more CPU time. A call is stopped after at most 32 tokens of its prompt.
BATCH = 32
_LONGEST_SOCKET_PATH = 100  # bytes; the system's limit is 107


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts of the calls of a loaded model."""

    loads: int
    running: int
    most_running: int
    ended: int
    stopped: int  # ended calls that were stopped before they were complete
    unread: int  # stopped calls whose prompt was still being read
    pieces: int  # pieces of text of all calls, about one per token


@dataclass(frozen=True, slots=True)
class Source:
    """The file of weights, and how to fetch it."""

    name: str
    path: Path
    weights: weights.Weights | None = None
    progress: Progress | None = None

    @classmethod
    def of(
        cls, name: str, path: str | os.PathLike[str] | None, progress: Progress | None
    ) -> Source:
        """The source of a model by its name, or of the given file."""
        if path is not None:
            return cls(name, Path(path).expanduser().resolve())
        known = weights.KNOWN.get(name)
        if known is not None:
            return cls(name, weights.path_of(known).resolve(), known, progress)
        return cls(name, Path(name.removeprefix("local/")).expanduser().resolve())

    def ensure_file(self, stop: threading.Event) -> None:
        """Fetch the file if needed, and check that it is a GGUF file.

        The library checks everything else.
        """
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
    """Slots, tokens of context per slot, and threads."""

    slots: int
    context: int
    threads: int


class Loaded:
    """A model in memory, or one to be loaded, with a thread per slot.

    It is shared by all instances that use the same file.
    """

    def __init__(self, source: Source, settings: LoadSettings) -> None:
        self.source = source
        self.holders = 0
        self.calls: queue.SimpleQueue[EmbeddedRequest | None] = queue.SimpleQueue()
        self._settings = settings
        self._server: Any = None
        self._server_lock = threading.Lock()
        self._counts_lock = threading.Lock()
        self._running: set[EmbeddedRequest] = set()
        self._loads = self._most_running = self._ended = self._stopped = self._unread = (
            self._pieces
        ) = 0
        self._stop = threading.Event()
        # Daemon threads: the interpreter waits for others before it runs the exit handlers, and an
        # exit handler ends these.
        self._threads = [
            threading.Thread(target=self._serve, name=f"abreast-local-{slot}", daemon=True)
            for slot in range(settings.slots)
        ]
        for thread in self._threads:
            thread.start()

    def statistics(self) -> Statistics:
        """A consistent snapshot of the counts."""
        with self._counts_lock:
            return Statistics(
                self._loads,
                len(self._running),
                self._most_running,
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

    def leak(self) -> None:
        """Never free the server: for a forked child.

        A fork does not copy the library's threads, and freeing would wait for them forever.
        """
        if self._server is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._server))

    def _serve(self) -> None:
        while (call := self.calls.get()) is not None:
            if call.wanted and not self._stop.is_set():
                self._answer(call)

    def _answer(self, call: EmbeddedRequest) -> None:
        try:
            server = self._load_once()
            with self._counts_lock:
                self._running.add(call)
                self._most_running = max(self._most_running, len(self._running))
            complete = False
            try:
                complete = call.run(server, self._stop)
            finally:
                with self._counts_lock:
                    self._running.discard(call)
                    self._ended += 1
                    self._stopped += not complete
                    self._unread += call.reading and not complete
                    self._pieces += len(call.pieces)
            if complete:
                call.succeed()
            elif self._stop.is_set():
                call.fail(CallFailed(f"{self.source.name} was closed before it had answered"))
        except Exception as error:  # noqa: BLE001 - raised where the reply is awaited
            call.fail(error)

    def _load_once(self) -> Any:  # noqa: ANN401 - the library has no types
        with self._server_lock:
            if self._server is None:
                there = self.source.weights is None or self.source.path.exists()
                with LOADING.during(
                    f"{'loading' if there else 'fetching the weights of'} {self.source.name}"
                ):
                    self.source.ensure_file(self._stop)
                    self._server = _load(self.source, self._settings)
                self._loads += 1
            return self._server


class LoadedModels:
    """The models in memory, by file: one of each per process."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._by_file: dict[Path, Loaded] = {}

    def take(self, source: Source, settings: LoadSettings) -> Loaded:
        """The model of this file, with one more holder.

        The settings are those of the first holder.
        """
        with self._guard:
            loaded = self._by_file.get(source.path)
            if loaded is None:
                loaded = self._by_file[source.path] = Loaded(source, settings)
            loaded.holders += 1
            return loaded

    def give_back(self, loaded: Loaded) -> bool:
        """Remove a holder; returns whether it was the last one, which then must call `end`."""
        with self._guard:
            loaded.holders -= 1
            if loaded.holders:
                return False
            del self._by_file[loaded.source.path]
            return True

    def end(self) -> None:
        """End all models at the exit of the interpreter.

        A thread that returned from the library later would crash it.
        """
        with self._guard:
            models = list(self._by_file.values())
            self._by_file.clear()
        for loaded in models:
            loaded.end()

    def forget(self) -> None:
        """Forget all models: for a forked child, which loads its own if it needs one.

        The child must leave by `os._exit`, as those of multiprocessing do: the library's own exit
        handlers would wait for its threads, which a fork doesn't copy.
        """
        for loaded in self._by_file.values():
            loaded.leak()
        self._guard = threading.Lock()
        self._by_file = {}


def _load(source: Source, settings: LoadSettings) -> Any:  # noqa: ANN401 - the library has no types
    xllamacpp = library(settings.threads)
    params = xllamacpp.CommonParams()
    params.model.path = str(source.path)
    params.n_parallel = settings.slots
    params.n_ctx = settings.slots * settings.context
    params.n_batch = params.n_ubatch = BATCH
    # By rows: see BATCH.
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings.threads
    params.n_gpu_layers = 0
    params.verbosity = -1  # no output on stderr
    params.offline = True
    params.fit_params = False  # else it would choose the size of the context
    # No cache: a cached part of a prompt would change how the next is computed, and so its text.
    params.cache_ram_mib = 0
    params.n_threads_http = 1
    # It always serves HTTP too: on a socket in a directory that only this user can enter, and that
    # is removed once the socket is bound.
    folder = tempfile.mkdtemp(prefix="abreast-")
    if len(folder) > _LONGEST_SOCKET_PATH - len("/s.sock"):
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


LOADED_MODELS: Final = LoadedModels()
atexit.register(LOADED_MODELS.end)
os.register_at_fork(after_in_child=LOADED_MODELS.forget)
