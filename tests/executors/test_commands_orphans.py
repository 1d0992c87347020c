"""When the driver is killed, its commands and their supervisor end."""

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

# Two processes that ignore SIGTERM, and hold the pipe open.
SCRIPT = (
    "trap '' TERM; exec 9>$1; (echo child >&9; while :; do sleep 1000; done) & "
    "echo parent >&9; wait; wait"
)

async def main():
    async with Commands() as commands:
        os.write(1, f"{commands._supervisors[0].pid}\\n".encode())
        FORK
        async with asyncio.TaskGroup() as group:
            for _ in range(int(sys.argv[2])):
                group.create_task(commands.run(["sh", "-c", SCRIPT, "sh", sys.argv[1]]))

asyncio.run(main())
"""
# A process that holds all of the driver's files open, as a fork without exec does.
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
    path = tmp_path / "life-pipe"
    os.mkfifo(path)
    return path


def start_driver(fifo, fork="", width=WIDTH):
    argv = [sys.executable, "-c", DRIVER.replace("FORK", fork), str(fifo), str(width)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, start_new_session=True)


def wait_end(pid):
    """Wait until a process that isn't a child of this one has ended, also before the call."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([pidfd], [], [], 60)[0], f"{pid} is still there"
    finally:
        os.close(pidfd)


@pytest.mark.parametrize("kill", [os.kill, os.killpg], ids=["alone", "with its group"])
def test_a_killed_driver_takes_all_commands_and_their_supervisor_with_it(fifo, kill):
    with start_driver(fifo) as driver, fifo.open("rb", buffering=0) as life_pipe:
        supervisor = int(driver.stdout.readline())
        heard = b""
        while heard.count(b"\n") < 2 * WIDTH:
            heard += life_pipe.read(4096)
        kill(driver.pid, signal.SIGKILL)
        assert life_pipe.read() == b""  # the end of the file comes when the last process has ended
        wait_end(supervisor)


def test_it_does_so_though_a_fork_of_the_driver_lives_on(fifo):
    with start_driver(fifo, FORK) as driver, fifo.open("rb", buffering=0) as life_pipe:
        supervisor, fork = int(driver.stdout.readline()), int(driver.stdout.readline())
        heard = b""
        while heard.count(b"\n") < 2 * WIDTH:
            heard += life_pipe.read(4096)
        driver.kill()
        assert life_pipe.read() == b""
        wait_end(supervisor)
        os.kill(fork, signal.SIGKILL)


@pytest.mark.parametrize("started", [0, 1, 5, 20])
def test_a_driver_killed_while_it_starts_commands_leaves_none(fifo, started):
    with start_driver(fifo, width=100) as driver, open_now(fifo) as life_pipe:
        supervisor = int(driver.stdout.readline())
        heard = b""
        while heard.count(b"\n") < started and select.select([life_pipe], [], []):
            heard += life_pipe.read(1)
        driver.kill()
        wait_end(supervisor)
        while life_pipe.read(4096):
            pass


def open_now(fifo):
    """Open the fifo for reading, without waiting for a writer."""
    fd = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(fd, True)
    return os.fdopen(fd, "rb", buffering=0)
