"""What the pages say, as JSON: runs, items in pages, one item in full."""

import json

import pytest

from abreast import open_run
from abreast.assembly.names import as_caller
from abreast.core.events import ITEM_SETTLED, Event
from abreast.store.codec import codec
from abreast.store.port import Driver
from abreast.testing import ScriptedModel
from abreast.web import pages
from abreast.web.pages import PageSource

HUGE = "x" * 2_000_000


async def third_fails(item):
    if item % 3 == 2:
        raise RuntimeError("a third")
    return {"item": item}


@pytest.fixture
async def source(store):
    """A store with one run of thirty items, and what pages are made from."""
    async with open_run("thirty", store=store.path, tags=["nightly"]) as run:
        async for _ in run.map(third_fails, range(30), width=4):
            pass
    source = PageSource(store)
    pages.head(source, "thirty-1", {})
    return source


def keys(said):
    return [row["key"] for row in said["items"]]


def test_items_are_sorted_filtered_and_paged(source):
    def asked(**given):
        return pages.items(source, "thirty-1", given)

    assert asked()["count"] == 30
    assert keys(asked(sort="key", at="10", most="3")) == ["0010", "0011", "0012"]
    assert keys(asked(sort="key", down="1", most="2")) == ["0029", "0028"]
    assert asked(state="failed")["count"] == 10
    assert asked(state="failed,done")["count"] == 30
    assert keys(asked(q="s/002", sort="key")) == [f"002{number}" for number in range(10)]
    assert asked(error="0")["count"] == 10
    assert asked(lane="no such")["count"] == 0
    took = [row["took"] for row in asked(sort="took", down="1", most="30")["items"]]
    assert took == sorted(took, reverse=True)


@pytest.mark.parametrize(
    "given", [{"at": "-1"}, {"most": "x"}, {"sort": "__class__"}, {"at": "9" * 40}, {"state": "?"}]
)
def test_odd_wishes_do_no_harm(source, given):
    assert pages.items(source, "thirty-1", given)["count"] in (0, 30)
    assert pages.lanes(source, "thirty-1", {"begin": "nan", "end": "inf", "columns": "0"})["lanes"]


def test_the_list_of_runs_counts_and_can_be_searched(source):
    def listed(**given):
        return [row["id"] for row in pages.runs(source, given)["runs"]]

    [row] = pages.runs(source, {})["runs"]
    assert (row["done"], row["failed"], row["counted"], row["state"]) == (20, 10, True, "done")
    assert listed(q="NIGHT") == listed(state="done") == listed(kind=row["kind"]) == ["thirty-1"]
    assert listed(q="other") == listed(state="failed") == listed(kind="matrix") == []


def test_a_run_without_a_driver_has_crashed(store):
    row = store.begin(
        "gone", kind="map", seed=1, manifest={}, tags=(), driver=Driver(1, "here", 1.0)
    )
    store.let_go(row.id)
    source = PageSource(store)
    assert pages.runs(source, {})["runs"][0]["state"] == "crashed"
    head = pages.head(source, row.id, {})
    assert (head["state"], head["can"]) == (
        "crashed",
        {"cancel": False, "resume": True, "retry": False},
    )


def test_the_run_of_a_script_is_not_for_us_to_resume(source):
    assert pages.head(source, "thirty-1", {})["can"] == {
        "cancel": False,
        "resume": False,
        "retry": False,
    }


def test_counting_goes_on_where_it_ended_and_an_item_that_ran_again_counts_once(store):
    row = store.begin(
        "more", kind="map", seed=1, manifest={}, tags=(), driver=Driver(1, "here", 1.0)
    )

    def settled(seq, state):
        return Event(
            seq,
            ITEM_SETTLED,
            "more/m/0",
            seq,
            seq,
            None,
            {"index": 0, "state": state, "service": [0.1]},
        )

    source = PageSource(store)
    store.commit(row.id, row.epoch, [settled(1, "cancelled")], {})
    assert pages.runs(source, {})["runs"][0]["cancelled"] == 1
    store.commit(row.id, row.epoch, [settled(2, "done")], {})
    [now] = pages.runs(source, {})["runs"]
    assert (now["done"], now["cancelled"]) == (1, 0)


def test_a_picture_of_a_run_that_was_over_is_drawn_anew_once_it_went_on(store):
    def settled(seq):
        data = {"index": seq, "state": "done", "service": [0.1]}
        return Event(seq, ITEM_SETTLED, f"more/m/{seq}", seq, seq, "a", data, "1")

    def bars():
        pages.head(source, row.id, {})
        [lane] = pages.lanes(source, row.id, {"begin": "0", "end": "100"})["lanes"]
        return lane["counts"]["done"]

    row, source = (
        store.begin(
            "more", kind="map", seed=1, manifest={}, tags=(), driver=Driver(1, "here", 1.0)
        ),
        PageSource(store),
    )
    store.commit(row.id, row.epoch, [settled(1)], {})
    store.end(row.id, row.epoch, "interrupted", "", 2.0)
    assert bars() == bars() == 1
    again = store.take_over(row.id, Driver(1, "here", 3.0))
    store.commit(row.id, again.epoch, [settled(2), settled(3)], {})
    store.end(row.id, again.epoch, "done", "", 4.0)
    assert bars() == 3


def test_an_item_says_what_became_of_it(source):
    done = pages.item(source, "thirty-1", {"path": "thirty/third_fails/0003"})
    assert (done["state"], json.loads(done["value"]["text"])) == ("done", {"item": 3})
    assert done["timing"]["service"]
    failed = pages.item(source, "thirty-1", {"path": "thirty/third_fails/0002"})
    assert failed["error"]["type"] == "RuntimeError"
    assert "Traceback" in failed["error"]["traceback"]["text"]


def test_a_bar_leads_to_its_item(source):
    [lane] = pages.lanes(source, "thirty-1", {})["lanes"]
    place = lane["rows"][0][5]
    assert pages.item(source, "thirty-1", {"place": str(place)})["state"] in ("done", "failed")


async def test_an_item_shows_its_calls_with_prompt_and_reply(store):
    model = as_caller(ScriptedModel(lambda request: f"Reply to: {request.messages[-1].content}"))

    async def question(item):
        return (await model.ask(f"What is {item}?")).text

    async with open_run("asks", store=store.path) as run, model:
        async for _ in run.map(question, ["love"], width=1):
            pass
    source = PageSource(store, lambda row, key, value: f"the prompt of {key} in {row.id}")
    said = pages.item(source, "asks-1", {"path": "asks/question/0000"})
    assert said["prompt"]["text"] == "the prompt of 0000 in asks-1"
    [call] = said["calls"]
    assert call["asked"] == [{"role": "user", "text": "What is love?", "characters": 13}]
    assert call["reply"]["text"] == "Reply to: What is love?"
    assert pages.head(source, "asks-1", {})["usage"]["requests"] == 1


async def test_a_huge_reply_is_shown_in_part_and_says_so(store):
    async def big(_):
        return HUGE

    async with open_run("big", store=store.path) as run:
        async for _ in run.map(big, range(1), width=1):
            pass
    said = pages.item(PageSource(store), "big-1", {"path": "big/big/0000"})["value"]
    assert (len(said["text"]), said["characters"]) == (100_000, 2_000_000)


@pytest.mark.parametrize(
    ("state", "reason", "resume"),
    [
        ("failed", "no item succeeded: 1 failed", False),
        ("failed", "OSError: lost", True),
        ("halted", "it stopped at its first failure: item 0002 failed", False),
        ("halted", "enough", True),
    ],
)
def test_of_a_run_that_came_to_its_end_only_failed_items_can_be_run_again(
    store, state, reason, resume
):
    error = codec.encode_error(OSError("lost"))
    row = store.begin(
        "map", kind="map", seed=1, manifest={}, tags=[], driver=Driver(1, "here", 0.0)
    )
    settled = Event(
        1, ITEM_SETTLED, "map/items/0002", 1.0, 1.0, None, {"index": 2, "state": "failed"}, error
    )
    store.commit(row.id, row.epoch, [settled], {})
    store.end(row.id, row.epoch, state, reason, 1.0)
    said = pages.head(PageSource(store), row.id, {})
    assert (said["state"], said["reason"]) == (state, reason)
    assert said["can"] == {"cancel": False, "resume": resume, "retry": True}
