"""Calls of the target where there are no tests."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from abreast.executors.commands import Commands
from abreast.jobs.candidates.behaviour.bundle import BUNDLE
from abreast.jobs.candidates.behaviour.evidence import (
    EvidenceSources,
    calls_workload,
    expressions_in,
    hinted_workload,
    proposed_workload,
    traced_calls,
    usable_calls,
)
from abreast.jobs.candidates.behaviour.traced_run import judge_behaviour
from abreast.jobs.candidates.behaviour.verdict import BaselineFailed
from abreast.jobs.candidates.evaluator import Bounds, Evaluator
from abreast.jobs.candidates.rules import STRICT
from abreast.jobs.candidates.source.target import Target
from tests.jobs.candidates.watched import open_project, use_cache

SUMS = '''
def double(numbers: list[int], times: int = 2) -> list[int]:
    """Multiply each.

    >>> double([1, 2])
    [2, 4]
    """
    found = []
    for one in numbers:
        found = found + [one * times]
    return found


def other(number):
    """
    >>> other(1)
    1
    >>> other(2)
    3
    """
    return double([number], 1)[0]


class Counter:
    def __init__(self, start: int) -> None:
        self.start = start

    def up_to(self, end: int):
        yield from range(self.start, end)

    async def later(self, more: int) -> int:
        return self.start + more

    @classmethod
    def named(cls, name: str) -> str:
        return cls.__name__ + name

    @property
    def half(self) -> float:
        return self.start / 2
'''
APP = """
import subprocess, sys
from sums import Counter, double
print(double([3, 4]), double([3, 4]), double(numbers=[5], times=3))
print(list(Counter(2).up_to(5)), Counter(3).half, Counter.named("x"))
import asyncio
print(asyncio.run(Counter(1).later(2)))
if len(sys.argv) > 1:
    subprocess.run([sys.executable, "-c", "from sums import double; double([9] * 4000)"])
    subprocess.run([sys.executable, "-c", "import slowly, sums; sums.double([9] * 40)"])
"""
# A call of this process takes a hundred seconds by the clock that the recording reads.
SLOWLY = f"""
from itertools import count
from {BUNDLE}.child import recording
recording.perf_counter = count(0, 100).__next__
"""
FILES = {"sums.py": SUMS, "app.py": APP, "slowly.py": SLOWLY}


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    use_cache(monkeypatch, tmp_path)


def project_of(tmp_path, qualname="double", **files):
    return open_project(tmp_path / "p", FILES | files, f"sums.py::{qualname}", ())


def called(watched):
    return [one.name for one in watched.invocations]


async def with_workloads(project, *workloads):
    project.tests = replace(project.tests, workloads=workloads)
    watched = await project.watch()
    assert watched.failure is None, watched.reason
    return watched


async def trace(project, command="python app.py"):
    async with Commands() as commands:
        return await traced_calls(
            command,
            commands,
            target=project.target,
            root=project.slot.repository.top,
            cwd=project.slot.repository.top,
            python=sys.executable,
        )


async def test_doctests_and_scripts_are_run_like_tests(tmp_path):
    async with project_of(tmp_path) as project:
        sources = EvidenceSources(doctests=True, scripts=("app.py",))
        assert sources.kinds == ("doctests", "workload")
        watched = await with_workloads(project, *sources.workloads())
        outcomes = {
            "sums.double (doctest)": "passed",
            "sums.other (doctest)": "failed",
            "app.py (workload)": "passed",
        }
        assert dict(watched.outcomes) == outcomes
        assert "Expected: 3 Got: 2" in watched.messages["sums.other (doctest)"]
        assert called(watched) == [
            "sums.double (doctest)#0",
            *(f"sums.other (doctest)#{at}" for at in range(2)),
            *(f"app.py (workload)#{at}" for at in range(3)),
        ]
        wrong = await project.watch(SUMS.replace("one * times]", "one + one]"))
        found = judge_behaviour(watched, wrong, STRICT)
        assert found.verdict == "wrong"
        assert "app.py (workload)#2" in {one.name for one in found.findings}


@pytest.mark.parametrize(
    ("script", "outcome"),
    [("import sums, sys; sys.exit()", "passed"), ("import sums, sys; sys.exit(3)", "failed")],
)
async def test_a_script_fails_with_its_exit_code(tmp_path, script, outcome):
    async with project_of(tmp_path, **{"run/it.py": script}) as project:
        watched = await with_workloads(project, {"kind": "script", "path": "run/it.py"})
        assert dict(watched.outcomes) == {"run/it.py (workload)": outcome}


@pytest.mark.parametrize(
    ("qualname", "shown"),
    [
        ("double", ["double([3, 4])", "double(numbers=[5], times=3)"]),
        ("Counter.up_to", ["up_to(5)"]),
        ("Counter.later", ["later(2)"]),
        ("Counter.named", ["named('x')"]),
        ("Counter.half", ["half()"]),
    ],
)
async def test_the_calls_of_a_program_are_recorded_once_and_made_again(tmp_path, qualname, shown):
    async with project_of(tmp_path, qualname) as project:
        calls = await trace(project)
        assert len(calls) == len(shown)
        watched = await with_workloads(project, calls_workload("trace", calls))
        assert called(watched) == [f"trace {number}#0" for number in range(1, len(shown) + 1)]
        assert {word for _, word in watched.outcomes} == {"passed"}


async def test_calls_of_processes_that_the_program_starts_count_and_the_longest_are_kept(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("abreast.jobs.candidates.behaviour.evidence._MAX_CALLS", 1)
    monkeypatch.setattr("abreast.jobs.candidates.behaviour.evidence._LONGEST_CALLS", 1)
    async with project_of(tmp_path) as project:
        monkeypatch.chdir(project.slot.repository.top)
        (call,) = await trace(project, "python app.py more")
        assert len(call.items[1].items[0].items) == 40  # that of 4,000 is too large


async def test_a_program_without_such_calls_is_an_error_that_says_how_it_ended(tmp_path):
    async with project_of(tmp_path, "other") as project:
        with pytest.raises(BaselineFailed, match=r"'python app\.py' makes no call of other$"):
            await trace(project)
        with pytest.raises(BaselineFailed, match="exit code 1") as failed:
            await trace(project, "python -c 'import nothing_here'")
        assert "nothing_here" in failed.value.said[-1]


async def test_the_program_keeps_its_own_start_up_module(tmp_path, monkeypatch):
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text("import builtins; builtins.mine = 7\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    async with project_of(tmp_path) as project:
        (call,) = await trace(project, "python -c 'from sums import double; double([mine])'")
        assert str(call.items[1].items[0]) == "[7]"


async def test_calls_are_drawn_from_type_hints(tmp_path):
    pytest.importorskip("hypothesis")
    async with project_of(tmp_path) as project:
        drawn = usable_calls(await with_workloads(project, hinted_workload()), "none")
        assert len(drawn) > 20
        watched = await with_workloads(project, calls_workload("type hints", drawn))
        assert len(watched.invocations) == len(drawn)
        # A factor that no number of the doctest would show.
        wrong = await project.watch(SUMS.replace("one * times]", "one + one]"))
        assert judge_behaviour(watched, wrong, STRICT).verdict == "wrong"


async def test_without_usable_hints_the_reason_is_said(tmp_path):
    pytest.importorskip("hypothesis")
    async with project_of(tmp_path, "other") as project:
        project.tests = replace(project.tests, workloads=(hinted_workload(),))
        with pytest.raises(BaselineFailed, match="number has no type hint"):
            usable_calls(await project.watch(), "none")
    raising = "def f(a: int) -> int:\n    raise ValueError\n"
    async with open_project(tmp_path / "q", {"f.py": raising}, "f.py::f", ()) as project:
        project.tests = replace(project.tests, workloads=(hinted_workload(),))
        with pytest.raises(BaselineFailed, match="raises an error"):
            usable_calls(await project.watch(), "f raises an error")


PROPOSED = """
double([1, 2])
double([1,  2])
assert double([3], times=5) == [99]
answer = double([])
double("no", None)
import os
[double([one]) for one in range(3)]
"""


def test_calls_are_read_from_a_reply_as_expressions_each_once():
    assert expressions_in(PROPOSED) == [
        "double([1, 2])",
        "double([3], times=5)",
        "double([])",
        "double('no', None)",
        "[double([one]) for one in range(3)]",
    ]
    assert expressions_in("Here you are:\n>>> double([1])\n1. double([2])\ndouble([3]") == [
        "double([1])"
    ]
    assert expressions_in("a" * 10 + "(" * 100_000) == []


async def test_calls_that_a_model_proposes_are_made_with_the_original_first(tmp_path):
    async with project_of(tmp_path) as project:
        tried = await with_workloads(project, proposed_workload(PROPOSED))
        assert len(tried.invocations) == 7
        calls = usable_calls(tried, "none")
        assert len(calls) == 6  # all but the one that raises
        watched = await with_workloads(project, calls_workload("proposed calls", calls))
        assert len(watched.invocations) == 6
        wrong = await project.watch(SUMS.replace("one * times]", "one + one]"))
        assert judge_behaviour(watched, wrong, STRICT).verdict == "wrong"


async def test_a_proposal_without_a_call_that_works_is_an_error_that_names_the_model(tmp_path):
    async with project_of(tmp_path) as project:
        sources = EvidenceSources(calls_by="storm/any")
        arguments = (project.target, SUMS, project.tests, Bounds(timing=False, generated=0))
        evaluator = Evaluator(*arguments, sources, cwd=tmp_path)

        async def ask():
            return "double(None)\nundefined(1)"

        evaluator.ask_for_calls = ask
        with pytest.raises(BaselineFailed, match="storm/any proposes no call that double answers"):
            await evaluator.begin(project.slot)


async def test_a_resumed_run_makes_the_calls_that_were_recorded(tmp_path):
    async with project_of(tmp_path) as project:
        sources = EvidenceSources(doctests=True, trace="python app.py")
        arguments = (project.target, SUMS, project.tests, Bounds(timing=False, generated=0))
        top = Path(project.slot.repository.top)
        first = Evaluator(*arguments, sources, cwd=top)
        seen = await first.begin(project.slot)
        os.rename(top / "app.py", top / "gone.py")  # noqa: PTH104 - Path is refused in async code
        again = Evaluator(*arguments, sources, cwd=top)
        again.ready(seen, project.slot)
        checked = await again.check(project.slot, SUMS)
        assert (checked.verdict, checked.invocations) == ("same", 5)
        assert checked.kinds == ("doctests", "trace")
        assert "5 calls of doctests and trace (3 of 4 items pass)" in checked.evidence
        assert Evaluator(*arguments).target == Target("sums.py", "double")
