"""A model proposes parts: by the rules of an edited plan, and told once what is wrong."""

import json

import pytest

from abreast.jobs.plan.decompose.decompose import decompose
from abreast.jobs.plan.decompose.inventory import Inventory
from abreast.jobs.plan.errors import PlanInvalid
from abreast.jobs.plan.spec import Options
from abreast.jobs.plan.written.planner import propose_parts
from abreast.testing import ScriptedModel

PLAN = decompose(
    Inventory.of([f"{part}/{name}.py" for part in "abc" for name in ("x", "y")]),
    options=Options(min_files=2),
)
A, B, C = (leaf.id for leaf in PLAN.leaves)


def part(name, *parts, files=(), instructions=""):
    return {
        "name": name,
        "parts": list(parts),
        "files": list(files),
        "instructions": instructions,
    }


def said(*parts):
    return json.dumps({"parts": parts})


GOOD = said(part("one", A, B, instructions="Mind c."), part("two", C), part("x", files=["a/x.py"]))


async def test_parts_are_merged_split_and_told_what_to_mind():
    model = ScriptedModel([GOOD])
    merged, kept, split = await propose_parts(model, PLAN, "Rename x.")
    assert (merged["files"], merged["instructions"]) == (["a/", "b/"], "Mind c.")
    assert (kept["id"], kept["files"]) == (C, ["c/"])
    assert split["files"] == ["a/x.py"]
    (asked,) = model.calls
    assert "Rename x." in asked.messages[0].content
    assert asked.schema is not None


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        (said(part("one", A, B)), f"no part takes over {C}"),
        (said(part("one", A, B), part("two", B, C)), "is taken over twice"),
        (said(part("one", A, B, "d"), part("two", C)), "there is no part 'd'"),
        (said(part("o", A, B, C), part("p", files=["z.py"])), "there is no file 'z.py'"),
        (said(part("o", A, B, C), part("p", files=["a/"])), "comes twice"),
        ("no JSON", ""),
    ],
)
async def test_a_wrong_proposal_is_repaired_once_and_then_refused(reply, fault):
    model = ScriptedModel([reply, GOOD])
    assert len(await propose_parts(model, PLAN, "")) == 3
    assert fault in model.calls[1].messages[-1].content
    with pytest.raises(PlanInvalid, match="proposed no parts that can be used"):
        await propose_parts(ScriptedModel([reply, reply, GOOD]), PLAN, "")
