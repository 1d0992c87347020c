"""Classes for the values of tests; like those of a real project, they are importable by name."""

import enum
from collections import namedtuple
from dataclasses import dataclass, field
from typing import NamedTuple


class Plain:
    """State in a `__dict__`."""

    def __init__(self, **state):
        self.__dict__.update(state)

    def method(self):
        return self

    def other(self):
        return None


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, **state):
        for name, value in state.items():
            setattr(self, name, value)


class Both(Slotted):
    """Slots, and a `__dict__` besides."""


class More(Slotted):
    __slots__ = ("c",)


class Row(list):
    """A list with state."""


class Word(str):
    __slots__ = ()


class Whole(int):
    """An int with a `__dict__`."""


class Table(dict):
    __slots__ = ("title",)


@dataclass
class Point:
    x: object
    y: object = 0
    tags: list = field(default_factory=list)


@dataclass(frozen=True)
class Still:
    x: object


class Pair(NamedTuple):
    first: object
    second: object


Classic = namedtuple("Classic", "a b")  # noqa: PYI024 - the older way is met too


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Shade(enum.Enum):
    RED = 1


class Number(enum.IntEnum):
    ONE = 1


class Mode(enum.Flag):
    READ = 1
    WRITE = 2


class Trouble(Exception):
    """An exception with a state of its own."""

    def __init__(self, *args, **state):
        super().__init__(*args)
        self.__dict__.update(state)


def plus_one(x, y=1):
    return x + y


def plus_one_again(x, y=1):
    return x + y


def local_class(body):
    """A class that can't be found by its name."""

    class Local:
        def method(self):
            return 1

    class Other:
        def method(self):
            return 2

    return Other if body else Local


def noted(error, *notes):
    for note in notes:
        error.add_note(note)
    return error


def raised(function):
    try:
        function()
    except Exception as error:
        return error
    return None


def caused(error, by=None, context=None):
    error.__context__ = context
    if by is not None:
        error.__cause__ = by
    return error


def moved(stream, to):
    stream.seek(to)
    return stream


def closed(stream):
    stream.close()
    return stream


def ring(size):
    """A list of lists that comes back to itself after `size` steps."""
    first = last = []
    for _ in range(size - 1):
        last.append([])
        last = last[0]
    last.append(first)
    return first


def nested(levels, end, kind=lambda inner: [inner]):
    for _ in range(levels):
        end = kind(end)
    return end


def twice(make):
    """The same object two times."""
    one = make()
    return [one, one]


def failing(values):
    """Yields, and then fails."""
    yield from values
    raise ValueError("the end")


def ending(values, result):
    yield from values
    return result


def buffer(states):
    """Yields one list again and again, changed in between."""
    held = []
    for state in states:
        held[:] = state
        yield held


def knot():
    found = Plain()
    found.me = found
    return found
