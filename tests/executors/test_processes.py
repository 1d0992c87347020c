"""The process executor: workers are reused, crash alone, and are killed when they must be."""

import asyncio
import contextlib
import gc
import multiprocessing
import os
import re
import select
import signal
import subprocess
import sys
import threading

import pytest

import abreast
from abreast.core.errors import RecordedError, TimedOut, WorkerDied
from abreast.executors.processes import ProcessExecutor
from abreast.executors.worker_process import WorkerProcess
from abreast.testing import ManualClock
from tests.executors import work
from tests.executors.meeting import open_meeting
from tests.executors.traces import (
    children,
    nothing_left,
    wait_until_ended,
    wait_until_ended_beside,
    watch,
)


@pytest.fixture(autouse=True)
def _nothing_left():
    gc.collect()  # garbage of other tests is not counted
    list(abreast.map(abs, [1], width=1))  # the synchronous `map` keeps its loop once it has one
    with nothing_left():
        yield


@pytest.fixture(params=["pidfd", "without"])
def _either_way_to_notice_an_end(request, monkeypatch):
    if request.param == "without":  # as on macOS
        monkeypatch.delattr(os, "pidfd_open")


async def outcomes(fn, items, **options):
    async with abreast.open_run("process", executor="process") as run:
        return [outcome async for outcome in run.map(fn, items, **{"width": 1, **options})]


async def values(fn, items, **options):
    return [outcome.value for outcome in await outcomes(fn, items, **options)]


# --- workers


async def test_a_worker_is_used_again_and_leads_a_group_of_its_own():
    seen = set(await values(work.who, range(5)))
    ((pid, session, group),) = seen
    assert pid == session == group != os.getpid()


async def test_workers_start_only_as_items_come():
    bound = ProcessExecutor().bind(work.who, 8)
    before = children()
    await bound.async_call(1)
    await bound.async_call(2)
    assert len(children() - before) == 1
    assert await bound.close(60) == []


async def test_values_larger_than_any_buffer_go_there_and_back():
    big = bytes(range(256)) * 20_000
    assert await values(work.double, [big, b"small", big], width=2) == [
        big * 2,
        b"small" * 2,
        big * 2,
    ]


async def test_what_an_item_prints_is_seen_even_if_the_worker_is_killed_later(capfd, monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    bound = ProcessExecutor().bind(work.speak, 1)
    await bound.async_call("hello")
    (child,) = bound._children
    child.kill()
    await child.ended
    assert capfd.readouterr().out == "hello"
    assert await bound.close(60) == []


async def test_a_worker_that_dies_idle_costs_no_item():
    bound = ProcessExecutor().bind(work.who, 1)
    first = (await bound.async_call(0))[0]
    with watch(first) as handles:
        os.kill(first, signal.SIGKILL)
        assert wait_until_ended(handles) == set()  # the loop had no turn to notice it
    second = (await bound.async_call(0))[0]
    with watch(second) as handles:
        os.kill(second, signal.SIGKILL)
        assert await wait_until_ended_beside(handles) == set()  # the loop has noticed it
    third = (await bound.async_call(0))[0]
    assert len({first, second, third}) == 3
    await bound.close(60)


async def test_an_answer_counts_although_its_worker_has_ended_since():
    bound = ProcessExecutor().bind(work.double, 1)
    await bound.async_call(0)
    (child,) = bound._children
    call = asyncio.create_task(bound.async_call(4))
    await asyncio.sleep(0)  # it is sent
    child.close_input()
    asyncio.get_running_loop().remove_reader(child._socket)  # so that the end is noticed first
    with watch(child.pid) as handles:
        assert wait_until_ended(handles) == set()
    assert await call == 8
    assert await bound.close(60) == []


async def test_a_worker_can_open_the_managers_of_its_driver():
    assert await values(work.key_to_managers, [0]) == [
        bytes(multiprocessing.current_process().authkey)
    ]


async def test_a_worker_that_cannot_be_started_is_the_items_failure(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/nowhere/python")
        (failed,) = await outcomes(work.double, [1])
        assert type(failed.error) is FileNotFoundError


async def test_a_map_within_an_item_may_use_processes_too():
    assert await values(work.map_in_processes, [[1, 2], [3]]) == [[2, 4], [6]]


async def test_a_place_in_another_process_says_that_its_run_is_elsewhere():
    (failed,) = await outcomes(work.run_of_mine, [1])
    assert type(failed.error) is RuntimeError
    assert "another process" in str(failed.error)


def test_the_sync_door_opens_to_processes():
    found = list(abreast.map(work.double, range(5), width=2, executor="process"))
    assert [outcome.value for outcome in found] == [0, 2, 4, 6, 8]


def test_leaving_the_sync_door_early_ends_the_workers():
    found = abreast.map(work.who, iter(int, 1), width=2, executor="process")
    next(found)
    assert children()
    found.close()


async def test_a_program_that_an_item_starts_gets_none_of_our_pipes():
    (listed,) = await values(work.start_a_program, [0])
    numbers = {int(line.split()[-3]) for line in listed.splitlines() if b" -> " in line}
    assert numbers == {0, 1, 2, 3}  # 3 is the listing itself


# --- what can't be pickled


@pytest.mark.parametrize(
    "fn", [lambda x: x, threading.Lock().acquire], ids=["lambda", "method of a lock"]
)
async def test_what_has_no_name_is_refused_before_anything_starts(fn):
    read = []
    with pytest.raises(
        TypeError, match="carries module-level functions only, no lambda or closure"
    ):
        await outcomes(fn, map(read.append, range(3)), name="nameless")
    assert read == []


async def test_what_has_no_name_is_refused_in_a_step_too():
    async with abreast.open_run("process", executor="process") as run:
        with pytest.raises(TypeError, match=r"module-level functions only.*<lambda>"):
            await run.step("add", lambda x, y: x + y, 1, 2)


async def test_an_item_that_cannot_be_pickled_fails_by_name():
    failed, fine = await outcomes(work.double, [threading.Lock(), 2])
    assert type(failed.error) is TypeError
    assert re.match(
        r"item <unlocked.*>, a lock, or what it holds can't be taken to another process",
        str(failed.error),
    )
    assert fine.value == 4


async def test_a_value_that_cannot_be_pickled_fails_by_item_and_type():
    failed, unread, fine = await outcomes(work.give_back, ["lambda", "unreadable", "nothing"])
    assert type(failed.error) is TypeError
    assert "the value of item 'lambda', a function, can't leave its process" in str(failed.error)
    assert type(unread.error) is TypeError
    assert "the value of item 'unreadable' can't be read here: not from here" in str(unread.error)
    assert type(unread.error.__cause__) is LookupError
    assert fine.value is None


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ("locked", "tests.executors.work.Locked", "shut"),
        ("mute", "tests.executors.work.Mute", "(its message can't be had)"),
        ("interrupt", "KeyboardInterrupt", ""),
        ("stop", "tests.executors.work.Stop", "at once"),
    ],
)
async def test_an_exception_that_cannot_travel_comes_as_a_text(how, kind, message):
    failed, fine = await outcomes(work.fail, [how, "fine"])
    assert type(failed.error) is RecordedError
    assert (failed.error.kind, failed.error.message) == (kind, message)
    assert "in fail" in failed.error.trace
    assert f"item {how!r} raised it in a worker process" in failed.error.__notes__[0]
    assert fine.value == "fine"


async def test_the_workers_traceback_shows_the_users_code_and_none_of_ours():
    (failed,) = await outcomes(work.fail, ["value"])
    (note,) = failed.error.__notes__
    assert note.startswith("In the worker process:\nTraceback (most recent call last):\n")
    assert "work.py" in note
    assert "worker.py" not in note


# --- crashes


@pytest.mark.usefixtures("_either_way_to_notice_an_end")
@pytest.mark.parametrize(
    ("how", "words"),
    [
        (3, "ended with exit code 3"),
        (0, "ended with exit code 0"),
        ("SIGKILL", "was killed by SIGKILL, perhaps because memory ran out"),
        ("SIGSEGV", "was killed by SIGSEGV"),
    ],
)
async def test_a_worker_that_dies_fails_its_own_item_and_no_other(how, words):
    found = await outcomes(work.die, ["a", how, "b", "c"], width=2)
    died = found.pop(1)
    assert type(died.error) is WorkerDied
    assert str(died.error) == f"item {how!r}: in the middle of it its worker process {words}"
    assert [outcome.value for outcome in found] == ["a", "b", "c"]


async def test_a_signal_without_a_name_is_told_by_its_number():
    bound = ProcessExecutor().bind(work.die, 1)
    await bound.async_call("fine")
    (child,) = bound._children
    child._process.returncode = -60
    assert child.how == "was killed by signal 60"
    child._process.returncode = None
    await bound.close(60)


async def test_an_item_whose_worker_died_can_be_tried_again():
    assert await values(work.die_once, [0], retry=abreast.Retry(1, base=0)) == [2]


async def test_an_item_that_closes_our_socket_is_given_up():
    (failed,) = await outcomes(work.close_everything, [0])
    assert type(failed.error) is WorkerDied


# --- cancellation and timeouts


async def test_a_cancelled_items_whole_process_group_is_killed():
    async with open_meeting() as meeting, abreast.open_run("process", executor="process") as run:
        with contextlib.ExitStack() as stack:
            async with run.map(work.bring_a_child, map(meeting.ticket, "ab"), width=2):
                await meeting.wait_for(2)
                pids = [pid for pair in meeting.came.values() for pid in pair]
                handles = stack.enter_context(watch(*pids))
            assert len(pids) == 4
            assert wait_until_ended(handles) == set()


async def test_an_item_out_of_time_has_its_group_killed_and_the_next_one_a_new_worker():
    clock = ManualClock()
    async with (
        open_meeting() as meeting,
        abreast.open_run("process", executor="process", clock=clock) as run,
    ):
        async with run.map(
            work.bring_a_child, map(meeting.ticket, "ab"), width=1, timeout=5
        ) as found:
            await meeting.wait_for(1)
            with watch(*meeting.came["a"]) as handles:
                await clock.advance(5)
                assert await wait_until_ended_beside(handles) == set()
            await meeting.wait_for(2)
            meeting.release("b")
            late, fine = [outcome async for outcome in found]
    assert type(late.error) is TimedOut
    assert fine.value == meeting.came["b"][1]
    assert meeting.came["a"][0] != meeting.came["b"][0]


async def test_what_an_item_left_running_ends_with_its_worker():
    async with open_meeting() as meeting, abreast.open_run("process", executor="process") as run:
        async with run.map(work.bring_a_child, [meeting.ticket("a")], width=1) as found:
            await meeting.wait_for(1)
            with watch(*meeting.came["a"]) as handles:
                meeting.release("a")
                assert [outcome.ok async for outcome in found] == [True]
                assert wait_until_ended(handles) == set()


async def test_a_cancelled_call_returns_when_its_worker_is_dead():
    async with open_meeting() as meeting:
        bound = ProcessExecutor().bind(work.meet, 1)
        call = asyncio.create_task(bound.async_call(meeting.ticket("a")))
        await meeting.wait_for(1)
        with watch(*meeting.came["a"]) as handles:
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert select.select(handles, [], [], 0)[0] == handles
        assert await bound.close(60) == []


async def test_a_cancellation_that_comes_after_the_answer_spares_the_worker():
    bound = ProcessExecutor().bind(work.who, 1)
    pid = (await bound.async_call(0))[0]
    call = asyncio.create_task(bound.async_call(0))
    await asyncio.sleep(0)  # it is sent
    (child,) = bound._children
    select.select([child._socket], [], [])
    child._read()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await bound.async_call(0))[0] == pid
    await bound.close(60)


async def test_a_call_that_is_dropped_takes_its_worker_along():
    async with open_meeting() as meeting:
        bound = ProcessExecutor().bind(work.meet, 1)
        call = bound.async_call(meeting.ticket("a"))
        call.send(None)
        await meeting.wait_for(1)
        with watch(*meeting.came["a"]) as handles:
            call.close()
            assert wait_until_ended(handles) == set()
        assert await bound.close(60) == []


# --- closing


@pytest.mark.usefixtures("_either_way_to_notice_an_end")
async def test_a_worker_that_will_not_leave_is_killed_after_the_grace():
    bound = ProcessExecutor().bind(work.refuse_to_leave, 1)
    with watch(await bound.async_call(0)) as handles:
        assert await bound.close(0.01) == []
        assert select.select(handles, [], [], 0)[0] == handles


async def test_busy_workers_are_killed_at_the_end():
    async with open_meeting() as meeting:
        bound = ProcessExecutor().bind(work.meet, 2)
        call = asyncio.create_task(bound.async_call(meeting.ticket("a")))
        await meeting.wait_for(1)
        assert await bound.close(60) == []
        with pytest.raises(WorkerDied, match="SIGKILL"):
            await call


async def test_a_close_that_is_cancelled_still_ends_everything():
    bound = ProcessExecutor().bind(work.refuse_to_leave, 1)
    with watch(await bound.async_call(0)) as handles:
        closing = asyncio.create_task(bound.close(60))
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert select.select(handles, [], [], 0)[0] == handles


async def test_a_worker_that_even_the_kernel_cannot_end_is_named(monkeypatch):
    bound = ProcessExecutor().bind(work.refuse_to_leave, 1)
    pid = await bound.async_call(0)
    (child,) = bound._children
    assert repr(child) == f"<worker process {pid}, idle>"
    with monkeypatch.context() as patch:
        # As if it waited for a disk that doesn't answer.
        patch.setattr(WorkerProcess, "kill", lambda self: None)
        patch.setattr(bound, "kill_timeout", 0.01)
        assert await bound.close(0.01) == [f"worker process {pid}"]
    bound.kill_timeout = 60
    assert await bound.close(0.01) == []
    assert repr(child) == f"<worker process {pid}, ended>"


ARMED = """
import ctypes, fcntl, os, signal, subprocess, sys
{before}
from abreast.executors.worker import die_with
grandchild = subprocess.Popen(["sleep", "1000"])
die_with({parent}, {lifeline})
on_death = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(on_death))
print(grandchild.pid, on_death.value, flush=True)
signal.pause()
"""


@contextlib.contextmanager
def armed(before="", parent=None):
    """A process that dies with this one; yields this end of its lifeline."""
    lifeline, ours = os.pipe()
    script = ARMED.format(before=before, parent=parent or os.getpid(), lifeline=lifeline)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with (
        os.fdopen(ours, "wb") as end,
        subprocess.Popen(
            [sys.executable, "-c", script],
            pass_fds=[lifeline],
            start_new_session=True,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        ) as worker,
    ):
        os.close(lifeline)
        try:
            yield worker, end
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)


@pytest.mark.parametrize("before", ["", "del fcntl.F_SETSIG"], ids=["by a signal", "by a thread"])
def test_the_lifelines_end_is_the_end_of_the_whole_group(before):
    with (
        armed(before) as (worker, end),
        watch(worker.pid, int(worker.stdout.readline().split()[0])) as handles,
    ):
        end.close()
        assert wait_until_ended(handles) == set()
        assert worker.wait() == -signal.SIGKILL


def test_the_parent_death_signal_is_the_end_of_the_whole_group():
    with armed() as (worker, _):
        grandchild, on_death = map(int, worker.stdout.readline().split())
        with watch(worker.pid, grandchild) as handles:
            worker.send_signal(on_death)
            assert wait_until_ended(handles) == set()


def test_a_worker_whose_driver_is_gone_already_ends_at_once():
    with armed(parent=1) as (worker, _):
        assert worker.communicate(timeout=100)[0] == ""
        assert worker.returncode == -signal.SIGKILL
