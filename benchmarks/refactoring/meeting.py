"""Counts the agents that work at the same time, as they themselves say it."""

import socketserver
import threading
from types import TracebackType
from typing import Self


class Meeting:
    """A server that agents tell when they begin and end.

    The first agents wait until `size` of them are there, which proves that so many run at once. Of
    those after them none waits. `peak` is the largest number at once.
    """

    def __init__(self, size: int, patience: float = 60.0) -> None:
        self.peak = 0
        self.met = False
        self.agents = 0
        self._size, self._patience, self._now = size, patience, 0
        self._changed = threading.Condition()
        meeting = self

        class Guest(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                meeting.begin()
                try:
                    self.request.sendall(b"b")
                    self.request.recv(1)
                finally:
                    meeting.end()
                self.request.sendall(b"e")

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Guest)
        self._server.daemon_threads = True
        self._server.request_queue_size = 128
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def port(self) -> int:
        """The port on the loopback interface."""
        return int(self._server.server_address[1])

    def begin(self) -> None:
        """Count an agent; wait, if it is one of the first."""
        with self._changed:
            self._now += 1
            self.agents += 1
            self.peak = max(self.peak, self._now)
            if self._now >= self._size:
                self.met = True
                self._changed.notify_all()
            self._changed.wait_for(lambda: self.met, self._patience)

    def end(self) -> None:
        """Count an agent no longer."""
        with self._changed:
            self._now -= 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
