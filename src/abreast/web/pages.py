"""What each page says, as plain JSON: the twins of the pages, and what the pages themselves are drawn from."""

from __future__ import annotations

from collections.abc import Mapping

from abreast.store.port import Store
from abreast.web.jobs import view_of
from abreast.web.reading import Journal


def runs(store: Store, given: Mapping[str, str]) -> dict[str, object]:
    """The runs of the store, newest first."""
    return {"runs": [{"id": row.id, "kind": row.kind, "state": row.state} for row in store.runs()]}


def job(store: Store, run_id: str, given: Mapping[str, str]) -> dict[str, object]:
    """What a job of this kind shows beside its lanes: `{"kind": ..., "view": ...}`; the view is None for plain maps."""
    journal = Journal(store, run_id)
    row = journal.run()
    view = view_of(row.kind)
    return {"kind": row.kind, "view": None if view is None else view(journal, row)}
