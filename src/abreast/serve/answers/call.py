"""A request while it is answered."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from abreast.core.clock import Timer
from abreast.serve.answers.outlet import EVENTS, JSON, Outlet
from abreast.serve.dialects.dialect import ApiDialect, Document, encode
from abreast.serve.faults import ApiFault
from abreast.serve.routes import Route


@dataclass(slots=True, eq=False)
class ServedCall:
    """A request while it is answered."""

    dialect: ApiDialect
    body: Document
    raw: bytes
    client: str
    tag: str | None
    headers: Mapping[str, str]
    """Those that are passed on to a provider."""
    max_wait: float | None = None
    """Seconds that it may wait for its lane."""
    outlet: Outlet = field(default_factory=Outlet)
    key: str = ""
    number: int | None = None
    """Its index in the map, once it has started."""
    route: Route | None = None
    fault: ApiFault | None = None
    """Why it is refused, if that is known before it is asked."""
    sent: bool = False
    """The lane has admitted it."""
    working: bool = False
    """It is at the provider; False again if that has turned it away, until it is sent once more."""
    deadline: float | None = None
    """Until when it may wait for its lane."""
    over: bool = False
    timer: Timer | None = None

    @property
    def model(self) -> str:
        """The model as the client names it."""
        return str(self.body.get("model", ""))

    @property
    def lane(self) -> str:
        """The lane that it waits for."""
        return "" if self.route is None else self.route.caller.lane.name

    @property
    def streams(self) -> bool:
        """Whether the answer is to be a stream."""
        return self.body.get("stream") is True

    def refuse(self, fault: ApiFault) -> None:
        """Answer with an error; in a stream that has begun, as an event."""
        outlet = self.outlet
        if outlet.ended:
            return
        if outlet.head is None and outlet.early:
            outlet.begin(200, EVENTS)
        if outlet.head is None:
            headers = {} if not fault.final else {"x-should-retry": "false"}
            if fault.retry_after is not None:
                headers["retry-after"] = str(max(1, math.ceil(fault.retry_after)))
            outlet.begin(fault.status, JSON, headers)
            outlet.send(encode(self.dialect.fault(fault)).encode("utf-8", "replace"))
        elif EVENTS in outlet.head.content_type:
            outlet.send(self.dialect.fault_event(fault))
        outlet.end()
