"""The connection of this process to a Ray cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from abreast.core.errors import AbreastError
from abreast.executors.ray.pool import AgentPool, Cluster, Demand, PoolTimes
from abreast.system.installation import install_hint

if TYPE_CHECKING:
    from abreast.executors.ray.client import ActorHandle

_ADDRESS: Final = "RAY_ADDRESS"
_CONNECT_SECONDS: Final = 10.0
_NODE_LABEL: Final = "ray.io/node-id"
# `post` and `poll` wait for each other at most; work is not done in Ray's own tasks.
_CALLS_AT_ONCE: Final = 16


class ClusterUnusable(AbreastError, retryable=False):
    """There is no Ray, no cluster, or it refuses this driver; the message says what to do."""


class _Connections:
    """The pool of this process, for the connection of Ray that it was made for."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pool: AgentPool | None = None
        self.job: str | None = None


_CONNECTIONS: Final = _Connections()


def connect(times: PoolTimes | None = None) -> AgentPool:
    """The pool of agents; connects to the cluster unless this process is connected.

    A connection takes a second. Raises `ClusterUnusable`.
    """
    with _CONNECTIONS.lock:
        ray = _import_ray()
        if not ray.is_initialized():
            _connect(ray)
        job = str(ray.get_runtime_context().get_job_id())
        if _CONNECTIONS.pool is None or _CONNECTIONS.job != job or times is not None:
            _CONNECTIONS.pool, _CONNECTIONS.job = _make_pool(ray, times or PoolTimes()), job
        return _CONNECTIONS.pool


def check_demand(pool: AgentPool, demand: Demand) -> None:
    """Raise `ClusterUnusable` if no node has what work takes: Ray would wait without a word."""
    if (reason := pool.unmet(demand)) is not None:
        raise ClusterUnusable(f"{reason}: start a node that has it, or ask for less")


def _import_ray() -> Any:
    try:
        import cloudpickle  # noqa: F401 - agents need it, too
        import ray
    except ImportError as error:
        raise ClusterUnusable(
            f"the Ray executor needs {error.name}, which is not installed: {install_hint('ray')}"
        ) from error
    return ray


def _connect(ray: Any) -> None:
    address = os.environ.get(_ADDRESS) or "auto"
    if address.startswith("ray://"):
        raise ClusterUnusable(
            f"{_ADDRESS} is {address}: abreast drives a cluster from inside, not through Ray's "
            "client; run it on a node, or by `ray job submit`"
        )
    _check_port(address)
    failure: list[BaseException] = []

    def initialize() -> None:
        try:
            ray.init(
                address=address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=False,
            )
        except (Exception, SystemExit) as error:  # noqa: BLE001 - raised below, as a sentence
            failure.append(error)

    # In another thread than the main one Ray leaves the handler of SIGTERM alone.
    logging.getLogger("ray").setLevel(logging.ERROR)
    thread = threading.Thread(target=initialize, name="abreast-ray-init")
    thread.start()
    thread.join()
    if failure:
        raise ClusterUnusable(_sentence(failure[0], address)) from failure[0]
    _keep_stdout_clean()


def _keep_stdout_clean() -> None:
    """Keep what Ray says about lost workers off stdout, which is for results.

    `log_to_driver=False` does not do that, and there is no public way. The pool notices them.
    """
    with contextlib.suppress(ImportError, AttributeError):
        from ray._private import worker

        vars(worker)["_worker_logs_enabled"] = False


def _check_port(address: str) -> None:
    """Raise `ClusterUnusable` if nothing listens there: Ray itself would try for minutes."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise ClusterUnusable(
            f"no Ray cluster answers at {address} ({_ADDRESS}): {error.strerror or error}"
        ) from error


def _sentence(error: BaseException, address: str) -> str:
    text = str(error)
    if "uthentication" in text or "token" in text.lower():
        return (
            f"the Ray cluster at {address} wants its token: set RAY_AUTH_MODE=token and "
            "RAY_AUTH_TOKEN to that of `ray start`"
        )
    if "ersion mismatch" in text:
        return f"the Ray cluster at {address} has other versions: {' '.join(text.split())}"
    if address == "auto":
        return (
            "no Ray cluster is running here: start one by `ray start --head`, or set "
            f"{_ADDRESS} to the address of one; on one machine, the process executor does the same"
        )
    return (
        f"the Ray cluster at {address} does not let this driver in: "
        f"{' '.join(text.split())[:200].rstrip('.')}; if it wants a token, "
        "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to that of `ray start`"
    )


def _make_pool(ray: Any, times: PoolTimes) -> AgentPool:
    from abreast.executors.ray.agent import NodeAgent

    agents = ray.remote(NodeAgent)
    sys_path = [entry or str(Path.cwd()) for entry in sys.path]

    def start(demand: Demand, lease: float, avoid: frozenset[str]) -> ActorHandle:
        elsewhere = {_NODE_LABEL: f"!in({','.join(sorted(avoid))})"}
        handle: ActorHandle = agents.options(
            **_ray_options(dict(demand.resources)),
            label_selector=elsewhere if avoid else None,
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=_CALLS_AT_ONCE,
            scheduling_strategy="SPREAD",
        ).remote(lease, sys_path)
        return handle

    job = ray.get_runtime_context().get_job_id()

    def is_connected() -> bool:
        # To be asked before every call: without a connection, Ray would make one of its own.
        return bool(ray.is_initialized() and ray.get_runtime_context().get_job_id() == job)

    def end(handle: ActorHandle) -> None:
        if is_connected():
            ray.kill(handle, no_restart=True)

    def nodes() -> frozenset[str]:
        return frozenset(node["NodeID"] for node in ray.nodes() if node["Alive"])

    def resources() -> list[dict[str, float]]:
        return [dict(node["Resources"]) for node in ray.nodes() if node["Alive"]]

    return AgentPool(Cluster(start, end, nodes, resources, is_connected), times)


def _ray_options(resources: Mapping[str, float]) -> dict[str, object]:
    others = {name: value for name, value in resources.items() if name not in {"CPU", "GPU"}}
    return {
        "num_cpus": resources.get("CPU", 0),
        "num_gpus": resources.get("GPU", 0),
        "resources": others,
    }
