"""What of other processes can be seen from here, by the kernel's own account."""

import asyncio
import contextlib
import gc
import os
import select
import threading
from os import pidfd_open  # by its name, for a test may take it from the module
from pathlib import Path


def children():
    """The processes this one has, those not yet reaped included."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(
            FileNotFoundError, ProcessLookupError
        ):  # a thread that has just ended
            found.update(map(int, (task / "children").read_text().split()))
    return found


def open_files():
    """What this process has open, by number."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            found[int(entry.name)] = str(entry.readlink())
    return found


@contextlib.contextmanager
def watch(*pids):
    """Handles on processes, taken while they live: a number alone might be another's by the time one looks."""
    handles = [pidfd_open(pid) for pid in pids]
    try:
        yield handles
    finally:
        for handle in handles:
            os.close(handle)


def wait_until_ended(handles, seconds=30):
    """Wait until all these processes have ended; those that have not when the time is up."""
    left = set(handles)
    while left and (ended := select.select(left, [], [], seconds)[0]):
        left -= set(ended)
    return left


async def wait_until_ended_beside(handles, seconds=30):
    """The same, while the loop goes on."""
    return await asyncio.get_running_loop().run_in_executor(
        None, wait_until_ended, handles, seconds
    )


@contextlib.contextmanager
def nothing_left():
    """After the block there are no more children, and no more open files, than before."""
    had, had_open = children(), open_files()
    yield
    assert _lasting(lambda: children() - had) == set()
    assert _lasting(lambda: open_files().items() - had_open.items()) == set()


def run_and_leave_nothing(main):
    """Run the coroutine in a loop of its own: no child, no open file and no thread of it outlives it."""
    threads = set(threading.enumerate())  # those of others may end meanwhile
    with nothing_left():
        found = asyncio.run(main())
        gc.collect()
    assert set(threading.enumerate()) <= threads
    return found


def _lasting(look):
    """What is there at every one of many looks: a thread of another test may open a file for a moment."""
    found = look()
    for _ in range(100):
        found = found and look()
    return found
