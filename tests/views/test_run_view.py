"""The view of a run: lanes, bars, items and errors, of real runs and of made-up events."""

import asyncio

import pytest

from abreast import Item, Slots, open_run
from abreast.core import events as kinds
from abreast.core.events import Event
from abreast.store.codec import codec
from abreast.testing import Gate
from abreast.views.lane_rows import STATES, LaneBar
from abreast.views.run_view import AttemptLane, RunView
from abreast.web.lane_window import window
from abreast.web.store_reader import StoreReader


def folded(store, run_id):
    opened = StoreReader(store).get(run_id)
    with opened.lock:
        while not opened.caught_up:
            opened.refresh()
    return opened


def counted(fold):
    return {state: count for state, count in fold.items.counts.items() if count}


async def odd_ones_fail(item):
    await asyncio.sleep(0)
    if item % 10 == 3:
        raise ValueError(f"number {item} is wrong")
    return item


async def test_every_item_is_counted_and_no_lane_has_more_rows_than_slots(store):
    items = [Item(None, number, "ab"[number % 2]) for number in range(200)]
    async with open_run("two", store=store.path, lanes={"a": Slots(3), "b": Slots(5)}) as run:
        async for _ in run.map(odd_ones_fail, items, width=20):
            pass

    fold = folded(store, "two-1").view

    assert counted(fold) == {"done": 180, "failed": 20}
    assert set(fold.lanes) == {"a", "b"}
    # A slot goes to the next item a moment before the end of the last one is recorded.
    assert len(fold.lanes["a"].rows) <= 4
    assert len(fold.lanes["b"].rows) <= 6
    assert sum(len(row.end) for lane in fold.lanes.values() for row in lane.rows) == 200
    assert [(kind.type, kind.items) for kind in fold.errors.kinds] == [("ValueError", 20)]


async def test_bars_of_one_row_never_overlap(store):
    async with open_run("one", store=store.path, lanes={"a": Slots(4)}) as run:
        async for _ in run.map(odd_ones_fail, range(300), width=12, lane="a"):
            pass
    for row in folded(store, "one-1").view.lanes["a"].rows:
        starts, ends = list(row.start), list(row.end)
        assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
        assert all(start <= end for start, end in zip(starts, ends, strict=True))


async def _drain(map_):
    async for _ in map_:
        pass


async def test_what_runs_and_what_waits_is_seen_while_it_does(store):
    gate = Gate()
    async with open_run("live", store=store.path, lanes={"a": Slots(2)}) as run:
        async with run.map(gate.pass_, range(6), width=6, lane="a") as map_:
            drained = asyncio.ensure_future(_drain(map_))
            await gate.wait_for(0, 1)
            opened = folded(store, "live-1")
            while (
                opened.view.items.counts["running"] < 2
            ):  # a start is written with the next commit
                await asyncio.sleep(0)
                with opened.lock:
                    opened.refresh()
            assert opened.state == "running"
            lane = opened.view.lanes["a"]
            assert (len(lane.running), len(lane.waiting)) == (2, 4)
            seen = window(opened.view, opened.now, begin=0, end=opened.now, columns=500)["lanes"][0]
            assert [row[3] for row in seen["rows"]] == [0, 0]
            gate.open_all()
            await drained
    with opened.lock:
        while opened.state == "running":
            opened.refresh()
    assert counted(opened.view) == {"done": 6}
    assert not lane.waiting


def made(*said):
    """Events from their kinds, paths and facts; each comes a second after the one before."""
    return [
        Event(number, kind, path, 100.0 + number, 1000.0 + number, lane, data or {}, body)
        for number, (kind, path, lane, data, body) in enumerate(said, 1)
    ]


def fold_of(*said):
    fold = RunView()
    for event in made(*said):
        fold.add(event)
    return fold


def test_a_crash_is_a_seam_and_ends_what_was_running():
    fold = fold_of(
        (kinds.RUN_STARTED, "r", None, None, None),
        (kinds.MAP_STARTED, "r/m", None, {"width": 2}, None),
        (kinds.ITEM_STARTED, "r/m/0", None, None, None),
        (kinds.RUN_RESUMED, "r", None, None, None),
        (kinds.MAP_STARTED, "r/m", None, {"width": 2}, None),
        (kinds.ITEM_STARTED, "r/m/0", None, None, None),
        (
            kinds.ITEM_SETTLED,
            "r/m/0",
            None,
            {"index": 0, "state": "done", "service": [1.0], "waited": 0.0},
            '"x"',
        ),
        (kinds.RUN_ENDED, "r", None, {"state": "done"}, None),
    )
    assert fold.seams == [2.0]  # the time between two drivers is no time of the run
    assert [STATES[state] for state in fold.lanes["m"].rows[0].state] == ["crashed", "done"]
    assert counted(fold) == {"done": 1}


def test_a_driver_whose_clock_starts_elsewhere_goes_on_in_the_runs_own_time():
    for later in (900.0, -900.0):
        fold = RunView()
        clock = [
            (kinds.RUN_STARTED, 1.0),
            (kinds.RUN_ENDED, 4.0),
            (kinds.RUN_RESUMED, later),
            (kinds.RUN_ENDED, later + 2),
        ]
        for seq, (kind, mono) in enumerate(clock, 1):
            fold.add(Event(seq, kind, "r", mono, 1000.0 + seq))
        assert (fold.now, fold.seams) == (5.0, [3.0])


def test_a_slot_that_is_handed_on_before_its_end_is_noted_is_one_row():
    fold = RunView()
    for seq, (kind, path, mono) in enumerate(
        [
            (kinds.ITEM_STARTED, "r/m/0", 1.0),
            (kinds.ITEM_STARTED, "r/m/1", 2.0),
            (kinds.ITEM_SETTLED, "r/m/0", 2.001),
        ]
    ):
        data = {"index": 0, "state": "done", "service": [1.0]} if kind == kinds.ITEM_SETTLED else {}
        fold.add(Event(seq + 1, kind, path, mono, mono, "a", data))
    assert fold.lanes["a"].running["r/m/1"] == 0


def test_bars_that_come_by_their_ends_need_no_more_rows_than_were_in_use():
    lane = AttemptLane("a", lambda _: -1)
    for start, end in ((0.0, 1.0), (0.5, 2.0), (2.0, 3.0), (1.5, 4.0)):
        lane.brief(LaneBar("", "done", start, start, end))
    assert len(lane.rows) == 2


def test_a_retry_leaves_its_bar_and_its_error():
    error = codec.encode_error(TimeoutError("took 31 s"))
    fold = fold_of(
        (kinds.RUN_STARTED, "r", None, None, None),
        (kinds.ITEM_STARTED, "r/m/0", "a", None, None),
        (kinds.ATTEMPT_FAILED, "r/m/0", "a", {"attempt": 1, "backoff": 1.0}, error),
        (kinds.ITEM_STARTED, "r/m/0", "a", {"attempt": 2}, None),
        (
            kinds.ITEM_SETTLED,
            "r/m/0",
            "a",
            {"index": 0, "state": "failed", "service": [1.0, 1.0], "attempts": 2},
            error,
        ),
    )
    assert [STATES[state] for state in fold.lanes["a"].rows[0].state] == ["retried", "failed"]
    kind = fold.errors.kinds[0]
    assert (kind.items, kind.retried) == (1, 1)
    assert fold.items.row(0)["attempts"] == 2


def test_failures_that_differ_in_numbers_are_one_kind_and_others_are_not():
    fold = RunView()
    for number, message in enumerate(["took 1 s", "took 22 s", "refused"]):
        data = {"index": number, "state": "failed", "service": [0.1]}
        body = codec.encode_error(ValueError(message))
        fold.add(
            Event(number + 1, kinds.ITEM_SETTLED, f"r/m/{number}", number, number, "a", data, body)
        )
    assert [(kind.message, kind.items) for kind in fold.errors.kinds] == [
        ("took 1 s", 2),
        ("refused", 1),
    ]


def test_decisions_of_the_governor_are_marked_and_move_the_limit():
    fold = fold_of(
        (kinds.RUN_STARTED, "r", None, None, None),
        (
            kinds.LIMIT_CHANGED,
            "r/m/0",
            "p",
            {"dimension": "concurrency", "old": 8, "new": 4, "cause": "429"},
            None,
        ),
        (
            kinds.LIMIT_CHANGED,
            "r/m/0",
            "p",
            {"dimension": "rpm", "old": None, "new": 60, "cause": "header"},
            None,
        ),
        (
            kinds.LIMIT_CHANGED,
            "r/m/0",
            "p",
            {"dimension": "concurrency", "old": 4, "new": 5, "cause": "room"},
            None,
        ),
    )
    [lane] = window(fold, 5.0, begin=0, end=5, columns=100)["lanes"]
    assert lane["limits"] == [(0, 8.0), (1.0, 4.0), (3.0, 5.0)]
    assert [decision["cause"] for decision in lane["decisions"]] == ["429", "header", "room"]


def test_calls_of_models_have_lanes_of_their_own_and_what_they_cost_is_summed():
    used = {
        "requests": 1,
        "input_tokens": 10,
        "output_tokens": 5,
        "usd": 0.5,
        "estimate": False,
        "model": "p/m",
    }
    settled = {"state": "done", "service": [0.5], "waited": 0.25}
    fold = fold_of(
        (kinds.RUN_STARTED, "r", None, None, None),
        (kinds.CALL_SETTLED, "r/m/0/call/ab-0", "p", {**used, **settled}, '{"text": "yes"}'),
        (
            kinds.CALL_SETTLED,
            "r/m/1/call/cd-0",
            "p",
            {**used, **settled, "usd": None},
            '{"text": "no"}',
        ),
    )
    assert set(fold.lanes) == {"calls · p"}
    assert fold.costs.models["p/m"] == {"requests": 2, "usd": 0.5, "input": 20, "output": 10}
    assert fold.costs.unpriced == 1


def test_maps_beneath_items_of_another_are_one_lane():
    said = [
        (kinds.RUN_STARTED, "r", None, None, None),
        (kinds.MAP_STARTED, "r/m", None, {"width": 9}, None),
    ]
    for number in range(3):
        said += [
            (kinds.ITEM_STARTED, f"r/m/{number}", None, None, None),
            (kinds.MAP_STARTED, f"r/m/{number}/check", None, {"width": 2}, None),
            (kinds.ITEM_STARTED, f"r/m/{number}/check/0", None, None, None),
        ]
    assert set(fold_of(*said).lanes) == {"m", "m/*/check"}


def many_bars(count, rows):
    """A fold of so many short items, side by side in so many rows."""
    fold = RunView()
    fold.add(Event(1, kinds.RUN_STARTED, "r", 0.0, 0.0))
    for number in range(count):
        end = (number // rows + 1) * 0.01
        state = "failed" if number == count // 2 else "done"
        data = {"index": number, "state": state, "service": [0.009], "waited": 0.5}
        fold.add(Event(number + 2, kinds.ITEM_SETTLED, f"r/m/{number:06}", end, end, "a", data))
    return fold


@pytest.mark.parametrize(("rows", "columns"), [(4, 800), (500, 3000)])
def test_a_picture_has_no_more_bars_than_it_has_room_for_and_none_is_lost(rows, columns):
    fold = many_bars(40_000, rows)
    [lane] = window(fold, fold.now, begin=0, end=fold.now, columns=columns)["lanes"]
    bars = [row[at : at + 6] for row in lane["rows"] for at in range(0, len(row), 6)]
    assert len(bars) <= 32_000
    assert len(lane["rows"]) <= 200
    assert sum(bar[4] for bar in bars) == 40_000
    # The one that failed is not hidden among the others.
    assert max(bar[3] for bar in bars) == STATES.index("failed")


def test_a_window_that_is_near_shows_items_one_by_one():
    fold = many_bars(30_000, 4)
    [lane] = window(fold, fold.now, begin=10.0, end=10.2, columns=1000)["lanes"]
    bars = [row[at : at + 6] for row in lane["rows"] for at in range(0, len(row), 6)]
    assert {bar[4] for bar in bars} == {1}
    assert all(bar[2] >= 10.0 and bar[0] <= 10.2 for bar in bars)
    assert lane["busy"][100] == pytest.approx(4 * 0.9, abs=0.5)


def test_how_many_wait_is_the_sum_of_all_waits():
    fold = many_bars(4000, 4)
    [lane] = window(fold, fold.now, begin=0, end=fold.now, columns=1000)["lanes"]
    size = fold.now / len(lane["waits"])
    waited = 4000 * 0.5 - sum(
        0.5 - min(0.5, (number // 4 + 1) * 0.01 - 0.009) for number in range(4000)
    )
    assert sum(lane["waits"]) * size == pytest.approx(waited, rel=0.02)


def test_read_in_pieces_it_is_the_same_as_read_at_once(store, driven):
    with driven(list(range(30)), width=5) as run:
        run.ended()
    whole, pieces = RunView(), RunView()
    events = store.events("held-1", limit=10_000, kinds=RunView.KINDS)
    for event in events:
        whole.add(event)
    after = 0
    while page := store.events("held-1", after=after, limit=3, kinds=RunView.KINDS):
        after = page[-1].seq
        for event in page:
            pieces.add(event)
    for one, other in zip(whole.lanes.values(), pieces.lanes.values(), strict=True):
        assert (one.name, one.running, one.waiting) == (other.name, other.running, other.waiting)
        assert [list(row.between(0, 1e9, 0)) for row in one.rows] == [
            list(row.between(0, 1e9, 0)) for row in other.rows
        ]
    assert counted(whole) == counted(pieces) == {"done": 30}
