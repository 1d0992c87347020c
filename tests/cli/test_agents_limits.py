"""Budgets, limits and kills: agents are stopped, parked and resumed, and never run twice."""

import json
import signal
from contextlib import closing

import pytest

from abreast.store.port import each_event
from abreast.store.sqlite.store import SqliteStore
from abreast.views.lanes import LaneChart
from tests.cli.agent_projects import agent_project, processes_of
from tests.turns import wait_until
from tests.worktrees.repositories import git, left_in, look

MAP = ("map", "--agent", "stub", "--worktree", "--prompt", "{}", "--key", "{}")

SPENDS = """
say(kind="start", session="s")
open(os.environ["NOTES"] + "/" + task, "w").write("x")
for turn in range(1, 11):
    say(kind="turn", id=turn, input=10, output=1, cost=turn * 0.1)
    sys.stdin.read()
end(cost=1.0)
"""


def test_a_budget_is_held_within_a_turn(tmp_path, warm):
    project = agent_project(tmp_path, warm, SPENDS)
    tasks = "\n".join(f"t{number}" for number in range(10))
    said = project(*MAP, "-P", "1", "--budget", "1.25usd", given=tasks)
    assert said.code == 3, said
    assert "the budget is spent" in said.err
    spent = json.loads(project("show", "last", "--json").out)["spent"]
    assert 1.25 < spent["usd"] <= 1.25 + 0.1001
    assert sorted(path.name for path in (tmp_path / "notes").iterdir()) == ["t0", "t1"]
    assert left_in(tmp_path / "cache") == []


def test_a_turn_is_a_request_of_the_budget(tmp_path, warm):
    project = agent_project(tmp_path, warm, SPENDS)
    said = project(*MAP, "-P", "1", "--budget", "12req", given="t0\nt1\nt2\n")
    assert said.code == 3, said
    assert "13 of 12 requests used, and stub was ended in a turn" in said.err
    assert json.loads(project("show", "last", "--json").out)["spent"]["requests"] == 13
    assert project("resume", "--budget", "100req").code == 0
    # What was cut off stays counted; t1 begins anew.
    assert json.loads(project("show", "last", "--json").out)["spent"]["requests"] == 33


LIMITED = """
open(os.environ["NOTES"] + "/ran-" + task, "a").write("x")
if task == "b" and not os.path.exists(os.environ["NOTES"] + "/again"):
    say(kind="error", text="usage limit reached, try again in 2 hours")
else:
    open("own-" + task, "w").write(task)
    end()
"""


def test_a_usage_limit_parks_the_lane_and_a_resume_goes_on(tmp_path, warm):
    project = agent_project(tmp_path, warm, LIMITED)
    said = project(*MAP, "-P", "1", given="a\nb\nc")
    assert said.code == 3, said
    assert "usage limit reached" in said.err
    assert "in 2.0 hours" in said.err
    assert "abreast resume map-1" in said.err
    (tmp_path / "notes/again").touch()
    again = project("resume", "--json")
    assert again.code == 0, again
    assert [row["state"] for row in again.rows] == ["done"] * 3
    ran = {path.name: path.read_text() for path in (tmp_path / "notes").glob("ran-*")}
    assert ran == {"ran-a": "x", "ran-b": "xx", "ran-c": "x"}
    assert project("plan", "apply", "last").code == 0


THROTTLED = """
place = os.environ["NOTES"] + "/rejected"
if task == "b" and not os.path.exists(place):
    open(place, "w").write("x")
    open("half", "w").write("x")
    say(kind="start", session="s")
    say(kind="error", text="429, try again in 1s")
else:
    end("half" if os.path.exists("half") else "anew", cost=0.1)
"""


def test_a_429_inside_holds_the_lane_and_is_no_failure(tmp_path, warm):
    project = agent_project(tmp_path, warm, THROTTLED)
    said = project(*MAP, "-P", "2", "--json", given="a\nb\nc")
    assert said.code == 0, said
    assert [row["state"] for row in said.rows] == ["done"] * 3
    assert [row["attempts"] for row in said.rows] == [1, 1, 1]
    # It can't go on with a session, so it begins with a clean tree.
    assert [row["value"]["text"] for row in said.rows] == ["anew"] * 3


SLOW = """
notes = os.environ["NOTES"]
open(notes + "/ran-" + task, "a").write("x")
open("own-" + task, "w").write(task)
say(kind="start", session="s-" + task)
while int(task) >= int(open(notes + "/free").read() or 0):
    time.sleep(0.01)
end()
"""


ROUNDS = [0, 2, 5, *(pytest.param(at, marks=pytest.mark.soak) for at in (1, 3, 4))]


@pytest.mark.parametrize("killed_at", ROUNDS)
def test_after_a_kill_finished_agents_are_not_run_again_and_nothing_is_left(
    tmp_path, warm, killed_at
):
    project = agent_project(tmp_path, warm, SLOW)
    notes = tmp_path / "notes"
    (notes / "free").write_text(str(killed_at))
    before = look(project.folder / ".git")
    project.file("tasks", "\n".join(map(str, range(6))))
    with project.start(*MAP, "-P", "2", "-a", "tasks", "--json") as running:
        for line in running.stdout if killed_at else ():
            if json.loads(line)["key"] == str(killed_at - 1):
                break
        if killed_at < 6:
            wait_until((notes / f"ran-{killed_at}").exists)
        running.send_signal(signal.SIGKILL)
        running.wait()
    (notes / "free").write_text("6")
    said = project("resume", "--json")
    assert said.code == 0, said
    assert [row["state"] for row in said.rows] == ["done"] * 6
    ran = [(notes / f"ran-{number}").read_text() for number in range(6)]
    assert ran[:killed_at] == ["x"] * killed_at
    assert all(len(one) <= 2 for one in ran)
    assert processes_of(tmp_path) == []
    assert left_in(tmp_path / "cache") == []
    assert git(project.folder, "branch", "--list").split() == ["*", "main", "other"]
    assert look(project.folder / ".git") == before
    assert project("plan", "apply", "last").code == 0
    assert [(project.folder / f"own-{number}").read_text() for number in range(6)] == [*"012345"]


RESUMED = """
notes = os.environ["NOTES"]
session = sys.argv[2] if "--resume" in sys.argv else ""
open(notes + "/ran", "a").write(session + "|" + task + "\\n")
if session and os.path.exists(notes + "/forgotten"):
    sys.exit("No conversation found")
if session:
    open("half", "a").write("second half")
    end("went on")
else:
    say(kind="start", session="s-1")
    open("half", "w").write("first half, ")
    open(notes + "/ready", "w").write("x")
    while not os.path.exists(notes + "/free"):
        time.sleep(0.01)
    end("alone")
"""


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_session_is_resumed_after_a_kill_in_the_tree_that_it_had(tmp_path, warm, forgotten):
    stub = str(tmp_path / "stub")
    project = agent_project(tmp_path, warm, RESUMED, resume=[stub, "--resume", "{session}"])
    notes = tmp_path / "notes"
    project.file("tasks", "the task\n")
    with project.start(*MAP, "-a", "tasks", "--json") as running:
        wait_until(lambda: (notes / "ready").exists() and known_session(project))
        running.send_signal(signal.SIGKILL)
        running.wait()
    (notes / "free").touch()
    if forgotten:
        (notes / "forgotten").touch()
    said = project("resume", "--json")
    assert said.code == 0, said
    asked = (notes / "ran").read_text().splitlines()
    assert asked[0] == "|the task"
    assert asked[1].startswith("s-1|You were cut off")
    assert asked[2:] == (["|the task"] if forgotten else [])
    assert project("plan", "apply", "last").code == 0
    whole = "first half, " if forgotten else "first half, second half"
    assert (project.folder / "half").read_text() == whole
    assert left_in(tmp_path / "cache") == []


def known_session(project):
    """Whether the session of the agent is on the disk."""
    with closing(SqliteStore(str(project.store))) as store:
        return bool(store.events("map-1", kinds={"agent-started"}, limit=1))


BRIEFLY_LIMITED = """
place = os.environ["NOTES"] + "/limited"
open(os.environ["NOTES"] + "/ran", "a").write("x")
if not os.path.exists(place):
    open(place, "w").write("x")
    say(kind="turn", id=1, input=7, output=3, cost=0.1)
    say(kind="error", text="usage limit reached, try again in 2 hours")
else:
    end(cost=0.25)
"""


JOBS = {
    "map": (*MAP, "-P", "1", "-a", "tasks"),
    "sample": ("sample", "--agent", "stub", "--check", "run true", "mend it"),
    "plan": ("plan", "run", "--agent", "stub", "--prompt", "mend it", "--include", "pkg/"),
    "workflow": ("run", "flow.yaml"),
}


@pytest.mark.parametrize("job", JOBS)
def test_with_wait_a_run_says_until_when_it_waits_and_goes_on_after_an_interrupt(
    tmp_path, warm, job
):
    project = agent_project(tmp_path, warm, BRIEFLY_LIMITED)
    project.file("tasks", "a\nb")
    step = "{id: mend, type: prompt, prompt: mend it, integration: stub, worktree: true}"
    project.file("flow.yaml", f"workflow: {{id: flow}}\nsteps:\n  - {step}\n")
    with project.start(*JOBS[job], "--wait", "--budget", "9usd") as running:
        said = next(line for line in running.stderr if b"waiting" in line)
        running.send_signal(signal.SIGINT)
        assert running.wait() == 130
    assert b"in 2.0 hours" in said
    assert (tmp_path / "notes/ran").read_text() == "x"
    again = project("resume", "--wait", "--json")
    assert again.code == 0, again
    spent = json.loads(project("show", "last", "--json").out)["spent"]
    # What the limited agent had used is not lost, although it waited for its limit to end.
    assert spent["usd"] == pytest.approx(0.6 if job == "map" else 0.35)


@pytest.mark.parametrize(
    "words",
    [
        ("map", "--wait", "--", "true"),
        ("sample", "--wait", "x"),
        ("plan", "run", "--wait", "--command", "true"),
    ],
)
def test_wait_is_for_agents(tmp_path, warm, words):
    project = agent_project(tmp_path, warm, BRIEFLY_LIMITED)
    said = project(*words, given="a\n")
    assert said.code == 2, said
    assert "--wait is for --agent" in said.err


HALF_WAY = """
notes = os.environ["NOTES"]
session = sys.argv[2] if "--resume" in sys.argv else ""
open(notes + "/ran", "a").write(session + "|" + task + "\\n")
if session:
    open("half", "a").write("second half")
    end("went on", cost=0.25)
else:
    say(kind="start", session="s-1")
    open("half", "w").write("first half, ")
    say(kind="turn", id=1, input=7, output=3, cost=0.1)
    say(kind="error", text="usage limit reached, try again in 2 hours")
"""


def test_what_was_used_before_a_limit_is_counted_and_the_session_goes_on_later(tmp_path, warm):
    stub = str(tmp_path / "stub")
    project = agent_project(tmp_path, warm, HALF_WAY, resume=[stub, "--resume", "{session}"])
    said = project(*MAP, "--budget", "9usd", given="the task")
    assert said.code == 3, said
    spent = json.loads(project("show", "last", "--json").out)["spent"]
    assert (spent["usd"], spent["tokens"]) == (0.1, 10)
    again = project("resume", "--json")
    assert again.code == 0, again
    asked = (tmp_path / "notes/ran").read_text().splitlines()
    assert asked[0] == "|the task"
    assert asked[1].startswith("s-1|You were cut off")
    assert json.loads(project("show", "last", "--json").out)["spent"]["usd"] == pytest.approx(0.35)
    assert project("plan", "apply", "last").code == 0
    assert (project.folder / "half").read_text() == "first half, second half"
    assert left_in(tmp_path / "cache") == []


SPENDS_TOGETHER = """
notes = os.environ["NOTES"]
open(notes + "/" + task, "w").write("x")
say(kind="start", session="s")
for turn in range(1, 11):
    say(kind="turn", id=turn, input=10, output=1, cost=turn * 0.05)
    # A turn is begun by all four, or by none: so what is spent does not depend on the machine.
    open(f"{notes}/turn-{task}-{turn}", "w").close()
    while len([name for name in os.listdir(notes) if name.endswith(f"-{turn}")]) < 4:
        time.sleep(0.01)
end(cost=0.5)
"""


def test_ten_agents_side_by_side_stop_within_one_turn_of_each_at_a_dollar(tmp_path, warm):
    project = agent_project(tmp_path, warm, SPENDS_TOGETHER)
    tasks = "\n".join(f"t{number}" for number in range(10))
    said = project(*MAP, "-P", "4", "--budget", "1usd", given=tasks)
    assert said.code == 3, said
    assert "the budget is spent" in said.err
    spent = json.loads(project("show", "last", "--json").out)["spent"]["usd"]
    # Each of the four may be in a turn when the first report passes the cap.
    assert 1.0 < spent <= 1.0 + 4 * 0.05 + 1e-9
    started = [path.name for path in (tmp_path / "notes").iterdir() if "-" not in path.name]
    assert sorted(started) == ["t0", "t1", "t2", "t3"]
    assert left_in(tmp_path / "cache") == []
    assert processes_of(tmp_path) == []


STEPPING = """
say(kind="step", text="looked around")
open(os.environ["NOTES"] + "/stepped", "w").close()
while not os.path.exists(os.environ["NOTES"] + "/free"):
    time.sleep(0.01)
end()
"""


@pytest.mark.parametrize("job", JOBS)
def test_while_an_agent_runs_watch_shows_its_last_step(tmp_path, warm, job):
    project = agent_project(tmp_path, warm, STEPPING)
    project.file("tasks", "a")
    step = "{id: mend, type: prompt, prompt: mend it, integration: stub, worktree: true}"
    project.file("flow.yaml", f"workflow: {{id: flow}}\nsteps:\n  - {step}\n")
    with project.start(*JOBS[job]) as running:
        # Not sooner: to open the store again and again would hold up the run that is to begin.
        try:
            wait_until((tmp_path / "notes/stepped").exists)
            wait_until(lambda: watched_steps(project))
            steps = watched_steps(project)
        finally:
            (tmp_path / "notes/free").touch()
        assert running.wait() == 0
    assert steps == ["looked around"]
    assert watched_steps(project) == []


def watched_steps(project):
    """The last steps that `watch` shows of the newest run."""
    chart = LaneChart()
    with closing(SqliteStore(str(project.store))) as store:
        for row in store.runs(limit=1):
            for event in each_event(store, row.id):
                chart.add(event)
    return [step for _, step in chart.agents.items()]
