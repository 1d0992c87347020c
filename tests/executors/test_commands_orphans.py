"""When the driver is killed, nothing of its commands goes on, and neither does their supervisor."""

import os
import select
import signal
import subprocess
import sys

import pytest

WIDTH = 8
DRIVER = """
import asyncio, os, sys
from abreast.executors.commands import Commands

# Two processes that ignore the request to end, and hold the witness.
SCRIPT = "trap '' TERM; exec 9>$1; (echo child >&9; while :; do sleep 1000; done) & echo parent >&9; wait; wait"

async def main():
    async with Commands() as commands:
        os.write(1, f"{commands._supervisors[0].pid}\\n".encode())
        FORK
        async with asyncio.TaskGroup() as group:
            for _ in range(int(sys.argv[2])):
                group.create_task(commands.run(["sh", "-c", SCRIPT, "sh", sys.argv[1]]))

asyncio.run(main())
"""
# A process that holds all of the driver's files, as a fork without exec does.
FORK = """
        if os.fork() == 0:
            os.write(1, f"{os.getpid()}\\n".encode())
            os.setsid()
            os.close(1)
            import signal
            signal.pause()
"""


@pytest.fixture
def fifo(tmp_path):
    path = tmp_path / "witness"
    os.mkfifo(path)
    return path


def start_driver(fifo, fork="", width=WIDTH):
    argv = [sys.executable, "-c", DRIVER.replace("FORK", fork), str(fifo), str(width)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, start_new_session=True)


def wait_end(pid):
    """Wait until a process that isn't our child is no more.

    One that is no more already has ended too.
    """
    try:
        life = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([life], [], [], 60)[0], f"{pid} is still there"
    finally:
        os.close(life)


@pytest.mark.parametrize("kill", [os.kill, os.killpg], ids=["alone", "with its group"])
def test_a_killed_driver_takes_all_commands_and_their_supervisor_with_it(fifo, kill):
    with start_driver(fifo) as driver, fifo.open("rb", buffering=0) as witness:
        supervisor = int(driver.stdout.readline())
        heard = b""
        while heard.count(b"\n") < 2 * WIDTH:
            heard += witness.read(4096)
        kill(driver.pid, signal.SIGKILL)
        assert witness.read() == b""  # the end comes when the last process is gone
        wait_end(supervisor)


def test_it_does_so_though_a_fork_of_the_driver_lives_on(fifo):
    with start_driver(fifo, FORK) as driver, fifo.open("rb", buffering=0) as witness:
        supervisor, fork = int(driver.stdout.readline()), int(driver.stdout.readline())
        heard = b""
        while heard.count(b"\n") < 2 * WIDTH:
            heard += witness.read(4096)
        driver.kill()
        assert witness.read() == b""
        wait_end(supervisor)
        os.kill(fork, signal.SIGKILL)


@pytest.mark.parametrize("started", [0, 1, 5, 20])
def test_a_driver_killed_while_it_starts_commands_leaves_none(fifo, started):
    with start_driver(fifo, width=100) as driver, open_now(fifo) as witness:
        supervisor = int(driver.stdout.readline())
        heard = b""
        while heard.count(b"\n") < started and select.select([witness], [], []):
            heard += witness.read(1)
        driver.kill()
        wait_end(supervisor)
        while witness.read(4096):
            pass


def open_now(fifo):
    """The fifo to read from, without waiting for somebody to write."""
    fd = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(fd, True)
    return os.fdopen(fd, "rb", buffering=0)
