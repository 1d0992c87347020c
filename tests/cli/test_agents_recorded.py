"""Ten recorded agents on real code, replayed: the run that `make live-agents` makes live."""

import json
import random
import re
import sys

import pytest

from benchmarks.live_agents import replayed
from benchmarks.live_agents.kills import play_round
from benchmarks.live_agents.project import replayed_project
from benchmarks.live_agents.recording import read_recording
from benchmarks.live_agents.repository import (
    AGENTS,
    CONFLICT,
    SHARED,
    WIDTH,
    line_of,
    make_repository,
    own_file,
    without_markers,
)
from tests.agents.stubs import RECORDED
from tests.cli.shell import Shell
from tests.worktrees.repositories import left_in, look


@pytest.fixture
def project(tmp_path, warm):
    folder = tmp_path / "project"
    folder.mkdir()
    made = Shell(folder, warm)
    (folder / ".git").rmdir()
    make_repository(folder)
    made.file(".git/info/exclude", ".abreast\n")
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "together").write_text(str(WIDTH))
    made.environment |= {"ABREAST_CACHE": str(tmp_path / "cache"), "NOTES": str(notes)}
    return made


def costs(agent):
    """Tokens and dollars as the agent itself has printed them; codex prints no dollars."""
    last = agent.events[-1]
    used = last["usage"]
    return used["input_tokens"], used["output_tokens"], last.get("total_cost_usd")


@pytest.mark.parametrize(("name", "model"), [("claude", "claude-sonnet-4-5"), ("codex", "gpt-5")])
def test_ten_agents_of_each_touch_one_file_and_have_one_conflict(project, tmp_path, name, model):
    place = RECORDED / f"ten-{name}.jsonl"
    words = json.dumps([sys.executable, "-I", "-S", replayed.__file__, str(place)])
    project.file("abreast.toml", f"[agents.{name}]\nargv = {words}\n")
    before = look(project.folder, without=[".abreast"])
    said = project(
        *("map", "--agent", name, "-m", model, "--worktree", "--prompt", "{}", "--key", "a{}"),
        *("-P", str(WIDTH), "--json"),
        given="\n".join(map(str, range(AGENTS))),
    )
    assert said.code == 0, said
    assert [row["value"]["tree"]["changed"] for row in said.rows] == [
        [own_file(number), SHARED] for number in range(AGENTS)
    ]
    agents = read_recording(place)
    for row, agent in zip(said.rows, agents, strict=True):
        given, written, usd = costs(agent)
        assert (row["input_tokens"], row["output_tokens"]) == (given, written)
        assert row["usd"] == usd if usd is not None else row["usd"] > 0
    (watched,) = project("watch", "last", "--json").rows
    assert watched["peak"] == WIDTH
    blocked = project("plan", "apply", "last", "--json")
    assert blocked.code == 1, blocked
    (conflict,) = blocked.rows[0]["conflicts"]
    assert (conflict["file"], conflict["parts"]) == (SHARED, [f"a{one}" for one in CONFLICT])
    assert look(project.folder, without=[".abreast"]) == before

    marked = project("plan", "resolve", "last", SHARED).out
    assert marked.count("<<<<<<<") == 1
    resolved = project(
        *("plan", "resolve", "last", SHARED, "--take", "edit", "--from", "-"),
        given=without_markers(marked),
    )
    assert resolved.code == 0, resolved
    assert project("plan", "apply", "last").code == 0
    lines = (project.folder / SHARED).read_text().splitlines()
    assert [line for line in lines if line.startswith("# read by")] == [
        line_of(number) for number in range(AGENTS)
    ]
    assert all((project.folder / own_file(number)).exists() for number in range(AGENTS))
    ran = {path.name: path.read_text() for path in (tmp_path / "notes").glob("ran-*")}
    assert ran == {f"ran-{number}": "x" for number in range(AGENTS)}
    assert left_in(tmp_path / "cache") == []


@pytest.mark.parametrize(("name", "seed"), [("claude", 8), ("codex", 9)])
def test_killed_at_random_finished_agents_do_not_run_again_and_nothing_is_left(
    tmp_path, name, seed
):
    project = replayed_project(name, tmp_path, RECORDED / f"ten-{name}.jsonl")
    found = play_round(project, random.Random(seed))
    assert found.is_right, found.sentence()
    assert found.kills


def test_recordings_name_nothing_of_the_machine_that_made_them():
    for place in RECORDED.glob("ten-*.jsonl"):
        text = place.read_text()
        assert not any(word in text for word in ("/tmp", "/home", "/root", "/Users", "/work"))
        for agent in read_recording(place):
            # Lines that they added, and none of the code that they found.
            assert not re.findall(r"^(?: |-(?!--)).*$", agent.patch, re.MULTILINE)
