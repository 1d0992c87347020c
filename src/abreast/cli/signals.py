"""Ctrl-C and its relatives: the first asks the run to stop, the second ends everything at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Self

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Watches for the signals that end a run, while it is entered (on the loop, in its task).

    The first one cancels the task. Another one calls `at_once` and leaves the process there and
    then. Whoever needs no cancelling any more calls `let_be`.
    """

    def __init__(self, at_once: Callable[[], None]) -> None:
        """`at_once` must not wait for anything."""
        self.caught: signal.Signals | None = None
        self._at_once = at_once
        self._task: asyncio.Task[object] | None = None
        self._heard: list[signal.Signals] = []
        self._first: Callable[[], None] | None = None

    @property
    def code(self) -> int:
        """The exit code of a process that ended by this signal, as shells count: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + (self.caught or signal.SIGINT)

    @property
    def word(self) -> str:
        """What happened to us."""
        return (
            "interrupted"
            if self.caught is signal.SIGINT
            else f"ended by {(self.caught or signal.SIGINT).name}"
        )

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        self._heard = [
            number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN
        ]  # as nohup wants
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in self._heard:
            loop.remove_signal_handler(number)

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        for number in self._heard:
            loop.add_signal_handler(number, self._catch, number)

    @contextmanager
    def raising(self) -> Iterator[None]:
        """While the loop itself is held up, as by a store that another process keeps locked: raise there and then."""
        for number in self._heard:
            signal.signal(number, self._raise)
        try:
            yield
        finally:
            self._listen()

    def _raise(self, number: int, _: object) -> None:
        self.caught = signal.Signals(number)
        raise KeyboardInterrupt

    def call_first(self, callback: Callable[[], None]) -> None:
        """Call this at the first signal, before anything is stopped.

        It must not wait for anything.
        """
        self._first = callback

    def let_be(self) -> None:
        """The work is over, and what is left takes a moment only: a first signal changes nothing any more."""
        self._task = None

    def _catch(self, number: signal.Signals) -> None:
        if self.caught is not None:
            self._at_once()
            os._exit(128 + number)
        self.caught = number
        if self._first is not None:
            self._first()
        if self._task is not None:
            self._task.cancel()
