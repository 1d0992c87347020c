"""Types that the codec's tests find again by name."""

import enum
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, HttpUrl, PrivateAttr, SecretStr, model_validator


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"


class Level(enum.IntEnum):
    LOW = 1


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: object = 0


class NamedWithMore(Point):
    """A named tuple that has grown a `__dict__`."""


@dataclass(frozen=True, slots=True)
class Frozen:
    name: str
    parts: tuple[object, ...] = ()


@dataclass
class Plain:
    a: object
    total: int = field(init=False, default=0)
    tags: list[str] = field(default_factory=list)

    def __post_init__(self):
        self.total += 1
        self.beside = "set after the fields"

    @cached_property
    def costly(self):
        return object()


@dataclass
class Unset:
    """One field is only set later, and may not be there yet."""

    a: int
    later: int = field(init=False)


class Restless:
    """Grows the dict it sits in when anyone looks at its fields."""

    __dataclass_fields__ = Plain.__dataclass_fields__

    def __init__(self, around):
        object.__setattr__(self, "around", around)

    def __getattribute__(self, name):
        around = object.__getattribute__(self, "around")
        around[len(around) + 1] = "more"
        raise AttributeError(name)


class Outer:
    @dataclass
    class Inner:
        x: int


@dataclass
class DictAndMore(dict):
    x: int = 0


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Mapping(dict):
    pass


class Sequence(list):
    pass


class Reply(BaseModel):
    model_config = ConfigDict(extra="allow")

    text: str
    scores: tuple[float, ...] = ()
    inner: "Reply | None" = None
    _seen: int = PrivateAttr(default=0)


class Doubling(BaseModel):
    """Its validator changes what it is given, so a second validation would be seen."""

    n: int

    @model_validator(mode="after")
    def double(self):
        self.n *= 2
        return self


class Page(BaseModel):
    address: HttpUrl = Field(alias="url")


class Login(BaseModel):
    password: SecretStr


class Grumpy(BaseModel):
    thing: object = None

    def model_dump(self, **_options):
        raise RuntimeError("not today")
