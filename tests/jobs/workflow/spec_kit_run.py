"""Runs workflow files by spec-kit's engine, in the peer's environment: JSON lines in and out."""

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
