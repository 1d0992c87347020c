"""`abreast ui`: serves the runs of the store as a page for the browser."""

import os
import re
import secrets
import subprocess
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import click

from abreast.cli import options
from abreast.cli.config import STORE, Config
from abreast.cli.errors import UsageError, one_line, refusing, tell
from abreast.cli.jobs.map.job import KIND, MapJob
from abreast.cli.jobs.map.template import UnstartedItem
from abreast.cli.listening import LOOPBACK, bracketed, host_names, is_loopback, open_socket
from abreast.cli.stores import StoreChoice
from abreast.cli.terminal.tables import say, say_json
from abreast.jobs.files import units
from abreast.store.port import RunRow, Store
from abreast.system.installation import install_hint

_SECRET_NAME: Final = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_MIN_SECRET_LENGTH: Final = 8  # characters; a shorter one would match parts of words


@click.command("ui")
@click.option(
    "--port",
    metavar="N",
    default="7777",
    help="Listen on this port; 0 for any that is free.  [7777]",
)
@click.option(
    "--host", metavar="ADDRESS", default=LOOPBACK, help=f"Listen on this address.  [{LOOPBACK}]"
)
@click.option(
    "--allow-others",
    is_flag=True,
    help="With --host: let other machines look and act, unencrypted.",
)
@click.option("--open", "opens", is_flag=True, help="Open it in the browser, too.")
@options.common
def command(
    *, port: str, host: str, allow_others: bool, opens: bool, store: str | None, as_json: bool
) -> None:
    """Show the runs of the store as a page in the browser, live, until Ctrl-C.

    It listens on this machine only, unless --host names another address. The address that is
    printed has a secret path and a token in it: with these you can look at all runs, cancel and
    resume them, and decide at gates.
    """
    with refusing("--port"):
        port_number = units.number(port, least=0)
    if not is_loopback(host) and not allow_others:
        raise UsageError(
            f"--host: on {host} other machines reach the page, read prompts and replies, "
            "and may act with its token, over a line that is not encrypted; "
            "if that is wanted, add --allow-others"
        )
    try:
        from abreast.web.app import Server, Site
    except ImportError:
        raise UsageError(
            "the page needs starlette and uvicorn, which are not installed: " + install_hint("ui")
        ) from None
    choice = StoreChoice(Config.load(), store)
    with choice.open(reads=True) as opened, open_socket(host, port_number) as listener:
        number = listener.getsockname()[1]
        token, closing = secrets.token_urlsafe(24), threading.Event()
        site = Site(
            opened,
            token,
            host_names(host, number),
            f"abreast-{number}",
            secrets=[*choice.passwords, *secrets_here(os.environ)],
            launch=Launcher(choice.address, closing),
            prompt_of=prompt_of,
            review_of=review_of,
            closing=closing,
        )
        address = f"http://{bracketed(host)}:{number}{site.base}?token={token}"
        say_json({"address": address}) if as_json else say(address)
        if not as_json and not is_loopback(host):
            tell(
                "other machines can reach it: who has the token may act, "
                "and the line is not encrypted"
            )
        if opens:
            threading.Thread(target=_open_browser, args=(address,), daemon=True).start()
        with suppress(KeyboardInterrupt):  # Ctrl-C is how it ends
            Server(site).run(sockets=[listener])


def _open_browser(address: str) -> None:
    """Open the user's browser; its first request waits until the server takes it.

    In a thread of its own, because a browser in the terminal ends only when the user ends it.
    """
    if not webbrowser.open(address):
        tell("no browser could be opened here; open the address above")


def secrets_here(environment: Mapping[str, str]) -> list[str]:
    """Values that no page may show: those of variables named like keys, the longest first."""
    found = {
        value
        for name, value in environment.items()
        if _SECRET_NAME.search(name) and len(value) >= _MIN_SECRET_LENGTH
    }
    return sorted(found, key=len, reverse=True)


def prompt_of(row: RunRow, key: str, value: object) -> str | None:
    """The prompt about an item, from the run's manifest; None if it is not there."""
    if row.kind == KIND:
        try:
            job = MapJob.of_run(row)
            if job.prompt is None:
                return None
            index = int(key) if key.isdecimal() else 0
            return (
                job.prompt
                if value is None
                else job.question.fill(value, UnstartedItem(index, key))[0]
            )
        except (UsageError, ValueError, LookupError):
            return None
    facts = row.manifest.get(row.kind)
    prompt = facts.get("prompt") if isinstance(facts, Mapping) else None
    return prompt if isinstance(prompt, str) else None


def review_of(store: Store, row: RunRow, part: str) -> dict[str, object]:
    """The diff of a part of a plan; without a part, what a merge would be."""
    from abreast.assembly.plan_review import merge_preview, part_diff

    return part_diff(store, row, part) if part else merge_preview(store, row)


_START_TIMEOUT: Final = 2.0  # seconds to wait for a command that fails at its start
_CLOSING_INTERVAL: Final = 0.2  # seconds between two looks whether the page is to be closed
_GROUP: Final = "plan"  # of its commands, apply and undo fail with 1 if nothing is done
_MAX_OUTPUT_BYTES: Final = 4000  # of what it prints that are read


@dataclass(frozen=True, slots=True)
class Launcher:
    """Starts commands on one store, each in its own session: Ctrl-C ends the page, not the run.

    They find the store by their environment: other users can read the words of a command, and the
    address may have a password in it.
    """

    address: str = field(repr=False)
    closing: threading.Event = field(default_factory=threading.Event)
    """Set when the page is to be closed: it waits for no command then."""
    start_timeout: float = _START_TIMEOUT

    def __call__(self, words: Sequence[str]) -> str | None:
        """Start a command; return its error message if it fails, else None.

        Waits until the end for those of a plan, which apply it or take that back, and for
        `start_timeout` seconds for one that drives a run.
        """
        with tempfile.TemporaryFile() as output:
            child = subprocess.Popen(
                [sys.executable, "-m", "abreast", *words],
                env={**os.environ, STORE.variable: self.address},
                stdin=subprocess.DEVNULL,
                stdout=output if words[0] == _GROUP else subprocess.DEVNULL,
                stderr=output,
                start_new_session=True,
            )
            code = self._wait(child, to_the_end=words[0] == _GROUP)
            if code is None:
                threading.Thread(
                    target=child.wait, daemon=True
                ).start()  # so that no zombie is left
                return None
            output.seek(0)
            lines = (
                output.read()[-_MAX_OUTPUT_BYTES:].decode("utf-8", "replace").strip().splitlines()
            )
        # Exit code 1 means that the run went on and items failed: the run's page shows these.
        if code == 0 or (code == 1 and words[0] != _GROUP):
            return None
        # A plan says in several lines what stands in the way.
        said = [one_line(line).removeprefix("abreast: ") for line in lines]
        return "; ".join(said if words[0] == _GROUP else said[-1:]) or f"exit code {code}"

    def _wait(self, child: subprocess.Popen[bytes], *, to_the_end: bool) -> int | None:
        """The exit code of a command; None if it goes on."""
        while True:
            try:
                return child.wait(_CLOSING_INTERVAL if to_the_end else self.start_timeout)
            except subprocess.TimeoutExpired:
                if not to_the_end or self.closing.is_set():
                    return None
