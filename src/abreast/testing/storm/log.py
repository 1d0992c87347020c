"""The log of a storm: what happened to each request, by the storm's own clock."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from abreast.testing.storm.faults import FAULTS


@dataclass(slots=True)
class LogEntry:
    """One request. Times are seconds since the storm began; None for what has not happened.

    `verdict` is admitted or rejected, and `kind` the limit or fault. `outcome` is ok, rejected,
    fault or disconnected; empty while in flight. `parameter` is what a strict profile refused.
    The cached and the written tokens are parts of `input_tokens`, the reasoning tokens are a part
    of `output_tokens`. `files` is how many images and PDF files it has. Requests that are alike
    have the same `key`.
    """

    id: int
    lane: str
    model: str
    t_arrive: float
    verdict: str
    kind: str
    in_flight: int
    input_tokens: int
    output_tokens: int
    fault: str = ""
    outcome: str = ""
    t_first: float | None = None
    t_end: float | None = None
    parameter: str = ""
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    files: int = 0
    key: str = ""

    @property
    def service(self) -> float | None:
        """Seconds from arrival to the end."""
        return None if self.t_end is None else self.t_end - self.t_arrive

    def as_dict(self) -> dict[str, Any]:
        """As a line of the log."""
        return {name: getattr(self, name) for name in (*self.__slots__, "service")}


@dataclass(frozen=True, slots=True)
class BilledTokens:
    """The tokens that a provider would bill to one model.

    `input` and `output` are all of them: `cached`, `cache_writes` and `reasoning` are parts.
    """

    requests: int = 0
    input: int = 0
    cached: int = 0
    cache_writes: int = 0
    output: int = 0
    reasoning: int = 0


def refusals_of(entries: Iterable[LogEntry]) -> Counter[tuple[str, str, str]]:
    """How often strict profiles refused each (lane, model, parameter)."""
    refused = (entry for entry in entries if entry.parameter)
    return Counter((entry.lane, entry.model, entry.parameter) for entry in refused)


def billed_of(entries: Iterable[LogEntry]) -> dict[str, BilledTokens]:
    """The tokens billed to each model: those of requests that were answered with status 200."""
    billed: dict[str, BilledTokens] = {}
    for entry in entries:
        if entry.verdict == "admitted" and (not entry.fault or FAULTS[entry.fault].status == 200):  # noqa: PLR2004 - OK
            sums = billed.get(entry.model, BilledTokens())
            billed[entry.model] = BilledTokens(
                sums.requests + 1,
                sums.input + entry.input_tokens,
                sums.cached + entry.cached_tokens,
                sums.cache_writes + entry.cache_write_tokens,
                sums.output + entry.output_tokens,
                sums.reasoning + entry.reasoning_tokens,
            )
    return billed


@dataclass(frozen=True, slots=True)
class Stats:
    """The counts of a storm at one moment. Ended requests are `ok + faults + disconnects`.

    `faults` includes refusals. `files` counts the images and PDF files of all requests.
    """

    arrived: int
    admitted: int
    rejected: int
    ok: int
    faults: int
    disconnects: int
    in_flight: int
    peak_in_flight: int
    connections: int = 0
    cpu_seconds: float = 0.0
    files: int = 0


@dataclass(slots=True)
class StormLog:
    """The log and its current counts."""

    entries: list[LogEntry] = field(default_factory=list)
    admitted: int = 0
    rejected: int = 0
    in_flight: int = 0
    peak: int = 0
    files: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)

    def open(self, entry: LogEntry) -> None:
        """Add a request; an admitted one is in flight, a rejected one has ended already."""
        self.entries.append(entry)
        self.files += entry.files
        if entry.verdict == "admitted":
            self.admitted += 1
            self.in_flight += 1
            self.peak = max(self.peak, self.in_flight)
        else:
            self.rejected += entry.outcome == "rejected"
            self.outcomes[entry.outcome] += 1

    def close(self, number: int, now: float, outcome: str) -> None:
        """End a request that was in flight; a second call has no effect."""
        entry = self.entries[number - 1]
        if entry.outcome:
            return
        entry.outcome = outcome
        entry.t_end = now
        self.in_flight -= 1
        self.outcomes[outcome] += 1

    def stats(self) -> Stats:
        """The counts."""
        return Stats(
            arrived=len(self.entries),
            admitted=self.admitted,
            rejected=self.rejected,
            ok=self.outcomes["ok"],
            faults=self.outcomes["fault"],
            disconnects=self.outcomes["disconnected"],
            in_flight=self.in_flight,
            peak_in_flight=self.peak,
            files=self.files,
        )
