"""Runs recorded by an earlier abreast are listed, shown and exported as then, and resume.

The store is `tests/fixtures/recorded`: of every job a finished run, one that stopped, and one whose
driver was killed while its last outcomes were noted and not yet committed.
"""

import base64
import json
import re
import sqlite3
import zlib
from collections import Counter
from contextlib import closing, suppress

import pytest

from tests.fixtures.recorded.load import HERE, load
from tests.fixtures.recorded.look import Commands, exported, listed, shown
from tests.fixtures.recorded.server import ModelServer
from tests.jobs.candidates.noise import expect_verdicts

EXPECTED = HERE / "expected"
KILLED = ("map-3", "prompts-3", "values-3", "sample-3", "flow-3", "study-3", "plan-3", "optimize-3")
# What depends on the time, and what was used: a run that was killed may have asked twice what was
# not recorded.
VARYING = {
    "concerns",  # of a draw: it is in what newer versions record
    "run",
    "attempts",
    "seconds",
    "queued",
    "waited",
    "backoff",
    "queue_s",
    "hold_s",
    "backoff_s",
    "service_s",
    "wall_s",
    "in_flight",
    "times",
    "usage",
    "requests",
    "input_tokens",
    "output_tokens",
    "usd",
    "estimate",
}


class Recorded(Commands):
    """The fixture in a directory of its own, with abreast in it."""

    def __init__(self, root, server, warm):
        super().__init__(root, server.url, warm)
        self.server = server
        load(root, server.url)

    def ask(self, statement, *values):
        """Look into the database without abreast, which would commit what is only noted."""
        with closing(sqlite3.connect(self.store)) as db:
            return db.execute(statement, values).fetchall()

    def settled(self, run, kind="item-settled", state="done"):
        """How often each path of a run was recorded in that state."""
        found = self.ask(
            "SELECT path FROM events JOIN runs ON events.run = runs.number"
            " WHERE runs.id = ? AND events.kind = ? AND json_extract(events.data, '$.state') = ?",
            run,
            kind,
            state,
        )
        return Counter(path for (path,) in found)

    def starts(self, run):
        """How often each piece of a run's work was started, by its name."""
        lines = [line.split() for line in (self.root / "starts").read_text().splitlines()]
        return Counter(name for of, name in lines if of == run)

    def noted(self):
        """The outcomes that are noted and not committed, by run: kinds and paths."""
        last = {
            number: (run, seq)
            for number, run, seq in self.ask("SELECT number, id, last_seq FROM runs")
        }
        found = {}
        for file in self.store.with_name("abreast.db-locks").glob("*.lock"):
            run, seq = last[int(file.stem)]
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            events = [event for _, _, events in lines for event in events if event[0] > seq]
            found[run] = [(event[1], event[2]) for event in events if event[1].endswith("-settled")]
        return found

    def answer(self, run):
        """The results of a run, without what differs from one driving to the next."""
        return [json.dumps(lasting(row)) for row in self("export", run).rows]


def lasting(value):
    """A row of an export without what depends on the time."""
    if isinstance(value, dict):
        return {name: lasting(inner) for name, inner in value.items() if name not in VARYING}
    return [lasting(inner) for inner in value] if isinstance(value, list) else value


@pytest.fixture
def server():
    with ModelServer() as server:
        yield server


@pytest.fixture
def recorded(tmp_path, server, warm):
    return Recorded(tmp_path, server, warm)


@pytest.fixture(scope="module")
def only_read(tmp_path_factory, warm):
    """The fixture for tests that start nothing in it."""
    with ModelServer() as server:
        yield Recorded(tmp_path_factory.mktemp("only-read"), server, warm)


# --- what is there ---


def test_every_job_has_a_finished_run_and_a_killed_one_with_notes_that_are_not_committed(recorded):
    runs = {
        run: (kind, state) for run, kind, state in recorded.ask("SELECT id, kind, state FROM runs")
    }
    jobs = {"map", "script", "sample", "workflow", "matrix", "candidates", "plan"}
    assert {runs[run][0] for run in KILLED} == jobs
    assert {runs[run] for run in KILLED} == {(kind, "running") for kind in jobs}
    assert {kind for kind, state in runs.values() if state == "done"} == jobs
    noted = recorded.noted()
    assert set(noted) == set(KILLED)
    for run, outcomes in noted.items():
        assert outcomes, run
        committed = recorded.settled(run) | recorded.settled(run, "call-settled")
        assert not committed.keys() & {path for _, path in outcomes}, run


def test_no_place_of_the_machine_that_made_it_is_in_the_fixture():
    place = re.compile(
        rb"(?<![\w}\]])/(tmp|home|root|work|Users|usr|var|opt)/|root@|localhost|127\.0\.0\.1"
    )
    for file in [*HERE.glob("*.json"), *HERE.glob("*.sql"), *EXPECTED.iterdir()]:
        assert not place.search(file.read_bytes()), file.name
    kept = json.loads((HERE / "files.json").read_text("utf-8")).values()
    for content in (base64.b64decode(each["base64"]) for each in kept if "base64" in each):
        assert not place.search(content)
        with suppress(zlib.error):  # an object of git
            assert not place.search(zlib.decompress(content))


def test_runs_are_listed_and_shown_as_they_were(only_read):
    runs = listed(only_read)
    assert runs == json.loads((EXPECTED / "runs.json").read_text())
    assert {run: shown(only_read, run) for run in runs} == json.loads(
        (EXPECTED / "show.json").read_text()
    )
    assert {run for run in runs if runs[run]["state"] == "crashed"} == set(KILLED)


def test_results_are_exported_as_they_were_with_those_that_were_only_noted(recorded):
    noted = recorded.noted()
    for file in sorted(EXPECTED.glob("*.jsonl")):
        assert exported(recorded, file.stem) == file.read_text("utf-8"), file.stem
    (long,) = recorded("export", "long-1").rows
    assert long["stdout"] == f"{0:066000}1"
    for run, outcomes in noted.items():
        committed = recorded.settled(run) | recorded.settled(run, "call-settled")
        assert {path for _, path in outcomes} <= committed.keys(), run
    assert not any(recorded.noted().values())


@pytest.mark.parametrize(
    "run", ["map-3", "values-1", "sample-1", "flow-2", "study-3", "plan-1", "optimize-1"]
)
def test_a_run_is_shown_and_has_its_page(only_read, run):
    assert run in only_read("show", run).out
    said = only_read("export", run, "--html", "--output", "-")
    assert (said.code, said.err) == (0, "")
    assert run in said.out


# --- going on after a kill ---


def go_on(recorded, run, *words):
    """Resume a run: recorded work is not repeated, and models get only the other requests."""
    noted = {path for _, path in recorded.noted()[run]}
    assert recorded("runs").code == 0  # commits what is noted
    before, calls, asked = (
        recorded.settled(run),
        recorded.settled(run, "call-settled"),
        len(recorded.server.asked),
    )
    assert noted <= (before | calls).keys()
    said = recorded.program(*words)
    assert said.code == 0, said
    again = recorded.settled(run)
    assert {path: again[path] for path in before} == before
    assert set(again.values()) == {1}
    after = recorded.settled(run, "call-settled")
    assert {path: after[path] for path in calls} == calls
    done = after.total() - calls.total()
    lost = recorded.settled(
        run, "call-settled", "cancelled"
    ).total()  # of another branch, when one has passed
    assert done <= len(recorded.server.asked) - asked <= done + lost
    return said


def test_a_killed_map_of_commands_goes_on(recorded):
    go_on(recorded, "map-3", "abreast", "resume", "map-3")
    assert recorded.answer("map-3") == recorded.answer("map-1")
    starts = recorded.starts("map-3")
    assert {name: starts[name] for name in "0123"} == dict.fromkeys("0123", 1)


def test_a_killed_map_of_prompts_goes_on(recorded):
    go_on(recorded, "prompts-3", "abreast", "resume", "prompts-3")
    assert recorded.answer("prompts-3") == recorded.answer("prompts-1")
    assert len(recorded.server.asked) == 2


def test_a_killed_script_goes_on(recorded):
    go_on(recorded, "values-3", str(recorded.root / "desk/values.py"), "values-3")
    assert recorded.answer("values-3") == recorded.answer("values-1")
    starts = recorded.starts("values-3")
    once = [*(f"item-{number}" for number in (0, 1, 2, 3, 4, 6)), "child-0", "child-2"]
    assert {name: starts[name] for name in once} == dict.fromkeys(once, 1)
    assert recorded.server.asked == []


REREAD = """
import asyncio
import abreast
import values

def words(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return " ".join([type(value).__name__, *map(words, inner)])

async def main():
    where = {"store": ".abreast/abreast.db", "run_id": "values-1"}
    async with abreast.open_run("values", **where, resume="must") as run:
        items = [{"number": number} for number in range(8)]
        async for outcome in run.map(values.work, items, width=2, name="items"):
            print(words(outcome.value) if outcome.ok else outcome.error.kind)
            if outcome.index == 0:
                first, second = outcome.value[0], outcome.value[1]
                print(first.at, second["outcome"].value.height, second["colour"].text)

asyncio.run(main())
"""


def test_values_of_a_script_come_back_in_their_types(recorded):
    script = recorded.root / "desk/reread.py"
    script.write_text(REREAD)
    said = recorded.program(str(script))
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [
        "list Point dict Done SampleResult",
        "/srv/points 49 green",
        "Box",
        "list Colour PurePosixPath date timedelta bytes tuple",
        "list Decimal Fraction complex UUID dict str float int",
        "LookupError",
        "dict list Size Size Size int",
        "dict int Point",
        "dict int Point",
    ]
    assert recorded.starts("values-1").total() == 12  # nothing of it ran again


def test_a_killed_sample_goes_on(recorded):
    calls = recorded.settled("sample-3", "call-settled")
    said = go_on(recorded, "sample-3", "abreast", "resume", "sample-3", "--json")
    (result,) = said.rows
    assert (result["ok"], result["text"]) == (True, "green")
    assert (result["winner"]["branch"], result["winner"]["round"]) == (0, 2)
    assert recorded.answer("sample-3")[0] == recorded.answer("sample-1")[0]
    assert len(recorded.server.asked) <= 6 - len(calls) - 1


def test_a_killed_workflow_goes_on(recorded):
    said = go_on(recorded, "flow-3", "abreast", "resume", "flow-3", "--json")
    assert said.rows[0]["outputs"]["colour"] == "green"
    assert recorded.answer("flow-3") == recorded.answer("flow-1")
    starts = recorded.starts("flow-3")
    assert starts.keys() == {"list", "begin-a", "begin-b", "begin-c", "begin-d", "end"}
    assert set(starts.values()) == {1}
    assert len(recorded.server.asked) == 4  # an item of the fan-out, and three colours


def test_a_killed_study_goes_on(recorded):
    go_on(recorded, "study-3", "abreast", "resume", "study-3")
    assert rows_of(recorded, "study-3") == rows_of(recorded, "study-1")


def rows_of(recorded, run):
    """The rows of a study, by cell."""
    return {row["cell"]: lasting(row) for row in recorded("matrix", "export", run).rows}


def test_a_killed_plan_goes_on_and_is_applied(recorded):
    go_on(recorded, "plan-3", "abreast", "resume", "plan-3")
    assert recorded.answer("plan-3") == recorded.answer("plan-1")
    starts = recorded.starts("plan-3")
    assert (starts["cart/"], starts["money/"]) == (1, 1)
    assert recorded("plan", "apply", "plan-3").code == 0
    assert written(recorded) == CHANGED


CHANGED = {
    f"{part}/{name}.txt": f"{part} {name}\n# changed\n"
    for part in ("cart", "money", "stock", "words")
    for name in ("one", "three")
}


def written(recorded):
    """The files of the repository that plans are made for."""
    plan = recorded.root / "plan"
    return {path.relative_to(plan).as_posix(): path.read_text() for path in plan.glob("*/*.txt")}


def test_killed_candidates_go_on_to_the_same_winner(recorded):
    said = go_on(recorded, "optimize-3", "abreast", "resume", "optimize-3", "--json")
    verdicts = {one["name"]: (one["verdict"], one["reason"]) for one in said.rows[0]["candidates"]}
    expect_verdicts(verdicts, {"a_wrong": "wrong", "b_fast": "faster", "c_bad": "error"})
    assert said.rows[0]["winner"] == "b_fast"
    reports = recorded.store.parent / "reports"
    assert (reports / "optimize-3.patch").read_bytes() == (
        reports / "optimize-1.patch"
    ).read_bytes()


# --- going on after a stop ---


def test_a_gate_is_approved_and_its_workflow_goes_on(recorded):
    assert recorded("resume", "flow-2", "--input", "look=approve").code == 0
    assert recorded.answer("flow-2") == recorded.answer("flow-1")
    assert recorded.starts("flow-2") == recorded.starts("flow-1")
    assert (
        len(recorded.server.asked) == 3
    )  # three colours; what was asked before the gate is recorded


def test_a_gate_is_rejected_and_its_workflow_ends(recorded):
    assert recorded("resume", "flow-2", "--input", "look=reject").code == 1
    assert "end" not in recorded.starts("flow-2")
    assert recorded.server.asked == []


def test_the_failed_item_that_ended_a_map_is_tried_again(recorded):
    assert recorded("retry", "map-2").code == 0
    assert recorded.answer("map-2") == recorded.answer("map-1")
    starts = recorded.starts("map-2")
    assert [starts[name] for name in "0123"] == [1, 1, 1, 2]


def test_a_script_that_stopped_goes_on(recorded):
    assert recorded.program(str(recorded.root / "desk/values.py"), "values-2").code == 0
    assert recorded.answer("values-2") == recorded.answer("values-1")
    assert recorded.starts("values-2")["child-1"] == 1


def test_prompts_with_a_spent_budget_go_on(recorded):
    assert recorded("resume", "prompts-2", "--budget", "1000req").code == 0
    assert recorded.answer("prompts-2") == recorded.answer("prompts-1")
    assert len(recorded.server.asked) == 3


def test_a_study_with_a_spent_budget_goes_on(recorded):
    calls = recorded.settled("study-2", "call-settled")
    assert recorded("resume", "study-2", "--budget", "1000req").code == 0
    assert rows_of(recorded, "study-2") == rows_of(recorded, "study-1")
    assert (
        len(recorded.server.asked)
        == recorded.settled("study-1", "call-settled").total() - calls.total()
    )


def test_a_sample_with_a_spent_budget_goes_on_to_the_same_winner(recorded):
    said = recorded("resume", "sample-2", "--budget", "1000req", "--json")
    assert (said.code, said.rows[0]["text"]) == (0, "green")
    assert recorded.answer("sample-2")[0] == recorded.answer("sample-1")[0]


def test_the_failed_part_of_a_plan_is_tried_again(recorded):
    assert recorded("resume", "plan-2", "--only-failed").code == 0
    assert recorded.answer("plan-2") == recorded.answer("plan-1")
    assert recorded.starts("plan-2") == {"cart/": 1, "money/": 1, "stock/": 2, "words/": 1}
    assert recorded("plan", "apply", "plan-1").code == 0
    assert written(recorded) == CHANGED


def test_candidates_of_a_model_go_on_when_the_budget_is_raised(recorded):
    said = recorded("resume", "optimize-2", "--budget", "50req", "--json")
    assert said.code == 0, said
    assert [one["verdict"] for one in said.rows[0]["candidates"]] == ["wrong", "wrong"]
    assert len(recorded.server.asked) == 1  # the repair; what was proposed is recorded
