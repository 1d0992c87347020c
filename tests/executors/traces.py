"""What the kernel shows of processes: children, open files, ends."""

import asyncio
import contextlib
import gc
import os
import select
import threading
from os import pidfd_open  # imported by name, as a test may delete it from the module
from pathlib import Path


def children():
    """The child processes of this one, including those not yet reaped."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        # A thread may have just ended.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.update(map(int, (task / "children").read_text().split()))
    return found


def open_files():
    """The files that this process has open, by number."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the listing itself
            found[int(entry.name)] = str(entry.readlink())
    return found


@contextlib.contextmanager
def watch(*pids):
    """Open pidfds of processes while they live, as a process id may be reused later."""
    handles = [pidfd_open(pid) for pid in pids]
    try:
        yield handles
    finally:
        for handle in handles:
            os.close(handle)


def wait_until_ended(handles, seconds=30):
    """Wait until all these processes have ended; return those that have not in time."""
    left = set(handles)
    while left and (ended := select.select(left, [], [], seconds)[0]):
        left -= set(ended)
    return left


async def wait_until_ended_beside(handles, seconds=30):
    """The same, while the loop runs on."""
    return await asyncio.get_running_loop().run_in_executor(
        None, wait_until_ended, handles, seconds
    )


@contextlib.contextmanager
def nothing_left():
    """Check that the block leaves no children and no open files."""
    had, had_open = children(), open_files()
    yield
    assert _lasting(lambda: children() - had) == set()
    assert _lasting(lambda: open_files().items() - had_open.items()) == set()


def run_and_leave_nothing(main):
    """Run the coroutine in a new loop; check that it leaves no child, open file or thread."""
    threads = set(threading.enumerate())  # threads of other tests may end meanwhile
    with nothing_left():
        found = asyncio.run(main())
        gc.collect()
    assert set(threading.enumerate()) <= threads
    return found


def _lasting(look):
    """What is seen at each of 100 looks: threads of other tests open files for a moment."""
    found = look()
    for _ in range(100):
        found = found and look()
    return found
