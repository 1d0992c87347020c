"""`abreast serve`: a local server that gives model calls of other programs lanes and a record."""

import asyncio
import os
import secrets
import shutil
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from typing import Any, Final

import click

from abreast.assembly.names import open_run
from abreast.cli import options
from abreast.cli.config import BUDGET, Config
from abreast.cli.errors import CANCELLED, UsageError, refusing, tell
from abreast.cli.jobs.model_options import configured_lanes
from abreast.cli.listening import LOOPBACK, bracketed, host_names, is_loopback, open_socket
from abreast.cli.signals import Interrupts
from abreast.cli.stores import StoreChoice, find_run
from abreast.cli.terminal.tables import say, say_json
from abreast.core.errors import CancelRequested
from abreast.core.frozen import record
from abreast.core.outcome import tokens_in_words
from abreast.jobs.files import units
from abreast.run.map.options import check_name
from abreast.run.run import Run
from abreast.serve.address import ServerAddress
from abreast.serve.answer_cache import AnswerCache
from abreast.serve.command import ServedCommand
from abreast.serve.costs import ServedTotals
from abreast.serve.gateway import Gateway
from abreast.serve.named_models import NamedModel
from abreast.serve.recording import Recording
from abreast.serve.routes import Routes
from abreast.serve.server import GatewayServer, ServerOptions
from abreast.store.port import RunRow, Store
from abreast.views.served import KIND

DEFAULT_PORT: Final = 7788
TOKEN: Final = "ABREAST_SERVE_TOKEN"  # noqa: S105 - the name of a variable
_TOKEN_BYTES: Final = 24
_SETTINGS: Final = {"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]}


@click.command("serve", context_settings=_SETTINGS)
@click.option(
    "--port",
    metavar="N",
    help=f"Listen on this port; 0 for any that is free.  [{DEFAULT_PORT}; with COMMAND, 0]",
)
@click.option(
    "--host", metavar="ADDRESS", default=LOOPBACK, help=f"Listen on this address.  [{LOOPBACK}]"
)
@click.option(
    "--allow-others", is_flag=True, help="With --host: let other machines ask, unencrypted."
)
@click.option(
    "--lane", metavar="NAME", help="Ask this provider for models that are named without one."
)
@click.option(
    "--model",
    "-m",
    metavar="NAME",
    help="Ask this model, which may be a name of abreast.toml, whatever is named without provider.",
)
@click.option(
    "--lane-width",
    "--provider-concurrency",
    "lane_width",
    metavar="N",
    help="At most so many requests at once per provider, or for some: openai=8,anthropic=2; rates "
    "are still found out.",
)
@options.budget
@click.option(
    "--max-wait", metavar="TIME", help="Answer 429 to a request that its lane lets wait longer."
)
@click.option("--record", is_flag=True, help="Record every call in the store, as it does anyway.")
@click.option("--no-record", is_flag=True, help="Record nothing: the run is in memory alone.")
@click.option(
    "--replay", metavar="RUN", help="Answer only from what this run recorded, without a provider."
)
@click.option(
    "--resume", metavar="RUN", help="Go on with this run: what it recorded is not asked again."
)
@click.option("--cache", is_flag=True, help="Answer an equal request as it was answered before.")
@click.option("--name", metavar="TEXT", default=KIND, help=f"What the run is called.  [{KIND}]")
@click.option(
    "--tag",
    "tags",
    metavar="WORD",
    multiple=True,
    help="A word to find the run by; may be repeated.",
)
@options.quiet
@options.common
@click.argument("words", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
def command(words: tuple[str, ...], **given: Any) -> int:
    """Answer model calls of other programs, through lanes and budgets, and record them.

    It speaks OpenAI's chat completions and Responses and Anthropic's messages, until Ctrl-C. Every
    request waits at its lane instead of failing, is counted by client, and is an item of a run that
    `abreast watch`, `show`, `ui` and `export` know. With COMMAND it runs that with the variables
    that `abreast env` prints, and ends with it, with its exit code.

    \b
      abreast serve &  eval "$(abreast env)"
      abreast serve --budget 2usd -- claude -p "Fix the tests"
      abreast serve --replay serve-3 -- claude -p "Fix the tests"
      abreast serve -m local/smollm2 -- python program.py

    Keys of providers come from the environment or from where abreast.toml says; programs get a
    token instead, which is new each time unless ABREAST_SERVE_TOKEN has one. A program may name
    itself by the header x-abreast-client, or after the token: TOKEN.NAME.
    """  # noqa: D301 - click wants the character itself
    config = Config.load()
    settings = _read_settings(config, words, given)
    choice = StoreChoice(config, given["store"])
    with ExitStack() as stack:
        named = config.named_models()
        caches = given["cache"] or any(model.cache for model in named.values())
        store = _open_store(stack, choice, given, caches=caches)
        row = _recorded_run(store, given)
        listener = stack.enter_context(open_socket(settings.host, settings.port))
        lanes = configured_lanes(config, given["lane_width"], paced=True)
        _check_names(lanes, named, given)
        routes = Routes(
            lanes,
            store=store,
            lane=given["lane"],
            model=given["model"],
            named=named,
            cached=given["cache"],
        )
        server = _Serving(settings, choice, store, row, routes=routes, listener=listener)
        return asyncio.run(server.run())


@record(frozen=True, slots=True)
class ServeSettings:
    """The flags of `abreast serve`, read."""

    words: tuple[str, ...]
    host: str
    port: int
    name: str
    tags: tuple[str, ...]
    budget: str | None
    max_wait: float | None
    replays: bool
    records: bool
    quiet: bool
    as_json: bool


def _read_settings(
    config: Config, words: tuple[str, ...], given: Mapping[str, Any]
) -> ServeSettings:
    host = given["host"]
    with refusing("--port"):
        default = 0 if words else DEFAULT_PORT
        port = default if given["port"] is None else units.number(given["port"], least=0)
    if not is_loopback(host) and not given["allow_others"]:
        raise UsageError(
            f"--host: on {host} other machines reach the server, and may spend with its token, "
            "over a line that is not encrypted; if that is wanted, add --allow-others"
        )
    if given["replay"] is not None and (given["resume"] or given["cache"]):
        raise UsageError("--replay answers from one run alone; leave --resume and --cache out")
    if given["no_record"] and given["resume"]:
        raise UsageError("--resume goes on with a record; leave --no-record out")
    if given["record"] and (given["no_record"] or given["replay"] is not None):
        raise UsageError("--record keeps every call; leave --no-record and --replay out")
    if words and shutil.which(words[0]) is None:
        raise UsageError(f"{words[0]} can't be started: there is no such program")
    with refusing("--name"):
        check_name(given["name"])
    with refusing("--max-wait"):
        wait = None if given["max_wait"] is None else units.duration(given["max_wait"])
    return ServeSettings(
        words=words,
        host=host,
        port=port,
        name=given["name"],
        tags=given["tags"],
        budget=config.get(BUDGET, given["budget"]),
        max_wait=wait,
        replays=given["replay"] is not None,
        records=not given["no_record"] and given["replay"] is None,
        quiet=given["quiet"],
        as_json=given["as_json"],
    )


def _open_store(
    stack: ExitStack, choice: StoreChoice, given: Mapping[str, Any], *, caches: bool
) -> Store | None:
    if given["replay"] is not None or given["resume"] is not None:
        return stack.enter_context(choice.existing(reads=given["resume"] is None))
    if given["no_record"] and not caches:
        return stack.enter_context(choice.look())
    return stack.enter_context(choice.open())


def _recorded_run(store: Store | None, given: Mapping[str, Any]) -> RunRow | None:
    wanted = given["replay"] or given["resume"]
    if wanted is None or store is None:
        return None
    row = find_run(store, wanted)
    if row.kind != KIND:
        raise UsageError(f"{row.id} is no run of `abreast serve`, but a {row.kind}")
    return row


def _check_names(
    lanes: Mapping[str, Any], named: Mapping[str, NamedModel], given: Mapping[str, Any]
) -> None:
    """Raise an error for a lane or a model that does not exist."""
    from abreast.models.lanes import split_name

    for flag, name in (
        ("--lane", given["lane"] and f"{given['lane']}/any"),
        ("--model", given["model"]),
    ):
        if name and name not in named:
            with refusing(flag):
                split_name(name, lanes)


class _Serving:
    """One server, from its start to its exit code."""

    def __init__(
        self,
        settings: ServeSettings,
        choice: StoreChoice,
        store: Store | None,
        row: RunRow | None,
        *,
        routes: Routes,
        listener: socket.socket,
    ) -> None:
        self._settings = settings
        self._choice = choice
        self._store = store
        self._row = row
        self._routes = routes
        self._listener = listener
        self._command: ServedCommand | None = None
        self._gateway: Gateway | None = None

    async def run(self) -> int:
        """Serve until Ctrl-C, or until the command ends; returns the exit code."""
        code = 0
        run_id = None
        try:
            async with AsyncExitStack() as stack:
                stack.push_async_callback(self._routes.close)
                run = await stack.enter_async_context(self._open_run())
                run_id = run.id
                code = await self._serve(run)
        except CancelRequested as error:
            tell(str(error))
            code = CANCELLED
        finally:
            if self._command is not None:
                code = self._command.end() or code
        if not self._settings.quiet:
            tell(self._summary(run_id))
        return code

    def _open_run(self) -> Run:
        settings, row = self._settings, self._row
        resumed = row is not None and not settings.replays
        return open_run(
            row.name if row is not None and resumed else settings.name,
            store=self._store if settings.records else None,
            budget=settings.budget,
            tags=settings.tags,
            kind=KIND,
            resume="failed" if resumed else "never",
            run_id=row.id if row is not None and resumed else None,
            manifest={KIND: {"command": list(settings.words), "budget": settings.budget}},
        )

    async def _serve(self, run: Run) -> int:
        settings, port = self._settings, self._listener.getsockname()[1]
        recording = None
        if settings.replays and self._store is not None and self._row is not None:
            recording = Recording(self._store, self._row)
        cache = None if self._store is None else AnswerCache(self._store)
        gateway = Gateway(run, self._routes, cache=cache, recording=recording)
        self._gateway = gateway
        token = os.environ.get(TOKEN, "").strip() or secrets.token_urlsafe(_TOKEN_BYTES)
        server = GatewayServer(
            gateway, ServerOptions(token, host_names(settings.host, port), settings.max_wait)
        )
        address = ServerAddress(f"http://{bracketed(settings.host)}:{port}", token, os.getpid())
        await server.open(self._listener)
        try:
            with self._announced(address, port, run), self._signals(gateway):
                self._start_command(address, gateway)
                await gateway.serve()
        finally:
            await server.close()
        return 0

    @contextmanager
    def _announced(self, address: ServerAddress, port: int, run: Run) -> Iterator[None]:
        """Let `abreast env` find the server, and print where it is."""
        settings = self._settings
        path = address.write(port)
        if settings.as_json:
            say_json({"address": address.url, "port": port, "run": run.id})
        elif not settings.words:
            say(address.url)
            if not settings.quiet:
                more = "" if port == DEFAULT_PORT else f" --port {port}"
                tell(f'for a shell: eval "$(abreast env{more})"; Ctrl-C ends it')
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()

    @contextmanager
    def _signals(self, gateway: Gateway) -> Iterator[None]:
        """End well at the first signal; a command gets it instead, and decides itself."""
        loop = asyncio.get_running_loop()
        if not self._settings.words:
            with Interrupts(lambda: None) as interrupts:
                interrupts.stop_cancelling()
                interrupts.on_first_signal(gateway.close)
                yield
            return
        loop.add_signal_handler(signal.SIGINT, lambda: None)  # the terminal sends it to both
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._pass_signal, number)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.remove_signal_handler(number)

    def _pass_signal(self, number: signal.Signals) -> None:
        if self._command is not None:
            self._command.send(number)

    def _start_command(self, address: ServerAddress, gateway: Gateway) -> None:
        words = self._settings.words
        if not words:
            return
        loop = asyncio.get_running_loop()
        environment = {**os.environ, **address.variables(os.environ)}
        environment.pop(TOKEN, None)
        try:
            self._command = ServedCommand(words, environment)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise UsageError(f"{words[0]} can't be started: {why}") from None

        def close() -> None:
            with suppress(RuntimeError):  # the loop is closed: it is over anyway
                loop.call_soon_threadsafe(gateway.close)

        self._command.when_over(close)

    def _summary(self, run_id: str | None) -> str:
        if self._settings.replays and self._gateway is not None and self._row is not None:
            return f"{self._gateway.calls:,} answers from {self._row.id}, without a provider"
        totals = ServedTotals() if self._gateway is None else self._gateway.totals
        used = totals.usage
        calls = "1 call" if totals.calls == 1 else f"{totals.calls:,} calls"
        failed = f" ({totals.failed} failed)" if totals.failed else ""
        cost = "unknown cost" if used.usd is None else f"{used.usd:.4g} usd"
        where = f"; abreast show {run_id}{self._choice.flag}" if run_id else ""
        return f"{calls}{failed}, {tokens_in_words(used)}, {cost}{where}"
