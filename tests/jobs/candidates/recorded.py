"""Reads from a store how many checks of a candidates run were under way at once."""

from contextlib import closing

from abreast.core.events import ITEM_SETTLED, ITEM_STARTED
from abreast.store.port import each_event
from abreast.store.sqlite.store import SqliteStore


def most_checked_at_once(path, run_id="optimize-1"):
    """The largest number of behaviour checks under way at once."""
    under_way, most = set(), 0
    with closing(SqliteStore(path)) as store:
        for event in each_event(store, run_id, {ITEM_STARTED, ITEM_SETTLED}):
            if event.path.endswith("/behaviour"):
                (under_way.add if event.kind == ITEM_STARTED else under_way.discard)(event.path)
                most = max(most, len(under_way))
    return most
