"""An agent has one lane in all jobs: `[lanes.NAME]` bounds how many of it run at once."""

import json

import pytest

from tests.cli.agent_projects import agent_project
from tests.jobs.candidates.projects import QUICK, SLOW, TESTS
from tests.worktrees.repositories import git

# Each agent waits until two were there at once, and stays a while for a third to be seen.
CODE = """
import fcntl
def count(change):
    with open(os.environ["NOTES"] + "/counts", "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        now, most, all = json.loads(file.read() or "[0, 0, 0]")
        now += change
        counts = [now, max(now, most), all + max(0, change)]
        file.truncate(0)
        file.write(json.dumps(counts))
    return counts
count(1)
last = time.monotonic() + 60
while count(0)[1] < 2 and time.monotonic() < last:
    time.sleep(0.02)
time.sleep(0.1)
count(-1)
end(" ".join(sys.argv[1:]))
"""
FLOW = """
workflow: {id: lanes, integration: stub}
steps:
  - {id: a, type: prompt, prompt: a, needs: []}
  - {id: b, command: b, needs: [], integration_options: {allow: run}}
  - {id: c, type: prompt, prompt: c, needs: [], model: large}
  - id: d
    type: fan-out
    needs: []
    items: [d, e]
    max_concurrency: 2
    step: {id: each, command: go, integration_options: {allow: read}}
"""
JOBS = {
    "map": ("map", "--agent", "stub", "--worktree", "--prompt", "{}", "-P", "4"),
    "plan": (
        *("plan", "run", "--agent", "stub", "--prompt", "x", "--min-files", "3", "-w", "4"),
        *(word for one in range(4) for word in ("--include", f"part{one}/")),
    ),
    "sample": ("sample", "--agent", "stub", "--breadth", "4", "--check", "run false", "x"),
    "workflow": ("run", "flow.yaml", "--width", "5"),
    "optimize": (
        *("optimize", "sums.py::pairs", "--tests", "test_sums.py", "--author", "stub", "-w", "4"),
        *("--proposals", "4", "--repairs", "0", "--generated", "0", "--behaviour-only"),
    ),
}
AGENTS = {"workflow": 5}


@pytest.fixture
def project(tmp_path, warm):
    made = agent_project(tmp_path, warm, CODE, model=["--model", "{model}"])
    lane = "[lanes.stub]\nwidth = 2\n"
    made.file("abreast.toml", (made.folder / "abreast.toml").read_text() + lane)
    made.file("flow.yaml", FLOW)
    return made


def prepare(project, job):
    if job == "plan":
        for one in range(12):
            project.file(f"part{one % 4}/m{one}.py", f"x = {one}\n")
    if job == "optimize":
        for name, text in (("sums.py", SLOW), ("test_sums.py", TESTS), ("pytest.ini", QUICK)):
            project.file(name, text)
    git(project.folder, "add", "-A")
    git(project.folder, "commit", "-qm", "more")


def peak(project, tmp_path, job):
    prepare(project, job)
    said = project(*JOBS[job], given="a\nb\nc\nd\n" if job == "map" else "")
    assert said.code in {0, 1}, said
    now, most, ran = json.loads((tmp_path / "notes/counts").read_text())
    assert (now, ran) == (0, AGENTS.get(job, 4)), said
    return most


@pytest.mark.parametrize("job", ["plan", "workflow"])
def test_as_many_agents_run_at_once_as_their_lane_has_places(project, tmp_path, job):
    assert peak(project, tmp_path, job) == 2


@pytest.mark.parametrize("job", ["map", "sample", "optimize"])
def test_other_jobs_keep_the_same_lane(project, tmp_path, job):
    assert peak(project, tmp_path, job) == 2
