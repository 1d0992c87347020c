"""SIGINT, SIGTERM and SIGHUP: the first stops the run, the second ends the process at once."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Self

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Handles the signals that end a run, while it is entered (on the loop, in the run's task).

    The first signal cancels the task. The second calls `on_second` and exits the process
    immediately. After `stop_cancelling`, the first signal no longer cancels the task.
    """

    def __init__(self, on_second: Callable[[], None]) -> None:
        """`on_second` is called at the second signal, and must not block."""
        self.caught: signal.Signals | None = None
        self._on_second = on_second
        self._task: asyncio.Task[object] | None = None
        self._handled: list[signal.Signals] = []
        self._first_callback: Callable[[], None] | None = None

    @property
    def code(self) -> int:
        """The exit code that shells give for this signal: 130 for SIGINT, 143 for SIGTERM."""
        return 128 + (self.caught or signal.SIGINT)

    @property
    def word(self) -> str:
        """The signal in words, for a message."""
        return (
            "interrupted"
            if self.caught is signal.SIGINT
            else f"ended by {(self.caught or signal.SIGINT).name}"
        )

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        self._handled = [
            number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN
        ]  # nohup ignores SIGHUP, and that is kept
        self._add_handlers()
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in self._handled:
            loop.remove_signal_handler(number)

    def _add_handlers(self) -> None:
        loop = asyncio.get_running_loop()
        for number in self._handled:
            loop.add_signal_handler(number, self._catch, number)

    @contextmanager
    def raise_immediately(self) -> Iterator[None]:
        """Raise KeyboardInterrupt from the handler itself, inside this block.

        It is for code that blocks the loop, such as opening a store that another process has
        locked: a handler of the loop would not run until that ends.
        """
        for number in self._handled:
            signal.signal(number, self._raise)
        try:
            yield
        finally:
            self._add_handlers()

    def _raise(self, number: int, _: object) -> None:
        self.caught = signal.Signals(number)
        raise KeyboardInterrupt

    def on_first_signal(self, callback: Callable[[], None]) -> None:
        """Call `callback` at the first signal, before the task is cancelled; it must not block."""
        self._first_callback = callback

    def stop_cancelling(self) -> None:
        """Ignore the first signal from now on: the work is done, and the rest is short."""
        self._task = None

    def _catch(self, number: signal.Signals) -> None:
        if self.caught is not None:
            self._on_second()
            os._exit(128 + number)
        self.caught = number
        if self._first_callback is not None:
            self._first_callback()
        if self._task is not None:
            self._task.cancel()
