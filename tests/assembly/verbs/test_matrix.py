"""`abreast.matrix` and its blocking twin: studies from Python, in a store, resumed."""

import asyncio
import json
import threading
from html import escape
from pathlib import Path

import pandas as pd
import pytest
from pydantic import BaseModel

import abreast
import abreast.sync
from abreast import checks
from abreast.core.errors import BudgetSpent, WorkflowInvalid
from abreast.models.port import Reply
from abreast.models.scripted import Scripted
from tests.turns import turns

CAPITALS = {"France": "Paris", "Italy": "Rome", "Japan": "Tokyo"}
ROWS = [{"id": name[:2], "country": name, "truth": truth} for name, truth in CAPITALS.items()]
PLAIN = "The capital of {{ input.country }}?"


def knowing(name="fake/one"):
    """A model that knows the capitals, whatever the question."""

    def answer(request):
        asked = request.messages[-1].content
        return next((truth for country, truth in CAPITALS.items() if country in asked), "?")

    return Scripted(answer, name=name)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A directory of its own, so that no abreast.toml above it counts."""
    monkeypatch.chdir(tmp_path)
    Path("abreast.toml").touch()
    return tmp_path


async def test_prompts_functions_and_every_kind_of_score_give_one_row_for_each_cell(here):
    threads = set()

    async def steps(row, model):
        draft = await model.ask(f"First, {row['country']}", step="draft")
        reply = await model.reply(f"Again, {row['country']}: {draft}", step="again")
        return reply.text

    def plain(row, model):
        threads.add(threading.current_thread())
        return model.reply(f"{row['country']}, please").text + model.ask(row["country"])[:0]

    def close(row):
        return row["output"].lower() == row["truth"].lower()

    async def half(row):
        return len(row["input"]["country"]) * 0 + 0.5

    result = await abreast.matrix(
        models=[knowing()],
        strategies={"prompt": PLAIN, "steps": steps, "plain": plain, "mapped": {"prompt": PLAIN}},
        inputs=pd.DataFrame(ROWS),
        scores=[
            "exact",
            {"contains": "o", "name": "has-o"},
            close,
            half,
            {"python": lambda row: 1, "name": "all"},
            checks.words(most=1),
            checks.check(lambda text: text.isupper(), "loud"),
        ],
        repeats=2,
        controls=["empty", "truth"],
        name="capitals",
    )

    assert (result.cells, result.done, result.failed) == (4 * 3 * 2 + 2 * 3 * 2, 36, 0)
    assert (result.fresh, result.usage.requests, result.run_id) == (
        24,
        6 + 12 + 12 + 6,
        "capitals-1",
    )
    assert threading.main_thread() not in threads != set()
    assert result.scores["fake/one", "steps"] == {
        "all": 1.0,
        "at most 1 words": 1.0,
        "close": 1.0,
        "exact": 1.0,
        "half": 0.5,
        "has-o": 2 / 3,
        "loud": 0.0,
    }
    frame = pd.DataFrame(result.rows())
    assert (len(frame), set(frame["state"])) == (36, {"done"})
    arms = frame[~frame["control"]]
    assert arms.groupby("strategy")["score_exact"].mean().to_dict() == dict.fromkeys(
        ("mapped", "plain", "prompt", "steps"), 1.0
    )
    assert repr(result) == "<StudyResult capitals-1: 36 of 36 cells done>"


async def test_a_second_call_pays_nothing_and_an_edit_pays_for_its_cells_alone(here):
    model = knowing()

    def loud(row, one):
        return one.ask(f"{row['country']}!").upper()

    def study(**changes):
        given = {"plain": PLAIN, "loud": loud, **changes}
        return abreast.matrix(models=[model], strategies=given, inputs=ROWS, store="runs.db")

    first = await study()
    assert (first.fresh, len(model.calls)) == (6, 6)
    again = await study()
    assert (again.fresh, again.run_id, len(model.calls)) == (0, first.run_id, 6)

    edited = await study(plain="Say the capital of {{ input.country }}.")
    assert (edited.fresh, len(model.calls)) == (3, 9)
    quiet = await study(loud=lambda row, one: one.ask(f"{row['country']}!"))
    assert (quiet.fresh, {row["output"] for row in quiet.rows()}) == (6, set(CAPITALS.values()))

    fresh = await abreast.matrix(
        models=[model], strategies={"plain": PLAIN}, inputs=ROWS, store="runs.db", resume=False
    )
    assert (fresh.run_id, fresh.fresh, fresh.cells) == ("study-2", 3, 3)


async def test_a_budget_ends_it_and_a_larger_one_goes_on(here):
    model = knowing()
    study = {"models": [model], "strategies": {"a": PLAIN}, "inputs": ROWS, "store": "runs.db"}
    with pytest.raises(BudgetSpent):
        await abreast.matrix(**study, budget="2req", width=1)
    assert len(model.calls) == 2
    result = await abreast.matrix(**study, budget="3req")
    assert (result.done, result.fresh, len(model.calls)) == (3, 1, 3)


async def test_failed_cells_are_rows_and_run_again_if_asked_to(here):
    broken = {"now": True}

    def strategy(row, model):
        if broken["now"] and row["country"] == "Italy":
            raise OSError("no answer")
        return model.ask(row["country"])

    study = {
        "models": [knowing()],
        "strategies": {"s": strategy},
        "inputs": ROWS,
        "scores": ["exact"],
        "store": "runs.db",
    }
    result = await abreast.matrix(**study)
    assert (result.done, result.failed, result.scores["fake/one", "s"]["exact"]) == (2, 1, 2 / 3)
    failed = [row for row in result.rows() if row["state"] == "failed"]
    assert [(row["error"], row["error_type"]) for row in failed] == [("no answer", "OSError")]

    broken["now"] = False
    assert (await abreast.matrix(**study)).failed == 1
    result = await abreast.matrix(**study, rerun_failed=True)
    assert (result.done, result.failed, result.fresh) == (3, 0, 1)


async def test_within_a_run_its_cells_are_beneath_it_and_not_paid_again(here):
    model = knowing()

    async def both(run):
        first = await abreast.matrix(
            models=[model], strategies={"a": PLAIN}, inputs=ROWS[:2], run=run, name="first"
        )

        async def inner(rows):
            found = await abreast.matrix(
                models=[model], strategies={"b": PLAIN}, inputs=rows, scores=["exact"]
            )
            return found.done

        async for outcome in run.map(inner, [ROWS, ROWS[1:]], width=2):
            assert outcome.ok, outcome.error
        return first

    for resumed in (False, True):
        async with abreast.open_run("outer", store="runs.db") as run:
            result = await both(run)
            assert (run.resumed, len(model.calls)) == (resumed, 2 + 5)
            assert (result.done, result.run_id, len(result.rows())) == (2, "outer-1", 2)
            assert (result.usage.requests, result.fresh) == (2, 0 if resumed else 2)
            run.halt("so that it is resumed")
    with pytest.raises(TypeError, match="are the run's own"):
        async with abreast.open_run("other", store="runs.db") as run:
            await abreast.matrix(
                models=[model], strategies={"a": PLAIN}, inputs=ROWS, run=run, store="x.db"
            )
    with pytest.raises(ValueError, match="recorded in a store, and memory has none"):
        async with abreast.open_run("memory") as run:
            await abreast.matrix(models=[model], strategies={"a": PLAIN}, inputs=ROWS, run=run)


class HeldModel:
    """A model whose calls wait until three are under way, and for a while longer."""

    name = "fake/held"

    def __init__(self):
        self.now = self.peak = 0
        self.full = asyncio.Event()

    async def complete(self, request, hear=None):
        self.now += 1
        self.peak = max(self.peak, self.now)
        if self.now == 3:
            self.full.set()
        await self.full.wait()
        await turns()
        self.now -= 1
        return Reply("x")

    async def close(self):
        raise AssertionError("a model that was given open stays open")


class Capital(BaseModel):
    """A reply by a schema."""

    name: str


async def test_open_models_schemas_of_pydantic_and_judges_work_in_a_study(here):
    judge = Scripted(lambda request: "yes" if '"Rome"' in request.messages[-1].content else "no")
    Path("replies.jsonl").write_text(  # noqa: ASYNC240 - a line, for the test
        "\n".join(
            json.dumps({"prompt": row["country"], "reply": json.dumps({"name": row["truth"]})})
            for row in ROWS
        ),
        "utf-8",
    )
    async with abreast.open_model("scripted/replies.jsonl") as model:
        result = await abreast.matrix(
            models=[model],
            strategies={"s": {"prompt": "{{ input.country }}", "schema": Capital}},
            inputs=[{**row, "truth": {"name": row["truth"]}} for row in ROWS],
            scores=["exact", checks.judged("names Rome", judge)],
        )
        assert (await model.ask("Italy")).text == '{"name": "Rome"}'
    assert result.scores["scripted/replies.jsonl", "s"] == {
        "exact": 1.0,
        "judged: names Rome": 1 / 3,
    }
    assert (len(judge.calls), result.usage.requests) == (3, 6)


async def test_as_many_calls_as_the_width_are_under_way_for_a_model_that_is_open(here):
    model = HeldModel()
    study = {"models": [model], "strategies": {"a": PLAIN}, "inputs": ROWS, "repeats": 6}
    result = await abreast.matrix(**study, width=3)
    assert (result.done, model.peak) == (18, 3)


def test_the_blocking_twin_gives_the_same_also_inside_a_running_loop(here):
    async def inside():
        return abreast.sync.matrix(
            models=[knowing()], strategies={"a": PLAIN}, inputs=ROWS, scores=["exact"]
        )

    for result in (
        asyncio.run(inside()),
        abreast.sync.matrix(
            models=[knowing()], strategies={"a": PLAIN}, inputs=ROWS, scores=["exact"]
        ),
    ):
        assert (result.done, result.scores) == (3, {("fake/one", "a"): {"exact": 1.0}})


async def test_the_table_of_a_notebook_is_escaped(here):
    nasty = "<script>alert(1)</script>"
    result = await abreast.matrix(
        models=[knowing(f"fake/{nasty}")],
        strategies={"<b>": PLAIN},
        inputs=ROWS,
        scores=[{"contains": "o", "name": "<i>"}],
    )
    table = result._repr_html_()
    assert table.count("<td>") == 5
    assert f"<td>fake/{escape(nasty)}</td><td>&lt;b&gt;</td><td>3</td><td>0</td><td>0.667</td>" in (
        table
    )
    assert ("<script" in table, "<i>" in table) == (False, False)


async def test_what_is_wrong_is_a_sentence_and_nothing_is_asked_or_written(here):
    model = knowing()
    good = {"models": [model], "strategies": {"a": PLAIN}, "inputs": ROWS, "store": "runs.db"}
    for changes, kind, why in (
        ({"models": []}, ValueError, "'models' of the matrix must be a list of models"),
        ({"models": "local/x"}, TypeError, "models must be a list of models, not str"),
        ({"models": ["x"]}, ValueError, "a model is named provider/model"),
        ({"strategies": {"a": 3}}, ValueError, "the strategy 'a' must be a prompt's file"),
        ({"strategies": {"a": "{{ input.lost }}"}}, ValueError, "no input has the field of"),
        ({"inputs": []}, ValueError, "there are no inputs"),
        ({"inputs": "lost.csv"}, ValueError, "inputs: there is no file lost.csv"),
        ({"inputs": [{"a": object()}]}, ValueError, r"inputs\[0\]\['a'\] is of the type object"),
        ({"inputs": [{"id": 1}, {"id": 1}]}, ValueError, "two inputs are called '1'"),
        ({"scores": ["exakt"]}, ValueError, "there is no score 'exakt'; did you mean exact"),
        ({"scores": [len, len]}, ValueError, "two scores are called 'len'"),
        ({"repeats": 0}, ValueError, "'repeats' of the matrix must be a whole number"),
        ({"controls": ["none"]}, ValueError, "a control is one of empty, echo, truth"),
        ({"width": 0}, ValueError, "width must be a whole number of at least 1, not 0"),
        ({"width": {"lost": 1}}, ValueError, "width: there is no lane 'lost'; there are"),
        ({"strategies": None}, TypeError, "a study without a file needs strategies"),
        ({"file": "a.yaml"}, TypeError, "a.yaml has the models, strategies, inputs already"),
        ({"budget": "much"}, ValueError, "much"),
    ):
        with pytest.raises(kind, match=why):
            await abreast.matrix(**{**good, **changes})
    assert model.calls == []
    assert not list(here.glob("runs.db"))


def test_a_file_that_is_wrong_is_told_with_its_line(here):
    Path("bad.yaml").write_text("matrix: {models: [x]}\n", "utf-8")
    with pytest.raises(WorkflowInvalid, match=r"bad\.yaml:1: a model is named"):
        abreast.sync.matrix("bad.yaml")


async def test_arms_that_cannot_run_are_warned_of_and_the_rest_runs(here, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    study = {"strategies": {"a": PLAIN}, "inputs": ROWS}
    with pytest.warns(UserWarning, match="can't run: openai/x x a: no key for openai"):
        result = await abreast.matrix(models=[knowing(), "openai/x"], **study)
    assert (result.done, list(result.unavailable)) == (3, [("openai/x", "a")])
    with pytest.raises(ValueError, match="no cell of the study can run"):
        await abreast.matrix(models=["openai/x"], **study)
