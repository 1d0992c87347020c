"""Finds the Python function of `--call pkg.mod:fn`."""

from collections.abc import Callable
from typing import Any

from abreast.assembly.functions import find_function_in
from abreast.cli.errors import UsageError, one_line


def find_function(call: str, cwd: str) -> Callable[[Any], Any]:
    """The function of that name; its module is imported as a script in `cwd` would import it.

    Raises `UsageError` if the module or the function does not exist.
    """
    try:
        return find_function_in(call, cwd)
    except ValueError as error:
        raise UsageError(f"--call: {one_line(str(error))}") from error.__cause__
