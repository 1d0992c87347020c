"""What the calls of a run used: those that were cut off are apart, whatever cut them off."""

from abreast.core.events import Event
from abreast.core.outcome import Usage
from abreast.run.call_totals import call_totals

USED = {"requests": 2, "input_tokens": 30, "output_tokens": 10, "usd": 0.5, "estimate": False}
RESERVED = {"model": "a/one", "tokens": 100, "usd": 2.0}
STARTED = ("call-started", "r/work/0000/call/x-0", RESERVED)


def totals(*events, driven=False):
    made = [
        Event(seq, kind, path, 0.0, 0.0, None, data)
        for seq, (kind, path, data) in enumerate(events, 1)
    ]
    return call_totals(made, driven=driven)


def settled(state, model="a/one"):
    return ("call-settled", "r/work/0000/call/x-0", {**USED, "state": state, "model": model})


def test_calls_that_ended_are_summed_up_by_model():
    found = totals(
        STARTED, settled("done"), STARTED, settled("failed"), STARTED, settled("done", "b/two")
    )
    assert found.by_model == {"a/one": Usage(4, 60, 20, 1.0), "b/two": Usage(2, 30, 10, 0.5)}
    assert found.cut_off == {"requests": 0, "tokens": 0, "usd": 0}
    assert found.paid == {"requests": 6, "tokens": 120, "usd": 1.5}


def test_a_call_that_was_cancelled_or_killed_is_in_a_total_of_its_own():
    cancelled = totals(STARTED, settled("cancelled"), STARTED, settled("done"))
    assert (cancelled.by_model, cancelled.cut_off["requests"]) == (
        {"a/one": Usage(2, 30, 10, 0.5)},
        2,
    )
    killed = totals(STARTED, ("run-resumed", "r", {}), STARTED, settled("done"))
    assert killed.by_model == {"a/one": Usage(2, 30, 10, 0.5)}
    assert killed.cut_off == {"requests": 1, "tokens": 100, "usd": 2.0}
    assert killed.paid == {"requests": 3, "tokens": 140, "usd": 2.5}


def test_an_open_call_is_lost_only_when_its_driver_is_gone():
    assert totals(STARTED, driven=True).cut_off["requests"] == 0
    assert totals(STARTED).cut_off["requests"] == 1
