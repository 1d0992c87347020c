"""`abreast matrix` around a run: report, comparison of two runs, aliases of flags, dry run."""

import json
import re

import pytest

from tests.cli.storms import start_storm

STUDY = """
matrix:
  models: [scripted/replies.jsonl]
  strategies:
    plain: {{prompt: "{word} {{{{ input.text }}}}"}}
    short: {{prompt: "in a word: {{{{ input.text }}}}"}}
  inputs: data.jsonl
  scores: [exact]
  controls: [empty, truth]
  {more}
"""
WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight")


@pytest.fixture
def study(abreast):
    """Eight inputs, of which one arm gets all, the other none; all of it without a network."""

    def write(word="say", more=""):
        rows = [{"id": text, "text": text, "truth": text.upper()} for text in WORDS]
        abreast.file("data.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
        lines = [{"prompt": f"say {text}", "reply": text.upper()} for text in WORDS]
        lines += [
            {"prompt": f"{how} {text}", "reply": text}
            for text in WORDS
            for how in ("in a word:", "tell")
        ]
        abreast.file("replies.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))
        abreast.file("study.yaml", STUDY.format(word=word, more=more))

    write()
    return write


def told(said):
    return [
        re.sub(r"\d+\.\d s", "T s", line.removeprefix("abreast: "))
        for line in said.err.splitlines()
    ]


def test_a_run_ends_with_its_report_beside_the_store(abreast, study):
    said = abreast("run", "study.yaml")

    assert (said.code, said.out) == (0, "")
    assert told(said) == [
        "32 of 32 cells done in T s (study-1)",
        "the report is .abreast/reports/study-1.html",
    ]
    page = (abreast.folder / ".abreast/reports/study-1.html").read_text("utf-8")
    assert "can&#39;t be told apart" not in page
    assert "scripted/replies.jsonl · plain has the highest mean, 1.000" in page


def test_where_the_report_is_stands_in_what_programs_read_and_quiet_says_nothing(abreast, study):
    said = abreast("matrix", "run", "study.yaml", "--json")
    found = json.loads(said.out)
    assert (said.err, found["report"]) == (
        "",
        str(abreast.folder / ".abreast/reports/study-1.html"),
    )

    again = abreast("matrix", "run", "study.yaml", "--quiet", "--store", "other/here.db")
    assert (again.code, again.out, again.err) == (0, "", "")
    assert (abreast.folder / "other/reports/study-1.html").exists()


def test_without_a_report_there_is_none_until_it_is_asked_for(abreast, study):
    said = abreast("matrix", "run", "study.yaml", "--no-report")
    assert told(said) == ["32 of 32 cells done in T s (study-1)"]
    assert not (abreast.folder / ".abreast/reports").exists()

    assert abreast("matrix", "score", "study.yaml", "--no-report").code == 0
    assert not (abreast.folder / ".abreast/reports").exists()
    assert abreast("matrix", "report", "study").lines == [".abreast/reports/study-1.html"]
    assert (abreast.folder / ".abreast/reports/study-1.html").exists()


# abreast, where that package can't be imported.
WITHOUT = """
import sys
for name in [*sys.modules, "{missing}"]:
    if name.partition(".")[0] == "{missing}":
        sys.modules[name] = None
from abreast.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize("missing", ["scipy", "plotly"])
def test_without_the_extra_one_sentence_says_how_to_get_it_and_the_run_is_as_good(
    abreast, study, missing
):
    script = str(abreast.file("../without.py", WITHOUT.format(missing=missing)))

    said = abreast("matrix", "run", "study.yaml", program=script)

    assert said.code == 0
    (sentence,) = told(said)[1:]
    assert re.fullmatch(
        r"for a report: .*install .*\[report\]'?, then abreast matrix report study-1", sentence
    )
    asked = abreast("matrix", "report", "study", program=script)
    assert (asked.code, "[report]" in asked.err) == (2, True)


def test_a_report_that_cannot_be_written_changes_no_exit_code(abreast, study):
    abreast.file(".abreast/reports", "in the way")

    said = abreast("matrix", "run", "study.yaml")

    assert said.code == 0
    assert "the report was not written: " in said.err
    assert "Traceback" not in said.err


def test_a_failed_cell_is_an_exit_code_of_1_and_is_in_the_report(abreast, study):
    study(word="mutter")

    said = abreast("matrix", "run", "study.yaml")

    assert (said.code, told(said)[0]) == (1, "24 of 32 cells done, 8 failed in T s (study-1)")
    page = (abreast.folder / ".abreast/reports/study-1.html").read_text("utf-8")
    assert "8 of 16 cells failed (50.0%), most often with RequestRefused." in page


def test_the_facts_of_a_report_are_for_people(abreast, study):
    said = abreast(
        "matrix", "run", "study.yaml", "-i", "one", "-i", "two", "--seed", "7", "--lane-width", "3"
    )
    assert said.code == 0
    assert abreast("matrix", "report", "study", "--out", "report.md").code == 0

    text = (abreast.folder / "report.md").read_text("utf-8")
    facts = dict(re.findall(r"(?m)^\| ([\w ]+) \| (.*) \|$", text.partition("## Provenance")[2]))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", facts["created"])
    assert (facts["run"], facts["state"], facts["file"], facts["seed"]) == (
        "study-1",
        "done",
        "study.yaml",
        "7",
    )
    assert (facts["only"], facts["lane width"]) == ("inputs one, two", "3")
    assert {"abreast", "Python", "packages", "platform", "cores", "prices"} <= set(facts)
    assert "aiohttp " in facts["packages"]
    assert "–" not in facts.values()  # noqa: RUF001 - what is not known is left out


def test_the_report_of_a_run_that_was_stopped_says_so(abreast, study):
    assert abreast("matrix", "run", "study.yaml", "--budget", "5req").code == 3
    assert not (abreast.folder / ".abreast/reports").exists()

    assert abreast("matrix", "report", "study", "--out", "report.md").code == 0
    text = (abreast.folder / "report.md").read_text("utf-8")
    assert "> **Warning:** The run is" in text
    assert "| budget | 5req |" in text


def test_two_runs_are_compared_in_a_table(abreast, study):
    abreast("matrix", "run", "study.yaml", "--no-report")
    study(word="tell")
    abreast("matrix", "run", "study.yaml", "--no-report", "--no-resume")

    said = abreast("matrix", "compare", "study-1", "study")
    assert said.lines[0] == "# study-1 to study-2"
    assert "1 of 2 scores changed clearly" in said.out
    (plain,) = [line for line in said.lines if "· plain | exact" in line]
    cells = [cell.strip() for cell in plain.strip("|").split("|")]
    assert cells[1:5] == ["exact", "1.000", "0.000", "-1.000"]
    found = json.loads(abreast("matrix", "compare", "study-1", "study-2", "--json").out)
    assert (found["first"], found["second"], found["changes"]["both"]) == ("study-1", "study-2", 16)


def test_the_cap_of_each_provider_has_the_name_that_others_give_it(abreast, study):
    ran = [
        abreast("matrix", "run", "study.yaml", flag, "2", "--no-report", "--no-resume", "--json")
        for flag in ("--lane-width", "--provider-concurrency")
    ]

    assert [said.code for said in ran] == [0, 0]
    refused = abreast("matrix", "run", "study.yaml", "--provider-concurrency", "0")
    assert (refused.code, "--lane-width: it must be at least 1, not 0" in refused.err) == (2, True)


def test_the_usual_width_is_four_and_a_study_may_say_another(abreast, study):
    widths = []
    for more, words in (("", []), ("lane_width: 7", []), ("lane_width: 7", ["--lane-width", "2"])):
        study(more=more)
        abreast("matrix", "run", "study.yaml", "--no-report", "--no-resume", *words)
        shown = json.loads(abreast("show", "study", "--json").out.splitlines()[0])
        widths.append(shown["manifest"]["provenance"]["lane_width"])

    assert widths == [4, 7, 2]


# --- against a server's own count ----------------------------------------------------------------


def many_steps(abreast, storm, lane=""):
    abreast.file("abreast.toml", f'[lanes.a]\nbase_url = "{storm.url}/v1"\n{lane}')
    abreast.file(
        "mine.py",
        """
async def steps(value, model):
    draft = await model.ask(f"draft {value['text']}", step="draft")
    return await model.ask(f"better {draft}", step="better")
""",
    )
    abreast.file(
        "study.yaml",
        """
matrix:
  models: [{name: a/one, max_tokens: 20}]
  strategies: {steps: {python: "mine:steps"}}
  inputs: [one, two, three, four, five, six]
  repeats: 2
  scores: [{regex: "."}]
""",
    )
    said = abreast("matrix", "run", "study.yaml", "--no-report", "--json")
    assert (said.code, said.err) == (0, "")
    return abreast("matrix", "export", "study").rows


def test_cells_of_many_steps_keep_all_of_them_and_within_the_limits_nothing_is_tried_twice(abreast):
    # The usual width is just within that, and reached, however long it takes to send four.
    with start_storm(latency=0.3, concurrency=4) as storm:
        rows = many_steps(abreast, storm)
        stats = storm.stats()

    assert (stats.arrived, stats.rejected, stats.peak_in_flight) == (24, 0, 4)
    assert len(rows) == 12
    for row in rows:
        assert ([step["name"] for step in row["steps"]], row["attempts"]) == (
            ["draft", "better"],
            2,
        )
        assert (row["state"], row["scores"], row["steps"][1]["output"]) == (
            "done",
            {"regex": 1.0},
            row["output"],
        )
        assert (row["hold_s"], row["backoff_s"]) == (0.0, 0.0)


def test_a_lane_that_knows_its_rate_stays_clear_of_429s(abreast):
    with start_storm(rpm=660, burst=20, latency=0.005) as storm:
        abreast.file("abreast.toml", f'[lanes.a]\nbase_url = "{storm.url}/v1"\n')
        # So that the model is known to take these parameters, and none of its calls goes alone.
        first = ("map", "--prompt", "{}", "-m", "a/one", "--max-tokens", "20")
        assert abreast(*first, given=b"first\n").code == 0
        rows = many_steps(abreast, storm, "rpm = 600\n")
        stats = storm.stats()

    assert (stats.arrived, stats.rejected, len(rows)) == (1 + 24, 0, 12)
    assert {row["hold_s"] for row in rows} == {0.0}
    assert max(row["queue_s"] for row in rows) > max(
        row["service_s"] for row in rows
    )  # it waited here, not there


def test_a_lane_that_does_not_is_held_by_429s_and_its_rows_are_the_same(abreast):
    with start_storm(rpm=660, burst=12, latency=0.005) as storm:
        rows = many_steps(abreast, storm)
        stats = storm.stats()

    assert (stats.arrived - stats.rejected, len(rows)) == (24, 12)
    assert stats.rejected > 0
    assert {(row["state"], row["attempts"]) for row in rows} == {("done", 2)}
    assert max(row["hold_s"] for row in rows) > 0


# --- going on ------------------------------------------------------------------------------------


def test_resume_goes_on_with_the_file_as_it_was_run_last_and_not_with_an_older_one(abreast, study):
    assert abreast("matrix", "run", "study.yaml", "--no-report").code == 0
    study(word="tell")
    assert (
        abreast("matrix", "run", "study.yaml", "--no-report", "--budget", "19req").code == 3
    )  # 16 are spent already

    said = abreast("resume", "study-1", "--budget", "100req")

    assert said.code == 0
    assert (
        "5 cells run again, because the strategy plain changed" in said.err
    )  # and not the three that were
    rows = [row for row in abreast("matrix", "export", "study").rows if row["strategy"] == "plain"]
    assert {row["prompt"].partition(" ")[0] for row in rows} == {"tell"}


def test_resume_goes_on_with_the_part_that_was_asked_for_last(abreast, study):
    assert abreast("matrix", "run", "study.yaml", "-i", "one", "--no-report").code == 0
    assert abreast("matrix", "run", "study.yaml", "--no-report", "--budget", "4req").code == 3

    assert abreast("resume", "study-1", "--budget", "100req").code == 0

    assert len(abreast("matrix", "export", "study").rows) == 32
    abreast("matrix", "report", "study", "--out", "report.md")
    assert "| only |" not in (abreast.folder / "report.md").read_text("utf-8")


def test_scores_that_could_not_be_given_are_told_and_make_the_exit_code_1(abreast, study):
    study(more="x: 1")
    text = (
        (abreast.folder / "study.yaml")
        .read_text()
        .replace("  x: 1\n", "")
        .replace("[exact]", "[exact, {python: own:score}]")
    )
    abreast.file("study.yaml", text)
    abreast.file("own.py", "def score(row):\n    return row['gone']\n")

    for words in (["run", "study.yaml"], ["run", "study.yaml"], ["score", "study.yaml"]):
        said = abreast("matrix", *words, "--no-report")
        assert said.code == 1
        assert "the score python could not be given in 32 cells, for example " in said.err
        assert "KeyError: 'gone'" in said.err
    quiet = abreast("matrix", "run", "study.yaml", "--no-report", "--quiet")
    assert (quiet.code, quiet.err) == (1, "")
    found = json.loads(abreast("matrix", "run", "study.yaml", "--no-report", "--json").out)
    assert (found["failed"], found["score_errors"]) == (0, {"python": 32})
    assert abreast("matrix", "report", "study", "--out", "report.md").code == 0
    assert (
        "could not be given in 32 of 32 cells"
        in (abreast.folder / "report.md").read_text().splitlines()[2]
    )
