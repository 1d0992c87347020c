"""Stub agents: small scripts that write what an agent would write."""

import json
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from abreast.agents.known import KNOWN
from abreast.agents.runner import AgentRunner, rules_of

RECORDED = Path(__file__).parent / "recorded"

RULES = rules_of(
    {
        "text": "kind=end text",
        "session": "kind=start session",
        "turns": "kind=end turns",
        "cost": "cost",
        "input_tokens": "kind=end input",
        "output_tokens": "kind=end output",
        "turn": "kind=turn id",
        "turn_input": "kind=turn input",
        "turn_output": "kind=turn output",
        "error": "kind=error text",
        "resets": "kind=error resets",
        "step": "kind=step text",
    }
)
HEAD = """\
import json, os, signal, subprocess, sys, time
def say(**facts): print(json.dumps(facts), flush=True)
def end(text="done", **facts): say(kind="end", text=text, turns=1, input=10, output=5, **facts)
task = sys.stdin.read()
"""


def write_stub(folder: Path, code: str, name: str = "stub") -> Path:
    """A program that runs this code; `say` writes an event, `end` the last one, `task` is given."""
    place = folder / name
    place.write_text(f"#!{sys.executable}\n{HEAD}{code}\n")
    place.chmod(place.stat().st_mode | stat.S_IXUSR)
    return place


def stub_runner(program: Path | str, **more: object) -> AgentRunner:
    """The row of a stub."""
    facts: dict[str, object] = {
        "allow": {"read": (), "edit": (), "everything": ("--dangerous",)},
        "rules": RULES,
        "limit": KNOWN["claude"].limit,
        "throttled": KNOWN["claude"].throttled,
        "signed_out": KNOWN["claude"].signed_out,
    }
    return AgentRunner("stub", (str(program),), **{**facts, **more})  # type: ignore[arg-type]


def stub_toml(program: Path | str, name: str = "stub", **more: object) -> str:
    """The same as a table of abreast.toml."""
    rules = {
        "text": "kind=end text",
        "session": "kind=start session",
        "cost": "cost",
        "input_tokens": "kind=end input",
        "output_tokens": "kind=end output",
        "turn": "kind=turn id",
        "turn_input": "kind=turn input",
        "turn_output": "kind=turn output",
        "error": "kind=error text",
        "resets": "kind=error resets",
        "step": "kind=step text",
    }
    facts: Mapping[str, object] = {
        "argv": [str(program)],
        "limit": ["usage limit"],
        "throttled": ["429"],
        **more,
    }
    lines = [f"[agents.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in facts.items())]
    lines += [f"[agents.{name}.rules]", *(f'{key} = "{rule}"' for key, rule in rules.items())]
    lines += [f"[agents.{name}.allow]", "read = []", "edit = []", 'run = ["--run"]']
    return "\n".join(lines) + "\n"
