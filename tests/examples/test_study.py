"""The study among the examples, with the real embedded model.

The same rows at every width, and controls that hold.
"""

import json

import pytest

from abreast.cli.main import run
from tests.docs.pages import ROOT

TIMED = ("service_s", "queue_s", "hold_s", "backoff_s", "wall_s", "in_flight")
SOME = ("p01",)  # of thirty


def without_times(row):
    kept = {name: value for name, value in row.items() if name not in TIMED}
    return {**kept, "steps": [{**step, "service_s": 0} for step in row["steps"]]}


@pytest.fixture
def play(held, here, capfd):
    """Run a part of the study in this process, where the model is; its rows."""

    def at(name, width, *words):
        chosen = [word for text in SOME for word in ("--input", text)]
        file = f"examples/{name}"
        seeded = ("--no-resume", "--seed", "1", "--lane-width", str(width))
        assert run(["matrix", "run", file, *chosen, *seeded, "--quiet", *words]) == 0
        assert run(["matrix", "export", "study"]) == 0
        out, err = capfd.readouterr()
        assert err == ""
        return [json.loads(line) for line in out.splitlines()]

    return at


@pytest.mark.usefixtures("remembered")
def test_the_rows_of_a_study_are_the_same_at_any_width_and_the_controls_score_what_they_must(
    play, here, held
):
    wide = play("study.yaml", 8)
    rows = play("study.yaml", 1, "--no-report")

    assert [without_times(row) for row in rows] == [without_times(row) for row in wide]
    assert held.statistics().most_running > 1
    assert max(row["in_flight"] for row in wide) > 1 == max(row["in_flight"] for row in rows)
    assert len(rows) == len(SOME) * (3 + 3)
    assert {row["state"] for row in rows} == {"done"}
    controls = {row["strategy"]: set(row["scores"].values()) for row in rows if row["control"]}
    assert controls == {"empty": {0.0}, "echo": {0.0}, "truth": {1.0}}
    under_schema = [row for row in rows if row["strategy"] == "schema"]
    assert {row["scores"]["valid"] for row in under_schema} == {1.0}
    assert "facts: local/smollm2 · schema has the highest mean" in (
        here / ".abreast/reports/study-1.html"
    ).read_text("utf-8")


def test_the_study_has_thirty_texts_and_each_fact_of_an_answer_stands_in_its_text():
    lines = (ROOT / "examples/data/purchases.jsonl").read_text("utf-8").splitlines()
    texts = [json.loads(line) for line in lines]

    assert len({text["id"] for text in texts}) == len({text["text"] for text in texts}) == 30
    assert [
        text["id"]
        for text in texts
        if not all(str(fact) in text["text"] for fact in text["truth"].values())
    ] == []


def test_the_study_says_how_it_is_run_and_what_it_may_take(here, capfd):
    assert (
        "abreast run examples/study.yaml"
        in (ROOT / "examples/study.yaml").read_text("utf-8").partition("matrix:")[0]
    )
    assert run(["run", "examples/study.yaml", "--dry-run"]) == 0
    out, err = capfd.readouterr()
    assert (err, "90 cells, and 90 of controls, which ask no model" in out) == ("", True)
