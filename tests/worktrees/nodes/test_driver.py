"""Work in copies of slots; here the node is this process, with a cache of its own."""

import pytest

from abreast.worktrees.nodes import node
from abreast.worktrees.nodes.driver import NodeWork
from abreast.worktrees.pool import open_worktrees
from tests.worktrees.repositories import git, make_repository


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("ABREAST_CACHE", str(tmp_path / "node"))
    top = make_repository(tmp_path / "project", {"sub/a.txt": "a\n"})
    (top / "big").write_bytes(bytes(range(256)) * (node.PART_BYTES // 128 + 7))
    git(top, "add", "-A")
    git(top, "commit", "-qm", "big")
    (top / "sub" / "a.txt").write_text("edited\n")
    return top


class Work:
    """Writes and removes files, and says where, and what git knows there."""

    def __init__(self, *, fails=False):
        self._fails = fails

    async def __call__(self, slot):
        ran = await slot.commands.run(
            ["sh", "-c", "git log --oneline | wc -l; git status --short; rm big; echo b > b.txt"],
            cwd=str(slot.path),
        )
        if self._fails:
            raise ValueError("it failed")
        return str(slot.path), ran.stdout.decode().split()


async def test_work_is_done_in_a_copy_and_its_changes_come_back(project, tmp_path):
    async with (
        open_worktrees(project, 1, cache=tmp_path / "driver", own_git=True) as trees,
        NodeWork("local") as nodes,
    ):
        (slot,) = trees.slots
        where, said = await nodes.call(slot, Work(), wants_changes=True)
        assert where.startswith(str(tmp_path / "node"))
        assert said == ["3"]  # two commits, and one for the edits; nothing is changed since
        assert sorted(one.name for one in slot.path.iterdir()) == [".git", "b.txt", "sub"]
        assert (slot.path / "sub" / "a.txt").read_text() == "edited\n"
        await slot.reset()
        await nodes.call(slot, Work())
        assert (slot.path / "big").exists()
        assert [*(tmp_path / "node").glob("nodes/work/*")] == []


async def test_what_failing_work_left_comes_back_with_its_error(project, tmp_path):
    async with (
        open_worktrees(project, 1, cache=tmp_path / "driver") as trees,
        NodeWork("local") as nodes,
    ):
        (slot,) = trees.slots
        with pytest.raises(ValueError, match="it failed"):
            await nodes.call(slot, Work(fails=True), wants_changes=True)
        assert (slot.path / "b.txt").read_text() == "b\n"
        assert not (slot.path / "big").exists()


async def test_a_file_is_sent_once(project, tmp_path, monkeypatch):
    sent = []
    read = node._read
    monkeypatch.setattr(node, "_read", lambda part: sent.append(part.path) or read(part))
    async with (
        open_worktrees(project, 2, cache=tmp_path / "driver", own_git=True) as trees,
        NodeWork("local") as nodes,
    ):
        for slot in trees.slots:
            await nodes.call(slot, Work())
        assert len([path for path in sent if path.endswith("/big")]) == 3  # in three parts
        first = len(sent)
        trees.slots[0].write_candidate("sub/a.txt", "candidate\n")
        await nodes.call(trees.slots[0], Work())
        assert [path.rpartition("/")[2] for path in sent[first:]] == ["a.txt"]


async def test_once_closed_it_sends_nothing(project, tmp_path):
    async with open_worktrees(project, 1, cache=tmp_path / "driver") as trees:
        async with NodeWork("local") as nodes:
            pass
        with pytest.raises(RuntimeError, match="not open"):
            await nodes.call(trees.slots[0], Work())
