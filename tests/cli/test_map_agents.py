"""`abreast map --agent --worktree`: trees of their own, merged as the parts of a plan are."""

import json
from contextlib import closing

import pytest

from abreast.store.sqlite.store import SqliteStore
from abreast.views.item import item_of
from tests.cli.agent_projects import agent_project, processes_of
from tests.worktrees.repositories import git, look

EDITS = """
say(kind="start", session="s-" + task)
open("own-" + task, "w").write("by " + task + "\\n")
say(kind="step", text="wrote own-" + task)
if task in ("a", "b"):
    open("shared.txt", "a").write("by " + task + "\\n")
open(os.environ["NOTES"] + "/ran", "a").write(task + "\\n")
seen = {name: open(name).read() for name in ("pkg/words.py", "untracked.txt")}
end(json.dumps(seen), cost=0.25)
"""


@pytest.fixture
def project(tmp_path, warm):
    return agent_project(tmp_path, warm, EDITS)


def run(project, *more, tasks="a b c", code=0):
    given = "\n".join(tasks.split())
    said = project(
        *("map", "--agent", "stub", "--worktree", "--prompt", "{}", "--key", "{}", "-P", "2"),
        *more,
        given=given,
    )
    assert said.code == code, said
    return said


def test_agents_work_in_copies_of_the_tree_as_it_is_and_say_what_they_did(project, tmp_path):
    before = look(project.folder, without=[".abreast"])
    rows = run(project, "--json").rows
    assert look(project.folder, without=[".abreast"]) == before
    assert [row["key"] for row in rows] == ["a", "b", "c"]
    seen = json.loads(rows[0]["value"]["text"])
    assert seen == {"pkg/words.py": "x = 2  # not committed\n", "untracked.txt": "mine\n"}
    assert rows[0]["value"]["agent"]["session"] == "s-a"
    assert rows[0]["value"]["agent"]["steps"] == ["wrote own-a"]
    assert rows[0]["usd"] == 0.25
    tree = rows[0]["value"]["tree"]
    assert tree["changed"] == ["own-a", "shared.txt"]
    assert "+by a" in tree["patch"]
    kept = git(project.folder / ".abreast/plan.git", "show", "--stat", tree["commit"])
    assert "own-a" in kept
    assert not [*(tmp_path / "cache").rglob("own-*")]
    assert processes_of(tmp_path) == []


def test_the_page_has_the_steps_the_diff_of_each_file_and_the_cost(project):
    run(project, "--json", tasks="a")
    with closing(SqliteStore(project.folder / ".abreast/abreast.db")) as store:
        item = item_of(store, store.get("map-1"), "map/items/a", lambda *_: None)
    assert [step["text"] for step in item["steps"]] == ["wrote own-a"]
    assert item["agent"]["cost"] == 0.25
    assert [(one["file"], one["added"]) for one in item["tree"]["files"]] == [
        ("own-a", 1),
        ("shared.txt", 1),
    ]
    assert "words.py" in item["value"]["text"]
    assert "diff --git" not in item["value"]["text"]


def test_their_work_is_merged_conflicts_block_and_nothing_is_written_before(project):
    run(project)
    before = look(project.folder, without=[".abreast"])
    blocked = project("plan", "apply", "last", "--json")
    assert blocked.code == 1
    (conflict,) = blocked.rows[0]["conflicts"]
    assert (conflict["file"], conflict["parts"]) == ("shared.txt", ["a", "b"])
    assert look(project.folder, without=[".abreast"]) == before
    assert project("plan", "resolve", "last", "shared.txt", "--take", "b").code == 0
    assert project("plan", "apply", "last").code == 0
    text = (project.folder / "shared.txt").read_text()
    assert text == "one\ntwo\nthree\nby b\n"
    assert (project.folder / "own-a").read_text() == "by a\n"
    assert (project.folder / "pkg/words.py").read_text() == "x = 2  # not committed\n"
    assert project("plan", "undo").code == 0
    assert look(project.folder, without=[".abreast"]) == before


def test_each_item_can_become_a_branch(project):
    run(project, tasks="a c")
    project.file("untracked.txt", "mine\n")
    made = project("plan", "apply", "last", "--branches", "--json")
    assert made.code == 0, made
    names = git(project.folder, "branch", "--list", "abreast/*").split()
    assert names == ["abreast/map-1/a", "abreast/map-1/c"]
    assert git(project.folder, "show", "abreast/map-1/c:own-c") == "by c\n"
    assert (project.folder / "own-a").exists() is False


def test_a_finished_agent_is_not_run_again(project, tmp_path):
    run(project, "--budget", "0.6usd", tasks="a c d e", code=3)
    ran = (tmp_path / "notes/ran").read_text().split()
    said = project("resume", "--budget", "9usd", "--json")
    assert said.code == 0, said
    assert [row["key"] for row in said.rows] == ["a", "c", "d", "e"]
    again = (tmp_path / "notes/ran").read_text().split()[len(ran) :]
    done = json.loads(project("show", "last", "--json").out)
    assert done["spent"]["usd"] <= 0.25 * (len(ran) + len(again))
    assert len(again) <= 4 - 2  # two were paid for and recorded before the budget was spent


def test_a_command_works_in_a_tree_too(project):
    said = project(
        *("map", "--worktree", "--json", "--", "sh", "-c", 'echo "$1" > "$1"; pwd', "sh", "{}"),
        given="f1\nf2\n",
    )
    assert said.code == 0, said
    assert [row["tree"]["changed"] for row in said.rows] == [["f1"], ["f2"]]
    assert not (project.folder / "f1").exists()
    assert project("plan", "apply", "last").code == 0
    assert (project.folder / "f2").read_text() == "f2\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--agent", "nobody", "--prompt", "x"), "there is no agent 'nobody'"),
        (("--agent", "stub"), "--agent needs a task"),
        (("--agent", "stub", "--prompt", "x", "--allow", "fly"), "can't be allowed 'fly'"),
        (("--agent", "stub", "--prompt", "x", "--temperature", "1"), "--temperature is for models"),
        (("--agent", "stub", "--prompt", "x", "-m", "big"), "stub takes no model"),
        (("--prompt", "x", "--worktree"), "--worktree is for commands and for --agent"),
        (("--prompt", "x", "--allow", "edit"), "--allow is for --agent"),
        (("--agent", "codex", "--prompt", "x"), "codex is not installed"),
    ],
)
def test_what_can_not_be_is_one_sentence(project, words, sentence):
    said = project("map", *words, given="a\n", PATH="/usr/bin:/bin")
    assert said.code == 2, said
    assert sentence in said.err
    assert "Traceback" not in said.err


def test_an_agent_that_does_not_say_its_cost_has_no_budget_in_money(project):
    text = (project.folder / "abreast.toml").read_text()
    project.file("abreast.toml", text.replace('cost = "cost"\n', ""))
    said = project(*("map", "--agent", "stub", "--prompt", "{}", "--budget", "1usd"), given="a\n")
    assert said.code == 2, said
    assert "stub does not say what it costs" in said.err


def test_without_worktrees_an_agent_works_in_the_directory_itself(project):
    said = project("map", "--agent", "stub", "--prompt", "{}", "--allow", "edit", given="c\n")
    assert said.code == 0, said
    assert (project.folder / "own-c").exists()
    assert "had no worktrees" in project("plan", "apply", "last").err
