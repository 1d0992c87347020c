"""`abreast matrix` on a study that was changed since: removed cells, cost, and prices."""

import json
import re
from datetime import date

import pytest

from abreast.models.price import table_date
from tests.cli.storms import start_storm

WORDS = ("one", "two", "three", "four")


@pytest.fixture
def study(abreast):
    """Four inputs, and strategies as they are wanted; all of it without a network."""

    def write(*strategies, words=WORDS, repeats=1, controls="[empty]"):
        rows = [{"id": text, "text": text, "truth": text.upper()} for text in words]
        abreast.file("data.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
        lines = [
            {"prompt": f"{how} {text}", "reply": text.upper()}
            for text in WORDS
            for how in ("say", "cry", "sing")
        ]
        abreast.file("replies.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))
        named = "".join(
            f'    {how}: {{prompt: "{how} {{{{ input.text }}}}"}}\n' for how in strategies
        )
        abreast.file(
            "study.yaml",
            "matrix:\n  models: [scripted/replies.jsonl]\n  strategies:\n"
            f"{named}  inputs: data.jsonl\n"
            f"  repeats: {repeats}\n  scores: [exact]\n  controls: {controls}\n",
        )

    return write


def run(abreast, *words):
    return abreast("matrix", "run", "study.yaml", "--no-report", *words)


def exported(abreast, *words):
    said = abreast("matrix", "export", "study-1", *words)
    return {(row["strategy"], row["input"], row["repeat"]) for row in said.rows}, said.err


def test_what_was_taken_out_of_the_file_stays_recorded_and_is_in_no_export_unless_asked_for(
    abreast, study
):
    study("say", "cry")
    assert run(abreast).code == 0
    study("say", "sing")
    said = run(abreast)

    assert said.code == 0
    left = "4 recorded cells are no longer in the file (strategy cry)"
    assert (
        f"{left}: what is recorded of them stays, but is in no report and no export without --all"
        in said.err
    )
    rows, err = exported(abreast)
    assert {strategy for strategy, _, _ in rows} == {"say", "sing", "empty"}
    assert err == f"abreast: {left}, and left out; --all has them too\n"
    every, err = exported(abreast, "--all")
    assert (every - rows, err) == ({("cry", text, 0) for text in WORDS}, "")

    study("say", "cry", "sing")  # and back: nothing is asked again
    again = run(abreast)
    assert "goes on with study-1: 16 of 16 cells are recorded, 0 are missing" in again.err
    assert exported(abreast) == (every, "")


def test_inputs_repeats_and_controls_that_are_gone_are_left_out_too(abreast, study):
    study("say", repeats=2, controls="[empty, truth]")
    assert run(abreast).code == 0
    study("say", words=WORDS[:3], repeats=1)
    said = run(abreast)

    # 4 x 2 cells and 4 x 2 of each control: of these, those of 3 inputs, 1 repeat and 1 control are
    # still there.
    assert (
        "18 recorded cells are no longer in the file (control truth, input four, repeat 1)"
        in said.err
    )
    rows, _ = exported(abreast)
    assert rows == {(strategy, text, 0) for strategy in ("say", "empty") for text in WORDS[:3]}


def test_an_input_that_is_gone_from_its_own_file_is_left_out_too(abreast, study):
    study("say")
    assert run(abreast).code == 0
    lines = (abreast.folder / "data.jsonl").read_text("utf-8").splitlines(keepends=True)
    abreast.file("data.jsonl", "".join(lines[1:]))

    assert "2 recorded cells are no longer in the file (input one)" in run(abreast).err
    assert len(exported(abreast)[0]) == 6


def test_a_part_that_is_asked_for_takes_nothing_out_of_the_file(abreast, study):
    study("say", "cry")
    assert run(abreast).code == 0
    said = run(abreast, "--strategy", "say")

    assert "no longer in the file" not in said.err
    assert len(exported(abreast)[0]) == 12


def test_a_report_and_a_comparison_are_of_the_file_as_it_is(abreast, study):
    study("say", "cry")
    assert run(abreast).code == 0
    study("say")
    assert run(abreast).code == 0
    assert run(abreast, "--no-resume").code == 0

    found = json.loads(abreast("matrix", "report", "study-1", "--out", "report.md", "--json").out)
    text = (abreast.folder / "report.md").read_text("utf-8")
    assert (found["rows"], "· cry" in text) == (8, False)
    assert "| left out | 4 recorded cells are no longer in the file (strategy cry) |" in text
    assert abreast("matrix", "report", "study-1", "--out", "report.md", "--all").code == 0
    text = (abreast.folder / "report.md").read_text("utf-8")
    assert ("· cry" in text, "left out" in text) == (True, False)
    compared = json.loads(abreast("matrix", "compare", "study-1", "study-2", "--json").out)[
        "changes"
    ]
    assert (compared["both"], compared["only_before"]) == (4, 0)


# --- what it has cost ----------------------------------------------------------------------------


def server_study(abreast, storm, how):
    abreast.file(
        "abreast.toml",
        f'[lanes.a]\nbase_url = "{storm.url}/v1"\nprice = {{input = 1000.0, output = 1000.0}}\n',
    )
    abreast.file(
        "study.yaml",
        "matrix:\n  models: [{name: a/one, max_tokens: 20}]\n"
        f'  strategies: {{plain: {{prompt: "{how} {{{{ input.text }}}}"}}}}\n'
        "  inputs: [one, two, three, four, five, six]\n  repeats: 2\n  scores: [{regex: .}]\n",
    )


def test_a_later_budget_counts_what_superseded_cells_and_drivers_without_one_have_spent(abreast):
    with start_storm(latency=0.001) as storm:
        server_study(abreast, storm, "say")
        assert run(abreast).code == 0
        assert storm.stats().arrived == 12
        paid = sum(row["usd"] for row in abreast("matrix", "export", "study").rows)

        server_study(abreast, storm, "cry")
        spent = run(abreast, "--budget", "12req")
        assert (spent.code, storm.stats().arrived) == (3, 12)
        assert "the budget is spent: 12 of 12 requests used" in spent.err
        assert run(abreast, "--budget", "17req").code == 3
        assert storm.stats().arrived == 17
        assert run(abreast).code == 0  # without one it goes on
        assert storm.stats().arrived == 24

        server_study(abreast, storm, "whisper")
        assert run(abreast, "--budget", f"{paid:.6f}usd").code == 3
        assert (
            run(abreast, "--budget", "24req").code == 3
        )  # what was spent without a budget is not forgotten
        assert storm.stats().arrived == 24
        assert run(abreast, "--budget", "36req").code == 0
        assert storm.stats().arrived == 36


# --- provenance ----------------------------------------------------------------------------------


def facts(abreast):
    assert abreast("matrix", "report", "study", "--out", "report.md").code == 0
    text = (abreast.folder / "report.md").read_text("utf-8").partition("## Provenance")[2]
    return dict(re.findall(r"(?m)^\| ([\w ]+) \| (.*) \|$", text))


def test_the_table_of_prices_is_named_with_its_date_where_it_was_asked(abreast, study):
    study("say")
    assert run(abreast).code == 0
    assert facts(abreast)["prices"] == "those that the lanes have themselves"

    with start_storm(latency=0.001) as storm:
        server_study(abreast, storm, "say")
        abreast.file("abreast.toml", f'[lanes.a]\nbase_url = "{storm.url}/v1"\n')
        assert run(abreast, "--no-resume").code == 0
    told = facts(abreast)
    said = re.fullmatch(
        r"genai-prices [\d.]+, whose newest price is of (\d{4}-\d\d-\d\d)", told["prices"]
    )
    assert said is not None
    assert said[1] == str(table_date(date.fromisoformat(told["created"].partition(" ")[0])))


def test_a_date_of_the_table_is_no_later_than_the_day_that_asks():
    today = date(2026, 6, 1)
    found = table_date(today)
    assert found is not None
    assert found <= today


@pytest.mark.parametrize(
    ("words", "least", "most"),
    [((), 1, 4), (("--adaptive",), 5, 99), (("--adaptive", "--lane-width", "2"), 1, 2)],
)
def test_a_lane_keeps_its_width_unless_it_is_to_find_it_out(abreast, words, least, most):
    rows = "".join(f"{json.dumps({'id': f'i{n}', 'text': f'word {n}'})}\n" for n in range(30))
    abreast.file("data.jsonl", rows)
    with start_storm(latency=0.3) as storm:
        abreast.file("abreast.toml", f'[lanes.a]\nbase_url = "{storm.url}/v1"\n')
        abreast.file(
            "study.yaml",
            "matrix:\n  models: [a/storm]\n  strategies:\n"
            '    say: {prompt: "say {{ input.text }}"}\n'
            "  inputs: data.jsonl\n",
        )
        assert run(abreast, *words).code == 0
        assert least <= storm.stats().peak_in_flight <= most


def test_a_study_in_which_all_cells_failed_but_its_controls_has_failed(abreast, study):
    study("moan", controls="[empty, truth]")  # to which there is no reply
    said = run(abreast)
    assert said.code == 1
    assert "8 of 12 cells done, 4 failed" in said.err
    (row,) = abreast("runs", "--json").rows
    assert (row["state"], row["reason"]) == ("failed", "no item succeeded: 4 cells failed")
    assert (
        "run the failed again with: abreast resume study-1 --only-failed"
        in abreast("show", "last").out
    )
    assert "study-1 is failed" in abreast("resume", "study-1").err

    lines = [{"prompt": f"moan {text}", "reply": text.upper()} for text in WORDS]
    abreast.file("replies.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))
    assert abreast("resume", "study-1", "--only-failed").code == 0
    assert [(row["run"], row["state"]) for row in abreast("runs", "--json").rows] == [
        ("study-1", "done")
    ]


def test_a_study_that_goes_on_with_cells_that_all_fail_keeps_what_succeeded_before(abreast, study):
    study("say")
    assert run(abreast).code == 0
    study("say", "moan")
    assert run(abreast, "--strategy", "moan").code == 1
    assert [(row["run"], row["state"]) for row in abreast("runs", "--json").rows] == [
        ("study-1", "done")
    ]
