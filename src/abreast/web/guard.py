"""Access control of the page: token, Host header and origin are checked for every request.

The token is in the address that `abreast ui` prints; the first visit turns it into a cookie. A
browser sends cookies to every port of a host, so the page is beneath a path that can't be guessed,
and the cookie is bound to that path: a browser never sends it to another program that listens on
this machine. The Host header is checked so that no other site can rebind its name to this address,
and a POST must come from the page itself.
"""

import secrets
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qs

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Only the page's own scripts run, and it connects to its own server only.

Inline styles are allowed because plotly sets them.
"""

_HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_SAFE_METHODS: Final = ("GET", "HEAD")


class Guard:
    """ASGI middleware that refuses requests from outside of the page.

    It answers 404 outside of the path prefix, 400 for another host name, and 403 without the token
    or for a POST from another origin.
    """

    def __init__(
        self, app: ASGIApp, *, token: str, hosts: Collection[str], cookie: str, base: str
    ) -> None:
        """Guard `app`.

        `hosts` are the host names, with their port, that requests may use; `base` is the path
        prefix of the page.
        """
        self._app = app
        self._token = token
        self._hosts = frozenset(host.lower() for host in hosts)
        self._cookie = cookie
        self._base = base

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the application, or answer why it is refused."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if not self._is_beneath(scope["path"]):
            await Response(status_code=404)(scope, receive, send)  # it does not identify the page
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        refused = self._refusal(scope["method"], headers, scope["query_string"])
        extra = list(_HEADERS)
        if refused is None and self._has_token(scope["query_string"]):
            cookie = f"{self._cookie}={self._token}; Path={self._base}; HttpOnly; SameSite=Strict"
            extra.append((b"set-cookie", cookie.encode("latin-1")))

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *extra]
            await send(message)

        if refused is None:
            await self._app(scope, receive, send_with_headers)
        else:
            status, sentence = refused
            await PlainTextResponse(f"{sentence}\n", status)(scope, receive, send_with_headers)

    def _refusal(
        self, method: str, headers: dict[str, str], query: bytes
    ) -> tuple[int, str] | None:
        """The status and sentence with which to refuse a request; None to let it pass."""
        host = headers.get("host", "").lower()
        if host not in self._hosts:
            return 400, "This page has another name; open the address that `abreast ui` printed."
        if not self._has_token(query) and not self._has_cookie(headers.get("cookie", "")):
            return (
                403,
                (
                    "Open the address that `abreast ui` printed: "
                    "it has a token, and this one has none."
                ),
            )
        if method not in _SAFE_METHODS and not _is_same_origin(headers, host):
            return 403, "Only the page itself may ask for that."
        return None

    def _is_beneath(self, path: str) -> bool:
        return secrets.compare_digest(
            path[: len(self._base)].encode("utf-8", "surrogatepass"), self._base.encode()
        )

    def _has_token(self, query: bytes) -> bool:
        return secrets.compare_digest(
            parse_qs(query.decode("latin-1")).get("token", [""])[0].encode(), self._token.encode()
        )

    def _has_cookie(self, text: str) -> bool:
        try:
            found = SimpleCookie(text).get(self._cookie)
        except CookieError:
            return False
        return found is not None and secrets.compare_digest(
            found.value.encode(), self._token.encode()
        )


def _is_same_origin(headers: dict[str, str], host: str) -> bool:
    """Whether a request comes from this page.

    Browsers set these headers themselves; the script of another page can't change them.
    """
    origin = headers.get("origin")
    return (
        headers.get("sec-fetch-site") == "same-origin"
        if origin is None
        else origin.lower() == f"http://{host}"
    )
