"""Resolves a workflow's inputs: converts given values to the types that the file declares."""

import math
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from abreast.jobs.files.problems import shown
from abreast.jobs.workflow.spec import WorkflowInput

_TRUE: Final = frozenset({"true", "1", "yes"})
_FALSE: Final = frozenset({"false", "0", "no"})
_AUTO: Final = "auto"


def resolve_inputs(
    inputs: Sequence[WorkflowInput],
    given: Mapping[str, Any],
    ask: Callable[[WorkflowInput], str] | None = None,
) -> dict[str, Any]:
    """Return the value of every input: the given one, else its default, else the answer of `ask`.

    `ask` is called for required inputs only; pass it only where a user can answer. An input that is
    neither given nor required and has no default is left out. A ValueError has one line for each
    problem.

    >>> number = WorkflowInput("n", 1, type="number")
    >>> loud = WorkflowInput("loud", 2, has_default=True, default="no")
    >>> resolve_inputs([number, loud], {"n": "4"})
    {'n': 4, 'loud': 'no'}
    """
    problems = [
        _unknown_input(name, inputs) for name in given if name not in {one.name for one in inputs}
    ]
    found: dict[str, Any] = {}
    for one in inputs:
        try:
            if one.name in given:
                found[one.name] = coerce(one, given[one.name])
            elif one.has_default:
                found[one.name] = coerce(one, one.default)
            elif one.required and ask is not None and not problems:
                found[one.name] = coerce(one, ask(one))
            elif one.required:
                problems.append(f"the input {one.name!r} is required: pass --input {one.name}=...")
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise ValueError("\n".join(problems))
    return found


def coerce(one: WorkflowInput, given: Any) -> Any:  # noqa: ANN401 - any value of a file or caller
    """Convert a value to the type that the input declares; a ValueError says what it should be."""
    if one.secret:
        return _check_secret(one, given)
    value = _CONVERTERS[one.type](one.name, given)
    exempt = one.name == "integration" and value == _AUTO  # "auto": the project's own integration
    if one.enum is not None and not exempt and not any(_same(value, choice) for choice in one.enum):
        choices = ", ".join(map(shown, one.enum))
        raise ValueError(f"the input {one.name!r} must be one of {choices}, not {shown(given)}")
    return value


def _check_secret(one: WorkflowInput, given: object) -> str:
    """Return a secret if it is allowed; the ValueError does not show it."""
    if not isinstance(given, str) or (one.enum is not None and given not in one.enum):
        raise ValueError(f"the input {one.name!r}, which is secret, is not a text that it allows")
    return given


def _same(value: object, choice: object) -> bool:
    """Return whether the two are equal; True and 1 are not."""
    return value == choice and isinstance(value, bool) == isinstance(choice, bool)


def _to_text(name: str, given: object) -> str:
    if isinstance(given, str):
        return given
    raise ValueError(f"the input {name!r} must be a text, not {shown(given)}; put it in quotes")


def _to_number(name: str, given: object) -> int | float:
    """Convert to an int where it is whole, without going through a float.

    It may be an id of 20 digits, which a float can't hold.
    """
    try:
        if isinstance(given, str):
            try:
                return int(given)
            except ValueError:
                given = float(given)
        if isinstance(given, float) and math.isfinite(given):
            return int(given) if given.is_integer() else given
    except ValueError:
        pass
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    raise ValueError(f"the input {name!r} must be a number, not {shown(given)}")


def _to_boolean(name: str, given: object) -> bool:
    if isinstance(given, bool):
        return given
    word = given.lower() if isinstance(given, str) else ""
    if word not in _TRUE | _FALSE:
        raise ValueError(f"the input {name!r} must be true or false, not {shown(given)}")
    return word in _TRUE


_CONVERTERS: Final[dict[str, Callable[[str, object], Any]]] = {
    "string": _to_text,
    "number": _to_number,
    "boolean": _to_boolean,
}


def _unknown_input(name: str, inputs: Sequence[WorkflowInput]) -> str:
    names = [one.name for one in inputs]
    close = get_close_matches(name, names, 1)
    if close:
        return f"there is no input {name!r}; did you mean {close[0]}?"
    return f"there is no input {name!r}; " + (
        f"there are {', '.join(names)}" if names else "the workflow takes none"
    )
