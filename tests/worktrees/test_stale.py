"""The next pool removes slots of killed processes, and only those that are unchanged."""

import fcntl
import os
import signal
import subprocess
from pathlib import Path

import pytest

from abreast.worktrees import pool
from abreast.worktrees.pool import open_worktrees
from tests.worktrees.repositories import fingerprint, git, left_in, start_python, worktrees, write

OPENS = """
import asyncio, sys
from abreast.worktrees.pool import open_worktrees

async def main():
    async with open_worktrees(sys.argv[1], int(sys.argv[2])) as trees:
        trees.slots[0].write_candidate("README", "a candidate of a dead process")
        print(*[slot.path for slot in trees.slots], flush=True)
        sys.stdin.readline()

asyncio.run(main())
print("closed", flush=True)
"""


@pytest.fixture
def start(repository, unmeasured):
    """Start processes that open pools; returns each with the paths of its slots."""
    started = []

    def start(count):
        process = start_python(OPENS, repository, count)
        started.append(process)
        return process, process.stdout.readline().split()

    yield start
    for process in started:
        process.kill()
        process.communicate()


def exists(path):
    return Path(path).exists()


def kill(process):
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


async def test_slots_of_a_killed_process_are_reaped_by_the_next_and_only_those(
    repository, cache, start
):
    before = fingerprint(repository)
    git(repository, "worktree", "add", "--quiet", "--detach", str(cache.parent / "the user's"))
    dead, lost = start(2)
    alive, theirs = start(1)
    kill(dead)
    assert len(worktrees(repository)) == 4
    async with open_worktrees(repository, 1) as trees:
        kept = git(repository, "worktree", "list", "--porcelain")
        assert not any(path in kept for path in lost)
        assert all(
            path in kept
            for path in [*theirs, str(trees.slots[0].path), str(cache.parent / "the user's")]
        )
        assert trees.left == ()
    assert not any(map(exists, lost))
    assert all(map(exists, theirs))
    alive.communicate("\n")
    git(repository, "worktree", "remove", str(cache.parent / "the user's"))
    assert fingerprint(repository) == before
    assert left_in(cache) == []


@pytest.mark.parametrize("change", ["commit", "branch", "lock"])
async def test_a_stale_slot_in_which_somebody_did_something_is_left_and_named(
    repository, cache, start, change
):
    dead, (path, other) = start(2)
    kill(dead)
    if change == "commit":
        git(path, "commit", "--quiet", "--all", "--message=precious")
    elif change == "branch":
        git(path, "checkout", "--quiet", "-b", "precious")
    else:
        git(repository, "worktree", "lock", path)
    async with open_worktrees(repository, 1) as trees:
        assert [left.path for left in trees.left] == [path]
        named = "locked" if change == "lock" else "checked out or committed"
        assert named in trees.left[0].reason
    assert worktrees(repository) == [path]
    assert not exists(other)
    git(repository, "worktree", "unlock", path) if change == "lock" else git(
        path, "checkout", "--quiet", "--force", "--detach", "main"
    )
    async with open_worktrees(repository, 1):
        pass
    assert worktrees(repository) == []
    assert left_in(cache) == []


async def test_a_path_that_the_ledger_should_not_have_is_not_touched(
    repository, cache, start, tmp_path
):
    dead, (path,) = start(1)
    kill(dead)
    (ledger,) = cache.rglob("ledger.jsonl")
    write(tmp_path, {"precious/x": "1"})
    ledger.write_text(ledger.read_text().replace(path, str(tmp_path / "precious")))
    async with open_worktrees(repository, 1) as trees:
        assert [left.path for left in trees.left] == [str(tmp_path / "precious")]
    assert (tmp_path / "precious/x").read_text() == "1"


async def test_without_its_line_in_the_ledger_nothing_is_reaped(repository, cache, start):
    dead, (path,) = start(1)
    kill(dead)
    next(cache.rglob("ledger.jsonl")).unlink()
    async with open_worktrees(repository, 1):
        pass
    assert exists(path)
    assert worktrees(repository) == [path]


async def test_who_holds_the_pools_lock_is_alive_whatever_its_number_says(
    repository, cache, monkeypatch
):
    """A process of another container has a pid that is not valid here."""
    monkeypatch.setattr(pool, "owner_is_alive", lambda _: False)
    async with open_worktrees(repository, 1) as first, open_worktrees(repository, 1) as second:
        assert len(worktrees(repository)) == 2
        assert first.slots[0].path.exists()
        assert second.left == ()
    assert left_in(cache) == []


async def test_who_is_alive_keeps_its_slots_even_if_its_lock_was_taken_away(
    repository, cache, start
):
    alive, (path,) = start(1)
    for lock in cache.rglob("*.lock"):
        lock.unlink()
    async with open_worktrees(repository, 1) as trees:
        assert sorted(worktrees(repository)) == sorted([path, str(trees.slots[0].path)])
    assert exists(path)
    assert alive.communicate("\n")[0] == "closed\n"
    assert left_in(cache) == []


async def test_a_process_killed_in_the_middle_of_git_is_waited_for_by_its_lock(
    repository, cache, told_git, tmp_path, unmeasured
):
    before = fingerprint(repository)
    for name in ("begun", "go"):
        os.mkfifo(tmp_path / name)
    waiting = (
        f'case "$*" in *"worktree add"*) echo > {tmp_path}/begun; read line < {tmp_path}/go;; esac'
    )
    told_git(waiting)
    dead = start_python(OPENS, repository, 1)
    (tmp_path / "begun").read_text()
    kill(dead)
    dead.communicate()
    probe = os.open(repository / ".git", os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    (tmp_path / "go").write_text("\n")
    fcntl.flock(probe, fcntl.LOCK_EX)  # when the orphan has ended
    os.close(probe)
    told_git("")
    async with open_worktrees(repository, 1) as trees:
        assert worktrees(repository) == [str(trees.slots[0].path)]
    assert fingerprint(repository) == before
    assert left_in(cache) == []


@pytest.mark.parametrize("command", ["ls-files", "worktree add", "update-index"])
@pytest.mark.usefixtures("unmeasured")
async def test_a_process_killed_before_any_step_leaves_nothing_for_long(
    repository, cache, told_git, command
):
    before = fingerprint(repository)
    told_git(f'case "$*" in *"{command}"*) kill -9 $PPID; exit 1;; esac')
    dead = start_python(OPENS, repository, 2)
    assert dead.communicate()[0] == ""
    assert dead.returncode == -signal.SIGKILL
    assert list(cache.rglob("ledger.jsonl"))
    told_git("")
    async with open_worktrees(repository, 1) as trees:
        assert worktrees(repository) == [str(trees.slots[0].path)]
        assert trees.left == ()
    assert fingerprint(repository) == before
    assert left_in(cache) == []


def test_two_processes_at_once_on_one_repository(repository, cache, start):
    before = fingerprint(repository)
    processes = [start_python(OPENS, repository, 3) for _ in range(2)]
    paths = [process.stdout.readline().split() for process in processes]
    assert sorted(path for each in paths for path in each) == sorted(worktrees(repository))
    assert len(worktrees(repository)) == 6
    assert [process.communicate("\n")[0] for process in processes] == ["closed\n"] * 2
    assert fingerprint(repository) == before
    assert left_in(cache) == []


def test_the_ledger_has_the_slot_before_git_does(repository, cache, told_git, tmp_path, start):
    told_git(
        f'case "$*" in *"worktree add"*) cp {cache}/worktrees/*/ledger.jsonl {tmp_path}/seen;; esac'
    )
    process, (path,) = start(1)
    assert path in (tmp_path / "seen").read_text()
    assert f'"pid": {process.pid}' in (tmp_path / "seen").read_text()
    subprocess.run(["git", "fsck"], cwd=repository, check=True, capture_output=True)
