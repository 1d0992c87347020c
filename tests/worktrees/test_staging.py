"""Slots start with the working tree as it is, not as it was committed."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from abreast.worktrees import staging
from abreast.worktrees.background import StopRequest
from abreast.worktrees.errors import Interrupted, WorktreesUnavailable
from abreast.worktrees.git import Git, Repository
from abreast.worktrees.pool import open_worktrees
from abreast.worktrees.staging import Listing, remove_tree, take_snapshot
from tests.worktrees.repositories import fingerprint, git, left_in, look, make_repository, write

ODD = [
    "with space",
    "new\nline",
    "ümläut-日本",
    "-dash",
    "tab\there",
    '"quoted"',
    "a\\b",
    os.fsdecode(b"not-utf8-\xff"),
]


async def in_slot(repository, **options):
    """The files of a slot of a repository, and the notes of the pool."""
    before = fingerprint(repository)
    async with open_worktrees(repository, 1, **options) as trees:
        seen = look(trees.slots[0].path)
        seen.pop(".git", None)
        notes = trees.notes
    assert fingerprint(repository) == before
    return seen, notes


async def test_uncommitted_and_untracked_files_are_there_and_deleted_and_ignored_ones_are_not(
    tmp_path,
):
    files = {
        "kept": "1",
        "changed": "1",
        "staged": "1",
        "deleted": "1",
        "removed": "1",
        ".gitignore": "*.o\nbuild/\n",
    }
    repository = make_repository(tmp_path / "repository", files)
    write(
        repository,
        {
            "changed": "2",
            "staged": "2",
            "new/untracked": "2",
            "x.o": "ignored",
            "build/y": "ignored",
        },
    )
    git(repository, "add", "staged")
    write(repository, {"added": "2", "added-and-gone": "2"})
    git(repository, "add", "added", "added-and-gone")
    (repository / "added-and-gone").unlink()
    (repository / "deleted").unlink()
    git(repository, "rm", "--quiet", "removed")
    seen, notes = await in_slot(repository)
    assert seen == {
        name: fact
        for name, fact in look(repository, without=[".git", "build"]).items()
        if name != "x.o"
    }
    assert {"changed", "staged", "new/untracked", "added"} <= seen.keys()
    assert notes == ()


async def test_modes_links_times_and_odd_names_are_the_same(tmp_path):
    files = {f"{name}/{name}": name.encode(errors="surrogateescape") for name in ODD}
    repository = make_repository(
        tmp_path / "repository", {**files, "run": "#!/bin/sh\n", "locked": "x"}
    )
    (repository / "run").chmod(0o755)
    (repository / "locked").chmod(0o444)
    (repository / "link").symlink_to("run")
    (repository / "hanging").symlink_to("./nowhere//at all")
    (repository / "-dash").chmod(0o750)
    os.utime(repository / "run", ns=(1, 1_000_000_123))
    seen, _ = await in_slot(repository)
    assert seen == look(repository, without=[".git"])
    async with open_worktrees(repository, 1) as trees:
        assert (trees.slots[0].path / "run").stat().st_mtime_ns == 1_000_000_123


@pytest.mark.parametrize("setting", ["true", "input"])
async def test_line_ends_are_those_of_the_working_tree_whatever_git_would_make_of_them(
    tmp_path, setting
):
    repository = make_repository(tmp_path / "repository", {"a": "1\n"}, ("core.autocrlf", setting))
    write(
        repository,
        {"a": "1\n2\n", "b": "1\r\n2\r\n", "c": "1\r\n2\n", ".gitattributes": "b text eol=lf\n"},
    )
    seen, _ = await in_slot(repository)
    assert [seen[name][1] for name in "abc"] == [b"1\n2\n", b"1\r\n2\r\n", b"1\r\n2\n"]


async def test_a_large_file_is_copied(tmp_path):
    repository = make_repository(tmp_path / "repository")
    write(repository, {"large": os.urandom(1 << 20) * 9 + b"end"})
    seen, _ = await in_slot(repository)
    assert seen == look(repository, without=[".git"])


async def test_hooks_and_filters_of_the_repository_do_not_run(tmp_path):
    repository = make_repository(
        tmp_path / "repository", {".gitattributes": "* filter=loud\n", "a": "1"}
    )
    for name in ("post-checkout", "post-index-change", "reference-transaction"):
        write(repository, {f".git/hooks/{name}": f"#!/bin/sh\ntouch {tmp_path}/ran\n"})
        (repository / ".git/hooks" / name).chmod(0o755)
    for side in ("clean", "smudge"):
        git(repository, "config", f"filter.loud.{side}", f"touch {tmp_path}/ran; cat")
    async with open_worktrees(repository, 1) as trees:
        assert (trees.slots[0].path / "a").read_text() == "1"
    assert not (tmp_path / "ran").exists()


async def test_what_points_git_elsewhere_is_not_passed_on(repository, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    async with open_worktrees(repository, 1) as trees:
        assert trees.repository.top == repository
    assert not (tmp_path / "index").exists()


async def test_a_repository_without_a_commit_is_copied_but_for_what_is_ignored(tmp_path, cache):
    repository = tmp_path / "repository"
    repository.mkdir()
    git(repository, "init", "--quiet", ".")
    write(repository, {"a": "1", "b.o": "2", ".gitignore": "*.o"})
    git(repository, "add", "a")
    before = look(repository)
    async with open_worktrees(repository, 2) as trees:
        for slot in trees.slots:
            assert sorted(look(slot.path)) == [".gitignore", "a"]
        slot.write_candidate("a", "2")
        await slot.reset()
        assert (slot.path / "a").read_text() == "1"
    assert look(repository) == before
    assert left_in(cache) == []


async def test_a_directory_without_git_is_copied_whole(tmp_path, cache):
    place = tmp_path / "plain"
    write(place, {"a/b/c": "1", "a/.git/config": "not ours", "d": "2"})
    (place / "empty").mkdir()
    (place / "link").symlink_to("a/b")
    os.mkfifo(place / "pipe")
    expected = {
        name: fact for name, fact in look(place, without=[".git"]).items() if name != "pipe"
    }
    async with open_worktrees(place, 2) as trees:
        assert look(trees.slots[1].path) == expected
        assert sorted(note.partition(":")[0] for note in trees.notes) == ["a/.git", "pipe"]
        assert not trees.repository.is_linked
        trees.slots[0].write_candidate("d", "3")
        assert look(trees.slots[1].path) == expected
        assert trees.slots[0].mirror("a/b/c") == trees.slots[0].path / "a/b/c"
    assert left_in(cache) == []


async def test_a_directory_is_copied_where_git_is_not_installed(tmp_path, monkeypatch, repository):
    write(tmp_path / "plain", {"a": "1"})
    monkeypatch.setenv("PATH", str(tmp_path / "nothing here"))
    async with open_worktrees(tmp_path / "plain", 1) as trees:
        assert (trees.slots[0].path / "a").read_text() == "1"
    with pytest.raises(WorktreesUnavailable, match="git can't be started"):
        async with open_worktrees(repository, 1):
            pytest.fail("what of it is ignored only git can say")


async def test_a_subdirectory_stands_for_its_repository(repository):
    async with open_worktrees(repository / "pkg", 1) as trees:
        (slot,) = trees.slots
        assert (slot.path / "README").exists()
        assert slot.root == slot.path / "pkg"
        assert (
            slot.mirror("words.py")
            == slot.mirror(repository / "pkg/words.py")
            == slot.path / "pkg/words.py"
        )
        assert slot.mirror("../README") == slot.path / "README"


async def test_a_detached_head_and_a_linked_worktree_are_as_good_as_any(repository, tmp_path):
    git(repository, "checkout", "--quiet", "--detach")
    seen, _ = await in_slot(repository)
    assert seen == look(repository, without=[".git"])
    git(repository, "worktree", "add", "--quiet", "-b", "theirs", str(tmp_path / "theirs"))
    write(tmp_path / "theirs", {"only here": "1"})
    before = fingerprint(repository)
    async with open_worktrees(tmp_path / "theirs", 1) as trees:
        assert (trees.slots[0].path / "only here").exists()
    assert fingerprint(repository) == before


async def test_a_repository_in_the_middle_of_a_merge_is_staged_with_its_conflicts(repository):
    git(repository, "checkout", "--quiet", "-b", "other")
    write(repository, {"README": "theirs\n"})
    git(repository, "commit", "--quiet", "--all", "--message=theirs")
    git(repository, "checkout", "--quiet", "main")
    write(repository, {"README": "ours\n"})
    git(repository, "commit", "--quiet", "--all", "--message=ours")
    with pytest.raises(subprocess.CalledProcessError):
        git(repository, "merge", "other")
    async with open_worktrees(repository, 1) as trees:
        assert "<<<<<<<" in (trees.slots[0].path / "README").read_text()
        assert git(trees.slots[0].path, "status", "--porcelain") == "UU README\n"


async def test_submodules_and_nested_repositories_are_left_alone_and_named(tmp_path):
    inner = make_repository(tmp_path / "inner")
    repository = make_repository(tmp_path / "repository")
    git(
        repository,
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        str(inner),
        "sub",
    )
    make_repository(repository / "nested")
    seen, notes = await in_slot(repository)
    assert not [name for name in seen if name.startswith(("sub/", "nested"))]
    assert sorted(notes) == [
        "nested/: a repository of its own, left out of the slots",
        "sub: a submodule, left empty in the slots",
    ]


async def test_a_directory_that_became_a_link_does_not_lead_out(tmp_path):
    repository = make_repository(tmp_path / "repository", {"d/e/f": "inside", "g/h": "inside"})
    write(tmp_path / "outside", {"e/f": "outside", "h": "outside"})
    shutil.rmtree(repository / "d")
    shutil.rmtree(repository / "g")
    (repository / "d").symlink_to(tmp_path / "outside")
    (repository / "g").write_text("a file now")
    seen, _ = await in_slot(repository)
    assert seen == look(repository, without=[".git"])
    assert sorted(seen) == ["d", "g"]


def test_a_file_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    write(tmp_path / "top", {"a": "1"})

    def refuse(source, target):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(staging, "copy_bytes", refuse)
    with pytest.raises(WorktreesUnavailable, match="top/a can't be copied: Permission denied"):
        take_snapshot(
            Repository(tmp_path / "top", tmp_path / "top"),
            Listing(("a",)),
            tmp_path / "stage",
            StopRequest(),
        )


@pytest.mark.parametrize("changes", [1, 9])
def test_a_file_that_changes_while_it_is_copied_is_copied_again_a_few_times(
    tmp_path, monkeypatch, changes
):
    write(tmp_path / "top", {"a": "0"})
    copy, done = staging.copy_bytes, []

    def change(source, target):
        copy(source, target)
        done.append(source)
        if len(done) <= changes:
            Path(source).write_text("0" * len(done) + "1")

    monkeypatch.setattr(staging, "copy_bytes", change)
    top = Repository(tmp_path / "top", tmp_path / "top")
    snapshot = take_snapshot(top, Listing(("a", "gone")), tmp_path / "stage", StopRequest())
    assert len(done) == min(changes, 3) + 1
    assert (tmp_path / "stage/a").read_text() == ("01" if changes == 1 else "0001")
    assert "gone" not in snapshot.pieces


@pytest.mark.parametrize("memory", [0, 150_000, 1 << 30])
def test_a_snapshot_is_the_same_in_files_and_in_memory(tmp_path, memory):
    sizes = {
        "none": 0,
        "small": 9,
        "page": 65_536,
        "more": 65_537,
        "next": 65_536,
        "large": 300_000,
    }
    write(
        tmp_path / "top",
        {name: chr(97 + at) * size for at, (name, size) in enumerate(sizes.items())},
    )
    (tmp_path / "top/small").chmod(0o640)
    (tmp_path / "top/page").chmod(0o444)
    os.utime(tmp_path / "top/none", ns=(5, 7))
    top, listing = Repository(tmp_path / "top", tmp_path / "top"), Listing(tuple(sizes))
    snapshot = take_snapshot(top, listing, tmp_path / "stage", StopRequest(), memory)
    in_memory = {"none", "small", "page", "next"} if memory else set()
    assert snapshot.contents.keys() == in_memory
    assert {one.name for one in (tmp_path / "stage").iterdir()} == sizes.keys() - in_memory
    assert (
        snapshot.digest() == take_snapshot(top, listing, tmp_path / "other", StopRequest()).digest()
    )
    (tmp_path / "slot").mkdir()
    for name in sizes:
        facts = staging.make_piece(snapshot, name, str(tmp_path / "slot" / name))
        assert facts == (tmp_path / "slot" / name).lstat()
        assert snapshot.has_content(name, tmp_path / "slot" / name)
    assert look(tmp_path / "slot") == look(tmp_path / "top")
    for name in ("small", "large"):
        (tmp_path / "slot" / name).write_text("z" * sizes[name])
        assert not snapshot.has_content(name, tmp_path / "slot" / name)
    os.link(tmp_path / "slot/page", tmp_path / "slot/second")
    assert not snapshot.has_content("page", tmp_path / "slot/page")


def test_no_more_is_kept_in_memory_than_there_is_room_for(tmp_path):
    write(tmp_path / "top", dict.fromkeys("abcd", "x" * 1_000))
    top = Repository(tmp_path / "top", tmp_path / "top")
    snapshot = take_snapshot(top, Listing(tuple("abcd")), tmp_path / "stage", StopRequest(), 2_500)
    assert sorted(snapshot.contents) == ["a", "b"]


def test_bytes_are_copied_where_the_system_has_no_short_way(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("no")

    monkeypatch.setattr(os, "copy_file_range", refuse)
    (tmp_path / "a").write_bytes(b"x" * 100_000)
    staging.copy_bytes(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"x" * 100_000


def test_a_tree_deeper_than_python_recurses_is_removed(tmp_path):
    program = "import os, sys\nfor _ in range(1_200): os.mkdir('d'); os.chdir('d')"
    (tmp_path / "deep").mkdir()
    subprocess.run([sys.executable, "-I", "-S", "-c", program], cwd=tmp_path / "deep", check=True)
    remove_tree(tmp_path / "deep")
    assert not (tmp_path / "deep").exists()


def test_what_cannot_be_removed_is_an_error_that_says_so(tmp_path, monkeypatch):
    (tmp_path / "d").mkdir()
    monkeypatch.setattr(staging, "_SYSTEM_PATH", str(tmp_path / "bin"))
    write(tmp_path / "bin", {"find": "#!/bin/sh\n", "rm": "#!/bin/sh\necho too sticky >&2\n"})
    for name in ("find", "rm"):
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setattr(staging.shutil, "rmtree", lambda _: (_ for _ in ()).throw(OSError("no")))
    with pytest.raises(OSError, match="d can't be removed: too sticky"):
        remove_tree(tmp_path / "d")


def test_removing_what_is_not_a_directory_follows_no_link(tmp_path):
    write(tmp_path, {"there/a": "1", "file": "1"})
    (tmp_path / "link").symlink_to("there")
    for name in ("link", "file", "none"):
        remove_tree(tmp_path / name)
    assert sorted(look(tmp_path)) == ["there", "there/a"]


UNPRIVILEGED = """
import os, sys
from pathlib import Path
from abreast.worktrees.staging import remove_tree
assert not os.access(sys.argv[1] + "/locked/inner", os.W_OK), "may do everything"
remove_tree(Path(sys.argv[1]))
assert not os.path.lexists(sys.argv[1])
"""


def test_read_only_directories_are_removed_by_who_may_not_write_in_them(tmp_path):
    write(tmp_path / "tree", {"locked/inner/a": "1"})
    outside = tmp_path / "outside"
    outside.write_text("another name for a file in the tree")
    os.link(outside, tmp_path / "tree/locked/inner/b")
    outside.chmod(0o444)
    for name in ("locked/inner/a", "locked/inner", "locked"):
        (tmp_path / "tree" / name).chmod(0o555)
    words = [sys.executable, "-c", UNPRIVILEGED, str(tmp_path / "tree")]
    if not os.getuid():
        words = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *words]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run(words, env=env, check=True, timeout=60)
    assert stat.S_IMODE(outside.stat().st_mode) == 0o444


def test_git_that_does_not_listen_is_made_to_end(repository, told_git, tmp_path, monkeypatch):
    for name in ("ready", "never"):
        os.mkfifo(tmp_path / name)
    told_git(f"trap '' TERM; echo > {tmp_path}/ready; read line < {tmp_path}/never")
    communicate = subprocess.Popen.communicate
    stop = StopRequest()

    def ask(process, *args):
        (tmp_path / "ready").read_text()
        stop.ask()
        return communicate(process, *args)

    monkeypatch.setattr(subprocess.Popen, "communicate", ask)
    with pytest.raises(Interrupted):
        Git(repository, stop, timeout=600)("status")


def test_git_reports_what_it_did_not_like(repository):
    with pytest.raises(Exception, match="git rev-parse: fatal: "):
        Git(repository, StopRequest())("rev-parse", "no such thing")
