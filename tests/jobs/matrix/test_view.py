"""The heatmap of a study: what the report says of means and costs, live, rescored, huge."""

import json

import pytest

from abreast.assembly.names import open_run
from abreast.core.errors import ServerFault
from abreast.jobs.matrix.design.cells import Design
from abreast.jobs.matrix.job import Matrix
from abreast.jobs.matrix.recorded_rows import rows_of
from abreast.jobs.matrix.spec import CellChoice
from abreast.testing import MemoryStore
from abreast.web.store_reader import JobViewReader
from tests.jobs.matrix.benches import FakeBench, simple
from tests.web.jobs.viewing import HOSTILE, Hand, settled, viewed


def answer(prompt):
    """The right answer to the plain prompts, a wrong one to the loud; the last input fails."""
    if prompt.endswith("2"):
        raise ServerFault("no more today")
    return f"T{prompt[-1]}" if prompt.startswith("say") else f"it is t{prompt[-1]}!"


async def studied(store, made, answers, *, choice=None, resume="auto"):
    manifest = {"matrix": {"file": "study.yaml"}, "design": Design.of(made).plain()}
    async with open_run(
        made.name, store=store, kind="matrix", manifest=manifest, resume=resume
    ) as run:
        await Matrix(made, FakeBench(answers), choice or CellChoice(), width=2).run(run)


def arms(view):
    return {(arm["model"], arm["strategy"]): arm for arm in view["arms"]}


async def test_means_are_those_of_the_report_and_failures_count_as_nothing():
    store = MemoryStore()
    made = simple(more="controls: [empty, truth]")
    await studied(store, made, {"a/one": answer, "b/two": answer})
    view = viewed(store, "s-1")
    assert (view["models"], view["strategies"]) == (["a/one", "b/two"], ["plain", "loud"])
    assert (view["scores"], view["inputs"], view["repeats"]) == (["exact", "contains"], 3, 2)
    # The rows of the report; its mean is simple, since the repeats do not differ.
    rows = list(rows_of(store, store.get("s-1")))
    for (model, strategy), arm in arms(view).items():
        for score, mean in arm["means"].items():
            own = [
                row.scores.get(score) or 0.0
                for row in rows
                if (row.model, row.strategy) == (model, strategy)
            ]
            assert mean == pytest.approx(sum(own) / len(own))
    plain = arms(view)["a/one", "plain"]
    assert (plain["n"], plain["failed"], plain["passes"]["exact"]) == (6, 2, 4)
    assert plain["means"]["exact"] == pytest.approx(2 / 3)
    worst = plain["cells"][0]
    assert (worst["input"], "no more today" in worst["error"]) == ("i2", True)
    assert store.recorded("s-1", [worst["path"]])
    assert {one["name"]: one["means"]["exact"] for one in view["controls"]} == {
        "empty": 0.0,
        "truth": 1.0,
    }


def test_the_front_is_who_is_beaten_by_nobody():
    store = MemoryStore()
    hand = Hand(store, "matrix", "s")
    offers = {
        "cheap": (1, 0.2),
        "equal": (1, 0.2),
        "dear": (9, 0.9),
        "beaten": (9, 0.5),
        "best": (4, 0.9),
        "worse": (2, 0.1),
    }
    for name, (tokens, score) in offers.items():
        hand.settle(
            f"s/a/m~{name}~i~0/reply", '{"service_s": 1.0}', input_tokens=tokens, output_tokens=0
        )
        hand.settle(f"s/a/m~{name}~i~0", json.dumps({"scores": {"e": score}}))
    view = viewed(store, hand.id)
    assert {view["arms"][at]["strategy"] for at in view["fronts"]["e"]["tokens"]} == {
        "cheap",
        "equal",
        "best",
    }
    assert view["fronts"]["e"]["usd"] == []  # no arm has a price


def test_repeats_of_an_input_count_as_one():
    store = MemoryStore()
    hand = Hand(store, "matrix", "s")
    for given, repeat, score in (("i", 0, 1.0), ("i", 1, 1.0), ("i", 2, 1.0), ("j", 0, 0.0)):
        hand.settle(f"s/a/m~x~{given}~{repeat}", json.dumps({"scores": {"e": score}}))
    assert viewed(store, hand.id)["arms"][0]["means"]["e"] == 0.5


async def test_a_part_of_a_study_is_shown_and_the_rest_is_read_on():
    store, told, made = MemoryStore(), JobViewReader("matrix"), simple()
    assert_answers = {"a/one": lambda _: "T0", "b/two": lambda _: "T0"}
    await studied(store, made, assert_answers, choice=CellChoice(models=("a/one",)))
    view = viewed(store, "s-1", told)
    assert {model for model, _ in arms(view)} == {"a/one"}
    await studied(store, made, assert_answers, resume="failed")
    view = viewed(store, "s-1", told)
    assert len(arms(view)) == 4
    assert view == viewed(store, "s-1")


async def test_what_is_no_longer_in_the_file_is_left_out_and_said():
    store, made = MemoryStore(), simple()
    await studied(store, made, {"a/one": lambda _: "T0", "b/two": lambda _: "T0"})
    hand = Hand(
        store, "matrix", "s", manifest={"design": {**Design.of(made).plain(), "inputs": ["i0"]}}
    )
    for event in store.events("s-1", limit=10_000):
        hand.write((event.kind, event.path, event.data, event.body))
    view = viewed(store, hand.id)
    assert {arm["n"] for arm in view["arms"]} == {2}
    assert "no longer in the file (input i1, input i2)" in view["left_out"]


def test_a_cell_that_is_scored_anew_keeps_what_it_took():
    store, told = MemoryStore(), JobViewReader("matrix")
    hand = Hand(store, "matrix", "s")
    hand.settle(
        "s/a/m~x~i~0/reply", '{"service_s": 2.5}', input_tokens=10, output_tokens=5, usd=0.25
    )
    hand.settle("s/a/m~x~i~0", '{"scores": {"e": 0.0}}')
    assert viewed(store, hand.id, told)["arms"][0]["means"]["e"] == 0.0
    hand.settle("s/a/m~x~i~0", '{"scores": {"e": 1.0}}')
    arm = viewed(store, hand.id, told)["arms"][0]
    assert (arm["n"], arm["means"]["e"], arm["usd"], arm["tokens"], arm["seconds"]) == (
        1,
        1.0,
        0.25,
        15.0,
        2.5,
    )


def test_a_huge_study_is_bounded():
    store = MemoryStore()
    hand = Hand(store, "matrix", "s")
    scores = json.dumps({"scores": {f"score {n}": 0.5 for n in range(20)}})
    hand.write(
        *(
            settled(
                f"s/lane/model {n % 25}~strategy {n // 25 % 20}~{'input' * 50} {n // 500}~0", scores
            )
            for n in range(10_000)
        )
    )
    view = viewed(store, hand.id)
    assert (len(view["arms"]), len(view["scores"])) == (400, 8)
    assert view["cut"] == "shown: 400 of 500 arms"
    assert sum(arm["n"] for arm in view["arms"]) == 8_000


def test_damaged_cells_and_hostile_names_do_no_harm():
    store = MemoryStore()
    hand = Hand(store, "matrix", "s", manifest={"design": {"models": 5}})
    hand.settle("s/a/no cell at all", "{}")
    hand.settle("s/a/m~x~i~not a number", "{}")
    hand.settle("s/a/m~x~i~0", '{"scores": {"e": "high", "f": NaN, "g": true}}', usd="dear")
    hand.settle("s/a/m~x~i~1", "{", state="failed")
    hand.settle(f"s/a/{HOSTILE[:40].replace('/', '%2F')}~x~i~0", '{"scores": {"e": 1.0}}')
    view = viewed(store, hand.id)
    first = next(arm for arm in view["arms"] if arm["model"] == "m")
    assert (first["n"], first["failed"], first["means"]) == (2, 1, {"e": 0.0, "f": 0.0, "g": 0.0})
    assert any("<script>" in arm["model"] for arm in view["arms"])


def test_the_newest_drivers_file_decides_what_is_shown():
    store, told = MemoryStore(), JobViewReader("matrix")
    hand = Hand(store, "matrix", "s")
    for given in ("i", "j"):
        hand.settle(f"s/a/m~x~{given}~0", '{"scores": {"e": 1.0}}')
    assert viewed(store, hand.id, told)["arms"][0]["n"] == 2
    design = {"models": ["m"], "strategies": ["x"], "controls": [], "inputs": ["j"], "repeats": 1}
    hand.write(("study-given", "s", {}, json.dumps({"design": design})))
    view = viewed(store, hand.id, told)
    assert (view["arms"][0]["n"], view["inputs"]) == (1, 1)
    assert view["left_out"] == "1 recorded cell is no longer in the file (input i)"
