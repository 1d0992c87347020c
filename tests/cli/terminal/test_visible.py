"""Control characters in recorded text are escaped on a terminal; abreast's own colours are not."""

import json
import os
import pty
import re
import select
import subprocess
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.cli.terminal.visible import visible, visible_json
from abreast.store.sqlite.store import SqliteStore
from tests.cli.shell import PATIENCE
from tests.cli.storms import start_storm

EVIL = "\x1b[2J\x1b]0;title\x07\x9b3J\u202e\rPWNED\x7f"
OBEYED = re.compile("\x1b\\[2J|\x1b\\]|\x07|\x9b|\u202e|\rPWNED|\x7f")
OURS = re.compile(r"\x1b\[[0-9;]*m")


def on_a_terminal(abreast, *words, given=b"", typed=b""):
    """What a command sends to the terminal that its stdout and stderr are.

    With something typed, its stdin too.
    """
    ours, theirs = pty.openpty()
    environment = {"TERM": "xterm-256color", "COLUMNS": "200", "LINES": "50"}
    stdin = theirs if typed else subprocess.PIPE
    with abreast.forked(
        *words,
        environment=environment,
        stdin=stdin,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        if typed:
            os.write(ours, typed)
        else:
            process.stdin.write(given)
            process.stdin.close()
        seen = b""
        while select.select([ours], [], [], PATIENCE)[0]:
            try:
                piece = os.read(ours, 65_536)
            except OSError:  # no process has it open any more
                break
            if not piece:
                break
            seen += piece
        process.wait(PATIENCE)
    os.close(ours)
    return seen.decode("utf-8", "replace")


@pytest.fixture
def recorded(abreast):
    """A run whose name, items, outputs and errors hold control characters."""
    abreast.file("evil", f"{EVIL}\n")
    command = 'cat evil; cat evil >&2; test "$1" = good'
    said = abreast(
        "map", "--name", f"run{EVIL}", "--", "sh", "-c", command, "sh", "{}", given="good\nbad\n"
    )
    assert EVIL in said.out  # piped, it is what the command wrote
    with closing(SqliteStore(abreast.store)) as store:
        return store.runs()[0].id


def test_no_command_for_people_passes_recorded_control_characters_on(abreast, recorded):
    for words in (
        ["show", recorded],
        ["show", recorded, "0000"],
        ["show", recorded, "0001"],
        ["runs"],
        ["watch", recorded],
        ["show", recorded, "--json"],
        ["export", recorded],
        ["resume", recorded],
        ["retry", recorded],
    ):
        seen = on_a_terminal(abreast, *words)
        assert "PWNED" in seen, words
        assert not OBEYED.search(seen), (words, seen)


def test_our_own_colours_arrive(abreast, recorded):
    assert OURS.search(on_a_terminal(abreast, "show", recorded, "0000"))
    assert OURS.search(on_a_terminal(abreast, "runs"))
    assert OURS.search(on_a_terminal(abreast, "watch", recorded))


def test_what_is_asked_for_raw_is_raw(abreast, recorded):
    assert EVIL in on_a_terminal(abreast, "show", recorded, "0000", "--raw")
    assert EVIL in abreast("show", recorded, "0000", "--raw").out
    piped = abreast("show", recorded, "0000").out
    assert "\\x1b[2J\\x1b]0;title\\x07\\x9b3J\\u202e\\x0dPWNED\\x7f" in piped
    assert not OBEYED.search(piped)


def test_results_of_a_map_are_shown_on_a_terminal_and_exact_in_a_pipe(abreast):
    abreast.file("evil", f"{EVIL}\n\ttab\r\n")
    seen = on_a_terminal(abreast, "map", "--", "sh", "-c", "cat evil", given=b"one\n")
    assert "\\x1b[2J\\x1b]0;title\\x07\\x9b3J\\u202e\\x0dPWNED\\x7f\r\n" in seen
    assert "\ttab\r" in seen
    assert not OBEYED.search(seen)
    ran = abreast("map", "--", "sh", "-c", "cat evil", given="one\n")
    assert (ran.code, ran.out) == (0, f"{EVIL}\n\ttab\r\n")


def test_file_names_in_a_plan_are_shown(abreast):
    for number in range(12):
        abreast.file(f"src/{EVIL.replace('/', '')}/m{number}.py", f"x = {number}\n")
        abreast.file(f"src/b/m{number}.py", f"x = {number}\n")
    for words in (
        ["plan", "show", "src"],
        ["plan", "score", "src"],
        ["plan", "show", "src", "--json"],
    ):
        seen = on_a_terminal(abreast, *words)
        assert not OBEYED.search(seen), (words, seen)
    assert "PWNED" in seen


def test_names_and_replies_of_a_study_are_shown(abreast):
    study = {
        "name": f"s{EVIL}",
        "models": ["a/one"],
        "inputs": "data.jsonl",
        "scores": ["contains"],
        "strategies": {"plain": {"prompt": "say", "max_tokens": 5}},
    }
    abreast.file("data.jsonl", f"{json.dumps({'id': 'one', 'text': EVIL, 'truth': 'e'})}\n")
    abreast.file("study.yaml", json.dumps({"matrix": study}))
    with start_storm() as storm:
        abreast.file(
            "abreast.toml",
            f'[lanes.a]\nbase_url = "{storm.url}/v1"\nprice = {{input = 1.0, output = 2.0}}\n',
        )
        seen = [on_a_terminal(abreast, "matrix", "run", "study.yaml")]
    with closing(SqliteStore(abreast.store)) as store:
        run = store.runs()[0].id
    seen += [
        on_a_terminal(abreast, *words)
        for words in (["matrix", "report", run], ["matrix", "export", run])
    ]
    assert [one for one in seen if OBEYED.search(one)] == []
    assert "PWNED" in "".join(seen)


def test_what_a_gate_asks_is_shown(abreast):
    steps = [
        {"id": "ask", "type": "gate", "message": f"well? {EVIL}", "options": ["approve", "reject"]}
    ]
    flow = {"workflow": {"id": "f", "name": "f", "version": "1.0.0"}, "steps": steps}
    abreast.file("flow.yaml", json.dumps(flow))
    seen = on_a_terminal(abreast, "run", "flow.yaml", typed=b"approve\n")
    assert "\\x0dPWNED" in seen
    assert not OBEYED.search(seen), seen


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text):
    left = visible(text)
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", left)
    assert not re.search("\r(?!\n)", left)


@given(st.text())
def test_json_without_control_characters_says_the_same(text):
    line = visible_json(json.dumps({"text": text}, ensure_ascii=False))
    assert json.loads(line) == {"text": text}
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", line)
