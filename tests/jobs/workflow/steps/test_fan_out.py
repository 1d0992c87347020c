"""Fan-out: every rule of its contract, at width one and wider, with adverse completion orders."""

from __future__ import annotations

import ast
import asyncio
import doctest
import inspect

import pytest

import abreast
from abreast.jobs.workflow.spec import FanOut
from abreast.jobs.workflow.steps import actions as leaves
from abreast.jobs.workflow.steps import values as resolved
from abreast.jobs.workflow.steps.values import as_width
from abreast.jobs.workflow.tools import CustomKind
from abreast.testing import Gate, MemoryStore
from tests.jobs.workflow.kits import (
    FakeKit,
    at_gate,
    each,
    fan,
    flow,
    gate,
    go,
    photograph,
    recorded,
    statuses,
    step,
    told,
)
from tests.turns import turns

IN = {"id": "in", "type": "fan-in", "wait_for": ["fan"], "output": {"all": "{{ fan_in.results }}"}}


def results(result, name="fan"):
    return [one.get("value", one) for one in result.steps[name].output["results"]]


async def forced(workflow, kit, order, inside, **options):
    """Run it with these steps inside at once, and let them end one by one in that order."""

    async def body():
        await kit.gate.wait_for(*inside)
        for who in order:
            kit.gate.open(who)
            await turns()
        kit.gate.open_all()

    return await at_gate(workflow, kit, body, **options)


# --- items --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("text", "a text"),
        (7, "a number"),
        (2.5, "a number"),
        (True, "a boolean"),
        (None, "null"),
        ({}, "a mapping"),
    ],
)
async def test_items_that_are_no_list_fail_naming_the_type_and_the_expression(value, kind):
    kit = FakeKit(gives={"src": {"list": value}})
    result = await go(flow(step("src"), fan("{{ steps.src.output.list }}", each("w"))), kit)
    assert (result.status, statuses(result)) == ("failed", {"src": "completed", "fan": "failed"})
    assert result.error == f"items must be a list, and {{{{ steps.src.output.list }}}} is {kind}"
    output = dict(result.steps["fan"].output)
    assert output.pop("step_template")["id"] == "w"
    assert output == {"items": [], "max_concurrency": 1, "item_count": 0, "results": []}
    assert kit.calls == ["src"]


async def test_a_text_that_looks_like_a_list_is_none():
    result = await go(flow(fan("[1, 2]", each("w"))), FakeKit())
    assert result.error == "items must be a list, and '[1, 2]' is a text"


@pytest.mark.parametrize("width", [1, 4, "abc", None])
async def test_no_items_complete_with_no_results(width):
    result = await go(flow(fan([], each("w"), width=width), IN), FakeKit())
    assert result.ok
    output = dict(result.steps["fan"].output)
    assert output.pop("step_template")["id"] == "w"
    assert output == {"items": [], "max_concurrency": width, "item_count": 0, "results": []}


async def test_more_items_than_are_allowed_fail_before_anything_runs():
    kit = FakeKit()
    kit.max_items = 2
    result = await go(flow(fan([1, 2, 3], each("w"))), kit)
    assert "there are 3 items, and at most 2 are allowed" in result.error
    assert kit.calls == []


# --- width --------------------------------------------------------------------------------------

WIDTHS = [
    (4, 4),
    ("4", 4),
    (4.0, 4),
    (3.9, 3),
    (" 2 ", 2),
    (None, 1),
    ("abc", 1),
    (0, 1),
    (-1, 1),
    (float("inf"), 1),
    (float("nan"), 1),
    ([], 1),
    ("4.0", 1),
    (True, 1),
    (99, 6),
    ("{{ inputs.k }}", 3),
    ("{{ inputs.text }}", 2),
    ("{{ inputs.nothing }}", 1),
    ("{{ 1 + 1 }}", 2),
]


@pytest.mark.parametrize(("said", "workers"), WIDTHS)
async def test_the_width_is_read_by_int_and_both_reached_and_never_passed(said, workers):
    kit = FakeKit(gate=Gate())
    inputs = {"k": {"type": "number"}, "text": {"type": "string"}}
    workflow = flow(fan([0, 1, 2, 3, 4, 5], each("w"), width=said), inputs=inputs)

    async def body():
        await kit.gate.wait_for(*(f"w{index}" for index in range(workers)))
        await turns()
        assert kit.inside == workers
        for index in range(6):
            kit.gate.open(f"w{index}")
            await turns()

    result = await at_gate(workflow, kit, body, inputs={"k": 3, "text": "2"})
    assert result.ok
    assert results(result) == [f"w{index}" for index in range(6)]
    assert kit.peak == workers


async def test_without_a_width_items_run_one_by_one():
    kit = FakeKit(gate=Gate())
    tree = fan([0, 1, 2], each("w"))
    del tree["max_concurrency"]
    result = await forced(flow(tree), kit, ["w0", "w1", "w2"], ["w0"])
    assert result.ok
    assert (kit.peak, kit.calls) == (1, ["w0", "w1", "w2"])
    assert result.steps["fan"].output["max_concurrency"] == 1


async def test_a_slow_first_item_idles_nobody():
    kit = FakeKit(gate=Gate())

    async def body():
        await kit.gate.wait_for("w0", "w1")
        for index in range(1, 6):
            kit.gate.open(f"w{index}")
            await turns()
        assert kit.ended == ["w1", "w2", "w3", "w4", "w5"]
        kit.gate.open("w0")

    result = await at_gate(flow(fan([0, 1, 2, 3, 4, 5], each("w"), width=2)), kit, body)
    assert results(result) == [f"w{index}" for index in range(6)]
    assert kit.peak == 2


# --- order and sameness -------------------------------------------------------------------------

MIXED = [
    flow(fan([0, 1, 2], each("w"), width="{{ inputs.k }}"), IN, inputs={"k": {}}),
    flow(fan([0, 1, 2], each("a"), each("b"), width="{{ inputs.k }}"), IN, inputs={"k": {}}),
    flow(
        fan([0, 1, 2], each("w", continue_on_error=True), width="{{ inputs.k }}"),
        IN,
        inputs={"k": {}},
    ),
    flow(fan([0, 1, 2], each("w"), width="{{ inputs.k }}", max_failures=1), IN, inputs={"k": {}}),
]


def without_width(result):
    status, error, outputs, steps = told(result)
    cleaned = []
    for name, kind, state, fate, output, fault in steps:
        plain = {key: value for key, value in output.items() if key != "max_concurrency"}
        if name == "in":
            plain["results"] = plain["all"] = [
                {**one, "max_concurrency": 0} for one in plain["results"]
            ]
        cleaned.append((name, kind, state, fate, plain, fault))
    return status, error, outputs, cleaned


@pytest.mark.parametrize("workflow", MIXED)
@pytest.mark.parametrize(
    "fails", [{}, {"w1": "no", "b1": "no"}, {"w0": "no", "w2": "nay", "a2": "nay"}]
)
async def test_results_statuses_and_recorded_keys_are_the_same_at_any_width(workflow, fails):
    alone, wide = MemoryStore(), MemoryStore()
    first = await go(workflow, FakeKit(fails=fails), {"k": "1"}, store=alone)
    kit = FakeKit(gate=Gate(), fails=fails)
    names = (
        ["w0", "w1", "w2"] if workflow.steps[0].steps[0].common.id == "w" else ["a0", "a1", "a2"]
    )
    order = [*reversed(names), "b2", "b1", "b0"]
    second = await forced(workflow, kit, order, names, inputs={"k": "3"}, store=wide)
    assert kit.peak == 3
    assert without_width(first) == without_width(second)
    assert recorded(alone).items() <= recorded(wide).items()
    if first.ok:
        assert recorded(alone) == recorded(wide)


async def test_results_are_in_item_order_under_reverse_completion_and_fan_in_reads_by_position():
    kit = FakeKit(gate=Gate())
    names = [f"w{index}" for index in range(5)]
    result = await forced(
        flow(fan([0, 1, 2, 3, 4], each("w"), width=5), IN), kit, names[::-1], names
    )
    assert kit.ended == names[::-1]
    assert results(result) == names
    assert [one["value"] for one in result.steps["in"].output["all"][0]["results"]] == names
    assert list(result.steps) == ["fan", *(f"fan:w:{index}" for index in range(5)), "in"]


async def test_ids_are_parent_template_index_and_compose_when_nested():
    inner = fan(["x", "y"], step("leaf", "{{ item }}"), name="inner", width=2)
    result = await go(flow(fan([0, 1], inner, name="outer", width=2)), FakeKit())
    assert list(result.steps) == [
        "outer",
        "outer:inner:0",
        "outer:inner:0:leaf:0",
        "outer:inner:0:leaf:1",
        "outer:inner:1",
        "outer:inner:1:leaf:0",
        "outer:inner:1:leaf:1",
    ]


async def test_a_template_without_an_id_goes_by_item():
    template = {key: value for key, value in each("w").items() if key != "id"}
    assert list((await go(flow(fan([7], template)), FakeKit())).steps) == ["fan", "fan:item:0"]


async def test_recorded_keys_are_the_ids_of_steps_and_the_positions_of_items():
    store = MemoryStore()
    await go(flow(step("one"), fan([5, 6], each("a"), each("b"), width=2)), FakeKit(), store=store)
    assert set(recorded(store)) == {
        "flow/one",
        "flow/fan/0000",
        "flow/fan/0001",
        "flow/fan/0000/a",
        "flow/fan/0000/b",
        "flow/fan/0001/a",
        "flow/fan/0001/b",
    }


# --- isolation ----------------------------------------------------------------------------------


async def test_an_item_is_seen_by_itself_alone_under_forced_overlap():
    kit = FakeKit(gate=Gate())
    workflow = flow(
        fan([0, 1, 2], each("a"), step("b", "b{{ item }}-{{ steps.a.output.value }}"), width=3)
    )
    result = await forced(workflow, kit, ["a2", "a0", "a1"], ["a0", "a1", "a2"])
    assert results(result) == ["b0-a0", "b1-a1", "b2-a2"]
    assert sorted(kit.calls[3:]) == ["b0-a0", "b1-a1", "b2-a2"]


async def test_a_nested_step_never_reads_a_step_of_the_same_name_elsewhere():
    kit = FakeKit(gate=Gate())
    workflow = flow(
        step("a", "outside"),
        fan(
            [0, 1],
            step("b", "b{{ item }}-{{ steps.a.output.value }}"),
            each("a"),
            step("c", "c{{ item }}-{{ steps.a.output.value }}"),
            width=2,
        ),
        step("d", "d-{{ steps.a.output.value }}"),
    )
    kit.gate.open("outside")
    result = await forced(
        workflow, kit, ["b1-outside", "a1", "b0-outside", "a0"], ["b0-outside", "b1-outside"]
    )
    assert results(result) == ["c0-a0", "c1-a1"]
    assert kit.calls[-1] == "d-outside"


@pytest.mark.parametrize("width", [1, 3])
async def test_items_do_not_see_the_results_of_their_fan_out_grow(width):
    kit = FakeKit()
    await go(
        flow(
            fan(
                [0, 1, 2],
                step("w", "w{{ item }}-{{ steps.fan.output.results | length }}"),
                width=width,
            )
        ),
        kit,
    )
    assert sorted(kit.calls) == ["w0-0", "w1-0", "w2-0"]


@pytest.mark.parametrize("kind", ["python", "do"])
async def test_what_an_item_changes_in_what_it_was_given_is_seen_by_nobody(kind):
    def spoil(given):
        given["shared"]["n"] += 1
        return dict(given["shared"])

    kit = FakeKit(gives={"src": {"n": 0}, **{f"w{index}": spoil for index in range(3)}})
    words = {"who": "w{{ item }}", "shared": "{{ steps.src.output }}"}
    own = {
        "id": "w",
        "type": kind,
        **(words if kind == "do" else {"call": "kit:act", "with": words}),
    }
    result = await go(flow(step("src"), fan([0, 1, 2], own, width=3)), kit)
    assert results(result) == [{"n": 1}] * 3
    assert result.steps["src"].output == {"n": 0}


async def test_what_a_kind_changes_in_the_item_or_the_inputs_is_seen_by_no_other_item():
    class Spoils(FakeKit):
        async def custom(self, kind, config, context):
            await self.act(context.step)
            context.item["seen"].append(context.step)
            context.inputs["k"].append(context.step)
            return {"item": context.item["seen"], "inputs": context.inputs["k"]}

    shared = {"seen": []}
    template = [{"id": "a", "type": "do"}, {"id": "b", "type": "do"}]
    workflow = flow(fan("{{ inputs.all }}", *template, width=3), inputs={"all": {}, "k": {}})
    result = await go(workflow, Spoils(), {"all": [shared] * 3, "k": []})
    for name in ("a", "b"):
        for index in range(3):
            mine = [f"fan:{name}:{index}"]
            assert result.steps[mine[0]].output == {"item": mine, "inputs": mine}
    assert shared == {"seen": []}


async def test_a_kind_is_called_concurrently_each_with_its_own_item_and_id():
    kit = FakeKit(gate=Gate())
    workflow = flow(fan(["x", "y", "z"], {"id": "k", "type": "do"}, width=3))
    names = [f"fan:k:{index}" for index in range(3)]
    result = await forced(workflow, kit, names[::-1], names)
    assert kit.peak == 3
    assert [(one.step, one.item) for one in kit.contexts] == list(zip(names, "xyz", strict=True))
    assert results(result) == names


def test_the_contract_of_a_kind_is_documented_and_the_kinds_that_ship_keep_nothing_between_calls():
    said = " ".join(CustomKind.__doc__.split())
    assert (
        "One object serves all steps of its type, and is called concurrently: it must keep nothing"
        in said
    )
    for shipped in [*leaves._PERFORM.values(), *leaves._CONFIGURE.values()]:
        assert inspect.isfunction(shipped)
        assert not shipped.__closure__
        assert not inspect.getclosurevars(shipped).nonlocals
    changing = (dict, list, set)
    kept = {
        name
        for name, value in vars(leaves).items()
        if isinstance(value, changing) and not name.startswith("__")
    }
    assert kept == {"_PERFORM", "_CONFIGURE"}
    assert list(written_at_module_level(inspect.getsource(leaves))) == []


def written_at_module_level(source):
    """Return what the functions of a module change outside of themselves: names and attributes."""
    tree = ast.parse(source)
    outside = {
        name.id
        for node in tree.body
        for name in ast.walk(node)
        if is_written(name) and in_module(node)
    }
    outside |= {node.name for node in tree.body if hasattr(node, "name")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield from node.names
        elif isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(
            node.ctx, ast.Load
        ):
            owner = node.value
            while isinstance(owner, (ast.Attribute, ast.Subscript)):
                owner = owner.value
            if isinstance(owner, ast.Name) and owner.id in outside:
                yield owner.id


def is_written(node):
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def in_module(node):
    return not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    global last\n    last = 1",
        "def f():\n    f.last = 1",
        "KEPT = {}\nasync def f():\n    KEPT['a'] = 1",
        "KEPT = Kept()\ndef f():\n    KEPT.all['a'].last = 1",
    ],
)
def test_what_a_kind_would_keep_between_calls_is_seen(source):
    assert list(written_at_module_level(source))


def test_the_documentation_of_the_width_says_exactly_what_it_does():
    assert doctest.testmod(resolved).failed == 0
    said = " ".join(as_width.__doc__.split())
    for sentence, values, expected in [
        ('`4`, `"4"`, `" 4 "`, `4.0`, `4.9` are 4', [4, "4", " 4 ", 4.0, 4.9], 4),
        ("`True` is 1", [True], 1),
        (
            'None, "abc", "4.0", 0, -1, infinity, nan, lists and mappings are 1',
            [None, "abc", "4.0", 0, -1, float("inf"), float("nan"), [4], {4: 4}],
            1,
        ),
        ("10**100 is 10,000", [10**100], 10_000),
    ]:
        assert sentence in said
        assert {as_width(value) for value in values} == {expected}


# --- halting ------------------------------------------------------------------------------------


async def test_the_halt_is_the_first_in_item_order_though_another_failed_first_in_time():
    kit = FakeKit(gate=Gate(), fails={"w1": "mine", "w3": "faster"})
    names = [f"w{index}" for index in range(4)]
    workflow = flow(fan([0, 1, 2, 3, 4, 5, 6, 7], each("w"), width=4), step("after"))
    result = await forced(workflow, kit, ["w3", "w2", "w1", "w0"], names)
    assert (result.status, result.error) == ("failed", "ValueError: mine")
    assert results(result) == ["w0", {}]
    assert statuses(result) == {"fan": "failed", "fan:w:0": "completed", "fan:w:1": "failed"}
    assert result.steps["fan"].error == "ValueError: mine"
    assert result.steps["fan"].output["quarantine"] == [{"index": 1, "error": "ValueError: mine"}]


async def test_an_empty_error_is_kept_as_it_is():
    kit = FakeKit(gate=Gate(), fails={"w0": "", "w1": "loud"})
    template = {"id": "w", "type": "do", "who": "w{{ item }}"}
    result = await forced(flow(fan([0, 1], template, width=2)), kit, ["w1", "w0"], ["w0", "w1"])
    assert (result.status, result.error, result.steps["fan"].error) == ("failed", "", "")
    assert list(result.steps) == ["fan", "fan:w:0"]


async def test_after_a_halt_queued_items_never_run_and_running_ones_are_stopped_and_left_out():
    kit = FakeKit(gate=Gate(), fails={"w0": "no"})

    async def body():
        await kit.gate.wait_for("w0", "w1", "w2")
        kit.gate.open("w0")

    result = await at_gate(flow(fan(list(range(9)), each("w"), width=3), step("after")), kit, body)
    assert result.status == "failed"
    assert kit.calls[:3] == ["w0", "w1", "w2"]
    assert set(kit.calls) <= {"w0", "w1", "w2", "w3"}
    assert sorted(kit.cancelled) == sorted(kit.calls[1:])
    assert list(result.steps) == ["fan", "fan:w:0"]
    assert not asyncio.all_tasks() - {asyncio.current_task()}


async def test_one_by_one_nothing_is_called_after_the_item_that_halts():
    kit = FakeKit(fails={"w1": "no"})
    result = await go(flow(fan([0, 1, 2, 3], each("w"))), kit)
    assert kit.calls == ["w0", "w1"]
    assert len(results(result)) == 2


async def test_a_halt_in_nested_steps_is_the_items_own():
    kit = FakeKit(gate=Gate(), fails={"b1": "mine", "a2": "faster"})
    workflow = flow(fan([0, 1, 2], each("a"), each("b"), each("c"), width=3))
    result = await forced(workflow, kit, ["a2", "a1", "b1", "a0", "b0", "c0"], ["a0", "a1", "a2"])
    assert result.error == "ValueError: mine"
    assert list(result.steps) == ["fan", "fan:a:0", "fan:b:0", "fan:c:0", "fan:a:1", "fan:b:1"]
    assert results(result) == ["c0", {}]
    assert "c1" not in kit.calls


async def test_a_halt_in_a_nested_fan_out_is_attributed_to_its_item():
    inner = fan("{{ item }}", step("leaf", "{{ item }}"), name="inner", width=2)
    kit = FakeKit(gate=Gate(), fails={"b1": "mine", "c0": "faster"})
    workflow = flow(fan([["a0", "a1"], ["b0", "b1"], ["c0", "c1"]], inner, name="outer", width=3))
    inside = ["a0", "a1", "b0", "b1", "c0", "c1"]
    result = await forced(workflow, kit, ["c0", "b1", "b0", "a1", "a0"], inside)
    assert (result.status, result.error) == ("failed", "ValueError: mine")
    assert statuses(result) == {
        "outer": "failed",
        "outer:inner:0": "completed",
        "outer:inner:0:leaf:0": "completed",
        "outer:inner:0:leaf:1": "completed",
        "outer:inner:1": "failed",
        "outer:inner:1:leaf:0": "completed",
        "outer:inner:1:leaf:1": "failed",
    }
    assert result.steps["outer:inner:1"].output["results"] == [{"value": "b0"}, {}]


@pytest.mark.parametrize("width", [1, 3])
async def test_tolerated_errors_never_cut_the_results_short(width):
    kit = FakeKit(fails={"w0": "no", "w2": "nay"})
    result = await go(
        flow(fan([0, 1, 2, 3], each("w", continue_on_error=True), width=width), step("after")), kit
    )
    assert result.ok
    assert results(result) == [{}, "w1", {}, "w3"]
    assert statuses(result)["fan:w:2"] == "failed"
    assert [one["index"] for one in result.steps["fan"].output["quarantine"]] == [0, 2]
    assert kit.calls[-1] == "after"


async def test_tolerated_errors_in_nested_steps_go_on_to_the_next_step_of_the_item():
    kit = FakeKit(fails={"a1": "no"})
    result = await go(flow(fan([0, 1], each("a", continue_on_error=True), each("b"), width=2)), kit)
    assert result.ok
    assert results(result) == ["b0", "b1"]
    assert statuses(result)["fan:a:1"] == "failed"


async def test_a_fan_out_whose_own_errors_are_tolerated_halts_itself_but_not_the_workflow():
    kit = FakeKit(fails={"w1": "no"})
    result = await go(flow(fan([0, 1, 2], each("w"), continue_on_error=True), step("after")), kit)
    assert result.ok
    assert statuses(result) == {
        "fan": "failed",
        "fan:w:0": "completed",
        "fan:w:1": "failed",
        "after": "completed",
    }


@pytest.mark.parametrize("more", [{"continue_on_error": True}, {}])
@pytest.mark.parametrize(
    "around", [{}, {"max_failures": 9}, {"min_success": 0.1}, {"continue_on_error": True}]
)
async def test_an_abort_counts_though_errors_are_tolerated(more, around):
    kit = FakeKit(decides={"fan:g:0": "approve", "fan:g:1": "reject", "fan:g:2": "approve"})
    result = await go(
        flow(fan([0, 1, 2], gate("g", **more), width=3, **around), step("after")), kit
    )
    assert (result.status, result.error) == ("aborted", "the gate 'fan:g:1' was rejected")
    assert statuses(result) == {"fan": "failed", "fan:g:0": "completed", "fan:g:1": "failed"}
    assert "after" not in kit.calls


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("nested", [False, True])
async def test_a_gate_that_nobody_answers_pauses_at_its_item_and_the_rest_goes_on_later(
    width, nested
):
    store = MemoryStore()
    inner = [each("a"), gate("g")] if nested else [gate("g")]
    workflow = flow(fan([0, 1, 2], *inner, width=width), step("after"))
    kit = FakeKit(decides={"fan:g:0": "approve"})
    result = await go(workflow, kit, store=store)
    assert (result.status, result.error) == ("paused", "the gate 'fan:g:1' waits for a decision")
    assert [name for name in result.steps if ":g:" in name] == ["fan:g:0", "fan:g:1"]
    assert result.steps["fan"].status == "paused"
    assert [one.get("choice") for one in result.steps["fan"].output["results"]] == ["approve", None]
    again = FakeKit()
    result = await go(
        workflow, again, store=store, verdicts={"fan:g:1": "approve", "fan:g:2": "approve"}
    )
    assert result.ok
    assert "a0" not in again.calls
    assert again.calls[-1] == "after"
    assert again.asked == []


@pytest.mark.parametrize("inner", ["steps", "fan-out", "needs"])
async def test_what_runs_when_a_gate_pauses_ends_and_a_resumed_run_does_not_start_it_again(inner):
    store = MemoryStore()
    kit = FakeKit(gate=Gate())
    ask = gate("g")
    work = {
        "steps": [each("a"), ask],
        "fan-out": [fan(["{{ item }}"], each("a"), name="in"), ask],
        "needs": [gate("g", needs=[]), each("a", needs=[])],
    }[inner]
    workflow = flow(fan(list(range(6)), *work, width=4), step("after"))

    async def body():
        await kit.gate.wait_for("a0", "a1", "a2", "a3")
        if inner != "needs":
            kit.gate.open("a0")
        while "fan:g:0" not in kit.asked:
            await turns(1)
        await turns(200)
        kit.gate.open("a3", "a2", "a1", "a0")

    result = await at_gate(workflow, kit, body, store=store)
    assert (result.status, result.error) == ("paused", "the gate 'fan:g:0' waits for a decision")
    assert kit.cancelled == []
    assert sorted(kit.calls) == ["a0", "a1", "a2", "a3"]  # nothing new starts
    again = FakeKit()
    result = await go(
        workflow, again, store=store, verdicts={f"fan:g:{index}": "approve" for index in range(6)}
    )
    assert result.ok
    assert sorted(again.calls) == ["a4", "a5", "after"]


async def test_a_failure_before_a_pause_in_item_order_halts_though_the_pause_came_first():
    kit = FakeKit(gate=Gate(), fails={"a0": "mine"})
    workflow = flow(fan([0, 1], each("a"), gate("g"), width=2))
    result = await forced(workflow, kit, ["a1", "a0"], ["a0", "a1"])
    assert (result.status, result.error) == ("failed", "ValueError: mine")
    assert list(result.steps) == ["fan", "fan:a:0"]


# --- faults that are no step's ------------------------------------------------------------------


class Boom(Exception):
    pass


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("around", [{}, {"continue_on_error": True, "max_failures": 9}])
async def test_an_exception_that_escapes_cancels_is_raised_as_it_was_and_leaves_what_is_committed(
    nested, around
):
    store, boom = MemoryStore(), Boom("kind")
    kit = FakeKit(gate=Gate(), raises={"w1": boom})
    template = {"id": "w", "type": "do", "who": "w{{ item }}", "continue_on_error": True}
    workflow = flow(
        fan(list(range(9)), *([template, each("z")] if nested else [template]), width=3, **around)
    )
    kit.gate.open("z0")

    async def body():
        await kit.gate.wait_for("w0", "w1", "w2")
        kit.gate.open("w0")
        await turns()
        kit.gate.open("w1")

    with pytest.raises(Boom) as caught:
        await at_gate(workflow, kit, body, store=store)
    assert caught.value is boom
    assert "w2" in kit.cancelled
    assert not {"w5", "w6", "w7", "w8"} & set(kit.calls)
    row = store.newest("flow")
    assert row.state == "failed"
    assert recorded(store)["flow/fan/0000"] == "done"
    assert recorded(store)["flow/fan/0002"] == "cancelled"
    kit = FakeKit()
    assert (await go(workflow, kit, store=store)).ok
    assert "w0" not in kit.calls


# --- thresholds ---------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize(
    ("most", "prefix", "says"),
    [
        ({"max_failures": 0}, 2, "1 of 2 items failed, and at most 0 may"),
        ({"max_failures": 1}, 4, "2 of 4 items failed, and at most 1 may"),
        ({"max_failures": 2}, 6, None),
        ({"min_success": 4}, 6, None),
        ({"min_success": 5}, 4, "2 of 4 items failed, and at most 1 may"),
        ({"min_success": 0.5}, 6, None),
        ({"min_success": 0.7}, 4, "2 of 4 items failed, and at most 1 may"),
        ({"min_success": 0.9}, 2, "1 of 2 items failed, and at most 0 may"),
        ({"min_success": 1, "max_failures": 1}, 4, "2 of 4 items failed, and at most 1 may"),
        ({"min_success": 99}, 2, "1 of 2 items failed, and at most -93 may"),
    ],
)
async def test_thresholds_are_counts_or_parts_and_are_crossed_in_item_order(
    width, most, prefix, says
):
    kit = FakeKit(fails={"w1": "no", "w3": "nay"})
    result = await go(flow(fan([0, 1, 2, 3, 4, 5], each("w"), width=width, **most)), kit)
    assert (result.ok, result.error) == (says is None, says)
    assert len(results(result)) == prefix


async def test_which_item_crossed_the_threshold_is_decided_in_item_order_not_in_time():
    kit = FakeKit(gate=Gate(), fails={"w0": "a", "w1": "b", "w3": "c"})
    names = ["w0", "w1", "w2", "w3"]
    result = await forced(
        flow(fan([0, 1, 2, 3], each("w"), width=4, max_failures=1)), kit, names[::-1], names
    )
    assert result.error == "2 of 2 items failed, and at most 1 may"
    assert list(result.steps) == ["fan", "fan:w:0", "fan:w:1"]
    assert [one["index"] for one in result.steps["fan"].output["quarantine"]] == [0, 1]


HALTS = [
    ({}, ["w1"], "ValueError: no"),
    ({"max_failures": 0}, ["w1"], "1 of 2 items failed, and at most 0 may"),
    ({"max_failures": 1}, ["w2", "w1"], "2 of 3 items failed, and at most 1 may"),
    ({"min_success": 23}, ["w1", "w2"], "2 of 3 items failed, and at most 1 may"),
]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("more", "fails", "says"), HALTS)
async def test_an_item_that_halts_whatever_came_before_it_starts_none_after_it(
    nested, more, fails, says
):
    kit = FakeKit(gate=Gate(), fails=dict.fromkeys(fails, "no"))
    names = [
        f"w{index}" for index in range(3 + len(fails))
    ]  # a failure that is allowed makes room for one more

    async def body():
        await kit.gate.wait_for(*names[:4])
        for name in fails:
            kit.gate.open(name)
            await turns()
        await turns()
        assert kit.gate.held == {"w0"}  # what ran after the last failure is cancelled
        kit.gate.open("w0", "x0")

    template = [each("w"), each("x")] if nested else [each("w")]
    result = await at_gate(flow(fan(list(range(24)), *template, width=4, **more)), kit, body)
    assert [name for name in kit.calls if name.startswith("w")] == names
    assert kit.peak == 4
    assert result.error == says
    assert len(results(result)) == len(fails) + 1


async def test_an_abort_starts_nothing_after_it_while_an_earlier_item_still_runs():
    kit = FakeKit(gate=Gate(), decides={"fan:g:1": "reject"})

    async def body():
        await kit.gate.wait_for("a0", "a1", "a2", "a3")
        kit.gate.open("a1")
        await turns()
        await turns()
        assert kit.gate.held == {"a0"}
        kit.gate.open("a0")

    workflow = flow(fan(list(range(24)), each("a"), gate("g"), width=4, max_failures=20))
    kit.decides["fan:g:0"] = "approve"
    result = await at_gate(workflow, kit, body)
    assert (result.status, result.error) == ("aborted", "the gate 'fan:g:1' was rejected")
    assert kit.calls == ["a0", "a1", "a2", "a3"]


@pytest.mark.parametrize("more", [{}, {"max_failures": 0}])
async def test_a_failure_within_the_canary_is_judged_in_order(more):
    kit = FakeKit(gate=Gate(), fails={"w1": "no"})

    async def body():
        await kit.gate.wait_for("w0", "w1", "w2")
        kit.gate.open("w1")
        await turns()
        assert kit.gate.held == {"w0", "w2"}
        kit.gate.open_all()

    canary = {"items": 3, "min_success": 0.5}
    result = await at_gate(
        flow(fan(list(range(6)), each("w"), width=3, canary=canary, **more)), kit, body
    )
    assert result.ok
    assert len(results(result)) == 6


async def test_tolerated_failures_count_towards_a_threshold():
    kit = FakeKit(fails={"w0": "a", "w1": "b"})
    result = await go(flow(fan([0, 1, 2], each("w", continue_on_error=True), max_failures=1)), kit)
    assert result.error == "2 of 2 items failed, and at most 1 may"


async def test_a_canary_runs_alone_and_when_it_fails_nothing_else_does():
    kit = FakeKit(gate=Gate(), fails={"w0": "no", "w1": "no"})

    async def body():
        await kit.gate.wait_for("w0", "w1", "w2")
        await turns()
        assert kit.calls == ["w0", "w1", "w2"]
        kit.gate.open_all()

    canary = {"items": 3, "min_success": 0.5}
    result = await at_gate(flow(fan(list(range(9)), each("w"), width=5, canary=canary)), kit, body)
    assert result.error == "canary: 1 of the first 3 succeeded, and 50% of them should"
    assert kit.calls == ["w0", "w1", "w2"]
    assert len(results(result)) == 3


async def test_after_a_canary_that_is_good_enough_the_rest_runs_at_full_width():
    kit = FakeKit(gate=Gate(), fails={"w0": "no"})

    async def body():
        await kit.gate.wait_for("w0", "w1")
        kit.gate.open("w0", "w1")
        await kit.gate.wait_for("w2", "w3", "w4", "w5")
        assert kit.inside == 4
        kit.gate.open_all()

    canary = {"items": 2, "min_success": 0.5}
    result = await at_gate(flow(fan(list(range(8)), each("w"), width=4, canary=canary)), kit, body)
    assert result.ok
    assert kit.peak == 4
    assert results(result) == [{}, *(f"w{index}" for index in range(1, 8))]


async def test_a_canary_of_more_items_than_there_are_is_judged_by_those_there_are():
    kit = FakeKit(fails={"w0": "no", "w1": "no"})
    result = await go(flow(fan([0, 1, 2], each("w"), canary={"items": 5, "min_success": 0.8})), kit)
    assert result.error == "canary: 1 of the first 3 succeeded, and 80% of them should"
    assert len(results(result)) == 3


async def test_a_failure_after_the_canary_halts_as_it_would_without():
    kit = FakeKit(fails={"w3": "no"})
    result = await go(flow(fan(list(range(6)), each("w"), width=3, canary={"items": 2})), kit)
    assert result.error == "ValueError: no"
    assert len(results(result)) == 4


# --- keys, quarantine, resume -------------------------------------------------------------------


async def test_an_item_with_a_key_is_known_again_when_the_list_has_changed():
    store = MemoryStore()
    workflow = flow(
        step("src", "{{ inputs.list }}"),
        fan("{{ inputs.list | from_json }}", each("w"), key="{{ item }}", width=2),
        inputs={"list": {}},
    )
    await go(workflow, FakeKit(), {"list": '["x", "y"]'}, store=store)
    kit = FakeKit()
    result = await go(workflow, kit, {"list": '["new", "y", "x"]'}, store=store)
    assert results(result) == ["wnew", "wy", "wx"]
    assert kit.calls[1:] == ["wnew"]
    assert list(result.steps)[-3:] == ["fan:w:0", "fan:w:1", "fan:w:2"]


@pytest.mark.parametrize("store", [None, MemoryStore()])
@pytest.mark.parametrize("width", [1, 3])
async def test_a_key_that_names_two_items_fails_before_anything_runs(store, width):
    kit = FakeKit()
    result = await go(
        flow(fan([1, 2, 3, 1], each("w"), key="{{ item }}", width=width)), kit, store=store
    )
    assert result.error == "the key '1' is there more than once; a key must name one item"
    assert kit.calls == []


async def test_an_empty_key_is_the_position():
    store = MemoryStore()
    items = [{"id": "a"}, {"id": ""}, {}]
    await go(flow(fan(items, step("w", "w"), key="{{ item.id }}")), FakeKit(), store=store)
    assert set(recorded(store)) == {"flow/fan/a", "flow/fan/0001", "flow/fan/0002"}


@pytest.mark.parametrize("width", [1, 3])
async def test_a_resume_runs_only_what_has_no_committed_success(width):
    store = MemoryStore()
    workflow = flow(
        step("src"),
        fan([0, 1, 2, 3], each("w", continue_on_error=True), width=width),
        step("after"),
    )
    first = await go(workflow, FakeKit(fails={"w1": "no", "w3": "no"}), store=store)
    assert [one["index"] for one in first.steps["fan"].output["quarantine"]] == [1, 3]
    kit = FakeKit()
    second = await go(workflow, kit, store=store)
    assert sorted(kit.calls) == ["w1", "w3"]
    assert second.ok
    assert "quarantine" not in second.steps["fan"].output
    assert results(second) == ["w0", "w1", "w2", "w3"]


async def test_a_resume_runs_only_what_has_no_committed_success_in_nested_steps_and_loops_too():
    store = MemoryStore()
    loop = {
        "id": "loop",
        "type": "do-while",
        "condition": "{{ steps.l.output.value != 'stop' }}",
        "max_iterations": 3,
        "steps": [step("l", "l{{ item }}"), each("m")],
    }
    inner = fan(
        ["x", "y"],
        step("leaf", "leaf-{{ item }}-{{ steps.a.output.value }}"),
        name="inner",
        width=2,
    )
    workflow = flow(fan([0, 1], each("a"), loop, inner, each("b"), width=2), step("after"))
    first = await go(workflow, FakeKit(fails={"leaf-y-a1": "no"}), store=store)
    assert first.error == "ValueError: no"
    kit = FakeKit()
    second = await go(workflow, kit, store=store)
    assert second.ok
    assert kit.ran["leaf-y-a1"] == kit.ran["b1"] == kit.ran["after"] == 1
    assert not {"a0", "a1", "l0", "l1", "m0", "m1", "leaf-x-a0", "leaf-x-a1", "b0"} & set(kit.calls)
    assert list(second.steps) == list((await go(workflow, FakeKit())).steps)


@pytest.mark.parametrize("nested", [False, True])
async def test_changed_inputs_run_again_what_reads_them_and_nothing_else(nested):
    store = MemoryStore()
    first, second = step("a", "a{{ item }}-{{ inputs.x }}"), each("b")
    inner = [first, second] if nested else [first]
    workflow = flow(
        fan([0, 1], *inner, width=2), fan([0], each("c"), name="other"), inputs={"x": {}}
    )
    await go(workflow, FakeKit(), {"x": "1"}, store=store)
    kit = FakeKit()
    assert (await go(workflow, kit, {"x": "2"}, store=store)).ok
    assert sorted(kit.calls) == ["a0-2", "a1-2"]


async def test_what_an_earlier_step_gave_counts_as_a_change_for_items_that_read_it():
    store = MemoryStore()
    workflow = flow(
        step("src", "{{ inputs.x }}"),
        fan([0, 1], step("w", "w{{ item }}{{ steps.src.output.value }}"), width=2),
        fan([0], each("c"), name="other"),
        inputs={"x": {}},
    )
    await go(workflow, FakeKit(), {"x": "1"}, store=store)
    kit = FakeKit()
    await go(workflow, kit, {"x": "2"}, store=store)
    assert sorted(kit.calls) == ["2", "w02", "w12"]


async def test_a_resume_tries_again_what_failed_within_an_item_though_it_was_tolerated():
    store = MemoryStore()
    workflow = flow(fan([0, 1], each("a", continue_on_error=True), each("b"), width=2))
    assert (await go(workflow, FakeKit(fails={"a1": "no"}), store=store)).ok
    kit = FakeKit()
    result = await go(workflow, kit, store=store)
    assert kit.calls == ["a1"]
    assert set(statuses(result).values()) == {"completed"}


async def test_a_changed_model_of_the_workflow_counts_as_a_change_for_items_that_ask_one():
    store = MemoryStore()
    workflow = flow(
        fan([0, 1], {"id": "p", "type": "prompt", "prompt": "p{{ item }}"}),
        fan([0], each("w"), name="other"),
        workflow={"id": "test", "model": "{{ inputs.m }}"},
        inputs={"m": {}},
    )
    await go(workflow, FakeKit(), {"m": "one"}, store=store)
    kit = FakeKit()
    await go(workflow, kit, {"m": "two"}, store=store)
    assert kit.calls == ["two p0", "two p1"]


@pytest.mark.parametrize("nested", [False, True])
async def test_once_is_not_repeated_when_nobody_knows_whether_it_was_done(nested):
    store, kit = MemoryStore(), FakeKit(gate=Gate())
    template = [each("w", effect="once"), *([each("z")] if nested else [])]
    workflow = flow(fan([0, 1, 2], *template, width=2, max_failures=5))
    kit.gate.open("z0")
    photos = []

    async def body():
        await kit.gate.wait_for("w0", "w1")
        kit.gate.open("w0")
        await kit.gate.wait_for("w2")
        photos.append(photograph(store))
        kit.gate.open_all()

    await at_gate(workflow, kit, body, store=store)
    again = FakeKit()
    result = await go(workflow, again, store=photos[0])
    assert not {"w0", "w1", "w2"} & set(again.calls)
    assert [statuses(result)[f"fan:w:{index}"] for index in range(3)] == [
        "completed",
        "failed",
        "failed",
    ]
    knowing = FakeKit()
    result = await go(workflow, knowing, store=photos[0], resume="retry")
    assert result.ok
    assert sorted(who for who in knowing.calls if who[0] == "w") == ["w1", "w2"]


# --- what a step says of itself -----------------------------------------------------------------


async def test_lanes_bound_items_of_different_fan_outs_together():
    kit = FakeKit(gate=Gate())
    workflow = flow(
        fan([0, 1, 2], each("a", lane="slow"), name="one", width=3, needs=[]),
        fan([0, 1, 2], each("b", lane="slow"), name="two", width=3, needs=[]),
    )

    async def body():
        await turns(200)
        assert kit.inside == 2
        kit.gate.open_all()

    result = await at_gate(workflow, kit, body, lanes={"slow": abreast.Slots(2)})
    assert result.ok
    assert kit.peak == 2
    assert len(kit.calls) == 6


async def test_the_parents_own_output_is_built_from_what_is_recorded_of_its_items():
    store = MemoryStore()
    workflow = flow(fan([0, 1, 2], each("w"), width=3), IN)
    first = await go(workflow, FakeKit(), store=store)
    kit = FakeKit()
    second = await go(workflow, kit, store=store)
    assert kit.calls == []
    assert results(first) == results(second) == ["w0", "w1", "w2"]
    assert told(first) == told(second)
    assert isinstance(workflow.steps[0], FanOut)
    assert "flow/fan" not in recorded(store)
