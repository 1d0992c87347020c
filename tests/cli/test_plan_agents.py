"""`abreast plan run --agent`: an agent for each subplan, merged as every plan is."""

import json

import pytest

from tests.cli.agent_projects import agent_project
from tests.worktrees.repositories import git, look

CODE = """
part = [line[2:] for line in task.splitlines() if line.startswith("- ")]
for name in part:
    open(name, "a").write("# " + task.splitlines()[0] + "\\n")
say(kind="step", text="appended to " + str(len(part)))
end(" ".join(sys.argv[1:]) or "no words", cost=0.1)
"""


@pytest.fixture
def project(tmp_path, warm):
    made = agent_project(tmp_path, warm, CODE)
    for part in ("alpha", "beta"):
        for one in range(3):
            made.file(f"{part}/m{one}.py", f"x = {one}\n")
    git(made.folder, "add", "alpha", "beta")
    git(made.folder, "commit", "-qm", "parts")
    return made


def test_an_agent_works_on_each_subplan_and_its_work_is_merged(project):
    before = look(project.folder / ".git")
    said = project(
        *("plan", "run", "--agent", "stub", "--prompt", "look at this", "--include", "alpha/"),
        *("--include", "beta/", "--min-files", "3", "--json", "--budget", "5usd"),
    )
    assert said.code == 0, said
    parts = json.loads(said.out)["subplans"]
    assert [part["value"]["agent"]["steps"] for part in parts] == [["appended to 3"]] * 2
    assert project("plan", "apply", "last").code == 0
    assert (project.folder / "beta/m2.py").read_text() == "x = 2\n# look at this\n"
    assert look(project.folder / ".git") == before
    assert json.loads(project("show", "last", "--json").out)["spent"]["usd"] == 0.2


def test_an_agent_is_told_what_it_may_do(project):
    for words, said in (((), "no words"), (("--allow", "run"), "--run")):
        ran = project(
            *("plan", "run", "--agent", "stub", "--prompt", "x", "--include", "alpha/", "--json"),
            *words,
        )
        assert json.loads(ran.out)["subplans"][0]["value"]["text"] == said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--agent", "stub"), "--agent needs a task: give --prompt"),
        (("--agent", "stub", "--prompt", "x", "--command", "y"), "exclude each other"),
        (("--agent", "none", "--prompt", "x"), "there is no agent 'none'"),
        (("--prompt", "x", "--allow", "edit"), "--allow is for an agent"),
        (("--agent", "stub", "--prompt", "x", "--executor", "ray"), "leave --executor out"),
    ],
)
def test_what_can_not_be_is_one_sentence(project, words, sentence):
    said = project("plan", "run", *words)
    assert said.code == 2, said
    assert sentence in said.err
