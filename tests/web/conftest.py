"""A real Chromium, one for all tests of a module, and the page served as `abreast ui` serves it."""

import asyncio
import functools
import http.server
import os
import secrets
import socket
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from abreast import open_run
from abreast.store.sqlite.store import SqliteStore
from abreast.testing import Gate

SCRIPT = Path(__file__).parents[2] / "scripts" / "get_chromium.py"


@pytest.fixture(scope="module")
def browser():
    """Chromium; only CI may install it: a developer's machine is theirs.

    One for each module: while it is open, playwright has a loop running in this thread, where no
    `async` test can be.
    """
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    sync_api.expect.set_options(timeout=60_000)  # the last net, on a busy machine
    options = [] if "CI" in os.environ else ["--find"]
    found = subprocess.run(
        [sys.executable, SCRIPT, *options], capture_output=True, text=True, timeout=110, check=False
    )
    if found.returncode and "CI" not in os.environ:
        pytest.skip("no Chromium here: python scripts/get_chromium.py installs one")
    assert found.returncode == 0, found.stderr
    with sync_api.sync_playwright() as playwright:
        # As root, as CI is, Chromium has no sandbox of its own; the pages are ours.
        browser = playwright.chromium.launch(
            executable_path=found.stdout.strip(), args=["--no-sandbox"]
        )
        yield browser
        browser.close()


@pytest.fixture
def store(tmp_path):
    """An empty store in a file."""
    with closing(SqliteStore(tmp_path / "runs.db")) as opened:
        yield opened


class Served:
    """The page of a store, served by a thread of this process."""

    def __init__(self, port, token, base):
        self.port = port
        self.base = base
        self.token = token
        self.launched = []

    def at(self, path="/"):
        """A path of the page, beneath the one that can't be guessed."""
        return f"{self.base}{path.removeprefix('/')}"

    def address(self, path="/"):
        """The address of a path of the page, with the token."""
        mark = "&" if "?" in path else "?"
        return f"http://127.0.0.1:{self.port}{self.at(path)}{mark}token={self.token}"


@contextmanager
def serving(store, **more):
    """Serve a store's page; `more` goes into its `Site`."""
    from abreast.web.app import Server, Site

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port, token = listening.getsockname()[1], secrets.token_urlsafe(16)
        site = Site(
            store, token, {f"127.0.0.1:{port}", f"localhost:{port}"}, f"abreast-{port}", **more
        )
        server = Server(site)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield Served(port, token, site.base)
        finally:
            server.should_exit = True
            thread.join(60)


class _Listening(http.server.BaseHTTPRequestHandler):
    """Another program on this machine: it answers, and keeps what it was sent."""

    def do_GET(self):
        self.server.seen.append(dict(self.headers))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        """Log nothing."""


@contextmanager
def another_program():
    """A server on another port of this machine."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Listening) as server:
        server.seen = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(60)


@pytest.fixture
def served(store):
    """The page of the empty store of this test; fill it by driving runs with `store`."""
    with serving(store) as page:
        yield page


@pytest.fixture
def open_page(browser):
    """`open_page(served, "/run/map-1", color_scheme="dark")`: a tab.

    At the end it must have complained of nothing.
    """
    contexts, complaints, forgiven = [], [], []

    def opened(served, path="/", **context):
        made = browser.new_context(
            **{"reduced_motion": "reduce", "viewport": {"width": 1200, "height": 900}, **context}
        )
        made.set_default_timeout(60_000)
        contexts.append(made)
        page = made.new_page()
        page.on(
            "console", lambda said: complaints.append(said.text) if _is_complaint(said) else None
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(served.address(path))
        return page

    opened.forgiven = forgiven
    yield opened
    for context in contexts:
        context.close()
    assert [said for said in complaints if not any(words in said for words in forgiven)] == []


def _is_complaint(said):
    """Whether a message is an error of the page; a lost connection to its server is not."""
    return said.type in ("error", "warning") and not any(lost in said.text for lost in LOST)


LOST = tuple(
    f"net::ERR_{name}" for name in ("CONNECTION", "EMPTY_RESPONSE", "INCOMPLETE_CHUNKED_ENCODING")
)


class Driven:
    """A run that a thread drives item by item: each waits at a gate until the test releases it."""

    def __init__(self, place, items, *, width, name="held", lanes=None, work=None):
        self._place, self._items, self._width, self._name, self._lanes = (
            place,
            items,
            width,
            name,
            lanes,
        )
        self._work = work or (lambda item: f"reply to {item}")
        self._gate = Gate()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self.error = None
        self._thread = threading.Thread(target=self._drive)

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._gate.open_all)
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._loop.close()

    def open(self, *who):
        """Release these items."""
        self._loop.call_soon_threadsafe(self._gate.open, *who)

    def ended(self):
        """Release all items, and wait for the end."""
        self._loop.call_soon_threadsafe(self._gate.open_all)
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _drive(self):
        try:
            self._loop.run_until_complete(self._run())
        except BaseException as error:
            self.error = error

    async def _run(self):
        async def work(item):
            await self._gate.pass_(item)
            return self._work(item)

        try:
            async with open_run(self._name, store=self._place, lanes=self._lanes, seed=1) as run:
                async with run.map(
                    work, self._items, width=self._width, lane=next(iter(self._lanes or ()), None)
                ) as map_:
                    first = asyncio.ensure_future(self._gate.wait_for(*self._items[: self._width]))
                    first.add_done_callback(lambda _: self._ready.set())
                    async for _ in map_:
                        pass
        finally:
            self._ready.set()


@pytest.fixture
def driven(store):
    """`with driven([1, 2, 3], width=2) as run:` drives a run beside the test.

    `run.open(1)` lets an item go.
    """
    return functools.partial(Driven, store.path)
