"""The page of one run as a single file: the same modules, with the answers of the server inside.

It fetches nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Collection
from html import escape
from pathlib import Path
from typing import Any, Final

from abreast.store.port import RunRow, Store
from abreast.web import lane_window as picture
from abreast.web import pages
from abreast.web.files import STATIC, json_text, plotly_path
from abreast.web.pages import PageSource

_ITEMS: Final = 5000  # rows of the table, the failed ones first if there are more
_DETAILS: Final = 1000  # items with their texts
_TEXTS: Final = 8_000_000  # characters of all texts together
_COLUMNS: Final = 4000
_IMPORT: Final = re.compile(r"""(["`])\./(?=[a-z-]+(?:\$\{kind\})?\.js\1)""")


def html(
    store: Store,
    run_id: str,
    prompt_of: Callable[[RunRow, str, object], str | None] = lambda *_: None,
    secrets: Collection[str] = (),
) -> str:
    """The file's text. A run that goes on is written as it is now."""
    kept = _kept(PageSource(store, prompt_of), run_id)
    library = plotly_path() if kept["head"]["models"] else None
    modules = {f"page/{path.name}": _module(path) for path in sorted(STATIC.glob("*.js"))}
    scripts = [
        ("importmap", json.dumps({"imports": modules})),
        ("module", 'import "page/main.js";'),
    ]
    if library is not None:
        scripts.append(
            (
                "text/javascript",
                library.read_text(encoding="utf-8").replace("</script", r"<\/script"),
            )
        )
    policy = " ".join(f"'{_hash(text)}'" for _, text in scripts)
    data = json_text(kept, secrets).replace("<", r"\u003c")
    style = "".join(
        (STATIC / name).read_text(encoding="utf-8") for name in ("page.css", "jobs.css")
    )
    body = "".join(f'<script type="{kind}">{text}</script>\n' for kind, text in scripts)
    return (
        f'<!doctype html>\n<html lang="en" data-run="{escape(run_id)}">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="'
        f"default-src 'none'; script-src {policy} data:; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(run_id)}</title>\n<style>{style}</style>\n</head>\n"
        '<body>\n<header id="top"></header>\n<main id="main" tabindex="-1"></main>\n'
        f'<script type="application/json" id="kept">{data}</script>\n{body}</body>\n</html>\n'
    )


def _kept(desk: PageSource, run_id: str) -> dict[str, Any]:
    """What the server would say."""
    book = desk.shelf.book(run_id)
    with book.lock:
        while not book.caught_up:
            book.look()
        fold, now = book.fold, book.now
        head = {
            **pages.head_of(book),
            "state": "as it ran" if book.state == "running" else book.state,
        }
        lanes = picture.window(fold, now, begin=0.0, end=max(now, 0.01), columns=_COLUMNS)
        places = sorted(range(len(fold.items)), key=lambda at: (-fold.items.state[at], at))[:_ITEMS]
        rows = [{**fold.items.row(at), "place": at} for at in sorted(places)]
        names = list(fold.lanes)
    details: dict[str, object] = {}
    room = _TEXTS
    for at in places[:_DETAILS]:
        found = pages.item(desk, run_id, {"path": fold.items.paths[at]})
        room -= len(json.dumps(found))
        if room < 0:
            break
        details[fold.items.paths[at]] = found
    return {
        "head": head,
        "lanes": lanes,
        "spending": pages.spending(desk, run_id, {}),
        "details": details,
        "errors": pages.errors(desk, run_id, {}),
        "job": _job(desk, run_id),
        "items": {"items": rows, "lanes": names},
    }


def _job(desk: PageSource, run_id: str) -> dict[str, Any]:
    """What its job shows, read to the end."""
    while (said := pages.job(desk, run_id, {}))["read"] != 1:
        pass
    return said


def _module(path: Path) -> str:
    """A module as an address of its own.

    Modules of one file find each other by names, not by places.
    """
    text = _IMPORT.sub(r"\1page/", path.read_text(encoding="utf-8"))
    return f"data:text/javascript;base64,{base64.b64encode(text.encode()).decode('ascii')}"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"
