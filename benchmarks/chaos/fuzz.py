"""Broken input: job files, settings, arguments, replies and agents' output, changed at random.

    python -m benchmarks.chaos.fuzz [--tries 2000] [--seed N] [--target NAME]

Each try changes a text of the corpus a little and gives it to the command in this process. It must
end with an exit code that the command documents and without an internal error, within some seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import io
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from abreast.agents.known import KNOWN
from abreast.agents.report import ReportReader
from abreast.cli.main import run
from benchmarks.chaos.jobs import CORPUS

SLOW: Final = 10.0  # seconds of CPU after which a try counts as hung
CODES: Final = frozenset({0, 1, 2, 3, 4, 130})
_EXAMPLES: Final = Path(__file__).parents[2] / "examples"
_TOKENS: Final = (
    *("", "null", "~", "-1", "0", "1e999", "nan", "true", "[]", "{}", "[[", "}}", "{{", "{{ x"),
    *(
        "'",
        '"',
        "\\",
        "\x00",
        "\x1b[2J",
        "\ud800",
        "é",
        "\U0001d54f",
        "\u202e",
        "../../x",
        "/dev/null",
    ),
    *("&a", "*a", "!!python/object:os.system", "!!binary x", "<<: *a", "---", "...", "%", "|", ">"),
    *("9" * 400, "a" * 5000, "1_000", "0x1F", "2026-13-45", "{{ 1 / 0 }}", "{{ steps.x.y.z }}"),
)
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
    "store check runs.db --json",
    "matrix run study.yaml --dry-run -i a",
    "run flow.yaml --dry-run --input a=b",
)
_USAGE: Final = {"input_tokens": 3, "cached_input_tokens": 1, "output_tokens": 5}
_SAID: Final = {"id": "a", "content": [{"type": "text", "text": "hello"}], "usage": _USAGE}
_EVENTS: Final = tuple(
    json.dumps(event)
    for event in (
        {"type": "system", "subtype": "init", "session_id": "s", "model": "m"},
        {"type": "assistant", "message": _SAID},
        {"type": "result", "result": "done", "total_cost_usd": 0.01, "num_turns": 2},
        {"type": "item.completed", "item": {"type": "agent_message", "text": "done"}},
        {"type": "turn.completed", "usage": _USAGE},
    )
)


@dataclass(slots=True)
class Fuzzed:
    """What became of the tries with one kind of input."""

    tries: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    broken: int = 0
    hung: int = 0
    examples: list[str] = field(default_factory=list)


def change(text: str, draw: Random) -> str:
    """The text with one to four random changes."""
    for _ in range(draw.randint(1, 4)):
        text = draw.choice(_CHANGES)(text, draw)
    return text


def _insert(text: str, draw: Random) -> str:
    at = draw.randint(0, len(text))
    return f"{text[:at]}{draw.choice(_TOKENS)}{text[at:]}"


def _delete(text: str, draw: Random) -> str:
    at = draw.randint(0, len(text))
    return text[:at] + text[at + draw.randint(1, 30) :]


def _replace_word(text: str, draw: Random) -> str:
    words = text.split(" ")
    words[draw.randrange(len(words))] = draw.choice(_TOKENS)
    return " ".join(words)


def _move_line(text: str, draw: Random) -> str:
    lines = text.split("\n")
    line = lines[draw.randrange(len(lines))]
    lines.insert(draw.randint(0, len(lines)), draw.choice(["", "  ", "- "]) + line)
    return "\n".join(lines)


def _replace_value(text: str, draw: Random) -> str:
    lines = text.split("\n")
    at = draw.randrange(len(lines))
    for sign in (": ", " = "):
        name, mark, _ = lines[at].partition(sign)
        if mark:
            lines[at] = f"{name}{sign}{draw.choice(_TOKENS)}"
            break
    return "\n".join(lines)


_CHANGES: Final[Sequence[Callable[[str, Random], str]]] = (
    _insert,
    _delete,
    _replace_word,
    _move_line,
    _replace_value,
    _replace_value,
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
    """Arguments of commands that change nothing."""
    words = [word.replace("\u00a0", " ") for word in draw.choice(_ARGUMENTS).split(" ")]
    first, rest = words[:1], words[1:]
    for _ in range(draw.randint(1, 3)):
        at = draw.randint(0, len(rest))
        rest[at : at + draw.randint(0, 2)] = [draw.choice([*_TOKENS, *rest, "--", "-", "--json"])]
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
    out, err, began = io.StringIO(), io.StringIO(), time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = run(arguments)
        except BaseException as error:  # noqa: BLE001 - nothing may come out
            code = -1
            err.write(f"{type(error).__name__}: {error}")
    found.tries += 1
    found.codes[code] += 1
    said = err.getvalue()
    is_broken = code not in CODES or "internal error" in said or "Traceback" in said
    found.broken += is_broken
    is_hung = time.process_time() - began > SLOW
    found.hung += is_hung
    if (is_broken or is_hung) and len(found.examples) < 10:
        found.examples.append(f"{arguments}: {said.strip()[:300]}\n{text[-700:]}")


def fuzz_agents(tries: int, seed: int) -> Fuzzed:
    """Give broken output to the readers of agents' reports, in pieces."""
    found, draw = Fuzzed(), Random(seed)
    for _ in range(tries):
        text = change("\n".join(draw.choices(_EVENTS, k=draw.randint(1, 6))) + "\n", draw)
        data = text.encode("utf-8", "surrogatepass")
        reader = ReportReader(draw.choice(list(KNOWN.values())))
        found.tries += 1
        try:
            for at in range(0, len(data), 700):
                reader.feed(data[at : at + 700])
            reader.end()
        except Exception as error:  # noqa: BLE001 - nothing may come out
            found.broken += 1
            found.examples.append(f"{type(error).__name__}: {error}\n{text[:500]}")
    return found


def fuzz(target: str, tries: int, seed: int) -> Fuzzed:
    """Try one kind of input."""
    return fuzz_agents(tries, seed) if target == "agents" else fuzz_commands(target, tries, seed)


TARGETS: Final = (*COMMANDS, "agents")


def main() -> int:
    """Print a line for each kind of input; 1 if something broke or hung."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tries", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--target", action="append", choices=TARGETS)
    given = parser.parse_args()
    seed = Random().randrange(1 << 32) if given.seed is None else given.seed
    faulthandler.enable()
    bad = 0
    for target in given.target or TARGETS:
        found = fuzz(target, given.tries, seed)
        codes = ", ".join(f"{count} x {code}" for code, count in sorted(found.codes.items()))
        print(f"{target:10} {found.tries} tries: {found.broken} broken, {found.hung} hung  {codes}")
        print("\n".join(found.examples), flush=True)
        bad += found.broken + found.hung
    print(f"seed {seed}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
