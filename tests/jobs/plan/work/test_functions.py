"""A subplan's work as a function of this process."""

import asyncio
import threading
from pathlib import Path

import pytest

from abreast.jobs.plan.errors import SubplanFailed
from abreast.jobs.plan.work.assignment import Assignment
from abreast.jobs.plan.work.functions import FunctionTask

PART = Assignment("a-1", "a/", ("a/b.py",), "do it", Path("/nowhere"))
TURNS = 5  # of the loop, in which a cancelled task would end


async def test_a_plain_function_that_is_stopped_is_waited_for():
    """Its worktree goes to another subplan, in which it must not write."""
    started, go, ended = threading.Event(), threading.Event(), []

    def work(part):
        started.set()
        go.wait(60)
        ended.append(part.id)

    task = asyncio.create_task(FunctionTask(work)(PART))
    await asyncio.to_thread(started.wait, 10)
    task.cancel()
    for _ in range(TURNS):
        await asyncio.sleep(0)
    assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["a-1"]


async def test_a_function_gives_its_value_and_its_error_is_that_of_the_subplan():
    async def later(part):
        return part.files

    def sooner(part):
        return later(part)

    for work in (later, sooner):
        assert await FunctionTask(work)(PART) == {"value": ("a/b.py",)}
    with pytest.raises(SubplanFailed, match="ZeroDivisionError"):
        await FunctionTask(lambda _: 1 / 0)(PART)
