"""A storm in a process of its own, so that its work is not counted as yours."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from abreast.testing.storm.log import LogEntry, Stats
from abreast.testing.storm.settings import SettingsStep, make_settings

_PATIENCE = 10.0  # seconds, for a server that answers at once and ends at once


class StormProcess:
    """A storm that listens in a child process.

    Each look at its log or its numbers is a request to it.
    """

    def __init__(self, url: str, pid: int) -> None:
        self.url = url
        self.pid = pid

    def __repr__(self) -> str:
        """Where it is."""
        return f"<StormProcess {self.url} pid {self.pid}>"

    def log(self, since: int = 0) -> list[LogEntry]:
        """The truth: one Entry for each request after number `since`."""
        lines = self._ask(f"/storm/log?since={since}").splitlines()
        return [_entry(json.loads(line)) for line in lines]

    def stats(self) -> Stats:
        """The numbers up to now; `cpu_seconds` are those of the child alone."""
        return Stats(**json.loads(self._ask("/storm/stats")))

    def change(self, **changes: Any) -> None:
        """Other limits, speed or faults from now on; ValueError for what can't be."""
        try:
            self._ask("/storm/settings", json.dumps(changes).encode())
        except HTTPError as error:
            with error:
                raise ValueError(json.loads(error.read())["error"]["message"]) from None

    def _ask(self, path: str, body: bytes | None = None) -> bytes:
        request = Request(self.url + path, body)  # noqa: S310 - our own address
        with urlopen(request, timeout=_PATIENCE) as reply:  # noqa: S310
            return bytes(reply.read())


@contextmanager
def start_process(*, seed: int = 0, **settings: Any) -> Iterator[StormProcess]:
    """A storm server in a child process, until the end of the block, or of this process.

    `settings` are those of `open_storm`. ValueError for a setting that can't be; RuntimeError if it doesn't start.

        with start_process(rpm=600, latency=0.5) as storm:
            ...                                    # calls to storm.url
            print(storm.stats().cpu_seconds)
    """
    wanted = make_settings(settings)
    plain = settings | ({"steps": [_plain(step) for step in wanted.steps]} if wanted.steps else {})
    command = [
        sys.executable,
        "-m",
        "abreast.testing.storm",
        "--json",
        "--until-eof",
        "--seed",
        str(seed),
    ]
    command += ["--settings", json.dumps(plain)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            said = child.stdout.readline() if child.stdout is not None else ""
            if not said:
                raise RuntimeError(f"the storm did not start: exit code {child.wait(_PATIENCE)}")
            yield StormProcess(**json.loads(said))
        finally:
            _end(child)


def _plain(step: SettingsStep) -> list[Any]:
    return [step.at, dict(step.changes)]


def _end(child: subprocess.Popen[str]) -> None:
    """End it as it ends when its parent dies: by the end of its input."""
    if child.stdin is not None:
        child.stdin.close()
    try:
        child.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()


def _entry(line: dict[str, Any]) -> LogEntry:
    del line["service"]
    return LogEntry(**line)
