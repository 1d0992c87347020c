"""`abreast optimize PATH --all`: the functions of a path in one run."""

import json
from dataclasses import replace

import pytest

from abreast.cli.jobs.candidates.functions import FunctionsTools, _merge_texts
from abreast.jobs.candidates.behaviour.ranking import RankedFunction
from abreast.jobs.candidates.functions_report import FunctionsReport
from abreast.jobs.candidates.report import CandidatesReport
from abreast.jobs.candidates.results import Checked, Timed, Tried
from abreast.jobs.candidates.source.changes import FileChange
from abreast.jobs.candidates.source.target import Target
from abreast.jobs.candidates.spec import CandidatesSpec
from tests.cli.commands.test_optimize import project
from tests.jobs.candidates.projects import FAST

assert project  # the fixture: a repository with a slow function and its tests

MORE = '''

def noise():
    """Not the same twice."""
    import time

    for _ in range(2_000):
        pass
    return time.perf_counter()


class Bag:
    def total(self):
        found = 0
        for one in range(30):
            found += one
        return found
'''
TESTS = """

def test_more():
    from sums import Bag, noise

    assert noise() > 0
    assert Bag().total() == 435
"""
QUICKLY = ("--tests", "test_sums.py", "--behaviour-only", "--generated", "0", "--json")


@pytest.fixture
def several(project):
    text = (project.folder / "sums.py").read_text() + MORE
    project.file("sums.py", text)
    project.file("test_sums.py", (project.folder / "test_sums.py").read_text() + TESTS)
    project.file("drafts/pairs/fast.py", FAST)
    project.file("drafts/Bag.total/right.py", "def total(self):\n    return sum(range(30))\n")
    project.file("drafts/Bag.total/wrong.py", "def total(self):\n    return sum(range(29))\n")
    project.file("drafts/noise/a.py", "def noise():\n    return 1.0\n")
    project.git("add", "-A")
    project.git("commit", "-qm", "several")
    return project


def test_the_slowest_are_tried_and_one_that_can_not_be_compared_is_skipped_and_resumed(several):
    words = ("optimize", ".", "--all", "--candidates", "drafts", *QUICKLY)
    stopped = several(*words, "--budget", "3req")
    assert stopped.code == 3, stopped.err
    said = several("resume", "optimize-1", "--budget", "100req", "--json")
    assert said.code == 0, said.err
    (found,) = [json.loads(line) for line in said.out.splitlines() if '"functions"' in line]
    verdicts = {
        one["target"]: {each["name"]: each["verdict"] for each in one["candidates"]}
        for one in found["functions"]
    }
    assert verdicts == {
        "sums.py::pairs": {"fast": "same"},
        "sums.py::Bag.total": {"right": "same", "wrong": "wrong"},
    }
    assert next(iter(verdicts)) == "sums.py::pairs"
    assert "not do the same twice" in found["skipped"]["sums.py::noise"]
    page = (several.folder / ".abreast/reports/optimize-1.html").read_text()
    assert "sums.py::Bag.total" in page
    assert "<script" not in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere", "--all", "--tests", "test_sums.py", "--candidates", "d"), "no nowhere"),
        ((".", "--all", "--hints", "--candidates", "d"), "--tests or --workload"),
        ((".", "--all", "--tests", "test_sums.py", "--refs", "a"), "--candidates, --command"),
        ((".", "--all", "--tests", "t", "--candidates", "d", "--top", "0"), "--top"),
    ],
)
def test_what_all_needs_is_said(project, words, said):
    ended = project("optimize", *words)
    assert ended.code == 2
    assert said in ended.err


def test_changes_of_different_lines_are_merged_and_others_are_not():
    base = "".join(f"line {at}\n" for at in range(20))
    one, other = base.replace("line 2\n", "x\n"), base.replace("line 15\n", "y\n")
    assert _merge_texts(one, base, other) == one.replace("line 15\n", "y\n")
    assert _merge_texts(one, base, base.replace("line 2\n", "z\n")) is None


def test_winners_of_several_files_are_merged_file_by_file_or_not_at_all(project, monkeypatch):
    for name, value in project.environment.items():
        monkeypatch.setenv(name, value)
    spec = CandidatesSpec("sums.py", all=True, tests=("test_sums.py",), candidates="drafts")
    tools = FunctionsTools(spec, project.folder)
    function = RankedFunction("sums.py", "pairs", 3, 0.5, 0.9)
    text = (project.folder / "sums.py").read_text()
    winner = Tried("a", "patch", None, "faster", "", "# new\n" + text)
    helper = FileChange("helper.py", None, "x = 1\n")
    first = tools._with_winner(function, replace(winner, files=(helper,)))
    assert list(first) == ["sums.py", "helper.py"]
    tools._merged |= first
    below = replace(winner, text=text + "# below\n")
    second = tools._with_winner(function, replace(below, files=(helper,)))
    assert second["sums.py"].after == "# new\n" + text + "# below\n"
    other = replace(helper, after="x = 2\n")
    assert tools._with_winner(function, replace(below, files=(other,))) is None


def test_the_report_has_a_line_for_each_function_and_one_patch():
    fast = Tried(
        "fast",
        "file",
        parent=None,
        text="b\n",
        verdict="faster",
        reason="",
        checked=Checked("same", kinds=("trace",)),
        timed=Timed("faster", ratio=2.0, low=1.9, high=2.1, noise_floor=0.01),
    )
    part = CandidatesReport(Target("m.py", "f"), "a\n", [fast])
    report = FunctionsReport(
        "pkg",
        [(RankedFunction("m.py", "f", 3, 0.5, 0.9), part)],
        {"m.py::g": "no test calls g"},
        {"m.py": FileChange("m.py", "a\n", "b\n")},
        ["m.py::h"],
        unranked=2,
        steps=[(0, (FileChange("m.py", "a\n", "b\n"),))],
    )
    *lines, last = report.headline().splitlines()
    assert last == "1 of 2 functions became faster: f; 2 more were not tried"
    assert lines[0].startswith("m.py::f (90% of the time, 3 calls): fast behaves")
    assert lines[0].endswith("by the evidence of trace")
    assert lines[1:] == [
        "m.py::g was skipped: no test calls g",
        "m.py::h is not in the patch: it changes what another changes",
    ]
    assert report.patch.startswith("--- a/m.py\n+++ b/m.py\n")
    assert report.winner.name == "fast"
    assert report.tried[0].name == "f/fast"
    assert report.rows()[0][:2] == ("f/fast", "faster")
    assert (report.noise_floor, report.walls, report.uncounted) == (0.01, "nothing was run", "")
    assert report.plain()["winners"] == ["fast"]
    (commit,) = report.commits("optimize-1")
    assert commit.message.startswith("Make f 2.00x as fast\n")
    assert [one.after for one in commit.changes] == ["b\n"]
    assert "m.py::g was skipped" in report.html({"run": "optimize-1"})
