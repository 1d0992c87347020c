"""A storm in a process of its own, so that its CPU time is not counted as the test's."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from abreast.testing.storm.log import (
    BilledTokens,
    LogEntry,
    Stats,
    billed_of,
    refusals_of,
)
from abreast.testing.storm.settings import make_settings

_TIMEOUT = 10.0  # seconds; the server normally answers and ends at once


@dataclass(frozen=True, slots=True)
class StormProcess:
    """A storm that listens in a child process.

    Each access to its log or its counts is a request to it.
    """

    url: str
    pid: int

    def __repr__(self) -> str:
        return f"<StormProcess {self.url} pid {self.pid}>"

    def log(self, since: int = 0) -> list[LogEntry]:
        """One entry for each request after number `since`."""
        found = map(json.loads, self._fetch(f"/storm/log?since={since}").splitlines())
        return [LogEntry(**{name: one[name] for name in LogEntry.__slots__}) for one in found]

    def stats(self) -> Stats:
        """The counts up to now; `cpu_seconds` are those of the child alone."""
        return Stats(**json.loads(self._fetch("/storm/stats")))

    def refusals(self) -> Counter[tuple[str, str, str]]:
        """How often each (lane, model, parameter) was refused by the strict profile."""
        return refusals_of(self.log())

    def billed(self) -> dict[str, BilledTokens]:
        """The tokens that are billed to each model."""
        return billed_of(self.log())

    def batches(self) -> list[dict[str, Any]]:
        """A row for each request of each batch: `outcome`, `billed`, `custom_id`, `key`, ..."""
        return [json.loads(line) for line in self._fetch("/storm/batches").splitlines()]

    def change(self, **changes: Any) -> None:
        """Change limits, speed or faults from now on; ValueError for invalid values."""
        try:
            self._fetch("/storm/settings", json.dumps(changes).encode())
        except HTTPError as error:
            with error:
                raise ValueError(json.loads(error.read())["error"]["message"]) from None

    def _fetch(self, path: str, body: bytes | None = None) -> bytes:
        request = Request(self.url + path, body)  # noqa: S310 - our own address
        with urlopen(request, timeout=_TIMEOUT) as reply:  # noqa: S310 - our own address
            return bytes(reply.read())


@contextmanager
def start_process(*, seed: int = 0, **settings: Any) -> Iterator[StormProcess]:
    """A storm server in a child process, until the end of the block, or of this process.

    `settings` are those of `open_storm`. Raises ValueError for an invalid setting, RuntimeError if
    it doesn't start.

        with start_process(rpm=600, latency=0.5) as storm:
            ...                                    # calls to storm.url
            print(storm.stats().cpu_seconds)
    """
    steps = [[step.at, dict(step.changes)] for step in make_settings(settings).steps]
    plain = settings | ({"steps": steps} if steps else {})
    command = [
        *(sys.executable, "-m", "abreast.testing.storm", "--json", "--until-eof"),
        *("--seed", str(seed), "--settings", json.dumps(plain)),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            announcement = child.stdout.readline() if child.stdout is not None else ""
            if not announcement:
                raise RuntimeError(f"the storm did not start: exit code {child.wait(_TIMEOUT)}")
            yield StormProcess(**json.loads(announcement))
        finally:
            # As it ends when its parent dies: its standard input is closed.
            if child.stdin is not None:
                child.stdin.close()
            try:
                child.wait(_TIMEOUT)
            except subprocess.TimeoutExpired:
                child.kill()
