"""One slot: its files, their paths, and its reset."""

import os
import shutil
import stat
import sys

import pytest

from abreast.worktrees.confinement import run_confined
from abreast.worktrees.errors import OutsideRepository
from abreast.worktrees.pool import open_worktrees
from abreast.worktrees.staging import FileState, Snapshot
from tests.worktrees.repositories import fingerprint, git, look, make_repository, write


@pytest.fixture
def repository(tmp_path):
    files = {
        "pkg/words.py": "one = 1\n",
        "README": "read\n",
        "d/e": "e",
        ".gitignore": "*.o\n__pycache__/\n",
    }
    repository = make_repository(tmp_path / "repository", files)
    (repository / "link").symlink_to("pkg/words.py")
    (repository / "out").symlink_to(tmp_path)
    (repository / "up").symlink_to("..")
    (repository / "main").symlink_to(repository / "README")
    (repository / "locked").write_text("x")
    (repository / "locked").chmod(0o444)
    return repository


@pytest.fixture
async def slot(repository):
    async with open_worktrees(repository, 1) as trees:
        yield trees.slots[0]


def test_mirror_is_the_same_file_in_the_slot(slot, repository, tmp_path):
    for path in (
        "pkg/words.py",
        repository / "pkg/words.py",
        "d/../pkg/words.py",
        "./pkg//words.py",
    ):
        assert slot.mirror(path) == slot.path / "pkg/words.py"
    (tmp_path / "alias").symlink_to(repository)
    assert slot.mirror(tmp_path / "alias/pkg/words.py") == slot.path / "pkg/words.py"
    assert slot.mirror("not/yet/there") == slot.path / "not/yet/there"
    assert slot.mirror("link") == slot.path / "link"
    assert slot.mirror("d/..") == slot.mirror(".") == slot.path


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../other",
        "/etc/passwd",
        "out/x",
        "up/x",
        "out",
        "up",
        "main",
        "d/../../x",
        ".git",
        ".git/config",
        "../repository-2/x",
        "link/../../../x",
    ],
)
def test_a_path_outside_the_repository_is_an_error_by_name_or_by_link(slot, path):
    with pytest.raises(OutsideRepository):
        slot.mirror(path)
    with pytest.raises(OutsideRepository):
        slot.write_candidate(path, "")


def test_a_link_that_a_candidate_made_leads_nowhere(slot, repository, tmp_path):
    shutil.rmtree(slot.path / "d")
    (slot.path / "d").symlink_to(repository / "d")
    (slot.path / "README").unlink()
    (slot.path / "README").symlink_to(repository / "README")
    for name in ("d/e", "README"):
        with pytest.raises(OutsideRepository, match="by a symbolic link"):
            slot.write_candidate(name, "escaped")


def test_a_candidate_replaces_a_file_and_keeps_its_mode(slot, repository):
    assert slot.write_candidate("locked", "é\r\n") == slot.path / "locked"
    assert (slot.path / "locked").read_bytes() == "é\r\n".encode()
    assert stat.S_IMODE((slot.path / "locked").stat().st_mode) == 0o444
    assert slot.write_candidate("link", "through it\n") == slot.path / "pkg/words.py"
    assert (slot.path / "link").is_symlink()
    assert stat.S_IMODE(slot.write_candidate("new/file.py", "").stat().st_mode) == 0o644


async def test_a_hard_link_to_the_main_tree_is_never_written_through(slot, repository):
    before = fingerprint(repository)
    for name in ("README", "locked"):
        (slot.path / name).unlink()
        os.link(repository / name, slot.path / name)
    slot.write_candidate("README", "candidate\n")
    await slot.reset()
    os.link(repository / "README", slot.path / "other")
    (slot.path / "README").unlink()
    os.link(repository / "README", slot.path / "README")
    await slot.reset()
    (slot.path / "README").write_text("not the main tree's\n")
    assert fingerprint(repository) == before


async def test_python_never_runs_what_it_compiled_from_an_earlier_candidate(slot):
    for number in range(3):  # the same size, the same second
        slot.write_candidate("pkg/words.py", f"one = {number}\n")
        ran = await run_confined(
            [sys.executable, "-c", "import pkg.words as w; print(w.one)"], slot
        )
        assert ran.stdout.decode() == f"{number}\n"
    assert list((slot.path / "pkg/__pycache__").glob("*.pyc"))


async def test_reset_goes_back_to_the_snapshot_exactly(slot, repository):
    before = look(slot.path)
    times = {name: (slot.path / name).lstat().st_mtime_ns for name in before if name != ".git"}
    write(
        slot.path,
        {
            "README": "READ\n",
            "untracked": "1",
            "x.o": "1",
            "new/deep/f": "1",
            "pkg/__pycache__/w.pyc": "1",
        },
    )
    (slot.path / "locked").chmod(0o666)
    (slot.path / "pkg").chmod(0o700)
    (slot.path / "link").unlink()
    (slot.path / "link").symlink_to("README")
    (slot.path / "main").unlink()
    shutil.rmtree(slot.path / "d")
    (slot.path / "d").write_text("a file now")
    (slot.path / "new").chmod(0o500)
    (slot.path / "up").unlink()
    (slot.path / "up").mkdir()
    os.mkfifo(slot.path / "fifo")
    await slot.reset()
    assert look(slot.path) == before
    assert {name: (slot.path / name).lstat().st_mtime_ns for name in times} == times
    await slot.reset()
    assert look(slot.path) == before


async def test_reset_notices_a_change_that_hides_behind_size_and_time(slot):
    file = slot.path / "README"
    facts = file.stat()
    file.write_text("raed\n")
    os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    await slot.reset()
    assert file.read_text() == "read\n"


def test_a_look_within_a_tick_of_the_files_last_change_proves_nothing():
    metadata = {"inode": 1, "size": 2, "mtime_ns": 3, "ctime_ns": 4, "mode": 5}
    now = FileState(**metadata, settled=True)
    assert FileState(**metadata, settled=True).proves_unchanged(now)
    assert not FileState(**metadata, settled=False).proves_unchanged(now)
    assert not FileState(**{**metadata, "ctime_ns": 5}, settled=True).proves_unchanged(now)


async def test_reset_leaves_alone_what_did_not_change(slot, monkeypatch):
    await slot.reset()
    before = {
        name: (slot.path / name).stat().st_ino for name in ("README", "locked", "pkg/words.py")
    }
    await slot.reset()
    assert {name: (slot.path / name).stat().st_ino for name in before} == before


async def test_reset_does_not_read_files_whose_looks_have_settled(slot, monkeypatch):
    module = sys.modules[type(slot).__module__]
    later = type("Later", (), {"wall": staticmethod(lambda: 4e9)})
    monkeypatch.setattr(module, "SYSTEM_CLOCK", later)
    await slot.reset()  # from now on they are older than a clock tick
    monkeypatch.setattr(Snapshot, "has_content", lambda *_: pytest.fail("read"))
    await slot.reset()
    monkeypatch.undo()
    (slot.path / "README").write_text("raed\n")
    await slot.reset()
    assert (slot.path / "README").read_text() == "read\n"


async def test_a_slot_that_was_made_a_tick_ago_is_not_read_by_its_first_reset(
    repository, monkeypatch
):
    later = type("Later", (), {"wall": staticmethod(lambda: 4e9)})
    monkeypatch.setattr("abreast.worktrees.slot.SYSTEM_CLOCK", later)
    async with open_worktrees(repository, 1) as trees:
        slot = trees.slots[0]
        monkeypatch.setattr(Snapshot, "has_content", lambda *_: pytest.fail("read"))
        await slot.reset()
        monkeypatch.undo()
        (slot.path / "README").write_text("raed\n")
        (slot.path / "pkg").chmod(0o777)
        os.utime(slot.path / "pkg", (7, 7))
        await slot.reset()
        assert (slot.path / "README").read_text() == "read\n"
        found, wanted = (slot.path / "pkg").stat(), (repository / "pkg").stat()
        assert (found.st_mode, found.st_mtime_ns) == (wanted.st_mode, wanted.st_mtime_ns)


async def test_reset_heals_what_git_knows_of_the_slot(slot, repository):
    status = git(slot.path, "status", "--porcelain")
    git(slot.path, "add", "--all")
    git(slot.path, "commit", "--quiet", "--message=mine")
    admin = repository / ".git/worktrees" / slot.path.name
    (admin / "index.lock").write_text("")
    await slot.reset()
    assert git(slot.path, "status", "--porcelain") == status
    assert git(slot.path, "rev-parse", "HEAD") == git(repository, "rev-parse", "HEAD")
    (slot.path / ".git").unlink()
    (slot.path / ".git").mkdir()
    (admin / "index").unlink()
    await slot.reset()
    assert git(slot.path, "status", "--porcelain") == status


async def test_reset_brings_back_a_slot_that_is_gone(slot, tmp_path):
    before = look(slot.path)
    shutil.rmtree(slot.path)
    await slot.reset()
    assert look(slot.path) == before
    shutil.rmtree(slot.path)
    slot.path.symlink_to(tmp_path)
    await slot.reset()
    assert look(slot.path) == before
    assert (tmp_path / "repository").exists()
