from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.core.events import ITEM_SETTLED, ITEM_STARTED, Event
from abreast.store.checksums import (
    RUN_COLUMNS,
    ChainCheck,
    Fault,
    StoredEvent,
    StoredRun,
    event_sum,
    fixed_sum,
    is_whole,
    row_sum,
    run_fault,
    run_key,
    run_sum,
    with_sums,
)

RUN = "job-1"


def chained(count=6, *, run_id=RUN, start=1, before=None, epoch=1):
    """Events as a store writes them: each with the sum after the one before."""
    events = []
    for seq in range(start, start + count):
        kind = ITEM_SETTLED if seq % 2 else ITEM_STARTED
        event = StoredEvent(seq, kind, f"job/m/{seq}", None, 0.5 + seq, 9.0, "{}", f"{seq}é", epoch)
        before = event_sum(run_key(run_id), before, event)
        events.append(event._replace(sum=before))
    return events


def unchecked(count):
    return [StoredEvent(n, ITEM_STARTED, "p", None, 1.0, 1.0, None, None) for n in range(1, count)]


@dataclass(frozen=True)
class End:
    last_seq: int
    tail: int | None
    settled: int | None


def end_of(events):
    return End(events[-1].seq, events[-1].sum, sum(event.kind == ITEM_SETTLED for event in events))


def faults(events, end, *, checked_from=1, run_id=RUN):
    check = ChainCheck(run_id, checked_from)
    for event in events:
        check.add(event)
    check.finish(end.last_seq, end.tail, end.settled)
    return check.faults


WHOLE = chained()
END = end_of(WHOLE)


def test_rows_as_they_were_written_have_no_faults():
    assert faults(WHOLE, END) == []
    assert all(is_whole(run_key(RUN), event) for event in WHOLE)


def test_a_missing_row_is_named_and_its_neighbours_are_not():
    assert faults(WHOLE[:2] + WHOLE[3:], END) == [Fault(3, 3, "missing")]
    assert str(faults(WHOLE[:2] + WHOLE[4:], END)[0]) == "rows 3-4: missing"


def test_missing_last_rows_are_named():
    assert faults(WHOLE[:4], END) == [Fault(5, 6, "missing")]
    assert faults([], END) == [Fault(1, 6, "missing")]


def test_a_row_after_the_end_is_named():
    assert [fault.first for fault in faults(WHOLE, end_of(WHOLE[:5]))] == [6]


@given(
    st.integers(0, 5),
    st.sampled_from(["kind", "path", "lane", "mono", "wall", "data", "body", "epoch", "sum"]),
    st.sampled_from(["", "x", None, 7, 7.5, b"x", -1, 2**62]),
)
def test_a_change_of_any_column_is_named_whatever_its_new_type(place, column, value):
    if getattr(WHOLE[place], column) == value:
        return
    changed = [*WHOLE]
    changed[place] = WHOLE[place]._replace(**{column: value})
    assert place + 1 in [fault.first for fault in faults(changed, END)]


def test_text_that_moves_from_one_column_into_the_next_is_a_change():
    event = WHOLE[0]._replace(kind="item-settledj", path="ob/m/1")
    assert faults([event, *WHOLE[1:]], END)[0] == Fault(1, 1, "changed")


def test_swapped_rows_are_changes():
    swapped = [*WHOLE]
    swapped[2], swapped[3] = WHOLE[3]._replace(seq=3), WHOLE[2]._replace(seq=4)
    assert [fault.first for fault in faults(swapped, END)] == [3, 4]


def test_a_repeated_row_is_named():
    assert faults([*WHOLE[:3], WHOLE[2], *WHOLE[3:]], END)[0].first == 3


def test_a_row_of_another_life_of_the_same_run_breaks_the_chain():
    other = chained(before=12345)
    assert is_whole(run_key(RUN), other[2])
    [found] = faults([*WHOLE[:2], other[2], *WHOLE[3:]], END)
    assert found.first == 3
    assert "before it" in found.what


def test_rows_of_another_run_are_changes():
    assert len(faults(chained(run_id="job-2"), END)) >= len(WHOLE)


def test_the_last_row_has_to_be_the_one_that_the_run_knows():
    assert [fault.first for fault in faults(WHOLE, End(6, 1, 3))] == [6]


def test_a_wrong_count_of_outcomes_is_a_fault_of_the_run():
    [fault] = faults(WHOLE, End(6, END.tail, 4))
    assert fault.first == 0
    assert str(fault) == "it recorded 4 outcomes, and 3 events are outcomes"


def test_a_later_driver_continues_the_chain():
    events = WHOLE + chained(4, start=7, before=WHOLE[-1].sum, epoch=2)
    assert faults(events, end_of(events)) == []


def test_rows_of_before_are_unchecked_but_counted():
    old = unchecked(4)
    new = chained(3, start=4)
    end = End(6, new[-1].sum, None)
    assert faults(old + new, end, checked_from=4) == []
    assert faults(old, End(3, None, None), checked_from=None) == []
    assert faults([old[0], *old[2:], *new], end, checked_from=4) == [Fault(2, 2, "missing")]


def test_a_lost_checksum_is_not_taken_for_a_row_of_before():
    lost = [*WHOLE]
    lost[3] = WHOLE[3]._replace(sum=None, epoch=None)
    assert Fault(4, 4, "its checksum is missing") in faults(lost, END)
    assert not is_whole(run_key(RUN), WHOLE[3]._replace(sum=None))


def run_columns(**changes):
    first = (RUN, "job", "map", "7", 1.0, "[]", "{}")
    run = StoredRun(*first, "done", 1, 2.0, None, "", 1, None, 2.0, 6, "{}", 99, 3)
    run = run._replace(**changes)
    run = run._replace(fixed=fixed_sum(run))
    return run._replace(sum=run_sum(run))


def test_a_run_row_as_written_has_no_fault():
    assert run_fault(run_columns()) is None


@pytest.mark.parametrize("column", RUN_COLUMNS[:-1])
@pytest.mark.parametrize("value", ["x", None, 5, 5.5, b"x"])
def test_a_change_of_any_column_of_a_run_is_a_fault(column, value):
    run = run_columns()
    if getattr(run, column) != value:
        assert run_fault(run._replace(**{column: value})) is not None


def test_a_run_of_before_has_no_fault_and_a_lost_checksum_is_one():
    old = run_columns(checked_from=None, tail=None, settled=None)
    assert run_fault(old._replace(sum=None, fixed=None)) is None
    assert run_fault(run_columns()._replace(sum=None)) is not None


@given(st.lists(st.one_of(st.none(), st.text(), st.integers(), st.floats()), max_size=4))
def test_rows_that_differ_in_one_column_have_different_sums(columns):
    assert row_sum(columns) == row_sum(list(columns))
    assert row_sum([*columns, None]) != row_sum(columns)
    assert row_sum([*columns, "1"]) != row_sum([*columns, 1])


def test_sums_fit_a_signed_64_bit_integer():
    assert all(-(2**63) <= event.sum < 2**63 for event in chained(200))


@given(st.lists(st.tuples(st.text(), st.text(), st.none() | st.text(), st.none() | st.text())))
def test_the_sums_of_a_commit_are_those_of_its_events_one_by_one(texts):
    key, before, sums = run_key(RUN), None, []
    events = [
        Event(n, kind, path, n / 3, n / 7, lane, {}, body)
        for n, (kind, path, lane, body) in enumerate(texts, 1)
    ]
    for event in events:
        stored = StoredEvent(*event[:3], event.lane, event.mono, event.wall, "{}", event.body, 4)
        before = event_sum(key, before, stored)
        sums.append(before)
    rows = [(0, 1, 2, 3, 4, 5, 6, "{}")] * len(events)
    assert [row[8:] for row in with_sums(key, None, 4, events, rows)] == [(4, s) for s in sums]
