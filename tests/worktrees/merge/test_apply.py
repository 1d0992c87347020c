"""A merge is applied whole or not at all, with a failure or a kill at every write."""

import errno

import pytest

from abreast.worktrees.merge import apply as module
from abreast.worktrees.merge.apply import Disk, apply, recover, state
from abreast.worktrees.merge.errors import ApplyInterrupted, SourceChanged
from tests.jobs.plan.repositories import Bench, fill, on_disk

FILES = {
    "keep.py": "keep\n",
    "edit.py": "edit\n",
    "gone.py": "gone\n",
    "only/one.py": "one\n",
    "run.sh": "run\n",
    "link": ("edit.py",),
    "folder/x.py": "x\n",
    "folder/deep/y.py": "y\n",
    "file": "a file\n",
    "back.sh": "#!\n",
}


def everything(root):
    """Every kind of change."""
    (root / "edit.py").write_text("edited\n")
    (root / "gone.py").unlink()
    (root / "only/one.py").unlink()
    (root / "run.sh").chmod(0o755)
    (root / "link").unlink()
    (root / "link").symlink_to("keep.py")
    for path in ("folder/x.py", "folder/deep/y.py", "file"):
        (root / path).unlink()
    (root / "folder/deep").rmdir()
    (root / "folder").rmdir()
    fill(
        root,
        {
            "folder": "a file now\n",
            "file/within.py": "a directory now\n",
            "new/deep/er.py": "new\n",
        },
    )
    fill(root, {"new.sh": "#!\n", "new_link": ("nowhere",)})
    (root / "new.sh").chmod(0o755)
    (root / "back.sh").chmod(0o644)


class Watched(Disk):
    """A disk on which the operation with a given number fails."""

    def __init__(self, fails=None, error=None, then=None):
        self.count = 0
        self.fails = fails
        self.error = error or OSError(errno.ENOSPC, "No space left on device")
        self.then = then

    def _step(self):
        self.count += 1
        if self.count - 1 == self.fails:
            if self.then is None:
                raise self.error
            self.then()

    def make_folder(self, place):
        self._step()
        super().make_folder(place)

    def write(self, place, content):
        self._step()
        super().write(place, content)

    def link(self, place, to):
        self._step()
        super().link(place, to)

    def set_mode(self, place, mode):
        self._step()
        super().set_mode(place, mode)

    def move(self, place, to):
        self._step()
        super().move(place, to)

    def place(self, new, to):
        self._step()
        super().place(new, to)

    def remove_folder(self, place):
        self._step()
        super().remove_folder(place)


@pytest.fixture(autouse=True)
def _no_power_cut(monkeypatch):
    monkeypatch.setattr(module.os, "fsync", lambda _: None)  # hundreds of times, on a shared disk


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A repository with a change, and the number of operations to apply it."""
    bench = Bench(tmp_path_factory.mktemp("template"), FILES)
    (bench.root / "back.sh").chmod(0o750)
    (bench.root / "edit.py").chmod(0o600)
    bench.base = bench.snapshots.take(bench.root)
    bench.subplan("one", everything)
    twin = bench.copy(tmp_path_factory.mktemp("counted"))
    disk = Watched()
    twin.changes = list(bench.changes)
    apply(twin.merge(), twin.snapshots, twin.root, disk=disk)
    return bench, disk.count


@pytest.fixture
def bench(template, tmp_path):
    twin = template[0].copy(tmp_path)
    twin.changes = list(template[0].changes)
    return twin


@pytest.fixture
def operations(template):
    return template[1]


def test_all_of_it_is_written_and_nothing_is_left_behind(bench):
    kept = state(bench.root / "keep.py"), (bench.root / "keep.py").stat().st_ino
    merged = bench.merge()
    written = apply(merged, bench.snapshots, bench.root)
    assert bench.snapshots.take(bench.root) == merged.tree
    assert set(written) == {
        "edit.py",
        "gone.py",
        "only/one.py",
        "run.sh",
        "link",
        "folder/x.py",
        "folder/deep/y.py",
        "folder",
        "file",
        "file/within.py",
        "new/deep/er.py",
        "new.sh",
        "new_link",
        "back.sh",
    }
    assert (state(bench.root / "keep.py"), (bench.root / "keep.py").stat().st_ino) == kept
    assert not (bench.root / "only").exists()  # it was removed with its last file
    assert not (bench.root / ".abreast").exists()
    assert (bench.root / "edit.py").stat().st_mode & 0o777 == 0o600  # permissions stay
    assert (bench.root / "run.sh").stat().st_mode & 0o111
    assert not (bench.root / "back.sh").stat().st_mode & 0o111
    assert apply(bench.merge(), bench.snapshots, bench.root) == ()  # all is there already


def test_a_failure_at_any_write_leaves_the_tree_untouched(bench, operations):
    merged = bench.merge()
    before = on_disk(bench.root)
    assert operations > 30
    for number in range(operations):
        with pytest.raises(OSError, match="No space left"):
            apply(merged, bench.snapshots, bench.root, disk=Watched(number))
        assert on_disk(bench.root) == before, number
    apply(merged, bench.snapshots, bench.root)
    assert bench.snapshots.take(bench.root) == merged.tree


def test_an_interrupt_leaves_the_tree_untouched(bench, operations):
    merged, before = bench.merge(), on_disk(bench.root)
    for number in range(0, operations, 5):
        with pytest.raises(KeyboardInterrupt):
            apply(merged, bench.snapshots, bench.root, disk=Watched(number, KeyboardInterrupt()))
        assert on_disk(bench.root) == before


def test_after_a_kill_at_any_write_recover_takes_it_back(bench, operations, monkeypatch):
    merged, before = bench.merge(), on_disk(bench.root)
    for number in range(operations):
        with monkeypatch.context() as killed:
            killed.setattr(module, "_roll_back", lambda *_: None)
            killed.setattr(module, "_remove_stage", lambda *_: None)
            with pytest.raises(OSError, match="No space left"):
                apply(merged, bench.snapshots, bench.root, disk=Watched(number))
        with pytest.raises(ApplyInterrupted, match="apply-"):
            apply(merged, bench.snapshots, bench.root)
        assert recover(bench.root) == 1
        assert on_disk(bench.root) == before, number
    assert recover(bench.root) == 0


def test_a_kill_after_it_was_done_is_only_cleared_up(bench, monkeypatch):
    merged = bench.merge()
    with monkeypatch.context() as killed:
        killed.setattr(module, "_remove_stage", lambda *_: None)
        apply(merged, bench.snapshots, bench.root)
    assert recover(bench.root) == 1
    assert bench.snapshots.take(bench.root) == merged.tree
    assert not (bench.root / ".abreast").exists()


def test_a_source_that_changed_since_the_merge_is_not_written_to(bench):
    merged = bench.merge()
    for edit, undo in [
        (
            lambda: (bench.root / "edit.py").write_text("mine\n"),
            lambda: (bench.root / "edit.py").write_text("edit\n"),
        ),
        (
            lambda: (bench.root / "run.sh").chmod(0o755),
            lambda: (bench.root / "run.sh").chmod(0o644),
        ),
        (lambda: (bench.root / "new.sh").write_text("mine"), (bench.root / "new.sh").unlink),
        (lambda: (bench.root / "new").symlink_to("/tmp"), (bench.root / "new").unlink),
    ]:
        edit()
        before = on_disk(bench.root)
        with pytest.raises(SourceChanged):
            apply(merged, bench.snapshots, bench.root)
        assert on_disk(bench.root) == before
        undo()
    (bench.root / "keep.py").write_text("what is not touched may change\n")
    apply(merged, bench.snapshots, bench.root)
    assert (bench.root / "keep.py").read_text() == "what is not touched may change\n"


def test_an_edit_while_it_is_applied_is_found_and_kept(bench, operations):
    merged = bench.merge()
    edited = bench.root / "edit.py"
    found = []
    for number in range(operations):

        def save():
            if edited.exists():
                edited.write_text("saved by an editor\n")

        try:
            apply(merged, bench.snapshots, bench.root, disk=Watched(number, then=save))
        except SourceChanged as error:
            found.append(str(error))
            assert edited.read_text() == "saved by an editor\n"
            edited.write_text("edit\n")
        else:
            break
    assert any("while the merge was applied" in line for line in found)


def test_a_file_that_appears_in_the_place_of_a_new_one_is_kept(bench, operations):
    merged = bench.merge()
    new = bench.root / "zz_new.py"
    bench.subplan("two", lambda root: fill(root, {"zz_new.py": "the last to be placed\n"}))
    merged, before = bench.merge(), on_disk(bench.root)
    operations += 3  # it is written, given its mode, and placed
    for number in range(0, operations - 1, 3):
        with pytest.raises(SourceChanged, match=r"zz_new\.py appeared"):
            apply(
                merged,
                bench.snapshots,
                bench.root,
                disk=Watched(number, then=lambda: new.write_text("mine\n")),
            )
        assert new.read_text() == "mine\n"
        new.unlink()
        assert on_disk(bench.root) == before
    disk = Watched(operations - 2, then=lambda: new.write_text("mine\n"))  # at the very moment
    with pytest.raises(SourceChanged, match=r"zz_new\.py appeared"):
        apply(merged, bench.snapshots, bench.root, disk=disk)
    assert new.read_text() == "mine\n"


def test_a_file_system_without_hard_links_will_do(bench, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(module.os, "link", refuse)
    merged = bench.merge()
    fill(bench.root, {"zz": "mine"})
    with pytest.raises(FileExistsError):
        Disk().place(bench.root / "edit.py", bench.root / "zz")
    apply(merged, bench.snapshots, bench.root)
    assert state(bench.root / "new.sh").mode == "100755"
    (bench.root / "zz").unlink()
    assert bench.snapshots.take(bench.root) == merged.tree


def test_a_kill_between_placing_a_file_and_removing_it_from_the_stage_is_taken_back(
    bench, monkeypatch
):
    merged, before = bench.merge(), on_disk(bench.root)

    class Killed(Watched):
        def place(self, new, to):
            module.os.link(new, to, follow_symlinks=False)
            raise OSError(errno.EIO, "killed")

    with pytest.raises(OSError, match="killed"):
        apply(merged, bench.snapshots, bench.root, disk=Killed())
    assert on_disk(bench.root) == before


def test_what_is_ignored_in_a_directory_that_a_file_would_replace_is_kept(bench):
    merged = bench.merge()
    fill(bench.root, {"folder/deep/cache": "mine\n"})
    before = on_disk(bench.root)
    with pytest.raises(OSError, match="not empty"):
        apply(merged, bench.snapshots, bench.root)
    assert on_disk(bench.root) == before


def test_what_can_t_be_taken_back_is_said_and_kept(bench, monkeypatch, operations):
    merged = bench.merge()

    def broken(*_):
        raise OSError(errno.EIO, "Input/output error")

    before = on_disk(bench.root)
    with monkeypatch.context() as patched:
        patched.setattr(module, "_roll_back", broken)
        with pytest.raises(ApplyInterrupted, match="could not be taken back"):
            apply(merged, bench.snapshots, bench.root, disk=Watched(operations - 1))
    assert recover(bench.root) == 1
    assert on_disk(bench.root) == before


def test_a_place_that_is_neither_file_nor_link_has_no_state(tmp_path):
    assert state(tmp_path) is None
    assert state(tmp_path / "nowhere") is None
    fill(tmp_path, {"file": "x"})
    assert state(tmp_path / "file/beneath") is None
