"""Runs of a list whose rows or events are not as they were written.

They are shown as damaged, with the sentence that names the rows, and the other runs as always.
"""

from collections.abc import Mapping, Sequence

from abreast.core.errors import StoreDamaged
from abreast.store.port import RunRow, Store
from abreast.views.progress import Tallies

DAMAGED = "damaged"
"""The state in which such a run is shown."""


def list_runs(store: Store, most: int) -> tuple[list[RunRow], dict[str, str]]:
    """The newest runs, and what is wrong with those that can't be read, by their ids."""
    found: list[StoreDamaged] = []
    rows = store.runs(limit=most, on_damage=found.append)
    return rows, {error.run_id: str(error) for error in found}


def damaged_lines(damage: Mapping[str, str], words: str = "") -> list[dict[str, object]]:
    """What a list shows of runs that can't be read, if they match the words in small letters.

    Nothing of a damaged row is shown but its id.
    """
    counts = dict.fromkeys(("done", "failed", "cancelled", "usd", "unpriced", "tokens"), 0)
    return [
        {
            "id": run_id,
            "name": run_id,
            "kind": "",
            "state": DAMAGED,
            "reason": sentence,
            "tags": (),
            "created": None,
            "took": None,
            "total": None,
            "counted": True,
            **counts,
        }
        for run_id, sentence in damage.items()
        if words in f"{run_id} {sentence}".lower()
    ]


class DamagedRuns:
    """The runs whose rows are whole and whose events are not, as far as they were counted."""

    def __init__(self) -> None:
        self.events: dict[str, str] = {}
        """The sentence for each, by its id."""

    def count(self, tallies: Tallies, rows: Sequence[RunRow]) -> None:
        """Count the items of runs, and note those whose events can't be read."""
        damage: dict[str, str] = {}
        counted = False
        while not counted:
            try:
                tallies.update([row for row in rows if row.id not in damage])
                counted = True
            except StoreDamaged as error:
                if error.run_id in damage:
                    raise
                damage[error.run_id] = str(error)
        others = {row.id for row in rows} - set(damage)
        self.events = {
            run_id: sentence
            for run_id, sentence in {**self.events, **damage}.items()
            if run_id not in others
        }

    def marked(self, line: dict[str, object]) -> dict[str, object]:
        """The line of a run, which says if its events are damaged."""
        sentence = self.events.get(str(line["id"]))
        if sentence is None:
            return line
        return {**line, "state": DAMAGED, "reason": sentence, "counted": True}
