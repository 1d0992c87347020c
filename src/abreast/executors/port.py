"""The Executor port: turns a function into something the driver can await."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")
T_contra = TypeVar("T_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class Carries(NamedTuple):
    """What an executor can take to where the work is done, and bring back."""

    closures: bool
    contextvars: bool
    exceptions: bool


class Traveller(Protocol):
    """The value of a context variable that goes along with its item to another process.

    All others stay behind.
    """

    def luggage(self) -> Callable[[], object]:
        """Something that can be pickled and that, called there in the item's context, puts the value in place."""


class BoundCall(Protocol[T_contra, R_co]):
    """One map's function, ready to be called."""

    @property
    def async_call(self) -> Callable[[T_contra], Awaitable[R_co]]:
        """Await it with an item's value, in that item's context, for what the function gives."""

    async def close(self, grace: float) -> list[str]:
        """End what is still working; after `grace` seconds, the names of what can't be ended."""


class Executor(Protocol):
    """Carries out the work of items.

    A map binds its function once; the driver then awaits `bound.async_call(value)` for each item,
    in that item's own context. Binding rather than a `call(fn, value)` keeps a plain coroutine
    function free of any wrapper: the wrapper alone cost a tenth of a no-op item.
    """

    carries: Carries

    def bind(self, fn: Callable[[T], Awaitable[R] | R], width: int) -> BoundCall[T, R]:
        """Get ready to call `fn` up to `width` times at once."""
