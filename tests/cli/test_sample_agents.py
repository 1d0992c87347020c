"""`abreast sample --agent`: the best of several agents, each in its tree, by sample's own rule."""

import json

import pytest

from tests.cli.agent_projects import agent_project, processes_of
from tests.worktrees.repositories import left_in, look

# The tree of branch 0 is wrong in its first turn, those of 1 and 2 are right: the winner is 1.
CODE = """
notes = os.environ["NOTES"]
open(f"{notes}/began-{os.getpid()}", "w").write(task)
turn = json.load(open("turn")) if os.path.exists("turn") else 0
json.dump(turn + 1, open("turn", "w"))
where = os.path.basename(os.getcwd()).rsplit("-", 1)[-1]
open("answer", "w").write("wrong" if where == "0" and turn == 0 else "right " + where)
end("I have done it.", cost=0.5)
"""


@pytest.fixture
def project(tmp_path, warm):
    return agent_project(tmp_path, warm, CODE)


def sample(project, *more, width=3, code=0):
    text = (project.folder / "abreast.toml").read_text().partition("[lanes")[0]
    project.file("abreast.toml", f"{text}[lanes.stub]\nwidth = {width}\n")
    said = project(
        *("sample", "--agent", "stub", "--breadth", "3", "--check", "grep -q right answer"),
        *("--json", "mend it", *more),
    )
    assert said.code == code, said
    return json.loads(said.out)


@pytest.mark.parametrize("width", [1, 3])
def test_the_winner_is_the_same_at_any_width_and_its_tree_is_merged(project, tmp_path, width):
    before = look(project.folder / ".git")
    result = sample(project, width=width)
    assert (result["winner"]["branch"], result["winner"]["round"]) == (1, 0)
    began = len([*(tmp_path / "notes").glob("began-*")])
    assert began == 2 if width == 1 else began <= 3
    assert result["attempts"][0]["state"] == "failed"
    assert "exit code 1" in result["attempts"][0]["verdicts"][0]["reason"]
    assert not (project.folder / "answer").exists()
    assert project("plan", "apply", "last").code == 0
    assert (project.folder / "answer").read_text().startswith("right")
    assert look(project.folder / ".git") == before
    assert left_in(tmp_path / "cache") == []
    assert processes_of(tmp_path) == []


def test_a_repair_goes_on_in_the_tree_of_its_branch(project):
    result = sample(project, "--breadth", "1", "--depth", "2", "--strategy", "repair")
    assert (result["winner"]["branch"], result["winner"]["round"]) == (0, 1)
    assert "turn" in result["attempts"][1]["work"]["changed"]
    assert project("plan", "apply", "last").code == 0
    assert (project.folder / "turn").read_text() == "2"


def test_asked_the_same_again_an_agent_begins_anew(project):
    result = sample(project, "--breadth", "1", "--depth", "2", code=1)
    assert [one["state"] for one in result["attempts"]] == ["failed", "failed"]


def test_without_a_winner_there_is_nothing_to_merge(project):
    said = project(
        *("sample", "--agent", "stub", "--check", "run false", "mend it", "--breadth", "2"),
    )
    assert said.code == 1
    applied = project("plan", "apply", "last")
    assert "nothing to write" in applied.err or applied.code == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--agent", "nobody"), "there is no agent 'nobody'"),
        (("--agent", "stub", "--check", "judge: fine"), "--judge: name the model"),
        (("--agent", "stub", "--temperature", "1"), "--temperature is for models"),
        (("--agent", "stub", "--check", "run"), "needs a command"),
        (("--allow", "edit"), "--allow is for --agent"),
        (("--check", "run pytest"), "needs --agent"),
    ],
)
def test_what_can_not_be_is_one_sentence(project, words, sentence):
    said = project("sample", *words, "mend it")
    assert said.code == 2, said
    assert sentence in said.err


def test_a_dry_run_says_how_many_agents_may_run(project):
    said = project("sample", "--agent", "stub", "--breadth", "3", "--dry-run", "--json", "x")
    assert json.loads(said.out)["agents_at_worst"] == 3
    assert "unknown" in project("sample", "--agent", "stub", "--dry-run", "x").out
