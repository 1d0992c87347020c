"""The storm as a pure state machine: times and requests go in, verdicts come out."""

from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple

from abreast.core.seeds import derive_fraction
from abreast.testing.storm.faults import FAULTS, StormFault, find_marker
from abreast.testing.storm.limits.limits import Costs, StormLimits, cost_of
from abreast.testing.storm.limits.rate_limit_headers import HeaderWriter
from abreast.testing.storm.log import LogEntry, Stats, StormLog
from abreast.testing.storm.settings import Settings, make_settings

_DAY_MINUTES = 1440


class WorldRequest(NamedTuple):
    """What a storm needs to know of a request.

    Requests with the same `key` are identical: they get the same reply, and the k-th of them gets
    the same fault and noise in every run with the same seed, whatever came in between.
    `output_tokens` of None are drawn from the seed. `reasoning_tokens` come before them, in the
    same `max_tokens`; `cached_tokens` and `cache_write_tokens` are parts of `input_tokens`.
    """

    key: str
    input_tokens: int = 1
    max_tokens: int | None = None
    output_tokens: int | None = None
    lane: str = "openai"
    model: str = ""
    prompt: str = ""
    reasoning_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    files: int = 0


class StormVerdict(NamedTuple):
    """What happens to a request.

    Admitted: it takes `latency` seconds, the first `first` of them silent, and ends with `fault`,
    if that is set. Rejected: `status`, and `kind` for the limit that was hit; `ready_at` is the
    true time when it would have been admitted, None if unknown, and `retry_after` is the value of
    the header.
    """

    id: int
    admitted: bool
    kind: str = ""
    status: int = 200
    latency: float = 0.0
    first: float = 0.0
    fault: StormFault | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cut: bool = False
    ready_at: float | None = None
    retry_after: str | None = None
    headers: Mapping[str, str] | None = None


class World:
    """A storm without a socket: exact limits, seeded faults, and a log of every request.

    It never reads a clock.

    `start` is the clock's time at which it begins, `wall` the time of day then, for headers that
    contain one.

        world = World(Settings(rpm=60, burst=1), seed=7)
        verdict = world.arrive(0.0, WorldRequest("a"))      # admitted
        world.arrive(0.5, WorldRequest("b")).ready_at       # 1.0
        world.finish(verdict.latency, verdict.id)
    """

    def __init__(
        self,
        settings: Settings | None = None,
        seed: int = 0,
        *,
        start: float = 0.0,
        wall: float = 0.0,
    ) -> None:
        self.settings = settings or make_settings({})
        self.seed = seed
        self.start = start
        self.ledger = StormLog()
        self._header_writer = HeaderWriter(start, wall)
        self._steps = list(reversed(self.settings.steps))
        self._limits = StormLimits(self.settings, start)
        self._turns: dict[str, int] = {}

    def __repr__(self) -> str:
        ledger = self.ledger
        counts = f"{ledger.admitted} admitted, {ledger.rejected} rejected"
        return f"<World {ledger.in_flight} in flight, {counts}>"

    # --- requests

    def arrive(self, now: float, request: WorldRequest) -> StormVerdict:
        """Admit a request or reject it, and charge the limits for what was admitted."""
        self._advance(now)
        turn = self._turns[request.key] = self._turns.get(request.key, 0) + 1
        fault = self._fault(request, len(self.ledger.entries) + 1, turn)
        if fault is not None and fault.early:
            return self._reject_for_fault(now, request, fault)
        output, cut = self._output(request)
        cost = cost_of(request.input_tokens, output)
        kind, wait = self._blocking_limit(cost, now)
        if kind:
            return self._reject(
                now, request, kind, None if wait == inf else wait, self.settings.retry_after
            )
        self._limits.charge(cost, now)
        return self._admit(now, request, turn, fault, output, cut=cut)

    def answer_batched(self, now: float, request: WorldRequest) -> StormVerdict:
        """Answer a request of a batch at once, and log it; no limit on requests applies."""
        self._advance(now)
        turn = self._turns[request.key] = self._turns.get(request.key, 0) + 1
        fault = self._fault(request, len(self.ledger.entries) + 1, turn)
        if fault is not None and fault.status == 200 and fault.name != "refusal":  # noqa: PLR2004 - OK
            fault = None  # it would be one of a connection
        if fault is not None and fault.early:
            return self._reject_for_fault(now, request, fault)
        output, cut = self._output(request)
        verdict = self._admit(now, request, turn, fault, output, cut=cut)
        self.ledger.entries[verdict.id - 1].kind = "batch"
        self.finish(now, verdict.id)
        return verdict

    def first(self, now: float, number: int) -> None:
        """Record that the first byte of a reply has been sent."""
        self.ledger.entries[number - 1].t_first = now - self.start

    def finish(self, now: float, number: int) -> None:
        """Record that a request has been answered as its verdict said."""
        entry = self.ledger.entries[number - 1]
        self.ledger.close(number, now - self.start, "fault" if entry.fault else "ok")

    def leave(self, now: float, number: int) -> None:
        """Record that the client disconnected before the end of the reply."""
        self.ledger.close(number, now - self.start, "disconnected")

    def refuse(self, now: float, lane: str, model: str, parameter: str) -> int:
        """Record a request that a strict profile refused for a parameter; returns its number."""
        self._advance(now)
        request = WorldRequest("", 0, lane=lane, model=model)
        entry = self._make_entry(now, request, "rejected", "refused", fault=None)
        entry.parameter = parameter
        entry.outcome = "fault"
        entry.t_end = entry.t_arrive
        self.ledger.open(entry)
        return entry.id

    def settings_at(self, now: float) -> Settings:
        """The settings now, with the steps up to now applied."""
        self._advance(now)
        return self.settings

    def wait(self, now: float, cost: Costs) -> float:
        """Seconds until a request of that cost would be admitted; infinite if unknown."""
        self._advance(now)
        return self._blocking_limit(cost, now)[1]

    def change(self, now: float, **changes: Any) -> None:
        """Change limits, speed or faults from now on; ValueError for invalid values."""
        self._advance(now)
        self._set(self.settings.changed(changes), now)

    def stats(self) -> Stats:
        """The counts up to now."""
        return self.ledger.stats()

    def _advance(self, now: float) -> None:
        scale = self.settings.scale
        while self._steps and self.start + self._steps[-1].at * scale <= now:
            step = self._steps.pop()
            self._set(self.settings.changed(step.changes), self.start + step.at * scale)

    def _set(self, settings: Settings, now: float) -> None:
        self.settings = settings
        self._limits.apply(settings, now)

    def _blocking_limit(self, cost: Costs, now: float) -> tuple[str, float]:
        """What blocks a request, and for how many seconds; infinite if unknown."""
        cap = self.settings.concurrency
        if cap is not None and self.ledger.in_flight >= cap:
            return "concurrency", inf
        return self._limits.blocking_limit(cost, now)

    # --- random choices

    def _draw(self, what: str, key: str, turn: int = 0) -> float:
        return derive_fraction(self.seed, f"{what}/{turn}/{key}")

    def _output(self, request: WorldRequest) -> tuple[int, bool]:
        """How many tokens the reply has, and whether max_tokens cut it."""
        wanted = request.output_tokens
        if wanted is None:
            low, high = self.settings.output_min, self.settings.output_max
            wanted = low + int(self._draw("output", request.key) * (high - low + 1))
        wanted += request.reasoning_tokens
        if request.max_tokens is not None and wanted > request.max_tokens:
            return request.max_tokens, True
        return wanted, False

    def _fault(self, request: WorldRequest, number: int, turn: int) -> StormFault | None:
        settings = self.settings
        if number in settings.fault_at:
            return FAULTS[settings.fault_at[number]]
        if settings.markers and (
            fault := find_marker(request.model, turn) or find_marker(request.prompt, turn)
        ):
            return fault
        fraction = self._draw("fault", request.key, turn) if settings.faults else 0.0
        for name, rate in settings.faults.items():
            fraction -= rate
            if fraction < 0:
                return FAULTS[name]
        return None

    # --- verdicts

    def _admit(
        self,
        now: float,
        request: WorldRequest,
        turn: int,
        fault: StormFault | None,
        output: int,
        *,
        cut: bool,
    ) -> StormVerdict:
        settings = self.settings
        noise = self._draw("noise", request.key, turn) * settings.noise if settings.noise else 0.0
        first = (settings.latency + noise) * settings.scale
        if fault is not None and fault.status >= 500:  # noqa: PLR2004 - server errors
            output = 0
        entry = self._make_entry(now, request, "admitted", output=output, fault=fault)
        self.ledger.open(entry)
        return StormVerdict(
            entry.id,
            admitted=True,
            status=fault.status if fault is not None else 200,
            first=first,
            latency=first + settings.per_token * output * settings.scale,
            fault=fault,
            input_tokens=request.input_tokens,
            output_tokens=output,
            cut=cut,
            headers=self._headers(now, request),
        )

    def _reject_for_fault(
        self, now: float, request: WorldRequest, fault: StormFault
    ) -> StormVerdict:
        mode: str | float = {"429": "right", "429-date": "date"}.get(fault.name, "absent")
        wait = self.settings.scale if mode != "absent" else None
        if fault.name == "quota":
            day = _DAY_MINUTES * self.settings.minute
            wait = day - (now - self.start) % day
        return self._reject(
            now, request, _FAULT_KINDS.get(fault.name, fault.name), wait, mode, fault=fault
        )

    def _reject(
        self,
        now: float,
        request: WorldRequest,
        kind: str,
        wait: float | None,
        mode: str | float,
        *,
        fault: StormFault | None = None,
    ) -> StormVerdict:
        status = 429 if fault is None else fault.status
        entry = self._make_entry(now, request, "rejected", kind, fault=fault)
        entry.outcome = "rejected" if status == 429 else "fault"  # noqa: PLR2004 - too many requests
        entry.t_end = entry.t_arrive
        self.ledger.open(entry)
        return StormVerdict(
            entry.id,
            admitted=False,
            kind=kind,
            status=status,
            fault=fault,
            input_tokens=request.input_tokens,
            ready_at=None if wait is None else now + wait,
            retry_after=self._header_writer.retry_after(now, wait, mode, self.settings.scale),
            headers=self._headers(now, request),
        )

    def _make_entry(
        self,
        now: float,
        request: WorldRequest,
        verdict: str,
        kind: str = "",
        *,
        output: int = 0,
        fault: StormFault | None,
    ) -> LogEntry:
        return LogEntry(
            len(self.ledger.entries) + 1,
            request.lane,
            request.model,
            now - self.start,
            verdict,
            kind,
            self.ledger.in_flight,
            request.input_tokens,
            output,
            "" if fault is None else fault.name,
            cached_tokens=request.cached_tokens,
            cache_write_tokens=request.cache_write_tokens,
            reasoning_tokens=min(request.reasoning_tokens, output),
            files=request.files,
            key=request.key,
        )

    def _headers(self, now: float, request: WorldRequest) -> Mapping[str, str]:
        if self.settings.headers == "absent":
            return {}
        return self._header_writer.headers(
            now, request.lane, self._limits.levels(now), self.settings
        )


_FAULT_KINDS = {
    "429": "rpm",
    "429-bare": "rpm",
    "429-date": "rpm",
    "429-concurrency": "concurrency",
    "quota": "per_day",
}
