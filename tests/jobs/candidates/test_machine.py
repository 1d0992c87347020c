"""The machine's own lock: checks together, measuring alone, and nobody starves."""

import asyncio
import fcntl
import os

import pytest

from abreast.jobs.candidates import machine as place
from abreast.jobs.candidates.machine import machine
from tests.worktrees.repositories import start_python


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.setattr(place, "machine_directory", lambda: tmp_path / "locks")
    return tmp_path / "locks"


async def stay(alone, inside, leave):
    async with machine(alone=alone):
        inside.set()
        await leave.wait()


def visitor(group, alone):
    inside, leave = asyncio.Event(), asyncio.Event()
    return group.create_task(stay(alone, inside, leave)), inside, leave


async def settled():
    """Let those who wait try once more, several times over."""
    for _ in range(5):
        await asyncio.to_thread(lambda: None)


async def is_locked(path):
    """Wait until somebody holds it."""
    with path.open() as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            fcntl.flock(file, fcntl.LOCK_UN)
            await asyncio.to_thread(os.sched_yield)


async def test_checks_are_together_and_measuring_is_alone(directory):
    async with asyncio.TaskGroup() as group:
        _, one, leave_one = visitor(group, alone=False)
        _, two, leave_two = visitor(group, alone=False)
        await one.wait()
        await two.wait()
        _, measuring, leave_measuring = visitor(group, alone=True)
        await is_locked(directory / "door.lock")
        leave_one.set()
        await settled()
        assert not measuring.is_set()
        _, late, leave_late = visitor(group, alone=False)  # behind who measures, though the room is shared
        await settled()
        assert not late.is_set()
        leave_two.set()
        await measuring.wait()
        assert not late.is_set()
        leave_measuring.set()
        await late.wait()
        leave_late.set()


async def test_another_process_is_respected(directory):
    directory.mkdir(mode=0o700)
    program = (
        "import fcntl, os, sys\n"
        "held = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\nfcntl.flock(held, fcntl.LOCK_SH)\n"
        "print('held', flush=True)\nsys.stdin.read()\n"
    )
    with start_python(program, directory / "room.lock") as other:
        assert other.stdout.readline() == "held\n"
        async with asyncio.TaskGroup() as group:
            _, measuring, leave = visitor(group, alone=True)
            await settled()
            assert not measuring.is_set()
            other.stdin.close()
            await measuring.wait()
            leave.set()


async def test_cancelled_while_it_waits_it_holds_nothing(directory):
    async with machine(alone=True):
        task = asyncio.create_task(stay(alone=False, inside=asyncio.Event(), leave=asyncio.Event()))
        await settled()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
    for name in ("door.lock", "room.lock"):
        held = os.open(directory / name, os.O_RDWR)
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(held)


async def test_a_place_that_is_somebody_elses_is_refused(directory, tmp_path):
    directory.symlink_to(tmp_path)
    with pytest.raises(PermissionError, match="not ours"):
        async with machine(alone=False):
            pass
