"""Resolves values of a workflow file, and finds the names that steps read."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from abreast.jobs.files.expressions import ExpressionText
from abreast.jobs.workflow.shell.script import Script
from abreast.jobs.workflow.spec import Step, Value, Workflow


def resolve(value: Value, names: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a file's value is anything
    """Return the value with every `{{ }}` evaluated; `ExpressionFailed` says which can't be."""
    if isinstance(value, ExpressionText):
        return value.value(names)
    if isinstance(value, dict):
        return {key: resolve(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [resolve(one, names) for one in value]
    return value


def reads(things: "Iterable[Step | Value]") -> frozenset[tuple[str, ...]]:
    """Return the paths that expressions in these steps and values, and inside them, read."""
    found: set[tuple[str, ...]] = set()
    for one in _templates(list(things)):
        found |= one.names
    return frozenset(found)


def _templates(thing: object) -> Iterator[ExpressionText | Script]:
    if isinstance(thing, (ExpressionText, Script)):
        yield thing
    elif isinstance(thing, Mapping):
        for one in thing.values():
            yield from _templates(one)
    elif isinstance(thing, (list, tuple)):
        for one in thing:
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
    if word is None or word not in step["output"]:
        return step
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
