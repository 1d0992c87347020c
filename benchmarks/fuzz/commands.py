"""Broken job files, settings and arguments, given to the command, and broken output of agents."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Final

from abreast.agents.known import KNOWN
from abreast.agents.report import ReportReader
from abreast.cli.main import run
from benchmarks.chaos.damages import make_store
from benchmarks.chaos.jobs import CORPUS
from benchmarks.fuzz.mutator import TOKENS, change
from benchmarks.fuzz.results import SLOW, Fuzzed

DEFAULT_STORE: Final = ".abreast/abreast.db"
CODES: Final = frozenset({0, 1, 2, 3, 4, 130})
_EXAMPLES: Final = Path(__file__).parents[2] / "examples"
_SETTINGS: Final = """\
model = "scripted/replies.jsonl"
[lanes.storm]
kind = "openai"
base_url = "http://127.0.0.1:9/v1"
price = {input = 1.0, output = 2.0}
timeout = 3
width = 4
rpm = 600
[agents.mine]
command = ["agent", "{prompt}"]
"""
_ARGUMENTS: Final = (
    "map --dry-run -w 4 --key {} --retries 2 --timeout 3s --budget 5req,2usd -- echo {}",
    "map --dry-run --prompt Say\u00a0{} -m storm/m --max-tokens 40 --schema s.json --seed 7",
    "sample --dry-run Say -m storm/m -b 3 -d 2 --check contains\u00a0a --strategy repair",
    "plan show . --max-files 3 --include *.py --json",
    "runs --json --state done --limit 3",
    "show last key --json",
    "export last --format csv",
    "store check --json",
    "matrix run study.yaml --dry-run -i a",
    "run flow.yaml --dry-run --input a=b",
)
_FILES: Final = {
    "abreast.toml": _SETTINGS,
    "s.json": '{"type": "object"}',
    "flow.yaml": CORPUS[0],
    "study.yaml": CORPUS[1],
    "inputs.jsonl": '{"id": "a", "text": "word", "truth": "a"}\n',
    "a.py": "import b\n",
    "b.py": "",
}
_USAGE: Final = {"input_tokens": 3, "cached_input_tokens": 1, "output_tokens": 5}
_SAID: Final = {"id": "a", "content": [{"type": "text", "text": "hello"}], "usage": _USAGE}
EVENTS: Final = tuple(
    json.dumps(event)
    for event in (
        {"type": "system", "subtype": "init", "session_id": "s", "model": "m"},
        {"type": "assistant", "message": _SAID},
        {"type": "result", "result": "done", "total_cost_usd": 0.01, "num_turns": 2},
        {"type": "item.completed", "item": {"type": "agent_message", "text": "done"}},
        {"type": "turn.completed", "usage": _USAGE},
    )
)


def _write(name: str, text: str) -> None:
    Path(name).write_bytes(text.encode("utf-8", "surrogatepass"))


def try_yaml(draw: Random) -> tuple[list[str], str]:
    """A job file; returns the command and the text that was changed."""
    texts = [path.read_text() for path in sorted(_EXAMPLES.glob("*.yaml"))]
    text = change(draw.choice([*texts, *CORPUS]), draw)
    _write("job.yaml", text)
    return ["run", "job.yaml", "--dry-run"], text


def try_toml(draw: Random) -> tuple[list[str], str]:
    """The settings of a project."""
    text = change(_SETTINGS, draw)
    _write("abreast.toml", text)
    return draw.choice([["models"], ["map", "--dry-run", "--", "echo"], ["doctor"]])[:], text


def try_arguments(draw: Random) -> tuple[list[str], str]:
    """Arguments of commands that change nothing, in a project that has what they name."""
    for name, text in _FILES.items():
        _write(name, text)
    words = [word.replace("\u00a0", " ") for word in draw.choice(_ARGUMENTS).split(" ")]
    first, rest = words[:1], words[1:]
    for _ in range(draw.randint(1, 3)):
        at = draw.randint(0, len(rest))
        rest[at : at + draw.randint(0, 2)] = [draw.choice([*TOKENS, *rest, "--", "-", "--json"])]
    dry = ["--dry-run"] if "--dry-run" in words else []  # first, so that nothing is run
    arguments = [
        word.replace("\x00", "").replace("\ud800", "\udcff")  # as a byte that is no UTF-8 comes
        for word in (*first, *dry, *rest)
    ]
    return arguments, json.dumps(arguments)


COMMANDS: Final[Mapping[str, Callable[[Random], tuple[list[str], str]]]] = {
    "yaml": try_yaml,
    "toml": try_toml,
    "arguments": try_arguments,
}


def fuzz_commands(target: str, tries: int, seed: int) -> Fuzzed:
    """Give broken input of a kind to the command, in an empty directory."""
    found, draw, before = Fuzzed(), Random(seed), Path.cwd()
    with tempfile.TemporaryDirectory(prefix="abreast-fuzz-") as folder:
        os.chdir(folder)
        make_store(Path(DEFAULT_STORE))
        try:
            for _ in range(tries):
                for file in Path().glob("*.*ml"):
                    file.unlink()
                arguments, text = COMMANDS[target](draw)
                _run(found, arguments, text)
        finally:
            os.chdir(before)
    return found


def _run(found: Fuzzed, arguments: list[str], text: str) -> None:
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")  # exports write bytes, beneath the text
    err, began = io.StringIO(), time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = run(arguments)
        except BaseException as error:  # noqa: BLE001 - nothing may come out
            code = -1
            err.write(f"{type(error).__name__}: {error}")
    said = err.getvalue()
    given = f"{arguments}: {said.strip()[:300]}\n{text[-500:]}"
    if code not in CODES or "internal error" in said or "Traceback" in said:
        found.break_off(f"exit code {code}", given)
    elif time.process_time() - began > SLOW:
        found.hang(given)
    else:
        found.end(code)


def fuzz_agents(tries: int, seed: int) -> Fuzzed:
    """Give broken output to the readers of agents' reports, in pieces."""
    found, draw = Fuzzed(), Random(seed)
    for _ in range(tries):
        text = change("\n".join(draw.choices(EVENTS, k=draw.randint(1, 6))) + "\n", draw)
        data = text.encode("utf-8", "surrogatepass")
        reader = ReportReader(draw.choice(list(KNOWN.values())))
        try:
            for at in range(0, len(data), 700):
                reader.feed(data[at : at + 700])
            reader.end()
        except Exception as error:  # noqa: BLE001 - nothing may come out
            found.break_off(error, text)
        else:
            found.end("read")
    return found
