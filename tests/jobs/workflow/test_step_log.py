"""The lines of a workflow's log: one for each step, and more only if that is asked for."""

from abreast.core.events import ITEM_SETTLED, ITEM_STARTED, MAP_ENDED, Event
from abreast.jobs.workflow.step_log import StepLog

FAN_OUT = [
    ("fan-out-started", "flow/each", {"items": 2, "width": 4}),
    (ITEM_STARTED, "flow/each/0000", {}),
    (ITEM_STARTED, "flow/each/0000/one", {}),
    (ITEM_SETTLED, "flow/each/0000/one", {"state": "done"}),
    (ITEM_SETTLED, "flow/each/0000", {"state": "done"}),
    (ITEM_STARTED, "flow/each/0001", {}),
    (ITEM_SETTLED, "flow/each/0001", {"state": "cancelled", "reason": "a failure"}),
    (MAP_ENDED, "flow/each", {}),
]


def said(*news, verbose=False):
    """What is said of events that come half a second after each other."""
    log = StepLog(verbose=verbose)
    events = [
        Event(at, kind, path, at / 2, at / 2, None, data)
        for at, (kind, path, data) in enumerate(news)
    ]
    return [line for event in events for line in log.lines(event)]


def test_a_step_is_told_when_it_ends_with_its_seconds():
    step = [(ITEM_STARTED, "flow/list", {}), (ITEM_SETTLED, "flow/list", {"state": "done"})]

    assert said(*step) == ["list: done in 0.5 s"]
    assert said(*step, verbose=True) == ["list: started", "list: done in 0.5 s"]


def test_a_fan_out_is_two_lines_however_many_items_it_has():
    assert said(*FAN_OUT) == [
        "each: 2 items, 4 at once",
        "each: 1 cancelled, 1 done in 3.5 s",
    ]


def test_verbose_names_each_item_and_each_step_of_it():
    lines = said(*FAN_OUT, verbose=True)

    assert "each/0000/one: done in 0.5 s" in lines
    assert "each/0001: cancelled in 0.5 s: a failure" in lines
    assert len(lines) == len(FAN_OUT)


def test_what_lies_beneath_a_step_is_told_only_if_verbose():
    sample = [
        (ITEM_STARTED, "flow/pick", {}),
        (ITEM_STARTED, "flow/pick/0000", {}),
        (ITEM_SETTLED, "flow/pick/0000", {"state": "failed"}),
        (ITEM_SETTLED, "flow/pick", {"state": "done"}),
    ]

    assert said(*sample) == ["pick: done in 1.5 s"]
    assert len(said(*sample, verbose=True)) == 4


def test_rounds_of_a_loop_are_steps():
    rounds = [
        (kind, f"flow/again/000{number}/count", {"state": "done"})
        for number in range(2)
        for kind in (ITEM_STARTED, ITEM_SETTLED)
    ]

    assert said(*rounds) == [
        "again/0000/count: done in 0.5 s",
        "again/0001/count: done in 0.5 s",
    ]


def test_a_gate_that_waits_and_what_failed_are_told():
    event = Event(1, ITEM_SETTLED, "flow/ok", 1, 1, None, {"state": "done"}, '{"status":"failed"}')

    assert said(("gate-asked", "flow/ok", {})) == ["ok: waits for a decision"]
    assert next(iter(StepLog().lines(event))).startswith("ok: failed")
