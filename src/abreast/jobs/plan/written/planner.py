"""Lets a model propose the parts of a plan: names, instructions, what to merge and to split.

Its reply is checked by the rules of a plan that a person edits. It is told the errors once, and may
answer again.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from abreast.core.errors import ReplyInvalid
from abreast.jobs.plan.decompose.inventory import FileEntry, Inventory
from abreast.jobs.plan.errors import PlanInvalid
from abreast.jobs.plan.spec import Plan
from abreast.jobs.plan.written.division import listed, plan_of_parts
from abreast.jobs.plan.written.parts import PartSpec, read_parts
from abreast.jobs.plan.written.plan_file import written_files
from abreast.models.port import Message, Model, Reply, Request
from abreast.worktrees.merge.names import printable

PLANNER: Final = "planner"
"""The name of the step in which a run asks the model."""
_MAX_FILES: Final = 40  # listed of a part
_SYSTEM: Final = """\
A repository is divided into parts. Each part is worked on by another agent, at the same time and \
without seeing the others. You improve the division for the task, and answer with JSON.

For each new part give: name (short, what it is about), parts (ids of given parts that it takes \
over, several to merge them), files (files, directories/ or patterns that it takes out of other \
parts, else empty), instructions (what its agent has to know for the task: names that must agree \
with other parts, what to leave alone; empty if there is nothing). Every given part must be taken \
over by one new part, and every file must be in one part. Change no more than helps the task."""
_TEXTS: Final = {"type": "array", "items": {"type": "string"}}
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "parts": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "parts": _TEXTS,
                    "files": _TEXTS,
                    "instructions": {"type": "string"},
                },
                "required": ["name", "parts", "files", "instructions"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["parts"],
    "additionalProperties": False,
}


async def propose_parts(
    model: Model, plan: Plan, task: str, on_reply: Callable[[Reply], None] = lambda _: None
) -> list[dict[str, Any]]:
    """The parts that a model proposes for a task, as plain data; raises `PlanInvalid` for none.

    `on_reply` gets each reply.
    """
    turns = [Message("user", planner_prompt(plan, task))]
    for last in (False, True):
        text = ""
        try:
            request = Request(tuple(turns), system=_SYSTEM, schema=_SCHEMA)
            reply = await model.complete(request)
            on_reply(reply)
            text = reply.text
            return [part.plain() for part in checked_parts(plan, reply.value)]
        except (ReplyInvalid, PlanInvalid) as error:
            if last:
                raise PlanInvalid(
                    f"{model.name} proposed no parts that can be used: {error}"
                ) from None
            turns += [
                Message("assistant", text or "(no JSON of that form)"),
                Message("user", f"That can't be used: {error}. Answer once more, whole."),
            ]
    raise AssertionError  # the loop returns or raises


def checked_parts(plan: Plan, value: object) -> tuple[PartSpec, ...]:
    """The parts of a reply; raises `PlanInvalid` if they don't divide the files of the plan."""
    if not isinstance(value, Mapping):
        raise PlanInvalid("it is no object with parts")
    entries = written_files(plan)
    taken: dict[str, str] = {}
    plain = []
    for part in value["parts"]:
        for given in part["parts"]:
            if given not in entries:
                raise PlanInvalid(f"there is no part {given!r} to take over")
            if taken.setdefault(given, part["name"]) != part["name"]:
                raise PlanInvalid(
                    f"part {given} is taken over twice: by {taken[given]!r} and {part['name']!r}"
                )
        plain.append(_plain_part(part, entries))
    if missing := [leaf.id for leaf in plan.leaves if leaf.id not in taken]:
        raise PlanInvalid(f"no part takes over {listed(missing)}")
    parts = read_parts(plain)
    found = plan_of_parts(Inventory(tuple(FileEntry(path) for path in plan.root.files)), parts)
    if found.left_out:
        raise PlanInvalid(f"in no part: {listed(found.left_out)}")
    return parts


def _plain_part(part: Mapping[str, Any], entries: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    given = part["parts"]
    found: dict[str, Any] = {"name": part["name"].strip()}
    if len(given) == 1 and not part["files"]:
        found["id"] = given[0]
    found["files"] = [*(entry for one in given for entry in entries[one]), *part["files"]]
    return found | ({"instructions": part["instructions"]} if part["instructions"] else {})


def planner_prompt(plan: Plan, task: str) -> str:
    """What the model is asked: the task, and each part with its files."""
    parts = [
        {
            "id": leaf.id,
            "name": printable(leaf.scope),
            "tokens": leaf.tokens,
            "files": [printable(path) for path in leaf.files[:_MAX_FILES]],
            **(
                {"more_files": len(leaf.files) - _MAX_FILES} if len(leaf.files) > _MAX_FILES else {}
            ),
        }
        for leaf in plan.leaves
    ]
    lines = "\n".join(json.dumps(part, ensure_ascii=False) for part in parts)
    return f"The task: {task or '(not said)'}\n\nThe parts, one on each line:\n{lines}"
