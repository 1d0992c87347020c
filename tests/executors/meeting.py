"""A socket at which items of any process wait until the test releases them."""

import asyncio
from contextlib import asynccontextmanager, suppress


class Meeting:
    def __init__(self):
        self.port = 0
        self.most = 0
        self.came = {}  # name -> process ids: the worker's, then those of its children
        self._inside = {}
        self._open = False
        self._news = asyncio.Event()
        self._writers = []

    def ticket(self, name):
        return self.port, name

    async def wait_for(self, count):
        """Wait until `count` have arrived in all; the timeout is a safety net."""
        async with asyncio.timeout(60):
            while len(self.came) < count:
                self._news.clear()
                await self._news.wait()

    def release(self, *names):
        for name in names:
            self._inside.pop(str(name)).write(b"\n")

    def release_all(self):
        """Release all items, also those that arrive later."""
        self._open = True
        self.release(*self._inside)

    async def welcome(self, reader, writer):
        self._writers.append(writer)
        name, *pids = (await reader.readline()).decode().split()
        self._inside[name] = writer
        self.most = max(self.most, len(self._inside))
        self.came[name] = [int(pid) for pid in pids]
        self._news.set()
        if self._open:
            self.release(name)

    async def end(self):
        for writer in self._writers:
            writer.close()
            with suppress(ConnectionError):  # the process was killed while it waited
                await writer.wait_closed()


@asynccontextmanager
async def open_meeting():
    meeting = Meeting()
    server = await asyncio.start_server(meeting.welcome, "127.0.0.1", 0)
    meeting.port = server.sockets[0].getsockname()[1]
    try:
        yield meeting
    finally:
        await meeting.end()
        server.close()
        await server.wait_closed()
