"""Which models are being loaded now, so that progress can show it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

Listener: TypeAlias = Callable[[], None]


class ModelLoading:
    """What is being loaded, from any thread; listeners are called when that changes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: list[str] = []
        self._listeners: list[Listener] = []

    @property
    def texts(self) -> tuple[str, ...]:
        """A few words for each model that is being loaded."""
        with self._lock:
            return tuple(self._texts)

    @contextmanager
    def during(self, text: str) -> Iterator[None]:
        """Say this while the block lasts."""
        self._change(self._texts.append, text)
        try:
            yield
        finally:
            self._change(self._texts.remove, text)

    def listen(self, listener: Listener) -> None:
        """Call it after each change, in the thread that loads."""
        with self._lock:
            self._listeners.append(listener)

    def unlisten(self, listener: Listener) -> None:
        """Call it no more; one that doesn't listen is no error."""
        with self._lock:
            self._listeners = [one for one in self._listeners if one != listener]

    def _change(self, change: Callable[[str], None], text: str) -> None:
        with self._lock:
            change(text)
            listeners = list(self._listeners)
        for listener in listeners:
            listener()


LOADING: Final = ModelLoading()
