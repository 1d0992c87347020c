"""Measure one entry once, in a fresh process."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import peers
from benchmarks.works import Entry

SCRATCH = Path(__file__).resolve().parent / ".scratch"
TIMEOUT = 300.0

_TIME_AN_IMPORT = """\
import time
wall, cpu = time.perf_counter(), time.process_time()
{statement}
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
if "abreast" in globals() and not hasattr(abreast, "open_run"):
    raise ModuleNotFoundError("module 'abreast' has no attribute 'open_run'")
print(
    '{{"wall": %r, "cpu": %r, "items": 1, "maps": 1, "around": 0.0, "version": null}}'
    % (wall, cpu)
)
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one process measured: seconds for `items` items in `maps` maps."""

    wall: float
    cpu: float
    items: int
    maps: int
    # CPU seconds per map spent opening and closing.
    around: float
    version: str | None = None
    growth_bytes: float | None = None
    bytes_in_flight: float | None = None


class NotMeasured(Exception):
    """A sentence that says why there is no sample.

    `absent` when nothing went wrong, it just isn't there.
    """

    def __init__(self, reason: str, *, absent: bool) -> None:
        """Keep the reason."""
        super().__init__(reason)
        self.absent = absent


def measure(entry: Entry) -> Sample:
    """Run the entry in a process of its own and return its sample; raises NotMeasured."""
    if entry.peer and not peers.is_installed(entry.peer):
        raise NotMeasured("not installed (python -m benchmarks.peers)", absent=True)
    SCRATCH.mkdir(exist_ok=True)
    try:
        with chat_server(entry) as told:
            done = subprocess.run(
                _command(entry),
                cwd=peers.ROOT,
                env=_environment(entry) | told,
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                check=False,
            )
    except subprocess.TimeoutExpired:
        raise NotMeasured(f"longer than {TIMEOUT:.0f} s", absent=False) from None
    if done.returncode != 0:
        raise _not_measured(done.stderr)
    return Sample(**json.loads(done.stdout.splitlines()[-1]))


@contextmanager
def chat_server(entry: Entry) -> Iterator[dict[str, str]]:
    """Start the entry's own server, if it wants one.

    Yields what the contender's environment says of it.
    """
    if entry.latency is None:
        yield {}
        return
    from abreast.testing.storm import start_process

    shortest, longest = entry.latency
    with start_process(latency=shortest, noise=longest - shortest, reply="echo") as storm:
        yield {"BENCHMARK_CHAT": storm.url}


def _command(entry: Entry) -> list[str]:
    python = str(peers.python_of(entry.peer)) if entry.peer else sys.executable
    if entry.statement:
        return [python, "-c", _TIME_AN_IMPORT.format(statement=entry.statement)]
    module = f"benchmarks.contenders.{entry.module}"
    return [python, "-m", module, entry.play, str(entry.n), str(entry.width), str(entry.repeat)]


def _environment(entry: Entry) -> dict[str, str]:
    # No PYTHON* setting of the caller's decides a number (debug modes, no bytecode, a coverage
    # start-up).
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
    }
    if not entry.peer:
        environment["PYTHONPATH"] = str(peers.ROOT / "src")
    # The scratch files are on the project's disk: on a /tmp in memory an fsync costs nothing.
    environment["TMPDIR"] = str(SCRATCH)
    return environment


def _not_measured(stderr: str) -> NotMeasured:
    last = (stderr.strip().splitlines() or ["ended without a word"])[-1]
    # A tree in which the front door isn't built yet.
    absent = any(
        words in last
        for words in ("No module named 'abreast'", "module 'abreast' has no", "from 'abreast'")
    )
    return NotMeasured(
        f"not importable yet ({last})" if absent else f"failed: {last}", absent=absent
    )
