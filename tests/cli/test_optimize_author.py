"""`abreast optimize --author`: a coding agent writes candidates, each in a tree of its own."""

import json

import pytest

from tests.agents.stubs import stub_toml, write_stub
from tests.cli.shell import Shell
from tests.jobs.candidates.projects import QUICK, SLOW, TESTS
from tests.worktrees.repositories import git, left_in, look

# A wrong draft; its repair, by a new module; and an agent that changes nothing but other files.
CODE = """
open(os.environ["NOTES"] + "/asked", "a").write(task + "\\n====\\n")
text = open("sums.py").read()
if "approach 1" in task:
    open("sums.py", "w").write(text.replace("found += 1", "found = 2"))
elif "does not do what" in task:
    open("faster.py", "w").write("def hit(one, other, wanted): return other == wanted - one")
    text = text.replace("one + other == wanted", "hit(one, other, wanted)")
    open("sums.py", "w").write(text.replace('"' * 3 + "Sums." + '"' * 3, "from faster import hit"))
    for name in ("test_sums.py", "conftest.py"):
        open(name, "a").write("raise SystemExit")
open("notes.md", "w").write("the agent's own")
end("done", cost=0.25)
"""
WORDS = ("optimize", "sums.py::pairs", "--tests", "test_sums.py", "--author", "stub")


@pytest.fixture
def project(tmp_path, warm):
    folder = tmp_path / "project"
    folder.mkdir()
    made = Shell(folder, warm)
    (folder / ".git").rmdir()
    git(folder, "init", "-q", "-b", "main")
    made.file(".git/info/exclude", ".abreast\n__pycache__\n")
    for name, text in (("sums.py", SLOW), ("test_sums.py", TESTS), ("pytest.ini", QUICK)):
        made.file(name, text)
    made.file("abreast.toml", stub_toml(write_stub(tmp_path, CODE)))
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    made.environment |= {"ABREAST_CACHE": str(tmp_path / "cache"), "NOTES": str(tmp_path)}
    return made


def test_an_agent_writes_candidates_in_trees_and_repairs_a_wrong_one(project, tmp_path):
    before = look(project.folder, without=[".abreast"])
    said = project(
        *(*WORDS, "--proposals", "2", "--generated", "0", "--behaviour-only", "--json"),
        *("--budget", "9usd"),
    )
    assert said.code == 0, said
    found = [(one["name"], one["verdict"]) for one in said.rows[0]["candidates"]]
    assert found == [("draft-1", "wrong"), ("draft-1-repaired", "same"), ("draft-2", "error")]
    assert "pairs" in said.rows[0]["candidates"][2]["reason"]
    assert [one["files"] for one in said.rows[0]["candidates"]] == [[], ["faster.py"], []]
    assert json.loads(project("show", "last", "--json").out)["spent"]["usd"] == 0.75
    asked = (tmp_path / "asked").read_text().split("\n====\n")[:-1]
    assert len(asked) == 3
    assert all("Edit the function in the file sums.py" in one for one in asked)
    assert look(project.folder, without=[".abreast", "__pycache__"]) == before
    assert left_in(tmp_path / "cache") == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--author", "nobody"), "--author: there is no agent 'nobody'"),
        (("--author", "stub", "--allow", "fly"), "can't be allowed 'fly'"),
        (("--author", "stub", "-m", "big"), "stub takes no model"),
        (("--candidates", ".", "--allow", "edit"), "allow is for author"),
        (("--candidates", ".", "--wait"), "--wait is for --author"),
    ],
)
def test_what_can_not_be_is_one_sentence(project, words, sentence):
    said = project(*WORDS[:4], *words)
    assert said.code == 2, said
    assert sentence in said.err
