"""Evaluates expressions by spec-kit, in the environment of the peer: JSON lines in and out."""

import json
import sys
from types import SimpleNamespace

from specify_cli.workflows.expressions import evaluate_condition, evaluate_expression

for line in sys.stdin:
    asked = json.loads(line)
    context = SimpleNamespace(**asked["names"])
    ask = evaluate_condition if asked["condition"] else evaluate_expression
    try:
        answer = {"value": ask(asked["text"], context)}
    except ValueError as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
