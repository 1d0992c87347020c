"""Finds the Python function of `--call pkg.mod:fn`."""

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from abreast.cli.errors import UsageError, one_line


def find_function(call: str, cwd: str) -> Callable[[Any], Any]:
    """The function of that name; its module is imported as a script in `cwd` would import it.

    Raises `UsageError` if the module or the function does not exist.
    """
    module_name, mark, path = call.partition(":")
    if not mark or not all(
        part.isidentifier() for part in (*module_name.split("."), *path.split("."))
    ):
        raise UsageError(f"--call: {call!r} is no function; write it as pkg.mod:function")
    if cwd not in sys.path:
        sys.path.insert(0, cwd)
        inherited = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = (
            os.pathsep.join((cwd, inherited)) if inherited else cwd
        )  # for worker processes
    found: Any = _module(module_name)
    for part in path.split("."):
        if not hasattr(found, part):
            raise UsageError(f"--call: {module_name} has no {path!r}")
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"--call: {call} is not a function, but {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def _module(name: str) -> object:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise UsageError(
                f"--call: there is no module {error.name!r} here or on the PYTHONPATH"
            ) from None
        raise UsageError(f"--call: {name} can't be imported: {one_line(str(error))}") from error
    except (Exception, SystemExit) as error:
        why = one_line(f"{type(error).__name__}: {error}")
        raise UsageError(f"--call: {name} can't be imported ({why}); -v shows where") from error
