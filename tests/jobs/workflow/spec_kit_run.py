"""Runs workflow files as spec-kit does, in the environment of the peer: a line of JSON in, a line of JSON out."""

import json
import sys
from pathlib import Path

from specify_cli.workflows.engine import WorkflowDefinition, WorkflowEngine

for line in sys.stdin:
    asked = json.loads(line)
    state = WorkflowEngine(Path(asked["cwd"])).execute(
        WorkflowDefinition.from_string(asked["text"])
    )
    sys.stdout.write(json.dumps({"status": state.status.value, "steps": state.step_results}) + "\n")
