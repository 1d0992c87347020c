"""`abreast plan reject`: a decision that is recorded, said, and can be overruled."""

import json
import re

import pytest

from tests.cli.commands.test_plan import project

__all__ = ["project"]

WORK = ("sh", "-c", 'test "$1" != bad && echo "$1" > "$1.txt"', "sh", "{}")
REJECTED = r"rejected at \d{4}-\d\d-\d\d \d\d:\d\d UTC: not ours"


@pytest.fixture
def run(project):
    """A run of two items in worktrees, one of which failed, that is rejected."""
    assert project("map", "--worktree", "--", *WORK, given="one\nbad\n").code == 1
    said = project("plan", "reject", "map-1", "--reason", "not\nours")
    assert said.code == 0, said
    assert re.search(rf"map-1 is {REJECTED}.*abreast plan apply map-1 --anyway", said.err), said
    return project


def test_what_is_rejected_is_not_applied_and_says_since_when_and_how_to_do_it_anyway(run):
    for more in (("--partial",), ("--partial", "--dry-run")):
        said = run("plan", "apply", "map-1", *more)
        assert said.code == 1, said
        assert re.search(rf"map-1 was {REJECTED}; --anyway applies it", said.out), said
        assert not (run.folder / "one.txt").exists()
    said = run("plan", "apply", "map-1", "--branches")
    assert (said.code, bool(re.search(REJECTED, said.err))) == (2, True), said
    found = json.loads(run("plan", "apply", "map-1", "--partial", "--json").out)
    assert found["rejected"]["reason"] == "not ours"
    assert len(found["blocked"]) == 1


def test_show_says_it(run):
    assert re.search(rf"{REJECTED}; anyway: .*--anyway", run("show", "map-1").out)
    assert json.loads(run("show", "map-1", "--json").out)["rejected"]["reason"] == "not ours"


def test_applied_anyway_it_is_no_longer_rejected_and_what_is_applied_can_not_be(run):
    said = run("plan", "apply", "map-1", "--partial", "--anyway")
    assert said.code == 0, said
    assert (run.folder / "one.txt").read_text() == "one\n"
    assert json.loads(run("show", "map-1", "--json").out)["rejected"] is None
    said = run("plan", "reject", "map-1")
    assert said.code == 1
    assert "take it back first: abreast plan undo map-1" in said.err
    assert run("plan", "undo", "map-1").code == 0
    assert run("plan", "apply", "map-1", "--partial").code == 0


def test_a_run_that_goes_on_has_other_results_which_nobody_has_rejected(run):
    assert run("retry", "map-1").code == 1
    assert run("plan", "apply", "map-1", "--partial").code == 0


def test_a_run_without_results_in_worktrees_can_not_be_rejected(project):
    assert project("map", "--", "true", given="one\n").code == 0
    said = project("plan", "reject", "last")
    assert said.code == 2
    assert "rejected" not in json.loads(project("show", "last", "--json").out)
