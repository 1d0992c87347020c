"""Helpers for tests of jobs' views: views of real runs, and journals written by the test."""

import json

from abreast.core.events import ITEM_SETTLED, Event
from abreast.store.port import Driver
from abreast.web.store_reader import JobViewReader

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x00\ud800\u202e"
"""What a reply may say: markup, half a surrogate pair, a switch of direction."""
MOST = 1_500_000
"""Bytes of a view, whatever the run's size."""


def viewed(store, run_id, told=None):
    """What the page gets, as it gets it: JSON, bounded."""
    told = told or JobViewReader(store.get(run_id).kind)
    view, read = told.view(store, run_id)
    assert read == 1
    text = json.dumps(view, allow_nan=False)
    assert len(text) < MOST
    return json.loads(text)


def settled(path, body, state="done", index=0, **data):
    """The event of one outcome."""
    return (ITEM_SETTLED, path, {"index": index, "state": state, **data}, body)


class Hand:
    """Writes a run's journal directly: invalid events, or more than a test could wait for."""

    def __init__(self, store, kind, name="hand", manifest=None):
        self.store = store
        row = store.begin(
            name,
            kind=kind,
            seed=1,
            manifest=manifest or {},
            tags=(),
            driver=Driver(1, "here", 0.0, "test"),
        )
        self.id, self.name, self._epoch, self._seq = row.id, row.name, row.epoch, 0

    def write(self, *events):
        """Events as (kind, path, data, body)."""
        made = [
            Event(self._seq + at, kind, path, float(at), float(at), None, data or {}, body)
            for at, (kind, path, data, body) in enumerate(events, 1)
        ]
        self._seq += len(made)
        self.store.commit(self.id, self._epoch, made, {})

    def settle(self, path, body, state="done", index=0, **data):
        """One outcome."""
        self.write(settled(path, body, state, index, **data))

    def end(self, state="done"):
        """End the run."""
        self.store.end(self.id, self._epoch, state, "", 1.0)
