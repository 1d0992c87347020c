"""What a run has cost, by its journal alone."""

from types import SimpleNamespace

from abreast.core.events import Event
from abreast.jobs.matrix.recorded_rows import spent_of

USED = {
    "requests": 2,
    "input_tokens": 30,
    "output_tokens": 10,
    "usd": 0.5,
    "estimate": False,
    "state": "done",
}
RESERVED = {"model": "a/one", "tokens": 100, "usd": 2.0}


class Journal:
    """A store that has these events."""

    def __init__(self, *events):
        self._events = [
            Event(seq, kind, path, 0.0, 0.0, None, data)
            for seq, (kind, path, data) in enumerate(events, 1)
        ]

    def events(self, run_id, after=0, limit=0, kinds=()):
        return [event for event in self._events if event.seq > after and event.kind in kinds]


def spent(*events):
    return spent_of(Journal(*events), SimpleNamespace(id="s-1"))


def test_every_settled_call_counts_also_when_its_cell_was_asked_again():
    first = [("call-started", "s/a/x/call/1", RESERVED), ("call-settled", "s/a/x/call/1", USED)]
    found = spent(
        *first, ("run-resumed", "s", {}), *first, ("item-settled", "s/a/x", {"state": "done"})
    )
    assert found == {"requests": 4, "tokens": 80, "usd": 1.0}


def test_a_call_that_a_kill_cut_off_counts_as_what_was_reserved_for_it():
    started = ("call-started", "s/a/x/call/1", RESERVED)
    killed = spent(
        started, ("run-resumed", "s", {}), started, ("call-settled", "s/a/x/call/1", USED)
    )
    assert killed == {"requests": 3, "tokens": 140, "usd": 2.5}
    assert spent(started) == {"requests": 1, "tokens": 100, "usd": 2.0}


def test_further_attempts_of_a_call_are_in_what_it_used():
    started = ("call-started", "s/a/x/call/1", RESERVED)
    assert spent(started, started, ("call-settled", "s/a/x/call/1", USED))["requests"] == 2
