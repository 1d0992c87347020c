"""Given the same replies, any workflow gives the same result at any width, timing and crash.

And this test can fail.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.core.errors import AbreastError
from abreast.jobs.workflow.steps import fan_out
from abreast.jobs.workflow.steps.records import StepFrame
from abreast.run.run import Run
from tests.jobs.workflow.authors import WIDE, Author, Chaos, Photographing, run
from tests.jobs.workflow.crash_job import WIDTH
from tests.jobs.workflow.kits import recorded
from tests.properties import tried

JOB = Path(__file__).with_name("crash_job.py")
PATIENCE = 60.0  # real seconds: a safety net against a hang


def drawn(choose):
    """Draw a file, its steps' replies, and their order of ending, which is not shrunk."""
    return Author(choose).file(), choose.randrange(1000), random.Random(choose.randrange(1 << 30))


async def same_at_any_width(choose, engine=nullcontext):
    """Run a random workflow one by one, and side by side in a random order by `engine`."""
    text, world, order = drawn(choose)
    async with asyncio.timeout(PATIENCE):
        alone, wide = Chaos(world), Chaos(world, order)
        expected = await run(text, alone, 1)
        with engine():
            assert await run(text, wide, WIDE) == expected, text
        assert wide.inside == 0
        if "needs:" not in text:  # steps side by side overlap at any width
            assert set(alone.calls) <= set(wide.calls), text
    return expected, wide.peak


async def same_after_a_crash(choose):
    """Kill a random workflow at random commits and resume it: no committed success runs twice."""
    text, world, order = drawn(choose)
    async with asyncio.timeout(PATIENCE):
        expected = await run(text, Chaos(world), 1)
        store = Photographing()
        assert await run(text, Chaos(world, order), WIDE, store) == expected, text
        for _ in range(2):
            photo = order.choice(store.photos)
            done = {path for path, state in recorded(photo).items() if state == "done"}
            again = Chaos(world, order)
            assert await run(text, again, WIDE, photo) == expected, text
            repeated = {path for path in again.calls if path in done}
            assert not repeated, text
    return expected, len(store.photos)


@tried(100)
@given(st.randoms(use_true_random=False))
def test_a_workflow_gives_the_same_result_at_any_width_and_order_of_completion(choose):
    asyncio.run(same_at_any_width(choose))


@tried(40)
@given(st.randoms(use_true_random=False))
def test_a_workflow_that_was_killed_anywhere_goes_on_to_the_same_result_and_repeats_nothing(choose):
    asyncio.run(same_after_a_crash(choose))


def test_the_random_workflows_end_in_all_ways_and_really_overlap():
    ends, peaks, sizes = set(), set(), set()
    for seed in range(80):
        expected, peak = asyncio.run(same_at_any_width(random.Random(f"author-{seed}")))
        ends.add(expected[0])
        peaks.add(peak)
        sizes.add(len(expected[-1]))
    assert ends == {"completed", "failed", "paused", "aborted", "raised"}
    assert max(peaks) >= WIDE
    assert max(sizes) > 30


# --- mutants ------------------------------------------------------------------------------------


def completion_order(monkeypatch):
    real = Run.map
    monkeypatch.setattr(
        Run,
        "map",
        lambda self, *args, **options: real(self, *args, **{**options, "order": "completion"}),
    )


def shared_item(monkeypatch):
    def of_item(self, run, parent, index, item):
        self.names["item"] = item
        return StepFrame(run, self.names, lambda name: f"{parent}:{name}:{index}", {})

    monkeypatch.setattr(StepFrame, "of_item", of_item)


def shared_steps(monkeypatch):
    def of_item(self, run, parent, index, item):
        return StepFrame(
            run, {**self.names, "item": item}, lambda name: f"{parent}:{name}:{index}", {}
        )

    monkeypatch.setattr(StepFrame, "of_item", of_item)


def no_judge(monkeypatch):
    def judge(self, outcome):
        self._canary_passed.set()
        return False

    monkeypatch.setattr(fan_out._HaltCondition, "__call__", judge)


def growing_results(monkeypatch):
    real = StepFrame.merge

    def merge(self, records):
        real(self, records)
        for name, seen in self.names["steps"].items():
            if seen["type"] == "fan-out" and any(one.startswith(f"{name}:") for one in records):
                seen["output"]["results"].append({})

    monkeypatch.setattr(StepFrame, "merge", merge)


def first_failure_in_time(monkeypatch):
    real = fan_out._ItemWork.__call__

    async def call(self, value):
        try:
            return await real(self, value)
        except fan_out.StepHalted:
            self._frame.run.halt("one has failed")
            raise

    monkeypatch.setattr(fan_out._ItemWork, "__call__", call)


@pytest.mark.parametrize(
    "mutant",
    [completion_order, shared_item, shared_steps, no_judge, growing_results, first_failure_in_time],
)
def test_a_mutant_of_the_engine_breaks_the_law(mutant):
    @contextmanager
    def broken():
        with pytest.MonkeyPatch.context() as patch:
            mutant(patch)
            yield

    for seed in range(100):
        try:
            asyncio.run(same_at_any_width(random.Random(f"author-{seed}"), broken))
        except (AssertionError, ExceptionGroup, AbreastError, TimeoutError):
            return
    pytest.fail(f"{mutant.__name__} is not noticed")


# --- real kills ---------------------------------------------------------------------------------


def executed(folder):
    return {path.name.replace("+", "/"): path.stat().st_size for path in folder.iterdir()}


def done_on_disk(place):
    with closing(sqlite3.connect(place)) as db:
        rows = db.execute("SELECT path, data FROM events WHERE kind = 'item-settled'").fetchall()
    return {path for path, data in rows if json.loads(data)["state"] == "done"}


@pytest.mark.parametrize(
    ("commit", "when"), [(2, "before"), (4, "after"), (7, "before"), (9, "after")]
)
def test_a_workflow_that_is_really_killed_repeats_no_committed_step_and_at_most_its_width(
    tmp_path, warm, commit, when
):
    def job(name, *crash):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        arguments = (str(tmp_path / f"{name}.db"), str(folder), *map(str, crash))
        code, out, err = warm.run(
            str(JOB), arguments, cwd=tmp_path, environment={**os.environ}, patience=60
        )
        return code, out.decode(), err.decode()

    calm = job("calm")
    assert calm[0] == 0, calm[2]
    assert job("killed", commit, when)[0] == -signal.SIGKILL
    done, before = done_on_disk(tmp_path / "killed.db"), executed(tmp_path / "killed")
    code, out, err = job("killed")
    assert (code, out) == (0, calm[1]), err
    after = executed(tmp_path / "killed")
    assert set(after) == set(executed(tmp_path / "calm"))
    assert all(after[path] == before[path] for path in done if path in before)
    assert (
        sum(after.values()) - len(after) <= 2 * WIDTH
    )  # items abreast, each with two steps abreast in it
