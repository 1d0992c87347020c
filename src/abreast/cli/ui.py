"""`abreast ui`: the runs of the store as a page in the browser."""

from __future__ import annotations

import secrets
import socket
from typing import Final

import click

from abreast.cli import options, units
from abreast.cli.config import Config
from abreast.cli.errors import Sorry, system_words
from abreast.cli.stores import StoreChoice
from abreast.cli.tables import say, say_json

_LOOPBACK: Final = "127.0.0.1"


@click.command("ui")
@click.option("--port", metavar="N", default="7777", help="Listen on this port; 0 for any that is free.  [7777]")
@options.common
def command(*, port: str, store: str | None, as_json: bool) -> int:
    """Show the runs of the store as a page in the browser, live, until Ctrl-C.

    It listens on this machine only. The address that is printed has a token in it: who has that may look, and act.
    """
    try:
        wanted = units.number(port, least=0)
    except ValueError as error:
        raise Sorry(f"--port: {error}") from None
    try:
        import uvicorn

        from abreast.web.app import Site, make_app
    except ImportError:
        raise Sorry("the page needs starlette and uvicorn: pip install 'abreast[ui]'") from None
    with StoreChoice(Config.load(), store).open() as opened, _listening(_LOOPBACK, wanted) as listening:
        number = listening.getsockname()[1]
        token = secrets.token_urlsafe(24)
        address = f"http://{_LOOPBACK}:{number}/?token={token}"
        hosts = {f"{name}:{number}" for name in (_LOOPBACK, "localhost")}
        app = make_app(Site(opened, token, hosts, f"abreast-{number}"))
        say_json({"address": address}) if as_json else say(address)
        config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listening])
    return 0


def _listening(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise Sorry(f"--port: {port} can't be listened on ({system_words(error)}); name another, or 0") from None
