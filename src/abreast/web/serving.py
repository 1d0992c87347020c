"""Serving the page until told to stop; open streams end first, so that nothing is cut off."""

from __future__ import annotations

import socket

import uvicorn

from abreast.web.app import Site, make_app


class Server(uvicorn.Server):
    """A server of the page. `run` it with a listening socket.

    It ends by Ctrl-C, or when `should_exit` is set.
    """

    def __init__(self, site: Site) -> None:
        """Of this site, quietly."""
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
        """Let the streams end, then the rest."""
        self._site.closing.set()
        await super().shutdown(sockets)
