"""What runs in the process of a subplan whose work is a Python function."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from abreast.jobs.plan.work.assignment import Assignment


def main() -> None:
    """Read what is asked, call the function, write what it gave.

    By the directory that $ABREAST_CALL names.
    """
    place = Path(os.environ.pop("ABREAST_CALL"))
    asked = json.loads((place / "asked.json").read_text("utf-8"))
    answer: dict[str, Any]
    try:
        answer = {"value": _call(asked)}
        text = json.dumps(answer)
    except BaseException as error:  # noqa: BLE001 - also SystemExit: whatever it raises is told by our answer
        traceback.print_exc()
        text = json.dumps({"error": f"{type(error).__name__}: {error}"})
    sys.stdout.flush()
    (place / "answer.json").write_text(text, "utf-8")
    sys.exit("error" in json.loads(text))


def _call(asked: dict[str, Any]) -> object:
    sys.path.insert(0, asked["home"])
    module, _, path = asked["call"].partition(":")
    function: Any = importlib.import_module(module)
    for part in path.split("."):
        function = getattr(function, part)
    assignment = Assignment(
        asked["id"],
        asked["scope"],
        tuple(asked["files"]),
        asked["instruction"],
        Path(asked["path"]),
    )
    return _settled(function, assignment)


def _settled(function: Callable[[Assignment], Any], assignment: Assignment) -> object:
    found = function(assignment)
    if inspect.isawaitable(found):
        import asyncio

        async def wait() -> object:
            return await found

        return asyncio.run(wait())
    return found
