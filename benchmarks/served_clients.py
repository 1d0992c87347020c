"""Real clients through `abreast serve`: `python -m benchmarks.served_clients [CLIENT ...]`.

Each client works outside of our environment (`make served-clients` makes theirs) against a storm,
once recorded and once replayed: the same output, and no request at the provider. With
`--agents DIRECTORY`, the agents that npm installed there are tried, too.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from abreast.models.embedded.weights import SMOLLM2, is_present
from abreast.system.paths import cache_directory
from abreast.testing.storm import StormProcess, start_process
from benchmarks.peers import ROOT

# The environment of each client: that of its requirements file.
CLIENTS = {
    "openai": "clients",
    "anthropic": "clients",
    "pydantic-ai": "clients",
    "langchain": "clients",
    "litellm": "clients-openai2",
    "llm": "clients-openai2",
}
PROGRAM = ROOT / "benchmarks" / "contenders" / "served.py"
INVENTED_KEY = "sk-invented-0123456789"
_TIMEOUT = 600.0
"""Seconds for one client, recorded or replayed: four on a quiet machine, two minutes beside a suite
with the embedded model."""
_LANES = """\
[lanes.openai]
base_url = "{storm}/v1"
[lanes.anthropic]
base_url = "{storm}/v1"
[lanes.responses]
kind = "openai-responses"
base_url = "{strict}/v1"
[lanes.nowhere]
base_url = "{storm}/nowhere/v1"
[serve.models.careful]
ask = ["nowhere/gpt-x", "openai/gpt-x"]
"""


@dataclass(frozen=True)
class Tried:
    """What became of one client."""

    client: str
    calls: int
    same: bool
    upstream: int
    """Requests at the provider during the replay."""
    problem: str = ""

    @property
    def well(self) -> bool:
        return not self.problem and self.same and self.calls > 0 and not self.upstream


def try_client(
    name: str, words: Sequence[str], folder: Path, storms: Sequence[StormProcess]
) -> Tried:
    """Run a client twice, recorded and replayed, with the same variables.

    They say whether the embedded model is there, and another process may fetch it meanwhile.
    """
    variables = environment(folder)
    before = _arrived(storms)
    first = serve(["--"], words, folder, variables)
    calls = _arrived(storms) - before
    if first.returncode:
        return Tried(name, calls, same=False, upstream=0, problem=_last_line(first.stderr))
    again = serve(["--replay", "last", "--"], words, folder, variables)
    upstream = _arrived(storms) - before - calls
    problem = _last_line(again.stderr) if again.returncode else ""
    return Tried(name, calls, first.stdout == again.stdout, upstream, problem)


def serve(
    flags: Sequence[str], words: Sequence[str], folder: Path, variables: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    """Run a command behind a server, with these variables alone."""
    command = [sys.executable, "-m", "abreast", "serve", "--quiet", *flags, *words]
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env=variables,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"it had not ended after {_TIMEOUT:g} s")


def environment(folder: Path) -> Mapping[str, str]:
    """Nothing but paths, an invented key, an empty home, and the embedded model."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    return {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(home),
        "OPENAI_API_KEY": INVENTED_KEY,
        "ANTHROPIC_API_KEY": INVENTED_KEY,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "NO_PROXY": "*",
        "ABREAST_CACHE": str(cache_directory()),
        # Only if its weights are here: they are not fetched for this.
        **({"EMBEDDED_MODEL": SMOLLM2.name} if is_present(SMOLLM2) else {}),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def python_of(client: str) -> Path:
    """The interpreter of a client's environment, whether or not it exists."""
    return ROOT / "build" / "env" / CLIENTS[client] / "bin" / "python"


def _arrived(storms: Sequence[StormProcess]) -> int:
    return sum(storm.stats().arrived for storm in storms)


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1] if lines else "it failed"


def agents_in(folder: Path) -> dict[str, list[str]]:
    """The commands of the agents that npm installed in a directory."""
    place = folder / "node_modules" / ".bin"
    codex = [
        *(str(place / "codex"), "exec", "--skip-git-repo-check", "--model", "responses/gpt-x"),
        *("-c", "model_provider=served", "-c", 'model_providers.served.name="served"'),
        *("-c", "model_providers.served.base_url=$OPENAI_BASE_URL"),
        *("-c", 'model_providers.served.env_key="OPENAI_API_KEY"'),
        *("-c", 'model_providers.served.wire_api="responses"', "Say hello."),
    ]
    quoted = " ".join(f'"{word}"' if "$" in word else f"'{word}'" for word in codex)
    return {
        "claude": [
            *(str(place / "claude"), "-p", "Say hello.", "--model", "claude-x"),
            *("--output-format", "text"),
        ],
        "codex": ["sh", "-c", quoted],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clients", nargs="*", help=", ".join(CLIENTS))
    parser.add_argument("--agents", type=Path, help="where npm installed the agents")
    parser.add_argument("--only-agents", action="store_true", help="leave the SDKs out")
    given = parser.parse_args()
    wanted = () if given.only_agents else given.clients or CLIENTS
    failed = False
    with (
        start_process() as storm,
        start_process(strict="openai-responses") as strict,
        tempfile.TemporaryDirectory() as place,
    ):
        lanes = _LANES.format(storm=storm.url, strict=strict.url)
        todo = {
            name: [str(python_of(name)), str(PROGRAM), name]
            for name in wanted
            if python_of(name).exists()
        }
        todo |= agents_in(given.agents.resolve()) if given.agents else {}
        print(f"{'client':<12} {'calls':>5}  {'replayed':<9} {'upstream':>8}")
        for name, words in todo.items():
            folder = Path(place, name)
            folder.mkdir()
            (folder / "abreast.toml").write_text(lanes, "utf-8")
            found = try_client(name, words, folder, [storm, strict])
            failed = failed or not found.well
            same = "same" if found.same else "DIFFERS"
            print(f"{name:<12} {found.calls:>5}  {same:<9} {found.upstream:>8}  {found.problem}")
        missing = [name for name in wanted if name not in todo]
        if missing:
            print(f"not installed (make served-clients): {', '.join(missing)}")
    sys.exit(failed or bool(missing))


if __name__ == "__main__":
    main()
