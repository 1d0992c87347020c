"""The workflows among the examples, with the real embedded model: the same bytes at every width.

The model answers at all widths in the quickstart, elsewhere at the first: its replies are given
again at the other.
"""

import json
import re
import subprocess

import pytest

from abreast.cli.main import run
from tests.cli.shell import Shell
from tests.docs.pages import ROOT

EXAMPLES = ROOT / "examples"
WIDTHS = (8, 1)  # only the first needs the model, where its replies are remembered
AT_ONCE = 3  # that are seen to run, at least, if there are so many
OTHERWISE = re.compile(
    rb'"run(?:_id)?":"[\w-]+"|"max_concurrency":\d+'
)  # all in which two runs may differ


@pytest.fixture
def at_all_widths(held, here, capfdbinary):
    """Run an example at every width, in this process, where the model is.

    What it gives at all of them.
    """

    def play(name, *words):
        said = []
        for width in WIDTHS:
            assert (
                run(["run", f"examples/{name}", "--input", f"width={width}", *words, "--json"]) == 0
            )
            out, err = capfdbinary.readouterr()
            assert err == b""
            said.append(out)
        assert len({OTHERWISE.sub(b"", one) for one in said}) == 1
        assert [int(re.search(rb'"max_concurrency":(\d+)', one)[1]) for one in said] == list(WIDTHS)
        told = json.loads(said[0])
        (count,) = {
            step["output"]["item_count"]
            for step in told["steps"].values()
            if step["type"] == "fan-out"
        }
        assert held.statistics().most_running >= min(count, AT_ONCE)
        return told

    return play


def git(*words):
    who = (
        "-c",
        "user.name=test",
        "-c",
        "user.email=test@example.com",
        "-c",
        "init.defaultBranch=main",
    )
    subprocess.run(["git", *who, *words], check=True, capture_output=True, timeout=60)


def test_quickstart_asks_six_questions(at_all_widths):
    told = at_all_widths("quickstart.yaml")

    answers = told["outputs"]["answers"].splitlines()
    assert len(answers) == 6
    assert (answers[0], answers[5]) == (
        "The capital of France is Paris.",
        "The capital of Peru is Lima.",
    )


@pytest.mark.usefixtures("remembered")
def test_every_text_of_a_folder_is_summarised(at_all_widths):
    told = at_all_widths("summarise-folder.yaml")

    lines = told["outputs"]["summaries"].splitlines()
    names = ["garden.txt", "meeting.txt", "trip.txt"]
    assert [line for line in lines if not line.startswith("  ")] == [
        f"examples/data/notes/{name}" for name in names
    ]
    assert all(line.strip() for line in lines[1::2])


@pytest.mark.usefixtures("remembered")
def test_each_changed_file_of_a_diff_is_reviewed(at_all_widths, here):
    git("init", "--quiet", ".")
    for name, text in {
        "mean.py": "return sum(xs) / len(xs)\n",
        "old.txt": "gone\n",
        "same.txt": "stays\n",
    }.items():
        (here / name).write_text(text)
    git("add", "*.py", "*.txt")
    git("commit", "--quiet", "-m", "before")
    (here / "mean.py").write_text("return sum(xs) / (len(xs) - 1)\n")
    (here / "old.txt").unlink()
    (here / "two words.toml").write_text("timeout = 0\n")
    git("add", "mean.py", "old.txt", "two words.toml")
    git("commit", "--quiet", "-m", "after")

    told = at_all_widths("review-diff.yaml")

    lines = told["outputs"]["review"].splitlines()
    assert [line for line in lines if not line.startswith("  ")] == ["mean.py", "two words.toml"]
    assert "-return sum(xs) / len(xs)\n+return" in told["steps"]["files:diff:0"]["output"]["stdout"]


def test_a_diff_without_changes_needs_no_model(here, capfd):
    git("init", "--quiet", ".")
    git("commit", "--quiet", "--allow-empty", "-m", "nothing")

    assert run(["run", "examples/review-diff.yaml", "--input", "base=HEAD"]) == 0
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("remembered")
def test_facts_are_extracted_and_lines_that_fail_are_in_quarantine(at_all_widths):
    told = at_all_widths("extract-jsonl.yaml")

    rows = [json.loads(line) for line in told["steps"]["collect"]["output"]["stdout"].splitlines()]
    assert [row["euros"] for row in rows] == [35, 80, 45]
    quarantine = told["steps"]["lines"]["output"]["quarantine"]
    assert [one["index"] for one in quarantine] == [2, 3]
    assert "the text says nothing of" in quarantine[0]["error"]
    assert "from_json: this is no JSON" in quarantine[1]["error"]


@pytest.mark.usefixtures("remembered")
def test_translations_wait_at_a_gate_and_are_written_when_it_is_approved(at_all_widths, here, warm):
    told = at_all_widths("translate-with-gate.yaml")

    assert told["status"] == "paused"
    assert told["steps"]["look"]["status"] == "paused"
    assert not (here / "translated.txt").exists()
    texts = [one["text"] for one in told["steps"]["lines"]["output"]["results"]]
    assert len(texts) == 3
    said = Shell(here, warm)("resume", told["run"], "--input", "look=approve", "--json")
    assert said.code == 0, said.err
    assert said.rows[0]["status"] == "completed"
    assert said.rows[0]["steps"]["lines"] == told["steps"]["lines"]
    assert (here / "translated.txt").read_text() == "".join(f"{text}\n" for text in texts)


@pytest.mark.parametrize(
    "name", [path.name for path in sorted(EXAMPLES.glob("*.yaml")) if path.name != "study.yaml"]
)
def test_a_workflow_says_how_it_is_run_and_what_it_may_cost(name, here, capfd):
    assert (
        f"abreast run examples/{name}"
        in (EXAMPLES / name).read_text("utf-8").partition("schema_version")[0]
    )
    assert run(["run", f"examples/{name}", "--check"]) == 0
    assert "nothing wrong" in capfd.readouterr().out
    assert run(["run", f"examples/{name}", "--dry-run"]) == 0
    assert "model calls at worst" in capfd.readouterr().out
