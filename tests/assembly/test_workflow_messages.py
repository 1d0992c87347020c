"""Workflows with a real model: conversations in prompts and samples, and what is drawn again."""

import pytest

from abreast.assembly.workflow_tools import RunTools, Tools
from abreast.core.errors import WorkflowInvalid
from abreast.models.media import MediaFile
from abreast.models.port import Message
from abreast.models.scripted import Scripted
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.testing import MemoryStore
from tests.jobs.workflow.kits import flow, go
from tests.models.pictures import png

TALK = [
    {"role": "user", "content": "Say {{ inputs.what }}."},
    {"role": "assistant", "content": "no"},
]
TURNS = (Message("user", "Say 7."), Message("assistant", "no"))


def kit_for(model, cwd=None):
    tools = Tools(cwd=cwd, default_model=model.name)
    return RunTools(tools, {model.name: Caller(model, ModelLane("scripted"), paid=False)})


async def run_flow(model, *steps, store=None, cwd=None):
    """Run a workflow of these steps with a model, again in the same store."""
    workflow = flow(*steps, inputs={"what": {"default": "7"}})
    async with kit_for(model, cwd) as kit:
        return await go(workflow, kit, {"what": "7"}, store=store)


def echo():
    return Scripted(lambda request: f"re: {request.messages[-1].content}")


async def test_a_prompt_and_a_sample_go_on_from_messages():
    model = echo()
    found = await run_flow(
        model,
        {"id": "ask", "type": "prompt", "messages": TALK, "prompt": "Again."},
        {"id": "all", "type": "prompt", "messages": [*TALK, {"role": "user", "content": "Now."}]},
        {"id": "draw", "type": "sample", "sample": {"messages": TALK, "prompt": "Draw."}},
    )
    texts = [found.steps[name].output["text"] for name in ("ask", "all", "draw")]
    assert (found.ok, texts) == (True, ["re: Again.", "re: Now.", "re: Draw."])
    assert [request.messages[:2] for request in model.calls] == [TURNS] * 3


async def test_messages_are_values_of_earlier_steps_too():
    model = echo()
    listed = '[{"role": "user", "content": 3}]'
    found = await run_flow(
        model,
        {"id": "talk", "type": "shell", "run": f"echo '{listed}'", "output_format": "json"},
        {"id": "ask", "type": "prompt", "messages": "{{ steps.talk.output.data }}"},
        {"id": "draw", "type": "sample", "sample": {"messages": "{{ steps.talk.output.data }}"}},
        {
            "id": "wrong",
            "type": "prompt",
            "messages": "{{ steps.talk.output.stdout }}",
            "continue_on_error": True,
        },
    )
    assert [request.messages for request in model.calls] == [(Message("user", "3"),)] * 2
    assert "messages must be a list of messages" in found.steps["wrong"].error


async def test_images_in_messages_are_known_by_their_content(tmp_path):
    (tmp_path / "a.png").write_bytes(png())
    parts = ["What is it?", {"image": "a.png"}]
    model, store = echo(), MemoryStore()
    steps = [
        {"id": "ask", "type": "prompt", "messages": [{"role": "user", "content": parts}]},
        {"id": "end", "type": "shell", "run": "test -e done"},
    ]
    await run_flow(model, *steps, store=store, cwd=str(tmp_path))
    await run_flow(model, *steps, store=store, cwd=str(tmp_path))
    assert [one.messages[0].files for one in model.calls] == [(MediaFile.of(png()),)]
    (tmp_path / "a.png").write_bytes(png(9))
    (tmp_path / "done").touch()
    found = await run_flow(model, *steps, store=store, cwd=str(tmp_path))
    assert (found.ok, len(model.calls)) == (True, 2)
    assert model.calls[1].messages[0].files == (MediaFile.of(png(9)),)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({}, "the prompt step 's' has no 'prompt'"),
        ({"messages": "hello"}, "'messages' of the prompt step 's' must be a list of messages"),
        ({"messages": []}, "messages is empty"),
        (
            {"messages": [{"role": "me", "content": "x"}]},
            r"the prompt step 's': messages\[0\].role must be one of",
        ),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "leaves nothing to answer"),
    ],
)
def test_wrong_messages_are_problems_of_the_file(more, says):
    with pytest.raises(WorkflowInvalid, match=says):
        flow({"id": "s", "type": "prompt", **more})


# --- what is drawn again


@pytest.mark.parametrize("change", ["prompt", "messages", "checks", "system"])
async def test_a_resumed_sample_that_asks_something_else_is_drawn_again(change):
    before = {"prompt": "Name a river.", "checks": ["max-words 9", "judge: is wet"]}
    other = {
        "prompt": {"prompt": "Name a lake."},
        "messages": {"messages": [{"role": "user", "content": "Hello."}]},
        "checks": {"checks": ["max-words 8", "judge: is wet"]},
        "system": {"system": "Be brief."},
    }[change]

    def reply(request):
        if request.schema is not None:
            return '{"reason": "", "meets": true}'
        return f"draw {len(model.calls)}"

    model, store = Scripted(reply), MemoryStore()

    async def run(facts, end):
        steps = ({"id": "s", "type": "sample", "sample": facts}, {"id": "e", **end})
        found = await run_flow(model, *steps, store=store)
        return found.steps["s"].output["text"]

    assert await run(before, {"type": "shell", "run": "exit 1"}) == "draw 1"
    assert len(model.calls) == 2
    assert await run(before, {"type": "shell", "run": "exit 2"}) == "draw 1"
    assert len(model.calls) == 2
    assert await run({**before, **other}, {"type": "shell", "run": "true"}) == "draw 3"
    assert len(model.calls) == 4  # the judge is asked about the new draw
