"""Where a running server is: its address and token, for `abreast env` and for commands."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from abreast.core.frozen import record
from abreast.system.paths import state_directory

_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy")
_THIS_MACHINE: Final = "127.0.0.1,localhost"


@record(frozen=True, slots=True)
class ServerAddress:
    """A server that listens: `url` is without the version, as `http://127.0.0.1:7788`."""

    url: str
    token: str
    pid: int

    def variables(self, environment: Mapping[str, str], client: str = "") -> dict[str, str]:
        """The variables by which SDKs and agents find it, in place of their provider.

        With a `client`, its calls are counted under that name.
        """
        key = f"{self.token}.{client}" if client else self.token
        found = {
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": key,
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "OPENAI_API_KEY": key,
        }
        lower = {name.lower(): value for name, value in environment.items()}
        if any(lower.get(name) for name in _PROXIES):  # they would be asked for this machine, too
            before = lower.get("no_proxy")
            found["NO_PROXY"] = f"{before},{_THIS_MACHINE}" if before else _THIS_MACHINE
        return found

    def write(self, port: int) -> Path:
        """Write it to a file that only this user can read; returns the file's path."""
        path = _path(port)
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            path.unlink()
        text = json.dumps({"url": self.url, "token": self.token, "pid": self.pid})
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:  # noqa: PTH123 - its mode is set when it is made
            file.write(text)
        return path


def find_address(port: int) -> ServerAddress | None:
    """The server on that port of this machine; None if there is none."""
    try:
        facts = json.loads(_path(port).read_text("utf-8"))
        found = ServerAddress(str(facts["url"]), str(facts["token"]), int(facts["pid"]))
    except (OSError, ValueError, LookupError, TypeError):
        return None
    try:
        os.kill(found.pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return found


def _path(port: int) -> Path:
    return state_directory() / "serve" / f"{port}.json"
