"""Two nodes of Ray on this machine, and what the kernel shows of the work on them."""

import contextlib
import logging
import os
import secrets
import signal
from pathlib import Path

from tests.executors.traces import wait_until_ended, watch

_SMALL = {"object_store_memory": 80 << 20, "include_dashboard": False}
_WORKER = b"abreast.executors.worker"


class TwoNodes:
    """A head with four CPUs and a node with four others; `node` is replaced after its death."""

    def __init__(self, cluster):
        self._cluster = cluster
        self.address = cluster.address
        self.node = None
        self.add_node()

    def add_node(self):
        self.node = self._cluster.add_node(
            num_cpus=4, resources={"second": 8}, object_store_memory=80 << 20
        )

    def kill_node(self):
        """Kill the second node's raylet, as a power cut would: Ray is told nothing."""
        os.kill(self.node.all_processes["raylet"][0].process.pid, signal.SIGKILL)

    def replace_node(self):
        """Remove what is left of the killed node, and start another."""
        with contextlib.suppress(Exception):
            self._cluster.remove_node(self.node, allow_graceful=False)
        self.add_node()


@contextlib.contextmanager
def open_cluster(directory):
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    import ray
    from ray.cluster_utils import Cluster

    logging.getLogger("ray").setLevel(logging.ERROR)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, **_SMALL})
    os.environ["RAY_ADDRESS"] = cluster.address
    try:
        yield TwoNodes(cluster)
    finally:
        ray.shutdown()
        cluster.shutdown()
        del os.environ["RAY_ADDRESS"]


def workers():
    """The worker processes of abreast on this machine, whichever node they are on."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if _WORKER in (entry / "cmdline").read_bytes():
                    found.add(int(entry.name))
    return found


@contextlib.contextmanager
def no_work_left():
    """Check that worker processes that the block starts end with it."""
    had = workers()
    yield
    with contextlib.suppress(ProcessLookupError), watch(*(workers() - had)) as handles:
        assert wait_until_ended(handles) == set()
