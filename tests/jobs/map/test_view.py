"""The view of a plain map groups equal outcomes; it is also used for runs of no job."""

import json

from abreast import open_run
from abreast.testing import MemoryStore
from abreast.web.store_reader import JobViewReader
from tests.web.jobs.viewing import HOSTILE, Hand, settled, viewed


async def mapped(store, count, resume="auto", bad=(3,)):
    async def work(item):
        if item % 10 in bad:
            raise ValueError("a three")
        return f"rest {item % 2}"

    async with open_run("mine", store=store, resume=resume) as run:
        async for _ in run.map(work, range(count), width=4, name="work"):
            pass


async def test_equal_outcomes_are_one_line_with_examples_and_failures_come_first():
    store = MemoryStore()
    await mapped(store, 40)
    view = viewed(store, "mine-1")
    assert [(one["state"], one["text"], one["count"]) for one in view["groups"]] == [
        ("failed", "a three", 4),
        ("done", "rest 0", 20),
        ("done", "rest 1", 16),
    ]
    assert view["groups"][0]["examples"] == [f"mine/work/00{n}3" for n in range(4)]
    assert (view["total"], view["cut"]) == (40, None)


async def test_an_item_that_was_tried_again_counts_once():
    store, told = MemoryStore(), JobViewReader("script")
    await mapped(store, 20)
    assert viewed(store, "mine-1", told)["total"] == 20
    await mapped(store, 20, resume="failed", bad=())
    view = viewed(store, "mine-1", told)
    assert [(one["state"], one["count"]) for one in view["groups"]] == [("done", 10), ("done", 10)]
    assert view == viewed(store, "mine-1")


def test_any_number_of_different_outcomes_is_a_bounded_view():
    store = MemoryStore()
    hand = Hand(store, "no such job")
    hand.write(
        *(settled(f"hand/work/{n:05}", json.dumps(f"{n} {'x' * 300}")) for n in range(20_000))
    )
    view = viewed(store, hand.id)
    assert (len(view["groups"]), view["total"]) == (20, 20_000)
    assert view["cut"] == "19,980 items in other groups"
    hand.settle("hand/work/19999", '"again"')  # one that was among the others
    assert viewed(store, hand.id)["total"] == 20_000


def test_whatever_a_value_is_it_is_a_line_of_text():
    store = MemoryStore()
    hand = Hand(store, "map")
    command = {"exit_code": 0, "stdout": "it\nsaid", "stderr": ""}
    for at, value in enumerate([None, 5, [1, {"a": HOSTILE[:40]}], {"b": 1}, command]):
        hand.settle(f"hand/work/{at}", json.dumps(value))
    hand.settle("hand/work/5", "{damaged")
    hand.settle("hand/work/6", '{"~": "bytes", "v": "AAAA"}')
    hand.settle("hand/work/7", None, state="cancelled", reason="another draw passed")
    hand.settle("hand/work/8", "[]", state="failed")
    texts = {one["text"] for one in viewed(store, hand.id)["groups"]}
    assert {"null", "5", '{"b": 1}', "it said", "another draw passed"} <= texts
    assert any("<script>" in text for text in texts)
