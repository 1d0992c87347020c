"""Two nodes of Ray on this machine, and what the kernel shows of the work on them."""

import contextlib
import json
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.executors.traces import wait_until_ended, watch

_WORKER = b"abreast.executors.worker"
_SMALL = ("--num-cpus=4", f"--object-store-memory={80 << 20}", "--block", "--disable-usage-stats")
_PATIENCE = 60.0  # seconds for a node to come or to go


class Node:
    """What `ray start` starts, until it is killed."""

    def __init__(self, *options):
        command = [str(Path(sys.executable).with_name("ray")), "start", *_SMALL, *options]
        quiet = subprocess.DEVNULL
        self._start = subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True)

    @property
    def raylet(self):
        """The process that is the node."""
        (found,) = [pid for pid in children_of(self._start.pid) if name_of(pid) == "raylet"]
        return found

    def kill(self):
        """End it as a power cut would: nobody is told."""
        pids = [self._start.pid, *children_of(self._start.pid)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._start.wait()


class TwoNodes:
    """A head with four CPUs and a second node with four others."""

    def __init__(self, directory):
        with socket.create_server(("127.0.0.1", 0)) as free:
            # Ray wants the ports from 10002 to 19999 for itself; the system gives higher ones.
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self._head = Node(
            "--head",
            f"--port={self.address.partition(':')[2]}",
            "--node-ip-address=127.0.0.1",
            "--include-dashboard=false",
            f"--temp-dir={directory}",
        )
        self.second = None

    def add_node(self):
        """Start a second node; it is there when `wait_for_nodes` returns."""
        resources = json.dumps({"second": 8})
        self.second = Node(f"--address={self.address}", f"--resources={resources}")

    def __contains__(self, agent):
        """Whether an agent is on the second node."""
        return parent_of(agent) == self.second.raylet

    def replace_node(self):
        """Start another second node after the death of the first."""
        self.add_node()
        self.wait_for_nodes()

    def wait_for_nodes(self):
        """Wait until both nodes are there."""
        import ray

        def alive():
            return sum(node["Alive"] for node in ray.nodes())

        wait_until(lambda: alive() == 2)

    def close(self):
        for node in (self.second, self._head):
            if node is not None:
                node.kill()


def wait_until(holds):
    """Look until something holds that no event tells of."""
    from ray._private.test_utils import wait_for_condition

    wait_for_condition(holds, timeout=_PATIENCE)


@contextlib.contextmanager
def open_cluster():
    settings = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    os.environ.update(settings)
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    directory = tempfile.mkdtemp(prefix="ray-")  # short: a socket's path has at most 107 characters
    cluster = TwoNodes(directory)
    os.environ["RAY_ADDRESS"] = cluster.address
    try:
        wait_until(lambda: _accepts(cluster.address))
        cluster.add_node()
        from abreast.executors.ray.cluster import connect

        connect()
        cluster.wait_for_nodes()
        yield cluster
    finally:
        ray.shutdown()
        cluster.close()
        for name in (*settings, "RAY_ADDRESS"):
            del os.environ[name]
        shutil.rmtree(directory, ignore_errors=True)


def _accepts(address):
    host, _, port = address.partition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
        return True
    return False


def name_of(pid):
    """The name of a process's program."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def processes():
    """All processes of this machine."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def parent_of(pid):
    """The process that started this one; 0 if it has ended."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def children_of(pid):
    """The children of a process, and theirs."""
    found = [other for other in processes() if parent_of(other) == pid]
    return found + [below for child in found for below in children_of(child)]


def agent_of(pid):
    """The process of the agent that a process of work belongs to."""
    found = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    (agent,) = [line for line in found if line.startswith(b"ABREAST_AGENT=")]
    return int(agent.partition(b"=")[2])


def workers():
    """The worker processes of abreast on this machine, whichever node they are on."""
    found = set()
    for pid in processes():
        with contextlib.suppress(OSError):
            if _WORKER in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.add(pid)
    return found


@contextlib.contextmanager
def no_work_left():
    """Check that worker processes that the block starts end with it."""
    had = workers()
    yield
    with contextlib.suppress(ProcessLookupError), watch(*(workers() - had)) as handles:
        assert wait_until_ended(handles) == set()
