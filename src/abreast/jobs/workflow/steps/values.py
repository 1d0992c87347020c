"""Resolves values of a workflow file, widths among them, and finds the names that steps read."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, cast

from abreast.jobs.files.expressions import ExpressionText
from abreast.jobs.workflow.shell.script import Script
from abreast.jobs.workflow.spec import Step, Value, Workflow

WIDEST: Final = 10_000
"""The largest width of a fan-out; a larger number counts as this one."""

RUN_WIDTH: Final = 64
"""Actions of one run in work at once, in all its lists and fan-outs together.

More if a fan-out of the file asks for more.
"""


def resolve(value: Value, names: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a file's value is anything
    """Return the value with every `{{ }}` evaluated; `ExpressionFailed` says which can't be."""
    if isinstance(value, ExpressionText):
        return value.value(names)
    if isinstance(value, dict):
        return {key: resolve(one, names) for key, one in value.items()}
    return [resolve(one, names) for one in value] if isinstance(value, list) else value


def reads(things: "Iterable[Step | Value]") -> frozenset[tuple[str, ...]]:
    """Return the paths that expressions in these steps and values, and inside them, read."""
    return frozenset(path for one in _templates(list(things)) for path in one.names)


def _templates(thing: object) -> Iterator[ExpressionText | Script]:
    if isinstance(thing, (ExpressionText, Script)):
        yield thing
    elif isinstance(thing, (Mapping, list, tuple)):
        for one in thing.values() if isinstance(thing, Mapping) else thing:
            yield from _templates(one)
    elif is_dataclass(thing) and not isinstance(thing, (type, Workflow)):
        for field in fields(thing):
            yield from _templates(getattr(thing, field.name))


_FILE_TEXT: Final = {"fan-out": "step_template", "do-while": "condition"}
"""Outputs that repeat the file, by type of step.

They are left out of digests, so that runs recorded before these outputs existed can be resumed.
"""


def _without_file_text(step: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the value of `steps.<id>` without the output that only repeats the file."""
    word = _FILE_TEXT.get(step["type"])
    return {
        **step,
        "output": {name: value for name, value in step["output"].items() if name != word},
    }


def surroundings(read: frozenset[tuple[str, ...]], names: Mapping[str, Any]) -> str:
    """Return a digest of the values of these paths, without the item's.

    When it changes, recorded results are not used.
    """
    roots = sorted({path[:2] for path in read if path[0] in ("inputs", "steps", "fan_in")})
    seen = {}
    for root in roots:
        found = names.get(root[0]) or {}
        if root[0] == "steps":
            found = {
                name: _without_file_text(step)
                for name, step in found.items()
                if len(root) == 1 or name == root[1]
            }
        seen["/".join(root)] = found if len(root) == 1 else found.get(root[1])
    text = json.dumps(seen, sort_keys=True, default=repr, separators=(",", ":"))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def as_width(given: object) -> int:
    """Return `int(given)`, between 1 and 10,000. Never raises: what `int` refuses counts as 1.

    So `4`, `"4"`, `" 4 "`, `4.0`, `4.9` are 4 and `True` is 1; None, "abc", "4.0", 0, -1, infinity,
    nan, lists and mappings are 1; 10**100 is 10,000.

    >>> as_width("4"), as_width(4.0), as_width(None), as_width(-1)
    (4, 4, 1, 1)
    """
    try:
        return min(max(1, int(cast("Any", given))), WIDEST)
    except Exception:  # noqa: BLE001 - an object's __int__ may raise anything
        return 1
