"""A job's view continues where it was: no event is read twice, and none is left out."""

import threading

import pytest

from abreast.core.errors import NoSuchRun
from abreast.testing import MemoryStore
from abreast.web.store_reader import JobViewReader, waiting_gates
from tests.web.jobs.viewing import Hand, settled, viewed


def begun(store):
    hand = Hand(store, "workflow", "flow")
    hand.write(("workflow-outlined", "flow", {}, '[{"id": "a", "type": "shell"}]'))
    return hand


def settle(hand):
    hand.settle("flow/a", '{"output": {}}', service=[1.0])


def seconds(view):
    return view["steps"][0]["seconds"]


def test_no_event_is_read_twice():
    store, told = MemoryStore(), JobViewReader("workflow")
    hand = begun(store)
    settle(hand)
    assert [seconds(viewed(store, hand.id, told)) for _ in range(3)] == [1.0, 1.0, 1.0]
    settle(hand)
    assert seconds(viewed(store, hand.id, told)) == 2.0


def test_what_is_written_while_it_is_read_counts_once():
    class Meanwhile(MemoryStore):
        writes = False

        def get(self, run_id):
            row = super().get(run_id)
            if self.writes:
                self.writes = False
                settle(hand)
            return row

    store, told = Meanwhile(), JobViewReader("workflow")
    hand = begun(store)
    store.writes = True
    assert seconds(told.view(store, hand.id)[0]) == 1.0
    assert seconds(told.view(store, hand.id)[0]) == 1.0


def test_several_pages_at_once_read_it_once():
    store, told = MemoryStore(), JobViewReader("workflow")
    hand = begun(store)
    for _ in range(50):
        settle(hand)
    seen, together = [], threading.Barrier(8)

    def look():
        together.wait(60)
        seen.append(seconds(told.view(store, hand.id)[0]))

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seen == [50.0] * 8


def test_a_run_of_no_job_is_told_as_a_map_and_one_that_is_gone_is_not():
    store = MemoryStore()
    hand = Hand(store, "telling")  # the name of a module beside the views
    hand.settle("hand/work/0", '"done"')
    hand.end()
    assert (JobViewReader("telling").kind, viewed(store, hand.id)["total"]) == ("map", 1)
    store.remove(hand.id)
    with pytest.raises(NoSuchRun):
        JobViewReader("map").view(store, hand.id)


def test_a_long_journal_is_told_while_it_is_read():
    store, told = MemoryStore(), JobViewReader("workflow")
    hand = begun(store)
    hand.write(*(settled("flow/a", '{"output": {}}', service=[1.0]) for _ in range(999)))
    parts = []
    while not parts or parts[-1][1] < 1:
        view, read = told.view(store, hand.id, 0)
        parts.append((seconds(view), read))
    assert len(parts) > 5
    assert parts == sorted(parts)
    assert parts[-1] == (999.0, 1.0)


def test_gates_are_found_after_a_map_was_looked_at():
    store = MemoryStore()
    plain = Hand(store, "map")
    viewed(store, plain.id)
    hand = Hand(store, "workflow", "flow")
    hand.write(
        ("workflow-outlined", "flow", {}, '[{"id": "g", "type": "gate"}]'),
        ("gate-asked", "flow/g", {"gate": "g"}, '{"options": ["yes", "no"]}'),
    )
    assert waiting_gates(store, store.get(hand.id)) == {"g": ["yes", "no"]}
    assert waiting_gates(store, store.get(plain.id)) == {}
