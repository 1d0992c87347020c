"""The machine-wide lock: checks share it, measuring excludes them, and none starves."""

import asyncio
import fcntl
import os

import pytest

from abreast.worktrees import machine_lock
from abreast.worktrees.machine_lock import machine
from tests.worktrees.repositories import start_python

ENTRY, USAGE = "abreast-door.lock", "abreast-room.lock"


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    (tmp_path / "locks").mkdir()
    monkeypatch.setenv(machine_lock.LOCKS_VARIABLE, str(tmp_path / "locks"))
    return tmp_path / "locks"


async def stay(alone, inside, leave):
    async with machine(alone=alone):
        inside.set()
        await leave.wait()


def visitor(group, alone):
    inside, leave = asyncio.Event(), asyncio.Event()
    return group.create_task(stay(alone, inside, leave)), inside, leave


async def settled():
    """Let the waiting tasks retry several times."""
    for _ in range(5):
        await asyncio.to_thread(lambda: None)


async def is_locked(path):
    """Wait until the file is locked."""
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
        await is_locked(directory / ENTRY)
        leave_one.set()
        await settled()
        assert not measuring.is_set()
        # It waits behind the measuring task, though the usage lock is shared.
        _, late, leave_late = visitor(group, alone=False)
        await settled()
        assert not late.is_set()
        leave_two.set()
        await measuring.wait()
        assert not late.is_set()
        leave_measuring.set()
        await late.wait()
        leave_late.set()


async def test_another_process_is_respected(directory):
    program = (
        "import fcntl, os, sys\n"
        "held = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\nfcntl.flock(held, fcntl.LOCK_SH)\n"
        "print('held', flush=True)\nsys.stdin.read()\n"
    )
    with start_python(program, directory / USAGE) as other:
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
    for name in (ENTRY, USAGE):
        held = os.open(directory / name, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(held)


# --- where the lock is

HOLDER = """
import asyncio, sys
from abreast.worktrees import machine_lock

machine_lock._LOCK_DIRECTORIES = (machine_lock.Path(sys.argv[1]),)

async def main():
    async with machine_lock.machine(alone=True):
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A directory that is open to all users, as /run/lock and /tmp are, instead of these."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    monkeypatch.delenv(machine_lock.LOCKS_VARIABLE)
    monkeypatch.setattr(machine_lock, "_LOCK_DIRECTORIES", (tmp_path / "shared",))
    return tmp_path / "shared"


async def test_processes_with_different_temporary_directories_exclude_each_other(
    shared, tmp_path, monkeypatch
):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "one"))
    with start_python(HOLDER, shared) as other:
        assert other.stdout.readline() == "held\n"
        monkeypatch.setenv("TMPDIR", str(tmp_path / "two"))
        async with asyncio.TaskGroup() as group:
            _, measuring, leave = visitor(group, alone=True)
            await settled()
            assert not measuring.is_set()
            other.stdin.close()
            await measuring.wait()
            leave.set()


def test_the_place_is_the_same_for_every_user_and_temporary_directory(tmp_path, monkeypatch):
    monkeypatch.delenv(machine_lock.LOCKS_VARIABLE)
    before = machine_lock.machine_directories()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert machine_lock.machine_directories() == before
    assert before
    assert not any(str(tmp_path) in str(one) for one in before)


async def test_another_user_can_lock_the_files_without_writing_to_them(directory):
    before = os.umask(0o077)
    try:
        async with machine(alone=True):
            pass
    finally:
        os.umask(before)
    for name in (ENTRY, USAGE):
        assert (directory / name).stat().st_mode & 0o777 == 0o644


async def test_a_directory_that_is_not_open_to_all_users_is_no_shared_place(shared):
    assert machine_lock.machine_directories() == [shared]
    shared.chmod(0o755)
    assert machine_lock.machine_directories() == []


async def test_a_link_in_the_place_of_the_lock_is_not_followed_and_the_next_place_is_taken(
    tmp_path, monkeypatch
):
    monkeypatch.delenv(machine_lock.LOCKS_VARIABLE)
    places = tmp_path / "first", tmp_path / "second"
    for one in places:
        one.mkdir()
        one.chmod(0o1777)
    monkeypatch.setattr(machine_lock, "_LOCK_DIRECTORIES", places)
    (places[0] / ENTRY).symlink_to(tmp_path / "elsewhere")
    async with machine(alone=True):
        await is_locked(places[1] / USAGE)
    assert not (tmp_path / "elsewhere").exists()


async def test_where_no_place_can_be_used_it_goes_on_without_a_lock(tmp_path, monkeypatch):
    monkeypatch.setenv(machine_lock.LOCKS_VARIABLE, str(tmp_path / "nowhere"))
    async with machine(alone=True):
        assert not (tmp_path / "nowhere").exists()


async def test_a_lock_file_that_was_removed_while_it_was_waited_for_is_made_anew(directory):
    async with asyncio.TaskGroup() as group:
        _, first, leave_first = visitor(group, alone=True)
        await first.wait()
        _, second, leave_second = visitor(group, alone=True)
        await is_locked(directory / ENTRY)
        (directory / USAGE).unlink()
        leave_first.set()
        await second.wait()
        await is_locked(directory / USAGE)
        leave_second.set()
