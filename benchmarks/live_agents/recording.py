"""What agents wrote and changed, as a file that a test can replay without them.

A recording has a line of JSON for each agent: the lines that it printed, and its patch without
context. Paths of the machine and lists of what is installed there are left out.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_INIT_KEYS = (
    *("type", "subtype", "cwd", "session_id", "model", "permissionMode", "apiKeySource"),
    *("claude_code_version", "output_style", "uuid"),
)
_WRAPPER = """\
#!/bin/sh
{program} "$@" | tee "{folder}/$$.jsonl"
"""


@dataclass(frozen=True, slots=True)
class RecordedAgent:
    """One agent: the number of its task, the events that it printed, its changes."""

    number: int
    events: list[dict[str, Any]]
    patch: str


def wrap(program: str, bin_folder: Path, folder: Path) -> Path:
    """Make a program of the same name that keeps what the agent prints; return its directory."""
    real = shutil.which(program, path=str(bin_folder))
    if real is None:
        raise SystemExit(f"{program} is not in {bin_folder}")
    (folder / "bin").mkdir(parents=True)
    wrapper = folder / "bin" / program
    wrapper.write_text(_WRAPPER.format(program=real, folder=folder))
    wrapper.chmod(0o755)
    return folder / "bin"


def recorded(rows: Sequence[Mapping[str, Any]], project: Path, folder: Path) -> list[RecordedAgent]:
    """Join the rows of a finished map with what each of its agents has printed."""
    printed: dict[str, list[dict[str, Any]]] = {}
    for place in folder.glob("*.jsonl"):
        events = [json.loads(line) for line in place.read_text().splitlines()]
        named = [event.get("session_id") or event.get("thread_id") for event in events]
        printed[next(name for name in named if name)] = [_clean(event) for event in events]
    return [
        RecordedAgent(
            row["index"],
            printed[row["value"]["agent"]["session"]],
            _patch(project, row["value"]["tree"]),
        )
        for row in rows
    ]


def _clean(event: dict[str, Any]) -> dict[str, Any]:
    if event.get("subtype") == "init":
        event = {name: event[name] for name in _INIT_KEYS if name in event}
        event["cwd"] = "/project"
    return event


def _patch(project: Path, tree: Mapping[str, str]) -> str:
    words = ("diff", "--no-color", "-U0", "--full-index", tree["base"], tree["result"])
    done = subprocess.run(
        ["git", *words],
        cwd=project / ".abreast" / "plan.git",
        check=True,
        capture_output=True,
        text=True,
    )
    # What follows the numbers of a hunk is a line of the code.
    return re.sub(r"^(@@ .*? @@) .*$", r"\1", done.stdout, flags=re.MULTILINE)


def write_recording(place: Path, agents: Sequence[RecordedAgent]) -> None:
    """Write a line for each agent."""
    lines = [json.dumps(asdict(agent), separators=(",", ":")) for agent in agents]
    place.write_text("\n".join(lines) + "\n", "utf-8")


def read_recording(place: Path) -> list[RecordedAgent]:
    """Read what `write_recording` wrote."""
    lines = place.read_text("utf-8").splitlines()
    return [RecordedAgent(**json.loads(line)) for line in lines]
