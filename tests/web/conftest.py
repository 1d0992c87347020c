"""A real Chromium, one for all tests of a process, and the page served as `abreast ui` serves it."""

import os
import secrets
import socket
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from abreast.store.sqlite import SqliteStore

SCRIPT = Path(__file__).parents[2] / "scripts" / "get_chromium.py"


@pytest.fixture(scope="session")
def browser():
    """Chromium; only CI may install it: a developer's machine is theirs."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    options = [] if "CI" in os.environ else ["--find"]
    found = subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True, timeout=110, check=False)
    if found.returncode and "CI" not in os.environ:
        pytest.skip("no Chromium here: python scripts/get_chromium.py installs one")
    assert found.returncode == 0, found.stderr
    with sync_api.sync_playwright() as playwright:
        # As root, as CI is, Chromium has no sandbox of its own; the pages are ours.
        browser = playwright.chromium.launch(executable_path=found.stdout.strip(), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def store(tmp_path):
    """An empty store in a file."""
    with closing(SqliteStore(tmp_path / "runs.db")) as opened:
        yield opened


class Served:
    """The page of a store, served by a thread of this process."""

    def __init__(self, port, token):
        self.port = port
        self.token = token
        self.launched = []

    def address(self, path="/"):
        """The address of a path, with the token."""
        return f"http://127.0.0.1:{self.port}{path}{'&' if '?' in path else '?'}token={self.token}"


@contextmanager
def serving(store, **more):
    """Serve a store's page; `more` goes into its `Site`."""
    import uvicorn

    from abreast.web.app import Site, make_app

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port, token = listening.getsockname()[1], secrets.token_urlsafe(16)
        site = Site(store, token, {f"127.0.0.1:{port}", f"localhost:{port}"}, f"abreast-{port}", **more)
        config = uvicorn.Config(make_app(site), log_level="warning", timeout_graceful_shutdown=1, lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield Served(port, token)
        finally:
            server.should_exit = True
            thread.join(30)


@pytest.fixture
def served(store):
    """The page of the empty store of this test; fill it by driving runs with `store`."""
    with serving(store) as page:
        yield page


@pytest.fixture
def open_page(browser):
    """`open_page(served, "/run/map-1", color_scheme="dark")`: a tab; at the end it must have complained of nothing."""
    contexts, complaints = [], []

    def opened(served, path="/", **context):
        made = browser.new_context(
            **{"reduced_motion": "reduce", "viewport": {"width": 1200, "height": 900}, **context}
        )
        made.set_default_timeout(30_000)
        contexts.append(made)
        page = made.new_page()
        page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(served.address(path))
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
