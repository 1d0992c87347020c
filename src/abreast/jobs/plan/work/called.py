"""The main program of the process of a subplan whose work is a Python function."""

import importlib
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from abreast.jobs.plan.work.assignment import Assignment, PartRequest


def main() -> None:
    """Read the call, call the function, and write its result.

    Both are files in the directory that $ABREAST_CALL names.
    """
    place = Path(os.environ.pop("ABREAST_CALL"))
    call_facts = json.loads((place / "asked.json").read_text("utf-8"))
    failed = False
    try:
        text = json.dumps({"value": _call(call_facts)})
    except BaseException as error:  # noqa: BLE001 - also SystemExit: the answer reports any exception
        failed = True
        traceback.print_exc()
        text = json.dumps({"error": f"{type(error).__name__}: {error}"})
    sys.stdout.flush()
    (place / "answer.json").write_text(text, "utf-8")
    sys.exit(failed)


def _call(call_facts: dict[str, Any]) -> object:
    sys.path.insert(0, call_facts["home"])
    module, _, path = call_facts["call"].partition(":")
    function: Any = importlib.import_module(module)
    for part in path.split("."):
        function = getattr(function, part)
    assignment = Assignment(
        call_facts["id"],
        call_facts["scope"],
        tuple(call_facts["files"]),
        call_facts["instruction"],
        Path(call_facts["path"]),
        instructions=call_facts["instructions"],
        requests=tuple(PartRequest(**each) for each in call_facts["requests"]),
    )
    return _result(function, assignment)


def _result(function: Callable[[Assignment], Any], assignment: Assignment) -> object:
    found = function(assignment)
    if inspect.isawaitable(found):
        import asyncio

        async def wait() -> object:
            return await found

        return asyncio.run(wait())
    return found
