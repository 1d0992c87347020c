"""`abreast.map`, the entry point for code that is not async."""

import asyncio
import contextvars
import itertools
import os
import signal
import subprocess
import sys
import threading

import pytest

import abreast
from abreast.core.errors import BudgetSpent

who = contextvars.ContextVar("who", default="nobody")


def test_it_is_an_iterator_as_map_is():
    outcomes = abreast.map(lambda x: x * x, range(5), width=3)
    assert iter(outcomes) is outcomes
    assert [o.value for o in outcomes] == [0, 1, 4, 9, 16]
    assert list(outcomes) == []


def test_it_takes_async_functions_too():
    async def double(x):
        await asyncio.sleep(0)
        return 2 * x

    assert [o.value for o in abreast.map(double, range(4), width=2)] == [0, 2, 4, 6]


def test_an_endless_iterator_ends_with_until():
    assert [o.value for o in abreast.map(lambda x: x, itertools.count(), width=3, until=3)] == [
        0,
        1,
        2,
    ]


def test_leaving_it_early_stops_the_rest():
    started = []

    def work(item):
        started.append(item)
        return item

    outcomes = abreast.map(work, itertools.count(), width=2)
    assert next(outcomes).value == 0
    outcomes.close()
    count = len(started)
    assert list(outcomes) == []
    assert len(started) == count


def test_dropping_it_closes_the_items():
    closed = threading.Event()

    def items():
        try:
            yield from itertools.count()
        finally:
            closed.set()

    outcomes = abreast.map(lambda x: x, items(), width=2)
    assert next(outcomes).value == 0
    del outcomes
    assert closed.wait(60)


def test_errors_are_raised_at_their_place_after_the_outcomes_before():
    def work(item):
        if item == 2:
            raise LookupError("two")
        return item

    seen = []
    with pytest.raises(LookupError, match="two"):
        for outcome in abreast.map(work, range(5), width=3, on_error="raise"):
            seen.append(outcome.value)
    assert seen == [0, 1]


def test_sys_exit_of_an_item_raised_at_its_place_does_not_end_the_loop_for_others():
    def work(item):
        raise SystemExit(5)

    with pytest.raises(SystemExit) as caught:
        list(abreast.map(work, [1], width=1, on_error="raise"))
    assert caught.value.code == 5
    assert [o.value for o in abreast.map(lambda x: x, [1], width=1)] == [1]


def test_the_callers_context_reaches_the_items():
    who.set("me")
    assert [o.value for o in abreast.map(lambda _: who.get(), range(2), width=2)] == ["me", "me"]


async def test_it_works_inside_a_running_loop():
    assert [o.value for o in abreast.map(lambda x: x + 1, range(3), width=2)] == [1, 2, 3]


def test_inside_an_item_it_becomes_a_map_beneath_it():
    def leaf(item):
        return abreast.current().path

    def outer(item):
        return [o.value for o in abreast.map(leaf, range(2), width=2)]

    values = [o.value for o in abreast.map(outer, range(2), width=2)]
    assert values == [[f"outer/outer/{n:04d}/leaf/{m:04d}" for m in range(2)] for n in range(2)]


def test_nested_deeper_than_any_pool_it_does_not_deadlock():
    def node(depth):
        if depth == 0:
            return 1
        return sum(o.value for o in abreast.map(node, [depth - 1] * 2, width=1))

    assert [o.value for o in abreast.map(node, [5], width=1)] == [32]


def test_inside_an_item_the_runs_own_options_are_refused():
    def outer(item):
        return list(abreast.map(lambda x: x, [1], width=1, store="elsewhere.db"))

    (outcome,) = abreast.map(outer, [1], width=1)
    assert "can't be given again" in str(outcome.error)


def test_it_takes_a_store_lanes_and_a_budget(tmp_path):
    ran = []

    def work(item):
        ran.append(item)
        return item

    options = {
        "store": tmp_path / "runs.db",
        "lanes": {"api": abreast.Slots(2)},
        "lane": "api",
        "width": 4,
    }
    with pytest.raises(BudgetSpent):
        list(abreast.map(work, range(5), budget="3req", **options))
    assert sorted(ran) == [0, 1, 2]
    assert [o.value for o in abreast.map(work, range(5), budget="5req", **options)] == list(
        range(5)
    )
    assert sorted(ran) == [0, 1, 2, 3, 4]


def test_ctrl_c_ends_it_runs_nothing_queued_and_does_not_wait_for_a_blocked_thread(tmp_path):
    script = """
import os, sys, threading, abreast
def work(item):
    os.write(1, f"started {item}\\n".encode())
    threading.Event().wait()
try:
    list(abreast.map(work, range(100), width=2))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert sorted([child.stdout.readline(), child.stdout.readline()]) == [
        "started 0\n",
        "started 1\n",
    ]
    child.send_signal(signal.SIGINT)
    rest = child.communicate(timeout=60)[0]
    assert rest == "interrupted\n"
    assert child.returncode == 0


def test_ctrl_c_in_asyncio_run_ends_everything(tmp_path):
    script = """
import asyncio, sys, abreast
async def work(item):
    print("started", item, flush=True)
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        print("ended", item, flush=True)
async def main():
    async with abreast.open_run("r", store=sys.argv[1]) as run:
        await run.map(work, range(100), width=2).values()
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    store = str(tmp_path / "runs.db")
    child = subprocess.Popen(
        [sys.executable, "-c", script, store], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert [child.stdout.readline(), child.stdout.readline()] == ["started 0\n", "started 1\n"]
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=60)[0].split("\n") == ["ended 0", "ended 1", "interrupted", ""]
    from contextlib import closing

    from abreast.store.sqlite.store import SqliteStore

    with closing(SqliteStore(store)) as opened:
        assert opened.get("r-1").state == "interrupted"
        assert not opened.driven("r-1")


def test_a_forked_child_gets_a_loop_of_its_own():
    list(abreast.map(lambda x: x, [1], width=1))
    pid = os.fork()
    if pid == 0:
        ok = [o.value for o in abreast.map(lambda x: x + 1, [1, 2], width=2)] == [2, 3]
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("width", [0, -1, 2.5, True, float("nan"), "3", None])
def test_a_width_that_makes_no_sense_is_refused_before_anything_starts(width):
    read = []

    def items():
        read.append(1)
        yield 1

    with pytest.raises(ValueError, match="width must be"):
        abreast.map(lambda x: x, items(), width=width)
    assert read == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"span": 2}, "span must be at least the width"),
        ({"span": True}, "span must be"),
        ({"order": "random"}, "order must be"),
        ({"on_error": "ignore"}, "on_error must be"),
        ({"effect": "twice"}, "effect must be"),
        ({"until": 0}, "until must be at least 1"),
        ({"until": 1.5}, "until must be a whole number"),
        ({"until": True}, "until must be a whole number"),
        ({"timeout": 0}, "timeout must be"),
        ({"timeout": float("nan")}, "timeout must be"),
        ({"timeout": True}, "timeout must be"),
        ({"retry": -1}, "retry must be"),
        ({"retry": True}, "retry must be"),
        ({"key": "id"}, "key must be a function"),
        ({"lane": 3}, "lane must be"),
        ({"name": ""}, "a name must be"),
        ({"hold": {"machine": 0}}, "weight of 'machine'"),
        ({"budget": "10 apples"}, "no amount"),
        ({"resume": "maybe"}, "resume must be"),
        ({"seed": "seven"}, "seed must be"),
        ({"store": "mysql://here"}, "no store for mysql"),
        ({"executor": "cloud"}, "no executor 'cloud'"),
        ({"loop_budget": 3}, "loop_budget"),
    ],
)
def test_options_that_make_no_sense_are_one_clear_sentence(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        list(abreast.map(lambda x: x, [1], **{"width": 3, **options}))


def test_a_function_that_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match="needs a function"):
        abreast.map(3, [1], width=1)


def test_an_unknown_lane_lists_those_there_are():
    with pytest.raises(ValueError, match="no lane 'opneai'; lanes here: openai"):
        list(
            abreast.map(
                lambda x: x, [1], width=1, lane="opneai", lanes={"openai": abreast.Slots(1)}
            )
        )
