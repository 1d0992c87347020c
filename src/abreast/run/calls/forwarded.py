"""Model calls of work in another process: the driver makes them, limits and journals them."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakValueDictionary

from abreast.core.errors import ModelUnknown
from abreast.core.frozen import record
from abreast.models.port import OnText, Reply, Request

if TYPE_CHECKING:
    from abreast.executors.port import DriverChannel


class Completes(Protocol):
    """A model of the driver."""

    async def complete(self, request: Request, hear: OnText | None = None) -> Reply:
        """Answer a request."""


_SHARED: Final[WeakValueDictionary[str, Any]] = WeakValueDictionary()


def share(model: Completes) -> str:
    """Remember a model of this process; return a key by which work elsewhere can ask for it."""
    for key, shared in _SHARED.items():
        if shared is model:
            return key
    key = secrets.token_hex(8)
    _SHARED[key] = model
    return key


def find_shared(key: str) -> Any:
    """The model of this process with that key; None in another process."""
    return _SHARED.get(key)


@record(frozen=True, slots=True)
class SharedModelCall:
    """A request to a model that the driver has open."""

    key: str
    name: str
    request: Request

    async def __call__(self) -> Reply:
        """Answer it, in the driver."""
        model = find_shared(self.key)
        if model is None:
            raise ModelUnknown(f"{self.name} is not open any more where the run is driven")
        reply: Reply = await model.complete(self.request)
        return reply


async def forward(
    channel: DriverChannel, call: Callable[[], Awaitable[Reply]], hear: OnText | None
) -> Reply:
    """Have the driver answer a request; `hear` gets the text in one piece."""
    reply: Reply = await channel.ask(call)
    if hear is not None:
        hear(reply.text)
    return reply
