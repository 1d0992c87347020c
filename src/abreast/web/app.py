"""The page's server: routes to what `pages` says of the store, files beside this module, and actions."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from abreast.core.errors import NoSuchRun
from abreast.store.port import Store
from abreast.web import pages
from abreast.web.guard import Guard

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

STATIC: Final = Path(__file__).parent / "static"


@dataclass(frozen=True, slots=True)
class Site:
    """What the page is made of: the store it shows, and what it was handed for the rest."""

    store: Store
    token: str
    hosts: Collection[str]
    cookie: str = "abreast"
    secrets: Collection[str] = field(default=(), repr=False)


def make_app(site: Site) -> ASGIApp:
    """The application, behind its guard."""

    def said(answer: Callable[..., object]) -> Callable[[Request], Any]:
        return partial(_answer, site, answer)

    routes = [
        Route("/", partial(_shell)),
        Route("/runs.json", said(pages.runs)),
        Route("/static/{name}", _static),
        Route("/plotly.js", _plotly),
        Route("/run/{run:path}/job.json", said(pages.job)),
        Route("/run/{run:path}", _shell),
    ]
    app = Starlette(routes=routes, exception_handlers={NoSuchRun: _missing, HTTPException: _refused})
    return Guard(app, token=site.token, hosts=site.hosts, cookie=site.cookie)


async def _answer(site: Site, answer: Callable[..., object], request: Request) -> Response:
    """JSON, made in a thread: the store is read there."""
    given: Mapping[str, str] = request.query_params
    found = await run_in_threadpool(answer, site.store, *request.path_params.values(), given)
    return as_json(found, site.secrets)


def as_json(value: object, secrets: Collection[str] = (), status: int = 200) -> Response:
    """A response in JSON, without secrets; half a surrogate pair, which isn't text, becomes a question mark."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for secret in secrets:
        text = text.replace(secret, "***")
    body = text.encode("utf-8", "replace")
    return Response(body, status, {"cache-control": "no-store"}, "application/json")


async def _shell(_: Request) -> Response:
    return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})


async def _static(request: Request) -> Response:
    """A file of ours, by its name alone: a path has no place here."""
    name = request.path_params["name"]
    path = STATIC / name
    if path.name != name or path.parent != STATIC or not path.is_file():
        raise HTTPException(404, "there is no such file")
    return FileResponse(path, headers={"cache-control": "no-cache"})


async def _plotly(_: Request) -> Response:
    from importlib.util import find_spec

    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        raise HTTPException(404, "plotly is not installed")
    path = Path(spec.origin).parent / "package_data" / "plotly.min.js"
    return FileResponse(path, media_type="text/javascript", headers={"cache-control": "private, max-age=86400"})


async def _missing(_: Request, error: Exception) -> Response:
    return as_json({"error": str(error)}, status=404)


async def _refused(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return as_json({"error": getattr(error, "detail", str(error))}, status=status)
