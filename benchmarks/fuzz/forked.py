"""Broken input given to the command in a process of its own, forked from this one.

Each process has an empty project, and a server of its own where it asks a model. It must end with a
documented exit code, without a traceback, and within a minute.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import abreast.agents
import abreast.assembly
import abreast.cli
import abreast.jobs
import abreast.models
from abreast.cli.main import run
from benchmarks.chaos.damages import KINDS, make_store
from benchmarks.fuzz.commands import CODES, COMMANDS, EVENTS
from benchmarks.fuzz.http_bytes import draw_answer
from benchmarks.fuzz.mutator import change
from benchmarks.fuzz.patches import draw_patch
from benchmarks.fuzz.replies import answer_of, body_of
from benchmarks.fuzz.results import Fuzzed

PATIENCE: Final = 60.0  # seconds
_CORPUS: Final = Path(__file__).parents[2] / "corpus"
_DIALECTS: Final = ("openai", "openai-responses", "anthropic", "gemini")
_NOT_IMPORTED: Final = re.compile(r"embedded|ray|\.child\b|__main__|languages|demo")
_LANE: Final = """\
[lanes.fuzzed]
kind = "%s"
base_url = "http://127.0.0.1:%d/v1"
price = {input = 1.0, output = 2.0}
timeout = 2
[agents.claude]
argv = ["sh", "-c", "cat output"]
[agents.codex]
argv = ["sh", "-c", "cat output"]
"""
_ASK: Final = (
    *("map", "--input", "items", "--prompt", "Say {}", "-m", "fuzzed/m", "--max-tokens", "40"),
    *("--budget", "0.05min"),
)
_READS: Final = (
    ("runs",),
    ("show", "last"),
    ("show", "ended-1", "--json"),
    ("export", "last"),
    ("export", "ended-1", "--format", "csv"),
    ("store", "check", "runs.db"),
    ("store", "recover", "runs.db", "-o", "saved.db"),
    ("store", "backup", "runs.db", "-o", "copy.db"),
    ("resume", "unfinished-1"),
    ("watch", "ended-1"),
    ("cancel", "unfinished-1"),
    ("prune", "--keep", "1", "--yes"),
)


@dataclass(frozen=True, slots=True)
class Command:
    """What to start, and what is broken about it."""

    arguments: tuple[str, ...]
    broken: object
    answer: bytes = b""
    """What the server of its model sends."""
    dialect: str = "openai"


def _broken_text(target: str) -> Callable[[Random], Command]:
    def make(draw: Random) -> Command:
        arguments, text = COMMANDS[target](draw)
        shutil.copy(os.environ["FUZZ_STORE"], "runs.db")
        return Command(tuple(arguments), text)

    return make


def _items() -> None:
    Path("items").write_text("a\nb\n")


def ask_with_reply(draw: Random) -> Command:
    """A map of two prompts, whose replies are broken."""
    _items()
    dialect = draw.choice(_DIALECTS)
    answer = answer_of(body_of(dialect, draw, stream=False), draw, stream=False)
    return Command(_ASK, answer, answer, dialect)


def ask_with_bytes(draw: Random) -> Command:
    """A map of two prompts, whose answers are broken HTTP."""
    _items()
    dialect = draw.choice(_DIALECTS)
    answer = draw_answer(dialect, draw, stream=False)
    return Command(_ASK, answer, answer, dialect)


def run_agent(draw: Random) -> Command:
    """A map of an agent whose output is broken."""
    _items()
    text = change("\n".join(draw.choices(EVENTS, k=draw.randint(1, 6))) + "\n", draw)
    Path("output").write_bytes(text.encode("utf-8", "surrogatepass"))
    agent = draw.choice(["claude", "codex"])
    return Command(("map", "--input", "items", "--agent", agent, "--prompt", "Do {}"), text)


def read_store(draw: Random) -> Command:
    """A command that reads a damaged store."""
    shutil.copy(os.environ["FUZZ_STORE"], "runs.db")
    data = bytearray(Path("runs.db").read_bytes())
    kind = draw.choice(KINDS)
    kind(data, draw)
    Path("runs.db").write_bytes(data)
    return Command(draw.choice(_READS), kind.__name__)


def verify_patch(draw: Random) -> Command:
    """`verify` of a broken patch."""
    name, patch = draw_patch(draw)
    for path in ("original.py", f"test_{name}.py"):
        shutil.copy(_CORPUS / name / path, path)
    Path("it.patch").write_bytes(patch)
    target = ("--target", f"original.py::{name}", "--tests", f"test_{name}.py")
    return Command(("verify", "it.patch", *target, "--behaviour-only"), patch)


COMMAND_TARGETS: Final[Mapping[str, Callable[[Random], Command]]] = {
    **{target: _broken_text(target) for target in COMMANDS},
    "agents": run_agent,
    "replies": ask_with_reply,
    "http": ask_with_bytes,
    "stores": read_store,
    "patches": verify_patch,
}


def _import_all() -> None:
    """Import what commands import when they need it, so that their processes have it already."""
    for package in (abreast.cli, abreast.jobs, abreast.models, abreast.assembly, abreast.agents):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not _NOT_IMPORTED.search(module.name):
                importlib.import_module(module.name)


def fuzz_forked(target: str, tries: int, seed: int) -> Fuzzed:
    """Give broken input of a kind to so many processes."""
    _import_all()
    found, draw = Fuzzed(), Random(seed)
    with tempfile.TemporaryDirectory(prefix="abreast-fuzz-") as folder:
        store = Path(folder, "whole.db")
        make_store(store)
        for number in range(tries):
            place = Path(folder, str(number))
            place.mkdir()
            _run(found, place, store, COMMAND_TARGETS[target], draw.getrandbits(40))
            shutil.rmtree(place, ignore_errors=True)
    return found


def _run(
    found: Fuzzed, place: Path, store: Path, make: Callable[[Random], Command], seed: int
) -> None:
    pid = os.fork()
    if not pid:
        _be_command(place, store, make, Random(seed))
    code = _wait(pid)
    given = (place / "given").read_text() if (place / "given").exists() else ""
    said = (place / "err").read_bytes().decode(errors="replace")
    if code is None:
        found.hang(f"{given}\n{said[-300:]}")
    elif code not in CODES or "Traceback" in said or "internal error" in said:
        found.break_off(f"exit code {code}: {said[-900:]}", given)
    else:
        found.end(code)


def _wait(pid: int) -> int | None:
    """The exit code; None if it had to be killed."""
    deadline = time.monotonic() + PATIENCE
    pause = 0.002
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(0.05, 1.5 * pause)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def _be_command(place: Path, store: Path, make: Callable[[Random], Command], draw: Random) -> None:
    """Make the input, and run the command on it; never returns."""
    code = 70
    try:
        os.setsid()
        os.chdir(place)
        for name, descriptor in (("out", 1), ("err", 2)):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(number, mode, closefd=False)
            for number, mode in ((0, "r"), (1, "w"), (2, "w"))
        )
        os.environ |= {name: str(place) for name in ("HOME", "ABREAST_STATE", "ABREAST_CACHE")}
        os.environ |= {"ABREAST_STORE": str(place / "runs.db"), "FUZZ_STORE": str(store)}
        command = make(draw)
        Path("given").write_text(json.dumps([command.arguments, repr(command.broken)[:700]]))
        if command.answer or "--agent" in command.arguments:
            port = _serve(command.answer)
            Path("abreast.toml").write_text(_LANE % (command.dialect, port))
        code = run(list(command.arguments))
    except BaseException:  # noqa: BLE001 - the parent reads it
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _serve(answer: bytes) -> int:
    """A server, on a thread of this process, that answers each connection once; its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.settimeout(5)
                while b"\r\n\r\n" not in connection.recv(65_536):
                    pass
                connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return int(listener.getsockname()[1])
