"""Checks written as texts, such as `max-words 20`: on the command line, in files and in Python."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from abreast.jobs.sample.checks import (
    Check,
    Function,
    check,
    check_only,
    contains,
    is_json,
    judged,
    lines,
    obeys,
    regex,
    words,
)
from abreast.models.port import Model


def as_checks(given: Iterable[object]) -> tuple[Check, ...]:
    """The checks of a sample, each with a name of its own; a lambda is named by its position.

    Raises TypeError or ValueError for what is no check, and for two with one name.
    """
    if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable):
        raise TypeError(f"checks must be a list, such as ['max-words 20'], not {given!r:.60}")
    made = tuple(
        replace(one, name=f"check {number}")
        if isinstance(one, Function) and one.name == "<lambda>"
        else one
        for number, one in enumerate(map(as_check, given), 1)
    )
    names = [one.name for one in made]
    if twice := [one for one in names if names.count(one) > 1]:
        raise ValueError(f"two checks are called {twice[0]!r}; give each a name of its own")
    return made


def as_check(given: object) -> Check:
    """Convert a text, a function, a schema or a pydantic model; return a check as it is."""
    if hasattr(given, "run") and hasattr(given, "costs"):
        return given  # type: ignore[return-value] # it has the methods of a check
    if isinstance(given, str):
        return parse_check(given, None)
    if isinstance(given, Mapping) or hasattr(given, "model_json_schema"):
        return obeys(given)  # type: ignore[arg-type] # a mapping or a pydantic model
    if callable(given):
        return check(given)
    raise TypeError(
        "a check is a function, a text such as 'max-words 20', a schema, a pydantic model or one "
        f"of abreast.checks, not {given!r:.60}"
    )


def find_by_name(name: str) -> Callable[[Any], Any]:
    """The function of `package.module:function`; ValueError if there is none."""
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"the check 'call {name}' has no function: {error}") from None
    if not callable(found):
        raise ValueError(f"the check 'call {name}' names no function, but {found!r:.60}")
    return found  # type: ignore[no-any-return]


def read_schema_file(path: str) -> Mapping[str, Any]:
    """The JSON schema in a file; ValueError if there is none."""
    try:
        schema = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"the schema {path} can't be read: {error}") from None
    if not isinstance(schema, dict):
        raise ValueError(f"the schema {path} must be a mapping")
    return schema


def parse_check(
    text: str,
    judge: Model | None,
    *,
    find: Callable[[str], Callable[[Any], Any]] = find_by_name,
    read: Callable[[str], Mapping[str, Any]] = read_schema_file,
    command: Callable[[str], Check] | None = None,
) -> Check:
    """Parse a check; a leading `hidden` hides it from the model.

    `find` gives the function of a `call`, `read` the schema in a file. With `command`, which makes
    a check of a command, any other text is one. Raises ValueError for a text that is no check.
    """
    word, _, rest = text.strip().partition(" ")
    if word == "hidden":
        if not rest.strip():
            raise ValueError(
                "the check 'hidden' needs a check after it, such as 'hidden max-words 20'"
            )
        return check_only(parse_check(rest, judge, find=find, read=read, command=command))
    if word.startswith("judge:") or text.startswith("judge:"):
        wanted = text.strip().removeprefix("judge:").strip()
        if not wanted:
            raise ValueError("a judge needs something to judge: 'judge: mentions rain'")
        return judged(wanted, judge)
    makers: dict[str, Callable[[str], Check]] = {
        "json": lambda _: is_json(),
        "regex": regex,
        "contains": contains,
        "lines": lambda given: lines(_number(given, text)),
        "max-words": lambda given: words(most=_number(given, text)),
        "min-words": lambda given: words(_number(given, text)),
        "schema": lambda given: obeys(read(given)),
        "call": lambda given: check(find(given), name=given),
    }
    if command is not None and (word == "run" or word not in makers):
        return command(rest.strip() if word == "run" else text.strip())
    if word == "run":
        raise ValueError("the check 'run' is a command in the tree of an agent: it needs --agent")
    if word not in makers:
        close = get_close_matches(word, makers, 1)
        hint = (
            f"did you mean {close[0]!r}?"
            if close
            else f"there are {', '.join(makers)} and 'judge: ...'"
        )
        raise ValueError(f"there is no check {word!r}; {hint}")
    rest = rest.strip()
    if not rest and word != "json":
        raise ValueError(
            f"the check {word!r} needs something after it, such as {_EXAMPLES[word]!r}"
        )
    return makers[word](rest)


_EXAMPLES: Final = {
    "regex": "regex ^(red|blue)$",
    "contains": "contains rain",
    "lines": "lines 3",
    "max-words": "max-words 20",
    "min-words": "min-words 5",
    "schema": "schema label.json",
    "call": "call pkg.mod:fn",
}


def _number(given: str, text: str) -> int:
    if not given.isdecimal() or not 0 < int(given) < 10**9:
        raise ValueError(f"{text!r} needs a whole number of at least 1")
    return int(given)
