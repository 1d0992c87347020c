"""The agent: a Ray actor on a node, which passes messages between the driver and a work process.

The work is not done in the actor's own process: Ray kills the children of an actor that ends, one
by one, and what they had started would live on. The work process is no child of it. It ends, with
all that it started, when the socket to the agent closes.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from abreast.executors.ray.facts import node_facts
from abreast.executors.ray.protocol import HEADER, POLL_SECONDS, NodeFacts, take_frames

AGENT_VARIABLE = "ABREAST_AGENT"
"""The environment variable with the process id of the agent that work is done for."""
_READ_BYTES = 1 << 18
_ROOT = str(Path(__file__).parents[3])
# It forks first: the parent exits, and the work process is an orphan in a session of its own.
_PROGRAM = (
    "import os, sys\n"
    "if os.fork(): os._exit(0)\n"
    "sys.path.insert(0, {root!r})\n"
    "from abreast.executors.ray.work import main\n"
    "main({channel}, {sys_path!r})\n"
)


class NodeAgent:
    """What the driver calls: `hello` once, then `post` and `poll`.

    It ends itself, and with it all its work, when it has not been polled for `lease` seconds: then
    the driver is dead or can't reach it, and does the work elsewhere.
    """

    def __init__(self, lease: float, sys_path: Sequence[str]) -> None:
        """Start the work process, which finds modules as the driver does."""
        self._lease = lease
        self._expiry: asyncio.TimerHandle | None = None
        self._next_batch = 0
        self._early: dict[int, bytes] = {}
        self._sending = asyncio.Lock()
        self._inbox = bytearray()
        self._frames: list[bytes] = []
        self._news = asyncio.Event()
        self._socket = _start_work_process(sys_path)

    async def hello(self) -> NodeFacts:
        """Where this is, and its versions."""
        loop = asyncio.get_running_loop()
        self._renew_lease(loop)
        loop.add_reader(self._socket, self._read)
        return node_facts(_node_id())

    async def post(self, number: int, frame: bytes) -> None:
        """Pass messages on; frames are numbered, as Ray may deliver them in another order."""
        self._early[number] = frame
        loop = asyncio.get_running_loop()
        async with self._sending:
            while (found := self._early.pop(self._next_batch, None)) is not None:
                self._next_batch += 1
                await loop.sock_sendall(self._socket, HEADER.pack(len(found)) + found)

    async def poll(self) -> list[bytes]:
        """Wait for something to report, for at most `POLL_SECONDS`."""
        self._renew_lease(asyncio.get_running_loop())
        if not self._frames:
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                pass
        self._news.clear()
        frames, self._frames = self._frames, []
        return frames

    def _renew_lease(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = loop.call_later(self._lease, os._exit, 1)

    def _read(self) -> None:
        try:
            chunk = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:  # the work process has died: the driver does its work elsewhere
            os._exit(1)
        self._inbox += chunk
        if frames := take_frames(self._inbox):
            self._frames += frames
            self._news.set()


def _node_id() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def _start_work_process(sys_path: Sequence[str]) -> socket.socket:
    ours, theirs = socket.socketpair()
    with theirs:
        program = _PROGRAM.format(root=_ROOT, channel=theirs.fileno(), sys_path=list(sys_path))
        subprocess.run(
            [sys.executable, "-P", "-c", program],
            # Work can tell whose it is, as its parent is not the agent.
            env={**os.environ, AGENT_VARIABLE: str(os.getpid())},
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            check=True,
        )
    ours.setblocking(False)  # noqa: FBT003 - it has no keyword
    return ours
