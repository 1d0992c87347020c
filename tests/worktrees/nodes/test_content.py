"""What is sent of a directory, and what comes back."""

import os
import stat
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.worktrees.background import StopRequest
from abreast.worktrees.nodes.cache import NodeCache
from abreast.worktrees.nodes.content import ContentLister, Entry, Patch, pack, unpack
from abreast.worktrees.staging import remove_tree


def contents(top, **options):
    return ContentLister().list(top, StopRequest(), **options)


def fill(cache, content, source, place):
    for name, entry in content.items():
        if entry.kind == stat.S_IFREG and not cache.has(entry.content):
            with cache.adding(entry.content) as file:
                file.write((source / name).read_bytes())
    cache.fill(content, place, StopRequest())


@pytest.fixture
def tree(tmp_path):
    top = tmp_path / "tree"
    (top / "sub" / "deep").mkdir(parents=True)
    (top / "empty").mkdir()
    (top / "sub" / "run.sh").write_text("echo\n")
    (top / "sub" / "run.sh").chmod(0o755)
    (top / "sub" / "deep" / "same").write_text("echo\n")
    (top / "link").symlink_to("./sub/../sub")
    (top / "dangling").symlink_to("nowhere")
    os.utime(top / "sub" / "run.sh", ns=(5, 7_000_000_001))
    os.mkfifo(top / "fifo")
    return top


def test_a_copy_has_the_same_content_times_and_modes(tree, tmp_path):
    (tree / "sub" / "deep").chmod(0o555)
    content = unpack(pack(contents(tree, without={"fifo"})))
    fill(NodeCache(tmp_path / "cache"), content, tree, tmp_path / "copy")
    assert contents(tmp_path / "copy") == content
    assert content["link"].content == "./sub/../sub"
    assert "fifo" not in content


def test_a_file_that_is_known_is_not_sent_again_and_a_changed_one_is_refused(tree, tmp_path):
    cache = NodeCache(tmp_path / "cache")
    digest = contents(tree)["sub/run.sh"].content
    with pytest.raises(ValueError, match="has changed"), cache.adding(digest) as file:
        file.write(b"other bytes")
    assert not cache.has(digest)
    with cache.adding(digest) as file:
        file.write(b"echo\n")
    assert cache.has(digest)
    assert [one.name for one in (tmp_path / "cache" / "files").glob("*/*")] == [digest[2:]]


def test_a_file_that_changes_is_read_again(tree):
    lister = ContentLister()
    before = lister.list(tree, StopRequest())
    (tree / "sub" / "run.sh").write_text("oche\n")
    after = lister.list(tree, StopRequest())
    assert before["sub/run.sh"].content != after["sub/run.sh"].content
    assert lister.list(tree, StopRequest()) == after


names = st.sampled_from(["a", "b", "a/c", "a/d", "b/c", "b/d/e"])
states = st.dictionaries(
    names, st.sampled_from(["one", "two", "link:one", "link:a", "dir"]), max_size=6
)


def build(top, state):
    """Make the entries of a state, but for those that have something else above them."""
    top.mkdir()
    for name, what in sorted(state.items()):
        path = top / name
        if any(above.is_symlink() or above.is_file() for above in path.parents if above != top):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if what == "dir":
            path.mkdir(exist_ok=True)
        elif what.startswith("link:"):
            path.symlink_to(what.removeprefix("link:"))
        else:
            path.write_text(what)
            path.chmod(0o600 if what == "one" else 0o755)


@given(before=states, after=states)
def test_a_patch_makes_of_one_directory_the_other(tmp_path_factory, before, after):
    place = tmp_path_factory.mktemp("patch")
    build(place / "before", before)
    build(place / "after", after)
    wanted = contents(place / "after")
    Patch.between(contents(place / "before"), wanted, place / "after").apply(place / "before")
    found = contents(place / "before")
    remove_tree(place)
    assert found.keys() == wanted.keys()
    assert all(entry.same_as(wanted[name]) for name, entry in found.items())


def test_a_patch_is_applied_in_directories_that_are_read_only(tree, tmp_path):
    before = contents(tree)
    fill(NodeCache(tmp_path / "cache"), before, tree, tmp_path / "copy")
    (tmp_path / "copy" / "sub" / "run.sh").unlink()
    (tmp_path / "copy" / "sub" / "new").write_text("new")
    patch = Patch.between(before, contents(tmp_path / "copy"), tmp_path / "copy")
    (tree / "sub").chmod(0o555)
    patch.apply(tree)
    assert sorted(one.name for one in (tree / "sub").iterdir()) == ["deep", "new"]
    assert stat.S_IMODE((tree / "sub").stat().st_mode) == 0o555


@pytest.mark.parametrize("name", ["../out", "/no-such-folder/file", ".git/config", "away/file"])
def test_a_patch_that_leads_out_of_the_worktree_is_refused(tree, tmp_path, name):
    (tree / "away").symlink_to(tmp_path)
    patch = Patch(((name, Entry(stat.S_IFREG, 0o644, 0), b"x"),))
    with pytest.raises(ValueError, match="worktree"):
        patch.apply(tree)


def test_a_patch_changes_no_modes_outside_of_the_worktree(tmp_path):
    """Not while it is refused, and not by a directory that becomes a link."""
    top, other = tmp_path / "top", tmp_path / "other"
    for folder in (top, other):
        folder.mkdir()
    other.chmod(0o500)
    seen = []
    directory, link = Entry(stat.S_IFDIR, 0o755, 1), Entry(stat.S_IFLNK, 0o777, 1, "../other")
    for written in ([("../other/x", directory, b"")], [("a", link, b""), ("a", directory, b"")]):
        for order in (written, written[::-1]):
            with suppress(ValueError, OSError):
                Patch(tuple(order)).apply(top)
            seen.append(stat.S_IMODE(other.stat().st_mode))
    assert set(seen) == {0o500}
