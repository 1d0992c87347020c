"""The view of a sample: branches, rounds, verdicts, the chosen draw; live, resumed, huge."""

import asyncio
from contextlib import suppress

import pytest

import abreast
from abreast.assembly.names import open_run
from abreast.core.errors import ServerFault
from abreast.jobs.sample.strategies import Vote
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.testing import Gate, MemoryStore
from abreast.web.store_reader import JobViewReader
from tests.jobs.sample.drawing import Table, at, passes
from tests.turns import turns
from tests.web.jobs.viewing import HOSTILE, Hand, viewed


async def sampled(store, says, *, resume="auto", checks=(passes,), **options):
    model = Caller(Table(says), ModelLane("test", ()), retry=abreast.Retry(0), paid=False)
    manifest = {"sample": {"prompt": "Say something good.", "model": "test/table"}}
    async with open_run(
        "sample", store=store, kind="sample", manifest=manifest, resume=resume
    ) as run:
        return await abreast.sample(
            "Say something good.", model=model, run=run, checks=checks, **options
        )


def states(view):
    return [[draw["state"] for draw in branch["draws"]] for branch in view["branches"]]


async def test_branches_rounds_verdicts_and_the_chosen_draw():
    store = MemoryStore()
    result = await sampled(store, at((1, 1)), breadth=2, depth=3)
    view = viewed(store, "sample-1")
    assert (view["prompt"], view["breadth"], view["depth"], view["ok"]) == (
        "Say something good.",
        2,
        3,
        True,
    )
    assert (
        view["chosen"]
        == {"branch": result.winner.branch, "round": result.winner.round}
        == {"branch": 1, "round": 1}
    )
    chosen = view["branches"][1]["draws"][1]
    assert (chosen["state"], chosen["text"]) == ("passed", "good 1.1")
    assert chosen["verdicts"] == [{"check": "is good", "ok": True, "reason": "", "score": None}]
    assert view["branches"][1]["draws"][0]["verdicts"][0]["reason"] == "it is 'bad 1.0'"
    assert view["counts"]["failed"] + view["counts"]["passed"] + view["counts"].get(
        "cancelled", 0
    ) == sum(len(row) for row in states(view))
    assert view["cut"] is None


@pytest.mark.parametrize("good", [(), ((0, 2), (1, 2), (2, 2))])
async def test_the_chosen_draw_is_the_results_own_whatever_the_strategy(good):
    store = MemoryStore()
    result = await sampled(store, at(*good), breadth=3, depth=3, strategy=Vote())
    view = viewed(store, "sample-1")
    assert view["ok"] == result.ok == bool(good)
    assert view["chosen"] == {"branch": result.winner.branch, "round": result.winner.round}


async def test_a_sample_under_way_says_why_its_draws_failed_and_goes_on_from_where_it_was_read():
    store, gate, told = MemoryStore(), Gate(), JobViewReader("sample")

    async def says(branch, number):
        if number:
            await gate.pass_(f"{branch}.{number}")
        return f"bad {branch}.{number}"

    task = asyncio.ensure_future(sampled(store, says, breadth=2, depth=2))
    await gate.wait_for("0.1", "1.1")
    while states(view := viewed(store, "sample-1", told)) != [
        ["failed", "drawing"],
        ["failed", "drawing"],
    ]:
        await turns(1)  # until it is committed
    assert view["branches"][0]["draws"][0]["why"] == "is good: it is 'bad 0.0'"
    assert (view["over"], view["chosen"]) == (False, None)
    gate.open_all()
    await task
    view = viewed(store, "sample-1", told)
    assert states(view) == [["failed", "failed"], ["failed", "failed"]]
    assert view == viewed(store, "sample-1")


async def test_what_was_cut_off_is_drawn_again_by_the_next_driver():
    store, gate = MemoryStore(), Gate()

    async def says(branch, number):
        if (branch, number) == (0, 1):
            await gate.pass_("held")
        return "good" if number == 1 else "bad"

    task = asyncio.ensure_future(sampled(store, says, breadth=1, depth=2))
    await gate.wait_for("held")
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert states(viewed(store, "sample-1"))[0][1] in ("cancelled", "cut off")
    assert viewed(store, "sample-1")["chosen"] is None
    gate.open_all()
    await sampled(store, says, breadth=1, depth=2, resume="must")
    view = viewed(store, "sample-1")
    assert (states(view), view["chosen"]) == ([["failed", "passed"]], {"branch": 0, "round": 1})


async def test_errors_and_hostile_texts_are_told_as_they_are():
    store = MemoryStore()

    def says(branch, number):
        return HOSTILE if branch else ServerFault("no more")

    await sampled(store, says, breadth=2, depth=1, checks=())
    view = viewed(store, "sample-1")
    failed, passed = (branch["draws"][0] for branch in view["branches"])
    assert (failed["state"], "no more" in failed["error"]) == ("error", True)
    assert passed["text"].startswith("</script><script>alert(1)")
    assert view["chosen"] == {"branch": 1, "round": 0}


def test_a_huge_sample_is_cut_and_says_so_and_the_chosen_draw_is_there():
    store = MemoryStore()
    hand = Hand(store, "sample", "sample")
    breadth, depth = 300, 40
    hand.write(
        ("sample-started", "sample/sample", {"breadth": breadth, "depth": depth, "checks": 1}, None)
    )
    drawn = []
    for branch in range(breadth):
        path = f"sample/sample/branch/{branch:04}"
        for number in range(depth):
            facts = {"branch": branch, "round": number, "number": branch * depth + number + 1}
            state = "passed" if (branch, number) == (299, 39) else "failed"
            drawn += [
                ("draw-started", path, facts, None),
                ("draw-ended", path, {**facts, "state": state}, None),
            ]
    hand.write(*drawn)
    hand.write(("sample-ended", "sample/sample", {"ok": True, "winner": breadth * depth}, None))
    view = viewed(store, hand.id)
    assert view["chosen"] == {"branch": 299, "round": 39}
    assert view["branches"][-1]["draws"][-1]["state"] == "passed"
    assert sum(len(branch["draws"]) for branch in view["branches"]) <= 401
    assert view["cut"] == "shown: 16 of 300 branches and 24 of 40 rounds"
    assert sum(view["counts"].values()) == breadth * depth


def test_a_draw_of_a_driver_that_is_gone_is_not_under_way():
    store = MemoryStore()
    hand = Hand(store, "sample", "sample")
    facts = {"branch": 0, "round": 0, "number": 1}
    hand.write(
        ("sample-started", "sample/sample", {"breadth": 1, "depth": 1}, None),
        ("draw-started", "sample/sample/branch/0000", facts, None),
    )
    assert states(viewed(store, hand.id)) == [["drawing"]]
    hand.write(("run-resumed", "sample", {}, None))
    assert states(viewed(store, hand.id)) == [["cut off"]]


def test_damaged_records_are_no_reason_to_show_nothing():
    store = MemoryStore()
    hand = Hand(store, "sample", "sample")
    hand.write(
        ("sample-started", "sample/sample", {"breadth": "x"}, None),
        ("draw-started", "sample/sample/branch/0000", {"branch": 0, "round": 0}, None),
        ("draw-started", "sample/sample/branch/0001", {}, None),
        ("sample-ended", "sample/sample", {"winner": "first"}, None),
    )
    hand.settle(
        "sample/sample/branch/0000", '[{"round": 0, "verdicts": 7, "usage": []}, 5, {"state"'
    )
    hand.settle(
        "sample/sample/branch/0000",
        '[{"round": 0, "verdicts": 7, "usage": [], "state": "failed"}, 5]',
    )
    assert states(viewed(store, hand.id)) == [["failed"]]
