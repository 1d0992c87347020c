"""A project that `specify init` has made: the real claude runs its workflow, unmodified."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.live_agents.project import PATIENCE, live_project
from benchmarks.peers import HOME

SPECIFY = HOME / "specify-cli" / "bin" / "specify"
_WORKFLOW = ".specify/workflows/speckit/workflow.yml"
_GATES = ("review-spec", "review-plan")
_COMMANDS = ("specify", "plan", "tasks", "implement")


def spec_kit_trial(folder: Path, bin_folder: Path, urls: Sequence[str]) -> dict[str, object]:
    """Initialise a project, run its workflow and approve its gates; return what to show."""
    project = live_project("claude", folder, bin_folder, urls)
    words = ("init", "--here", "--force", "--non-interactive", "--ignore-agent-tools")
    subprocess.run(
        [SPECIFY, *words, "--integration", "claude"],
        cwd=project.folder,
        env=project.env,
        check=True,
        capture_output=True,
        timeout=PATIENCE,
    )
    said = project.abreast("run", _WORKFLOW, "-i", "spec=a bridge", "--json")
    for gate in _GATES:
        said = project.abreast("resume", "-i", f"{gate}=approve", "--json")
    found = json.loads(said.stdout or "{}")
    steps = found.get("steps", {})
    done = [name for name in _COMMANDS if steps.get(name, {}).get("output", {}).get("text")]
    return {
        "workflow": _WORKFLOW,
        "status": found.get("status"),
        "by claude": done,
        "well": found.get("status") == "completed" and done == [*_COMMANDS],
        "said": said.stderr.strip().splitlines()[-2:],
    }
