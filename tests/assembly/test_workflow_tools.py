"""The real tools of a workflow: a shell, agents, models, functions, custom kinds."""

import asyncio
import os
import textwrap

import pytest

import abreast
from abreast.assembly.workflow_tools import Runner, RunTools, Tools, find_function, find_kinds
from abreast.core.errors import WorkflowInvalid
from abreast.jobs.workflow.tools import AgentRequest, CannotDo, GateQuestion, StepContext


async def test_a_script_too_long_for_an_argument_goes_through_a_file(tmp_path):
    text = "x" * 300_000
    async with RunTools(Tools(cwd=str(tmp_path))) as kit:
        ran = await kit.shell(f"A='{text}'; printf %s \"$A\"")
        assert (ran.exit_code, len(ran.stdout)) == (0, 300_000)
        assert (await kit.shell("pwd")).stdout.strip() == str(tmp_path)
    assert list(tmp_path.iterdir()) == []


async def test_output_past_its_bound_is_counted():
    async with RunTools(Tools(max_output=1000)) as kit:
        ran = await kit.shell("head -c 5000 /dev/zero | tr '\\0' a; echo oh >&2; exit 3")
    assert (ran.exit_code, len(ran.stdout), ran.cut, ran.stderr) == (3, 1000, 4000, "oh\n")


async def test_a_runner_is_a_command_line_with_the_prompt_as_one_argument():
    tools = Tools(
        runners={
            "say": Runner(("printf", "%s|", "{prompt}"), ("-m={model}",)),
            "gone": Runner(("no-such-x",)),
        }
    )
    async with RunTools(tools) as kit:
        assert (await kit.agent("say", "a 'b' $(c)", None)).stdout == "a 'b' $(c)|"
        assert (await kit.agent("say", "p", "m1")).stdout == "p|-m=m1|"
        assert await kit.agent("nobody", "p", None) is None
        with pytest.raises(CannotDo, match="the runner 'gone' can't be started"):
            await kit.agent("gone", "p", None)


async def test_a_model_that_is_not_there_is_told_in_one_sentence():
    async with RunTools(Tools(default_model=None)) as kit:
        with pytest.raises(CannotDo, match="no model is named"):
            await kit.ask(AgentRequest("hi", None))
        with pytest.raises(CannotDo, match="provider/model"):
            await kit.ask(AgentRequest("hi", "sonnet"))


async def test_functions_are_called_on_the_loop_or_in_a_thread():
    async def later(a):
        return a + 1

    functions = {"m:later": later, "m:now": lambda a: a + 2}
    async with RunTools(Tools(find=functions.__getitem__)) as kit:
        assert await kit.call("m:later", {"a": 1}) == 2
        assert await kit.call("m:now", {"a": 1}) == 3
    async with RunTools(Tools()) as kit:
        with pytest.raises(CannotDo, match="can't be called here"):
            await kit.call("m:now", {})


async def test_people_are_asked_one_thing_at_a_time():
    asking, most = 0, 0

    async def decide(question):
        nonlocal asking, most
        asking += 1
        most = max(most, asking)
        await asyncio.sleep(0)
        asking -= 1
        return question.options[0]

    async with RunTools(Tools(decide=decide)) as kit:
        found = await asyncio.gather(
            *(kit.decide(GateQuestion("g", "?", ("yes", "no"))) for _ in range(5))
        )
    assert (found, most) == (["yes"] * 5, 1)
    async with RunTools(Tools()) as kit:
        assert await kit.decide(GateQuestion("g", "?", ("yes",))) is None


def test_a_function_is_found_by_its_name_or_said_to_be_missing():
    assert find_function("os.path:join") is os.path.join
    for name, why in [
        ("os:nothing", "nothing"),
        ("no_such_module_x:f", "no_such_module_x"),
        ("os:name", "not a function"),
    ]:
        with pytest.raises(CannotDo, match=why):
            find_function(name)


# --- kinds of others ----------------------------------------------------------------------------


@pytest.fixture
def register(tmp_path, monkeypatch):
    """Install kinds as a package would: by entry points on the path."""

    def install(entry, source):
        (tmp_path / "other_kinds.py").write_text(textwrap.dedent(source))
        info = tmp_path / "other_kinds-1.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-kinds\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[abreast.steps]\n{entry}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        import sys

        monkeypatch.delitem(sys.modules, "other_kinds", raising=False)
        return tmp_path

    return install


SHOUT = """
class Shout:
    def check(self, config):
        return None if "text" in config else "a shout needs a text"

    async def __call__(self, config, context):
        return {"said": config["text"].upper(), "step": context.step}
"""


async def test_a_kind_that_a_package_registers_is_a_step(register):
    folder = register("shout = other_kinds:Shout", SHOUT)
    (folder / "flow.yaml").write_text("""
workflow: {id: loud}
steps:
  - id: fan
    type: fan-out
    items: [a, b]
    max_concurrency: 2
    step: {id: s, type: shout, text: "hey {{ item }}"}
""")
    result = await abreast.workflow(folder / "flow.yaml")
    assert result.ok
    assert result.steps["fan:s:1"].output == {"said": "HEY B", "step": "fan:s:1"}
    (folder / "flow.yaml").write_text("workflow: {id: loud}\nsteps: [{id: s, type: shout}]")
    with pytest.raises(WorkflowInvalid, match="a shout needs a text"):
        await abreast.workflow(folder / "flow.yaml")


async def test_one_object_serves_all_steps_of_a_kind(register):
    register("shout = other_kinds:Shout", SHOUT)
    kinds = find_kinds()
    async with RunTools(Tools(kinds=kinds)) as kit:
        context = StepContext("s", "r-1", {})
        both = await asyncio.gather(
            *(kit.custom("shout", {"text": text}, context) for text in "xy")
        )
    assert [one["said"] for one in both] == ["X", "Y"]


@pytest.mark.parametrize(
    ("entry", "source", "says"),
    [
        (
            "bad = other_kinds:Nothing",
            "",
            "the step kind 'bad' \\(other_kinds:Nothing\\) can't be loaded: AttributeError",
        ),
        ("bad = other_kinds:x", "1/0", "can't be loaded: ZeroDivisionError"),
        ("bad = other_kinds:x", "x = 3", "is not something that can be called"),
    ],
)
def test_a_broken_kind_is_an_error_that_names_it(register, entry, source, says):
    register(entry, source)
    with pytest.raises(ValueError, match=says):
        find_kinds()


# --- abreast.workflow ----------------------------------------------------------------------------


async def test_a_workflow_is_run_from_python_and_goes_on(tmp_path):
    flow = tmp_path / "flow.yaml"
    flow.write_text(f"""
workflow: {{id: py}}
inputs: {{n: {{type: number, default: 2}}}}
steps:
  - id: a
    type: shell
    run: 'echo x >> {tmp_path}/log; echo "{{{{ inputs.n }}}}"'
    output_format: json
  - {{id: g, type: gate, message: go on?}}
outputs: {{n: {{value: "{{{{ steps.a.output.data }}}}"}}}}
""")
    store = tmp_path / "runs.db"
    first = await abreast.workflow(flow, {"n": "3"}, store=store)
    assert (first.status, first.outputs) == ("paused", {})
    again = await abreast.workflow(
        flow, {"n": "3"}, store=store, run_id="py-1", verdicts={"g": "approve"}
    )
    assert (again.status, again.outputs) == ("completed", {"n": 3})
    assert (tmp_path / "log").read_text() == "x\n"
    with pytest.raises(ValueError, match="there is no input 'm'"):
        await abreast.workflow(flow, {"m": 1})


async def test_a_workflow_within_a_run_is_a_part_of_it(tmp_path):
    flow = tmp_path / "flow.yaml"
    flow.write_text("workflow: {id: inner}\nsteps: [{id: a, type: shell, run: echo hi}]")

    async def work(_):
        return (await abreast.workflow(flow)).steps["a"].output["stdout"]

    async with abreast.open_run("outer") as run:
        assert await run.map(work, range(2), width=2).values() == ["hi\n", "hi\n"]
        assert (await abreast.workflow(flow, run=run)).ok
