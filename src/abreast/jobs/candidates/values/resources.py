"""Describes locks and open files, and refuses resources whose state can't be read.

A lock is described by whether it is held, and how often; an open file by its name, its mode, its
position, and whether it is closed. Neither the content of a file nor the waiters of a lock count.
The names of directories don't count: a test opens its files in another directory each time. The
state of a thread, a socket or a coroutine can't be read from outside: the reason names its type, so
that the report can say where it is.
"""

import _socket
import _thread
import io
import os
import re
import threading
import types
from collections.abc import Callable, Mapping
from typing import Any

from abreast.jobs.candidates.values.object_layout import (
    Unreadable,
    ValueDescription,
    is_one_of,
    mro_of,
)

_RLOCK_COUNT = re.compile(r"count=(\d+)")


def _reentrant(value: Any) -> ValueDescription:  # noqa: ANN401 - the C type has no name in typing
    """Describe an RLock; most versions of Python show its count only in its `repr`."""
    if (found := _RLOCK_COUNT.search(_thread.RLock.__repr__(value))) is None:
        raise Unreadable("a lock that doesn't tell how often it is held")
    return ValueDescription("object", state=[("held", int(found[1]))], identity=True)


def _file(value: Any) -> ValueDescription:  # noqa: ANN401 - six C types without a common base
    """Describe an open file, if it and its layers are of the standard library.

    Reading the attributes of other streams could run any code.
    """
    held = value
    while type(held) is not io.FileIO:
        if not is_one_of(type(held), *_LAYERS):
            raise Unreadable("a stream that is no file of the system can't be compared")
        held = held.raw if type(held) is not io.TextIOWrapper else held.buffer
    state: list[tuple[str, object]] = [
        ("name", _base_name(held.name)),
        ("mode", held.mode),
        ("closed", held.closed),
    ]
    if not held.closed:
        try:
            state.append(("position", value.tell()))
        except (OSError, ValueError):
            raise Unreadable("the position in an open file can't be read") from None
    return ValueDescription("object", state=state, identity=True)


_LAYERS = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom)


def _base_name(name: object) -> str:
    """Return the last part of a file's name; the number of a descriptor doesn't count."""
    if type(name) is bytes:
        name = os.fsdecode(name)
    return os.path.basename(name) if type(name) is str else "a descriptor"  # noqa: PTH119 - a str, not a Path


def _refuse(what: str) -> Callable[[Any], ValueDescription]:
    def refuse(_: object) -> ValueDescription:
        raise Unreadable(f"{what} can't be compared")

    return refuse


KNOWN: Mapping[type, Callable[[Any], ValueDescription]] = {
    _thread.LockType: lambda value: ValueDescription(
        "object", state=[("locked", _thread.LockType.locked(value))], identity=True
    ),
    _thread.RLock: _reentrant,
    **dict.fromkeys((*_LAYERS, io.FileIO), _file),
    threading.Thread: _refuse("a thread"),
    _thread._local: _refuse("what each thread has of its own"),  # noqa: SLF001 - the C type of `threading.local`
    _socket.socket: _refuse("a socket"),
    types.CoroutineType: _refuse("a coroutine"),
    types.AsyncGeneratorType: _refuse("an async generator"),
    types.FrameType: _refuse("a frame"),
}


def is_pending(cls: type) -> bool:
    """Whether values of a type need an event loop to run, so that their content isn't known."""
    return any(is_one_of(one, types.AsyncGeneratorType, types.CoroutineType) for one in mro_of(cls))
