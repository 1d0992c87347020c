"""Model calls, usage and notes of items in other processes: the driver makes and records them."""

import functools
import json
import os
import pickle

import pytest

import abreast
from abreast.core.errors import ModelUnknown, Refused
from abreast.core.events import CALL_STARTED
from abreast.core.outcome import Usage
from abreast.run.calls.model import Caller, ForwardedCaller
from abreast.testing import MemoryStore
from tests.run.calls.forwarded_work import (
    ask,
    ask_in_a_thread_of_its_own_loop,
    ask_twice,
    hear,
    open_one,
    report,
    report_later,
)
from tests.run.calls.test_model import Echo, caller

pytestmark = pytest.mark.usefixtures("unmeasured")


@pytest.fixture(params=["process", pytest.param("ray", marks=pytest.mark.ray)])
def executor(request):
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    return request.param


@pytest.mark.parametrize("fn", [ask, ask_in_a_thread_of_its_own_loop])
async def test_the_driver_makes_the_calls_limits_and_records_them(executor, fn):
    echo, store = Echo(), MemoryStore()
    model = caller(echo, abreast.Slots(1))
    async with abreast.open_run("calls", executor=executor, store=store, seed=1) as run:
        work = functools.partial(fn, model)
        found = [outcome async for outcome in run.map(work, range(4), width=3, name="ask")]
        run_id = run.id
    assert [outcome.value[0] for outcome in found] == [f"ITEM {item}" for item in range(4)]
    assert os.getpid() not in {outcome.value[1] for outcome in found}
    assert sorted(echo.sent) == [f"item {item}" for item in range(4)]
    assert echo.peak == 1  # the lane is the driver's, for all processes
    assert [outcome.usage.input_tokens for outcome in found] == [10] * 4
    started = [event.path for event in store.events(run_id, kinds={CALL_STARTED})]
    assert len({path.rpartition("/")[0] for path in started}) == 4


async def test_an_item_may_ask_several_things_at_once(executor):
    model = caller(Echo(), abreast.Slots(4))
    async with abreast.open_run("calls", executor=executor) as run:
        work = functools.partial(ask_twice, model)
        found = [outcome.value async for outcome in run.map(work, range(3), width=2)]
    assert found == [[f"A {item}", f"B {item}"] for item in range(3)]


async def test_an_error_of_a_call_is_raised_where_it_was_made(executor):
    model = caller(Echo(Refused("not that")))
    async with abreast.open_run("calls", executor=executor) as run:
        work = functools.partial(ask, model)
        (failed,) = [outcome async for outcome in run.map(work, ["x"], width=1)]
    assert (type(failed.error), str(failed.error)) == (Refused, "not that")


async def test_text_is_heard_in_one_piece(executor):
    async with abreast.open_run("calls", executor=executor) as run:
        work = functools.partial(hear, caller(Echo()))
        (found,) = [outcome async for outcome in run.map(work, ["hello"], width=1)]
    assert found.value == ["HELLO"]


async def test_a_model_that_is_opened_in_an_item_is_opened_by_the_driver(executor, tmp_path):
    script = tmp_path / "replies.txt"
    script.write_text(json.dumps({"prompt": "hello", "reply": "good day"}) + "\n")
    async with abreast.open_run("calls", executor=executor) as run:
        (found,) = [outcome async for outcome in run.map(open_one, [str(script)], width=1)]
    assert found.error is None
    assert "good day" in found.value


@pytest.mark.parametrize("fn", [report, report_later])
async def test_usage_and_notes_reach_the_run(executor, fn):
    store = MemoryStore()
    async with abreast.open_run("calls", executor=executor, store=store) as run:
        found = [outcome async for outcome in run.map(fn, range(3), width=2, name="report")]
        run_id = run.id
    assert [outcome.usage for outcome in found] == [Usage(1, n, 2 * n) for n in range(3)]
    noted = {event.path: event.data["number"] for event in store.events(run_id, kinds={"mine"})}
    assert noted == {f"calls/report/{n:04d}": n for n in range(3)}


async def test_a_model_is_itself_where_it_was_opened_and_asks_for_itself_elsewhere():
    model = caller(Echo())
    assert pickle.loads(pickle.dumps(model)) is model
    assert type(model.with_model(Echo())) is Caller
    away = ForwardedCaller("test/echo", lambda request: request)
    assert (away.name, away.greedy) == ("test/echo", False)
    assert "called by the driver" in repr(away)
    with pytest.raises(RuntimeError, match="opened in an item of another process"):
        await away.ask("hello")
    pickled = pickle.dumps(model)
    del model
    gone = pickle.loads(pickled)
    assert type(gone) is ForwardedCaller
    with pytest.raises(ModelUnknown, match="not open any more"):
        await gone._call(None)()
