"""The time of a run over all of its drivers."""

from hypothesis import given
from hypothesis import strategies as st

from abreast.core.events import ITEM_STARTED, RUN_RESUMED, RUN_STARTED, Event
from abreast.views.driven_time import DrivenTime


def event(kind, mono, wall=0.0):
    return Event(1, kind, "r", mono, wall, None, {}, None)


def test_it_begins_with_the_first_event_wherever_that_drivers_clock_was():
    time = DrivenTime()
    assert [time.take(event(RUN_STARTED, 5000.0)), time.take(event(ITEM_STARTED, 5002.5))] == [
        0.0,
        2.5,
    ]


def test_what_lies_between_two_drivers_is_left_out():
    time = DrivenTime()
    for kind, mono in ((RUN_STARTED, 100.0), (ITEM_STARTED, 103.0), (RUN_RESUMED, 7.0)):
        time.take(event(kind, mono))
    assert time.now == 3.0
    assert time.take(event(ITEM_STARTED, 9.0)) == 5.0


def test_while_it_is_driven_the_time_of_day_says_how_late_it_is():
    time = DrivenTime()
    time.take(event(RUN_STARTED, 1.0, wall=1000.0))
    time.take(event(ITEM_STARTED, 4.0, wall=1003.0))
    assert (time.at(1005.0), time.at(990.0)) == (5.0, 3.0)


@given(st.lists(st.tuples(st.sampled_from([ITEM_STARTED, RUN_RESUMED]), st.floats(0, 1e9))))
def test_it_never_goes_back(happened):
    time, before = DrivenTime(), 0.0
    for kind, mono in happened:
        now = time.take(event(kind, mono))
        assert now >= before
        before = now


def test_what_is_recorded_late_has_a_time_of_its_own_that_is_never_after_it_was_recorded():
    time = DrivenTime()
    time.take(event(RUN_STARTED, 100.0))
    late = event(ITEM_STARTED, 101.0)
    assert time.take(event(RUN_STARTED, 104.0)) == time.take(late) == 4.0
    assert time.of(late) == 1.0
    assert time.of(event(ITEM_STARTED, 120.0)) == 4.0
