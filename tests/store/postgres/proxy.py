"""A line between a store and its server that can be cut before or after a statement arrives."""

import select
import socket
import threading
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class Line:
    """Passes everything on, until a statement with a mark in it comes: then it is cut, once.

    `before` the server gets the statement, or `after` the server has answered it. While it
    `is_mute`, it accepts connections, and nothing passes.
    """

    def __init__(self, url):
        parts = urlsplit(url)
        self._server = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = url.replace(f":{parts.port}/", f":{port}/")
        self.cuts = 0
        self._mark, self._when = None, None
        self.is_mute = False
        self._closing = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self, when, mark):
        self._mark, self._when = mark, when

    def close(self):
        self._closing.set()
        # Wakes the thread that accepts, and each that passes on.
        with suppress(OSError):
            socket.create_connection(self._listener.getsockname()).close()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self):
        while True:
            client, _ = self._listener.accept()
            if self._closing.is_set():
                client.close()
                return
            thread = threading.Thread(target=self._pass_on, args=(client,))
            self._threads.append(thread)
            thread.start()

    def _pass_on(self, client):
        is_marked = False  # the next answer is lost
        with client, socket.create_connection(self._server) as server, suppress(OSError):
            while not self._closing.is_set():
                ready, _, _ = select.select([client, server], [], [], 0.2)
                if self.is_mute:
                    self._closing.wait(0.05)
                    continue
                for source in ready:
                    data = source.recv(1 << 16)
                    if not data or (source is server and is_marked):
                        return
                    if source is client and self._mark and self._mark in data:
                        self._mark, is_marked = None, True
                        self.cuts += 1
                        if self._when == "before":
                            return
                    (server if source is client else client).sendall(data)


@contextmanager
def open_line(url):
    line = Line(url)
    try:
        yield line
    finally:
        line.close()
