"""Runs workflow files by spec-kit's command, in the peer's environment: JSON lines in and out."""

import json
import os
import sys
from pathlib import Path

from specify_cli import app
from typer.testing import CliRunner

for line in sys.stdin:
    asked = json.loads(line)
    folder = Path(asked["cwd"])
    os.chdir(folder)
    os.environ["SPECKIT_WORKFLOW_RUN_ID"] = asked["run_id"]
    words = [word for given in asked["inputs"] for word in ("--input", given)]
    said = CliRunner().invoke(
        app, ["workflow", "run", str(folder / asked["file"]), "--json", *words]
    )
    answer = {"code": said.exit_code, "said": said.output}
    state = folder / ".specify" / "workflows" / "runs" / asked["run_id"] / "state.json"
    if state.is_file():
        answer["state"] = json.loads(state.read_text("utf-8"))
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
