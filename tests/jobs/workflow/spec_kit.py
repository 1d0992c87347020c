"""Checks workflow files by spec-kit, in the environment of the peer: JSON lines in and out."""

import json
import sys

from specify_cli.workflows.engine import WorkflowDefinition, WorkflowEngine, validate_workflow

for line in sys.stdin:
    asked = json.loads(line)
    try:
        if "text" in asked:
            answer = validate_workflow(WorkflowDefinition.from_string(asked["text"]))
        else:
            answer = {"value": WorkflowEngine._coerce_input("x", asked["given"], asked["input"])}
    except ValueError as error:
        answer = [str(error)]
    sys.stdout.write(json.dumps(answer) + "\n")
