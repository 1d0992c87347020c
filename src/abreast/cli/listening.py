"""Addresses that a command listens on: this machine alone, unless a flag allows others."""

import ipaddress
import socket
from typing import Final

from abreast.cli.errors import UsageError, os_error_text

LOOPBACK: Final = "127.0.0.1"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_names(host: str, port: int) -> set[str]:
    """The names, with the port, by which requests may call a server on this address."""
    names = (
        {host, "localhost"}
        if is_loopback(host)
        else {host, socket.gethostname(), *_addresses(host)}
    )
    return {f"{bracketed(name)}:{port}" for name in names}


def _addresses(host: str) -> set[str]:
    """The addresses of this machine, if it listens on all of them."""
    if host not in ("0.0.0.0", "::"):  # noqa: S104 - only with --allow-others
        return set()
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        return set()


def bracketed(host: str) -> str:
    """A host as it stands in an address."""
    return f"[{host}]" if ":" in host else host


def open_socket(host: str, port: int) -> socket.socket:
    """Listen on a port, or with 0 on any that is free; raises `UsageError` if that can't be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        why = os_error_text(error) if isinstance(error, OSError) else "there is no such port"
        raise UsageError(
            f"--port: {host}:{port} can't be listened on ({why}); name another, or 0"
        ) from None
