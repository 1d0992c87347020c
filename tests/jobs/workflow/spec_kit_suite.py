"""The workflows of spec-kit's own files and of its test suite, read from its source.

None of them is kept here.
"""

import ast
import json
import os
import subprocess
import textwrap
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.cli.shell import PATIENCE, plain_environment, unmeasured

ROOT = Path(__file__).resolve().parents[3]
PEER = ROOT / ".peers" / "specify-cli"
SOURCE = PEER / "source"
FILE = "flow.yml"
AGENT = "#!/bin/sh\necho said\n"  # in place of any agent's command line, for both
AGENTS = ("claude", "gemini", "copilot", "codex", "opencode", "qwen")


@dataclass(frozen=True)
class Flow:
    """One workflow, and where spec-kit's source has it."""

    place: str
    text: str
    tree: dict

    @property
    def inputs(self):
        """A value for every input that is required and has none."""
        declared = self.tree.get("inputs")
        values = {"number": "3", "boolean": "true"}
        return [
            f"{name}={_first(facts) or values.get(facts.get('type'), 'text')}"
            for name, facts in (declared.items() if isinstance(declared, dict) else ())
            if isinstance(facts, dict) and facts.get("required") is True and "default" not in facts
        ]

    def for_agent(self, name):
        """Return a copy for an agent of that name; None if all its commands name one."""
        if "integration" in self.tree["workflow"] or not _lacks_agent(self.tree["steps"]):
            return None
        tree = {**self.tree, "workflow": {**self.tree["workflow"], "integration": name}}
        return Flow(self.place, yaml.safe_dump(tree, sort_keys=False), tree)


def _lacks_agent(thing):
    """Return whether it has a command that names no integration."""
    if isinstance(thing, dict):
        return ("command" in thing and "integration" not in thing) or any(
            map(_lacks_agent, thing.values())
        )
    return isinstance(thing, list) and any(map(_lacks_agent, thing))


def _first(facts):
    choices = facts.get("enum")
    return choices[0] if isinstance(choices, list) and choices else None


def flows():
    """All of them, each once, in the order of the source."""
    found = {}
    paths = [
        *sorted(SOURCE.glob("workflows/*/workflow.yml")),
        *sorted(SOURCE.glob("tests/**/*.py")),
    ]
    for path in paths:
        place, text = str(path.relative_to(SOURCE)), path.read_text("utf-8")
        for line, one in [(1, text)] if path.suffix == ".yml" else _literals(text):
            tree = _workflow(one)
            if tree is not None:
                found.setdefault(
                    json.dumps(tree, sort_keys=True, default=repr),
                    Flow(f"{place}:{line}", one, tree),
                )
    return list(found.values())


def _literals(source):
    """Return the texts and the mappings that are constants of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if "steps" in node.value:
                yield node.lineno, textwrap.dedent(node.value)
        elif isinstance(node, ast.Dict):
            try:
                value = ast.literal_eval(node)
                yield (
                    node.lineno,
                    yaml.safe_dump(value, sort_keys=False) if "steps" in value else "",
                )
            except (ValueError, TypeError, yaml.YAMLError):
                continue


def _workflow(text):
    """Return its tree if it has a header and steps, which may be invalid."""
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError:
        return None
    if (
        not isinstance(tree, dict)
        or "steps" not in tree
        or not isinstance(tree.get("workflow"), dict)
    ):
        return None
    return tree


class Sides:
    """A directory of its own for each workflow on each side.

    Both have an agent of the same name, and a program.
    """

    def __init__(self, chosen, folder):
        self.chosen = chosen
        self.folder = folder
        programs = folder / "programs"
        programs.mkdir()
        for name in AGENTS:
            (programs / name).write_text(AGENT)
            (programs / name).chmod(0o755)
        self.path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        runners = "".join(
            f'[runners.{name}]\nargv = ["{name}", "-p", "{{prompt}}"]\n'
            for name in (*AGENTS, "auto")
        )
        for number, flow in enumerate(chosen):
            there, here = self.place("theirs", number), self.place("ours", number)
            for cwd in (there, here):
                cwd.mkdir(parents=True)
                (cwd / FILE).write_text(flow.text, "utf-8")
            (there / ".specify").mkdir()
            (there / ".specify" / "integration.json").write_text('{"integration": "claude"}')
            (here / "abreast.toml").write_text(runners.replace('["auto"', '["claude"'))
            (here / ".git").mkdir()

    def place(self, side, number):
        return self.folder / side / str(number)

    def theirs(self):
        """Run each by spec-kit's command: exit code, text, and its record of the run, if any."""
        lines = [
            json.dumps(
                {
                    "cwd": str(self.place("theirs", number)),
                    "file": FILE,
                    "run_id": f"suite-{number}",
                    "inputs": flow.inputs,
                }
            )
            for number, flow in enumerate(self.chosen)
        ]
        done = subprocess.run(
            [str(PEER / "bin" / "python"), str(Path(__file__).with_name("spec_kit_command.py"))],
            input="\n".join(lines),
            capture_output=True,
            text=True,
            timeout=550,
            check=True,
            env={**os.environ, "PATH": self.path},
        )
        return [json.loads(self._plain("theirs", line)) for line in done.stdout.splitlines()]

    def ours(self, warm):
        """Run each by `abreast run` in its own process: exit code, JSON object, stderr."""
        found = []
        for number, flow in enumerate(self.chosen):
            words = [word for given in flow.inputs for word in ("--input", given)]
            environment = {**unmeasured(plain_environment()), "PATH": self.path}
            code, out, err = warm.run(
                "abreast",
                ["run", FILE, "--json", *words],
                cwd=self.place("ours", number),
                patience=PATIENCE,
                environment={**environment, "SPECKIT_WORKFLOW_RUN_ID": f"suite-{number}"},
            )
            said = json.loads(self._plain("ours", out.decode())) if out else None
            found.append({"code": code, "said": said, "err": err.decode()})
        return found

    def _plain(self, side, text):
        """Return the text without the directory of that side, so that paths can be compared."""
        return text.replace(str(self.folder / side), "/side")
