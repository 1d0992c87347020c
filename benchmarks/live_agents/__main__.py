"""Ten real agents side by side, each in a tree: `python -m benchmarks.live_agents DIRECTORY`.

The agents that npm installed in the directory work on a repository of real code. A storm's
scripted replies make each of them write to a file that all share and to one of its own. The key
is invented, the home is empty, and all addresses are of this machine. Then each writes a candidate
for `optimize`, and claude tries what `edit` does not allow and, where specify-cli is
installed, runs the workflow of a new project. `--record FOLDER` keeps what they print and change,
which tests replay without them.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from abreast.testing.storm import start_process
from benchmarks.live_agents.authors import author_trial, is_well
from benchmarks.live_agents.permissions import permission_trial
from benchmarks.live_agents.project import live_project
from benchmarks.live_agents.recording import recorded, wrap, write_recording
from benchmarks.live_agents.repository import AGENTS, CONFLICT, SHARED, WIDTH
from benchmarks.live_agents.spec_kit import SPECIFY, spec_kit_trial
from benchmarks.live_agents.trial import run_trial


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("agents", type=Path, help="where npm installed the agents")
    parser.add_argument("--only", choices=("claude", "codex"))
    parser.add_argument("--record", type=Path, help="keep what they print and change in here")
    given = parser.parse_args()
    place = given.agents.resolve() / "node_modules" / ".bin"
    names = [given.only] if given.only else ["claude", "codex"]
    failed = False
    with (
        start_process() as storm,
        start_process(strict="openai-responses") as strict,
        tempfile.TemporaryDirectory() as folder,
    ):
        for name in names:
            printed = Path(folder, f"printed-{name}")
            programs = wrap(name, place, printed) if given.record else place
            project = live_project(name, Path(folder), programs, [storm.url, strict.url])
            found, rows = run_trial(project)
            if given.record and found["done"] == AGENTS:
                agents = recorded(rows, project.folder, printed)
                write_recording(given.record / f"ten-{name}.jsonl", agents)
            well = (
                found["done"] == AGENTS
                and found["peak"] == WIDTH
                and found["untouched"]
                and found["changed"]
                and found["conflicts"] == [[SHARED, *(f"{one:04}" for one in CONFLICT)]]
                and found["applied"]
            )
            failed = failed or not well
            print(json.dumps(found))
            if given.record:
                continue
            authors = author_trial(name, Path(folder, "authors"), place, [storm.url, strict.url])
            failed = failed or not is_well(authors)
            print(json.dumps(authors))
            if name == "claude":
                allowed = permission_trial(Path(folder, "allowed"), place, [storm.url, strict.url])
                failed = failed or not allowed["well"]
                print(json.dumps(allowed))
            if name == "claude" and SPECIFY.exists():
                made = spec_kit_trial(Path(folder, "spec-kit"), place, [storm.url, strict.url])
                failed = failed or not made["well"]
                print(json.dumps(made))
    sys.exit(failed)


if __name__ == "__main__":
    main()
