"""Ignored files in the slots: chosen within bounds, copied, and reset like other files."""

import os

import pytest

from abreast.worktrees.background import StopRequest
from abreast.worktrees.git import Git, find_repository
from abreast.worktrees.ignored_files import IgnoredBound, list_ignored
from abreast.worktrees.pool import open_worktrees
from tests.worktrees.repositories import fingerprint, git, look, make_repository, write

IGNORE = (
    "_version.py *.so *.log .env generated/ build/ venv/ .venv/ __pycache__/ other/ "
    "node_modules/ .abreast/"
)
NEEDED = {
    "pkg/_version.py": "version = '1'\n",
    "pkg/fast.so": b"\x7fELF",
    "generated/data/table.json": "{}",
    "build/lib/made.py": "made = 1\n",
    "run.log": "said\n",
}
NEVER = {
    "venv/pyvenv.cfg": "home = /\n",
    "venv/lib/thing.py": "",
    ".venv/bin/python": "",
    "pkg/__pycache__/mod.pyc": "",
    "node_modules/it/index.js": "",
    ".abreast/runs.db": "",
    ".env": "KEY=1\n",
    "build/CACHE/CACHEDIR.TAG": "",
    "build/CACHE/more": "",
    "other/.git/HEAD": "",
    "other/file": "",
    "build/lib/stale.pyc": "",
    "build/lib/.coverage.host.1": "",
}


@pytest.fixture
def repository(tmp_path):
    found = make_repository(
        tmp_path / "repository",
        {"pkg/mod.py": "one = 1\n", ".gitignore": IGNORE.replace(" ", "\n")},
    )
    write(found, {**NEEDED, **NEVER})
    return found


def listed(repository, **bound):
    stop = StopRequest()
    where = find_repository(repository, stop)
    return list_ignored(where, Git(where.top, stop), stop, IgnoredBound(**bound))


def test_generated_files_are_taken_but_environments_caches_and_secrets_are_not(
    repository,
):
    names, notes = listed(repository)
    assert names == sorted(NEEDED)
    assert notes == []


def test_the_largest_are_left_out_first_and_that_is_said_with_how_much(repository):
    write(
        repository, {"generated/large.bin": bytes(3 << 20), "generated/larger.bin": bytes(4 << 20)}
    )
    names, notes = listed(repository, size=1 << 20)
    assert names == sorted(NEEDED)
    (note,) = notes
    assert note.startswith("generated/: 2 ignored files of 7.0 MB left out of the slots")
    assert "add them to git" in note


def test_only_a_few_that_are_left_out_are_named(repository):
    write(repository, {f"{number:03}.log": bytes(number) for number in range(100, 140)})
    names, notes = listed(repository, size=0)
    assert names == []
    named = [note.partition(":")[0] for note in notes]
    assert named[:4] == ["136.log", "137.log", "138.log", "139.log"]
    assert named[4:] == ["41 other names that git ignores"]


def test_very_many_files_are_bounded_as_well(repository):
    write(repository, {f"generated/{number:03}": "same" for number in range(40)})
    names, notes = listed(repository, files=10)
    assert len(names) == 10
    assert any(note.startswith("generated/: ") for note in notes)
    names, notes = listed(repository, seen=8)
    assert len(names) == 8
    assert "more than 8 ignored files" in notes[0]


async def test_slots_get_them_only_on_request_and_their_bytes_are_their_own(repository):
    before = fingerprint(repository)
    async with open_worktrees(repository, 1) as trees:
        assert not (trees.slots[0].path / "pkg/_version.py").exists()
    async with open_worktrees(repository, 2, ignored=True) as trees:
        one, two = (slot.path for slot in trees.slots)
        for name in NEEDED:
            assert (one / name).read_bytes() == (repository / name).read_bytes()
            assert (one / name).stat().st_nlink == 1
        (one / "pkg/fast.so").write_bytes(b"overwritten")
        assert (two / "pkg/fast.so").read_bytes() == b"\x7fELF"
        assert git(one, "status", "--porcelain") == git(repository, "status", "--porcelain")
    assert fingerprint(repository) == before


async def test_what_was_changed_added_or_removed_among_them_is_reset(repository):
    async with open_worktrees(repository, 1, ignored=True) as trees:
        slot = trees.slots[0]
        before = look(slot.path)
        (slot.path / "pkg/_version.py").write_text("version = '2'\n")
        (slot.path / "generated/data/table.json").unlink()
        write(slot.path, {"generated/new": "x", "pkg/__pycache__/a.pyc": "x", "more.log": "x"})
        await slot.reset()
        assert look(slot.path) == before


async def test_one_that_can_not_be_read_is_left_out_and_named(repository):
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    (repository / "pkg/fast.so").chmod(0)
    async with open_worktrees(repository, 1, ignored=True) as trees:
        assert not (trees.slots[0].path / "pkg/fast.so").exists()
        assert any("pkg/fast.so" in note for note in trees.notes)


async def test_they_do_not_change_the_name_of_the_content_but_for_those_that_are_imported(
    repository,
):
    async def digests(**options):
        async with open_worktrees(repository, 1, **options) as trees:
            return await trees.digest(), await trees.ignored_digest()

    without, with_them = await digests(), await digests(ignored=True)
    assert without == (with_them[0], "")
    write(repository, {"run.log": "said more\n"})
    assert await digests(ignored=True) == with_them
    write(repository, {"pkg/_version.py": "version = '2'\n"})
    changed = await digests(ignored=True)
    assert changed[0] == with_them[0]
    assert changed[1] != with_them[1]
