"""The view of a workflow: the state of each step, and the open gates with their questions."""

import json

import pytest

from abreast.testing import Gate, MemoryStore
from abreast.web.store_reader import JobViewReader
from tests.jobs.workflow.kits import FakeKit, at_gate, each, fan, flow, gate, go, step
from tests.turns import turns
from tests.web.jobs.viewing import HOSTILE, Hand, settled, viewed

KIND = {"kind": "workflow"}


def every(view):
    """All steps by their keys."""
    found = {}

    def walk(steps):
        for one in steps:
            found[one["key"]] = one
            for held in one["beneath"]:
                walk(held["steps"])

    walk(view["steps"])
    return found


def states(view):
    return {key: one["state"] for key, one in every(view).items()}


async def test_a_gate_waits_with_its_message_and_is_gone_once_it_is_decided():
    store, told = MemoryStore(), JobViewReader("workflow")
    made = flow(
        step("read"), gate("look", message="Write {{ steps.read.output.value }}?"), step("write")
    )
    await go(made, FakeKit(), store=store, **KIND)
    view = viewed(store, "flow-1", told)
    assert (view["state"], view["decidable"]) == ("paused", True)
    assert states(view) == {"read": "done", "look": "waiting", "write": "pending"}
    assert [
        (one["gate"], one["message"], one["options"], one["on_reject"]) for one in view["gates"]
    ] == [("look", "Write read?", ["approve", "reject"], "abort")]
    await go(made, FakeKit(), store=store, verdicts={"look": "approve"}, **KIND)
    view = viewed(store, "flow-1", told)
    assert (view["gates"], view["state"]) == ([], "done")
    assert states(view) == {"read": "done", "look": "done", "write": "done"}
    assert view == viewed(store, "flow-1")


async def test_a_rejected_gate_ends_the_run_or_is_asked_again():
    for on_reject, state, waiting in (("abort", "failed", []), ("retry", "waiting", ["look"])):
        store = MemoryStore()
        made = flow(gate("look", on_reject=on_reject), step("write"))
        await go(made, FakeKit(), store=store, **KIND)
        await go(made, FakeKit(), store=store, verdicts={"look": "reject"}, **KIND)
        view = viewed(store, "flow-1")
        assert (states(view)["look"], [one["gate"] for one in view["gates"]]) == (state, waiting)
        assert states(view)["write"] == "pending"


async def test_a_gate_that_is_decided_where_it_was_asked_waits_no_more():
    store, held, told = MemoryStore(), Gate(), JobViewReader("workflow")
    kit = FakeKit(held, decides={"look": "approve"})

    async def body():
        await held.wait_for("after")
        while states(view := viewed(store, "flow-1", told)).get("look") != "done":
            await turns(1)
        assert (view["gates"], view["decidable"]) == ([], False)
        held.open_all()

    await at_gate(flow(gate("look"), step("after")), kit, body, store=store, **KIND)


def test_what_the_next_driver_does_not_ask_is_no_longer_asked():
    store = MemoryStore()
    hand = Hand(store, "workflow", "flow")
    hand.write(
        ("workflow-outlined", "flow", {}, '[{"id": "look", "type": "gate"}]'),
        ("gate-asked", "flow/look", {"gate": "look"}, '{"message": "well?"}'),
    )
    assert [one["gate"] for one in viewed(store, hand.id)["gates"]] == ["look"]
    hand.write(("run-resumed", "flow", {}, None))
    assert viewed(store, hand.id)["gates"] == []


async def test_gates_of_items_go_by_their_full_names():
    store = MemoryStore()
    await go(flow(fan(["a", "b"], gate("ok"), width=2)), FakeKit(), store=store, **KIND)
    view = viewed(store, "flow-1")
    assert {one["gate"] for one in view["gates"]} <= {"fan:ok:0", "fan:ok:1"}
    assert view["gates"][0]["gate"] == "fan:ok:0"
    assert states(view) == {"fan": "waiting", "fan//ok": "waiting"}


async def test_a_fan_out_tells_its_progress_while_it_runs():
    store, held, told = MemoryStore(), Gate(), JobViewReader("workflow")
    kit = FakeKit(held)

    async def body():
        await held.wait_for("do0", "do1")
        while (
            not (one := every(viewed(store, "flow-1", told)).get("fan"))
            or one["state"] != "running"
        ):
            await turns(1)  # until it is committed
        assert (one["items"], one["counts"]) == (3, {})
        held.open("do0", "do1")
        await held.wait_for("do2")
        while (one := every(viewed(store, "flow-1", told))["fan"])["counts"] != {"done": 2}:
            await turns(1)
        assert (one["state"], one["items"]) == ("running", 3)
        held.open_all()

    await at_gate(flow(fan([0, 1, 2], each("do"), width=2)), kit, body, store=store, **KIND)
    view = viewed(store, "flow-1", told)
    assert every(view)["fan"]["counts"] == every(view)["fan//do"]["counts"] == {"done": 3}
    assert states(view) == {"fan": "done", "fan//do": "done"}


async def test_several_steps_of_items_loops_branches_and_needs_are_each_found():
    store = MemoryStore()
    made = flow(
        step("first", needs=[]),
        step("beside", needs=[]),
        {
            "id": "choose",
            "type": "if",
            "condition": True,
            "then": [step("yes")],
            "else": [step("no")],
            "needs": ["first"],
        },
        fan([1, 2], each("a"), each("b"), name="many", needs=["choose"]),
        {
            "id": "again",
            "type": "while",
            "condition": True,
            "max_iterations": 2,
            "steps": [step("turn")],
            "needs": ["many"],
        },
        step("poor", budget="5req", needs=["again"]),
    )
    await go(made, FakeKit(), store=store, **KIND)
    view = viewed(store, "flow-1")
    assert states(view) == {
        "first": "done",
        "beside": "done",
        "choose": "done",
        "choose/then/yes": "done",
        "choose/else/no": "skipped",
        "many": "done",
        "many//a": "done",
        "many//b": "done",
        "again": "done",
        "again//turn": "done",
        "poor": "done",
    }
    found = every(view)
    assert (found["many"]["counts"], found["many//b"]["counts"]) == ({"done": 2}, {"done": 2})
    assert found["again//turn"]["counts"] == {"done": 2}
    assert (found["first"]["needs"], found["many"]["needs"]) == ([], ["choose"])


async def test_what_failed_says_why_and_is_done_after_it_was_tried_again():
    store, told = MemoryStore(), JobViewReader("workflow")
    made = flow(step("good"), step("bad"), step("after"))
    await go(made, FakeKit(fails={"bad": HOSTILE[:40]}), store=store, **KIND)
    view = viewed(store, "flow-1", told)
    assert states(view) == {"good": "done", "bad": "failed", "after": "pending"}
    assert "<script>" in every(view)["bad"]["said"]
    await go(made, FakeKit(), store=store, **KIND)
    assert states(viewed(store, "flow-1", told)) == {"good": "done", "bad": "done", "after": "done"}


async def test_a_called_workflow_is_drawn_with_its_steps(tmp_path):
    (tmp_path / "inner.yaml").write_text(
        "workflow: {id: inner}\n"
        "steps: [{id: read, type: python, call: 'kit:act', with: {who: deep}}]\n"
    )
    store = MemoryStore()
    made = flow(
        step("read"),
        {"id": "sub", "type": "workflow", "workflow": "inner.yaml"},
        directory=tmp_path,
    )
    await go(made, FakeKit(fails={"deep": "no"}), store=store, **KIND)
    assert states(viewed(store, "flow-1")) == {
        "read": "done",
        "sub": "failed",
        "sub//read": "failed",
    }


def test_many_steps_items_and_gates_are_cut_and_counted():
    store = MemoryStore()
    hand = Hand(store, "workflow", "flow")
    outline = [{"id": f"s{n}", "type": "shell", "needs": None, "beneath": []} for n in range(1000)]
    fan_out = {
        "id": "fan",
        "type": "fan-out",
        "needs": None,
        "beneath": [["", [{"id": "g", "type": "gate"}]]],
    }
    hand.write(("workflow-outlined", "flow", {}, json.dumps([fan_out, *outline])))
    hand.write(("fan-out-started", "flow/fan", {"items": 30_000, "width": 8}, None))
    asked = json.dumps(
        {"message": "m" * 100_000, "options": ["approve"] * 1000, "on_reject": "abort"}
    )
    hand.write(
        *(("gate-asked", f"flow/fan/{n:04}", {"gate": f"fan:g:{n}"}, asked) for n in range(30))
    )
    body = '{"type": "gate", "output": {"choice": "approve"}}'
    hand.write(*(settled(f"flow/fan/{n:04}", body) for n in range(30, 20_030)))
    hand.end("paused")
    view = viewed(store, hand.id)
    assert (len(view["gates"]), view["more_gates"], len(view["gates"][0]["message"])) == (
        20,
        10,
        20_000,
    )
    assert view["cut"] == "shown: 300 of 1,002 steps"
    one = every(view)["fan"]
    assert (one["items"], one["counts"], one["state"]) == (30_000, {"done": 20_000}, "waiting")


@pytest.mark.parametrize(
    "body", ["null", "[5, {}]", '[{"id": 1, "beneath": [[], ["x"], 5]}]', '{"~": "gone"}', "{"]
)
def test_a_damaged_outline_is_an_empty_graph(body):
    store = MemoryStore()
    hand = Hand(store, "workflow", "flow")
    hand.write(("workflow-outlined", "flow", {}, body), ("gate-asked", "flow/x", {}, "{"))
    assert isinstance(viewed(store, hand.id)["steps"], list)


async def test_budgets_of_lists_and_workflows_within_other_jobs_are_no_steps_of_their_own():
    store = MemoryStore()
    inner = {
        "id": "many",
        "type": "while",
        "condition": True,
        "max_iterations": 1,
        "steps": [step("turn")],
    }
    await go(flow({**inner, "budget": "9req"}), FakeKit(), store=store, **KIND)
    view = viewed(store, "flow-1")
    assert states(view) == {"many": "done", "many//turn": "done"}
    hand = Hand(store, "workflow", "flow")
    hand.write(
        ("workflow-outlined", "flow/cell/reply", {}, '[{"id": "x", "type": "shell"}]'),
        settled("flow", "{}"),
        settled("flow/unknown", "{}"),
        settled("flow/many/0000/unknown", "{}"),
    )
    assert viewed(store, hand.id)["steps"] == []


def test_what_is_unknown_in_a_called_workflow_and_what_was_cancelled():
    store = MemoryStore()
    hand = Hand(store, "workflow", "flow")
    outline = [
        {"id": "sub", "type": "workflow", "beneath": [["", [{"id": "in", "type": "shell"}]]]},
        {"id": "fan", "type": "fan-out", "beneath": [["", [{"id": "p", "type": "shell"}]]]},
    ]
    hand.write(
        ("workflow-outlined", "flow", {}, json.dumps(outline)),
        settled("flow/sub/gone", "{}"),
        ("fan-out-started", "flow/fan", {"items": 2}, None),
        settled("flow/fan/0000", '{"output": {"text": "x"}}'),
        settled("flow/sub/in", None, state="cancelled", reason="enough"),
    )
    view = viewed(store, hand.id)
    assert states(view) == {
        "sub": "cancelled",
        "sub//in": "cancelled",
        "fan": "running",
        "fan//p": "done",
    }
    assert every(view)["sub//in"]["said"] == "enough"


async def test_a_failure_that_was_lived_with_is_told_so_once_the_run_is_done():
    store = MemoryStore()
    made = flow(
        fan([1, 2], each("do"), max_failures=1), step("bad", continue_on_error=True), step("after")
    )
    await go(made, FakeKit(fails={"do2": "no", "bad": "no"}), store=store, **KIND)
    view = viewed(store, "flow-1")
    assert (view["state"], states(view)) == (
        "done",
        {"fan": "tolerated", "fan//do": "tolerated", "bad": "tolerated", "after": "done"},
    )
    assert every(view)["fan"]["counts"] == {"done": 1, "failed": 1}
