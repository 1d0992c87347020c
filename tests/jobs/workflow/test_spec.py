"""Actions: their settings, their results, and the keys that every step may have."""

from __future__ import annotations

import asyncio

import pytest

import abreast
from abreast.core.errors import (
    BudgetSpent,
    CancelRequested,
    KeyRefused,
    NoSuchModel,
    ReplyInvalid,
    ServerFault,
    TooLong,
)
from abreast.jobs.workflow.tools import AgentResult
from abreast.testing import Gate, ManualClock, MemoryStore
from tests.jobs.workflow.kits import (
    FakeKit,
    at_gate,
    each,
    fan,
    flow,
    gate,
    go,
    recorded,
    statuses,
    step,
    told,
)
from tests.turns import turns

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Shells(FakeKit):
    """Fake tools whose shell gives the results that the test has set."""

    def __init__(self, ran):
        super().__init__()
        self.answers = ran if isinstance(ran, list) else [ran]

    async def shell(self, script, env=None):
        self.calls.append(script)
        return self.answers[min(len(self.calls), len(self.answers)) - 1]


def shell(name="s", **more):
    return {"id": name, "type": "shell", "run": "work", **more}


# --- shell --------------------------------------------------------------------------------------


async def test_a_shell_gives_its_exit_code_and_what_it_wrote():
    result = await go(flow(shell()), Shells(AgentResult(0, "out\n", "err\n")))
    assert result.steps["s"].output == {"exit_code": 0, "stdout": "out\n", "stderr": "err\n"}


@pytest.mark.parametrize(
    ("ran", "error"),
    [
        (AgentResult(3, "", ""), "exit code 3"),
        (AgentResult(2, "x", "one\ntwo\n\n"), "exit code 2: two"),
        (AgentResult(-9, "", ""), "killed by signal 9"),
    ],
)
async def test_a_shell_that_fails_says_how_and_keeps_what_it_wrote(ran, error):
    result = await go(flow(shell()), Shells(ran))
    assert told(result)[:2] == ("failed", error)
    assert result.steps["s"].output == {
        "exit_code": ran.exit_code,
        "stdout": ran.stdout,
        "stderr": ran.stderr,
    }


async def test_json_that_is_declared_is_parsed_or_the_step_fails():
    result = await go(flow(shell(output_format="json")), Shells(AgentResult(0, '{"a": [1]}', "")))
    assert result.steps["s"].output["data"] == {"a": [1]}
    result = await go(flow(shell(output_format="json")), Shells(AgentResult(0, "{", "")))
    assert result.error.startswith("it declares output_format: json, and its stdout is no JSON: ")
    assert result.steps["s"].output == {"exit_code": 0, "stdout": "{", "stderr": ""}


async def test_an_output_that_was_cut_fails_instead_of_being_half():
    result = await go(flow(shell()), Shells(AgentResult(0, "half", "", cut=100)))
    assert result.error == "it wrote 104 bytes and 1048576 are kept; let it write to a file"


# --- python, kinds of others --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ({"a": 1}, {"a": 1}),
        ("text", {"value": "text"}),
        ([1], {"value": [1]}),
        (None, {"value": None}),
        ({1: (2,)}, {"1": [2]}),
    ],
)
@pytest.mark.parametrize("kind", ["python", "do"])
async def test_what_a_function_gives_is_its_output(kind, value, output):
    own = step("a") if kind == "python" else {"id": "a", "type": "do"}
    assert (await go(flow(own), FakeKit(gives={"a": value}))).steps["a"].output == output


@pytest.mark.parametrize("kind", ["python", "do"])
@pytest.mark.parametrize("value", [object, {1, 2}, float("nan")])
async def test_what_has_no_form_in_json_fails_the_step(kind, value):
    own = step("a") if kind == "python" else {"id": "a", "type": "do"}
    made = (lambda _: object()) if value is object else value
    result = await go(flow(own), FakeKit(gives={"a": made}))
    assert "gave what has no form in JSON" in result.error


async def test_what_a_python_function_raises_is_a_failure_of_its_step_by_type_and_sentence():
    result = await go(flow(step("a"), step("b")), FakeKit(fails={"a": "no"}))
    assert told(result)[:2] == ("failed", "ValueError: no")


async def test_what_a_kind_of_somebodys_own_raises_is_raised_as_it_was():
    store, boom = MemoryStore(), LookupError("mine")
    with pytest.raises(LookupError) as caught:
        await go(
            flow(step("a"), {"id": "b", "type": "do"}), FakeKit(raises={"b": boom}), store=store
        )
    assert caught.value is boom
    assert store.newest("flow").state == "failed"
    assert recorded(store)["flow/a"] == "done"


async def test_a_kind_is_told_its_id_its_attempt_a_seed_and_its_inputs():
    kit = FakeKit()
    await go(
        flow({"id": "k", "type": "do", "n": "{{ inputs.n }}"}, inputs={"n": {"type": "number"}}),
        kit,
        {"n": 3},
    )
    (context,) = kit.contexts
    assert (context.step, context.attempt, context.inputs, context.item) == ("k", 1, {"n": 3}, None)
    assert context.run_id == "flow"
    assert isinstance(context.seed, int)


async def test_a_kind_that_changes_its_inputs_changes_nobody_elses():
    kit = FakeKit()
    kit.gives["a"] = lambda config: kit.contexts[0].inputs.update(n=4)
    await go(
        flow(
            {"id": "a", "type": "do"},
            {"id": "b", "type": "do", "who": "b{{ inputs.n }}"},
            inputs={"n": {"type": "number"}},
        ),
        kit,
        {"n": 3},
    )
    assert kit.calls == ["a", "b3"]


# --- prompt, command ----------------------------------------------------------------------------


async def test_a_prompts_text_is_captured_and_the_default_model_is_asked():
    kit = FakeKit()
    result = await go(
        flow({"id": "p", "type": "prompt", "prompt": "hello {{ inputs.x }}"}, inputs={"x": {}}),
        kit,
        {"x": "you"},
    )
    assert kit.calls == ["None hello you"]
    assert result.steps["p"].output["text"] == "None hello you"
    assert result.steps["p"].output["model"] == "fake"


async def test_an_empty_prompt_fails_and_nobody_is_asked():
    kit = FakeKit()
    result = await go(
        flow({"id": "p", "type": "prompt", "prompt": "{{ inputs.x }}"}, inputs={"x": {}}), kit
    )
    assert (result.error, kit.calls) == ("the prompt is empty", [])


async def test_a_command_without_an_agent_says_what_to_do():
    result = await go(flow({"id": "c", "type": "command", "command": "speckit.plan"}), FakeKit())
    assert result.error.startswith(
        "/speckit.plan is a command for an agent, and no integration says which"
    )
    assert result.steps["c"].output == {"exit_code": 1, "dispatched": False}


async def test_a_command_is_handed_to_its_agent_and_its_input_can_be_read():
    kit = FakeKit()
    command = {
        "id": "c",
        "type": "command",
        "command": "plan",
        "integration": "claude",
        "input": {"args": "{{ 1 + 1 }}"},
    }
    await go(flow(command, step("after", "{{ steps.c.input.args }}")), kit)
    assert kit.calls == ["claude /plan 2", 2]


# --- gates --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on_reject", "status", "goes_on"),
    [("abort", "aborted", False), ("skip", "completed", True), ("retry", "paused", False)],
)
@pytest.mark.parametrize("word", ["reject", "REJECT"])
async def test_what_a_rejection_does_is_the_gates_to_say(on_reject, status, goes_on, word):
    kit = FakeKit()
    result = await go(
        flow(gate("g", on_reject=on_reject), step("after")), kit, verdicts={"g": word}
    )
    assert result.status == status
    assert result.steps["g"].output["choice"] == "reject"
    assert ("after" in kit.calls) is goes_on


@pytest.mark.parametrize("way", ["verdict", "input", "person"])
async def test_a_gate_is_decided_by_its_id_by_its_input_or_by_a_person(way):
    kit = FakeKit(decides={"g": "approve"} if way == "person" else {})
    workflow = flow(gate("g", verdict_input="v"), step("after"), inputs={"v": {"default": ""}})
    given = {"v": "approve" if way == "input" else ""}
    result = await go(workflow, kit, given, verdicts={"g": "approve"} if way == "verdict" else None)
    assert result.ok
    assert result.steps["g"].output["choice"] == "approve"
    assert kit.asked == (["g"] if way == "person" else [])


async def test_a_verdict_by_id_counts_before_the_input():
    workflow = flow(gate("g", verdict_input="v"), inputs={"v": {"default": ""}})
    assert (await go(workflow, FakeKit(), {"v": "reject"}, verdicts={"g": "approve"})).ok


async def test_a_verdict_that_is_no_option_fails_the_gate():
    result = await go(flow(gate("g")), FakeKit(), verdicts={"g": "perhaps"})
    assert told(result)[:2] == ("failed", "the verdict 'perhaps' is none of approve, reject")


async def test_a_gate_that_nobody_answers_pauses_the_run_and_is_asked_again():
    store, workflow = MemoryStore(), flow(step("a"), gate("g"), step("b"))
    kit = FakeKit()
    result = await go(workflow, kit, store=store)
    assert told(result)[:2] == ("paused", "the gate 'g' waits for a decision")
    assert store.newest("flow").state == "paused"
    assert "flow/g" not in recorded(store)
    again = FakeKit(decides={"g": "approve"})
    assert (await go(workflow, again, store=store)).ok
    assert (again.asked, again.calls) == (["g"], ["b"])


async def test_a_decision_that_was_made_stands():
    store, workflow = MemoryStore(), flow(gate("g"), step("b"))
    await go(workflow, FakeKit(fails={"b": "no"}, decides={"g": "approve"}), store=store)
    kit = FakeKit(decides={"g": "reject"})
    assert (await go(workflow, kit, store=store)).ok
    assert kit.asked == []


async def test_an_abort_is_final_and_a_changed_input_decides_anew():
    store = MemoryStore()
    workflow = flow(gate("g", verdict_input="v"), step("b"), inputs={"v": {"default": ""}})
    assert (await go(workflow, FakeKit(), {"v": "reject"}, store=store)).status == "aborted"
    assert (await go(workflow, FakeKit(), {"v": "reject"}, store=store)).status == "aborted"
    assert (await go(workflow, FakeKit(), {"v": "approve"}, store=store)).ok


async def test_a_rejection_that_is_to_be_retried_is_asked_again():
    store, workflow = MemoryStore(), flow(gate("g", on_reject="retry"), step("b"))
    assert (await go(workflow, FakeKit(), store=store, verdicts={"g": "reject"})).status == "paused"
    assert (await go(workflow, FakeKit(), store=store, verdicts={"g": "approve"})).ok


@pytest.mark.parametrize("tolerant", [True, False])
async def test_neither_an_abort_nor_a_pause_is_an_error_to_be_tolerated(tolerant):
    workflow = flow(gate("g", continue_on_error=tolerant), step("after"))
    assert (await go(workflow, FakeKit(), verdicts={"g": "reject"})).status == "aborted"
    assert (await go(workflow, FakeKit())).status == "paused"


# --- what any step may say ----------------------------------------------------------------------


class Shaky(FakeKit):
    """Fails the first times."""

    def __init__(self, failures, **more):
        super().__init__(**more)
        self.left = dict(failures)

    async def act(self, who):
        value = await super().act(who)
        if self.left.get(who, 0):
            self.left[who] -= 1
            self.fails[who] = f"{self.left[who]} left"
        else:
            self.fails.pop(who, None)
        return value


async def patiently(workflow, kit, **options):
    """Run it in virtual time."""
    clock = ManualClock()
    task = asyncio.ensure_future(go(workflow, kit, clock=clock, **options))
    for _ in range(400):
        if task.done():
            break
        await clock.advance(10)
        await turns(10)
    return await task


@pytest.mark.parametrize("place", ["alone", "fan", "nested"])
@pytest.mark.parametrize(("failures", "ok"), [(2, True), (3, False)])
async def test_a_failing_step_is_tried_again_as_often_as_it_says(place, failures, ok):
    kit = Shaky({"a": failures})
    own = step("a", retry=2)
    steps = {"alone": [own], "fan": [fan([0], own)], "nested": [fan([0], own, step("z"))]}[place]
    result = await patiently(flow(*steps), kit)
    assert result.ok is ok
    assert kit.ran["a"] == 3
    if not ok:
        assert result.error == "ValueError: 0 left"


@pytest.mark.parametrize("place", ["alone", "fan"])
async def test_a_delay_passes_before_each_further_attempt(place):
    kit, clock = Shaky({"a": 2}), ManualClock()
    own = step("a", retry={"times": 2, "delay": 30})
    workflow = flow(own if place == "alone" else fan([0], own))
    task = asyncio.ensure_future(go(workflow, kit, clock=clock))
    for tries in (1, 2, 3):
        await turns()
        assert kit.ran["a"] == tries
        await clock.advance(29)
        await turns()
        assert kit.ran["a"] == tries
        await clock.advance(1)
    assert (await task).ok
    assert kit.ran["a"] == 3


@pytest.mark.parametrize("place", ["alone", "fan", "nested", "needs"])
async def test_a_step_whose_if_does_not_hold_is_skipped_and_later_ones_can_see_it(place):
    kit = FakeKit()
    own = step("a", "a", **{"if": "{{ inputs.go }}"})
    after = step("z", "z {{ steps.a.status }} {{ steps.a.output.value | default('none') }}")
    steps = {
        "alone": [own, after],
        "fan": [fan([0, 1], own, name="f")],
        "nested": [fan([0, 1], own, after, name="f")],
        "needs": [{**own, "needs": []}, {**after, "needs": ["a"]}],
    }[place]
    workflow = flow(*steps, inputs={"go": {"type": "boolean"}})
    result = await go(workflow, kit, {"go": False})
    assert result.ok
    assert "a" not in kit.calls
    assert {
        record.status for name, record in result.steps.items() if name == "a" or ":a:" in name
    } == {"skipped"}
    if place != "fan":
        assert set(kit.calls) == {"z skipped none"}
    else:
        assert result.steps["f"].output["results"] == [{}, {}]
        assert "quarantine" not in result.steps["f"].output
    assert (await go(workflow, kit, {"go": True})).ok
    assert kit.ran["a"] == (1 if place in ("alone", "needs") else 2)


async def test_a_composite_is_skipped_with_all_that_is_in_it_and_an_item_decides_for_itself():
    kit = FakeKit()
    inner = each("x", **{"if": "{{ item > 1 }}"})
    result = await go(
        flow(fan([1, 2], inner), fan([1], each("y"), name="no", **{"if": False})), kit
    )
    assert kit.calls == ["x2"]
    assert statuses(result) == {
        "fan": "completed",
        "fan:x:0": "skipped",
        "fan:x:1": "completed",
        "no": "skipped",
    }


async def test_an_if_that_cannot_be_evaluated_fails_its_step():
    kit = FakeKit()
    for steps in (
        [step("a", **{"if": "{{ 'x' | from_json }}"})],
        [fan([0], step("a", **{"if": "{{ 'x' | from_json }}"}))],
    ):
        assert (await go(flow(*steps), kit)).status == "failed"
    assert kit.calls == []


@pytest.mark.parametrize("place", ["alone", "fan"])
async def test_what_cannot_be_done_at_all_is_not_tried_again(place):
    kit = FakeKit(fails={"a": "there is no such thing"})
    own = {"id": "a", "type": "do", "who": "a", "retry": 5}
    result = await patiently(flow(own if place == "alone" else fan([0], own)), kit)
    assert result.error == "there is no such thing"
    assert kit.calls == ["a"]


@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (KeyRefused("no"), 1),
        (NoSuchModel("no"), 1),
        (TooLong("no"), 1),
        (ReplyInvalid("no"), 3),
        (ServerFault("no"), 3),
    ],
)
async def test_a_call_is_tried_again_where_the_next_answer_may_be_another(error, calls):
    kit = FakeKit(raises={"None hi": error})
    result = await patiently(flow({"id": "p", "type": "prompt", "prompt": "hi", "retry": 2}), kit)
    assert told(result)[:2] == ("failed", "no")
    assert len(kit.calls) == calls


@pytest.mark.parametrize("place", ["alone", "fan", "nested"])
async def test_a_step_that_takes_longer_than_it_may_is_stopped_on_the_clock_of_the_run(place):
    clock, kit = ManualClock(), FakeKit(gate=Gate())
    own = {"id": "a", "type": "shell", "run": "work", "timeout": 30}
    tree = {"alone": own, "fan": fan([0], own), "nested": fan([0], own, step("z"))}[place]

    async def body():
        await kit.gate.wait_for("work")
        await clock.advance(29)
        assert kit.cancelled == []
        await clock.advance(2)

    result = await at_gate(flow(tree, step("after")), kit, body, clock=clock)
    assert told(result)[:2] == ("failed", "it took longer than 30 seconds")
    name = "a" if place == "alone" else "fan:a:0"
    assert result.steps[name].output == {"exit_code": -1, "stdout": "", "stderr": "timeout"}


async def test_a_shell_that_says_nothing_may_take_300_seconds():
    clock, kit = ManualClock(), FakeKit(gate=Gate())

    async def body():
        await kit.gate.wait_for("work")
        await clock.advance(299)
        assert kit.cancelled == []
        await clock.advance(2)

    result = await at_gate(flow(shell()), kit, body, clock=clock)
    assert result.error == "it took longer than 300 seconds"


@pytest.mark.parametrize("width", [1, 3])
async def test_a_budget_on_a_step_is_for_all_that_stands_in_it_and_fails_that_step_alone(width):
    kit = FakeKit()
    inner = fan([0, 1, 2, 3, 4], each("a"), width=width, budget="2req", continue_on_error=True)
    result = await go(flow(inner, step("after")), kit)
    assert result.ok
    assert statuses(result)["fan"] == "failed"
    assert "budget" in result.steps["fan"].error
    assert sorted(kit.calls) == ["a0", "a1", "after"]


async def test_a_budget_on_a_step_that_does_something_is_its_own():
    kit = Shaky({"a": 3})
    result = await patiently(flow(step("a", retry=5, budget="2req"), step("after")), kit)
    assert result.status == "failed"
    assert "budget" in result.error
    assert kit.calls == ["a", "a"]


async def test_a_budget_of_the_run_is_not_taken_for_the_steps_own():
    with pytest.raises(BudgetSpent):
        await go(flow(fan([0, 1, 2], each("a"), budget="9req")), FakeKit(), budget="2req")


@pytest.mark.parametrize("end", [BudgetSpent("all of it"), CancelRequested("somebody")])
async def test_the_end_of_the_run_within_a_function_is_no_failure_to_be_tolerated(end):
    with pytest.raises(type(end)):
        await go(flow(step("a", continue_on_error=True)), FakeKit(raises={"a": end}))


@pytest.mark.parametrize("place", ["alone", "fan", "nested"])
async def test_an_output_that_does_not_obey_its_schema_fails_the_step_and_is_kept(place):
    kit = FakeKit(gives={"a": {"n": "x"}})
    own = step("a", output_schema=SCHEMA)
    tree = {"alone": own, "fan": fan([0], own), "nested": fan([0], own, step("z"))}[place]
    result = await go(flow(tree), kit)
    assert result.status == "failed"
    assert "n" in result.error
    assert result.steps["a" if place == "alone" else "fan:a:0"].output == {"n": "x"}


@pytest.mark.parametrize(
    "own",
    [
        step("a", output_schema=SCHEMA),
        {"id": "a", "type": "do", "output_schema": SCHEMA},
        {"id": "a", "type": "shell", "run": "a", "output_schema": SCHEMA},
    ],
)
async def test_an_output_that_obeys_its_schema_is_there_as_data(own):
    value = '{"n": 3}' if own["type"] == "shell" else {"n": 3}
    result = await go(flow(own), FakeKit(gives={"a": value}))
    assert result.steps["a"].output["data"] == {"n": 3}


@pytest.mark.parametrize("place", ["alone", "fan"])
async def test_a_lane_is_held_while_a_step_works_and_both_reached_and_never_passed(place):
    kit = FakeKit(gate=Gate())
    steps = [step(f"a{index}", lane="slow", needs=[]) for index in range(4)]
    workflow = (
        flow(*steps)
        if place == "alone"
        else flow(fan([0, 1, 2, 3], each("a", lane="slow"), width=4))
    )

    async def body():
        await turns(200)
        assert kit.inside == 2
        kit.gate.open_all()

    result = await at_gate(workflow, kit, body, lanes={"slow": abreast.Slots(2)})
    assert result.ok
    assert (kit.peak, len(kit.calls)) == (2, 4)


async def test_statuses_are_what_every_step_says_of_itself():
    kit = FakeKit(fails={"b": "no"})
    result = await go(flow(step("a"), step("b", continue_on_error=True), step("c")), kit)
    assert statuses(result) == {"a": "completed", "b": "failed", "c": "completed"}
