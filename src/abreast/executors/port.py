"""The Executor port: turns a function into something the driver can await."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

T = TypeVar("T")
R = TypeVar("R")
T_contra = TypeVar("T_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class Capabilities(NamedTuple):
    """What an executor can carry to where the work is done, and back."""

    closures: bool
    contextvars: bool
    exceptions: bool


@runtime_checkable
class PortableContextValue(Protocol):
    """A context variable's value that travels with its item to another process.

    Values without this method are not copied to the other process.
    """

    @property
    def may_repeat(self) -> bool:
        """Whether its work may be done again if the machine that does it is lost."""

    def luggage(self) -> Callable[[], object]:
        """Return a picklable function; called there in the item's context, it sets the value."""


class DriverChannel(Protocol):
    """The way from work in another process to its driver.

    What is called there runs in the context of the item that the work is for. It must pickle.
    """

    def post(self, call: Callable[[], object]) -> None:
        """Have it called before the work's result is used; what it returns is lost."""

    async def ask(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Have it called and awaited; return its result, or raise its error."""


DRIVER: ContextVar[DriverChannel | None] = ContextVar("abreast_driver", default=None)
"""Set for work in another process than its driver's."""


class BoundCall(Protocol[T_contra, R_co]):
    """One map's function, bound to an executor."""

    @property
    def async_call(self) -> Callable[[T_contra], Awaitable[R_co]]:
        """Await it with an item's value, in that item's context, to get the function's result."""

    async def close(self, grace: float) -> list[str]:
        """End all work; return the names of what is still running after `grace` seconds."""


class Executor(Protocol):
    """Runs the functions of items.

    A map binds its function once; the driver then awaits `bound.async_call(value)` for each item,
    in that item's own context. Binding rather than a `call(fn, value)` keeps a plain coroutine
    function free of any wrapper: the wrapper alone cost a tenth of a no-op item.
    """

    carries: Capabilities

    def bind(self, fn: Callable[[T], Awaitable[R] | R], width: int) -> BoundCall[T, R]:
        """Get ready to call `fn` up to `width` times at once."""
