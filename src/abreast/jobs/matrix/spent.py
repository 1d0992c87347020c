"""The cost of a study's run so far, from its journal, with cells that were superseded since."""

from abreast.run.call_totals import CALL_KINDS, call_totals
from abreast.store.port import RunRow, Store, each_event


def spent_of(store: Store, run: RunRow) -> dict[str, float]:
    """Requests, tokens and money of all calls.

    A call that was cut off by a kill counts as what was reserved for it.
    """
    return call_totals(each_event(store, run.id, CALL_KINDS)).paid
