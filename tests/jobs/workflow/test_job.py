"""Running a workflow: branches, loops, parallel steps, files as steps, and resume."""

from __future__ import annotations

import asyncio

import pytest

from abreast.jobs.workflow.load.step_words import OUTPUTS as KINDS_OUTPUTS
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


def loop(*steps, kind="while", condition="{{ true }}", name="loop", **more):
    return {"id": name, "type": kind, "condition": condition, "steps": list(steps), **more}


def branch(condition, then, otherwise=(), name="if", **more):
    return {
        "id": name,
        "type": "if",
        "condition": condition,
        "then": list(then),
        "else": list(otherwise),
        **more,
    }


# --- lists, branches, switches ------------------------------------------------------------------


async def test_steps_run_in_order_and_a_failure_ends_the_workflow_there():
    kit = FakeKit(fails={"b": "no"})
    result = await go(flow(step("a"), step("b"), step("c")), kit)
    assert (result.status, result.error, kit.calls) == ("failed", "ValueError: no", ["a", "b"])
    assert statuses(result) == {"a": "completed", "b": "failed"}


async def test_a_tolerated_failure_goes_on_and_its_status_and_error_can_be_read():
    kit = FakeKit(fails={"a": "no"})
    after = step("b", "{{ steps.a.status }} {{ steps.a.error }}")
    result = await go(flow(step("a", continue_on_error=True), after), kit)
    assert result.ok
    assert kit.calls == ["a", "failed ValueError: no"]


@pytest.mark.parametrize(
    "own",
    [
        step("a", input={"n": "{{ 1 + 1 }}"}),
        branch(True, [], name="a", input={"n": "{{ 1 + 1 }}"}),
        fan([], step("x"), name="a", input={"n": "{{ 1 + 1 }}"}),
    ],
)
async def test_what_any_step_was_given_as_input_can_be_read(own):
    kit = FakeKit()
    assert (await go(flow(own, step("b", "b{{ steps.a.input.n }}")), kit)).ok
    assert kit.calls[-1] == "b2"


@pytest.mark.parametrize("holds", [True, False])
async def test_an_if_takes_one_branch_and_tells_which(holds):
    result = await go(
        flow(branch(f"{{{{ {str(holds).lower()} }}}}", [step("a")], [step("b")])), FakeKit()
    )
    assert list(result.steps) == ["if", "a" if holds else "b"]
    assert result.steps["if"].output == {"condition_result": holds}


@pytest.mark.parametrize(
    ("value", "case"), [("go", "a"), (" go \n", "a"), (2, "b"), (True, "c"), ("x", "d"), ("", "d")]
)
async def test_a_switch_takes_the_case_of_the_stripped_text(value, case):
    tree = {
        "id": "s",
        "type": "switch",
        "expression": "{{ steps.src.output.v }}",
        "default": [step("d")],
        "cases": {"go": [step("a")], 2: [step("b")], True: [step("c")]},
    }
    result = await go(flow(step("src"), tree), FakeKit(gives={"src": {"v": value}}))
    assert list(result.steps) == ["src", "s", case]
    assert result.steps["s"].output["expression_value"] == value
    assert result.steps["s"].output["matched_case"] == (
        "__default__" if case == "d" else str(value).strip()
    )


async def test_a_composite_fares_as_the_step_in_it_that_halted():
    kit = FakeKit(fails={"a": "no"})
    tree = branch(True, [branch(True, [step("a")], name="inner"), step("b")])
    result = await go(flow(tree, step("after")), kit)
    assert told(result)[:2] == ("failed", "ValueError: no")
    assert statuses(result) == {"if": "failed", "inner": "failed", "a": "failed"}


async def test_an_expression_that_cannot_be_evaluated_fails_its_step_and_nothing_is_called():
    kit = FakeKit()
    result = await go(flow(step("a", "{{ 'x' | from_json }}"), step("b")), kit)
    assert result.status == "failed"
    assert result.error
    assert kit.calls == []


async def test_outputs_are_resolved_at_the_end_and_only_then():
    outputs = {"last": {"value": "{{ steps.b.output.value }}"}, "plain": {"value": 3}}
    assert (await go(flow(step("a"), step("b"), outputs=outputs), FakeKit())).outputs == {
        "last": "b",
        "plain": 3,
    }
    assert (
        await go(flow(step("a"), step("b"), outputs=outputs), FakeKit(fails={"b": "no"}))
    ).outputs == {}


async def test_outputs_that_cannot_be_evaluated_fail_the_workflow():
    result = await go(
        flow(step("a"), outputs={"x": {"value": "{{ steps.a.output.value | from_json }}"}}),
        FakeKit(),
    )
    assert result.status == "failed"
    assert result.error.startswith("outputs: ")


# --- loops --------------------------------------------------------------------------------------


async def test_a_while_reads_what_the_last_round_left_and_a_plain_id_is_the_newest_round():
    kit = FakeKit(gives={"n0": {"v": 1}, "n1": {"v": 2}, "n2": {"v": 3}})
    workflow = flow(
        loop(
            step("n", "n{{ steps.n.output.v | default(0) }}"),
            condition="{{ (steps.n.output.v | default(0)) < 3 }}",
        ),
        step("after", "after{{ steps.n.output.v }}"),
    )
    result = await go(workflow, kit)
    assert list(result.steps) == ["loop", "loop:n:0", "n", "loop:n:1", "loop:n:2", "after"]
    assert [result.steps[f"loop:n:{number}"].output["v"] for number in range(3)] == [1, 2, 3]
    assert result.steps["n"] is result.steps["loop:n:2"]
    assert kit.calls == ["n0", "n1", "n2", "after3"]
    assert result.steps["loop"].output["iterations"] == 3
    assert result.steps["loop"].output["max_reached"] is False


@pytest.mark.parametrize(("kind", "rounds"), [("while", 0), ("do-while", 1)])
async def test_a_condition_that_never_holds(kind, rounds):
    kit = FakeKit()
    result = await go(flow(loop(step("a"), kind=kind, condition="{{ false }}")), kit)
    assert len(kit.calls) == rounds == result.steps["loop"].output["iterations"]


@pytest.mark.parametrize("kind", ["while", "do-while"])
@pytest.mark.parametrize(("most", "rounds"), [(3, 3), (None, 10)])
async def test_the_most_rounds_are_never_passed_and_reaching_them_is_reported(kind, most, rounds):
    more = {} if most is None else {"max_iterations": most}
    result = await go(flow(loop(step("a"), kind=kind, **more), step("after")), kit := FakeKit())
    assert kit.ran == {"a": rounds, "after": 1}
    output = result.steps["loop"].output
    assert (output["max_iterations"], output["iterations"], output["max_reached"]) == (
        rounds,
        rounds,
        True,
    )


async def test_a_failure_in_a_round_ends_the_loop_and_a_resume_goes_on_in_that_round():
    store = MemoryStore()
    counted = step("a", "a{{ steps.b.output.value | default('') }}")
    workflow = flow(
        loop(counted, step("b", "{{ steps.b.output.value | default('') }}x"), max_iterations=4)
    )
    first = await go(workflow, FakeKit(fails={"xxx": "no"}), store=store)
    assert first.error == "ValueError: no"
    assert first.steps["loop"].output["iterations"] == 3
    assert list(first.steps) == [
        "loop",
        "loop:a:0",
        "a",
        "loop:b:0",
        "b",
        "loop:a:1",
        "loop:b:1",
        "loop:a:2",
        "loop:b:2",
    ]
    assert (first.steps["b"].status, first.steps["loop:b:0"].status) == ("failed", "completed")
    kit = FakeKit()
    second = await go(workflow, kit, store=store)
    assert kit.calls == ["xxx", "axxx", "xxxx"]
    assert list(second.steps)[-2:] == ["loop:a:3", "loop:b:3"]


async def test_loops_within_loops_have_ids_of_their_own():
    inner = loop(step("a"), name="inner", max_iterations=2)
    result = await go(flow(loop(inner, name="outer", max_iterations=2)), FakeKit())
    assert list(result.steps) == [
        "outer",
        "outer:inner:0",
        "inner",
        "inner:a:0",
        "outer:a:0",
        "a",
        "inner:a:1",
        "outer:inner:1",
        "outer:inner:1:a:0",
        "outer:a:1",
        "outer:inner:1:a:1",
    ]


async def test_a_fan_out_in_a_loop_is_another_one_in_each_round():
    result = await go(
        flow(loop(fan([0, 1], each("w"), width=2), max_iterations=2)), kit := FakeKit()
    )
    assert kit.ran == {"w0": 2, "w1": 2}
    assert [name for name in result.steps if "w" in name] == [
        "fan:w:0",
        "fan:w:1",
        "loop:fan:1:w:0",
        "loop:fan:1:w:1",
    ]


# --- needs --------------------------------------------------------------------------------------


async def test_steps_that_need_nothing_run_side_by_side():
    kit = FakeKit(gate=Gate())

    async def body():
        await kit.gate.wait_for("a", "b", "c")
        assert kit.inside == 3
        kit.gate.open_all()

    steps = [step(name, needs=[]) for name in "abc"]
    result = await at_gate(flow(*steps, step("d", needs=["a", "c"])), kit, body)
    assert list(result.steps) == ["a", "b", "c", "d"]
    assert kit.peak == 3


async def test_a_step_waits_for_just_what_it_needs():
    kit = FakeKit(gate=Gate())

    async def body():
        await kit.gate.wait_for("a", "b")
        await turns()
        assert "c" not in kit.calls
        kit.gate.open("b")
        await kit.gate.wait_for("c")
        assert kit.ended == ["b"]
        kit.gate.open_all()

    result = await at_gate(
        flow(step("a", needs=[]), step("b", needs=[]), step("c", needs=["b"])), kit, body
    )
    assert result.ok


async def test_a_step_without_needs_waits_for_the_step_before_it():
    kit = FakeKit(gate=Gate())

    async def body():
        await kit.gate.wait_for("a")
        await turns()
        assert kit.calls == ["a"]
        kit.gate.open_all()

    assert (await at_gate(flow(step("a", needs=[]), step("b")), kit, body)).ok


async def test_a_step_sees_just_what_it_needs_whoever_ended_before_it():
    kit = FakeKit(gate=Gate())
    see = "{{ steps.a.output.value | default('-') }}{{ steps.b.output.value | default('-') }}"
    steps = [
        step("a", needs=[]),
        step("b", needs=[]),
        step("c", see, needs=["a"]),
        step("d", see, needs=["b", "c"]),
    ]

    async def body():
        await kit.gate.wait_for("a", "b")
        kit.gate.open("b")
        await turns()
        assert kit.ended == ["b"]
        kit.gate.open_all()

    result = await at_gate(flow(*steps), kit, body)
    assert result.steps["c"].output["value"] == "a-"
    assert result.steps["d"].output["value"] == "ab"


async def test_what_stands_in_a_step_is_seen_by_those_who_need_that_step():
    inner = branch(True, [step("x", needs=[]), step("y", needs=["x"])], needs=[])
    see = step("z", "z{{ steps.x.output.value }}{{ steps.y.output.value }}", needs=["if"])
    kit = FakeKit()
    assert (await go(flow(inner, see), kit)).ok
    assert kit.calls[-1] == "zxy"


async def test_side_by_side_the_halt_is_the_first_of_the_list_whoever_failed_first_in_time():
    kit = FakeKit(gate=Gate(), fails={"b": "mine", "d": "faster"})
    workflow = flow(*(step(name, needs=[]) for name in "abcde"), step("f", needs=["d"]))

    async def body():
        await kit.gate.wait_for(*"abcde")
        for who in "dbca":
            kit.gate.open(who)
            await turns()
        kit.gate.open_all()

    result = await at_gate(workflow, kit, body)
    assert told(result)[:2] == ("failed", "ValueError: mine")
    assert list(result.steps) == ["a", "b"]
    assert "e" in kit.cancelled
    assert "f" not in kit.calls


async def test_a_step_that_needs_a_later_one_that_fails_is_not_waited_for():
    kit = FakeKit(fails={"b": "no"})
    async with asyncio.timeout(60):
        result = await go(
            flow(step("a", needs=["b"]), step("b", needs=[]), step("c", needs=[])), kit
        )
    assert told(result)[:2] == ("failed", "ValueError: no")
    assert list(result.steps) == ["b"]


async def test_steps_that_need_later_ones_are_told_in_the_order_of_one_worker():
    kit = FakeKit()
    steps = [
        step("a", needs=["c"]),
        step("b", needs=[]),
        step("c", needs=["d"]),
        step("d", needs=[]),
        step("e"),
    ]
    result = await go(flow(*steps), kit)
    assert list(result.steps) == ["b", "d", "c", "a", "e"]


async def test_an_exception_side_by_side_is_raised_as_it_was_and_stops_the_others():
    boom = LookupError("mine")
    kit = FakeKit(gate=Gate(), raises={"b": boom})
    workflow = flow(*({"id": name, "type": "do", "who": name, "needs": []} for name in "abc"))

    async def body():
        await kit.gate.wait_for(*"abc")
        kit.gate.open("a", "b")

    with pytest.raises(LookupError) as caught:
        await at_gate(workflow, kit, body)
    assert caught.value is boom
    assert kit.cancelled == ["c"]


async def test_side_by_side_steps_are_recorded_and_resumed_like_others():
    store = MemoryStore()
    workflow = flow(step("a", needs=[]), step("b", needs=[]), step("c", needs=["a", "b"]))
    await go(workflow, FakeKit(fails={"b": "no"}), store=store)
    kit = FakeKit()
    assert (await go(workflow, kit, store=store)).ok
    assert sorted(kit.calls) == ["b", "c"]
    assert set(recorded(store)) == {"flow/a", "flow/b", "flow/c"}


async def test_a_list_side_by_side_tells_the_same_however_it_ends():
    steps = [
        step("a", needs=[]),
        step("b", needs=[]),
        step("c", needs=["a"]),
        step("d", needs=["b"]),
    ]
    kit = FakeKit(fails={"c": "no", "b": "nay"})
    expected = told(await go(flow(*steps), kit))
    for order in ("abcd", "bacd", "badc", "abdc"):
        kit = FakeKit(gate=Gate(), fails={"c": "no", "b": "nay"})

        async def body(kit=kit, order=order):
            await kit.gate.wait_for("a", "b")
            for who in order:
                kit.gate.open(who)
                await turns()

        assert told(await at_gate(flow(*steps), kit, body)) == expected


# --- files as steps -----------------------------------------------------------------------------

INNER = """
workflow: {id: inner}
inputs: {x: {type: string, required: true}}
steps:
  - {id: a, type: python, call: "kit:act", with: {who: "in-{{ inputs.x }}"}}
  - {id: g, type: gate, message: well, verdict_input: x}
outputs: {y: {value: "{{ steps.a.output.value }}"}}
"""


def called(tmp_path, x, **more):
    (tmp_path / "inner.yaml").write_text(INNER)
    return {"id": "sub", "type": "workflow", "workflow": "inner.yaml", "input": {"x": x}, **more}


async def test_a_file_as_a_step_gets_its_inputs_gives_its_outputs_and_its_steps_have_longer_ids(
    tmp_path,
):
    kit = FakeKit()
    after = step(
        "after", "{{ steps.sub.output.y }} {{ steps.sub.output.status }} {{ steps.a.output.value }}"
    )
    result = await go(flow(called(tmp_path, "approve"), after, directory=tmp_path), kit)
    assert list(result.steps) == ["sub", "sub:a", "sub:g", "after"]
    assert result.steps["sub"].output == {
        "workflow": "inner",
        "status": "completed",
        "y": "in-approve",
    }
    assert kit.calls == ["in-approve", "in-approve completed "]


@pytest.mark.parametrize(
    ("x", "status", "step_status"), [("reject", "aborted", "failed"), ("", "paused", "paused")]
)
@pytest.mark.parametrize("tolerant", [True, False])
async def test_a_file_as_a_step_halts_as_it_does_itself(tmp_path, x, status, step_status, tolerant):
    tree = called(tmp_path, x, continue_on_error=tolerant)
    result = await go(flow(tree, step("after"), directory=tmp_path), FakeKit())
    assert (result.status, result.steps["sub"].status) == (status, step_status)
    assert result.steps["sub"].output["status"] == status
    assert "sub:g" in result.error


async def test_an_input_that_does_not_fit_the_inner_file_fails_the_step(tmp_path):
    result = await go(flow(called(tmp_path, 5), directory=tmp_path), kit := FakeKit())
    assert result.error == "inner.yaml: the input 'x' must be a text, not 5; put it in quotes"
    assert kit.calls == []


async def test_a_file_as_the_step_of_each_item_keeps_items_apart(tmp_path):
    workflow = flow(
        fan(["approve", "approve", "reject", "approve"], called(tmp_path, "{{ item }}"), width=4),
        directory=tmp_path,
    )
    result = await go(workflow, FakeKit())
    assert (result.status, result.error) == ("aborted", "the gate 'fan:sub:2:g' was rejected")
    assert [name for name in result.steps if name.endswith(":g")] == [
        "fan:sub:0:g",
        "fan:sub:1:g",
        "fan:sub:2:g",
    ]


# --- limits of steps made of steps --------------------------------------------------------------


@pytest.mark.parametrize("kind", ["if", "fan-out", "while", "list"])
async def test_a_composite_that_takes_longer_than_it_may_is_stopped_on_the_clock_of_the_run(kind):
    clock, kit = ManualClock(), FakeKit(gate=Gate())
    inner = {
        "if": branch(True, [step("a")], name="x", timeout=30),
        "fan-out": fan([0, 1], step("a"), name="x", width=1, timeout=30),
        "while": loop(step("a"), name="x", timeout=30),
        "list": branch(True, [step("a", needs=[]), step("b", needs=[])], name="x", timeout=30),
    }[kind]

    async def body():
        await kit.gate.wait_for("a")
        await clock.advance(29)
        assert kit.cancelled == []
        await clock.advance(2)

    result = await at_gate(flow(inner, step("after")), kit, body, clock=clock)
    assert told(result)[:2] == ("failed", "it took longer than 30 seconds")
    assert "a" in kit.cancelled
    assert "after" not in kit.calls


async def test_a_timeout_error_of_somebody_else_is_not_taken_for_the_steps_own():
    mine = TimeoutError("mine")
    tree = branch(True, [{"id": "a", "type": "do"}], timeout=50)
    with pytest.raises(TimeoutError) as caught:
        await go(flow(tree), FakeKit(raises={"a": mine}))
    assert caught.value is mine


async def test_a_step_may_be_called_like_the_scope_of_anothers_budget():
    tree = branch(True, [step("y")], name="x", budget="50req")
    assert (await go(flow(tree, step("x.budget")), FakeKit())).ok


async def test_nothing_is_left_running_after_any_end():
    for fails in ({}, {"a0": "no"}, {"b": "no"}):
        kit = FakeKit(fails=fails)
        await go(
            flow(fan([0, 1, 2], each("a"), width=3, needs=[]), step("b", needs=[]), step("c")), kit
        )
        assert kit.inside == 0
        assert not asyncio.all_tasks() - {asyncio.current_task()}


async def test_every_name_in_an_output_is_one_that_expressions_may_read_without_a_warning():
    steps = [
        {"id": "sh", "type": "shell", "run": "x", "output_format": "json"},
        {"id": "pr", "type": "prompt", "prompt": "p"},
        {"id": "co", "command": "c", "integration": "i", "output_schema": {}},
        gate("ga", on_reject="skip"),
        branch(True, []),
        {"id": "sw", "type": "switch", "expression": "x", "cases": {"x": []}},
        loop(step("b"), kind="do-while", condition="{{ false }}"),
        fan([0], each("a", continue_on_error=True)),
        {"id": "fi", "type": "fan-in", "wait_for": ["sh"]},
        {"id": "sa", "type": "sample", "sample": {"prompt": "p"}},
    ]
    kit = FakeKit(gives={"x": "1", "i /c": "{}"}, fails={"a0": "no"}, decides={"ga": "reject"})
    result = await go(flow(*steps), kit)
    assert result.ok
    known = {
        name: KINDS_OUTPUTS[record.type]
        for name, record in result.steps.items()
        if record.type in KINDS_OUTPUTS
    }
    assert len(known) == len(steps)
    assert [name for name, names in known.items() if result.steps[name].output.keys() - names] == []
