"""The benchmarks of plans measure what they say, and what became slower fails."""

import json
import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from benchmarks import regression
from benchmarks.plans import division, loads, subplans
from benchmarks.plans.__main__ import MOST, SECONDS, main

ROOT = Path(__file__).parents[3]


def test_fifteen_at_ten_and_the_curve_are_tracked():
    assert len(loads.plan_of(15).leaves) == 15
    assert loads.makespan(loads.plan_of(15), 10, nap=0.001) >= 1
    for kept in subplans.FifteenAtTen.params[0]:
        bench = subplans.FifteenAtTen()
        bench.setup(kept)
        assert bench.track_makespan(kept) >= 1
        bench.teardown(kept)
    assert subplans.Curve.params[0][0] == 1
    assert subplans.Curve.params[0][-1] == 50
    bench = subplans.Curve()
    bench.setup(50)
    assert bench.track_makespan(50) >= 1


def test_a_scheduler_that_runs_fewer_or_more_at_once_is_no_measurement(monkeypatch):
    real = loads.How
    for wrong in (1, 15):
        monkeypatch.setattr(loads, "How", lambda width, wrong=wrong: real(width=wrong))
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
        monkeypatch.setattr("benchmarks.plans.__main__.makespan", lambda *_, ratio=ratio, **__: ratio)
        assert main() == code
    assert "15 subplans at 10 " in capsys.readouterr().out
    assert (MOST, SECONDS) == (1.1, {"mixed": 2.0, "alike": 1.0})


@pytest.mark.parametrize(("slower", "code"), [(1.0, 0), (1.2, 0), (1.3, 1)])
@pytest.mark.parametrize("load", ["A", "D", "P15", "P10k"])
def test_what_became_slower_than_before_fails(monkeypatch, tmp_path, load, slower, code):
    (tmp_path / "abreast/jobs/plan").mkdir(parents=True)
    (tmp_path / "abreast/jobs/plan/execute.py").touch()

    @contextmanager
    def checked_out(_):
        yield tmp_path

    def measured(library, given, _):
        return 10 * (slower if library != tmp_path and given[0] == load else 1)

    monkeypatch.setattr(regression, "checked_out", checked_out)
    monkeypatch.setattr(regression, "cpu_per_item", measured)
    monkeypatch.setattr(regression, "chat_server", lambda _: nullcontext({}))
    monkeypatch.setattr(sys, "argv", ["regression", "--base", "before", "--rounds", "1"])
    assert regression.main() == code
