"""The messages between the driver and its agents on the nodes of a cluster.

    to an agent     LoadFunction, DropFunction   a map's function, once for each agent
                    CallFunction, RunCommand     work, numbered by the driver
                    CancelWork                   ends it; the agent answers when it is gone
                    DriverAnswer                 to what work asked
    to the driver   WorkEnded
                    AskDriver                    what work asks, such as a model call

Messages travel in lists, each list pickled as one frame: `post` takes those to the agent, `poll`
returns those to the driver. A poll without messages returns after `POLL_SECONDS`, so it is the
heartbeat, too. Between an agent and its work process, a frame has its length before it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TypeAlias

from abreast.core.frozen import record

POLL_SECONDS = 1.0  # how long an agent waits for something to report
HEADER = struct.Struct("!Q")


@record(frozen=True, slots=True)
class LoadFunction:
    """A function: the pickled `abreast.executors.worker.Setup`."""

    function: int
    setup: bytes
    is_async: bool


@record(frozen=True, slots=True)
class DropFunction:
    """The map of a function has ended."""

    function: int


@record(frozen=True, slots=True)
class CallFunction:
    """Call a function with a packed item; `item` is what an error calls it."""

    number: int
    function: int
    request: bytes
    item: str


@record(frozen=True, slots=True)
class RunCommand:
    """Run a command; its environment is `variables` and those that are about its node."""

    number: int
    argv: tuple[str, ...]
    stdin: bytes | None
    cwd: str | None
    variables: Mapping[str, str]
    keep: int


@record(frozen=True, slots=True)
class CancelWork:
    """End a call or command."""

    number: int


@record(frozen=True, slots=True)
class DriverAnswer:
    """The packed reply to what work number `number` asked."""

    number: int
    asked: int
    reply: bytes


@record(frozen=True, slots=True)
class AskDriver:
    """What work asks of its driver: a pickled call."""

    number: int
    asked: int
    call: bytes


@record(frozen=True, slots=True)
class WorkEnded:
    """A reply, as `abreast.executors.replies` packs it; None if it was cancelled and is gone."""

    number: int
    reply: bytes | None


@record(frozen=True, slots=True)
class NodeFacts:
    """What has to be equal on all machines, and where an agent is."""

    python: str
    abreast: str
    code: str  # digest of abreast's own files
    host: str = ""
    node: str = ""
    pid: int = 0


ToAgent: TypeAlias = (
    LoadFunction | DropFunction | CallFunction | RunCommand | CancelWork | DriverAnswer
)
ToDriver: TypeAlias = WorkEnded | AskDriver


def take_frames(inbox: bytearray) -> list[bytes]:
    """Remove the complete frames from what came over a socket and return them."""
    frames: list[bytes] = []
    while len(inbox) >= HEADER.size:
        end = HEADER.size + HEADER.unpack_from(inbox)[0]
        if len(inbox) < end:
            break
        frames.append(bytes(inbox[HEADER.size : end]))
        del inbox[:end]
    return frames
