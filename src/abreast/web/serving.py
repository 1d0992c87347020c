"""The HTTP server of the page; on shutdown, open streams end first so that none is cut off."""

import socket

import uvicorn

from abreast.web.app import Site, make_app


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
