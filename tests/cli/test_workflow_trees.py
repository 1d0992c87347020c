"""`worktree: true` in a workflow: trees of their own, merged as the parts of a plan are."""

import json
import signal

import pytest

import abreast
from tests.cli.agent_projects import agent_project, processes_of
from tests.turns import wait_until
from tests.worktrees.repositories import git, left_in, look

EDITS = """
say(kind="start", session="s-" + task)
open("own-" + task, "w").write("by " + task + "\\n")
if task in ("a", "b"):
    open("shared.txt", "a").write("by " + task + "\\n")
open(os.environ["NOTES"] + "/ran", "a").write(task + " " + " ".join(sys.argv[1:]) + "\\n")
end("did " + task, cost=0.25)
"""
FLOW = """
workflow: {id: agents}
steps:
  - id: fan
    type: fan-out
    items: [a, b, c]
    key: "{{ item }}"
    max_concurrency: 2
    worktree: true
    step: {id: do, type: agent, agent: stub, prompt: "{{ item }}"}
"""
IN_TURN = """
workflow: {id: turns}
steps:
  - id: fan
    type: fan-out
    items: [a, c]
    max_concurrency: 2
    worktree: true
    steps:
      - {id: do, type: agent, agent: stub, prompt: "{{ item }}", allow: [edit]}
      - id: more
        type: shell
        run: |  # fails when the agents of both have ended: the first failure stops the rest
          cat own-{{ item }} > copy-{{ item }}
          touch $NOTES/copied-{{ item }}
          until test -e $NOTES/copied-a && test -e $NOTES/copied-c; do sleep 0.05; done
          test -e $NOTES/go
  - {id: last, type: shell, run: "ls > listed", worktree: true}
"""

NESTED = """
    id: f
    type: fan-out
    items: [1]
    worktree: true
    step: {id: g, type: fan-out, items: [1], step: {id: h, type: shell, run: ls}}
"""


@pytest.fixture
def project(tmp_path, warm):
    return agent_project(tmp_path, warm, EDITS)


def run(project, text, code=0):
    project.file("flow.yaml", text)
    said = project("run", "flow.yaml", "--json")
    assert said.code == code, said
    return json.loads(said.out)


def files(project):
    return look(project.folder, without=[".abreast"])


def test_each_item_of_a_fan_out_has_a_tree_and_conflicts_block_the_merge(project, tmp_path):
    project.file("flow.yaml", FLOW)
    before = files(project)
    steps = run(project, FLOW)["steps"]
    assert files(project) == before
    output = steps["fan:do:0"]["output"]
    assert output["text"] == "did a"
    assert output["agent"]["cost"] == 0.25
    assert output["tree"]["changed"] == ["own-a", "shared.txt"]
    blocked = project("plan", "apply", "last", "--json")
    assert blocked.code == 1, blocked
    (conflict,) = blocked.rows[0]["conflicts"]
    assert (conflict["file"], conflict["parts"]) == ("shared.txt", ["fan/a", "fan/b"])
    assert files(project) == before
    assert project("plan", "resolve", "last", "shared.txt", "--take", "fan/b").code == 0
    assert project("plan", "apply", "last").code == 0
    assert (project.folder / "shared.txt").read_text() == "one\ntwo\nthree\nby b\n"
    assert (project.folder / "own-c").read_text() == "by c\n"
    assert project("plan", "undo").code == 0
    assert files(project) == before
    assert processes_of(tmp_path) == []


def test_the_steps_of_an_item_work_in_its_tree_in_turn_also_after_a_failure(project, tmp_path):
    project.file("flow.yaml", IN_TURN)
    before = files(project)
    run(project, IN_TURN, code=1)
    (tmp_path / "notes/go").touch()
    said = project("resume", "--json")
    assert said.code == 0, said
    assert sorted((tmp_path / "notes/ran").read_text().split()) == ["a", "c"]
    assert files(project) == before
    steps = json.loads(said.out)["steps"]
    assert steps["fan:more:0"]["output"]["tree"]["changed"] == ["copy-a", "own-a", "shared.txt"]
    assert steps["last"]["output"]["tree"]["changed"] == ["listed"]
    applied = project("plan", "apply", "last")
    assert applied.code == 0, applied
    assert (project.folder / "copy-c").read_text() == "by c\n"
    assert "own-a" not in (project.folder / "listed").read_text()


def test_each_part_can_become_a_branch(project):
    run(project, FLOW.replace("[a, b, c]", "[a, c]"))
    made = project("plan", "apply", "last", "--branches", "--json")
    assert made.code == 0, made
    names = git(project.folder, "branch", "--list", "abreast/*").split()
    assert git(project.folder, "show", f"{names[1]}:own-c") == "by c\n"
    assert not (project.folder / "own-a").exists()


def test_a_runner_and_a_single_step_work_in_a_tree_too(project):
    toml = (project.folder / "abreast.toml").read_text()
    project.file("abreast.toml", toml + '[runners.sh]\nargv = ["sh", "-c", "{prompt}"]\n')
    step = '{id: one, type: prompt, integration: sh, prompt: "echo x > y", worktree: true}'
    steps = run(project, f"workflow: {{id: w}}\nsteps:\n  - {step}\n")["steps"]
    assert steps["one"]["output"]["tree"]["changed"] == ["y"]
    assert not (project.folder / "y").exists()


@pytest.mark.parametrize(
    ("steps", "code", "sentence"),
    [
        ("{id: s, type: agent, agent: nobody, prompt: x}", 2, "there is no agent 'nobody'"),
        ("{id: s, type: agent, agent: stub, prompt: x, allow: [fly]}", 1, "be allowed 'fly'"),
        ("{id: s, type: shell, run: ls, cwd: .., worktree: true}", 1, "leads out of the step's"),
        ("{id: s, type: prompt, prompt: x, worktree: true}", 1, "worktree are for an agent's"),
        ("{id: s, type: python, call: 'a:b', worktree: true}", 2, "worktree"),
        (NESTED, 2, "one worktree for each item"),
    ],
)
def test_what_can_not_be_is_one_sentence(project, steps, code, sentence):
    project.file("flow.yaml", f"workflow: {{id: w}}\nsteps:\n  - {steps}\n")
    said = project("run", "flow.yaml")
    assert said.code == code, said
    assert sentence in said.err
    assert "Traceback" not in said.err


async def test_from_python_the_steps_have_trees_and_the_run_can_be_merged(project, monkeypatch):
    step = "{id: one, type: shell, run: echo x > y, worktree: true}"
    project.file("flow.yaml", f"workflow: {{id: w}}\nsteps:\n  - {step}\n")
    monkeypatch.chdir(project.folder)
    monkeypatch.setenv("ABREAST_CACHE", project.environment["ABREAST_CACHE"])
    store = project.folder / ".abreast/abreast.db"
    store.parent.mkdir(exist_ok=True)
    result = await abreast.workflow("flow.yaml", store=store)
    assert result.steps["one"].output["tree"]["changed"] == ["y"]
    assert not (project.folder / "y").exists()
    assert project("plan", "apply", "last").code == 0
    assert (project.folder / "y").read_text() == "x\n"


SLOW = """
notes = os.environ["NOTES"]
open(notes + "/ran-" + task, "a").write("x")
open("own-" + task, "w").write(task)
say(kind="start", session="s-" + task)
while task != "a" and not os.path.exists(notes + "/free"):
    time.sleep(0.01)
end()
"""


def test_after_a_kill_finished_items_are_not_run_again_and_nothing_is_left(tmp_path, warm):
    project = agent_project(tmp_path, warm, SLOW)
    project.file("flow.yaml", FLOW)
    notes, before = tmp_path / "notes", look(project.folder / ".git")
    with project.start("run", "flow.yaml") as running:
        # When c runs, a has ended: two run at once.
        wait_until((notes / "ran-c").exists)
        running.send_signal(signal.SIGKILL)
        running.wait()
    (notes / "free").touch()
    said = project("resume", "--json")
    assert said.code == 0, said
    ran = {name: (notes / f"ran-{name}").read_text() for name in ("a", "b", "c")}
    assert ran == {"a": "x", "b": "xx", "c": "xx"}
    assert processes_of(tmp_path) == []
    assert left_in(tmp_path / "cache") == []
    assert look(project.folder / ".git") == before
    assert project("plan", "apply", "last").code == 0
    assert sorted(path.name for path in project.folder.glob("own-*")) == ["own-a", "own-b", "own-c"]
