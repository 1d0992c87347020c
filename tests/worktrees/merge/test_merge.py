"""Merges of subplans in real repositories: every kind of conflict is listed and blocks."""

import os
import random
import shutil

import pytest

from abreast.jobs.plan.decompose.decompose import decompose
from abreast.jobs.plan.decompose.inventory import Inventory, take_inventory
from abreast.jobs.plan.spec import Options
from abreast.jobs.plan.work.ownership import Ownership
from abreast.worktrees.merge.apply import apply
from abreast.worktrees.merge.errors import MergeBlocked
from abreast.worktrees.merge.merge import SOURCE, Merged, MergeStrategy, Outside, merge
from abreast.worktrees.merge.snapshots import SeenTree
from abreast.worktrees.merge.three_way import ConflictKind
from tests.jobs.plan.repositories import Bench, fill, git, on_disk

LINES = "".join(f"line {number}\n" for number in range(20))
FILES = {
    "text.py": LINES,
    "other.py": LINES,
    "image.png": b"\x89PNG\0" + bytes(range(200)),
    "link": ("text.py",),
    "tool.sh": "#!/bin/sh\n",
    "long.py": LINES * 3,
    "d/inner.py": "inner\n",
}


def change(path, before, after):
    def edit(root):
        place = root / path
        place.write_bytes(place.read_bytes().replace(before.encode(), after.encode()))

    return edit


def rename(path, to):
    def edit(root):
        (root / to).parent.mkdir(parents=True, exist_ok=True)
        (root / path).rename(root / to)

    return edit


def delete(path):
    return lambda root: (root / path).unlink()


def linked(path, to):
    def edit(root):
        (root / path).unlink(missing_ok=True)
        (root / path).symlink_to(to)

    return edit


def create(path, text, mode=0o644):
    def edit(root):
        fill(root, {path: text})
        (root / path).chmod(mode)

    return edit


def in_the_place_of_d(root):
    (root / "d/inner.py").unlink()
    (root / "d").rmdir()
    (root / "d").write_text("a file\n")


def crlf(path):
    return lambda root: (root / path).write_bytes(
        (root / path).read_bytes().replace(b"\n", b"\r\n")
    )


CONFLICTS = {
    "content": (
        change("text.py", "line 5", "five"),
        change("text.py", "line 5", "fünf"),
        ConflictKind.CONTENT,
        "text.py",
    ),
    "content of neighbours": (
        change("text.py", "line 5", "5"),
        change("text.py", "line 6", "6"),
        ConflictKind.CONTENT,
        "text.py",
    ),
    "delete/modify": (
        delete("text.py"),
        change("text.py", "line 5", "x"),
        ConflictKind.DELETE_MODIFY,
        "text.py",
    ),
    "modify/delete": (
        change("text.py", "line 5", "x"),
        delete("text.py"),
        ConflictKind.DELETE_MODIFY,
        "text.py",
    ),
    "create/create": (
        create("new.py", "a\n"),
        create("new.py", "b\n"),
        ConflictKind.CREATE_CREATE,
        "new.py",
    ),
    "rename/modify": (
        rename("long.py", "moved.py"),
        change("long.py", "line 5", "x"),
        ConflictKind.RENAME,
        "long.py",
    ),
    "modify/rename": (
        change("long.py", "line 5", "x"),
        rename("long.py", "moved.py"),
        ConflictKind.RENAME,
        "long.py",
    ),
    "rename/rename": (
        rename("long.py", "one.py"),
        rename("long.py", "two.py"),
        ConflictKind.RENAME,
        "two.py",
    ),
    "delete/rename": (
        delete("long.py"),
        rename("long.py", "moved.py"),
        ConflictKind.RENAME,
        "long.py",
    ),
    "rename/delete": (
        rename("long.py", "moved.py"),
        delete("long.py"),
        ConflictKind.RENAME,
        "long.py",
    ),
    "two renamed to one": (
        rename("long.py", "one.py"),
        rename("image.png", "one.py"),
        ConflictKind.RENAME,
        "one.py",
    ),
    "binary": (
        create("image.png", b"\0one"),
        create("image.png", b"\0two"),
        ConflictKind.BINARY,
        "image.png",
    ),
    "text that became binary": (
        create("text.py", b"\0one"),
        change("text.py", "line 5", "x"),
        ConflictKind.BINARY,
        "text.py",
    ),
    "mode": (
        create("new.sh", "#!\n", 0o755),
        create("new.sh", "#!\n"),
        ConflictKind.MODE,
        "new.sh",
    ),
    "symlink": (
        linked("link", "other.py"),
        linked("link", "tool.sh"),
        ConflictKind.SYMLINK,
        "link",
    ),
    "a file that became a link": (
        linked("text.py", "other.py"),
        change("text.py", "line 5", "x"),
        ConflictKind.SYMLINK,
        "text.py",
    ),
    "a link that became a file": (
        create("text.py", "x"),
        linked("text.py", "link"),
        ConflictKind.SYMLINK,
        "text.py",
    ),
    "new links": (linked("new", "text.py"), linked("new", "other.py"), ConflictKind.SYMLINK, "new"),
    "crlf": (crlf("text.py"), change("text.py", "line 5", "x"), ConflictKind.CRLF, "text.py"),
    "a file where a directory is made": (
        create("a/b.py", "x\n"),
        create("a", "y\n"),
        ConflictKind.DIRECTORY,
        "a",
    ),
    "a directory where a file is made": (
        create("a", "y\n"),
        create("a/b.py", "x\n"),
        ConflictKind.DIRECTORY,
        "a/b.py",
    ),
    "a directory replaced": (
        create("d/new.py", "x\n"),
        in_the_place_of_d,
        ConflictKind.DIRECTORY,
        "d",
    ),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return Bench(tmp_path_factory.mktemp("template"), FILES)


@pytest.fixture
def bench(template, tmp_path):
    return template.copy(tmp_path)


@pytest.mark.parametrize("name", CONFLICTS)
def test_a_conflict_is_listed_with_its_pair_and_blocks_and_the_source_is_untouched(bench, name):
    first, second, kind, path = CONFLICTS[name]
    before = on_disk(bench.root)
    bench.subplan("one", first)
    bench.subplan("two", second)
    merged = bench.merge()
    assert [(each.kind, each.path, each.other, each.leaf) for each in merged.conflicts] == [
        (kind, path, "one", "two")
    ]
    assert path in str(merged.conflicts[0])
    with pytest.raises(MergeBlocked, match=f"{kind} conflict between one and two"):
        apply(merged, bench.snapshots, bench.root)
    assert on_disk(bench.root) == before


@pytest.mark.parametrize("name", CONFLICTS)
def test_the_source_may_be_the_other_side(bench, name):
    first, second, kind, path = CONFLICTS[name]
    bench.subplan("two", second)
    first(bench.root)
    before = on_disk(bench.root)
    merged = bench.merge()
    assert [(each.kind, each.path, each.other) for each in merged.conflicts] == [
        (kind, path, SOURCE)
    ]
    with pytest.raises(MergeBlocked):
        apply(merged, bench.snapshots, bench.root)
    assert on_disk(bench.root) == before


@pytest.mark.parametrize("name", CONFLICTS)
def test_with_last_wins_the_later_side_is_there_and_what_it_replaced_is_listed(bench, name):
    first, second, kind, path = CONFLICTS[name]
    bench.subplan("one", first)
    last = bench.subplan("two", second)
    merged = bench.merge(strategy=MergeStrategy.LAST_WINS)
    assert [(each.kind, each.path) for each in merged.overwritten] == [(kind, path)]
    assert (merged.conflicts, merged.blocked, merged.merged) == ((), (), ("one", "two"))
    wanted = bench.snapshots.entries(last.result)
    assert bench.snapshots.entries(merged.tree).get(path) == wanted.get(path)
    assert "one.py" not in bench.snapshots.entries(merged.tree) or name != "rename/rename"
    apply(merged, bench.snapshots, bench.root)
    assert bench.snapshots.take(bench.root) == merged.tree


@pytest.mark.parametrize("name", CONFLICTS)
def test_last_wins_never_wins_against_the_source(bench, name):
    first, second, kind, path = CONFLICTS[name]
    bench.subplan("two", second)
    first(bench.root)
    before = on_disk(bench.root)
    merged = bench.merge(strategy=MergeStrategy.LAST_WINS)
    assert [(each.kind, each.path, each.other) for each in merged.conflicts] == [
        (kind, path, SOURCE)
    ]
    assert merged.overwritten == ()
    with pytest.raises(MergeBlocked, match=f"{kind} conflict between {SOURCE} and two"):
        apply(merged, bench.snapshots, bench.root)
    assert on_disk(bench.root) == before


def test_last_wins_keeps_an_edit_of_the_source_that_an_earlier_subplan_had_merged_with(bench):
    bench.subplan("one", change("text.py", "line 15", "one"))
    bench.subplan("two", change("text.py", "line 15", "two"))
    change("text.py", "line 1\n", "mine\n")(bench.root)
    merged = bench.merge(strategy=MergeStrategy.LAST_WINS)
    assert [(each.path, each.other, each.leaf) for each in merged.overwritten] == [
        ("text.py", "one", "two")
    ]
    assert merged.blocked == ()
    text = bench.text(merged, "text.py").split("\n")
    assert ("mine" in text, "two" in text, "one" in text) == (True, True, False)


def test_last_wins_is_blocked_by_an_edit_of_the_source_beneath_that_of_an_earlier_subplan(bench):
    """The first agrees with the edit, the second with neither: its win would lose the edit."""
    bench.subplan("one", change("text.py", "line 15", "one"))

    def both(root):
        change("text.py", "line 15", "two")(root)
        change("text.py", "line 1\n", "two as well\n")(root)

    bench.subplan("two", both)
    change("text.py", "line 1\n", "mine\n")(bench.root)
    merged = bench.merge(strategy=MergeStrategy.LAST_WINS)
    assert [(each.path, each.other, each.leaf) for each in merged.conflicts] == [
        ("text.py", SOURCE, "two")
    ]
    assert merged.overwritten == ()
    assert "mine" in bench.text(merged, "text.py").split("\n")


@pytest.mark.parametrize("strategy", [MergeStrategy.THREE_WAY, MergeStrategy.LAST_WINS])
def test_what_is_merged_and_applied_once_more_changes_nothing(bench, strategy):
    """A deletion by one and a similar creation by another are no rename of the source tree."""
    bench.subplan("one", delete("long.py"))
    bench.subplan("two", create("alike.py", LINES * 3))
    bench.subplan("three", rename("other.py", "moved.py"))
    for _ in range(2):
        merged = bench.merge(strategy=strategy)
        assert merged.blocked == ()
        written = apply(merged, bench.snapshots, bench.root)
    assert written == ()


def test_a_rename_that_has_no_room_stays_out_with_both_halves(bench):
    bench.subplan("one", create("new", "a file\n"))

    def move(root):
        rename("d/inner.py", "new/inner.py")(root)
        (root / "d").rmdir()
        (root / "d").write_text("in its place\n")

    bench.subplan("two", move)
    merged = bench.merge()
    found = bench.snapshots.entries(merged.tree)
    assert {"new", "d/inner.py"} <= set(found)
    assert not {"new/inner.py", "d"} & set(found)
    assert [(each.kind, each.path) for each in merged.conflicts] == [
        (ConflictKind.DIRECTORY, "new/inner.py"),
        (ConflictKind.DIRECTORY, "d"),
    ]


@pytest.mark.parametrize("name", ["content", "rename/rename", "a directory replaced"])
def test_sequential_leaves_out_a_whole_change_and_tries_those_after_it(bench, name):
    first, second, _, _ = CONFLICTS[name]

    def second_and_more(root):
        second(root)
        (root / "tool.sh").write_text("half of a change\n")

    bench.subplan("one", first)
    alone = bench.merge().tree
    bench.subplan("two", second_and_more)
    merged = bench.merge(strategy=MergeStrategy.SEQUENTIAL)
    assert (merged.tree, merged.merged, merged.left_out) == (alone, ("one",), ("two",))
    bench.subplan("three", change("other.py", "line 1\n", "three\n"))
    merged = bench.merge(strategy=MergeStrategy.SEQUENTIAL)
    assert (merged.merged, merged.left_out) == (("one", "three"), ("two",))
    assert "three" in bench.text(merged, "other.py")
    assert bench.text(merged, "tool.sh") == "#!/bin/sh\n"
    assert len(merged.conflicts) == 1
    assert merged.blocked


def test_three_way_takes_the_files_of_a_change_that_do_not_conflict(bench):
    bench.subplan("one", change("text.py", "line 5", "one"))

    def both(root):
        change("text.py", "line 5", "two")(root)
        change("other.py", "line 5", "two")(root)

    bench.subplan("two", both)
    merged = bench.merge()
    assert ("one" in bench.text(merged, "text.py"), "two" in bench.text(merged, "other.py")) == (
        True,
        True,
    )
    assert merged.merged == ("one", "two")
    marked = bench.snapshots.read(merged.conflicts[0].marked).decode()
    assert all(word in marked for word in ("<<<<<<<", "|||||||", ">>>>>>>", "one", "line 5", "two"))


def test_fail_on_conflict_ends_at_the_first_and_names_all_that_are_left_out(bench):
    for leaf in ("one", "two", "three"):
        bench.subplan(leaf, change("text.py", "line 5", leaf))
    bench.subplan("four", change("other.py", "line 5", "four"))
    merged = bench.merge(strategy="fail-on-conflict")
    assert (merged.merged, merged.left_out) == (("one",), ("two", "three", "four"))
    assert [each.leaf for each in merged.conflicts] == ["two"]
    assert "four: left out" in merged.blocked


def test_a_conflict_names_the_one_whose_lines_clash_not_the_last_writer(bench):
    bench.subplan("one", change("text.py", "line 1\n", "one\n"))
    bench.subplan("two", change("text.py", "line 8\n", "two\n"))
    bench.subplan("three", change("text.py", "line 1\n", "three\n"))
    (conflict,) = bench.merge().conflicts
    assert (conflict.other, conflict.leaf) == ("one", "three")


def test_a_conflict_with_an_edit_of_the_source_beneath_others_names_the_source(bench):
    bench.subplan("one", change("text.py", "line 1\n", "one\n"))
    bench.subplan("two", change("text.py", "line 15\n", "two\n"))
    change("text.py", "line 15\n", "mine\n")(bench.root)
    (conflict,) = bench.merge().conflicts
    assert (conflict.other, conflict.leaf) == ("source", "two")


def test_both_edits_are_kept_when_the_base_advanced(bench):
    """The second started from the result of the first: with its base, the edit would be lost."""
    bench.subplan("one", change("text.py", "line 1\n", "one\n"))
    between = bench.merge().tree
    bench.subplan("two", change("text.py", "line 15\n", "two\n"), base=between)
    bench.subplan("three", change("text.py", "line 8\n", "three\n"))  # from the beginning again
    merged = bench.merge()
    assert merged.blocked == ()
    assert {"one", "two", "three"} <= set(bench.text(merged, "text.py").split("\n"))


def test_edits_made_to_the_source_meanwhile_are_kept(bench):
    bench.subplan("one", change("text.py", "line 1\n", "one\n"))
    change("text.py", "line 15\n", "mine\n")(bench.root)
    fill(bench.root, {"mine.py": "x\n"})
    apply(bench.merge(), bench.snapshots, bench.root)
    text = (bench.root / "text.py").read_text()
    assert "one\n" in text
    assert "mine\n" in text
    assert (bench.root / "mine.py").exists()


def test_what_does_not_conflict_merges(bench):
    def several(root):
        rename("long.py", "moved/long.py")(root)
        (root / "tool.sh").chmod(0o755)
        linked("link", "other.py")(root)
        delete("d/inner.py")(root)

    bench.subplan("one", several)
    bench.subplan("two", change("tool.sh", "sh", "bash"))
    bench.subplan("three", linked("link", "other.py"))  # the same as one did
    bench.subplan("four", create("d/new.py", "new\n"))
    bench.subplan("five", lambda root: (root / "tool.sh").chmod(0o755))
    bench.subplan("six", lambda root: None)
    merged = bench.merge()
    assert merged.blocked == ()
    found = bench.snapshots.entries(merged.tree)
    assert (found["tool.sh"].mode, bench.text(merged, "tool.sh")) == ("100755", "#!/bin/bash\n")
    assert bench.text(merged, "link") == "other.py"
    assert {"moved/long.py", "d/new.py"} <= set(found)
    assert not {"long.py", "d/inner.py"} & set(found)


def test_a_mode_and_a_content_changed_by_different_sides_both_stay(bench):
    bench.subplan("one", change("tool.sh", "sh", "dash"))
    bench.subplan("two", lambda root: (root / "tool.sh").chmod(0o755))
    merged = bench.merge()
    assert merged.blocked == ()
    assert bench.snapshots.entries(merged.tree)["tool.sh"].mode == "100755"
    assert "dash" in bench.text(merged, "tool.sh")


def test_no_working_tree_and_no_repository_is_touched_by_a_merge(bench):
    bench.subplan("one", change("text.py", "line 5", "one"))
    before, index = on_disk(bench.root), (bench.root / ".git/index").read_bytes()
    objects = git(bench.root, "count-objects", "-v")
    bench.merge()
    assert on_disk(bench.root) == before
    assert (bench.root / ".git/index").read_bytes() == index
    assert git(bench.root, "count-objects", "-v") == objects


def test_a_snapshot_is_what_is_on_disk_whatever_the_attributes_say(tmp_path):
    files = {
        ".gitattributes": "* text=auto eol=crlf\n*.py merge=union filter=lfs ident\n",
        "crlf.txt": b"a\r\nb\r\n",
        "lf.txt": b"a\nb\n",
        "x.py": b"$Id$\n" + LINES.encode(),
        os.fsdecode(b"odd\xff\n"): b"\0",
    }
    bench = Bench(tmp_path, {name: content for name, content in files.items() if name != "lf.txt"})
    fill(bench.root, {"lf.txt": files["lf.txt"]})
    taken = bench.snapshots.entries(bench.snapshots.take(bench.root))
    for name, content in files.items():
        assert bench.snapshots.read(taken[name].blob) == (
            content if isinstance(content, bytes) else content.encode()
        )
    bench.subplan("one", change("x.py", "line 5", "one"))
    bench.subplan("two", change("x.py", "line 5", "two"))
    assert [each.kind for each in bench.merge().conflicts] == [
        ConflictKind.CONTENT
    ]  # union would keep both


def do_something(chance, root, place):
    """Of a file, directory or link; also with the same size and time, and by a new .gitignore."""
    way = chance.randrange(6)
    if way == 0:
        fill(root, {".gitignore": chance.choice(["", "*.log\n", "new\n", "d\n"])})
    elif place.is_file() and not place.is_symlink() and way > 2:
        facts = place.stat()
        place.write_bytes(bytes(chance.choices(b"xyz", k=facts.st_size)))
        os.utime(place, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        place.chmod(chance.choice([0o644, 0o755]))
    elif place.is_symlink() or place.is_file():
        place.unlink()
        if way == 2:
            place.symlink_to(chance.choice(["text.py", "nowhere"]))
    elif place.is_dir() and way < 3:
        shutil.rmtree(place)
    elif not place.exists() and place.parent.is_dir():
        place.write_text(chance.choice(["one\n", "two\n"])) if way < 4 else place.mkdir()


@pytest.mark.parametrize("seed", range(4))
def test_a_snapshot_that_reads_only_what_has_changed_is_the_same_as_a_new_one(bench, seed):
    chance, seen = random.Random(seed), SeenTree(bench.place / "index")
    names = ["a", "a/b", "a/b/c", "d/inner.py", "text.py", "new", "link", "kept.log"]
    for _ in range(25):
        do_something(chance, bench.root, bench.root / chance.choice(names))
        if chance.random() < 0.6:
            assert bench.snapshots.take(bench.root, seen) == bench.snapshots.take(bench.root)
    assert bench.snapshots.take(bench.root, seen) == bench.snapshots.take(bench.root)


def test_real_worktrees_and_directories_without_git_merge_alike(bench, tmp_path):
    work = tmp_path / "worktree"
    git(bench.root, "worktree", "add", "-q", "--detach", str(work))
    base = bench.snapshots.take(work)
    assert base == bench.base
    change("text.py", "line 5", "one")(work)
    plain = tmp_path / "plain"
    bench.check_out(base, plain)
    assert bench.snapshots.take(plain) == base
    change("text.py", "line 15", "two")(plain)
    changes = [("one", work), ("two", plain)]
    made = [
        type(bench.subplan("x", lambda root: None))(leaf, base, bench.snapshots.take(place))
        for leaf, place in changes
    ]
    merged = merge(bench.snapshots, base, made)
    assert merged.blocked == ()
    assert {"one", "two"} <= set(bench.text(merged, "text.py").split("\n"))


# --- ownership

OWNED = {f"{folder}/f{number}.py": LINES for folder in ("a", "b", "b/c") for number in range(4)}


@pytest.fixture
def owned(tmp_path):
    bench = Bench(tmp_path, OWNED)
    plan = decompose(take_inventory(bench.root), options=Options(min_files=1, max_files=4))
    return bench, plan, Ownership.of(plan)


def test_a_write_outside_is_refused_with_its_whole_change_and_blocks(owned):
    bench, plan, ownership = owned
    one = plan.owner("a/f0.py")

    def edit(root):
        change("a/f0.py", "line 5", "mine")(root)
        change("b/f0.py", "line 5", "not mine")(root)

    bench.subplan(one, edit)
    merged = bench.merge(ownership=ownership)
    assert (merged.tree, merged.merged, merged.left_out) == (bench.base, (), (one,))
    assert [(each.leaf, each.owners, each.change.path) for each in merged.refused] == [
        (one, (plan.owner("b/f0.py"),), "b/f0.py")
    ]
    with pytest.raises(MergeBlocked, match=f"b/f0.py: written by {one}, owned by"):
        apply(merged, bench.snapshots, bench.root)
    assert bench.merge(ownership=ownership, strategy=MergeStrategy.FAIL_ON_CONFLICT).left_out == (
        one,
    )


def test_or_it_is_a_request_to_the_owner_which_blocks_until_it_is_left_on_purpose(owned):
    bench, plan, ownership = owned
    one = plan.owner("a/f0.py")

    def edit(root):
        change("a/f0.py", "line 5", "mine")(root)
        delete("b/f0.py")(root)

    bench.subplan(one, edit)
    merged = bench.merge(ownership=ownership, outside=Outside.REQUEST)
    assert "mine" in bench.text(merged, "a/f0.py")
    assert "b/f0.py" in bench.snapshots.entries(merged.tree)
    assert [(each.owners, each.change.after) for each in merged.requests] == [
        ((plan.owner("b/f0.py"),), None)
    ]
    with pytest.raises(MergeBlocked, match=r"b/f0\.py"):
        apply(merged, bench.snapshots, bench.root)
    assert apply(merged, bench.snapshots, bench.root, leave_requests=True) == ("a/f0.py",)
    assert (bench.root / "b/f0.py").exists()


@pytest.mark.parametrize(("path", "to"), [("a/f0.py", "b/moved.py"), ("b/f0.py", "a/moved.py")])
def test_a_rename_whose_other_half_is_another_subplan_s_is_a_request_with_both_halves(
    owned, path, to
):
    bench, plan, ownership = owned
    one, two = plan.owner("a/f0.py"), plan.owner("b/f0.py")

    def edit(root):
        change("a/f1.py", "line 5", "mine")(root)
        rename(path, to)(root)

    bench.subplan(one, edit)
    merged = bench.merge(ownership=ownership, outside=Outside.REQUEST)
    assert [(each.owners, each.rename) for each in merged.requests] == [((two,), (path, to))]
    assert f"{path}: renamed to {to} by {one}" in str(merged.requests[0])
    assert apply(merged, bench.snapshots, bench.root, leave_requests=True) == ("a/f1.py",)
    assert (bench.root / path).read_text() == LINES
    assert not (bench.root / to).exists()
    refused = bench.merge(ownership=ownership)
    assert [each.rename for each in refused.refused] == [(path, to)]


def test_a_file_moved_to_another_subplan_s_directory_is_a_move_however_much_it_was_changed(owned):
    bench, plan, ownership = owned
    one = plan.owner("a/f0.py")

    def edit(root):
        (root / "a/f0.py").unlink()
        fill(root, {"b/deep/f0.py": "quite another text\n", "a/new.py": "mine\n"})
        (root / "a/f1.py").unlink()
        fill(root, {"a/deep/f1.py": "within its own\n"})

    bench.subplan(one, edit)
    merged = bench.merge(ownership=ownership, outside=Outside.REQUEST)
    assert [each.rename for each in merged.requests] == [("a/f0.py", "b/deep/f0.py")]
    written = apply(merged, bench.snapshots, bench.root, leave_requests=True)
    assert written == ("a/deep/f1.py", "a/f1.py", "a/new.py")
    assert (bench.root / "a/f0.py").read_text() == LINES


def test_new_files_belong_to_those_who_have_files_beside_them(owned):
    _, plan, ownership = owned
    a, b, c = (plan.owner(path) for path in ("a/f0.py", "b/f0.py", "b/c/f0.py"))
    assert len({a, b, c}) == 3
    assert ownership.owners("a/f0.py") == (a,)
    assert ownership.owners("a/new.py") == (a,)
    assert ownership.owners("a/deep/new/x.py") == (a,)
    assert ownership.owners("b/new.py") == (b,)
    assert ownership.owners("b/c/d/new.py") == (c,)
    assert ownership.owners("new.py") == tuple(sorted((a, b, c)))
    assert ownership.owners("new/x.py") == tuple(sorted((a, b, c)))
    assert ownership.allows(a, "new.py")
    assert not ownership.allows(a, "b/new.py")
    assert Ownership.of(decompose(Inventory(()))).owners("x/y") == ("root",)


def test_every_leaf_writing_its_own_files_is_never_in_a_conflict(owned):
    bench, plan, ownership = owned
    for leaf in plan.leaves:
        bench.subplan(
            leaf.id,
            lambda root, leaf=leaf: [change(path, "line", leaf.id)(root) for path in leaf.files],
        )
    merged = bench.merge(ownership=ownership)
    assert merged.blocked == ()
    assert isinstance(merged, Merged)
    assert len(apply(merged, bench.snapshots, bench.root)) == len(OWNED)
    for path in OWNED:
        assert plan.owner(path) in (bench.root / path).read_text()
