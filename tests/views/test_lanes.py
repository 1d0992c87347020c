"""The fold from events to lanes: what holds for every journal."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import abreast
from abreast.core import events as kinds
from abreast.core.events import Event
from abreast.core.outcome import Usage
from abreast.testing import ManualClock
from abreast.views import lane_fold, lanes
from abreast.views.lanes import LaneChart


class Journal:
    """Events as a driver would write them, and what they ought to add up to."""

    def __init__(self):
        self.events = []
        self.time = 1000.0
        self.lane_of = {}
        self.executing = set()
        self.waiting = set()
        self.ends = {}
        self.retried = 0
        self.items = 0
        self.add(kinds.RUN_STARTED, "run")
        self.add(kinds.MAP_STARTED, "run/work", width=4)

    def add(self, kind, path, lane=None, **data):
        self.events.append(
            Event(len(self.events) + 1, kind, path, self.time, self.time, lane, data)
        )

    def item(self, kind, path, **data):
        self.add(kind, path, self.lane_of[path], **data)

    def read(self, lane):
        path = f"run/work/{self.items:04}"
        self.lane_of[path] = lane
        self.items += 1
        return path

    def do(self, action, lane, length, pick):
        """One thing that may happen; which item it happens to is up to `pick`."""
        self.time += length
        if action == "start":
            path = (
                sorted(self.waiting)[pick % len(self.waiting)] if self.waiting else self.read(lane)
            )
            self.waiting.discard(path)
            self.executing.add(path)
            self.item(kinds.ITEM_STARTED, path, index=0, attempt=1)
        elif action == "queue":
            path = self.read(lane)
            self.waiting.add(path)
            self.item(kinds.ITEM_QUEUED, path, index=0)
        elif action == "crash":
            self.executing.clear()
            self.waiting.clear()
            # Another machine's clock, or the same one after a restart.
            self.time -= 5000 if pick % 2 else -5000
            self.add(kinds.RUN_RESUMED, "run")
            self.add(kinds.MAP_STARTED, "run/work", width=4)
        elif self.executing:
            path = sorted(self.executing)[pick % len(self.executing)]
            self.executing.discard(path)
            if action == "fail":
                self.retried += 1
                self.waiting.add(path)
                self.item(kinds.ATTEMPT_FAILED, path, index=0, attempt=1, backoff=1.0)
            else:
                self.ends[path] = action
                self.item(
                    kinds.ITEM_SETTLED, path, index=0, state=action, waited=0.0, service=[length]
                )


steps = st.tuples(
    st.sampled_from(
        ["start", "start", "start", "queue", "fail", "done", "done", "failed", "cancelled", "crash"]
    ),
    st.sampled_from([None, "fast", "slow"]),
    st.sampled_from([0.0, 0.0005, 0.02, 0.5, 7.0]),
    st.integers(0, 20),
)
journals = st.lists(steps, max_size=120)
windows = st.sampled_from([2.0, 60.0])


def written(actions):
    journal = Journal()
    for action in actions:
        journal.do(*action)
    return journal


def folded(events, **how):
    chart = LaneChart(**how)
    for event in events:
        chart.add(event)
    return chart


def rows_of(chart):
    return [
        (strip.name, list(row.seen(0.0, chart.now)))
        for strip in chart.lanes.values()
        for row in strip.rows
    ]


def seen(chart):
    """Everything that a drawing could show of a chart."""
    strips = [
        (strip.name, strip.counts, strip.peak, list(strip.waited.steps))
        for strip in chart.lanes.values()
    ]
    words = (
        chart.now,
        chart.counts,
        chart.peak,
        chart.settled,
        chart.state,
        chart.reason,
        list(chart.seams),
    )
    return words, rows_of(chart), strips


@given(journals, windows, st.booleans())
def test_bars_of_one_row_never_overlap_and_waiting_comes_before_working(actions, window, whole):
    chart = folded(written(actions).events, window=window, whole=whole)
    for _, bars in rows_of(chart):
        edges = [when for bar in bars for when in (bar.since, bar.start, bar.end)]
        assert edges == sorted(edges)


@given(journals, windows)
def test_there_is_one_running_bar_for_each_item_that_executes(actions, window):
    journal, chart = written(actions), LaneChart(window)
    for event in journal.events:
        chart.add(event)
        running = sum(
            row.running is not None for strip in chart.lanes.values() for row in strip.rows
        )
        assert running == chart.counts.running
    assert running == len(journal.executing)
    assert chart.counts.waiting == len(journal.waiting)


@given(journals, windows, st.booleans())
def test_counts_are_those_of_the_journal(actions, window, whole):
    journal = written(actions)
    chart = folded(journal.events, window=window, whole=whole)
    ends = Counter(journal.ends.values())
    counts = chart.counts
    assert (counts.done, counts.failed, counts.cancelled) == (
        ends["done"],
        ends["failed"],
        ends["cancelled"],
    )
    assert counts.retried == journal.retried
    assert chart.settled == len(journal.ends)


@given(journals, st.integers(1, 7))
def test_events_in_pages_give_the_same_as_all_at_once(actions, page):
    events = written(actions).events
    paged = LaneChart(2.0)
    for at in range(0, len(events), page):
        for event in events[at : at + page]:
            paged.add(event)
        seen(paged)  # looking changes nothing
    assert seen(paged) == seen(folded(events, window=2.0))


@given(journals)
def test_what_ran_long_enough_to_be_seen_is_there(actions):
    chart = folded(written(actions).events, window=1_000_000.0)
    assert chart.now < chart.window.seconds
    bars = [bar for _, bars in rows_of(chart) for bar in bars]
    ended = chart.settled + chart.counts.retried + chart.counts.running
    assert sum(bar.attempts for bar in bars) >= ended - sum(bar.state == "crashed" for bar in bars)


def long_journal(items):
    """A run of two slots, ten items a second."""
    journal = Journal()
    for item in range(items):
        path = journal.read(None)
        journal.item(kinds.ITEM_STARTED, path, index=item, attempt=1)
        journal.time += 0.1
        journal.item(kinds.ITEM_SETTLED, path, index=item, state="done", waited=0.0, service=[0.1])
    return journal


@pytest.mark.parametrize("whole", [False, True])
def test_memory_stays_flat_however_long_the_run(whole):
    chart = folded(long_journal(10_000).events, whole=whole)
    bars = rows_of(chart)[0][1]
    assert chart.now == pytest.approx(1000)
    assert len(bars) < 5000
    assert not chart._open
    assert not chart._outcomes._unsettled
    if whole:
        assert bars[0].since == pytest.approx(0)
        assert sum(bar.attempts for bar in bars) == 10_000
    else:
        assert bars[0].end >= chart.window.begin(chart.now)


def test_the_rate_is_that_of_the_last_seconds():
    journal = long_journal(300)
    journal.time += 100
    chart = folded(journal.events)
    assert chart.rate(chart.now) == pytest.approx(10, rel=0.11)
    assert chart.rate(chart.now + 100) == 0
    assert LaneChart().rate(0.0) == 0


def test_a_wide_lane_keeps_a_row_for_each_item_but_what_ran_only_of_those_that_fit_a_picture():
    journal = Journal()
    paths = [journal.read("wide") for _ in range(1000)]
    for path in paths:
        journal.item(kinds.ITEM_STARTED, path, index=0, attempt=1)
    chart = folded(journal.events)
    assert len(chart.lanes["wide"].rows) == chart.peak == 1000
    journal.time += 1
    before = len(journal.events)
    for path in paths:
        journal.item(kinds.ITEM_SETTLED, path, index=0, state="done")
    for event in journal.events[before:]:
        chart.add(event)
    assert sum(len(bars) for _, bars in rows_of(chart)) == lanes._MAX_KEPT_ROWS
    assert (chart.counts.done, chart.lanes["wide"].peak) == (1000, 1000)


def test_items_so_short_that_their_start_was_not_written_are_drawn_by_their_ends():
    journal = Journal()
    began = journal.time
    for end, service in [(1.0, 0.5), (1.1, 0.5), (1.2, 0.1), (1.3, 0.05)]:
        journal.time = began + end
        path = journal.read("quick")
        journal.item(kinds.ITEM_SETTLED, path, index=0, state="done", service=[service])
    path = journal.read("quick")
    journal.item(kinds.ITEM_SETTLED, path, index=0, state="cancelled")  # it never ran
    chart = folded(journal.events)
    drawn = [
        [(round(bar.start, 2), round(bar.end, 2)) for bar in bars] for _, bars in rows_of(chart)
    ]
    # No two overlap in one row.
    assert drawn == [[(0.5, 1.0)], [(0.6, 1.1), (1.1, 1.2), (1.25, 1.3)]]
    assert (chart.counts.done, chart.counts.running, chart.peak) == (4, 0, 2)


def test_lanes_beyond_counting_are_one():
    journal = Journal()
    for number in range(lane_fold._MAX_LANES + 10):
        path = journal.read(f"lane {number}")
        journal.item(kinds.ITEM_STARTED, path, index=0, attempt=1)
        journal.item(kinds.ITEM_SETTLED, path, index=0, state="done")
    chart = folded(journal.events)
    assert len(chart.lanes) == lane_fold._MAX_LANES + 1
    assert chart.lanes[lane_fold.OTHERS].counts.done == 10


def test_what_was_executing_at_a_crash_is_shown_as_cut_and_time_goes_on_from_there():
    journal = Journal()
    for action in ("start", "start", "done", "crash", "start", "done"):
        journal.do(action, None, 1.0, 0)
    chart = folded(journal.events, whole=True)
    assert [bar.state for _, bars in rows_of(chart) for bar in bars] == ["done", "done", "crashed"]
    assert list(chart.seams) == [3.0]
    assert chart.now == 5.0


def test_what_a_map_leaves_unsettled_at_its_end_is_shown_as_cancelled_and_waits_no_more():
    journal = Journal()
    for action in ("queue", "start", "queue"):
        journal.do(action, None, 1.0, 0)
    journal.time += 1
    journal.add(kinds.MAP_ENDED, "run/work", peak=1, released=0)
    chart = folded(journal.events)
    assert (chart.counts.running, chart.counts.waiting) == (0, 0)
    assert [(bar.state, bar.start, bar.end) for _, bars in rows_of(chart) for bar in bars] == [
        ("cancelled", 2.0, 4.0)
    ]


def test_time_never_goes_back_whatever_a_clock_says():
    journal = Journal()
    journal.do("start", None, 5.0, 0)
    journal.do("done", None, -3.0, 0)
    chart = folded(journal.events)
    assert chart.now == 5.0
    assert [(bar.start, bar.end) for _, bars in rows_of(chart) for bar in bars] == [(5.0, 5.0)]


def test_a_failed_item_that_is_run_again_counts_once():
    journal = Journal()
    for action in ("start", "failed"):
        journal.do(action, None, 1.0, 0)
    path = next(iter(journal.ends))
    journal.add(kinds.RUN_RESUMED, "run")
    journal.item(kinds.ITEM_STARTED, path, index=0, attempt=1)
    assert folded(journal.events).counts.failed == 1
    journal.item(kinds.ITEM_SETTLED, path, index=0, state="done")
    chart = folded(journal.events)
    assert (chart.counts.done, chart.counts.failed, chart.settled) == (1, 0, 1)


def test_what_ended_after_an_interrupt_is_done_once_a_driver_goes_on():
    journal = Journal()
    journal.do("start", None, 1.0, 0)
    path = next(iter(journal.executing))
    journal.item(kinds.ITEM_SETTLED, path, index=0, state="done", speculative=True)
    journal.add(kinds.RUN_ENDED, "run", state="interrupted", reason="interrupted")
    chart = folded(journal.events)
    assert (chart.counts.done, chart.counts.speculative, chart.state) == (0, 1, "interrupted")
    journal.add(kinds.RUN_RESUMED, "run")
    chart = folded(journal.events)
    assert (chart.counts.done, chart.counts.speculative, chart.state) == (1, 0, "running")


def test_usage_adds_up_and_an_unknown_price_stays_unknown():
    journal = Journal()
    used = {"requests": 1, "input_tokens": 10, "output_tokens": 5, "usd": 0.5, "estimate": False}
    for price in (0.5, 0.25, None):
        path = journal.read(None)
        journal.item(kinds.ITEM_STARTED, path, index=0, attempt=1)
        journal.add(
            kinds.CALL_SETTLED, f"{path}/call/0", "test", state="done", **{**used, "usd": price}
        )
        journal.item(kinds.ITEM_SETTLED, path, index=0, state="done", **{**used, "usd": price})
    assert folded(journal.events[:-3]).costs.usage.usd == 0.75
    assert folded(journal.events).costs.usage == Usage(3, 30, 15, None)


def test_a_call_that_was_cut_off_counts_no_use():
    journal = Journal()
    used = {"requests": 1, "input_tokens": 10, "output_tokens": 5, "usd": 0.5, "estimate": True}
    journal.add(kinds.CALL_SETTLED, "run/work/0000/call/0", "test", state="cancelled", **used)
    assert folded(journal.events).costs.usage == Usage()


# --- the events of real runs ----------------------------------------------------------------------


async def charted(work, **how):
    """The chart of a real run in virtual time: `work` gets the run and the clock.

    It has no store: virtual time doesn't wait for a thread that writes.
    """
    clock, seen = ManualClock(), []

    async def drive():
        async with abreast.open_run("real", clock=clock, hooks=[seen.append], seed=1, **how) as run:
            await work(run, clock)

    driven = asyncio.ensure_future(drive())
    while not driven.done():
        if clock.next_due is None:
            await asyncio.sleep(0)
        else:
            await clock.advance(clock.next_due - clock.now())
    driven.result()
    return folded(seen, whole=True)


def sleeper(clock):
    async def nap(seconds):
        woken = asyncio.get_running_loop().create_future()
        clock.call_at(clock.now() + seconds, lambda: woken.set_result(None))
        await woken

    return nap


async def test_a_lane_never_shows_more_rows_than_it_has_slots():
    async def work(run, clock):
        await run.map(sleeper(clock), [1.0] * 9, width=5, lane=lambda _: "two").values()

    chart = await charted(work, lanes={"two": abreast.Slots(2)})
    assert list(chart.lanes) == ["two"]
    assert [len(bars) for _, bars in rows_of(chart)] == [5, 4]
    assert chart.lanes["two"].peak == 2
    assert max(high for _, high, _ in chart.lanes["two"].waited.steps) == 7
    assert chart.counts.waiting == chart.counts.running == 0


async def test_items_without_a_lane_are_shown_by_their_map_and_nested_maps_together():
    async def work(run, clock):
        nap = sleeper(clock)

        async def outer(item):
            here = abreast.current().run
            await here.map(nap, [1.0, 2.0], width=2, name="inner").values()
            await here.step("sum", nap, 1.0)

        await run.map(outer, range(6), width=2).values()
        await run.step("last", nap, 1.0)

    chart = await charted(work)
    assert list(chart.lanes) == ["outer", "outer/*/inner", "outer/*/sum", "last"]
    assert [strip.counts.done for strip in chart.lanes.values()] == [6, 12, 6, 1]
    assert [strip.peak for strip in chart.lanes.values()] == [2, 4, 2, 1]
    assert chart.state == "done"
    assert not chart._maps


async def test_each_attempt_is_a_bar_and_the_backoff_is_waiting():
    async def work(run, clock):
        nap = sleeper(clock)

        async def flaky(item):
            await nap(1.0)
            if abreast.current().attempt == 1:
                raise ConnectionError("once")

        await run.map(flaky, [0], width=1, retry=abreast.Retry(1, base=8.0, cap=8.0)).values()

    chart = await charted(work)
    ((_, (first, second)),) = rows_of(chart)
    assert (first.state, first.attempt, second.state, second.attempt) == ("retried", 1, "done", 2)
    assert first.end == second.since < second.start
    assert (chart.counts.retried, chart.counts.done) == (1, 1)


async def test_where_a_map_stopped_is_said_and_what_ran_past_it_is_not_done():
    async def work(run, clock):
        nap = sleeper(clock)

        async def stubborn(item):
            try:
                await nap(1.0 + item)
            except asyncio.CancelledError:
                if item == 1:
                    return  # it was all but done
                raise

        await run.map(stubborn, range(4), width=4, until=1).values()

    chart = await charted(work)
    assert chart.reason == "it stopped at item 0 (until)"
    assert (chart.counts.done, chart.counts.speculative, chart.counts.cancelled) == (1, 1, 2)
    assert chart.counts.running == 0


def test_a_start_that_is_recorded_late_is_drawn_when_it_was_in_a_row_that_was_free_then():
    journal = Journal()
    long, short, later = (journal.read("cpu") for _ in range(3))
    at = journal.time
    journal.time = at + 1.0
    for path in (short, later):  # one after the other, beside the long one
        journal.item(kinds.ITEM_SETTLED, path, index=0, state="done", waited=0.0, service=[0.5])
        journal.time += 0.5
    journal.time = at + 0.25
    journal.item(kinds.ITEM_STARTED, long, index=0, attempt=1)
    journal.time = at + 2.0
    journal.item(kinds.ITEM_SETTLED, long, index=0, state="done", waited=0.0, service=[1.75])
    chart = LaneChart(whole=True)
    for event in journal.events:
        chart.add(event)
    rows = [[(bar.path, bar.start, bar.end) for bar in row.bars] for row in chart.lanes["cpu"].rows]
    assert rows == [[(short, 0.5, 1.0), (later, 1.0, 1.5)], [(long, 0.25, 2.0)]]
