"""`Slot.keep`: no pool removes such a slot before `let_go`."""

import os
import signal

import pytest

from abreast.worktrees.pool import open_worktrees, reap_worktrees, unfinished_in
from tests.worktrees.repositories import left_in, start_python, worktrees

KEEPS = """
import asyncio, sys
from abreast.worktrees.pool import open_worktrees

async def main():
    async with open_worktrees(sys.argv[1], 2) as trees:
        trees.slots[0].keep("precious")
        trees.slots[0].write_candidate("README", "hours of work")
        trees.slots[1].keep("nothing")
        trees.slots[1].let_go()
        print(trees.slots[0].path, flush=True)
        sys.stdin.readline()

asyncio.run(main())
"""


@pytest.fixture
def killed(repository, unmeasured):
    """A slot that a killed process had marked with `keep`."""
    process = start_python(KEEPS, repository)
    path = process.stdout.readline().strip()
    assert unfinished_in(repository) == []  # its owner is alive
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    return path


async def test_what_a_killed_process_wanted_kept_is_left_by_every_pool_until_it_is_let_go(
    repository, cache, killed
):
    async with open_worktrees(repository, 1) as trees:
        assert [(left.path, "holds work" in left.reason) for left in trees.left] == [(killed, True)]
    assert [left.path for left in reap_worktrees(repository)] == [killed]
    (found,) = unfinished_in(repository)
    assert (str(found.path), found.note) == (killed, "precious")
    assert (found.path / "README").read_text() == "hours of work"
    assert worktrees(repository) == [killed]
    found.let_go()
    assert unfinished_in(repository) == []
    assert reap_worktrees(repository) == ()
    assert worktrees(repository) == []
    assert left_in(cache) == []


async def test_of_a_living_pool_it_goes_with_the_pool(repository, cache):
    async with open_worktrees(repository, 1) as trees:
        trees.slots[0].keep("mine")
        assert reap_worktrees(repository) == ()
        assert trees.slots[0].path.is_dir()
    assert unfinished_in(repository) == []
    assert left_in(cache) == []
