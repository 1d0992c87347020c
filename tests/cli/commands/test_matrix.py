"""`abreast matrix` over real HTTP: rows for all cells, whatever breaks, is cut off or is killed."""

import json
import random
import signal
import statistics
from collections import Counter

import pytest

from tests.cli.forks import ForkingShell
from tests.cli.shell import PATIENCE
from tests.cli.storms import start_storm

LANES = """
[lanes.a]
base_url = "{url}/v1"
price = {{input = 1.0, output = 2.0}}

[lanes.b]
base_url = "{other}/v1"
price = {{input = 1.0, output = 2.0}}
"""


def declare(abreast, storm, other=None):
    abreast.file("abreast.toml", LANES.format(url=storm.url, other=(other or storm).url))


def write(
    abreast,
    *,
    inputs=6,
    repeats=2,
    models=("a/one", "b/two"),
    scores="[{regex: a}, contains]",
    loud="shout",
):
    rows = [{"id": f"i{n:02}", "text": f"text {n}", "truth": "e"} for n in range(inputs)]
    abreast.file("data.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    abreast.file(
        "study.yaml",
        f"""
matrix:
  models: {json.dumps(list(models))}
  strategies:
    plain: {{prompt: "say {{{{ input.text }}}}", max_tokens: 20}}
    loud: {{prompt: "{loud} {{{{ input.text }}}}", max_tokens: 20}}
  inputs: data.jsonl
  repeats: {repeats}
  scores: {scores}
  controls: [empty, truth]
""",
    )
    return inputs * repeats * (2 * len(models) + 2)


def rows_of(abreast, run="study-1"):
    return {row["cell"]: row for row in abreast("matrix", "export", run).rows}


def recorded_of(abreast, part):
    """How many cells are recorded that have this in their key."""
    return len([key for key in abreast.recorded("study-1") if part in key])


def lasting(rows):
    """What does not depend on timing."""
    timed = ("service_s", "queue_s", "hold_s", "backoff_s", "wall_s", "in_flight", "attempts")
    found = {}
    for key, row in rows.items():
        kept = {name: value for name, value in row.items() if name not in timed}
        found[key] = {**kept, "steps": [{**step, "service_s": 0} for step in row["steps"]]}
    return found


def test_every_cell_is_a_row_and_any_width_gives_the_same(abreast):
    with start_storm(latency=0.01) as storm:
        declare(abreast, storm)
        cells = write(abreast)
        seen = []
        for width in (1, 4, 64):
            said = abreast(
                "matrix",
                "run",
                "study.yaml",
                "--no-report",
                "--lane-width",
                width,
                "--no-resume",
                "--seed",
                "5",
                "--json",
            )
            assert said.code == 0, said
            assert json.loads(said.out)["cells"] == cells
            seen.append(lasting(rows_of(abreast, json.loads(said.out)["run"])))
        assert seen[0] == seen[1] == seen[2]
        assert len(seen[0]) == cells
        assert storm.stats().arrived == 3 * 48


def test_faults_leave_rows_and_a_second_run_makes_no_call(abreast):
    faults = {"500": 0.15, "reset": 0.05, "malformed": 0.1, "refusal": 0.1}
    with start_storm(latency=0.002, faults=faults, seed=3) as storm:
        declare(abreast, storm)
        cells = write(abreast)
        said = abreast("matrix", "run", "study.yaml", "--no-report", "--json")
        assert said.code == 1
        found = json.loads(said.out)
        assert found["done"] + found["failed"] == cells
        assert found["failed"] > 0
        rows = rows_of(abreast)
        assert len(rows) == cells
        assert Counter(row["state"] for row in rows.values()) == {
            "done": found["done"],
            "failed": found["failed"],
        }
        assert all(row["error_type"] for row in rows.values() if row["state"] == "failed")
        before = storm.stats().arrived
        again = abreast("matrix", "run", "study.yaml", "--no-report")
        assert storm.stats().arrived == before
        assert f"{cells} of {cells} cells are recorded, 0 are missing" in again.err
        assert rows_of(abreast) == rows
        abreast("matrix", "run", "study.yaml", "--no-report", "--rerun-failed")
        assert storm.stats().arrived > before


def test_a_hung_lane_holds_up_nobody_else_and_what_is_missing_comes_later(abreast):
    with start_storm(latency=0.01) as calm, start_storm(latency=3600.0) as hung:
        declare(abreast, hung, calm)
        write(abreast)
        with abreast.start(
            "matrix", "run", "study.yaml", "--no-report", "--lane-width", "3", measured=False
        ) as process:
            calm.until(process, lambda stats: stats.arrived == 24)
            abreast.until(process, lambda: recorded_of(abreast, "b%2Ftwo~") == 24)
            hung.until(process, lambda stats: stats.in_flight == 3)
            assert hung.stats().peak_in_flight == 3  # a lane as wide as it says, and no wider
            assert calm.stats().peak_in_flight <= 3
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130
        assert "go on with: abreast resume study-1" in (
            err.decode() if isinstance(err, bytes) else err
        )
        assert hung.stats().arrived == 3  # nothing new was started
        rows = rows_of(abreast)
        assert len([row for row in rows.values() if row["lane"] == "b"]) == 24
        asked = calm.stats().arrived
        declare(abreast, calm, calm)
        assert abreast("resume", "study-1").code == 0
        assert calm.stats().arrived == asked + 24
        assert len(rows_of(abreast)) == 72


def test_an_edited_prompt_runs_again_in_its_cells_alone(abreast):
    with start_storm(latency=0.001) as storm:
        declare(abreast, storm)
        write(abreast)
        assert abreast("matrix", "run", "study.yaml", "--no-report").code == 0
        write(abreast, loud="cry out")
        said = abreast("matrix", "run", "study.yaml", "--no-report")
        assert said.code == 0
        assert "24 cells run again, because the strategy loud changed: a/one~loud~i00~0" in said.err
        assert storm.stats().arrived == 48 + 24
        write(abreast, loud="cry out", scores="[{regex: e}]")
        said = abreast("matrix", "score", "study.yaml", "--no-report")
        assert said.code == 0, said
        assert "because the scores changed (no call is made again)" in said.err
        assert storm.stats().arrived == 48 + 24
        assert all(set(row["scores"]) == {"regex"} for row in rows_of(abreast).values())


def test_a_budget_stops_it_and_more_lets_it_go_on(abreast):
    with start_storm(latency=0.001) as storm:
        declare(abreast, storm)
        write(abreast)
        said = abreast("matrix", "run", "study.yaml", "--no-report", "--budget", "20req")
        assert said.code == 3
        assert storm.stats().arrived == 20
        assert abreast("resume", "study-1", "--budget", "1000req").code == 0
        assert storm.stats().arrived == 48
        assert len(rows_of(abreast)) == 72


def test_the_service_time_of_a_cell_is_the_servers_and_no_waiting_is_in_it(abreast):
    with start_storm(latency=0.08, faults={"429": 0.1}, seed=2) as storm:
        declare(abreast, storm)
        write(abreast, inputs=20, repeats=1)
        assert abreast("matrix", "run", "study.yaml", "--no-report", "--lane-width", "4").code == 0
        rows = [row for row in rows_of(abreast).values() if not row["control"]]
        served = [entry.service for entry in storm.log() if entry.outcome == "ok"]
    for row in rows:
        parts = row["queue_s"] + row["hold_s"] + row["backoff_s"] + row["service_s"]
        assert parts == pytest.approx(row["wall_s"], abs=1e-6)
        assert 1 <= row["in_flight"] <= 4
    service = statistics.median(row["service_s"] for row in rows)
    assert service >= 0.95 * statistics.median(served)
    assert (
        statistics.median(row["wall_s"] for row in rows) > 2 * service
    )  # how close: python -m benchmarks.matrix


def test_filters_and_numbers_that_make_no_sense_are_refused_before_anything_happens(abreast):
    with start_storm() as storm:
        declare(abreast, storm)
        write(abreast)
        for words, says in [
            (["--lane-width", "0"], "--lane-width: it must be at least 1, not 0"),
            (["--lane-width", "two"], "--lane-width: "),
            (["--repeats", "-1"], "--repeats: "),
            (
                ["--model", "a/won"],
                "--model: there is no 'a/won' in study.yaml; there are a/one, b/two",
            ),
            (["--strategy", "plane"], "there are plain, loud, empty, truth"),
            (["--input", "x"], "--input: there is no 'x'"),
        ]:
            said = abreast("matrix", "run", "study.yaml", "--no-report", *words)
            assert (said.code, says in said.err) == (2, True), said
        assert storm.stats().arrived == 0
    assert not abreast.store.exists()


def test_what_cannot_run_here_is_told_beforehand_and_the_rest_runs(abreast):
    with start_storm(latency=0.001) as storm:
        declare(abreast, storm)
        write(abreast, models=["a/one", "openai/gpt", "mistral/x"], inputs=2, repeats=1)
        command = ("matrix", "run", "study.yaml", "--no-report", "--no-resume")
        keys = {"OPENAI_API_KEY": "", "MISTRAL_API_KEY": ""}
        said = abreast(*command, "--json", **keys)
        assert said.code == 0
        found = json.loads(said.out)
        assert (found["cells"], found["done"], found["failed"]) == (
            2 * 2 + 2 * 2,
            8,
            0,
        )  # of controls, and of a/one
        assert (
            "can't run: openai/gpt x plain, openai/gpt x loud: no key for openai (OPENAI_API_KEY)"
            in said.err
        )
        assert "mistral/x x plain" in said.err
        assert storm.stats().arrived == 4
        assert len(rows_of(abreast)) == 8
        told = abreast(*command, **keys).err
        assert 0 <= told.find("can't run: ") < told.find("8 of 8 cells done in ")


def test_a_dry_run_forecasts_and_asks_nobody(abreast):
    with start_storm() as storm:
        declare(abreast, storm)
        write(abreast)
        said = abreast("matrix", "run", "study.yaml", "--no-report", "--dry-run", "--json")
        found = json.loads(said.out)
        assert (said.code, found["cells"]) == (0, 48)
        assert found["usd"]["low"] <= found["usd"]["likely"] <= found["usd"]["high"]
        assert found["bottleneck"] in ("a", "b")
        assert storm.stats().arrived == 0


def test_strategies_of_ones_own_samples_and_workflows(abreast):
    abreast.file(
        "mine.py",
        """
async def steps(value, model):
    draft = await model.ask(f"draft {value['text']}", step="draft")
    return await model.ask(f"better {draft}", step="better")

def plain(value, model):
    return model.ask(f"one {value['text']}").upper()

def score(row):
    return len(row["output"]) > 0
""",
    )
    abreast.file(
        "flow.yaml",
        """
workflow: {id: flow}
inputs: {text: {type: string, required: true}}
steps: [{id: ask, type: prompt, prompt: "flow {{ inputs.text }}", max_tokens: 9}]
""",
    )
    abreast.file(
        "study.yaml",
        """
matrix:
  models: [a/one]
  strategies:
    steps: {python: "mine:steps"}
    threaded: {python: "mine:plain"}
    gone: {python: "mine:gone"}
    drawn: {sample: {prompt: "draw {{ input.text }}", breadth: 2, checks: ["min-words 1"]}}
    flow: {workflow: flow.yaml}
  inputs: [{id: x, text: hello}]
  scores: [{python: "mine:score"}, {judge: "is it good?"}]
""",
    )
    with start_storm(latency=0.001) as storm:
        declare(abreast, storm)
        said = abreast("matrix", "run", "study.yaml", "--no-report")
        assert said.code == 1, said  # the judge is a model that says neither yes nor no
        assert "the judge said neither yes nor no" in said.err
        assert "can't run: a/one x gone: missing: mine has no 'gone'" in said.err
        rows = {row["strategy"]: row for row in rows_of(abreast).values()}
    assert set(rows) == {"steps", "threaded", "drawn", "flow"}
    assert [step["name"] for step in rows["steps"]["steps"]] == ["draft", "better"]
    assert rows["threaded"]["output"].isupper()
    assert [step["name"] for step in rows["drawn"]["steps"]] == ["branch 0 round 0: passed"]
    assert [step["name"] for step in rows["flow"]["steps"]] == ["ask"]
    assert all(row["scores"]["python"] == 1.0 for row in rows.values())
    assert all(row["input_tokens"] > 0 and row["usd"] > 0 for row in rows.values())


def test_export_in_other_forms(abreast):
    with start_storm(latency=0.001) as storm:
        declare(abreast, storm)
        write(abreast, inputs=2, repeats=1)
        abreast("matrix", "run", "study.yaml", "--no-report")
    table = abreast("matrix", "export", "study", "--format", "csv").lines
    assert len(table) == 1 + 12
    assert "score_contains" in table[0]
    assert abreast("matrix", "export", "study", "--format", "csv", "--out", "rows.csv").code == 0
    assert (abreast.folder / "rows.csv").read_text().splitlines() == table
    abreast.file("flow.yaml", "workflow: {id: f}\nsteps: [{id: a, type: shell, run: 'true'}]")
    abreast("run", "flow.yaml")
    assert "f-1 is no study, but a workflow" in abreast("matrix", "export", "f").err


def storm_of_kills(abreast, *, kills, seed):
    chance = random.Random(seed)
    with start_storm(latency=0.02) as storm:
        declare(abreast, storm)
        cells = write(abreast, inputs=10, repeats=2)
        killed = 0
        while killed < kills:
            wanted = storm.stats().arrived + chance.randrange(1, 15)
            with abreast.start(
                "matrix", "run", "study.yaml", "--no-report", measured=False
            ) as process:
                with storm.killing(process, wanted):
                    process.communicate(timeout=PATIENCE)
            if process.returncode != -signal.SIGKILL:
                break
            killed += 1
        said = abreast("matrix", "run", "study.yaml", "--no-report")
        assert said.code == 0, said
        rows = rows_of(abreast)
        assert len(rows) == cells
        asked = storm.stats().arrived
        assert asked <= 80 + killed * 2 * 10  # at most the cells under way, per kill
        abreast("matrix", "run", "study.yaml", "--no-report")
        assert storm.stats().arrived == asked
    return killed


def test_killed_it_goes_on_with_what_is_missing(abreast):
    assert storm_of_kills(abreast, kills=3, seed=1) >= 1


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_killed_thirty_times_it_goes_on_with_what_is_missing(tmp_path, warm):
    killed = seed = 0
    while killed < 30:
        folder = tmp_path / str(seed)
        folder.mkdir()
        killed += storm_of_kills(ForkingShell(folder, warm), kills=6, seed=seed)
        seed += 1


def test_a_mean_below_what_is_asked_is_exit_1_and_files_for_ci_are_written(abreast):
    abreast.file(
        "study.yaml",
        """
matrix:
  models: [scripted/replies.jsonl]
  strategies: {plain: {prompt: "Good? {{ input.text }}"}, python: {python: "mine:missing"}}
  inputs: [{id: a, text: kettle, truth: "yes"}, {id: b, text: zip, truth: "no"}]
  scores: [exact]
""",
    )
    replies = [{"prompt": f"Good? {what}", "reply": "yes"} for what in ("kettle", "zip")]
    abreast.file("replies.jsonl", "".join(f"{json.dumps(reply)}\n" for reply in replies))
    run = ("matrix", "run", "study.yaml", "--no-report", "--quiet")

    assert abreast(*run, "--fail-under", "near=1").code == 2
    assert not (abreast.folder / ".abreast").exists()  # nothing was begun
    said = abreast(*run, "--fail-under", "exact=0.5", "--junit", "study.xml", "--summary", "s.md")
    assert said.code == 1
    assert "there is no mean of exact (missing: " in said.err  # what can't run is under it
    assert "| 0.500 |" in (abreast.folder / "s.md").read_text("utf-8")
    assert (abreast.folder / "study.xml").read_text("utf-8").count("<testcase") == 4
    report = ("matrix", "report", "study")
    assert abreast(*report, "--fail-under", "plain:exact=0.5").code == 0
    assert abreast(*report, "--junit", "nowhere/study.xml").code == 2
