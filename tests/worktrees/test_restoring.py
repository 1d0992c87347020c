"""The end of a pool: the first error is raised, and everything else is restored."""

import threading

import pytest

from abreast.worktrees import pool, slot
from abreast.worktrees.pool import open_worktrees
from tests.worktrees.repositories import fingerprint, left_in, worktrees


@pytest.mark.parametrize("stuck", [0, 1, 2])
async def test_an_error_of_restoring_neither_hides_the_first_error_nor_leaves_the_rest(
    repository, cache, monkeypatch, stuck
):
    before, remove, tried = fingerprint(repository), pool.remove_tree, []

    def refuse(path):
        if path.name.startswith("abreast-"):
            tried.append(int(path.name.rpartition("-")[2]))
            if path.name.endswith(f"-{stuck}"):
                raise OSError("it can't be removed")
        remove(path)

    first = LookupError("the candidate's own")
    with pytest.raises(LookupError) as raised:
        async with open_worktrees(repository, 3) as trees:
            monkeypatch.setattr(pool, "remove_tree", refuse)
            trees.slots[0].write_candidate("README", "changed\n")
            raise first
    assert raised.value is first
    assert [
        f"-{stuck} was left behind: it can't be removed" in note for note in first.__notes__
    ] == [True]
    assert {*tried} == {0, 1, 2}
    assert worktrees(repository) == [str(trees.slots[stuck].path)]
    monkeypatch.undo()
    monkeypatch.setenv("ABREAST_CACHE", str(cache))
    async with open_worktrees(repository, 1):
        pass
    assert fingerprint(repository) == before
    assert left_in(cache) == []


async def test_a_slot_that_cannot_be_reset_is_its_own_error_and_the_others_go_on(
    repository, cache, monkeypatch
):
    before, make = fingerprint(repository), slot.make_piece

    def refuse(*given, **more):
        if any(str(trees.slots[0].path) in str(one) for one in given):
            raise OSError("the disk is full")
        return make(*given, **more)

    async with open_worktrees(repository, 2) as trees:
        for one in trees.slots:
            (one.path / "README").unlink()
        monkeypatch.setattr(slot, "make_piece", refuse)
        with pytest.raises(OSError, match="the disk is full"):
            await trees.slots[0].reset()
        await trees.slots[1].reset()
        assert (trees.slots[1].path / "README").read_text() == "read\n"
        monkeypatch.setattr(slot, "make_piece", make)
        await trees.slots[0].reset()
        assert (trees.slots[0].path / "README").read_text() == "read\n"
    assert fingerprint(repository) == before
    assert left_in(cache) == []


async def test_slots_are_removed_side_by_side(repository, cache, monkeypatch):
    remove, all_there = pool.remove_tree, threading.Barrier(3)

    def remove_together(path):
        if path.name.startswith("abreast-"):
            all_there.wait(60)  # passes only if three threads are here at once
        remove(path)

    async with open_worktrees(repository, 3):
        monkeypatch.setattr(pool, "remove_tree", remove_together)
    assert left_in(cache) == []
