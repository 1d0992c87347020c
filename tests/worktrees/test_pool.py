"""The pool of worktrees, with a real git."""

import asyncio
import contextlib
import fcntl
import os
from pathlib import Path

import pytest

import abreast
from abreast.worktrees import pool
from abreast.worktrees.confinement import run_confined
from abreast.worktrees.errors import SlotClosed, WorktreesLeft, WorktreesUnavailable
from abreast.worktrees.pool import open_worktrees
from tests.worktrees.repositories import (
    fingerprint,
    git,
    left_in,
    make_repository,
    worktrees,
    write,
)


async def test_slots_are_detached_worktrees_in_the_cache_and_gone_afterwards(repository, cache):
    before = fingerprint(repository)
    async with open_worktrees(repository, 3) as trees:
        assert [slot.index for slot in trees.slots] == [0, 1, 2]
        assert sorted(worktrees(repository)) == sorted(str(slot.path) for slot in trees.slots)
        assert all(slot.path.is_relative_to(cache) for slot in trees.slots)
        for slot in trees.slots:
            assert git(slot.path, "rev-parse", "HEAD") == git(repository, "rev-parse", "HEAD")
            assert git(slot.path, "branch", "--show-current") == ""
            assert git(slot.path, "status", "--porcelain") == ""
        assert git(repository, "for-each-ref", "--format=%(refname)") == "refs/heads/main\n"
    assert fingerprint(repository) == before
    assert left_in(cache) == []


async def test_the_main_tree_index_refs_and_stash_are_the_same_bytes_before_and_after(
    repository, cache
):
    write(repository, {"README": "stashed\n"})
    git(repository, "stash")
    write(repository, {"README": "staged\n"})
    git(repository, "add", "README")
    write(repository, {"README": "and changed again\n", "new": "untracked\n"})
    os.utime(repository / "pkg/words.py")  # an index that any refresh would rewrite
    before = fingerprint(repository)
    async with open_worktrees(repository, 2) as trees:
        slot = trees.slots[0]
        assert git(slot.path, "status", "--porcelain") == before[1]
        slot.write_candidate("README", "a candidate's\n")
        slot.write_candidate("pkg/words.py", "two = 2\n")
        await run_confined(["sh", "-c", "echo more >> README; rm new; git status"], slot)
        await slot.reset()
    assert fingerprint(repository) == before
    assert left_in(cache) == []


async def test_a_write_in_one_slot_is_invisible_in_the_other_and_in_the_main_tree(repository):
    async with open_worktrees(repository, 2) as trees:
        one, other = trees.slots
        one.write_candidate("pkg/words.py", "one = 'changed'\n")
        one.write_candidate("pkg/deep/new.py", "")
        assert (one.path / "pkg/words.py").read_text() == "one = 'changed'\n"
        for place in (other.path, repository):
            assert (place / "pkg/words.py").read_text() == "one = 1\n"
            assert not (place / "pkg/deep").exists()


async def test_no_candidates_no_worktree(repository, cache, told_git):
    told_git("exit 1")
    async with open_worktrees(repository, 0) as trees:
        assert trees.slots == ()
        assert trees.repository is None
        assert not cache.exists()
        with pytest.raises(WorktreesUnavailable):
            await trees.digest()
    assert not cache.exists()


@pytest.mark.parametrize("count", [-1, 1.5, True])
def test_the_number_of_slots_is_a_number(repository, count):
    with pytest.raises(ValueError, match="0 or more"):
        open_worktrees(repository, count)


async def test_some_slots_fail_and_the_rest_works_naming_them(repository, cache, told_git):
    before = fingerprint(repository)
    told_git('case "$*" in *"worktree add"*-[13]" "*) echo "fatal: no luck" >&2; exit 128;; esac')
    async with open_worktrees(repository, 5) as trees:
        assert [slot.index for slot in trees.slots] == [0, 2, 4]
        assert [(failed.index, failed.reason) for failed in trees.failures] == [
            (1, "git worktree: fatal: no luck"),
            (3, "git worktree: fatal: no luck"),
        ]
        assert sorted(worktrees(repository)) == sorted(str(slot.path) for slot in trees.slots)
        assert not list(cache.rglob("abreast-*-[13]"))
        assert len(pool.OwnershipLog(next(cache.rglob("ledger.jsonl"))).entries()) == 3
        assert repr(trees).endswith("3 of 5 slots>")
    assert fingerprint(repository) == before
    assert left_in(cache) == []


async def test_a_directory_that_is_there_already_costs_one_slot(repository, cache, monkeypatch):
    take = pool.take_snapshot

    def prepare(repository, listing, place, *others):
        (place.parent / f"abreast-{place.parent.name}-1").mkdir()
        return take(repository, listing, place, *others)

    monkeypatch.setattr(pool, "take_snapshot", prepare)
    async with open_worktrees(repository, 2) as trees:
        assert [slot.index for slot in trees.slots] == [0]
        assert "File exists" in trees.failures[0].reason
    assert left_in(cache) == []
    assert worktrees(repository) == []


async def test_all_slots_fail_and_there_is_one_clear_error_and_nothing_on_disk(repository, cache):
    (repository / ".git/worktrees").write_text("in the way")
    before = fingerprint(repository)
    with pytest.raises(
        WorktreesUnavailable,
        match=r"none of 3 worktrees of .*repository could be made: git worktree:",
    ):
        async with open_worktrees(repository, 3):
            pytest.fail("there are no slots")
    assert fingerprint(repository) == before
    assert left_in(cache) == []


async def test_a_cache_that_cannot_be_written_is_one_clear_error(repository, cache):
    cache.write_text("a file")
    with pytest.raises(WorktreesUnavailable, match=r"no worktrees of .*Not a directory"):
        async with open_worktrees(repository, 2):
            pytest.fail("there are no slots")
    assert cache.read_text() == "a file"


async def test_a_pools_directory_that_is_somebody_elses_stays(repository, cache, monkeypatch):
    monkeypatch.setattr(pool.secrets, "randbits", lambda _: 0xABC)
    async with open_worktrees(repository, 1) as trees:
        home = trees.slots[0].path.parents[1]
    write(home, {"abc/precious": "x"})
    with pytest.raises(WorktreesUnavailable, match="File exists"):
        async with open_worktrees(repository, 1):
            pytest.fail("there are no slots")
    assert left_in(home) == ["abc", "abc/precious"]


async def test_a_cache_inside_of_the_repository_is_refused(repository):
    with pytest.raises(WorktreesUnavailable, match="ABREAST_CACHE"):
        async with open_worktrees(repository, 1, cache=repository / "cache"):
            pytest.fail("there are no slots")
    assert not (repository / "cache").exists()


async def test_a_place_that_is_not_there_is_one_clear_error(tmp_path, repository):
    for place, words in (
        (tmp_path / "none", "No such file"),
        (repository / "README", "is not a directory"),
    ):
        with pytest.raises(WorktreesUnavailable, match=words):
            async with open_worktrees(place, 1):
                pytest.fail("there are no slots")


async def test_a_bare_repository_has_no_working_tree(tmp_path, repository):
    git(tmp_path, "clone", "--quiet", "--bare", str(repository), "bare")
    with pytest.raises(WorktreesUnavailable, match="work tree"):
        async with open_worktrees(tmp_path / "bare", 1):
            pytest.fail("there are no slots")


async def test_the_lock_of_another_is_waited_for_and_then_named(repository, cache):
    opened = os.open(repository / ".git", os.O_RDONLY)
    fcntl.flock(opened, fcntl.LOCK_EX)
    with pytest.raises(
        WorktreesUnavailable, match=r"another process has kept .* locked for 0\.05 s"
    ):
        async with open_worktrees(repository, 1, timeout=0.05):
            pytest.fail("there are no slots")
    os.close(opened)
    assert left_in(cache) == []


async def test_git_that_hangs_is_ended_after_its_time(repository, cache, told_git, tmp_path):
    os.mkfifo(tmp_path / "never")
    told_git(f'case "$*" in *ls-files*) read line < {tmp_path}/never;; esac')
    with pytest.raises(WorktreesUnavailable, match=r"git ls-files took longer than 10 s"):
        async with open_worktrees(repository, 1, timeout=10):
            pytest.fail("there are no slots")
    assert left_in(cache) == []


async def test_six_passes_over_two_slots_finish_and_slots_are_distinct(repository):
    meeting = asyncio.Barrier(2)
    seen, inside = [], set()

    async def evaluate(number):
        slot = abreast.current().held["worktrees"]
        assert slot.index not in inside
        inside.add(slot.index)
        seen.append(slot.index)
        await meeting.wait()  # both are in use at once, or this never ends
        await slot.reset()
        assert (slot.path / "README").read_text() == "read\n"
        slot.write_candidate("README", f"{number}")
        inside.remove(slot.index)
        return number

    async with open_worktrees(repository, 2) as trees:
        lanes = {"worktrees": abreast.Pool(trees.slots)}
        async with abreast.open_run("try", lanes=lanes) as run:
            outcomes = [
                outcome.value
                async for outcome in run.map(evaluate, range(6), width=6, hold="worktrees")
            ]
        assert outcomes == list(range(6))
        assert sorted(seen) == [0, 0, 0, 1, 1, 1]
        assert lanes["worktrees"].peak == 2


async def test_release_and_reset_after_close_are_no_ops_and_the_rest_is_refused(repository, cache):
    async with open_worktrees(repository, 1) as trees:
        (slot,) = trees.slots
        lent = abreast.Pool(trees.slots)
        handed = lent.take(None, 0.0)
    lent.give(None, handed, None, 0.0)
    await slot.reset()
    assert left_in(cache) == []
    with pytest.raises(SlotClosed):
        slot.write_candidate("README", "")
    with pytest.raises(SlotClosed):
        await run_confined(["true"], slot)
    assert "closed" in repr(slot)


async def test_one_removal_failure_does_not_stop_the_others_and_the_next_pool_tries_again(
    repository, cache, monkeypatch
):
    remove = pool.remove_tree

    def refuse(path):
        if path.name.endswith("-1"):
            raise OSError(f"{path} can't be removed")
        remove(path)

    with pytest.raises(WorktreesLeft, match=r"-1 was left behind: .* can't be removed"):
        async with open_worktrees(repository, 3) as trees:
            monkeypatch.setattr(pool, "remove_tree", refuse)
    stuck = str(trees.slots[1].path)
    assert [left.path for left in trees.left] == [stuck]
    assert worktrees(repository) == [stuck]
    with pytest.raises(ZeroDivisionError) as raised:
        async with open_worktrees(repository, 2) as trees:
            assert [left.path for left in trees.left] == [stuck]
            raise ZeroDivisionError
    assert "was left behind" in raised.value.__notes__[0]
    monkeypatch.undo()
    async with open_worktrees(repository, 1, cache=cache) as trees:
        assert trees.left == ()
        assert worktrees(repository) == [str(trees.slots[0].path)]
    assert worktrees(repository) == []
    assert left_in(cache) == []


async def test_a_lock_that_cannot_be_had_at_the_end_leaves_the_slots_to_the_next(repository, cache):
    with pytest.raises(WorktreesLeft, match="locked for"):
        async with open_worktrees(repository, 2, timeout=10):
            opened = os.open(repository / ".git", os.O_RDONLY)
            fcntl.flock(opened, fcntl.LOCK_EX)
    os.close(opened)


async def test_a_slot_whose_git_files_are_damaged_is_removed_all_the_same(repository, cache):
    before = fingerprint(repository)
    async with open_worktrees(repository, 2) as trees:
        (repository / ".git/worktrees" / trees.slots[0].path.name / "gitdir").write_text(
            "/nowhere\n"
        )
        (trees.slots[1].path / ".git").unlink()
    assert fingerprint(repository) == before
    assert left_in(cache) == []


def open_files():
    """The open file descriptors of this process, without that of the listing."""
    found = {}
    for file in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found[file.name] = str(file.readlink())
    return found


async def test_closing_closes_every_file_that_was_opened_to_hand_out_slots(repository):
    before = open_files()
    async with open_worktrees(repository, 2) as trees:
        assert (await run_confined(["true"], trees.slots[0])).ok
        await trees.slots[0].reset()
    assert open_files() == before


async def test_what_still_runs_in_a_slot_is_ended_by_closing(repository, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    async with open_worktrees(repository, 1) as trees:
        script = "echo here > $0; sleep 1000"
        running = asyncio.create_task(
            run_confined(
                ["sh", "-c", script, str(tmp_path / "fifo")],
                trees.slots[0],
                writable=[tmp_path / "fifo"],
            )
        )
        heard = asyncio.Event()
        asyncio.get_running_loop().add_reader(reader, heard.set)
        await heard.wait()
        asyncio.get_running_loop().remove_reader(reader)
        os.close(reader)
    with pytest.raises(BaseException, match=r"supervisor|sandbox"):
        await running


async def test_the_digest_names_the_content(repository, tmp_path):
    async with open_worktrees(repository, 1) as trees:
        one = await trees.digest()
    twin = make_repository(tmp_path / "twin")
    async with open_worktrees(twin, 2) as trees:
        assert await trees.digest() == one
    write(twin, {"README": "other\n"})
    async with open_worktrees(twin, 1) as trees:
        assert await trees.digest() != one
