"""`abreast matrix score`: judges are asked, no other model is, and no record is lost."""

import json

import pytest

from tests.cli.storms import start_storm

LANES = """
[lanes.arm]
base_url = "{arm}/v1"
api_key_env = "ARM_KEY"
price = {{input = 1.0, output = 2.0}}

[lanes.judge]
base_url = "{judge}/v1"
price = {{input = 1.0, output = 2.0}}
"""
# an echo of that says yes
JUDGED = '[contains, {judge: "yes: is it good?", model: judge/one, name: good}]'
INPUTS = ("one", "two", "three")


@pytest.fixture
def servers(abreast):
    """A provider for the arms and one for judges, both of which repeat what they are asked."""
    with start_storm(reply="echo") as arm, start_storm(reply="echo") as judge:
        abreast.file("abreast.toml", LANES.format(arm=arm.url, judge=judge.url))
        abreast.environment["ARM_KEY"] = "a key"
        yield arm, judge


def write(abreast, scores="[contains]", prompt="say"):
    rows = [{"id": text, "text": text, "truth": "e"} for text in INPUTS]
    abreast.file("data.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    abreast.file(
        "study.yaml",
        f"""
matrix:
  models: [arm/one]
  strategies:
    plain: {{prompt: "{prompt} {{{{ input.text }}}}"}}
  inputs: data.jsonl
  scores: {scores}
  controls: [empty]
""",
    )


def run(abreast, *words):
    return abreast("matrix", "run", "study.yaml", "--no-report", *words)


def score(abreast):
    return abreast("matrix", "score", "study.yaml", "--no-report")


def rows_of(abreast):
    return {
        row["input"]: row
        for row in abreast("matrix", "export", "study-1").rows
        if not row["control"]
    }


def test_judges_are_asked_and_no_other_model_is_not_even_for_its_key(abreast, servers):
    arm, judge = servers
    write(abreast)
    assert run(abreast).code == 0
    before = rows_of(abreast)
    write(abreast, JUDGED)
    del abreast.environment["ARM_KEY"]
    said = score(abreast)

    assert said.code == 0, said
    assert (arm.stats().arrived, judge.stats().arrived) == (3, 3)
    after = rows_of(abreast)
    assert {name: row["scores"]["good"] for name, row in after.items()} == dict.fromkeys(
        INPUTS, 1.0
    )
    assert {name: row["output"] for name, row in after.items()} == {
        name: row["output"] for name, row in before.items()
    }
    assert all(row["judge_usd"] > 0 for row in after.values())
    assert abreast("show", "study-1", "--json").rows[0]["usage"]["judge/one"]["requests"] == 3


def test_the_same_model_can_be_the_judge_of_its_own_replies(abreast, servers):
    arm, judge = servers
    write(abreast)
    assert run(abreast).code == 0
    write(abreast, JUDGED.replace(", model: judge/one", ""))
    assert score(abreast).code == 0
    assert (arm.stats().arrived, judge.stats().arrived) == (6, 0)
    assert {row["scores"]["good"] for row in rows_of(abreast).values()} == {1.0}


def test_cells_that_have_no_reply_yet_are_left_to_the_next_run(abreast, servers):
    arm, judge = servers
    write(abreast)
    assert run(abreast, "--budget", "2req").code == 3
    asked = arm.stats().arrived
    scored = len(rows_of(abreast))
    assert 0 < scored < len(INPUTS)
    write(abreast, JUDGED)
    said = score(abreast)

    assert said.code == 0, said
    assert (
        "cells have no reply yet, and are not scored; ask for them with: "
        "abreast matrix run study.yaml"
    ) in said.err
    assert (arm.stats().arrived, judge.stats().arrived) == (asked, scored)
    assert [row["state"] for row in abreast("runs", "--json").rows] == ["halted"]
    assert abreast("resume", "study-1").code == 3  # the budget is the study's still
    assert abreast("resume", "study-1", "--budget", "100req").code == 0
    assert {row["scores"]["good"] for row in rows_of(abreast).values()} == {1.0}
    assert (set(rows_of(abreast)), arm.stats().arrived) == (set(INPUTS), 3)


def test_replies_to_a_prompt_that_was_edited_since_stay_as_they_are(abreast, servers):
    arm, judge = servers
    write(abreast)
    assert run(abreast).code == 0
    before = rows_of(abreast)
    write(abreast, JUDGED, prompt="shout")
    said = score(abreast)
    assert "3 of 6 cells have no reply yet" in said.err
    assert rows_of(abreast) == before
    assert (arm.stats().arrived, judge.stats().arrived) == (3, 0)
    assert run(abreast).code == 0
    assert {row["prompt"] for row in rows_of(abreast).values()} == {
        f"shout {text}" for text in INPUTS
    }
