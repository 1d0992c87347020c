"""How locks and open files are read, and what is said of resources whose state can't be read.

A lock is whether it is held, and how often; an open file is its name, its mode, its position, and
whether it is closed. Neither the content of a file nor who waits for a lock is looked at. The names
of directories don't count: the same test opens its files in another directory each time. A thread,
a socket, a coroutine has a state that can't be read from outside: the reason says what it is, so
that the place where it is held can be named.
"""

from __future__ import annotations

import _socket
import _thread
import io
import os
import re
import threading
import types
from collections.abc import Callable, Mapping
from typing import Any

from abreast.jobs.candidates.values.object_layout import Sketch, Unreadable, is_one_of, mro_of

_HELD = re.compile(r"count=(\d+)")


def _lock(value: Any) -> Sketch:  # noqa: ANN401 - the type of C has no name in typing
    return Sketch("object", state=[("locked", _thread.LockType.locked(value))], identity=True)


def _reentrant(value: Any) -> Sketch:  # noqa: ANN401
    """Its count has no method of its own in most versions; its own `repr` tells it."""
    found = _HELD.search(_thread.RLock.__repr__(value))
    if found is None:
        raise Unreadable("a lock that doesn't tell how often it is held")
    return Sketch("object", state=[("held", int(found[1]))], identity=True)


def _file(value: Any) -> Sketch:  # noqa: ANN401 - six types of C that have no common one
    """An open file, if it and all that it stands on are the standard library's own: others may do anything."""
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
    return Sketch("object", state=state, identity=True)


_LAYERS = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom)


def _base_name(name: object) -> str:
    """The last part of a file's name; a descriptor's number says nothing."""
    if type(name) is bytes:
        name = os.fsdecode(name)
    return os.path.basename(name) if type(name) is str else "a descriptor"  # noqa: PTH119 - of text


def _never(what: str) -> Callable[[Any], Sketch]:
    def refuse(_: object) -> Sketch:
        raise Unreadable(f"{what} can't be compared")

    return refuse


KNOWN: Mapping[type, Callable[[Any], Sketch]] = {
    _thread.LockType: _lock,
    _thread.RLock: _reentrant,
    **dict.fromkeys((*_LAYERS, io.FileIO), _file),
    threading.Thread: _never("a thread"),
    _thread._local: _never("what each thread has of its own"),  # noqa: SLF001 - `threading.local` in C
    _socket.socket: _never("a socket"),
    types.CoroutineType: _never("a coroutine"),
    types.AsyncGeneratorType: _never("an async generator"),
    types.FrameType: _never("a frame"),
}


def is_pending(cls: type) -> bool:
    """Whether values of a type wait for an event loop to carry them on: nothing is known of them before."""
    return any(is_one_of(one, types.AsyncGeneratorType, types.CoroutineType) for one in mro_of(cls))
