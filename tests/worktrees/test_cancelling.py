"""A pool cancelled at any step leaves no slot, worktree, child, lock or ownership entry."""

import asyncio
import contextlib
import fcntl
import os
import random
from pathlib import Path

import pytest

from abreast.worktrees import background, pool, slot, staging
from abreast.worktrees.confinement import run_confined
from abreast.worktrees.pool import open_worktrees
from tests.worktrees.repositories import fingerprint, left_in


class Steps:
    """Counts the steps of the work, and cancels a task at one of them."""

    def __init__(self, monkeypatch):
        self.count = 0
        self.at = None
        self.call = None
        self._watch(monkeypatch, background.StopRequest, "check")
        self._watch(monkeypatch, pool, "remove_tree")
        self._watch(monkeypatch, pool.OwnershipLog, "_append")
        self._watch(monkeypatch, pool.OwnershipLog, "drop")
        self._watch(monkeypatch, slot, "make_piece")
        self._watch(monkeypatch, staging, "copy_bytes")
        self._watch(monkeypatch, pool.Git, "__call__")

    def _watch(self, monkeypatch, place, name):
        real = getattr(place, name)

        def step(*args, **options):
            self.count += 1
            if self.count == self.at:
                self.call()
            return real(*args, **options)

        monkeypatch.setattr(place, name, step)


@pytest.fixture
def steps(monkeypatch):
    return Steps(monkeypatch)


async def use(repository, entered=None):
    async with open_worktrees(repository, 2) as trees:
        one, other = trees.slots
        one.write_candidate("README", "x")
        await asyncio.wait(
            [asyncio.create_task(run_confined(["true"], one)), asyncio.create_task(other.reset())]
        )
        await one.reset()


def children():
    """The children of this process that are a git or a sandbox."""
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [pid for pid in found if b"sandbox" in cmdline(pid) or b"git" in cmdline(pid)]


def cmdline(pid):
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def assert_nothing_left(repository, cache, before):
    assert fingerprint(repository) == before
    assert left_in(cache) == []
    assert children() == []
    probe = os.open(repository / ".git", os.O_RDONLY)
    fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(probe)
    assert not [file for file in Path("/proc/self/fd").iterdir() if "worktrees" in read_link(file)]


def read_link(file):
    with contextlib.suppress(FileNotFoundError):
        return str(file.readlink())
    return ""


async def cancel_at_random_steps(repository, cache, steps, rounds):
    before = fingerprint(repository)
    await use(repository)
    assert_nothing_left(repository, cache, before)
    total, drawn = steps.count, random.Random(8)
    cancelled = 0
    loop = asyncio.get_running_loop()
    for round_ in range(rounds):
        at = 1 + (total * round_ + drawn.randrange(total)) // rounds  # spread over all of it
        steps.count, steps.at = 0, at
        task = asyncio.create_task(use(repository))
        steps.call = lambda task=task: loop.call_soon_threadsafe(task.cancel)
        await asyncio.wait([task])
        steps.at = None
        cancelled += task.cancelled()
        if not task.cancelled():
            task.result()
        assert_nothing_left(repository, cache, before)
        assert asyncio.all_tasks() == {asyncio.current_task()}
    assert cancelled >= rounds / 2


async def test_cancelled_at_ten_random_steps_nothing_is_left(repository, cache, steps):
    await cancel_at_random_steps(repository, cache, steps, 10)


@pytest.mark.soak
@pytest.mark.timeout(1200)
async def test_cancelled_at_a_hundred_random_steps_nothing_is_left(repository, cache, steps):
    await cancel_at_random_steps(repository, cache, steps, 100)


async def test_cancelled_while_a_command_runs_the_command_is_gone(repository, cache, tmp_path):
    before = fingerprint(repository)
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    heard = asyncio.Event()
    asyncio.get_running_loop().add_reader(reader, heard.set)

    async def use():
        async with open_worktrees(repository, 1) as trees:
            script = "trap '' TERM; exec 9> $0; echo here >&9; while :; do sleep 1000; done"
            words = ["sh", "-c", script, str(tmp_path / "fifo")]
            await run_confined(words, trees.slots[0], writable=[tmp_path / "fifo"])

    task = asyncio.create_task(use())
    await heard.wait()
    asyncio.get_running_loop().remove_reader(reader)
    assert os.read(reader, 100) == b"here\n"
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert os.read(reader, 100) == b""  # no process holds it
    os.close(reader)
    assert_nothing_left(repository, cache, before)


async def test_cancelled_while_git_hangs_git_is_ended(repository, cache, told_git, tmp_path):
    before = fingerprint(repository)
    os.mkfifo(tmp_path / "fifo")
    os.mkfifo(tmp_path / "never")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    heard = asyncio.Event()
    asyncio.get_running_loop().add_reader(reader, heard.set)
    hang = "trap '' TERM; exec 9> $T/fifo; echo >&9; read x < $T/never"
    told_git(f"T={tmp_path}; case \"$*\" in *'worktree add'*) {hang};; esac")
    task = asyncio.create_task(use(repository))
    await heard.wait()
    asyncio.get_running_loop().remove_reader(reader)
    task.cancel()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert os.read(reader, 100) == b"\n"
    assert os.read(reader, 100) == b""
    os.close(reader)
    told_git("")
    assert_nothing_left(repository, cache, before)


async def test_a_second_and_third_cancellation_change_nothing(repository, cache, steps):
    before = fingerprint(repository)
    loop = asyncio.get_running_loop()
    await use(repository)
    total = steps.count
    for at in (total // 4, total // 2, total - 6):
        steps.count, steps.at = 0, at
        task = asyncio.create_task(use(repository))

        def call(steps=steps, task=task, last=at + 3):
            steps.at = steps.count + 1 if steps.at < last else None
            loop.call_soon_threadsafe(task.cancel)

        steps.call = call
        await asyncio.wait([task])
        assert (
            task.cancelled() or at > total / 2
        )  # the last steps may end before the cancellation arrives
        assert_nothing_left(repository, cache, before)
