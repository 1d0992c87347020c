"""What the kernel shows of the work on the nodes of a cluster."""

import contextlib
from pathlib import Path

from benchmarks.ray_nodes import processes, variable_of
from tests.executors.traces import wait_until_ended, watch

_WORKER = b"abreast.executors.worker"


def agent_of(pid):
    """The process of the agent that a process of work belongs to."""
    return int(variable_of(pid, "ABREAST_AGENT"))


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
