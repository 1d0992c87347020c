"""Undo restores every byte, and `recover` rolls back or completes every killed apply or undo."""

import errno
import json
import os
import signal

import pytest

from abreast.worktrees.merge import apply as module
from abreast.worktrees.merge.apply import KEPT, apply, recover
from abreast.worktrees.merge.errors import ApplyInterrupted, ApplyRunning, SourceChanged
from abreast.worktrees.merge.undo import applies, changed_since, undo
from tests.jobs.plan.repositories import Bench, fill, on_disk
from tests.worktrees.merge.test_apply import FILES, Watched, everything

RECORD = {"run": "plan-1"}


class Counted(Watched):
    """Also counts the operations that only an undo makes."""

    def bring(self, place, to):
        self._step()
        super().bring(place, to)


@pytest.fixture(autouse=True)
def _no_power_cut(monkeypatch):
    monkeypatch.setattr(module.os, "fsync", lambda _: None)  # hundreds of times, on a shared disk


def prepared(place):
    bench = Bench(place, {**FILES, "locked/in.py": "in\n"})
    (bench.root / "edit.py").chmod(0o600)
    (bench.root / "folder/deep/empty").mkdir()
    (bench.root / "folder").chmod(0o750)
    (bench.root / "new").mkdir()  # empty, and to be filled
    (bench.root / "only").chmod(0o711)
    bench.base = bench.snapshots.take(bench.root)

    def edit(root):
        (root / "folder/deep/empty").rmdir()
        everything(root)

    bench.subplan("one", edit)
    return bench


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("template"))


@pytest.fixture
def bench(template, tmp_path):
    twin = template.copy(tmp_path)
    twin.changes = list(template.changes)
    return twin


def tree(root):
    """All files except those in .abreast."""
    return {path: facts for path, facts in on_disk(root).items() if not path.startswith(".abreast")}


def test_an_apply_is_taken_back_byte_for_byte(bench):
    before = on_disk(bench.root)
    merged = bench.merge()
    written = apply(merged, bench.snapshots, bench.root, record=RECORD)
    assert bench.snapshots.take(bench.root) == merged.tree
    (applied,) = applies(bench.root)
    assert applied.record == RECORD
    assert undo(bench.root, applied) == written
    assert (
        on_disk(bench.root) == before
    )  # kinds, permissions, contents, times, empty directories; and no .abreast
    assert applies(bench.root) == []
    apply(bench.merge(), bench.snapshots, bench.root, record=RECORD)  # and once more
    assert bench.snapshots.take(bench.root) == merged.tree


def test_a_file_system_without_hard_links_will_do(bench, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EPERM, "Operation not permitted")

    before = on_disk(bench.root)
    apply(bench.merge(), bench.snapshots, bench.root, record=RECORD)
    monkeypatch.setattr(os, "link", refuse)
    undo(bench.root, applies(bench.root)[-1])

    def without_numbers(found):
        return {path: (mode, content, which[1:]) for path, (mode, content, which) in found.items()}

    assert without_numbers(on_disk(bench.root)) == without_numbers(before)


CHANGES = {
    "edit.py": lambda root: (root / "edit.py").write_text("mine\n"),
    "run.sh": lambda root: (root / "run.sh").chmod(0o700),
    "gone.py": lambda root: fill(root, {"gone.py": "mine\n"}),
    "new.sh": lambda root: (root / "new.sh").unlink(),
    "link": lambda root: ((root / "link").unlink(), (root / "link").symlink_to("mine")),
    "new/deep/er.py": lambda root: (
        (root / "new/deep").rename(root / "aside"),
        (root / "new/deep").symlink_to("../aside"),
    ),
}


@pytest.mark.parametrize("path", CHANGES)
def test_what_was_changed_since_is_named_and_nothing_is_taken_back(bench, path):
    apply(bench.merge(), bench.snapshots, bench.root, record=RECORD)
    CHANGES[path](bench.root)
    before = on_disk(bench.root)
    applied = applies(bench.root)[-1]
    assert changed_since(bench.root, applied) == [path]
    with pytest.raises(SourceChanged, match=f"{path}: changed since"):
        undo(bench.root, applied)
    assert on_disk(bench.root) == before


def test_what_the_apply_did_not_touch_may_have_changed(bench):
    apply(bench.merge(), bench.snapshots, bench.root, record=RECORD)
    fill(bench.root, {"keep.py": "mine\n", "new/deep/mine.py": "mine\n"})
    undo(bench.root, applies(bench.root)[-1])
    assert (bench.root / "keep.py").read_text() == "mine\n"
    assert (bench.root / "new/deep/mine.py").read_text() == "mine\n"
    assert not (bench.root / "new/deep/er.py").exists()


def test_several_applies_are_taken_back_one_after_another_and_the_oldest_are_let_go(bench):
    states = []
    for number in range(KEPT + 2):
        states.append(tree(bench.root))
        bench.base = bench.snapshots.take(bench.root)
        bench.place = bench.place / "again"
        bench.place.mkdir()
        bench.changes.clear()
        bench.subplan(
            f"part-{number}",
            lambda root, number=number: fill(root, {f"n{number % 3}": f"{number}\n"}),
        )
        apply(bench.merge(), bench.snapshots, bench.root, record={"run": f"plan-{number}"})
    assert len(applies(bench.root)) == KEPT
    for number in range(KEPT + 1, 1, -1):
        applied = applies(bench.root)[-1]
        assert applied.record == {"run": f"plan-{number}"}
        undo(bench.root, applied)
        assert tree(bench.root) == states[number]
    assert applies(bench.root) == []


def test_a_failure_at_any_step_of_an_undo_leaves_the_tree_as_applied(bench):
    apply(bench.merge(), bench.snapshots, bench.root, record=RECORD)
    before = on_disk(bench.root)
    twin = bench.copy(bench.place / "twin")
    counted = Counted()
    undo(twin.root, applies(twin.root)[-1], disk=counted)
    assert counted.count > 30
    for number in range(counted.count):
        with pytest.raises(OSError, match="No space left"):
            undo(bench.root, applies(bench.root)[-1], disk=Counted(number))
        assert on_disk(bench.root) == before, number


def killed_in(work, number):
    """Run code in a process that is killed by SIGKILL at the operation with a given number.

    Whether it was.
    """
    child = os.fork()
    if not child:
        try:
            work(Counted(number, then=lambda: os.kill(os.getpid(), signal.SIGKILL)))
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_sigkill_at_every_step_of_an_apply_is_taken_back_and_after_the_last_it_is_done(bench):
    merged, before = bench.merge(), on_disk(bench.root)
    number = 0
    while killed_in(
        lambda disk: apply(merged, bench.snapshots, bench.root, record=RECORD, disk=disk), number
    ):
        with pytest.raises(ApplyInterrupted, match="apply-"):
            apply(merged, bench.snapshots, bench.root)
        assert recover(bench.root) == 1
        assert on_disk(bench.root) == before, number
        number += 1
    assert number > 30
    assert bench.snapshots.take(bench.root) == merged.tree


def test_sigkill_at_every_step_of_an_undo_is_taken_back_and_after_the_last_it_is_done(bench):
    before = on_disk(bench.root)
    apply(bench.merge(), bench.snapshots, bench.root, record=RECORD)
    after = on_disk(bench.root)
    number = 0
    while killed_in(lambda disk: undo(bench.root, applies(bench.root)[-1], disk=disk), number):
        with pytest.raises(ApplyInterrupted, match="apply-"):
            undo(bench.root, applies(bench.root)[-1])
        assert recover(bench.root) == 1
        assert on_disk(bench.root) == after, number
        number += 1
    assert number > 30
    assert on_disk(bench.root) == before


@pytest.mark.parametrize("where", ["_complete", "_remove_stage"])
def test_a_kill_after_all_is_written_is_completed(bench, where, monkeypatch):
    before, merged = on_disk(bench.root), bench.merge()
    with monkeypatch.context() as killed:
        killed.setattr(module, where, lambda *_: os._exit(9))
        child = os.fork()
        if not child:
            apply(merged, bench.snapshots, bench.root, record=RECORD)
        os.waitpid(child, 0)
    recover(bench.root)
    assert recover(bench.root) == 0
    assert bench.snapshots.take(bench.root) == merged.tree
    assert not (bench.root / "only").exists()
    with monkeypatch.context() as killed:
        killed.setattr(module, where, lambda *_: os._exit(9))
        child = os.fork()
        if not child:
            undo(bench.root, applies(bench.root)[-1])
        os.waitpid(child, 0)
    recover(bench.root)
    assert on_disk(bench.root) == before


def test_one_that_is_under_way_is_left_alone(bench):
    merged = bench.merge()
    tried = []

    def meanwhile():
        for work in (
            lambda: recover(bench.root),
            lambda: apply(merged, bench.snapshots, bench.root),
        ):
            with pytest.raises(ApplyRunning, match="at this moment"):
                work()
            tried.append(work)

    apply(merged, bench.snapshots, bench.root, disk=Watched(20, then=meanwhile))
    assert len(tried) == 2
    assert bench.snapshots.take(bench.root) == merged.tree


@pytest.mark.parametrize("path", ["../out", ".git/hooks/post-checkout", "a//b", ".abreast/x"])
def test_a_journal_that_came_with_a_repository_moves_nothing_out_of_it(bench, path):
    stage = bench.root / ".abreast/apply-1"
    fill(stage, {"old-0": "evil\n"})
    files = [{"path": path, "old": True, "new": False}]
    (stage / "journal.json").write_text(json.dumps({"files": files, "made": [], "removed": []}))
    before = on_disk(bench.root)
    with pytest.raises(ApplyInterrupted, match="none that abreast wrote"):
        recover(bench.root)
    assert on_disk(bench.root) == before


def test_an_apply_that_an_older_version_was_killed_in_is_taken_back(bench):
    before = on_disk(bench.root)
    stage = bench.root / ".abreast/apply-1"
    stage.mkdir(parents=True)
    (bench.root / "edit.py").rename(stage / "old-0")
    files = [{"path": "edit.py", "old": True, "new": False}]
    (stage / "journal.json").write_text(json.dumps({"files": files, "made": [], "removed": []}))
    assert recover(bench.root) == 1
    assert on_disk(bench.root) == before
