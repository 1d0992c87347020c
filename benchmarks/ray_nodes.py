"""Two nodes of Ray on this machine, as `ray start` makes them, to be killed one by one."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

# Seconds for a node to come or to go, and between two looks.
_PATIENCE, _INTERVAL = 300.0, 0.05
BOTH = 2
_SMALL = (f"--object-store-memory={80 << 20}", "--block", "--disable-usage-stats")


class RayNode:
    """What one `ray start` starts, until it is killed."""

    def __init__(self, *options: str, cache: str, hidden: str) -> None:
        """Start it, without waiting until it is there.

        Its cache is the directory `cache`. It does not see the directory `hidden`, if this system
        lets us hide one.
        """
        command = [str(Path(sys.executable).with_name("ray")), "start", *_SMALL, *options]
        quiet = subprocess.DEVNULL
        self._start = subprocess.Popen(
            [*hiding(hidden), *command],
            stdout=quiet,
            stderr=quiet,
            start_new_session=True,
            env={**os.environ, "ABREAST_CACHE": cache},
        )

    @property
    def raylet(self) -> int:
        """The process that is the node."""
        (found,) = [pid for pid in children_of(self._start.pid) if name_of(pid) == "raylet"]
        return found

    def kill(self) -> None:
        """End all its processes as a power cut would: nobody is told."""
        for pid in [self._start.pid, *children_of(self._start.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._start.wait()


class TwoNodes:
    """A head and a second node, each with `cpus` CPUs."""

    second: RayNode
    hidden: Path
    """A directory for drivers that the nodes don't see."""

    def __init__(self, directory: str, cpus: int) -> None:
        """Start the head; `directory` has a short path, for the sockets in it."""
        self._directory = Path(directory)
        self.hidden = self._directory / "driver"
        self.hidden.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as free:
            # Ray wants the ports from 10002 to 19999 for itself; the system gives higher ones.
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self._cpus = f"--num-cpus={cpus}"
        self._nodes = [
            RayNode(
                "--head",
                f"--port={self.address.partition(':')[2]}",
                "--node-ip-address=127.0.0.1",
                "--include-dashboard=false",
                f"--temp-dir={directory}",
                self._cpus,
                cache=str(self.caches[0]),
                hidden=str(self.hidden),
            )
        ]
        wait_until(self._accepts)

    def add_node(self) -> None:
        """Start a second node, without waiting until it is there."""
        resources = json.dumps({"second": 8})
        self.second = RayNode(
            f"--address={self.address}",
            f"--resources={resources}",
            self._cpus,
            cache=str(self.caches[1]),
            hidden=str(self.hidden),
        )
        self._nodes.append(self.second)

    @property
    def caches(self) -> tuple[Path, Path]:
        """The caches of the two nodes."""
        return self._directory / "cache1", self._directory / "cache2"

    def __contains__(self, agent: int) -> bool:
        """Whether an agent is on the second node."""
        return parent_of(agent) == self.second.raylet

    def work(self) -> dict[int, int]:
        """The processes that work for agents of these nodes, and the process of each's agent.

        Other clusters on this machine have other caches.
        """
        own = {str(cache) for cache in self.caches}
        found = {
            pid: variable_of(pid, "ABREAST_AGENT") or ""
            for pid in processes()
            if variable_of(pid, "ABREAST_CACHE") in own
        }
        return {
            pid: int(agent) for pid, agent in found.items() if agent.isdecimal() and name_of(pid)
        }

    def wait_for_nodes(self, before: Collection[str] = ()) -> None:
        """Wait until both nodes are there; this process must be connected.

        One of them is none of those `before`: a killed one counts as alive for a while.
        """
        ray: Any = import_module("ray")

        def are_there() -> bool:
            alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
            return len(alive) == BOTH and not alive.issubset(before)

        wait_until(are_there)

    def replace_node(self) -> None:
        """Start another second node after the death of the first."""
        ray: Any = import_module("ray")
        before = [node["NodeID"] for node in ray.nodes()]
        self.add_node()
        self.wait_for_nodes(before)

    def close(self) -> None:
        """Kill both nodes."""
        for node in reversed(self._nodes):
            node.kill()

    def _accepts(self) -> bool:
        host, _, port = self.address.partition(":")
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return True
        return False


@contextlib.contextmanager
def open_nodes(cpus: int = 4) -> Iterator[TwoNodes]:
    """Two nodes with a token of their own; this process is connected to them."""
    from abreast.executors.ray.cluster import connect

    settings = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray's own is 15: beside other programs, agents would hardly run.
        "RAY_worker_niceness": "0",
    }
    os.environ.update(settings)
    directory = tempfile.mkdtemp(prefix="ray-")
    cluster = TwoNodes(directory, cpus)
    os.environ["RAY_ADDRESS"] = cluster.address
    try:
        cluster.add_node()
        connect()
        cluster.wait_for_nodes()
        yield cluster
    finally:
        import_module("ray").shutdown()
        cluster.close()
        for name in (*settings, "RAY_ADDRESS"):
            del os.environ[name]
        shutil.rmtree(directory, ignore_errors=True)


def wait_until(
    holds: Callable[[], bool], seconds: float = _PATIENCE, interval: float = _INTERVAL
) -> None:
    """Look until something holds that no event tells of; TimeoutError after `seconds`."""
    last = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > last:
            raise TimeoutError
        time.sleep(interval)


def hiding(place: str) -> list[str]:
    """Words before a command that hide a directory from it; none where that is not allowed."""
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    with contextlib.suppress(OSError):
        tried = [*words, f"mount -t tmpfs none {shlex.quote(place)}"]
        if subprocess.run(tried, capture_output=True, check=False).returncode == 0:
            return [*words, f'mount -t tmpfs none {shlex.quote(place)} && exec "$@"', "sh"]
    return []


def processes() -> list[int]:
    """All processes of this machine."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def name_of(pid: int) -> str:
    """The name of a process's program; empty if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def parent_of(pid: int) -> int:
    """The process that started this one; 0 if it has ended."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def children_of(pid: int) -> list[int]:
    """The children of a process, and theirs."""
    found = [other for other in processes() if parent_of(other) == pid]
    return found + [below for child in found for below in children_of(child)]


def variable_of(pid: int, name: str) -> str | None:
    """A variable of a process's environment."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            key, _, value = line.decode(errors="replace").partition("=")
            if key == name:
                return value
    return None
