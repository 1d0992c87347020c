"""The benchmarks of plans measure what they say, and what became slower fails."""

import json
import shutil
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from benchmarks import regression
from benchmarks.plans import division, loads, subplans
from benchmarks.plans.__main__ import MOST, SECONDS, main

ROOT = Path(__file__).parents[3]


def test_fifteen_at_ten_and_the_curve_are_tracked(monkeypatch):
    measured = []

    def noted(plan, width, **more):
        measured.append((len(plan.leaves), width, more.get("store") is not None))
        return loads.makespan(plan, width, nap=0.001, **more)

    monkeypatch.setattr(subplans, "makespan", noted)
    for kept in subplans.FifteenAtTen.params[0]:
        bench = subplans.FifteenAtTen()
        bench.setup(kept)
        assert bench.track_makespan(kept) >= 1
        bench.teardown(kept)
    assert measured == [(15, 10, False), (15, 10, True)]
    measured.clear()
    for width in (subplans.Curve.params[0][0], subplans.Curve.params[0][-1]):
        bench = subplans.Curve()
        bench.setup(width)
        assert bench.track_makespan(width) >= 1
    assert measured == [(50, 1, False), (50, 50, False)]


def test_a_scheduler_that_runs_fewer_or_more_at_once_is_no_measurement(monkeypatch):
    real = loads.PlanOptions
    for wrong in (1, 15):
        monkeypatch.setattr(loads, "PlanOptions", lambda width, wrong=wrong: real(width=wrong))
        with pytest.raises(RuntimeError, match="ran at once, not 10"):
            loads.makespan(loads.plan_of(15), 10, nap=0.001)


def test_a_thousand_and_ten_thousand_files_are_tracked():
    assert division.Division.params == ([1_000, 10_000], ["mixed", "alike"])
    bench = division.Division()
    bench.setup(1_000, "mixed")
    bench.time_divide(1_000, "mixed")
    assert len(loads.divide("mixed", bench.files).leaves) > 15
    assert json.loads((ROOT / "benchmarks/asv.conf.json").read_text())["benchmark_dir"] == "plans"


def test_a_target_that_is_missed_fails(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["plans", "--rounds", "1"])
    monkeypatch.setattr("benchmarks.plans.__main__.divide", lambda kind, files: None)
    for ratio, code in ((1.05, 0), (1.2, 1)):
        monkeypatch.setattr(
            "benchmarks.plans.__main__.makespan", lambda *_, ratio=ratio, **__: ratio
        )
        assert main() == code
    assert "15 subplans at 10 " in capsys.readouterr().out
    assert (MOST, SECONDS) == (1.1, {"mixed": 2.0, "alike": 1.0})


@pytest.fixture
def earlier(monkeypatch, tmp_path):
    """A tree to compare with, which takes 10 us for an item of every load.

    `takes` says what this one takes.
    """
    (tmp_path / "abreast/jobs/plan").mkdir(parents=True)
    (tmp_path / "abreast/jobs/plan/job.py").touch()

    @contextmanager
    def checked_out(_):
        yield tmp_path

    def takes(microseconds):
        def measured(library, load, told):
            assert bool(told) == (load[0] == "D")  # only the chat has a server
            return 10.0 if library == tmp_path else microseconds(load[0])

        monkeypatch.setattr(regression, "cpu_per_item", measured)

    monkeypatch.setattr(regression, "checked_out", checked_out)
    monkeypatch.setattr(regression, "chat_server", lambda _: nullcontext({"URL": "of no server"}))
    return takes


def compared(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["regression", "--base", "before", "--rounds", "1", *words])
    return regression.main()


@pytest.mark.parametrize(("slower", "code"), [(1.0, 0), (1.2, 0), (1.3, 1)])
@pytest.mark.parametrize("load", ["A", "P15", "P10k"])
def test_what_became_slower_than_before_fails(monkeypatch, earlier, load, slower, code):
    earlier(lambda name: 10 * (slower if name == load else 1))
    assert compared(monkeypatch) == code


@pytest.mark.parametrize(
    ("load", "slower", "code"),
    [
        *((load, slower, code) for load in "CD" for slower, code in ((1.0, 0), (1.4, 0), (1.6, 1))),
        ("A", 1.9, 0),
        ("A", 2.1, 1),
    ],
)
def test_the_short_comparison_fails_too(monkeypatch, earlier, load, slower, code):
    earlier(lambda name: 10 * (slower if name == load else 1))
    assert compared(monkeypatch, "--short") == code


def test_one_slow_round_is_measured_again_before_it_fails_the_short_comparison(
    monkeypatch, earlier
):
    times = iter([100.0, *[10.0] * 50])
    earlier(lambda _: next(times))
    assert compared(monkeypatch, "--short") == 0


def test_without_a_commit_to_compare_with_the_short_comparison_says_so_and_passes(
    monkeypatch, capsys, tmp_path
):
    monkeypatch.setattr(regression, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["regression", "--short"])
    assert regression.main() == 0
    assert "not compared: there is no commit 'HEAD~1'" in capsys.readouterr().out
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    assert regression.main() == 0
    # A base that is requested but does not exist is an error.
    for words in (["--short", "--base", "v9"], []):
        monkeypatch.setattr(sys, "argv", ["regression", *words])
        with pytest.raises(SystemExit, match="there is no commit"):
            regression.main()


def test_the_earlier_library_is_that_of_the_commit_and_the_repository_is_only_read(
    monkeypatch, tmp_path
):
    def git(*words):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(
            ["git", *who, *words], cwd=tmp_path, check=True, capture_output=True
        ).stdout

    (tmp_path / "src").mkdir()
    git("init", "--quiet")
    for text in ("before", "now"):
        (tmp_path / "src/library.py").write_text(text)
        git("add", "-A")
        git("commit", "--quiet", "-m", text)
    monkeypatch.setattr(regression, "ROOT", tmp_path)
    with regression.checked_out(regression.find_base()) as library:
        assert (library / "library.py").read_text() == "before"
    assert len(git("worktree", "list").splitlines()) == 1
    git("tag", "v1")
    (tmp_path / "src/library.py").write_text("not committed")
    with regression.checked_out(regression.find_base()) as library:
        assert (library / "library.py").read_text() == "now"


def test_a_slowdown_that_is_planted_in_the_library_is_measured(tmp_path):
    """By real processes: ten thousand steps for each item, where there were some hundred."""
    planted = tmp_path / "src"
    shutil.copytree(
        ROOT / "src", planted, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    window = planted / "abreast/core/window.py"
    text = window.read_text()
    assert "def settle(self, index: int, outcome: T) -> None:\n" in text
    slow = "def settle(self, index: int, outcome: T) -> None:\n        sum(range(100_000))\n"
    window.write_text(text.replace("def settle(self, index: int, outcome: T) -> None:\n", slow))
    load = ("C", 50, 10, 1)
    assert regression.became_slower(load, {"now": planted, "before": ROOT / "src"}, 1, 1.5, again=1)
    assert not regression.became_slower(load, {"now": ROOT / "src", "before": planted}, 1, 1.5)
