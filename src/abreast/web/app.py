"""The page's web application and its server: JSON, static files, live streams and actions."""

import json
import socket
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from mimetypes import guess_type
from secrets import token_urlsafe
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from abreast.core.errors import AbreastError, NoSuchRun
from abreast.store.port import RunRow, Store
from abreast.web import live, pages
from abreast.web.actions import ActionRefused, Launch, act
from abreast.web.guard import Guard
from abreast.web.pages import STATIC, json_text, plotly_path

_MAX_BODY_BYTES: Final = 64 * 1024  # of an action's request
_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Site:
    """The settings of the page: the store it shows, its access control, and its callables."""

    store: Store
    token: str
    hosts: Collection[str]
    cookie: str = "abreast"
    secrets: Collection[str] = field(default=(), repr=False)
    launch: Launch | None = None
    prompt_of: Callable[[RunRow, str, object], str | None] = lambda *_: None
    review_of: pages.ReviewOf | None = None
    base: str = field(default_factory=lambda: f"/{token_urlsafe(24)}/", repr=False)
    """The path prefix of the page. It can't be guessed, and the cookie is bound to it."""
    closing: threading.Event = field(default_factory=threading.Event)
    """Set when the server is to stop; open streams end then."""


def make_app(site: Site) -> ASGIApp:
    """Build the application, wrapped in its guard."""
    server = _Server(site)
    json_pages = {
        "lanes": pages.lanes,
        "spending": pages.spending,
        "errors": pages.errors,
        "items": pages.items,
        "item": pages.item,
        "job": pages.job,
        "review": pages.review,
        "replies": pages.replies,
    }
    routes = [
        Route("/", server.shell),
        Route("/runs.json", partial(server.answer, pages.runs)),
        Route("/compare.json", partial(server.answer, pages.compare)),
        Route("/compare", server.shell),
        Route("/live", server.live_runs),
        Route("/static/{name}", _static),
        Route("/plotly.js", _plotly),
        *(
            Route(f"/run/{{run:path}}/{name}.json", partial(server.answer, page))
            for name, page in json_pages.items()
        ),
        Route("/run/{run:path}/live", server.live_run),
        Route("/run/{run:path}/act", server.act, methods=["POST"]),
        Route("/run/{run:path}.json", partial(server.answer, pages.head)),
        Route("/run/{run:path}", server.shell),
    ]
    handlers = {
        AbreastError: server.store_error,
        HTTPException: server.http_error,
        Exception: server.http_error,
    }
    app = Starlette(
        routes=[Mount(site.base.rstrip("/"), routes=routes)], exception_handlers=handlers
    )
    return Guard(app, token=site.token, hosts=site.hosts, cookie=site.cookie, base=site.base)


class _Server:
    """The handlers of the routes. JSON is built in threads, because reading the store blocks."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._source = pages.PageSource(site.store, site.prompt_of, site.review_of)

    async def shell(self, _: Request) -> Response:
        """The page without data; its links get the path prefix of the page."""
        text = (
            (STATIC / "index.html")
            .read_text(encoding="utf-8")
            .replace('="/', f'="{self._site.base}')
        )
        return Response(text, headers={"cache-control": "no-cache"}, media_type="text/html")

    async def answer(self, page: Callable[..., dict[str, object]], request: Request) -> Response:
        return self._json(
            await run_in_threadpool(
                page, self._source, *request.path_params.values(), request.query_params
            )
        )

    async def live_run(self, request: Request) -> Response:
        look = await run_in_threadpool(live.of_run, self._source, request.path_params["run"])
        return live.stream(request, look, self._site.closing, self._site.secrets)

    async def live_runs(self, request: Request) -> Response:
        return live.stream(
            request, live.of_runs(self._source), self._site.closing, self._site.secrets
        )

    async def act(self, request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0] != _JSON:
            raise HTTPException(415, "an action is JSON")
        try:
            sent = json.loads(await _body_of(request))
            action, fields = str(sent["action"]), dict(sent.get("fields") or {})
        except (ValueError, TypeError, KeyError, RecursionError):
            raise HTTPException(400, 'an action is {"action": ..., "fields": {...}}') from None
        try:
            done = await run_in_threadpool(
                act, self._site.store, self._site.launch, request.path_params["run"], action, fields
            )
        except ActionRefused as error:
            return self._json({"error": str(error)}, 409)
        return self._json({"said": done})

    async def store_error(self, _: Request, error: Exception) -> Response:
        return self._json({"error": str(error)}, 404 if isinstance(error, NoSuchRun) else 500)

    async def http_error(self, _: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            return self._json({"error": error.detail}, error.status_code)
        return self._json({"error": f"the page has a fault: {type(error).__name__}: {error}"}, 500)

    def _json(self, content: dict[str, object], status: int = 200) -> Response:
        text = json_text(content, self._site.secrets)
        return Response(
            text.encode("utf-8", "replace"), status, {"cache-control": "no-store"}, _JSON
        )


async def _body_of(request: Request) -> bytes:
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > _MAX_BODY_BYTES:
                raise HTTPException(413, "that is too long")
    except ClientDisconnect:
        raise HTTPException(400, "the request was not whole") from None
    return body


async def _static(request: Request) -> Response:
    """A file of the `static` folder, by name; a name with a path in it is refused."""
    name = request.path_params["name"]
    path = STATIC / name
    if path.name != name or path.parent != STATIC or not path.is_file():
        raise HTTPException(404, "there is no such file")
    # Small files, read at once: a FileResponse hands each to a thread three times.
    return Response(
        path.read_bytes(), headers={"cache-control": "no-cache"}, media_type=guess_type(name)[0]
    )


async def _plotly(_: Request) -> Response:
    path = plotly_path()
    if path is None:
        raise HTTPException(404, "plotly is not installed")
    return FileResponse(
        path, media_type="text/javascript", headers={"cache-control": "private, max-age=86400"}
    )


class Server(uvicorn.Server):
    """Serves the page: call `run` with a listening socket.

    It ends on Ctrl-C, or when `should_exit` is set.
    """

    def __init__(self, site: Site) -> None:
        """Serve `site`, and log warnings only."""
        super().__init__(
            uvicorn.Config(
                make_app(site),
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=2,
                lifespan="off",
                server_header=False,
            )
        )
        self._site = site

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the live streams, then shut down."""
        self._site.closing.set()
        await super().shutdown(sockets)
