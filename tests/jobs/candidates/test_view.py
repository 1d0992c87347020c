"""The view of candidates: verdicts as in the result; runs under way, repaired, huge, damaged."""

import asyncio
import json

import pytest

from abreast.assembly.names import open_run
from abreast.jobs.candidates.job import EvaluationOptions
from abreast.jobs.candidates.results import best_of
from abreast.testing import Gate, MemoryStore
from abreast.web.store_reader import JobViewReader
from tests.jobs.candidates.laboratories import (
    ORIGINAL,
    TARGET,
    Author,
    FakeEvaluator,
    make_project,
    proposals,
    proposing,
    text_of,
    trials,
)
from tests.turns import turns
from tests.web.jobs.viewing import HOSTILE, Hand, viewed
from tests.worktrees.repositories import ENVIRONMENT

FACTS = {"candidates": {"target": str(TARGET), "original": ORIGINAL, "spec": {"threshold": 0.02}}}


@pytest.fixture
def project(tmp_path, monkeypatch):
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, ENVIRONMENT[name])
    monkeypatch.setenv("ABREAST_CACHE", str(tmp_path / "cache"))
    return make_project(tmp_path / "project")


async def tried(store, project, found, evaluator=None, author=None):
    async with open_run("optimize", store=store, seed=7, kind="candidates", manifest=FACTS) as run:
        return await trials(
            project, evaluator or FakeEvaluator(), EvaluationOptions(2), author
        ).run(run, proposing(found))


def by_name(view):
    return {one["name"]: one for one in view["candidates"]}


async def test_verdicts_intervals_and_the_winner_are_the_results_own(project):
    store = MemoryStore()
    found = proposals(
        "fast2 a", "wrong b", "same c", "hang d", "raise e", "fast3 f", "fast2 a", "break g"
    )
    result = await tried(store, project, found)
    view = viewed(store, "optimize-1")
    assert [(one["name"], one["verdict"]) for one in view["candidates"]] == [
        (one.name, one.verdict) for one in result
    ]
    assert view["winner"] == best_of(result).name == "c5"
    winner = by_name(view)["c5"]
    assert (winner["ratio"], winner["low"], winner["high"]) == (
        3.0,
        pytest.approx(2.7),
        pytest.approx(3.3),
    )
    assert view["noise_floor"] == 0.01
    assert "+    return 'fast3 f'" in winner["patch"]
    wrong = by_name(view)["c1"]
    assert wrong["diffs"] == [
        {
            "call": "test#0",
            "where": "returned",
            "original": "2",
            "candidate": "3",
            "reason": "another number",
        }
    ]
    assert "the disk is full" in by_name(view)["c4"]["reason"]
    assert (by_name(view)["c6"]["of"], by_name(view)["c6"]["ratio"]) == ("c0", 2.0)
    assert all(
        store.recorded("optimize-1", [one["path"]]) for one in view["candidates"] if one["path"]
    )


async def test_repairs_refinements_and_adaptations_are_told_as_the_engine_told_them(project):
    store = MemoryStore()
    author = Author(
        [text_of("fast2 repaired")], [text_of("fast4 refined")], [text_of("fast6 adapted")]
    )
    result = await tried(store, project, proposals("wrong a"), author=author)
    kept = JobViewReader("candidates")
    view = viewed(store, "optimize-1", kept)
    kept._fold._tried = None  # as if something were new
    assert viewed(store, "optimize-1", kept) == view
    told = [
        (one["name"], one["parent"], one["origin"], one["verdict"]) for one in view["candidates"]
    ]
    assert told == [(one.name, one.parent, one.origin, one.verdict) for one in result]
    assert {one["origin"] for one in view["candidates"]} == {
        "file",
        "repair",
        "refinement",
        "adaptive",
    }
    assert view["winner"] == best_of(result).name


async def test_what_is_under_way_says_what_is_done_with_it(project):
    store, checking, timing, told = MemoryStore(), Gate(), Gate(), JobViewReader("candidates")
    task = asyncio.ensure_future(
        tried(store, project, proposals("fast2 a", "fast3 b"), FakeEvaluator(checking, timing))
    )

    async def until(wanted):
        while (
            now := [one["verdict"] for one in viewed(store, "optimize-1", told)["candidates"]]
        ) != wanted:
            await turns(1)
        return now

    await checking.wait_for("fast2 a", "fast3 b")
    await until(["checking", "checking"])
    checking.open_all()
    await timing.wait_for("fast2 a")
    await until(["measuring", "undecided"])
    timing.open_all()
    await task
    view = viewed(store, "optimize-1", told)
    assert [one["verdict"] for one in view["candidates"]] == ["faster", "faster"]
    assert view == viewed(store, "optimize-1")


def test_many_large_candidates_are_cut_and_said():
    store = MemoryStore()
    original = "".join(f"# {n}\n" for n in range(200)) + ORIGINAL
    hand = Hand(
        store, "candidates", "optimize", {"candidates": {"target": "m.py::f", "original": original}}
    )
    found = [
        {
            "name": f"c{n}",
            "text": f"def f(x):\n    return x + {n}\n",
            "origin": "file",
            "parent": None,
            "fault": None,
            "reason": HOSTILE,
        }
        for n in range(2, 260)
    ]
    hand.settle("optimize/sources", json.dumps(found))
    view = viewed(store, hand.id)
    assert len(view["candidates"]) == 200
    assert view["cut"] == "shown: 200 of 258 candidates"


@pytest.mark.parametrize(
    "body", ["{", "null", "[5, {}, null]", '[{"name": 5, "text": [], "origin": "x"}]']
)
def test_damaged_records_are_told_as_nothing(body):
    store = MemoryStore()
    hand = Hand(store, "candidates", "optimize", FACTS)
    hand.settle("optimize/sources", body)
    hand.settle("optimize/tries/original", body)
    assert viewed(store, hand.id)["candidates"] == []


def test_records_of_another_version_are_named():
    store = MemoryStore()
    hand = Hand(store, "candidates", "optimize", FACTS)
    proposal = {
        "name": "c",
        "text": text_of("x"),
        "origin": "file",
        "parent": None,
        "fault": None,
        "reason": "",
    }
    hand.settle("optimize/sources", json.dumps([proposal]))
    hand.settle(
        "optimize/tries/candidate/c", '[{"text": "", "checked": {"verdict": "same", "newer": 1}}]'
    )
    assert "another version" in viewed(store, hand.id)["candidates"][0]["reason"]
    unknown = Hand(store, "candidates", "optimize", {})
    assert viewed(store, unknown.id)["known"] is False


def test_a_winner_beyond_the_cut_is_shown_and_what_broke_is_told():
    store = MemoryStore()
    hand = Hand(store, "candidates", "optimize", FACTS)
    names = [f"c{n}" for n in range(210)]
    common = {"origin": "file", "parent": None, "fault": None, "reason": ""}
    found = [
        {"name": one, "text": f"def f(x):\n    return x + 1 + {at}\n", **common}
        for at, one in enumerate(names)
    ]
    hand.settle(
        "optimize/sources", json.dumps([*found, {**common, "name": "new", "text": "", "newer": 1}])
    )
    checked = json.dumps([{"text": "", "checked": {"verdict": "same"}}])
    hand.settle("optimize/tries/candidate/c209", checked)
    timed = {"verdict": "faster", "ratio": 2.0, "low": 1.9, "high": 2.1}
    hand.settle("optimize/tries/measure/c209", json.dumps(timed))
    error = json.dumps({"type": "OSError", "message": "no disk", "trace": ""})
    hand.settle("optimize/tries/candidate/c0", error, state="failed")
    hand.settle("optimize/tries/candidate/c1", checked)
    hand.settle("optimize/tries/measure/c1", error, state="failed")
    hand.settle("optimize/tries/candidate/c2", checked)
    hand.settle("optimize/tries/measure/c2", '{"newer": 1}')
    hand.write(("item-started", "optimize/tries/candidate/c3/repair-1", {}, None))
    hand.write(("item-started", "optimize/tries/profile/x", {}, None))
    view = viewed(store, hand.id)
    told = {one["name"]: (one["verdict"], one["reason"]) for one in view["candidates"]}
    assert (view["winner"], "c209" in told, len(told)) == ("c209", True, 200)
    assert (told["c0"], told["c1"]) == (("error", "no disk"), ("error", "no disk"))
    assert "another version" in told["c2"][1]
    assert told["c3"][0] == "repairing"
    assert len(view["trouble"]) == 2
