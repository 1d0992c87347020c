"""What items came to, in a line each, and the search through what models and commands said."""

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import StoreError
from abreast.core.events import CALL_SETTLED, ITEM_SETTLED, Event
from abreast.store.port import Recorded, RunRow, Store
from abreast.views.job_view import listed, mapping, short
from abreast.views.run_reader import Follower, error_of, value_of

_LINE_CHARACTERS: Final = 240
_READ_CHARACTERS: Final = 4 * _LINE_CHARACTERS  # of a value that are looked at for a line
_MAX_SEARCHES: Final = 4  # of one run that are kept: a person types on
_MAX_REPLY_CHARACTERS: Final = 4000  # of a reply beside others
_KINDS: Final = frozenset({ITEM_SETTLED, CALL_SETTLED})
_REPLY: Final = "/reply"  # beneath a cell of a study: what it is scored by
# What a value is about, the first that it has; all else is shown as JSON.
_TEXTS: Final = ("text", "output", "stdout", "reply", "verdict", "value")


def line_of(recorded: Recorded | Event) -> str:
    """The value of an outcome in one line: its text, what failed, or why it was cancelled."""
    try:
        if recorded.data.get("state") == "failed":
            error = error_of(recorded)
            return _line(error.message or error.kind)
        if recorded.data.get("state") == "cancelled":
            return _line(str(recorded.data.get("reason") or ""))
        return _line(text_of(value_of(recorded)))
    except StoreError:
        return "a value that can't be read"


def text_of(value: object) -> str:
    """The text that a value is about: a reply, an output, the last draw; else JSON."""
    if isinstance(value, str):
        return value
    facts = mapping(value)
    for name in _TEXTS:
        found = facts.get(name)
        if isinstance(found, str) and (found.strip() or name != "stdout"):
            return found
        if name in ("output", "value") and isinstance(found, dict | list):
            return text_of(found)
    if "exit_code" in facts:
        return str(facts.get("stderr") or "")
    draws = [mapping(one) for one in listed(value)]
    if draws and isinstance(draws[-1].get("text"), str):
        return str(draws[-1]["text"])
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _line(text: str) -> str:
    return short(" ".join(text[:_READ_CHARACTERS].split()), _LINE_CHARACTERS)


def lines_of(store: Store, row: RunRow, paths: Iterable[str]) -> dict[str, str]:
    """The values of these items in a line each; those without an outcome are left out.

    A cell of a study says its scores, and then the reply that got them.
    """
    wanted = list(paths)
    cells = [f"{path}{_REPLY}" for path in wanted] if row.kind == "matrix" else []
    found = store.recorded(row.id, [*wanted, *cells])
    return {
        path: _cell_line(one, found.get(f"{path}{_REPLY}")) if cells else line_of(one)
        for path in wanted
        if (one := found.get(path)) is not None
    }


def _cell_line(cell: Recorded, reply: Recorded | None) -> str:
    if cell.data.get("state") != "done" or reply is None:
        return line_of(cell)
    said = line_of(reply)
    scores = scores_of(cell)
    return short(" · ".join(filter(None, (scores, said))), _LINE_CHARACTERS)


def scores_of(cell: Recorded) -> str:
    """The scores of a cell in a line: `exact 1, quality 0.67`."""
    try:
        scores: Mapping[str, Any] = mapping(mapping(value_of(cell)).get("scores"))
    except StoreError:
        return ""
    return ", ".join(
        f"{name} {value:.2g}" for name, value in scores.items() if isinstance(value, int | float)
    )


def replies_beside(
    store: Store, run_id: str, cells: Iterable[Mapping[str, object]]
) -> list[dict[str, object]]:
    """The cells of a study, each with its reply (or what failed) and its scores."""
    paths = {str(cell["path"]): cell for cell in cells}
    found = store.recorded(run_id, [*paths, *(f"{path}{_REPLY}" for path in paths)])
    shown = []
    for path, cell in paths.items():
        outcome, reply = found.get(path), found.get(f"{path}{_REPLY}")
        text = _reply_text(reply)
        shown.append(
            {
                **cell,
                "reply": (text or "")[:_MAX_REPLY_CHARACTERS],
                "characters": len(text or ""),
                "error": "" if text is not None or outcome is None else line_of(outcome),
                "scores": "" if outcome is None else scores_of(outcome),
            }
        )
    return shown


def _reply_text(reply: Recorded | None) -> str | None:
    if reply is None or reply.data.get("state") != "done":
        return None
    try:
        return text_of(value_of(reply))
    except StoreError:
        return None


class ReplySearch:
    """The items of a run whose outcome or replies contain some words, as far as it was read."""

    def __init__(self, words: str) -> None:
        """Search for `words`; case does not matter."""
        self._words = words.lower()
        # As the words are written within JSON, and, for a text that is JSON itself, once more.
        once = json.dumps(self._words, ensure_ascii=False)[1:-1]
        self._forms = {self._words, once, json.dumps(once, ensure_ascii=False)[1:-1]}
        self._follower = Follower()
        self._outcomes: set[str] = set()  # paths of items
        self._calls: set[str] = set()  # paths of items with a call beneath
        self._lock = threading.Lock()

    def add(self, event: Event) -> None:
        """Look into the next event: the newest outcome of an item is the one that counts."""
        body = (event.body or "").lower()
        found = any(form in body for form in self._forms)
        if event.kind == ITEM_SETTLED:
            (self._outcomes.add if found else self._outcomes.discard)(event.path)
        elif found:
            self._calls.add(event.path.rpartition("/call/")[0])

    def read(self, store: Store, row: RunRow, seconds: float) -> tuple[frozenset[str], float]:
        """Read on for at most `seconds`: the paths so far, and how much of the journal is read."""
        with self._lock:
            self._follower.read(store, row, self.add, _KINDS, SYSTEM_CLOCK.now() + seconds)
            after = self._follower.after
            paths = frozenset(self._outcomes | self._calls)
            return paths, 1.0 if after >= row.last_seq else after / row.last_seq


class Searches:
    """The last searches of a run: each goes on where it was."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, ReplySearch] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, words: str) -> ReplySearch:
        """The search for these words."""
        with self._lock:
            search = self._kept.setdefault(words, ReplySearch(words))
            self._kept.move_to_end(words)
            while len(self._kept) > _MAX_SEARCHES:
                self._kept.popitem(last=False)
            return search
