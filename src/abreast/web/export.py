"""Export of one run as a single HTML file.

It holds the page's own modules and the server's answers as data, and fetches nothing.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Collection
from html import escape
from pathlib import Path
from typing import Any, Final

from abreast.store.port import RunRow, Store
from abreast.web import lane_window, pages
from abreast.web.pages import STATIC, PageSource, json_text, plotly_path
from abreast.web.replies import lines_of

_MAX_ITEMS: Final = 5000  # rows of the table; with more items, the failed ones are kept first
_MAX_DETAILED_ITEMS: Final = 1000  # items with their texts
_MAX_DETAIL_CHARACTERS: Final = 8_000_000  # characters of all texts together
_COLUMNS: Final = 4000  # of pixels, for which the lanes are computed
_IMPORT: Final = re.compile(r"""(["`])\./(?=[a-z-]+(?:\$\{kind\})?\.js\1)""")


def html(
    store: Store,
    run_id: str,
    prompt_of: Callable[[RunRow, str, object], str | None] = lambda *_: None,
    secrets: Collection[str] = (),
) -> str:
    """Return the text of the file. A run that is still running is written as it is now."""
    content = _content(PageSource(store, prompt_of), run_id)
    library = plotly_path() if content["head"]["models"] else None
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
    digests = (hashlib.sha256(text.encode()).digest() for _, text in scripts)
    policy = " ".join(f"'sha256-{base64.b64encode(one).decode('ascii')}'" for one in digests)
    data = json_text(content, secrets).replace("<", r"\u003c")
    style = "".join(
        (STATIC / name).read_text(encoding="utf-8") for name in ("page.css", "jobs.css")
    )
    body = "".join(f'<script type="{kind}">{text}</script>\n' for kind, text in scripts)
    return (
        f'<!doctype html>\n<html lang="en" data-run="{escape(run_id)}">\n'
        '<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="'
        f"default-src 'none'; script-src {policy} data:; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(run_id)}</title>\n<style>{style}</style>\n</head>\n"
        '<body>\n<header id="top"></header>\n<main id="main" tabindex="-1"></main>\n'
        f'<script type="application/json" id="kept">{data}</script>\n{body}</body>\n</html>\n'
    )


def _content(source: PageSource, run_id: str) -> dict[str, Any]:
    """The answers that the server would give for this run."""
    run = source.reader.get(run_id)
    with run.lock:
        while not run.caught_up:
            run.refresh()
        view, now = run.view, run.now
        head = {
            **pages.head_of(run),
            "state": "as it ran" if run.state == "running" else run.state,
        }
        lanes = lane_window.window(view, now, begin=0.0, end=max(now, 0.01), columns=_COLUMNS)
        places = sorted(range(len(view.items)), key=lambda at: (-view.items.state[at], at))[
            :_MAX_ITEMS
        ]
        nested = view.items.nested()
        rows = [
            {**view.items.row(at), "place": at, "nested": bool(nested[at])} for at in sorted(places)
        ]
        names = list(view.lanes)
    lines = lines_of(source.store, run.row, [str(row["path"]) for row in rows])
    rows = [{**row, "value": lines.get(str(row["path"]), "")} for row in rows]
    details: dict[str, object] = {}
    characters_left = _MAX_DETAIL_CHARACTERS
    for at in places[:_MAX_DETAILED_ITEMS]:
        found = pages.item(source, run_id, {"path": view.items.paths[at]})
        characters_left -= len(json.dumps(found))
        if characters_left < 0:
            break
        details[view.items.paths[at]] = found
    return {
        "head": head,
        "lanes": lanes,
        "spending": pages.spending(source, run_id, {}),
        "details": details,
        "errors": pages.errors(source, run_id, {}),
        "job": _job(source, run_id),
        "items": {"items": rows, "lanes": names},
    }


def _job(source: PageSource, run_id: str) -> dict[str, Any]:
    """The view of the run's job, read to the end of the journal."""
    while (answer := pages.job(source, run_id, {}))["read"] != 1:
        pass
    return answer


def _module(path: Path) -> str:
    """A JavaScript module as a `data:` URL.

    Its imports are rewritten to names of the import map, since a `data:` URL has no folder.
    """
    text = _IMPORT.sub(r"\1page/", path.read_text(encoding="utf-8"))
    return f"data:text/javascript;base64,{base64.b64encode(text.encode()).decode('ascii')}"
