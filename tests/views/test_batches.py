"""The view of batches: what waits, what is done, and what was saved."""

from abreast.core.events import (
    BATCH_ENDED,
    BATCH_GATHERED,
    BATCH_SUBMITTED,
    CALL_SETTLED,
    Event,
)
from abreast.views.progress import BatchCounts


def counts(*events):
    found = BatchCounts()
    for seq, (kind, path, data) in enumerate(events, 1):
        found.add(Event(seq, kind, path, 0.0, 0.0, None, data))
    return found


FIRST = (BATCH_GATHERED, "run/batch/a", {"requests": 100})
SECOND = (BATCH_GATHERED, "run/batch/b", {"requests": 50})
SUBMITTED = (BATCH_SUBMITTED, "run/batch/a", {})
ENDED = (BATCH_ENDED, "run/batch/a", {"state": "done"})


def test_a_run_without_batches_says_nothing_of_them():
    found = counts((CALL_SETTLED, "run/items/1/call/x", {"usd": 1.0}))
    assert (bool(found), found.text()) == (False, "")


def test_a_batch_waits_until_it_has_ended():
    assert counts(FIRST).text() == "1 batch waits with 100 calls"
    assert counts(FIRST, SECOND, SUBMITTED).text() == "2 batches wait with 150 calls"
    assert counts(FIRST, SECOND, ENDED).text() == "1 batch waits with 50 calls, 1 done"
    assert counts(FIRST, ENDED, ENDED).text() == "1 batch done"


def test_what_was_saved_is_summed_over_the_calls():
    call = (CALL_SETTLED, "run/items/1/call/x", {"batch": True, "saved": 0.25})
    found = counts(FIRST, SUBMITTED, ENDED, call, call)
    assert found.text() == "1 batch done, 0.5 usd saved"
    assert found.plain() == {
        "submitted": 1,
        "waiting": 0,
        "calls_waiting": 0,
        "done": 1,
        "calls_answered": 2,
        "saved_usd": 0.5,
    }
